//! Does the second run find anything of the first? Run A plants a canary wherever an unprivileged job can; after the
//! clean-up, nothing may hold it. Needs root, for jobs must be another user: the test calls itself in namespaces of its own,
//! in which the shared directories are fresh, so that nothing of the machine is touched. Without root it says, aloud,
//! that it did not run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use runyard::model::{AgentKey, ClaimId, State};
use runyard_agent::host::{Account, Host, OwnScript, PackageSource, Places, Settings};
use runyard_agent::local::{Boot, Local, Mode, Served, Stage};
use runyard_agent::orders::{Orders, Sight};
use runyard_agent::step::{Stored, View, step};
use runyard_agent::work::{Executor, Leader, Outcome, Work};
use sha2::{Digest, Sha256};

/// A user that no machine has.
const UID: u32 = 64_007;
const NAME: &str = "runyard-leak-test";
const CANARY: &str = "runyard-canary-5d1c";
/// What is made fresh in the namespace; also what is looked through.
const FRESH: [&str; 7] = ["/tmp", "/var/tmp", "/dev/shm", "/home", "/var/spool", "/run", "/var/lib/systemd"];

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
"#;

/// Whether namespaces can be made here; a root in a container often may not. What cannot be run says so.
fn can_be_run() -> bool {
    let may = nix::unistd::geteuid().is_root()
        && Command::new("unshare")
            .args(["--mount", "--ipc", "--pid", "--net", "--fork", "--mount-proc", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !may {
        aloud("needs root and leave to make namespaces, for jobs must be another user");
    }
    may
}

/// Past the capture of what passing tests print: what was not tried must not look tried.
fn aloud(why: &str) {
    let text = format!("\n******\nagent/tests/leaks.rs: NOT RUN: {why}\n******\n");
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
}

/// Calls a test of this file that is otherwise left out, in namespaces of its own.
fn apart(test: &str) {
    let own = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--ipc", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--"])
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
    let queues = Command::new("mount").args(["-t", "mqueue", "none", "/run/mqueue"]).status().unwrap();
    assert!(queues.success());
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
}

fn settings() -> Settings {
    // Deep in a directory that jobs may pass through.
    fs::create_dir_all("/home/yard/work/package").unwrap();
    // A package that is there and holds nothing.
    let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    fs::write(format!("/home/yard/work/package/{sha256}.tar.gz"), "").unwrap();
    Settings {
        machine: "i-leak".to_owned(),
        state_dir: "/run/runyard".into(),
        work_dir: "/home/yard/work".into(),
        package: PackageSource {
            url: "http://127.0.0.1:1/runner.tar.gz".parse().unwrap(),
            sha256: sha256.to_owned(),
            version: String::new(),
        },
        pre_runner: None,
        post_run: None,
        account: Some(Account { name: NAME.to_owned(), uid: UID, gid: UID }),
        isolation: None,
        places: Places { trees: FRESH.iter().map(PathBuf::from).collect(), docker: "/run/none.sock".into() },
        stop: Duration::from_secs(1),
        group: None,
        adopts_orphans: false,
    }
}

/// Runs a script of a claim as a job would run.
fn job(claim: &ClaimId, script: &str) {
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
        let of_job = fs::metadata(&path).is_ok_and(|metadata| metadata.uid() == UID);
        let numbered = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
        // An ended process whose parent does not look is no more than a number.
        let ended = fs::read_to_string(path.join("stat")).is_ok_and(|stat| stat.contains(") Z "));
        if of_job && numbered && !ended {
            found.push(format!("process {}", fs::read_to_string(path.join("cmdline")).unwrap_or_default()));
        }
    }
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
    let planted = traces();
    println!("{} canaries planted", planted.len());
    assert!(planted.len() >= 45, "{}: {planted:#?}", planted.len());
    let outcome = runtime().block_on(host.execute(Work::Wipe { claim: claim.clone(), since: None }));
    assert_eq!(outcome, Outcome::Wiped);
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
    let outcome = runtime().block_on(host.execute(Work::Wipe { claim, since: None }));
    assert!(matches!(&outcome, Outcome::Unproved(why) if why.contains("/tmp/busy")), "{outcome:?}");
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
    let config =
        "#!/bin/sh\necho configured; test \"$1\" = remove && exec test -f .runner; echo 1 >.runner\n";
    let run = "#!/bin/sh\necho 'Listening for Jobs'\nexec sleep 600\n";
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

/// An agent's judgement and hands, on a machine whose runner is registered.
struct Machine {
    host: Host,
    local: Local,
    claim: ClaimId,
    now: Duration,
}

impl Machine {
    async fn configured() -> Self {
        let mut settings = settings();
        let (archive, sha256) = package();
        fs::write(format!("/home/yard/work/package/{sha256}.tar.gz"), archive).unwrap();
        settings.package.sha256 = sha256;
        let script = PathBuf::from("/home/yard/post-run");
        fs::write(&script, "echo collected\n").unwrap();
        settings.post_run = Some(OwnScript { script, timeout: Duration::from_secs(5), optional: false });
        let (host, claim) = (Host::new(settings).unwrap(), ClaimId::parse("i-leak.4").unwrap());
        let mut served = Served::new(claim.clone(), "42".to_owned(), Stage::Configuring);
        served.mode = Some(Mode::Run);
        let local = Local { boot: Boot::Done, served: true, tainted: None, claim: Some(served) };
        let mut machine = Self { host, local, claim: claim.clone(), now: Duration::ZERO };
        let outcome = machine.works(Work::Configure { claim, registration: Box::new(registration()) }).await;
        assert_eq!(outcome, Outcome::Configured);
        machine
    }

