//! Does the second run find anything of the first? Run A plants a canary wherever an unprivileged job can; after the
//! clean-up, nothing may hold it. Needs root, for jobs must be another user: the test calls itself in namespaces of its
//! own, in which the shared directories are fresh, so that nothing of the machine is touched. Without root, or keyctl,
//! which `tests/engines/setup machine` brings, it says, aloud, that it did not run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod apart;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use runyard_agent::host::{Account, Host, HostSettings, Isolation, OwnScript, PackageSource, SweepPaths};
use runyard_agent::step::local::{Boot, ClaimStage, Local, Mode, Served};
use runyard_agent::step::orders::{Orders, Sight};
use runyard_agent::step::{Stored, View, step};
use runyard_agent::task::{Executor, RunnerProcess, Task, TaskOutcome, Wipe};
use runyard_core::model::{AgentKey, ClaimId, Jobs, State};
use sha2::{Digest, Sha256};

/// A user that no machine has.
const UID: u32 = 64_007;
const NAME: &str = "runyard-leak-test";
const CANARY: &str = "runyard-canary-5d1c";
/// What is made fresh in the namespace; also what is looked through.
const FRESH: [&str; 7] = ["/tmp", "/var/tmp", "/dev/shm", "/home", "/var/spool", "/run", "/var/lib/systemd"];

/// The agent's program, where jobs may execute it.
const PROGRAM: &str = "/home/yard/runyard-agent";
/// A user that the job user may become in a user namespace of its making.
const SUBORDINATE: u32 = 200_001;

/// What a job leaves; `$HOME`, `$TMPDIR` and the work directory are the claim's. One canary a line.
const PLANTS: &str = r#"
mkdir -p _work/repo/repo/.git/hooks _work/_temp _work/_actions _work/_tool/node _work/_update _diag && echo $C >_work/repo/repo/file
echo $C >_work/repo/repo/.git/hooks/post-checkout
echo $C >_work/_temp/step.sh
echo $C >_work/_actions/action.js
echo $C >_work/_tool/node/index.js
echo $C >_diag/Worker.log
echo $C >.runner
echo $C >.credentials
echo $C >.credentials_rsaparams
echo $C >.env
echo $C >.path
mkdir -p $HOME/.docker $HOME/.aws $HOME/.ssh $HOME/.gnupg $HOME/.cargo $HOME/.config/systemd/user $HOME/.cache/ccache && echo $C >$HOME/.docker/config.json
echo $C >$HOME/.aws/credentials
echo $C >$HOME/.netrc
echo $C >$HOME/.npmrc
echo $C >$HOME/.gitconfig
echo $C >$HOME/.ssh/id_ed25519
echo $C >$HOME/.gnupg/key
echo $C >$HOME/.cargo/credentials.toml
echo $C >$HOME/.bashrc
echo $C >$HOME/.config/systemd/user/evil.service
echo $C >$HOME/.cache/ccache/object
echo $C >$TMPDIR/file
echo $C >/tmp/file
echo $C >/tmp/.hidden
mkdir -p /tmp/dir/deep && echo $C >/tmp/dir/deep/file && chmod 000 /tmp/dir/deep
mkdir -p /tmp/read-only && echo $C >/tmp/read-only/file && chmod 555 /tmp/read-only
mkfifo /tmp/fifo-$C
ln -s $C /tmp/link
echo $C >"/tmp/$(printf 'new\nline')"
cp /bin/true /tmp/setuid-$C && chmod 4755 /tmp/setuid-$C
echo $C >/var/tmp/file
mkdir -p /var/tmp/toolcache && echo $C >/var/tmp/toolcache/node
echo $C >/dev/shm/segment
echo $C >/run/lock/file
echo $C >/home/shared/file
mkdir -p /home/shared/nested && echo $C >/home/shared/nested/file && chmod 700 /home/shared/nested
echo $C >/run/user/64007/socket-file
echo $C >/var/spool/cron/crontabs/runyard-leak-test
echo $C >/var/spool/cron/atjobs/a0001
(cd / && exec env -i C=$C sleep 600) &
(cd / && exec env -i setsid bash -c "exec -a $C sleep 600") &
(cd / && exec env -i nohup sh -c "while :; do echo $C >/tmp/again; sleep 0.05; done" >/dev/null 2>&1) &
: >/run/mqueue/$C
ipcmk -M 4096 >/dev/null
ipcmk -S 1 >/dev/null
ipcmk -Q >/dev/null
keyctl add user $C secret @u >/dev/null
perl -e 'use threads; threads->create(sub { sleep 600 }); $0 = "$ENV{C}"; sleep 1; syscall(60, 0)' >/dev/null 2>&1 &
"#;

/// Gives the namespaces the programs that a machine of jobs has.
const PROGRAMS: &str = r#"
[ -z "$PACKAGES" ] || mount -t overlay -o lowerdir="$PACKAGES/usr":/usr none /usr || exit
exec "$@"
"#;

