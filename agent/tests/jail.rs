//! Is a job kept to itself? Two claims are served one after the other, as the agent serves them, on a machine of the
//! test's own: an overlay of the root file system in namespaces of its own, so that nothing of the real one is touched.
//! Run A leaves and changes what it can; run B and the machine must find none of it. Needs root, python3 and a
//! packet filter, which `tests/engines/setup machine` brings; without them it says, aloud, that it did not run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod apart;

use std::fs::{self, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use runyard_agent::host::{Account, Host, HostSettings, Isolation, PackageSource, SweepPaths};
use runyard_agent::task::{Executor, GithubFailure, Holder, RunnerProcess, Task, TaskOutcome, Wipe};
use runyard_core::model::{ClaimId, Containers, Jobs, RegistrationCredential};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

const UID: u32 = 64_009;
const NAME: &str = "runyard-jail-test";
const HOME: &str = "/home/runyard-jail-test";
const WORK: &str = "/var/lib/runyard-test/work";
/// Where everybody may write, as images have it.
const CACHE: &str = "/opt/runyard-test-cache";
/// What a runner of the package runs, once it listens.
const JOB: &str = "/opt/runyard-test-job.py";
/// A machine: a root of its own with what may be changed in memory.
const MACHINE: &str = r#"set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
layers=/
if [ -n "$PACKAGES" ]; then
    # No layer may lie within another: a copy.
    cp -a "$PACKAGES" /mnt/packages
    layers=/mnt/packages:/
fi
mount -t overlay -o lowerdir=$layers,upperdir=/mnt/upper,workdir=/mnt/work none /mnt/root
for dir in sys dev; do mount --rbind /$dir /mnt/root/$dir; done
mount -t proc proc /mnt/root/proc
for name in kernel/core_pattern kernel/dmesg_restrict kernel/io_uring_disabled fs/inotify/max_user_instances; do
    [ -e /proc/sys/$name ] || continue
    echo 128 >/mnt/${name##*/}
    mount --bind /mnt/${name##*/} /mnt/root/proc/sys/$name
done
# Fewer than whoever runs the tests may have.
echo 40000 >/mnt/threads-max
mount --bind /mnt/threads-max /mnt/root/proc/sys/kernel/threads-max
mount -t tmpfs -o mode=0755 none /mnt/root/run
mkdir /mnt/root/run/mqueue
mount -t mqueue none /mnt/root/run/mqueue
mount -t tmpfs -o mode=1777 none /mnt/root/dev/shm
ip link set lo up
cd /mnt/root
pivot_root . mnt
umount -l /mnt
exec "$@"
"#;
/// What both runs know.
const COMMON: &str = r#"
import ctypes, os, resource, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
PLACES = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", os.environ["HOME"], os.getcwd(), "../home", ".."]
def refused(name, what):
    try: what()
    except OSError as e: return
    print("FOUND", name, flush=True)
def key(ring, name, value=None):
    if value: return libc.syscall(248, b"user", name, value, len(value), ring)
    return libc.syscall(250, 10, ring, b"user", name, 0)
"#;
/// Leaves what it can.
const LEAVES: &str = r#"
for place in PLACES:
    open(place + "/canary", "w").write("canary")
for path in ["/opt/runyard-test-cache/tool", "/opt/runyard-test-cache/new", "/opt/runyard-test-shared", "/etc/canary",
             "/var/lib/canary", "/run/canary", "/dev/canary", "/opt/pipe", "/home/canary"]:
    refused(path, lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK))
refused("rename", lambda: os.rename("/opt/runyard-test-cache/tool", "/opt/runyard-test-cache/tool2"))
refused("delete", lambda: os.unlink("/opt/runyard-test-cache/tool"))
refused("attribute", lambda: os.setxattr("/opt/runyard-test-cache/tool", "user.canary", b"1"))
refused("mode of the home", lambda: os.chmod("/home", 0o777))
refused("sudo", lambda: subprocess.run(["sudo", "-n", "true"], check=True) if subprocess.run(["sh", "-c", "sudo -n true"], capture_output=True).returncode == 0 else os.stat("/none"))
for name in ["/run/dbus/system_bus_socket", "/run/systemd/private", "/dev/log", "/opt/runyard-test-socket"]:
    refused(name, lambda: socket.socket(socket.AF_UNIX).connect(name))
refused("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\0runyard-machine"))
planted = [key(ring, b"canary", b"secret of A") > 0 for ring in (-4, -5, -3)]
persistent = libc.syscall(250, 22, -1, -3)
if persistent > 0: planted.append(key(persistent, b"canary", b"secret of A") > 0)
os.chmod(os.environ["HOME"], 0o777)
os.setxattr(os.environ["HOME"], "user.canary", b"1")
planted += [libc.shmget(4711, 4096, 0o1666) >= 0, libc.semget(4711, 1, 0o1666) >= 0, libc.msgget(4711, 0o1666) >= 0]
planted.append(libc.mq_open(b"/canary-queue", os.O_CREAT | os.O_RDWR, 0o666, None) >= 0)
s = socket.socket(socket.AF_UNIX); s.bind("\0canary"); s.listen()
t = socket.socket(); t.bind(("127.0.0.1", 4711)); t.listen()
hide = "import time,os,ctypes,threading; "
def start(code, **more): subprocess.Popen([sys.executable, "-c", hide + code], start_new_session=True, env={}, cwd="/", **more)
start("time.sleep(9999)")
start("threading.Thread(target=lambda: time.sleep(9999)).start(); ctypes.CDLL(None).syscall(60, 0)")
subprocess.Popen(["sh", "-c", "unshare -Urm sh -c 'mount -t tmpfs none /mnt; exec sleep 9999' & sleep 9999"], env={"PATH": os.environ["PATH"]}, start_new_session=True, stderr=subprocess.DEVNULL)
print("PLANTED", planted)
"#;
/// Looks for what the first left.
const LOOKS: &str = r#"
for place in PLACES:
    if os.path.lexists(place + "/canary"): print("FOUND", place)
    if os.listdir(place) and place in PLACES[:6]: print("FOUND", place, os.listdir(place))
if os.listxattr(os.environ["HOME"]) or os.stat(os.environ["HOME"]).st_mode & 0o77: print("FOUND home")
if open("/opt/runyard-test-cache/tool").read() != "as it was": print("FOUND tool")
for ring in (-4, -5, -3):
    if key(ring, b"canary") >= 0: print("FOUND key in", ring)
persistent = libc.syscall(250, 22, -1, -3)
if persistent > 0 and key(persistent, b"canary") >= 0: print("FOUND persistent key")
for get in (lambda: libc.shmget(4711, 4096, 0), lambda: libc.semget(4711, 1, 0), lambda: libc.msgget(4711, 0)):
    if get() >= 0: print("FOUND System V")
if libc.mq_open(b"/canary-queue", os.O_RDONLY) >= 0: print("FOUND queue")
refused("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\0canary"))
refused("listener", lambda: socket.create_connection(("127.0.0.1", 4711), 1))
others = [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid(), os.getppid())]
if others: print("FOUND processes", others)
print("TASKS", *resource.getrlimit(resource.RLIMIT_NPROC))
"#;

/// Past the capture of what passing tests print: what was not tried must not look tried.
fn aloud(why: &str) {
    let text = format!("\n******\nagent/tests/jail.rs: NOT RUN: {why}\n******\n");
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
}

