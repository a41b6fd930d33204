//! Is a process found that shed its marks, its group, its directory and its parents? The control group it was born in
//! tells. In a program of its own, because it moves into a control group of its own; where it may not, there is nothing
//! to test but what the tests beside the code do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runyard_agent::host::{Host, HostSettings, JobGroup, PackageSource, SweepPaths};
use runyard_agent::task::{Executor, Holder, Task, TaskOutcome, Wipe};
use runyard_core::model::ClaimId;

/// A control group for this process, which it leaves and removes in the end.
struct Group {
    before: PathBuf,
    own: PathBuf,
}

impl Group {
    fn enter() -> std::io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let place = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let place = place.and_then(|line| line.split(' ').nth(1)).ok_or(std::io::ErrorKind::NotFound)?;
        let before = Path::new(place).join(now_in().trim_start_matches('/'));
        let own = before.join(format!("runyard-test-{}", std::process::id()));
        fs::create_dir(&own)?;
        let group = Self { before, own };
        fs::write(group.own.join("cgroup.procs"), "0")?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.before.join("cgroup.procs"), "0");
        for group in [self.own.join("runyard-job"), self.own.clone()] {
            let _ = fs::remove_dir(group);
        }
    }
}

/// The control group of this process, as the kernel names it.
fn now_in() -> String {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned()
}

/// Which processes sleep that long.
fn sleeping(seconds: u32) -> Vec<i32> {
    let line = format!("sleep\0{seconds}\0").into_bytes();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line))
        .collect()
}

fn settings(dir: &Path, group: Option<JobGroup>) -> HostSettings {
    HostSettings {
        machine: "i-group".to_owned(),
        state_dir: dir.join("state"),
        work_dir: dir.join("work"),
        package: PackageSource {
            url: "http://127.0.0.1:1/".parse().unwrap(),
            sha256: String::new(),
            version: String::new(),
        },
        package_hosts: Vec::new(),
        pre_runner: None,
        post_run: None,
        account: None,
        isolation: None,
        places: SweepPaths::default(),
        stop: Duration::from_secs(5),
        variables: Vec::new(),
        group,
        image: None,
        adopts_orphans: false,
    }
}

/// Which of the processes that a job hid are left when it was stopped.
async fn left(group: Option<JobGroup>, seconds: u32) -> Vec<i32> {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), group);
    let host = Host::new(settings.clone()).unwrap();
    let claim = ClaimId::parse("i-group.1").unwrap();
    let runner = settings.work_dir.join("claims/i-group.1/runner");
    let run = format!(
        "#!/bin/sh\ntrap 'exit 0' INT\n\
         (cd / && env -i setsid sh -c 'sleep {seconds} & exec sleep {seconds}' &)\n\
         echo 'Listening for Jobs'\nwhile :; do sleep 0.05; done\n"
    );
    fs::create_dir_all(&runner).unwrap();
    fs::write(runner.join("run.sh"), run).unwrap();
    fs::set_permissions(runner.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let started =
        host.execute(Task::Start { claim: claim.clone(), holder: Holder::default(), single_use: None }).await;
    let TaskOutcome::Started(runner) = started else { panic!("run.sh was not started: {started:?}") };
    let until = tokio::time::Instant::now() + Duration::from_secs(600);
    while sleeping(seconds).len() < 2 {
        assert!(tokio::time::Instant::now() < until, "the hidden processes never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stop = Task::Stop { claim, runner: Some(runner), since: None };
    assert_eq!(host.execute(stop).await, TaskOutcome::Stopped { registered: false });
    sleeping(seconds)
}

/// The counters of a group are its own: with a new one after each claim, no claim reads those of another.
async fn a_new_group_follows(group: JobGroup, jobs: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(settings(dir.path(), Some(group))).unwrap();
    // Such as a container's.
    fs::create_dir_all(jobs.join("below/deep")).unwrap();
    let number = || fs::metadata(jobs).unwrap().ino();
    let before = number();
    let claim = ClaimId::parse("i-group.2").unwrap();
    let wipe = Task::Wipe { claim, since: None, wipe: Wipe::Whole };
    assert_eq!(host.execute(wipe).await, TaskOutcome::Wiped);
    assert!(number() != before && !jobs.join("below").exists());
}

/// Past the capture of what passing tests print: what was not tried must not look tried.
fn aloud(why: &str) {
    let text = format!("\n******\nagent/tests/group.rs: NOT RUN: {why}\n******\n");
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
}

#[tokio::test]
async fn a_process_that_shed_everything_else_is_still_in_the_group_it_was_born_in() {
    let own = match Group::enter() {
        Ok(own) => own,
        Err(error) => return aloud(&format!("no control group may be made here: {error}")),
    };
    let seconds = 1_000_000 + std::process::id();
    let hidden = left(None, seconds).await;
    assert_eq!(hidden.len(), 2, "without a group nothing tells of them");
    hidden.iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap());
    let group = JobGroup::find().unwrap();
    assert_eq!(left(Some(group.clone()), seconds + 1).await, Vec::<i32>::new());
    a_new_group_follows(group, &own.own.join("runyard-job")).await;
    assert!(now_in().ends_with(own.own.file_name().unwrap().to_str().unwrap()), "{} is left", now_in());
}