fn machine() -> Command {
    let mut command = Command::new("unshare");
    command.env("PACKAGES", apart::packages().unwrap_or_default());
    command.args(["--mount", "--ipc", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.args(["sh", "-c", PROGRAMS, "sh"]);
    command
}

/// Whether namespaces can be made here; a root in a container often may not. What cannot be run says so.
fn can_be_run() -> bool {
    let may = nix::unistd::geteuid().is_root()
        && machine()
            .args(["sh", "-c", "command -v keyctl"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !may {
        aloud("needs root, keyctl and leave to make namespaces, for jobs must be another user");
    }
    may
}

/// Past the capture of what passing tests print: what was not tried must not look tried.
fn aloud(why: &str) {
    let text = format!("\n******\nagent/tests/leaks.rs: NOT RUN: {why}\n******\n");
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
}

/// Calls a test of this file that is otherwise left out, in namespaces of its own. One after the other, on the whole
/// computer: the kernel's keyrings are in no namespace.
fn apart(test: &str) {
    let turn = fs::File::create(std::env::temp_dir().join("runyard-test-keyrings")).unwrap();
    turn.lock().unwrap();
    let own = std::env::current_exe().unwrap();
    let output = machine()
        .arg(own)
        .args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    println!("{said}");
    // What was left out in there is told out here as well.
    for why in said.lines().filter_map(|line| line.split("NOT RUN: ").nth(1)) {
        aloud(why);
    }
}

#[test]
fn the_second_run_finds_nothing_of_the_first() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_nothing_of_a_job_is_left");
}

/// Fresh shared directories; this process and what it starts see nothing else there.
fn fresh() {
    // What is built may lie below one of them.
    let program = fs::read(env!("CARGO_BIN_EXE_runyard-agent")).unwrap();
    for dir in FRESH {
        fs::create_dir_all(dir).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0755", "none", dir]).status().unwrap();
        assert!(mounted.success(), "{dir}");
    }
    for dir in [
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/home/shared",
        "/run/lock",
        "/var/spool/cron/crontabs",
        "/var/spool/cron/atjobs",
    ] {
        fs::create_dir_all(dir).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o1777)).unwrap();
    }
    fs::create_dir_all(format!("/run/user/{UID}")).unwrap();
    std::os::unix::fs::chown(format!("/run/user/{UID}"), Some(UID), Some(UID)).unwrap();
    fs::create_dir_all("/var/lib/systemd/linger").unwrap();
    fs::write(format!("/var/lib/systemd/linger/{NAME}"), CANARY).unwrap();
    fs::create_dir_all("/run/mqueue").unwrap();
    fs::create_dir_all("/home/yard").unwrap();
    fs::write(PROGRAM, program).unwrap();
    fs::set_permissions(PROGRAM, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write("/run/subuid", format!("{NAME}:200000:1000\n")).unwrap();
    let bound = Command::new("mount").args(["--bind", "/run/subuid", "/etc/subuid"]).status().unwrap();
    assert!(bound.success());
    let queues = Command::new("mount").args(["-t", "mqueue", "none", "/run/mqueue"]).status().unwrap();
    assert!(queues.success());
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
}

fn settings() -> HostSettings {
    // Deep in a directory that jobs may pass through.
    fs::create_dir_all("/home/yard/work/package").unwrap();
    // A package that is there.
    let (archive, sha256) = package_of("#!/bin/sh\nexit 0\n");
    fs::write(format!("/home/yard/work/package/{sha256}.tar.gz"), archive).unwrap();
    HostSettings {
        machine: "i-leak".to_owned(),
        state_dir: "/run/runyard".into(),
        work_dir: "/home/yard/work".into(),
        package: PackageSource {
            url: "http://127.0.0.1:1/runner.tar.gz".parse().unwrap(),
            sha256,
            version: String::new(),
        },
        package_hosts: Vec::new(),
        pre_runner: None,
        post_run: None,
        account: Some(Account { name: NAME.to_owned(), uid: UID, gid: UID }),
        isolation: None,
        places: SweepPaths {
            trees: FRESH.iter().map(PathBuf::from).collect(),
            docker: "/run/none.sock".into(),
            program: PROGRAM.into(),
            spare: Vec::new(),
            kept: None,
        },
        stop: Duration::from_secs(1),
        variables: Vec::new(),
        group: None,
        image: None,
        adopts_orphans: false,
    }
}

/// What tells when the first job of a claim could begin.
const BEGUN: &str = "/home/yard/work/begun";

/// Runs a script of a claim as a job would run.
fn job(claim: &ClaimId, script: &str) {
    // The agent makes it before the first job of a claim.
    if !Path::new(BEGUN).exists() {
        fs::write(BEGUN, "").unwrap();
    }
    let root = PathBuf::from("/home/yard/work/claims").join(claim.as_str());
    for dir in ["", "runner", "home", "tmp"] {
        fs::create_dir_all(root.join(dir)).unwrap();
        std::os::unix::fs::chown(root.join(dir), Some(UID), Some(UID)).unwrap();
    }
    let status = Command::new("bash")
        .args(["-e", "-c", script])
        .env_clear()
        .envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("C", CANARY), ("RUNYARD_CLAIM", claim.as_str())])
        .env("HOME", root.join("home"))
        .env("TMPDIR", root.join("tmp"))
        .current_dir(root.join("runner"))
        .uid(UID)
        .gid(UID)
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "the job itself failed");
}