fn machine() -> Command {
    let mut command = Command::new("unshare");
    command.env("PACKAGES", apart::packages().unwrap_or_default());
    command.args(["--mount", "--ipc", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", MACHINE, "sh"]);
    command
}

/// Calls a test of this file that is otherwise left out, on a machine of its own.
fn apart(test: &str) {
    let may = nix::unistd::geteuid().is_root()
        && machine()
            .args(["sh", "-c", "command -v python3 && { command -v nft || command -v iptables; }"])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !may {
        return aloud("needs root, python3, nft or iptables, and leave to make namespaces and an overlay");
    }
    let own = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", test, "--nocapture", "--test-threads=1"];
    let output = machine().arg(own).args(arguments).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    for why in said.lines().filter_map(|line| line.split("NOT RUN: ").nth(1)) {
        aloud(why);
    }
}

#[test]
fn nothing_a_job_does_is_seen_by_the_next_or_stays_on_the_machine() {
    apart("on_a_machine_two_runs");
}

#[test]
fn what_is_kept_is_read_by_its_repository_and_written_by_the_operators_word() {
    apart("on_a_machine_directories_are_kept");
}

#[test]
fn what_the_kernel_keeps_of_a_job_is_bounded_and_gone_with_its_claim() {
    apart("on_a_machine_the_kernel");
}

#[test]
fn what_is_prepared_serves_one_claim_and_ends_with_its_agent() {
    apart("on_a_machine_a_claim_is_prepared");
}

#[test]
fn what_was_prepared_of_another_machine_than_it_is_now_is_thrown_away() {
    apart("on_a_machine_that_changes");
}

#[test]
fn a_runner_lists_all_above_it_and_shares_programs_that_no_job_changes() {
    apart("on_a_machine_programs_are_shared");
}

#[test]
fn a_job_of_another_run_is_refused_from_within_its_jail() {
    apart("on_a_machine_another_runs_job");
}

#[test]
fn a_slots_job_is_reported_from_within_its_jail_and_waits_until_it_is_admitted() {
    apart("on_a_machine_a_slots_job");
}

#[test]
fn a_job_reaches_what_is_outside_and_neither_the_machine_nor_its_role() {
    apart("on_a_machine_the_network");
}

#[test]
fn without_nft_the_rules_of_iptables_keep_a_job_from_the_same() {
    apart("on_a_machine_the_network_by_iptables");
}

#[test]
fn a_machine_that_cannot_keep_jobs_to_themselves_registers_nothing() {
    apart("on_a_machine_something_is_missing");
}

#[test]
fn a_job_with_rootless_containers_gains_no_right_and_leaves_nothing() {
    apart("on_a_machine_containers");
}

#[test]
fn a_job_that_has_its_machine_is_root_there_and_only_with_a_runner_of_one_job() {
    apart("on_a_machine_the_job_has");
}

/// A runner that does as the job's script says.
fn package() -> (Vec<u8>, String) {
    let config = "#!/bin/sh\necho 1 >.runner\n";
    let run = format!(
        "#!/bin/sh\necho 'Listening for Jobs'\npython3 {JOB}\ntrap 'echo asked to finish; exit 0' INT\n\
                       echo job-done\nwhile :; do sleep 0.05; done\n"
    );
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let programs = ["bin/Runner.Listener", "externals/node24/bin/node"];
    let programs = programs.map(|name| (name, "#!/bin/sh\necho as it was\n"));
    for (name, script) in [("config.sh", config), ("run.sh", &run)].into_iter().chain(programs) {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(script.len() as u64);
        tar.append_data(&mut header, name, script.as_bytes()).unwrap();
    }
    let archive = tar.into_inner().unwrap().finish().unwrap();
    let sha256 = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
    (archive, sha256)
}

fn add(path: &str, line: &str) {
    let text = fs::read_to_string(path).unwrap_or_default();
    fs::write(path, format!("{text}{line}\n")).unwrap();
}

fn agent(word: &str) {
    assert!(
        Command::new(env!("CARGO_BIN_EXE_runyard-agent")).arg(word).status().unwrap().success(),
        "{word}"
    );
}

/// Where jobs see it, as they see the installed one.
const PROGRAM: &str = "/usr/local/bin/runyard-test-agent";

/// The executor of this machine's agent, with an account as `install` makes it.
fn executor() -> Host {
    add("/etc/passwd", &format!("{NAME}:x:{UID}:{UID}::{HOME}:/usr/sbin/nologin"));
    add("/etc/shadow", &format!("{NAME}:!:20000:::::1:"));
    add("/etc/group", &format!("{NAME}:x:{UID}:"));
    fs::create_dir_all(HOME).unwrap();
    // Put in place of one that may still run, as an installation does.
    let _ = fs::remove_file(PROGRAM);
    fs::copy(env!("CARGO_BIN_EXE_runyard-agent"), PROGRAM).unwrap();
    fs::set_permissions(PROGRAM, Permissions::from_mode(0o755)).unwrap();
    let (archive, sha256) = package();
    fs::create_dir_all(format!("{WORK}/package")).unwrap();
    fs::write(format!("{WORK}/package/{sha256}.tar.gz"), archive).unwrap();
    fs::write("/etc/runyard-test.toml", "").unwrap();
    fs::set_permissions("/etc/runyard-test.toml", Permissions::from_mode(0o600)).unwrap();
    Host::new(HostSettings {
        machine: "i-jail".to_owned(),
        state_dir: "/run/runyard".into(),
        work_dir: WORK.into(),
        package: PackageSource {
            url: "http://127.0.0.1:1/runner.tar.gz".parse().unwrap(),
            sha256,
            version: String::new(),
        },
        package_hosts: Vec::new(),
        pre_runner: None,
        post_run: None,
        account: Some(Account { name: NAME.to_owned(), uid: UID, gid: UID }),
        isolation: Some(Isolation {
            program: PROGRAM.into(),
            config: "/etc/runyard-test.toml".into(),
            metadata: "http://169.254.169.254".parse().unwrap(),
            home: HOME.into(),
        }),
        places: SweepPaths {
            trees: ["/var", "/home", "/opt", "/run", "/dev/shm"].map(PathBuf::from).to_vec(),
            docker: "/run/none.sock".into(),
            program: PROGRAM.into(),
            ..SweepPaths::default()
        },
        stop: Duration::from_secs(60),
        variables: Vec::new(),
        group: None,
        image: None,
        adopts_orphans: false,
    })
    .unwrap()
}

fn holder() -> Holder {
    Holder { run: "1".to_owned(), repository: "acme/web".to_owned(), ..Holder::default() }
}

fn registration(claim: &ClaimId) -> Box<RegistrationCredential> {
    Box::new(RegistrationCredential {
        ahead_id: None,
        claim_id: claim.to_string(),
        seq: 1,
        url: "https://github.invalid/a/b".to_owned(),
        token: Some("none".to_owned()),
        jit_config: None,
        runner_id: None,
        runner_name: format!("runyard-{claim}"),
        labels: vec!["1".to_owned()],
        runner_group: String::new(),
        keep: Vec::new(),
        expires_at: "2030-01-01T00:00:00Z".parse().unwrap(),
    })
}

/// Serves a claim whose job is this, up to where its runner listens.
async fn listen(host: &Host, claim: &str, job: &str) -> (ClaimId, RunnerProcess) {
    listen_for(host, claim, job, holder()).await
}

async fn listen_for(host: &Host, claim: &str, job: &str, holder: Holder) -> (ClaimId, RunnerProcess) {
    fs::write(JOB, format!("{COMMON}{job}")).unwrap();
    let claim = ClaimId::parse(claim).unwrap();
    let configure = Task::Configure { claim: claim.clone(), registration: registration(&claim) };
    assert_eq!(host.execute(configure).await, TaskOutcome::Configured);
    let started = host.execute(Task::Start { claim: claim.clone(), single_use: None, holder }).await;
    let TaskOutcome::Started(runner) = started else { panic!("{started:?}") };
    assert_eq!(
        host.execute(Task::Listen { claim: claim.clone(), runner, known: None }).await,
        TaskOutcome::Listening
    );
    (claim, runner)
}

/// Serves a claim whose job is this, up to its end; what it said.
async fn serve(host: &Host, claim: &str, job: &str) -> (ClaimId, RunnerProcess, String) {
    serve_for(host, claim, job, holder()).await
}

async fn serve_for(host: &Host, claim: &str, job: &str, holder: Holder) -> (ClaimId, RunnerProcess, String) {
    let (claim, runner) = listen_for(host, claim, job, holder).await;
    let until = Instant::now() + Duration::from_secs(600);
    loop {
        let said = fs::read_to_string(format!("{WORK}/logs/run.log")).unwrap();
        if said.contains("job-done") {
            return (claim, runner, said);
        }
        assert!(Instant::now() < until, "the job does not end: {said}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn clean(host: &Host, claim: ClaimId, runner: RunnerProcess) {
    let stop = Task::Stop { claim: claim.clone(), runner: Some(runner), since: None };
    assert_eq!(host.execute(stop).await, TaskOutcome::Stopped { registered: true });
    let said = fs::read_to_string(format!("{WORK}/logs/run.log")).unwrap();
    assert!(said.contains("asked to finish"), "it was killed: {said}");
    assert_eq!(host.execute(Task::Wipe { claim, since: None, wipe: Wipe::Whole }).await, TaskOutcome::Wiped);
}

fn place(program: &str) -> String {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

fn has(program: &str) -> bool {
    !place(program).is_empty()
}

/// How many processes and threads the machine can have.
fn most_tasks() -> u64 {
    let most = |name| -> u64 {
        fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap().trim().parse().unwrap()
    };
    most("threads-max").min(most("pid_max"))
}

/// From here on it fails.
fn spoil(program: &str) {
    let hide = ["--bind", "/bin/false", &place(program)];
    assert!(Command::new("mount").args(hide).status().unwrap().success());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Processes of the job user's, ended ones and those without a first thread too.
fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let of_job = entries.filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.uid() == UID));
    of_job.map(|entry| entry.path().display().to_string()).collect()
}

#[test]
#[ignore = "called by nothing_a_job_does_is_seen_by_the_next_or_stays_on_the_machine"]
fn on_a_machine_two_runs() {
    agent("wall");
    // As systemd starts the agent: in a session of its own, of which jobs must not be.
    keyutils_raw::keyctl_join_session_keyring(None).unwrap();
    let host = executor();
    fs::create_dir_all(CACHE).unwrap();
    fs::set_permissions(CACHE, Permissions::from_mode(0o777)).unwrap();
    for file in ["/opt/runyard-test-cache/tool", "/opt/runyard-test-shared"] {
        fs::write(file, "as it was").unwrap();
        fs::set_permissions(file, Permissions::from_mode(0o777)).unwrap();
    }
    nix::unistd::mkfifo("/opt/pipe", nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    fs::set_permissions("/opt/pipe", Permissions::from_mode(0o666)).unwrap();
    let _reader = fs::OpenOptions::new().read(true).write(true).open("/opt/pipe").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind("/opt/runyard-test-socket").unwrap();
    fs::set_permissions("/opt/runyard-test-socket", Permissions::from_mode(0o777)).unwrap();
    let name = <std::os::unix::net::SocketAddr as SocketAddrExt>::from_abstract_name("runyard-machine");
    let _abstract = std::os::unix::net::UnixListener::bind_addr(&name.unwrap()).unwrap();
    fs::write(JOB, "").unwrap();
    let before = fs::read_dir("/opt").unwrap().count();
    runtime().block_on(async {
        for prepared in [false, true] {
            if prepared {
                host.prepare().await;
            }
            let (claim, runner, said) = serve(&host, "i-jail.1", LEAVES).await;
            assert!(!said.contains("FOUND") && !said.contains("Traceback"), "{said}");
            assert!(said.contains("PLANTED [True") && !said.contains("False"), "{said}");
            assert!(processes().len() >= 5, "{:?}", processes());
            clean(&host, claim, runner).await;
            assert_eq!(processes(), Vec::<String>::new());
            assert_eq!(fs::read_to_string("/opt/runyard-test-shared").unwrap(), "as it was");
            assert_eq!(fs::read_to_string(format!("{CACHE}/tool")).unwrap(), "as it was");
            assert_eq!(fs::read_dir(CACHE).unwrap().count(), 1);
            assert_eq!(fs::read_dir(HOME).unwrap().count(), 0);
            assert_eq!(fs::read_dir("/opt").unwrap().count(), before);
            for kind in ["shm", "sem", "msg"] {
                let table = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap();
                assert!(!table.contains("4711"), "{table}");
            }
            if prepared {
                host.prepare().await;
            }
            let (claim, runner, said) = serve(&host, "i-jail.2", LOOKS).await;
            assert!(!said.contains("FOUND") && !said.contains("Traceback"), "{said}");
            let most = most_tasks() / 2;
            assert!(said.contains(&format!("TASKS {most} {most}\n")), "the agent has no room: {said}");
            clean(&host, claim, runner).await;
        }
    });
}

/// System calls by name, which the plants of `tests/system/escape` make.
const TOOLS: &str = include_str!("../../tests/system/escape/tools.py");
/// Where jobs find them.
const TOOLS_AT: &str = "/opt/runyard-test-tools.py";
/// Does what outlives processes, or keeps them from ending.
const KEPT_BY_THE_KERNEL: &str = r#"
def tool(*words, within=()):
    words = [*within, sys.executable, "-I", "/opt/runyard-test-tools.py", *words]
    done = subprocess.run(words, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    return done.returncode, done.stdout + done.stderr
print("DEADLOCK", tool("fuse-deadlock", "canary", within=["unshare", "-Urm"]), flush=True)
print("KEY", tool("nested-key", "canary", within=["unshare", "-Urn"]), flush=True)
print("CONNECTIONS", tool("connections-many", "203.0.113.77", "300"), flush=True)
print("NAMESPACES", tool("namespaces-many", "300"), flush=True)
for name in ["max_net_namespaces", "max_user_namespaces", "max_mnt_namespaces", "max_inotify_instances"]:
    print("BOUND", name, open("/proc/sys/user/" + name).read().strip(), flush=True)
    refused(name, lambda: open("/proc/sys/user/" + name, "w").write("9999"))
"#;

#[test]
#[ignore = "called by what_the_kernel_keeps_of_a_job_is_bounded_and_gone_with_its_claim"]
fn on_a_machine_the_kernel() {
    if !std::path::Path::new("/dev/fuse").exists() {
        return aloud("needs /dev/fuse");
    }
    // For everybody, as udev makes it.
    let mut device = Command::new("sh");
    device.args(["-c", "mknod -m 666 /run/fuse c 10 229 && mount --bind /run/fuse /dev/fuse"]);
    assert!(device.status().unwrap().success());
    let _outside = Outside::new();
    agent("wall");
    let host = executor();
    fs::write(TOOLS_AT, TOOLS).unwrap();
    let tracked = || {
        let mut look = Command::new("python3");
        look.args(["-I", TOOLS_AT, "tracked", "203.0.113.77", "1"]).stderr(Stdio::null());
        String::from_utf8(look.output().unwrap().stdout).unwrap()
    };
    runtime().block_on(async {
        let (claim, runner, said) = serve(&host, "i-jail.1", KEPT_BY_THE_KERNEL).await;
        for words in [
            "DEADLOCK (0, '')",
            "KEY (0, '')",
            "CONNECTIONS (0, '')",
            "NAMESPACES (1, 'namespaces-many: [Errno 28]",
            "BOUND max_net_namespaces 256",
            "BOUND max_user_namespaces 256",
            "BOUND max_mnt_namespaces 256",
            "BOUND max_inotify_instances 512",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains("FOUND") && !said.contains("Traceback"), "{said}");
        assert_eq!(tracked(), "300 connections to 203.0.113.77\n");
        clean(&host, claim, runner).await;
        assert_eq!(tracked(), "0 connections to 203.0.113.77\n");
        assert_eq!(processes(), Vec::<String>::new());
    });
}

/// Shows what is kept, and writes and removes in it.
const KEEPS: &str = r#"
me = os.environ["RUNYARD_CLAIM"]
for place in [os.environ["HOME"] + "/.cache/tool", "/opt/runyard-test-kept"]:
    print("SEEN", place, sorted(os.listdir(place)), flush=True)
    print("OWN" if os.stat(place).st_uid == os.getuid() else "FOUND another's", flush=True)
    if os.path.exists(place + "/deep/old"): os.unlink(place + "/deep/old")
    os.makedirs(place + "/deep", exist_ok=True)
    for name in [me.replace(".", "-"), "deep/new"] + (["deep/old"] if me.endswith("1") else []):
        with open(place + "/" + name, "a") as f: f.write(me + "\n")
    refused("device", lambda: os.mknod(place + "/device", 0o20666, os.makedev(1, 3)))
print("NEW", open("/opt/runyard-test-kept/deep/new").read().split(), flush=True)
refused("the store", lambda: os.listdir("/var/lib/runyard-test/work/keep"))
"#;

#[test]
#[ignore = "called by what_is_kept_is_read_by_its_repository_and_written_by_the_operators_word"]
fn on_a_machine_directories_are_kept() {
    agent("wall");
    keyutils_raw::keyctl_join_session_keyring(None).unwrap();
    fs::create_dir_all(WORK).unwrap();
    // An overlay takes no layer that is on another one, as this machine's disk is.
    let memory = ["-t", "tmpfs", "-o", "mode=0711", "none", WORK];
    assert!(Command::new("mount").args(memory).status().unwrap().success());
    fs::create_dir_all("/opt/runyard-test-kept").unwrap();
    fs::write("/opt/runyard-test-kept/of-the-image", "").unwrap();
    let host = executor();
    let keep = serde_json::json!([
        {"name": "tool", "path": "~/.cache/tool"}, {"name": "opt", "path": "/opt/runyard-test-kept"},
        {"name": "agent", "path": "/var/lib/runyard-test/work"},
    ]);
    let of = |repository: &str| Holder {
        repository: repository.to_owned(),
        keep: serde_json::from_value(keep.clone()).unwrap(),
        ..holder()
    };
    runtime().block_on(async {
        for (claim, repository, promoted, seen, new) in [
            ("c.1", "acme/web", true, vec![], vec!["c.1"]),
            ("c.2", "acme/web", false, vec!["c-1", "deep"], vec!["c.1", "c.2"]),
            ("c.3", "acme/api", true, vec![], vec!["c.3"]),
            ("c.4", "acme/web", true, vec!["c-1", "deep"], vec!["c.1", "c.4"]),
            ("c.5", "acme/web", false, vec!["c-1", "c-4", "deep"], vec!["c.1", "c.4", "c.5"]),
        ] {
            let holder = of(repository);
            let (id, runner, said) = serve_for(&host, claim, KEEPS, holder.clone()).await;
            assert!(!said.contains("FOUND") && !said.contains("Traceback"), "{claim}: {said}");
            let listed = |more: &[&str]| {
                let mut names: Vec<&str> = seen.iter().chain(more).copied().collect();
                names.sort_unstable();
                format!("['{}']", names.join("', '")).replace("['']", "[]")
            };
            assert!(said.contains(&format!("/.cache/tool {}", listed(&[]))), "{claim}: {said}");
            assert!(said.contains(&format!("-kept {}", listed(&["of-the-image"]))), "{claim}: {said}");
            assert!(said.contains(&format!("NEW ['{}']", new.join("', '"))), "{claim}: {said}");
            clean(&host, id.clone(), runner).await;
            let names = if promoted { vec!["tool".to_owned(), "opt".to_owned()] } else { Vec::new() };
            let settle = Task::Settle { claim: id, holder, names };
            assert_eq!(host.execute(settle).await, TaskOutcome::Settled);
        }
        let kept = host.kept();
        assert_eq!(kept.len(), 4, "{kept:?}");
        assert_eq!(fs::read_dir(format!("{WORK}/keep/layers")).unwrap().count(), 0);
        assert_eq!(fs::read_dir("/opt/runyard-test-kept").unwrap().count(), 1);
    });
}

/// The runner's directory, by its number: what was prepared moves and stays the same.
fn runner_in(place: &str) -> Option<u64> {
    Some(fs::metadata(format!("{WORK}/{place}/runner")).ok()?.ino())
}

/// First processes of jails, which are children of this one.
fn jails() -> Vec<PathBuf> {
    let parent = format!("PPid:\t{}\n", std::process::id());
    let makes = |process: &PathBuf| {
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        words.split(|b| *b == 0).skip(1).take(2).eq([&b"job-init"[..], b"outside"])
            && status.contains(&parent)
    };
    fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).filter(makes).collect()
}

async fn gone(what: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(600);
    while !what() {
        assert!(Instant::now() < until, "it does not go");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const SEES: &str = r#"
print("SEES", open("/etc/resolv.conf").read().split())
print("LINK", [l.split()[2] for l in open("/proc/net/route") if l.split()[1] == "00000000"])
"#;

#[test]
#[ignore = "called by what_is_prepared_serves_one_claim_and_ends_with_its_agent"]
fn on_a_machine_a_claim_is_prepared() {
    agent("wall");
    let host = executor();
    runtime().block_on(async {
        let mut links = Vec::new();
        for claim in ["i-jail.7", "i-jail.8"] {
            host.prepare().await;
            // A process has its words a moment after whoever started it goes on.
            gone(|| jails().len() == 3).await;
            let (next, standing) = (runner_in("next").unwrap(), jails());
            host.prepare().await;
            assert_eq!((runner_in("next"), jails()), (Some(next), standing), "once is enough");
            let root = fs::metadata(format!("{WORK}/next")).unwrap();
            assert_eq!((root.uid(), root.mode() & 0o777), (0, 0o700));
            assert_eq!(fs::metadata(format!("{WORK}/next/runner/run.sh")).unwrap().uid(), 0);
            let (claim, runner, said) = serve(&host, claim, SEES).await;
            assert_eq!(runner_in(&format!("claims/{claim}")), Some(next), "the claim has what was prepared");
            assert_eq!(runner_in("next"), None);
            assert_eq!(fs::metadata(format!("{WORK}/claims/{claim}/runner/run.sh")).unwrap().uid(), UID);
            assert_eq!(jails().len(), 1, "the one of its runner");
            links.extend(said.lines().find(|line| line.starts_with("LINK")).map(str::to_owned));
            // Nothing of a claim is given to another one.
            clean(&host, claim, runner).await;
            gone(|| jails().is_empty()).await;
        }
        assert_eq!(links.len(), 2);
        assert_ne!(links[0], links[1], "each claim has a link of its own");
        // A claim that ends before it began: what was prepared for it is not kept.
        host.prepare().await;
        let claim = ClaimId::parse("i-jail.9").unwrap();
        let stop = Task::Stop { claim, runner: None, since: None };
        assert_eq!(host.execute(stop).await, TaskOutcome::Stopped { registered: false });
        gone(|| jails().is_empty()).await;
        host.prepare().await;
        gone(|| jails().len() == 3).await;
        // Whoever waits in a jail ends with the agent that made it, and its directories are no other agent's.
        drop(host);
        gone(|| jails().is_empty()).await;
        let _next = executor();
        assert_eq!(runner_in("next"), None);
    });
}

#[test]
#[ignore = "called by what_was_prepared_of_another_machine_than_it_is_now_is_thrown_away"]
fn on_a_machine_that_changes() {
    agent("wall");
    let resolver = |ip: &str| fs::write("/etc/resolv.conf", format!("nameserver {ip}\n")).unwrap();
    resolver("192.0.2.1");
    let host = executor();
    let end_a_jail = || {
        let pid = jails()[0].file_name().unwrap().to_str().unwrap().to_owned();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    };
    let open = || fs::set_permissions(format!("{WORK}/next"), Permissions::from_mode(0o755)).unwrap();
    let hold = || {
        let mut command = Command::new("sleep");
        std::os::unix::process::CommandExt::uid(&mut command, UID);
        drop(command.arg("9999").spawn().unwrap());
    };
    let changes: [(&str, &dyn Fn()); 4] = [
        ("resolvers", &|| resolver("192.0.2.2")),
        ("a jail", &end_a_jail),
        ("directories", &open),
        ("a process of the job user's", &hold),
    ];
    runtime().block_on(async {
        for (what, change) in changes {
            host.prepare().await;
            let next = runner_in("next").unwrap();
            change();
            let (claim, runner, said) = serve(&host, "i-jail.10", SEES).await;
            assert_ne!(runner_in(&format!("claims/{claim}")), Some(next), "{what}");
            assert!(said.contains("192.0.2.2"), "{what}: {said}");
            let held = |process: &String| {
                fs::read(format!("{process}/cmdline")).is_ok_and(|words| words == b"sleep\x009999\0")
            };
            assert!(!processes().iter().any(held), "{what}: {:?}", processes());
            clean(&host, claim, runner).await;
        }
    });
}

/// Lists what is above it, as GitHub's runner does, and tries each way to change the programs that all claims share.
const ATTACKS: &str = r#"
here, above = os.getcwd(), os.getcwd()
while above != "/":
    above = os.path.dirname(above)
    print("LISTS", above, sorted(os.listdir(above)) if above.startswith("/var/lib/runyard-test") else len(os.listdir(above)) > 0)
for hidden in ["package", "logs", "keep", "next", "claims/i-jail.19", "begun"]:
    refused("name of " + hidden, lambda: os.lstat("/var/lib/runyard-test/work/" + hidden))
listener, node = here + "/bin/Runner.Listener", here + "/externals/node24/bin/node"
print("RUNS", subprocess.run([node], capture_output=True, text=True).stdout.strip())
def write(path, flags=os.O_WRONLY):
    os.write(os.open(path, flags), b"changed")
for path in [listener, node]:
    for name, way in [("itself", path), ("proc self root", "/proc/self/root" + path), ("proc cwd", "/proc/self/cwd" + path[len(here):])]:
        refused(name, lambda: write(way))
        refused(name + " truncated", lambda: os.truncate(way, 0))
        refused(name + " mode", lambda: os.chmod(way, 0o777))
        refused(name + " owner", lambda: os.chown(way, os.getuid(), -1))
        refused(name + " time", lambda: os.utime(way))
        refused(name + " attribute", lambda: os.setxattr(way, "user.canary", b"1"))
    held = os.open(path, os.O_RDONLY)
    refused("by descriptor", lambda: write(f"/proc/self/fd/{held}"))
    refused("by descriptor and mode", lambda: os.fchmod(held, 0o777))
    refused("a link of its own", lambda: os.link(path, here + "/own"))
    refused("removed", lambda: os.unlink(path))
    refused("replaced", lambda: os.rename(here + "/run.sh", path))
for name in ["bin", "externals"]:
    refused(name + " renamed", lambda: os.rename(here + "/" + name, here + "/" + name + "2"))
    refused(name + " removed", lambda: os.rmdir(here + "/" + name))
    refused(name + " added to", lambda: os.open(here + "/" + name + "/new", os.O_WRONLY | os.O_CREAT))
    refused(name + " mode", lambda: os.chmod(here + "/" + name, 0o777))
refused("a process of root's", lambda: os.listdir("/proc/1/root/"))
if libc.ptrace(16, 1, 0, 0) == 0: print("FOUND ptrace")
ways = {
    "unmounted": "umount bin", "detached": "umount -l bin",
    "remounted": "mount -o remount,rw bin && echo x >bin/new",
    "remounted by a bind": "mount -o remount,bind,rw bin && echo x >bin/new",
    "bound": "mount --bind bin _own && mount -o remount,bind,rw _own && echo x >_own/new",
    "bound with all": "mount --rbind . /mnt && mount -o remount,bind,rw /mnt/bin && echo x >/mnt/bin/new",
    "covered": "mount --bind . /mnt && echo x >/mnt/bin/new && test -e /mnt/bin/Runner.Listener",
    "below": "mount -t overlay -o lowerdir=bin,upperdir=../tmp/u,workdir=../tmp/w none _own && echo x >>bin/Runner.Listener",
    "chmod": "chmod 777 bin/Runner.Listener", "chown": "chown 0 bin/Runner.Listener",
    "mknod": "for d in $(cut -d: -f1 /proc/self/mountinfo | cut -d' ' -f3 | sort -u); do :; done; mknod _disk b 254 0 && echo x >_disk",
}
os.makedirs("_own", exist_ok=True)
for place in ["../tmp/u", "../tmp/w"]: os.makedirs(place, exist_ok=True)
for name, script in ways.items():
    done = subprocess.run(["unshare", "-Urm", "sh", "-ec", script], capture_output=True, text=True)
    if done.returncode == 0: print("FOUND", name)
subprocess.run(["unshare", "-Urmp", "--fork", "sh", "-c", "mount -t tmpfs none /mnt; cp -a bin/. /mnt/ 2>/dev/null; echo changed >/mnt/Runner.Listener"], capture_output=True)
print("ATTACKED", flush=True)
"#;

/// Of each file below the one unpacked runner: its name, its mode, its owner and what is in it.
fn shared() -> Vec<String> {
    let (mut open, mut found) = (vec![PathBuf::from(format!("{WORK}/package"))], Vec::new());
    while let Some(path) = open.pop() {
        let there = path.symlink_metadata().unwrap();
        let content =
            if there.is_file() { Sha256::digest(fs::read(&path).unwrap()).to_vec() } else { Vec::new() };
        found.push(format!("{} {:o} {} {content:?}", path.display(), there.mode(), there.uid()));
        if there.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.retain(|line| !line.contains(".complete") && !line.contains(".tar.gz"));
    found.sort();
    found
}

#[test]
#[ignore = "called by a_runner_lists_all_above_it_and_shares_programs_that_no_job_changes"]
fn on_a_machine_programs_are_shared() {
    agent("wall");
    let host = executor();
    // Above the agent's directories, what a job may not list: it is shown nothing but the way to its own.
    let above = PathBuf::from(WORK).parent().unwrap().to_owned();
    runtime().block_on(async {
        for (turn, mode) in [0o755, 0o711, 0o700].into_iter().enumerate() {
            fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
            if turn > 0 {
                host.prepare().await;
            }
            let before = if turn > 0 { shared() } else { Vec::new() };
            let (claim, runner, said) = serve(&host, "i-jail.20", ATTACKS).await;
            assert!(!said.contains("FOUND") && !said.contains("Traceback"), "{mode:o}: {said}");
            assert!(said.contains("RUNS as it was") && said.contains("ATTACKED"), "{mode:o}: {said}");
            for shows in [
                format!("LISTS {WORK}/claims ['current']"),
                format!("LISTS {WORK} ['claims', 'hook']"),
                "LISTS /var/lib True".to_owned(),
                "LISTS / True".to_owned(),
            ] {
                assert!(said.contains(&shows), "{mode:o}: {shows}: {said}");
            }
            let outside = PathBuf::from(format!("{WORK}/claims/{claim}/runner"));
            for name in ["bin", "externals"] {
                assert_eq!(
                    fs::read_dir(outside.join(name)).unwrap().count(),
                    0,
                    "nothing is written for a claim"
                );
            }
            let after = shared();
            assert!(turn == 0 || after == before, "{before:#?}\n{after:#?}");
            assert!(
                after.iter().filter(|line| line.contains("/bin/Runner.Listener 100755 0 ")).count() == 1,
                "{after:#?}"
            );
            clean(&host, claim, runner).await;
            assert_eq!(shared(), after);
        }
    });
}

/// Two jobs as a runner does them: the hook first, and steps that are always to be done, whatever became of it.
const HOOKED: &str = r#"
hook = os.environ["ACTIONS_RUNNER_HOOK_JOB_STARTED"]
pipe = os.path.join(os.path.dirname(hook), "refused")
refused("hook's directory", lambda: os.open(os.path.dirname(hook) + "/canary", os.O_WRONLY | os.O_CREAT))
refused("hook", lambda: os.open(hook, os.O_WRONLY))
refused("hook's end", lambda: os.unlink(hook))
refused("refusal", lambda: os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
refused("refusal's end", lambda: os.unlink(pipe))
for run in ("1", "2"):
    job = {**os.environ, "GITHUB_RUN_ID": run, "GITHUB_REPOSITORY": "acme/web"}
    print("hook of", run, subprocess.run(["bash", "-e", hook], env=job).returncode, flush=True)
    print("steps of", run, flush=True)
"#;

#[test]
#[ignore = "called by a_job_of_another_run_is_refused_from_within_its_jail"]
fn on_a_machine_another_runs_job() {
    agent("wall");
    let host = executor();
    runtime().block_on(async {
        let (claim, runner) = listen(&host, "i-jail.6", HOOKED).await;
        let serve = host.execute(Task::Serve { claim: claim.clone(), runner, awaits: None });
        let outcome = tokio::time::timeout(Duration::from_secs(600), serve).await;
        let said = fs::read_to_string(format!("{WORK}/logs/run.log")).unwrap();
        assert!(matches!(outcome, Ok(TaskOutcome::Intruded)), "{outcome:?}: {said}");
        assert!(said.contains("hook of 1 0") && said.contains("steps of 1"), "{said}");
        assert!(said.contains("this job is of run 2 of acme/web"), "{said}");
        let renew = Task::Renew { claim: claim.clone(), runner: Some(runner), since: None, registered: true };
        assert_eq!(host.execute(renew).await, TaskOutcome::Renewed);
        let said = fs::read_to_string(format!("{WORK}/logs/run.log")).unwrap_or(said);
        assert!(!said.contains("steps of 2") && !said.contains("FOUND"), "{said}");
        assert_eq!(processes(), Vec::<String>::new());
    });
}

/// A slot's job as a runner does it, and what its steps could try with the report.
const REPORTED: &str = r#"
hook = os.environ["ACTIONS_RUNNER_HOOK_JOB_STARTED"]
began, admitted = (os.path.join(os.path.dirname(hook), name) for name in ("began", "admitted"))
refused("report", lambda: os.open(began, os.O_RDONLY | os.O_NONBLOCK))
refused("report's end", lambda: os.unlink(began))
refused("admission", lambda: os.open(admitted, os.O_WRONLY | os.O_CREAT))
of = {"GITHUB_RUN_ID": "43", "GITHUB_REPOSITORY": "Acme/api", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "build"}
print("hook", subprocess.run(["bash", "-e", hook], env={**os.environ, **of}).returncode, flush=True)
print("admitted", os.path.exists(admitted), flush=True)
refused("admission's end", lambda: os.unlink(admitted))
"#;

#[test]
#[ignore = "called by a_slots_job_is_reported_from_within_its_jail_and_waits_until_it_is_admitted"]
fn on_a_machine_a_slots_job() {
    agent("wall");
    let host = executor();
    runtime().block_on(async {
        let slot = Holder { run: "set-7".to_owned(), repository: "acme/~".to_owned(), ..Holder::default() };
        let (claim, runner) = listen_for(&host, "i-jail.8", REPORTED, slot.clone()).await;
        let serve = |awaits| host.execute(Task::Serve { claim: claim.clone(), runner, awaits });
        let outcome = tokio::time::timeout(Duration::from_secs(600), serve(Some(slot))).await;
        let said = || fs::read_to_string(format!("{WORK}/logs/run.log")).unwrap();
        let Ok(TaskOutcome::Began(job)) = outcome else { panic!("{outcome:?}: {}", said()) };
        assert_eq!((job.repository.as_str(), job.run_id.as_str()), ("Acme/api", "43"));
        assert_eq!((job.attempt, job.name.as_str()), (2, "build"));
        assert!(!said().contains("hook 0"), "it waits: {}", said());
        assert_eq!(host.execute(Task::Admit { claim: claim.clone() }).await, TaskOutcome::Admitted);
        let until = Instant::now() + Duration::from_secs(600);
        while !said().contains("job-done") {
            assert!(Instant::now() < until, "the job does not end: {}", said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let said = said();
        assert!(said.contains("hook 0") && said.contains("admitted True"), "{said}");
        assert!(!said.contains("FOUND") && !said.contains("in time"), "{said}");
        clean(&host, claim.clone(), runner).await;
    });
}

/// What is outside of a machine: another network namespace, in which EC2's services and a host of the internet answer.
struct Outside(Vec<Child>);

impl Outside {
    fn new() -> Self {
        let hold = Command::new("unshare").args(["--net", "sleep", "9999"]).spawn().unwrap();
        let pid = hold.id().to_string();
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let until = Instant::now() + Duration::from_secs(600);
        while fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|other| other == own) {
            assert!(Instant::now() < until, "it gets no namespace");
            std::thread::sleep(Duration::from_millis(5));
        }
        let here = format!(
            "link add name ens5 type veth peer name out netns {pid}\naddr add 203.0.113.2/24 dev ens5\n\
             link set ens5 up\nroute add default via 203.0.113.1\n"
        );
        let there = "link set lo up\naddr add 203.0.113.1/24 dev out\naddr add 169.254.169.254/32 dev out\n\
                     link set out up\nroute add 198.18.0.0/15 via 203.0.113.2\n";
        let batch = |command: &mut Command, text: &str| {
            let mut child = command.args(["ip", "-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
            std::io::Write::write_all(child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success(), "{text}");
        };
        batch(&mut Command::new("env"), &here);
        let mut nsenter = Command::new("nsenter");
        batch(nsenter.args(["--net", "--target", &pid]), there);
        let mut serves = Command::new("nsenter");
        serves.args(["--net", "--target", &pid, "python3", "-m", "http.server", "80", "--directory", "/mnt"]);
        let serves = serves.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while TcpStream::connect("203.0.113.1:80").is_err() {
            assert!(Instant::now() < until, "nobody answers outside");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self(vec![hold, serves])
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.kill()));
    }
}

const REACHES: &str = r#"
def reach(host, port):
    try: socket.create_connection((host, port), 5).close()
    except OSError as e: print("NO", host, port, e)
    else: print("YES", host, port)
gateway = socket.inet_ntoa(bytes.fromhex([l.split()[2] for l in open("/proc/net/route") if l.split()[1] == "00000000"][0])[::-1])
port = int(open("/opt/runyard-test-port").read())
reach("203.0.113.1", 80)
reach("169.254.169.254", 80)
reach("fd00:ec2::254", 80)
for machine in (gateway, "203.0.113.2", "127.0.0.1"): reach(machine, port)
print("LINKS", sorted(os.listdir("/sys/class/net")))
"#;

#[test]
#[ignore = "called by a_job_reaches_what_is_outside_and_neither_the_machine_nor_its_role"]
fn on_a_machine_the_network() {
    if has("nft") {
        network();
    } else {
        aloud("without nft, its rules were not tried");
    }
}

#[test]
#[ignore = "called by without_nft_the_rules_of_iptables_keep_a_job_from_the_same"]
fn on_a_machine_the_network_by_iptables() {
    if !has("iptables") || !has("ip6tables") {
        return aloud("without iptables and ip6tables, their rules were not tried");
    }
    if has("nft") {
        spoil("nft");
    }
    network();
}

fn network() {
    let _outside = Outside::new();
    let ip = |words: &str| assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
    ip("addr add fd00:ec2::254/128 dev lo nodad");
    let machine = TcpListener::bind("0.0.0.0:0").unwrap();
    let _metadata = TcpListener::bind("[fd00:ec2::254]:80").unwrap();
    let port = machine.local_addr().unwrap().port();
    fs::write("/opt/runyard-test-port", port.to_string()).unwrap();
    let host = executor();
    let configure = || {
        let claim = ClaimId::parse("i-jail.3").unwrap();
        Task::Configure { claim: claim.clone(), registration: registration(&claim) }
    };
    let tried = |host: &Host| format!("{:?}", runtime().block_on(host.execute(configure())));
    // Without the firewall nothing is registered.
    let open = tried(&host);
    for words in ["not isolated", "the machine answers at 198.", "service at http://169.254.169.254/ answers"]
    {
        assert!(open.contains(words), "{words}: {open}");
    }
    // As an image with a container engine has it.
    let shut_forwarding = || {
        if has("iptables") {
            assert!(Command::new("iptables").args(["-P", "FORWARD", "DROP"]).status().unwrap().success());
        }
    };
    shut_forwarding();
    agent("wall");
    agent("wall");
    // By whichever of the two made the rules.
    let rules = "nft list chain inet runyard bound || iptables -S runyard-BOUND";
    let rules = String::from_utf8(Command::new("sh").args(["-c", rules]).output().unwrap().stdout).unwrap();
    let bounds = ["ct state new ct count over 16384", "--connlimit-above 16384 --connlimit-mask 0"];
    assert_eq!(bounds.map(|bound| rules.matches(bound).count()).iter().sum::<usize>(), 1, "{rules}");
    // Nor where the rules go after the claim was prepared.
    let open = runtime().block_on(async {
        host.prepare().await;
        let mut rules = Command::new("sh");
        rules.args(["-c", "nft flush ruleset; iptables -F; iptables -P FORWARD ACCEPT"]);
        drop(rules.stderr(Stdio::null()).status());
        host.execute(configure()).await
    });
    let open = format!("{open:?}");
    assert!(open.contains("not isolated") && open.contains("the machine answers at 198."), "{open}");
    shut_forwarding();
    agent("wall");
    let said = runtime().block_on(async {
        let (claim, runner, said) = serve(&host, "i-jail.4", REACHES).await;
        clean(&host, claim, runner).await;
        said
    });
    assert!(said.contains("YES 203.0.113.1 80"), "{said}");
    assert_eq!(said.matches("YES").count(), 1, "{said}");
    assert_eq!(said.matches("NO").count(), 5, "{said}");
    assert!(said.contains("LINKS ['eth0', 'lo']"), "{said}");
}

#[test]
#[ignore = "called by a_machine_that_cannot_keep_jobs_to_themselves_registers_nothing"]
fn on_a_machine_something_is_missing() {
    agent("wall");
    let set = [("kernel/core_pattern", "core"), ("kernel/dmesg_restrict", "1")];
    // Kernels before 6.6 have no switch for it.
    let io_uring = ("kernel/io_uring_disabled", "2");
    let since = fs::exists("/proc/sys/kernel/io_uring_disabled").unwrap().then_some(io_uring);
    for (name, value) in set.into_iter().chain(since).chain([("fs/inotify/max_user_instances", "2048")]) {
        assert_eq!(fs::read_to_string(format!("/proc/sys/{name}")).unwrap(), value);
    }
    // As at first boot, twice; and where an image has such a user already.
    for _ in 0..2 {
        runyard_agent::install::make_account("runyard-job").unwrap();
    }
    let home = fs::metadata("/home/runyard-job").unwrap();
    assert_eq!((home.uid(), home.mode() & 0o777), (0, 0o755));
    assert!(Command::new("useradd").args(["--create-home", "runner"]).status().unwrap().success());
    let refused = runyard_agent::install::make_account("runner").unwrap_err().to_string();
    for words in ["shell", "expire", "/etc/subuid", "/etc/subgid", "home"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let host = executor();
    let tried = || {
        let claim = ClaimId::parse("i-jail.5").unwrap();
        let configure = Task::Configure { claim: claim.clone(), registration: registration(&claim) };
        format!("{:?}", runtime().block_on(host.execute(configure)))
    };
    assert_eq!(tried(), "Configured");
    fs::create_dir(format!("{HOME}/.ssh")).unwrap();
    let said = tried();
    assert!(said.contains("can come back") && said.contains("not empty"), "{said}");
    fs::remove_dir(format!("{HOME}/.ssh")).unwrap();
    add("/etc/subuid", &format!("{NAME}:165536:65536"));
    let said = tried();
    assert!(said.contains("can come back") && said.contains("/etc/subuid"), "{said}");
    fs::write("/etc/subuid", "").unwrap();
    assert_eq!(tried(), "Configured");
    fs::set_permissions("/etc/runyard-test.toml", Permissions::from_mode(0o644)).unwrap();
    let said = tried();
    assert!(said.contains("runyard-test.toml can be read"), "{said}");
    fs::set_permissions("/etc/runyard-test.toml", Permissions::from_mode(0o600)).unwrap();
    // No namespace can be connected.
    spoil("ip");
    let said = tried();
    assert!(said.contains("a jail cannot be made") && said.contains("no job is started: ip:"), "{said}");
}

/// What both runs with containers know: an image made here, for none can be fetched.
const IMAGE: &str = r#"
import io, tarfile
archive = io.BytesIO()
with tarfile.open(fileobj=archive, mode="w") as tar:
    tar.add("/usr/bin/busybox", "bin/busybox")
    for name in ("sh", "cat", "id", "sleep", "touch", "chown", "wget"):
        link = tarfile.TarInfo("bin/" + name)
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)
def docker(*words, given=None):
    done = subprocess.run(["docker", *words], input=given, capture_output=True)
    return done.returncode, (done.stdout + done.stderr).decode().strip()
print("images before", docker("images", "-q"), docker("ps", "-aq"), docker("volume", "ls", "-q"))
print("imported", docker("import", "-", "lab:1", given=archive.getvalue())[0])
"#;

#[test]
#[ignore = "called by a_job_with_rootless_containers_gains_no_right_and_leaves_nothing"]
fn on_a_machine_containers() {
    if !has("podman") || !has("netavark") && !std::path::Path::new("/usr/lib/podman/netavark").exists() {
        return aloud("needs podman, crun, conmon, netavark and slirp4netns");
    }
    agent("wall");
    let host = executor();
    let holder = || Holder {
        jobs: Jobs {
            containers: Containers::Rootless,
            environment: [("LAB", "1"), ("HOME", "/nowhere")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            ..Jobs::default()
        },
        ..holder()
    };
    let job = r#"
print("variables", os.environ["LAB"], os.environ["HOME"] == "/nowhere")
print("ended with", docker("run", "--rm", "lab:1", "sh", "-c", "exit 7")[0])
print("root inside", docker("run", "--rm", "lab:1", "id", "-u"))
print("shadow", docker("run", "--rm", "-v", "/:/h", "lab:1", "cat", "/h/etc/shadow")[0] != 0)
print("metadata", docker("run", "--rm", "--network", "host", "lab:1", "wget", "-T", "2", "-qO-", "http://169.254.169.254/")[0] != 0)
print("in tmp", docker("run", "--rm", "-v", "/tmp:/t", "--user", "55:66", "lab:1", "touch", "/t/CANARY"))
print("owner", os.stat("/tmp/CANARY").st_uid)
print("volume", docker("run", "-v", "CANARY:/v", "lab:1", "chown", "7:7", "/v")[0])
print("stays", docker("run", "-d", "--restart", "always", "lab:1", "sleep", "4711")[0])
def runs(word):
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if word in open(f"/proc/{process}/cmdline", "rb").read(): return True
        except OSError: pass
    return False
# What was started has its own name a moment later.
end = time.monotonic() + 60
while not runs(b"4711") and time.monotonic() < end: time.sleep(0.05)
print("process", runs(b"4711"))
"#;
    let job = format!("{IMAGE}{job}");
    runtime().block_on(async {
        let (claim, runner, said) = serve_for(&host, "i-jail.1", &job, holder()).await;
        for words in [
            "images before (0, '') (0, '') (0, '')",
            "imported 0",
            "variables 1 False",
            "ended with 7",
            "root inside (0, '0')",
            "shadow True",
            "metadata True",
            "in tmp (0, '')",
            &format!("owner {}", 0x7000_0000 + 54),
            "volume 0",
            "stays 0",
            "process True",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        clean(&host, claim, runner).await;
        assert!(!processes().iter().any(|words| words.contains("podman") || words.contains("4711")));
        let left = fs::read_dir(format!("{WORK}/claims")).unwrap().count();
        assert_eq!(left, 0, "its images are gone with its directories");
        let looks = format!("{IMAGE}print('found', os.path.exists('/tmp/CANARY'))");
        let (claim, runner, said) = serve_for(&host, "i-jail.2", &looks, holder()).await;
        assert!(
            said.contains("images before (0, '') (0, '') (0, '')") && said.contains("found False"),
            "{said}"
        );
        clean(&host, claim, runner).await;
    });
}

#[test]
#[ignore = "called by a_job_that_has_its_machine_is_root_there_and_only_with_a_runner_of_one_job"]
fn on_a_machine_the_job_has() {
    agent("wall");
    let host = executor();
    let holder = || Holder { jobs: Jobs { root: true, ..Jobs::default() }, ..holder() };
    fs::write(JOB, "import os, subprocess\nprint('becomes', subprocess.run(['sudo', '-n', 'id', '-u'], capture_output=True).stdout, flush=True)\n").unwrap();
    runtime().block_on(async {
        let claim = ClaimId::parse("i-jail.1").unwrap();
        let start = |single_use| Task::Start { claim: claim.clone(), single_use, holder: holder() };
        let refused = host.execute(start(None)).await;
        let TaskOutcome::Failed(GithubFailure::Refused(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("each runner serves one job"), "{why}");
        let single_use = || {
            let jit_config = Some("JIT".to_owned());
            Some(Box::new(RegistrationCredential { token: None, jit_config, ..*registration(&claim) }))
        };
        if !has("sudo") {
            let refused = host.execute(start(single_use())).await;
            let TaskOutcome::Failed(GithubFailure::Refused(why)) = refused else { panic!("{refused:?}") };
            assert!(why.contains("sudo"), "{why}");
            return aloud("needs sudo");
        }
        let started = host.execute(start(single_use())).await;
        let TaskOutcome::Started(runner) = started else { panic!("{started:?}") };
        let listening = host.execute(Task::Listen { claim: claim.clone(), runner, known: None }).await;
        assert_eq!(listening, TaskOutcome::Listening);
        let until = Instant::now() + Duration::from_secs(600);
        loop {
            let said = fs::read_to_string(format!("{WORK}/logs/run.log")).unwrap();
            if said.contains("job-done") {
                assert!(said.contains("becomes b'0\\n'"), "{said}");
                break;
            }
            assert!(Instant::now() < until, "the job does not end: {said}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
