//! Is a process found that shed every mark, left its group and its directory, and is a daemon of the machine's owner
//! left alone? In a program of its own, because the agent here takes every orphan for its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use runyard_agent::host::{Host, HostSettings, OwnScript, PackageSource, SweepPaths, adopt_orphans};
use runyard_agent::task::{Executor, Holder, Task, TaskOutcome, Wipe};
use runyard_core::model::ClaimId;
use sha2::{Digest, Sha256};

/// For how long its orphans sleep: no other run of this test has the same.
fn seconds() -> [u32; 2] {
    [0, 1].map(|more| 100_000 + 2 * std::process::id() + more)
}

fn run() -> String {
    let [one, other] = seconds();
    format!(
        "#!/bin/sh\ntrap 'exit 0' INT\n\
         (cd / && exec env -i setsid sh -c 'sleep {one} & exec sleep {other}') &\n\
         echo 'Listening for Jobs'\nwhile :; do sleep 0.05; done\n"
    )
}

/// For as long as its file is there, it has a young child at nearly every moment.
const DAEMON: &str = "#!/bin/sh\n(while [ -e alive ]; do sleep 0.01; echo >>beats; done) >/dev/null 2>&1 &\n";

/// Held by each test: what one starts, the other would take for its own.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn package() -> (Vec<u8>, String) {
    let run = run();
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(run.len() as u64);
    tar.append_data(&mut header, "run.sh", run.as_bytes()).unwrap();
    let archive = tar.into_inner().unwrap().finish().unwrap();
    let sha256 = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
    (archive, sha256)
}

/// How many processes sleep that long, for each.
fn sleeping() -> [usize; 2] {
    seconds().map(|seconds| {
        let wanted = format!("sleep\0{seconds}\0").into_bytes();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted))
            .count()
    })
}

fn settings(dir: &Path) -> HostSettings {
    let (archive, sha256) = package();
    std::fs::create_dir_all(dir.join("work/package")).unwrap();
    std::fs::write(dir.join(format!("work/package/{sha256}.tar.gz")), archive).unwrap();
    HostSettings {
        machine: "i-orphans".to_owned(),
        state_dir: dir.join("state"),
        work_dir: dir.join("work"),
        package: PackageSource {
            url: "http://127.0.0.1:1/".parse().unwrap(),
            sha256,
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
        group: None,
        image: None,
        adopts_orphans: true,
    }
}

#[tokio::test]
async fn a_process_without_mark_group_or_place_is_still_below_the_agent() {
    let _turn = TURN.lock().await;
    adopt_orphans().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let host = Host::new(settings.clone()).unwrap();
    let claim = ClaimId::parse("i-orphans.1").unwrap();
    let runner = settings.work_dir.join("claims/i-orphans.1/runner");
    std::fs::create_dir_all(&runner).unwrap();
    std::fs::write(runner.join("run.sh"), run()).unwrap();
    std::fs::set_permissions(runner.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let TaskOutcome::Started(runner) =
        host.execute(Task::Start { claim: claim.clone(), holder: Holder::default(), single_use: None }).await
    else {
        panic!("run.sh was not started")
    };
    let until = tokio::time::Instant::now() + Duration::from_secs(600);
    while sleeping() != [1, 1] {
        assert!(tokio::time::Instant::now() < until, "the orphans never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stop = Task::Stop { claim: claim.clone(), runner: Some(runner), since: Some(runner.started) };
    assert_eq!(host.execute(stop).await, TaskOutcome::Stopped { registered: false });
    assert_eq!(sleeping(), [0, 0]);
    assert_eq!(
        host.execute(Task::Wipe { claim, since: Some(runner.started), wipe: Wipe::Whole }).await,
        TaskOutcome::Wiped
    );
}

#[tokio::test]
async fn a_daemon_of_the_machines_owner_has_children_during_a_claim_and_outlives_it() {
    let _turn = TURN.lock().await;
    adopt_orphans().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("pre-runner");
    std::fs::write(&script, DAEMON).unwrap();
    let pre_runner = OwnScript { script, timeout: Duration::from_secs(600), optional: false };
    let host = Host::new(HostSettings { pre_runner: Some(pre_runner), ..settings(dir.path()) }).unwrap();
    let (alive, beats) = (dir.path().join("state/alive"), dir.path().join("state/beats"));
    std::fs::write(&alive, "").unwrap();
    assert_eq!(host.execute(Task::Boot).await, TaskOutcome::Booted(Ok(())));
    let beats = || std::fs::metadata(&beats).map_or(0, |file| file.len());
    let beats_on = async || {
        let (before, until) = (beats(), tokio::time::Instant::now() + Duration::from_secs(600));
        while beats() == before {
            assert!(tokio::time::Instant::now() < until, "the daemon is gone");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let claim = ClaimId::parse("i-orphans.1").unwrap();
    let runner = dir.path().join("work/claims/i-orphans.1/runner");
    std::fs::create_dir_all(&runner).unwrap();
    std::fs::write(runner.join("run.sh"), "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(runner.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let start = Task::Start { claim: claim.clone(), holder: Holder::default(), single_use: None };
    let TaskOutcome::Started(runner) = host.execute(start).await else { panic!("run.sh was not started") };
    beats_on().await;
    let since = Some(runner.started);
    let stop = Task::Stop { claim: claim.clone(), runner: Some(runner), since };
    assert_eq!(host.execute(stop).await, TaskOutcome::Stopped { registered: false });
    let wipe = Task::Wipe { claim, since, wipe: Wipe::Whole };
    assert_eq!(host.execute(wipe).await, TaskOutcome::Wiped);
    beats_on().await;
    std::fs::remove_file(alive).unwrap();
}
