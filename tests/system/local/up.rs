//! `runyard up`, killed, stopped and started again.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::e2e::program;
use crate::local::programs::{machines_in, runyard, said, text};

const LOOK: Duration = Duration::from_millis(50);
/// After which what hangs is given up: ten minutes.
const LOOKS: usize = 12_000;

/// A running `up`. Whatever happens, its machines end with it.
pub(crate) struct Up<'a> {
    pub(crate) process: Child,
    dir: &'a Path,
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        // A shell without job control has SIGINT ignored in what it starts in the background.
        let _ = self.end(Signal::SIGTERM);
    }
}

pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::sleep(LOOK);
    }
    panic!("in vain for {what}");
}

impl<'a> Up<'a> {
    pub(crate) fn start(dir: &'a Path) -> Self {
        let up = Self::start_saying(dir, File::create(dir.join("said")).unwrap().into());
        // The file with the port may be that of the life before.
        until("what it says", || (!std::fs::read(dir.join("said")).unwrap().is_empty()).then_some(()));
        up
    }

    /// One that says what it says to somebody else; the status page's address in its directory tells that it serves.
    fn start_saying(dir: &'a Path, out: Stdio) -> Self {
        let log = File::create(dir.join("log")).unwrap();
        let mut command = runyard();
        command.args(["up", "--dir"]).arg(dir.join("yard")).stdin(Stdio::null());
        let process = command.stdout(out).stderr(log).spawn().unwrap();
        let mut up = Self { process, dir };
        until("the greeting", || {
            if let Some(status) = up.process.try_wait().unwrap() {
                panic!("{status}: {}", std::fs::read_to_string(dir.join("log")).unwrap());
            }
            dir.join("yard/status.port").exists().then_some(())
        });
        up
    }

    /// A verb, in the environment that the directory's file gives.
    fn verb(&self, words: &str) -> Output {
        program::output(&mut self.command(words))
    }

    /// The same, to be started.
    pub(crate) fn command(&self, words: &str) -> Command {
        let environment = std::fs::read_to_string(self.dir.join("yard/env")).unwrap();
        let variables: BTreeMap<&str, &str> =
            environment.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('=')).collect();
        let mut command = runyard();
        command.args(words.split_whitespace()).envs(variables).env("RUNYARD_DIR", self.dir.join("yard"));
        command
    }

    pub(crate) fn done(&self, words: &str) -> String {
        let output = self.verb(words);
        assert!(output.status.success(), "{words}: {}", said(&output));
        text(&output.stdout)
    }

    fn request(&self, run: u32) -> serde_json::Value {
        let told = self.done(&format!("describe request {run} -o json --repository demo/app"));
        serde_json::from_str(&told).unwrap()
    }

    fn end(&mut self, how: Signal) -> Option<i32> {
        if self.process.try_wait().unwrap().is_none() {
            kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), how).unwrap();
        }
        self.process.wait().unwrap().code()
    }
}

const ASK: &str = "provision --run-id 1 --repository demo/app --class small --count 2 --wait --timeout 10m";

#[test]
fn a_kill_loses_no_request_and_no_machine_and_leaks_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path());
    up.done(ASK);
    let before = up.request(1);
    let running = machines_in(dir.path());
    assert!(running.len() >= 2, "{running:?}");
    up.end(Signal::SIGKILL);
    assert_eq!(machines_in(dir.path()).len(), running.len(), "machines outlive their operator");
    let mut up = Up::start(dir.path());
    let after = up.request(1);
    assert_eq!((&after["phase"], &after["instances"]), (&before["phase"], &before["instances"]));
    up.done("release --run-id 1 --repository demo/app --wait --timeout 10m");
    let again =
        up.done("provision --run-id 2 --repository demo/app --class small --count 2 --wait --timeout 10m");
    let held = up.request(2)["instances"].clone();
    let ids = before["instances"].as_array().unwrap();
    assert!(ids.iter().all(|id| held.as_array().unwrap().contains(id)), "{again}: {held} are not {ids:?}");
    assert_eq!(up.end(Signal::SIGINT), Some(0));
    assert_eq!(machines_in(dir.path()), Vec::<String>::new());
}

#[test]
fn what_a_stop_ended_is_recorded_at_the_next_start_and_served_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path());
    up.done(ASK);
    let before = up.request(1)["instances"].clone();
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
    assert_eq!(machines_in(dir.path()), Vec::<String>::new());
    let up = Up::start(dir.path());
    let after = until("new machines", || {
        let request = up.request(1);
        let new = request["instances"].as_array()?.iter().all(|id| !before.as_array().unwrap().contains(id));
        let count = request["instances"].as_array()?.len();
        (new && count == 2 && request["phase"] == "Ready").then_some(request)
    });
    assert_eq!(after["count"], 2);
    let instances = up.done("get instances -o json");
    let instances: serde_json::Value = serde_json::from_str(&instances).unwrap();
    for id in before.as_array().unwrap() {
        let old = instances["items"].as_array().unwrap().iter().find(|item| item["instanceId"] == *id);
        assert!(old.is_none_or(|old| old["state"] == "terminated"), "{old:?}");
    }
}

#[test]
fn a_second_ctrl_c_ends_at_once_and_leaves_no_process_either() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path());
    up.done(ASK);
    assert!(machines_in(dir.path()).len() >= 2);
    let pid = Pid::from_raw(i32::try_from(up.process.id()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    // Another number, for two equal ones may arrive as one.
    kill(pid, Signal::SIGTERM).unwrap();
    up.process.wait().unwrap();
    assert_eq!(machines_in(dir.path()), Vec::<String>::new());
}

#[test]
fn machines_end_with_it_although_nobody_reads_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start_saying(dir.path(), Stdio::piped());
    up.done(ASK);
    assert!(machines_in(dir.path()).len() >= 2);
    drop(up.process.stdout.take());
    assert_eq!(
        up.end(Signal::SIGINT),
        Some(0),
        "{}",
        std::fs::read_to_string(dir.path().join("log")).unwrap()
    );
    assert_eq!(machines_in(dir.path()), Vec::<String>::new());
}

#[test]
fn a_terminal_that_closes_ends_it_and_its_machines() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path());
    up.done(ASK);
    let port = || std::fs::read_to_string(dir.path().join("yard/status.port")).unwrap();
    let before = port();
    // Under `nohup` nobody hears a terminal close, the program neither.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status
        .lines()
        .any(|line| line.starts_with("SigIgn:") && line.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f']));
    assert_eq!(up.end(if ignored { Signal::SIGTERM } else { Signal::SIGHUP }), Some(0));
    assert_eq!(machines_in(dir.path()), Vec::<String>::new());
    drop(up);
    let _again = Up::start(dir.path());
    assert_eq!(port(), before, "the status page stays where it was");
}

#[test]
fn a_file_in_the_place_of_its_directory_is_refused_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = runyard().args(["up", "--dir"]).arg(&file).output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("name a directory"), "{told}");
}

#[test]
fn two_on_one_directory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(dir.path());
    let output = runyard().args(["up", "--dir"]).arg(dir.path().join("yard")).output().unwrap();
    assert!(!output.status.success());
    let told = text(&output.stderr);
    assert!(told.contains("--dir") && told.contains(&up.process.id().to_string()), "{told}");
}