    async fn works(&mut self, work: Work) -> Outcome {
        let outcome = self.host.execute(work).await;
        self.local = std::mem::take(&mut self.local).after(outcome.clone(), self.now, 0.5);
        // Any wait before another try is over.
        self.now += Duration::from_secs(3600);
        outcome
    }

    /// What it does next by itself, with a claim that goes on.
    async fn goes_on(&mut self) -> Outcome {
        let sight = Sight::Orders(Orders {
            state: State::Running,
            run: "42".to_owned(),
            claim: Some(self.claim.clone()),
            deadline: None,
            registration: None,
            removal: None,
        });
        let (stored, key) = (Stored::Unknown, AgentKey::from_bytes([7; 32]));
        let view = View { sight: &sight, stored: &stored, local: &self.local, key: &key, now: self.now };
        let effects = step(&view);
        self.local = effects.local;
        self.works(effects.work).await
    }

    async fn started(&mut self) -> Leader {
        match self.goes_on().await {
            Outcome::Started(leader) => leader,
            other => panic!("run.sh was not started: {other:?}"),
        }
    }

    /// A job puts another script in the place of `run.sh`, does this in the directory of its claim, and ends the
    /// listener, which is started again.
    async fn is_attacked(&mut self, run: &str, does: &str) {
        let leader = self.started().await;
        assert_eq!(self.goes_on().await, Outcome::Listening);
        let script =
            format!("cat >run.sh <<'END'\n#!/bin/sh\n{run}\nEND\ncd ..\n{does}\nkill -9 {}\n", leader.pid);
        job(&self.claim, &script);
        assert_eq!(self.goes_on().await, Outcome::Ended);
    }
}

/// A test that ends even when what it tests blocks its thread for ever.
fn in_time<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let (done, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(test());
        done.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(45)).expect("it failed, or something waits for ever");
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
        let leader = machine.started().await;
        assert_eq!(machine.goes_on().await, Outcome::Listening);
        assert_eq!(fs::read_to_string(ROOTS).unwrap(), "root's", "a job writes as root");
        let claim = machine.claim.clone();
        let said = fs::read_to_string("/home/yard/work/logs/run.log").unwrap();
        assert!(said.contains("evil"), "the runner writes what it did: {said}");
        let removal = runyard::model::RemovalBox {
            claim_id: claim.to_string(),
            url: "https://github.invalid/a/b".to_owned(),
            token: "none".to_owned(),
            expires_at: "2030-01-01T00:00:00Z".parse().unwrap(),
        };
        let since = Some(leader.started);
        let stop = Work::Stop { claim: claim.clone(), leader: Some(leader), since };
        assert_eq!(machine.works(stop).await, Outcome::Stopped { registered: true });
        let deregister = Work::Deregister { claim: claim.clone(), removal: Box::new(removal) };
        assert_eq!(machine.works(deregister).await, Outcome::Deregistered);
        assert_eq!(machine.works(Work::Wipe { claim, since }).await, Outcome::Wiped);
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
        let leader = machine.started().await;
        assert_eq!(machine.goes_on().await, Outcome::Listening);
        let stop = Work::Stop { claim: machine.claim.clone(), leader: Some(leader), since: None };
        assert_eq!(machine.works(stop).await, Outcome::Stopped { registered: true });
    });
}

#[test]
#[ignore = "called by a_log_that_a_job_made_a_link_to_a_secret_is_not_told_of"]
fn within_namespaces_a_log_is_a_secret() {
    fresh();
    fs::write(SECRET, "root:a-secret").unwrap();
    fs::set_permissions(SECRET, fs::Permissions::from_mode(0o600)).unwrap();
    in_time(|| async {
        let mut machine = Machine::configured().await;
        // The agent reads what it takes for the log of a runner that ended before it listened.
        let shows =
            "rm -f ../run.log; ln -s /run/shadow ../run.log; rm -f /home/yard/work/logs/run.log; exit 1";
        machine.is_attacked(shows, "").await;
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
    let configure = Work::Configure { claim, registration: Box::new(registration()) };
    assert_eq!(runtime().block_on(host.execute(configure)), Outcome::Configured);
    assert_eq!(looking.join().unwrap(), (0, 0o700));
    for path in ["", "home", "tmp", "runner", "runner/run.sh"] {
        assert_eq!(fs::metadata(Path::new(root).join(path)).unwrap().uid(), UID, "{path}");
    }
}

fn registration() -> runyard::model::RegistrationBox {
    runyard::model::RegistrationBox {
        claim_id: "i-leak.3".to_owned(),
        seq: 1,
        url: "https://github.invalid/a/b".to_owned(),
        token: Some("none".to_owned()),
        jit_config: None,
        runner_name: "runyard-i-leak.3".to_owned(),
        labels: vec!["1".to_owned()],
        runner_group: String::new(),
        expires_at: "2030-01-01T00:00:00Z".parse().unwrap(),
    }
}