/// Everything in which the canary stands: names, contents, links, processes, objects in memory.
fn traces() -> Vec<String> {
    let mut found = Vec::new();
    for dir in FRESH {
        search(Path::new(dir), &mut found);
    }
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let of_job = fs::metadata(&path).is_ok_and(|found| [UID, SUBORDINATE].contains(&found.uid()));
        let numbered = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
        // An ended process whose parent does not look is no more than a number, but for one with threads that live.
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let threads = fs::read_dir(path.join("task")).map_or(0, Iterator::count);
        let ended = stat.contains(") Z ") && threads < 2;
        if of_job && numbered && !ended {
            found.push(format!("process {}", fs::read_to_string(path.join("cmdline")).unwrap_or_default()));
        }
    }
    let keys = fs::read_to_string("/proc/key-users").unwrap();
    let of_job = |line: &&str| line.trim().starts_with(&format!("{UID}:"));
    found.extend(keys.lines().filter(of_job).map(|line| format!("keys {line}")));
    for kind in ["shm", "sem", "msg"] {
        let table = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap();
        let of_job = table.lines().filter(|line| line.split_whitespace().any(|word| word == UID.to_string()));
        found.extend(of_job.map(|line| format!("{kind} {line}")));
    }
    found
}

fn search(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let target = fs::read_link(&path).unwrap_or_default();
        let content = if metadata.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let holds = |text: &str| text.contains(CANARY);
        if holds(&path.to_string_lossy())
            || holds(&target.to_string_lossy())
            || holds(&String::from_utf8_lossy(&content))
        {
            found.push(path.display().to_string());
        }
        if metadata.is_dir() {
            search(&path, found);
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
#[ignore = "called by the_second_run_finds_nothing_of_the_first"]
fn within_namespaces_nothing_of_a_job_is_left() {
    fresh();
    let host = Host::new(settings()).unwrap();
    let claim = ClaimId::parse("i-leak.2").unwrap();
    assert!(traces().len() == 1, "{:?}", traces());
    job(&claim, PLANTS);
    let mut apart = Command::new("sleep");
    let mut apart =
        apart.arg("600").env_clear().current_dir("/").uid(SUBORDINATE).gid(SUBORDINATE).spawn().unwrap();
    fs::write("/home/shared/subordinate", CANARY).unwrap();
    std::os::unix::fs::chown("/home/shared/subordinate", Some(SUBORDINATE), Some(SUBORDINATE)).unwrap();
    wait_for_a_thread_without_its_first();
    let planted = traces();
    println!("{} canaries planted", planted.len());
    assert!(planted.len() >= 49, "{}: {planted:#?}", planted.len());
    // Too deep for any path, and a queue that is mounted nowhere any more.
    job(
        &claim,
        "mkdir /tmp/deep; cd /tmp/deep; perl -e 'for (1..60000) { mkdir \"d\"; chdir \"d\" or die }'",
    );
    assert!(Command::new("umount").arg("/run/mqueue").status().unwrap().success());
    assert_eq!(wiped(&host, &claim), TaskOutcome::Wiped);
    apart.wait().unwrap();
    assert!(!Path::new("/tmp/deep").exists());
    let queues = Command::new("mount").args(["-t", "mqueue", "none", "/run/mqueue"]).status().unwrap();
    assert!(queues.success());
    assert_eq!(traces(), Vec::<String>::new());
    // What cannot go is told, and the machine is not used again: a mount in a directory of the job's.
    job(&claim, "mkdir /tmp/busy");
    assert!(
        Command::new("mount")
            .args(["-t", "tmpfs", "-o", "uid=64007", "none", "/tmp/busy"])
            .status()
            .unwrap()
            .success()
    );
    let outcome = wiped(&host, &claim);
    assert!(matches!(&outcome, TaskOutcome::Unproved(why) if why.contains("/tmp/busy")), "{outcome:?}");
}

/// `ps` and the agent's older selves take such a process for an ended one.
fn wait_for_a_thread_without_its_first() {
    let until = tokio::time::Instant::now() + Duration::from_secs(600);
    let there = || {
        fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            stat.contains(") Z ") && fs::read_dir(entry.path().join("task")).map_or(0, Iterator::count) > 1
        })
    };
    while !there() {
        assert!(tokio::time::Instant::now() < until, "no process outlived its first thread");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wiped(host: &Host, claim: &ClaimId) -> TaskOutcome {
    let wipe = Task::Wipe { claim: claim.clone(), since: None, wipe: Wipe::Whole };
    runtime().block_on(host.execute(wipe))
}

fn unproved(host: &Host, claim: &ClaimId) -> String {
    match wiped(host, claim) {
        TaskOutcome::Unproved(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_there_before_the_first_job_is_not_removed_and_the_machine_is_not_lent() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_what_was_there_before_stays");
}

#[test]
#[ignore = "called by what_was_there_before_the_first_job_is_not_removed_and_the_machine_is_not_lent"]
fn within_namespaces_what_was_there_before_stays() {
    fresh();
    let (host, claim) = (Host::new(settings()).unwrap(), ClaimId::parse("i-leak.5").unwrap());
    assert_eq!(wiped(&host, &claim), TaskOutcome::Wiped, "without a job there is nothing to remove");
    fs::create_dir_all("/var/tmp/toolcache/node").unwrap();
    fs::write("/var/tmp/toolcache/node/bin", "the image's").unwrap();
    for path in ["/var/tmp/toolcache", "/var/tmp/toolcache/node", "/var/tmp/toolcache/node/bin"] {
        std::os::unix::fs::chown(path, Some(UID), Some(UID)).unwrap();
    }
    let booted = format!("{:?}", runtime().block_on(host.execute(Task::Boot)));
    assert!(booted.contains("/var/tmp/toolcache are") && booted.contains("chown"), "{booted}");
    let why = unproved(&host, &claim);
    assert!(why.contains("/var/tmp/toolcache") && why.contains("before its first job"), "{why}");
    // The clock of file systems goes by steps.
    std::thread::sleep(Duration::from_millis(50));
    job(&claim, "echo $C >/var/tmp/toolcache/node/new");
    let why = unproved(&host, &claim);
    assert!(why.contains("/var/tmp/toolcache/node/bin"), "{why}");
    assert_eq!(fs::read_to_string("/var/tmp/toolcache/node/bin").unwrap(), "the image's");
    assert_eq!(traces(), Vec::<String>::new(), "what a job left in it goes");
}

#[test]
fn a_machine_is_looked_through_after_its_pre_runner_script() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_the_pre_runner_script_is_first");
}

#[test]
#[ignore = "called by a_machine_is_looked_through_after_its_pre_runner_script"]
fn within_namespaces_the_pre_runner_script_is_first() {
    fresh();
    let booted = |text: &str| {
        fs::write("/home/pre-runner.sh", format!("#!/bin/sh\nset -eu\n{text}")).unwrap();
        fs::set_permissions("/home/pre-runner.sh", fs::Permissions::from_mode(0o700)).unwrap();
        let script = PathBuf::from("/home/pre-runner.sh");
        let pre_runner = Some(OwnScript { script, timeout: Duration::from_secs(60), optional: false });
        let host = Host::new(HostSettings { pre_runner, ..settings() }).unwrap();
        format!("{:?}", runtime().block_on(host.execute(Task::Boot)))
    };
    let mounts = booted("mkdir -p /home/scratch; sleep 0.2; mount -t tmpfs -o mode=0755 none /home/scratch");
    assert_eq!(mounts, "Booted(Ok(()))");
    let gives = booted(&format!("mkdir -p /home/cache; sleep 0.2; chown {UID} /home/cache"));
    assert!(gives.contains("/home/cache are") && gives.contains("chown"), "{gives}");
}

#[test]
fn what_a_job_could_change_and_did_keeps_a_machine_from_the_pool() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_what_is_roots_was_changed");
}

#[test]
#[ignore = "called by what_a_job_could_change_and_did_keeps_a_machine_from_the_pool"]
fn within_namespaces_what_is_roots_was_changed() {
    fresh();
    fs::create_dir("/home/tools").unwrap();
    for name in ["/home/tools/go", "/home/tools/log", "/home/tools/untouched"] {
        fs::write(name, "root's").unwrap();
        fs::set_permissions(name, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let (host, claim) = (Host::new(settings()).unwrap(), ClaimId::parse("i-leak.6").unwrap());
    std::thread::sleep(Duration::from_millis(50));
    job(&claim, "test -w /home/tools/go");
    assert_eq!(wiped(&host, &claim), TaskOutcome::Wiped, "nothing was changed");
    std::thread::sleep(Duration::from_millis(50));
    job(&claim, "echo evil >/home/tools/go");
    let why = unproved(&host, &claim);
    assert!(why.contains("/home/tools/go are not") && !why.contains("untouched"), "{why}");
    fs::remove_file(BEGUN).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    fs::set_permissions("/home/tools", fs::Permissions::from_mode(0o777)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    job(&claim, "mv /home/tools/go /home/tools/node");
    let why = unproved(&host, &claim);
    assert!(why.contains("/home/tools"), "{why}");
    // A journal, as root keeps one for each user.
    fs::remove_file(BEGUN).unwrap();
    fs::set_permissions("/home/tools", fs::Permissions::from_mode(0o755)).unwrap();
    fs::write("/home/journal", "").unwrap();
    let listed = Command::new("setfacl").args(["-m", &format!("u:{UID}:r"), "/home/journal"]).status();
    if !listed.is_ok_and(|status| status.success()) {
        return aloud("without setfacl, lists of who else may read were not tried");
    }
    std::thread::sleep(Duration::from_millis(50));
    job(&claim, "true");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(wiped(&host, &claim), TaskOutcome::Wiped, "it is as it was");
    job(&claim, "true");
    std::thread::sleep(Duration::from_millis(50));
    fs::write("/home/journal", CANARY).unwrap();
    assert!(unproved(&host, &claim).contains("/home/journal"));
}

#[test]
fn nothing_is_removed_from_a_file_system_that_is_not_the_machines_own() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_other_file_systems_are_left_alone");
}

#[test]
#[ignore = "called by nothing_is_removed_from_a_file_system_that_is_not_the_machines_own"]
fn within_namespaces_other_file_systems_are_left_alone() {
    fresh();
    let (mut settings, claim) = (settings(), ClaimId::parse("i-leak.7").unwrap());
    fs::create_dir("/home/disk").unwrap();
    // A disk of the machine's own is swept like any other place.
    fs::write("/run/image", "").unwrap();
    fs::OpenOptions::new().write(true).open("/run/image").unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("mke2fs").args(["-q", "-t", "ext4", "-F", "/run/image"]).status();
    let mounted = || Command::new("mount").args(["-o", "loop", "/run/image", "/home/disk"]).status();
    if made.is_ok_and(|status| status.success()) && mounted().is_ok_and(|status| status.success()) {
        fs::set_permissions("/home/disk", fs::Permissions::from_mode(0o1777)).unwrap();
        let host = Host::new(settings.clone()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        job(&claim, "echo $C >/home/disk/file");
        assert!(Path::new("/home/disk/file").exists());
        assert_eq!(wiped(&host, &claim), TaskOutcome::Wiped);
        assert!(!Path::new("/home/disk/file").exists());
        assert!(Command::new("umount").arg("/home/disk").status().unwrap().success());
    } else {
        aloud("a file system in a file cannot be mounted here");
    }
    let Some(asked) = program_file_system("/home/disk") else {
        return aloud("a program's file system (FUSE) cannot be mounted here");
    };
    let host = Host::new(settings.clone()).unwrap();
    let start = Task::Configure { claim: claim.clone(), registration: Box::new(registration()) };
    let registered = format!("{:?}", runtime().block_on(host.execute(start)));
    assert!(
        registered.contains("/home/disk (fuse)") && registered.contains("cleaning.spare"),
        "{registered}"
    );
    job(&claim, "test -e /home/disk/anothers");
    assert!(unproved(&host, &claim).contains("/home/disk (fuse)"));
    // Where jobs are isolated, they do not see it.
    let isolation = Isolation {
        program: PROGRAM.into(),
        config: "/run/runyard/agent.toml".into(),
        metadata: "http://127.0.0.1:1".parse().unwrap(),
        home: format!("/home/{NAME}").into(),
    };
    let isolated = HostSettings { isolation: Some(isolation), ..settings.clone() };
    assert_eq!(wiped(&Host::new(isolated).unwrap(), &claim), TaskOutcome::Wiped);
    settings.places.spare = vec!["/home/disk".into()];
    assert_eq!(wiped(&Host::new(settings).unwrap(), &claim), TaskOutcome::Wiped);
    assert_eq!(*asked.lock().unwrap(), Vec::<u32>::new(), "it was asked to change something");
}

/// A file system of a program's (`linux/fuse.h`): a directory that everybody may write to, with a file of the job
/// user's. What it is asked to change, by the numbers of the requests. None where it cannot be mounted.
fn program_file_system(place: &str) -> Option<std::sync::Arc<std::sync::Mutex<Vec<u32>>>> {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    let mut device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    );
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount("none", place, "fuse", rustix::mount::MountFlags::empty(), &*options).ok()?;
    let asked = std::sync::Arc::<std::sync::Mutex<Vec<u32>>>::default();
    let told = asked.clone();
    std::thread::spawn(move || {
        let mut request = vec![0; 256 * 1024];
        while let Ok(length) = device.read(&mut request) {
            let number = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
            let wide = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
            let (operation, node) = (number(4), wide(16));
            let answer = match operation {
                // FORGET has no answer.
                2 => continue,
                1 if request[40..length].starts_with(b"anothers\0") => {
                    Ok([words(&[2, 0, 1, 1]), vec![0; 8], attributes(2)].concat())
                }
                1 => Err(2),
                3 => Ok([words(&[1, 0]), attributes(node)].concat()),
                26 => {
                    let mut init = vec![0; 64];
                    init[..4].copy_from_slice(&7_u32.to_le_bytes());
                    init[4..8].copy_from_slice(&31_u32.to_le_bytes());
                    init[20..24].copy_from_slice(&4096_u32.to_le_bytes());
                    Ok(init)
                }
                14 | 27 => Ok(vec![0; 16]),
                28 if wide(48) == 0 => Ok([
                    words(&[2, 1]),
                    8_u32.to_le_bytes().to_vec(),
                    8_u32.to_le_bytes().to_vec(),
                    b"anothers".to_vec(),
                ]
                .concat()),
                18 | 25 | 28 | 29 => Ok(Vec::new()),
                change => {
                    if (4..=13).contains(&change) || [16, 35].contains(&change) {
                        told.lock().unwrap().push(change);
                    }
                    Err(38)
                }
            };
            let (error, body) = answer.map_or_else(|error: i32| (-error, Vec::new()), |body| (0, body));
            let head = [(16 + body.len() as u32).to_le_bytes(), error.to_le_bytes()].concat();
            let _ = device.write(&[head, request[8..16].to_vec(), body].concat());
        }
    });
    Some(asked)
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// `struct fuse_attr`: the directory is root's and everybody's, the file is the job user's.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, owner) = if node == 1 { (0o40777_u32, 0) } else { (0o100_644, UID) };
    let narrow = [0, 0, 0, mode, 1, owner, owner, 0, 4096, 0];
    let narrow: Vec<u8> = narrow.iter().flat_map(|number: &u32| number.to_le_bytes()).collect();
    [words(&[node, 0, 0, 0, 0, 0]), narrow].concat()
}

#[test]
fn a_job_of_another_run_never_begins_and_leaves_nothing_to_the_runs_own() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_another_runs_job_is_refused");
}

/// A runner as GitHub's is, as far as its hook goes: it is called before each job with what GitHub says of it, and
/// whether it succeeds or fails, steps are done that are always to be done. Interrupted, it ends.
const RUNNER: &str = r#"#!/bin/bash
trap 'kill -9 $hook; exit 0' INT
echo 'Listening for Jobs'
while :; do
    for job in /home/shared/jobs/*; do
        [ -e "$job" ] || continue
        . "$job"; rm -f "$job"
        env GITHUB_RUN_ID=$run GITHUB_REPOSITORY=$repository bash -e "$ACTIONS_RUNNER_HOOK_JOB_STARTED" & hook=$!
        wait $hook
        eval "$always"
    done
    sleep 0.05
done
"#;

#[test]
#[ignore = "called by a_job_of_another_run_never_begins_and_leaves_nothing_to_the_runs_own"]
fn within_namespaces_another_runs_job_is_refused() {
    fresh();
    fs::create_dir("/home/shared/jobs").unwrap();
    fs::set_permissions("/home/shared/jobs", fs::Permissions::from_mode(0o1777)).unwrap();
    let queue = |run: u64, repository: &str, always: &str| {
        let job = format!("run={run}\nrepository={repository}\nalways='{always}'\n");
        fs::write("/home/job", job).unwrap();
        std::os::unix::fs::chown("/home/job", Some(UID), Some(UID)).unwrap();
        fs::rename("/home/job", "/home/shared/jobs/job").unwrap();
    };
    in_time(move || async move {
        let mut machine = Machine::with(RUNNER, "acme/web").await;
        machine.started().await;
        assert_eq!(machine.goes_on().await, TaskOutcome::Listening);
        // The run's own, at a later attempt and in other letters: it is done.
        queue(42, "Acme/Web", "echo done >/home/shared/own");
        let serving = tokio::time::timeout(Duration::from_secs(600), async {
            while !Path::new("/home/shared/own").exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        tokio::select! {
            outcome = machine.goes_on() => panic!("{outcome:?}"),
            served = serving => served.unwrap(),
        }
        queue(43, "acme/web", &format!("echo {CANARY} >/home/shared/canary"));
        assert_eq!(machine.goes_on().await, TaskOutcome::Intruded);
        assert_eq!(machine.goes_on().await, TaskOutcome::Renewed);
        assert_eq!(traces(), Vec::<String>::new(), "the other run's job did something");
        assert!(!Path::new("/home/shared/own").exists(), "the machine is cleaned before anything else");
        let _ = fs::remove_dir_all("/home/shared/jobs/job");
        machine.started().await;
        assert_eq!(machine.goes_on().await, TaskOutcome::Listening, "and the run's own jobs go on");
        queue(42, "evil/web", &format!("echo {CANARY} >/home/shared/canary"));
        assert_eq!(machine.goes_on().await, TaskOutcome::Intruded, "the same number in another repository");
        assert_eq!(machine.goes_on().await, TaskOutcome::Renewed);
        assert_eq!(traces(), Vec::<String>::new());
    });
}
/// What no job may write, and what none may read.
const ROOTS: &str = "/run/crontab";
const SECRET: &str = "/run/shadow";

#[test]
fn a_log_that_a_job_made_a_link_leads_the_agent_nowhere() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_a_log_is_a_link");
}

#[test]
fn a_log_that_a_job_made_a_pipe_does_not_stop_the_agent() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_a_log_is_a_pipe");
}

#[test]
fn a_log_that_a_job_made_a_link_to_a_secret_is_not_told_of() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_a_log_is_a_secret");
}

#[test]
fn no_job_gets_into_the_directories_of_its_claim_while_they_are_filled() {
    if !can_be_run() {
        return;
    }
    apart("within_namespaces_directories_are_filled");
}

/// A runner package of two scripts.
fn package() -> (Vec<u8>, String) {
    package_of("#!/bin/sh\necho 'Listening for Jobs'\nexec sleep 600\n")
}

fn package_of(run: &str) -> (Vec<u8>, String) {
    let config =
        "#!/bin/sh\necho configured; test \"$1\" = remove && exec test -f .runner; echo 1 >.runner\n";
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, script) in [("config.sh", config), ("run.sh", run)] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(script.len() as u64);
        tar.append_data(&mut header, name, script.as_bytes()).unwrap();
    }
    let archive = tar.into_inner().unwrap().finish().unwrap();
    let sha256 = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
    (archive, sha256)
}

/// An agent's step and executor, on a machine whose runner is registered.
struct Machine {
    host: Host,
    local: Local,
    claim: ClaimId,
    now: Duration,
}

impl Machine {
    async fn configured() -> Self {
        Self::with("#!/bin/sh\necho 'Listening for Jobs'\nexec sleep 600\n", "").await
    }

    /// With this `run.sh`, for this repository's run.
    async fn with(run: &str, repository: &str) -> Self {
        let mut settings = settings();
        let (archive, sha256) = package_of(run);
        fs::write(format!("/home/yard/work/package/{sha256}.tar.gz"), archive).unwrap();
        settings.package.sha256 = sha256;
        let script = PathBuf::from("/home/yard/post-run");
        fs::write(&script, "echo collected\n").unwrap();
        settings.post_run = Some(OwnScript { script, timeout: Duration::from_secs(600), optional: false });
        let (host, claim) = (Host::new(settings).unwrap(), ClaimId::parse("i-leak.4").unwrap());
        let mut served = Served::new(claim.clone(), "42".to_owned(), ClaimStage::Configuring);
        served.mode = Some(Mode::Run);
        served.repository = repository.to_owned();
        let local =
            Local { boot: Boot::Done, served: true, tainted: None, claim: Some(served), ..Local::default() };
        let mut machine = Self { host, local, claim: claim.clone(), now: Duration::ZERO };
        let outcome =
            machine.execute(Task::Configure { claim, registration: Box::new(registration()) }).await;
        assert_eq!(outcome, TaskOutcome::Configured);
        machine
    }

    async fn execute(&mut self, task: Task) -> TaskOutcome {
        let outcome = self.host.execute(task).await;
        self.local = std::mem::take(&mut self.local).after(outcome.clone(), self.now, 0.5);
        // Any wait before another try is over.
        self.now += Duration::from_secs(3600);
        outcome
    }

    /// What it does next by itself, with a claim that goes on.
    async fn goes_on(&mut self) -> TaskOutcome {
        let sight = Sight::Orders(Orders {
            state: State::Running,
            run: "42".to_owned(),
            repository: String::new(),
            claim: Some(self.claim.clone()),
            jobs: Ok(Jobs::default()),
            runner: Ok(None),
            deadline: None,
            pooled: false,
            ahead: None,
            registration: None,
            removal: None,
            promotion: None,
            held: false,
            retire_asked: None,
            logs_requested: None,
        });
        let (stored, key) = (Stored::Unknown, AgentKey::from_bytes([7; 32]));
        let reregister = Duration::from_secs(2);
        let view =
            View { sight: &sight, stored: &stored, local: &self.local, key: &key, now: self.now, reregister };
        let effects = step(&view);
        self.local = effects.local;
        self.execute(effects.task).await
    }

    async fn started(&mut self) -> RunnerProcess {
        let outcome = match self.goes_on().await {
            // What is left of the last one is cleared away before the next.
            TaskOutcome::Renewed => self.goes_on().await,
            other => other,
        };
        match outcome {
            TaskOutcome::Started(runner) => runner,
            other => panic!("run.sh was not started: {other:?}"),
        }
    }

    /// A job puts another script in the place of `run.sh`, does this in the directory of its claim, and ends the
    /// listener, which is started again.
    async fn is_attacked(&mut self, run: &str, does: &str) {
        let runner = self.started().await;
        assert_eq!(self.goes_on().await, TaskOutcome::Listening);
        let script =
            format!("cat >run.sh <<'END'\n#!/bin/sh\n{run}\nEND\ncd ..\n{does}\nkill -9 {}\n", runner.pid);
        job(&self.claim, &script);
        assert!(matches!(self.goes_on().await, TaskOutcome::Ended { .. }));
    }
}

/// A test that ends even when what it tests blocks its thread for ever.
fn in_time<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let (done, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(test());
        done.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(600)).expect("it failed, or something waits for ever");
}

#[test]
#[ignore = "called by a_log_that_a_job_made_a_link_leads_the_agent_nowhere"]
fn within_namespaces_a_log_is_a_link() {
    fresh();
    fs::write(ROOTS, "root's").unwrap();
    in_time(|| async {
        let mut machine = Machine::configured().await;
        let links = "for log in run config post-run; do rm -f $log.log; ln -s /run/crontab $log.log; done";
        let evil = "echo '* * * * * root evil'; echo 'Listening for Jobs'; exec sleep 600";
        machine.is_attacked(evil, links).await;
        let runner = machine.started().await;
        assert_eq!(machine.goes_on().await, TaskOutcome::Listening);
        assert_eq!(fs::read_to_string(ROOTS).unwrap(), "root's", "a job writes as root");
        let claim = machine.claim.clone();
        let said = fs::read_to_string("/home/yard/work/logs/run.log").unwrap();
        assert!(!said.contains("evil"), "what a job put in the place of run.sh is started: {said}");
        let removal = runyard_core::model::RemovalCredential {
            claim_id: claim.to_string(),
            url: "https://github.invalid/a/b".to_owned(),
            token: "none".to_owned(),
            expires_at: "2030-01-01T00:00:00Z".parse().unwrap(),
        };
        let since = Some(runner.started);
        let stop = Task::Stop { claim: claim.clone(), runner: Some(runner), since };
        assert_eq!(machine.execute(stop).await, TaskOutcome::Stopped { registered: true });
        let wipe = |wipe| Task::Wipe { claim: machine.claim.clone(), since, wipe };
        let (before, after) = (wipe(Wipe::BeforeRemoval), wipe(Wipe::AfterRemoval));
        assert_eq!(machine.execute(before).await, TaskOutcome::Wiped);
        let deregister = Task::Deregister { claim: claim.clone(), removal: Box::new(removal) };
        assert_eq!(machine.execute(deregister).await, TaskOutcome::Deregistered);
        assert_eq!(machine.execute(after).await, TaskOutcome::Wiped);
    });
    assert_eq!(fs::read_to_string(ROOTS).unwrap(), "root's");
    assert_eq!(fs::metadata(ROOTS).unwrap().uid(), 0);
    assert_eq!(fs::read_dir("/home/yard/work/logs").unwrap().count(), 0, "a log outlives its claim");
}

#[test]
#[ignore = "called by a_log_that_a_job_made_a_pipe_does_not_stop_the_agent"]
fn within_namespaces_a_log_is_a_pipe() {
    fresh();
    in_time(|| async {
        let mut machine = Machine::configured().await;
        let pipes = "for log in run config post-run; do rm -f $log.log; mkfifo $log.log; done";
        machine.is_attacked("echo 'Listening for Jobs'; exec sleep 600", pipes).await;
        let runner = machine.started().await;
        assert_eq!(machine.goes_on().await, TaskOutcome::Listening);
        let stop = Task::Stop { claim: machine.claim.clone(), runner: Some(runner), since: None };
        assert_eq!(machine.execute(stop).await, TaskOutcome::Stopped { registered: true });
    });
}

#[test]
#[ignore = "called by a_log_that_a_job_made_a_link_to_a_secret_is_not_told_of"]
fn within_namespaces_a_log_is_a_secret() {
    fresh();
    fs::write(SECRET, "root:a-secret").unwrap();
    fs::set_permissions(SECRET, fs::Permissions::from_mode(0o600)).unwrap();
    in_time(|| async {
        // The agent reads what it takes for the log of a runner that ended before it listened.
        let shows = "#!/bin/sh\nrm -f ../run.log; ln -s /run/shadow ../run.log; \
            rm -f /home/yard/work/logs/run.log; exit 1\n";
        let mut machine = Machine::with(shows, "").await;
        machine.started().await;
        let outcome = format!("{:?}", machine.goes_on().await);
        assert!(outcome.contains("ended before it listened") && !outcome.contains("a-secret"), "{outcome}");
    });
}

#[test]
#[ignore = "called by no_job_gets_into_the_directories_of_its_claim_while_they_are_filled"]
fn within_namespaces_directories_are_filled() {
    fresh();
    let (archive, sha256) = package();
    let root = "/home/yard/work/claims/i-leak.3";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = settings();
    settings.package.url =
        format!("http://{}/runner.tar.gz", listener.local_addr().unwrap()).parse().unwrap();
    settings.package.sha256 = sha256;
    // The package is asked for when the directories are there and the runner is not.
    let looking = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
        let metadata = fs::metadata(root).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", archive.len());
        std::io::Write::write_all(&mut stream, &[head.as_bytes(), &archive].concat()).unwrap();
        (metadata.uid(), metadata.mode() & 0o777)
    });
    let claim = ClaimId::parse("i-leak.3").unwrap();
    let host = Host::new(settings).unwrap();
    let configure = Task::Configure { claim, registration: Box::new(registration()) };
    assert_eq!(runtime().block_on(host.execute(configure)), TaskOutcome::Configured);
    assert_eq!(looking.join().unwrap(), (0, 0o700));
    for path in ["", "home", "tmp", "runner", "runner/run.sh"] {
        assert_eq!(fs::metadata(Path::new(root).join(path)).unwrap().uid(), UID, "{path}");
    }
}

fn registration() -> runyard_core::model::RegistrationCredential {
    runyard_core::model::RegistrationCredential {
        ahead_id: None,
        claim_id: "i-leak.3".to_owned(),
        seq: 1,
        url: "https://github.invalid/a/b".to_owned(),
        token: Some("none".to_owned()),
        jit_config: None,
        runner_id: None,
        runner_name: "runyard-i-leak.3".to_owned(),
        labels: vec!["1".to_owned()],
        runner_group: String::new(),
        keep: Vec::new(),
        expires_at: "2030-01-01T00:00:00Z".parse().unwrap(),
    }
}
