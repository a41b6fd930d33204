//! Does the program itself keep its promises with nothing else there? No table, no package, no network.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn config(dir: &Path, created: &str) -> std::path::PathBuf {
    let path = dir.join("agent.toml");
    let text = format!(
        "table = \"runyard\"\ninstance_id = \"i-1\"\ninstance_arn = \"arn:aws:ec2:local:000000000000:instance/i-1\"\n\
         state_dir = \"{0}/state\"\nwork_dir = \"{0}/work\"\n\
         [timing]\nheartbeat = \"100ms\"\npoll = \"100ms\"\ngrace = \"100ms\"\ncreated = \"{created}\"\n\
         [runner]\nurl = \"http://127.0.0.1:1/runner.tar.gz\"\nsha256 = \"{1}\"\n[power]\noff = \"exit\"\n",
        dir.display(),
        "0".repeat(64)
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn agent(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runyard-agent"));
    command.arg("--config").arg(config).env_clear();
    command.envs([
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_REGION", "local"),
        ("AWS_ACCESS_KEY_ID", "none"),
        ("AWS_SECRET_ACCESS_KEY", "CANARY"),
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How often is looked, 20 ms apart. It judges nothing: what has not come by then never comes.
const LOOKS: usize = 30_000;

fn wait_for(what: &Path) {
    let came = (0..LOOKS).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        what.exists()
    });
    assert!(came, "{} never came", what.display());
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn with_everything_out_of_reach_the_machine_ends_at_its_boot_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let output = agent(&config(dir.path(), "1s")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("no record within the boot deadline"), "{}", said(&output));
    assert!(!said(&output).contains("CANARY"));
}

#[test]
fn a_second_agent_is_refused_and_a_stopped_one_makes_way() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "10m");
    let mut first = Running(agent(&config).spawn().unwrap());
    wait_for(&dir.path().join("state/threshold"));
    let second = agent(&config).output().unwrap();
    assert!(
        !second.status.success() && said(&second).contains("another agent is running"),
        "{}",
        said(&second)
    );
    let pid = nix::unistd::Pid::from_raw(i32::try_from(first.0.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(first.0.wait().unwrap().success());
    assert!(dir.path().join("state/key").exists());
}

#[test]
fn bad_configurations_and_arguments_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "10");
    let output = agent(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("timing.created") && said(&output).contains("100ms"), "{}", said(&output));
    let output = agent(&dir.path().join("none.toml")).output().unwrap();
    assert!(output.status.code() == Some(1) && said(&output).contains("none.toml"), "{}", said(&output));
    let output = agent(&path).arg("more").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// The watchdog timer with a fake `systemctl` that records the arguments of its first call: whoever sees the file sees
/// all of it.
fn watchdog(dir: &Path, power_off_at_ms: u64) -> Child {
    let state = dir.join("state");
    std::fs::create_dir_all(&state).unwrap();
    let boot = runyard_agent::system::clock::boot_id().unwrap();
    let kept = format!(r#"{{"bootId":"{boot}","beganMs":1,"powerOffAtMs":{power_off_at_ms}}}"#);
    std::fs::write(state.join("threshold"), kept).unwrap();
    let (script, called) = (dir.join("script"), dir.join("called").display().to_string());
    std::fs::write(
        &script,
        format!("#!/bin/sh\n[ -e {called} ] || {{ echo $* >{called}.new && mv {called}.new {called}; }}\n"),
    )
    .unwrap();
    // By another program: what another test starts meanwhile would hold a file of ours open for writing, and nobody could
    // execute it.
    let installed =
        Command::new("install").args(["-m", "755"]).args([&script, &dir.join("systemctl")]).status();
    assert!(installed.unwrap().success());
    Command::new(env!("CARGO_BIN_EXE_runyard-agent"))
        .args(["fuse", "--config"])
        .arg(config(dir, "10m"))
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", dir.display()))
        .spawn()
        .unwrap()
}

#[test]
fn the_watchdog_timer_powers_off_once_the_deadline_is_over_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut waits = watchdog(dir.path(), u64::from(u32::MAX) * 1000);
    assert!(waits.wait().unwrap().success());
    assert!(!dir.path().join("called").exists());
    let dir = tempfile::tempdir().unwrap();
    // Over since this machine was a second old, if it is old enough by now.
    let powers_off = Running(watchdog(dir.path(), 1000));
    wait_for(&dir.path().join("called"));
    assert_eq!(std::fs::read_to_string(dir.path().join("called")).unwrap(), "poweroff\n");
    drop(powers_off);
}

#[test]
fn without_a_name_it_asks_the_metadata_service_and_can_be_stopped_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "10m");
    let text = std::fs::read_to_string(&path).unwrap();
    let kept: Vec<_> = text.lines().filter(|line| !line.starts_with("instance_")).collect();
    std::fs::write(&path, kept.join("\n")).unwrap();
    let mut command = agent(&path);
    command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1");
    let mut running = Running(command.spawn().unwrap());
    let mut heard = std::io::BufReader::new(running.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("the machine's identity is not known yet") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut heard, &mut line).unwrap() > 0, "it ended");
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(running.0.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(running.0.wait().unwrap().success());
}

/// The oldest C library that the page promises to do: that of Amazon Linux 2023; Ubuntu 22.04 has 2.35.
const OLDEST: (u32, u32) = (2, 34);

/// The versions of the C library that a program's symbols ask for, as they stand in its dynamic strings.
fn versions(program: &[u8]) -> Vec<(u32, u32)> {
    let mark = b"GLIBC_";
    let starts = program.windows(mark.len()).enumerate().filter(|(_, window)| window == mark);
    let text = |at: usize| {
        let rest = &program[at + mark.len()..];
        let end =
            rest.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'.')).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    };
    starts
        .filter_map(|(at, _)| {
            let text = text(at);
            let mut numbers = text.split('.').map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        })
        .collect()
}

#[test]
fn the_agent_starts_on_every_system_that_the_page_names() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_runyard-agent")).unwrap();
    // A static one asks for none.
    if let Some(newest) = versions(&program).into_iter().max() {
        assert!(newest <= OLDEST, "the agent needs glibc {newest:?}");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/install.md");
    let page = std::fs::read_to_string(page).unwrap();
    // Wherever its lines are broken.
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (major, minor) = OLDEST;
    let promised =
        format!("glibc {major}.{minor} or newer, as Amazon Linux 2023, Ubuntu 22.04 and Debian 12 have it");
    assert!(page.contains(&promised), "docs/how-to/install.md does not say {promised:?}");
}
