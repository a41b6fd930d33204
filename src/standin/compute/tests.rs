//! Tests with fake agents and real processes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use figment::Figment;
use figment::providers::{Format as _, Toml};
use runyard_fakes::as_shipped;
use tokio::runtime::Runtime;

use super::*;
use crate::model::{ClassName, InstanceTypes, Launch, LaunchId, LaunchPhase, PoolSpec, Timing, UsageClass};
use crate::process::{self, MARKER};

const IDLE: &str = "exec sleep 600";
const LIMIT: Duration = Duration::from_secs(600);

struct At(Timestamp);

impl Clock for At {
    fn now(&self) -> Timestamp {
        self.0
    }
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// A name that is unique across the test's processes, which share `/proc`.
struct Unique;

impl Entropy for Unique {
    fn hex(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        format!("{:08x}{:08x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }
    fn fill(&self, _: &mut [u8]) {
        unreachable!("machines need no keys")
    }
}

/// A directory with a fake agent; ends leftover processes of its machines.
struct TestDirectory {
    dir: tempfile::TempDir,
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        for machine in fs::read_dir(self.dir.path().join("machines")).into_iter().flatten().flatten() {
            if let Ok(id) = InstanceId::parse(&machine.file_name().to_string_lossy()) {
                process::of_machine(&id)
                    .iter()
                    .for_each(|left| left.signal(nix::sys::signal::Signal::SIGKILL));
            }
        }
    }
}

impl TestDirectory {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (program, text) = (dir.path().join("agent"), format!("#!/bin/sh\n{script}"));
        // Written by another process: children that other tests fork at this moment would have the file open for
        // writing until they execute another program, and the agent could not be executed meanwhile.
        let write = "printf '%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
        assert!(Command::new("sh").arg("-c").arg(write).arg(program).arg(text).status().unwrap().success());
        Self { dir }
    }

    fn options(&self) -> LocalOptions {
        LocalOptions {
            dir: self.dir.path().to_owned(),
            table: TableName::parse("yard").unwrap(),
            agent: AgentOptions {
                program: self.dir.path().join("agent"),
                endpoint: "http://127.0.0.1:1".into(),
                environment: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
                timing: Timing {
                    created: Duration::from_secs(60),
                    grace: Duration::from_secs(60),
                    heartbeat: Duration::from_secs(2),
                    agent_poll: Duration::from_millis(100),
                    ..as_shipped()
                },
                runner: RunnerPackage { url: "http://r/".into(), sha256: "00".into(), version: "2".into() },
                pre_runner_script: None,
                pre_runner_timeout: Duration::from_secs(60),
                stop: Duration::from_secs(60),
                spare: Vec::new(),
            },
            patience: Duration::from_millis(300),
        }
    }

    fn open(&self) -> LocalCompute {
        open(self.options())
    }

    fn machine(&self, id: &InstanceId) -> std::path::PathBuf {
        self.dir.path().join("machines").join(id.as_str())
    }

    fn pid(&self, id: &InstanceId) -> Process {
        crate::files::read_json(&self.machine(id).join("agent.pid")).unwrap().unwrap()
    }
}

fn open(options: LocalOptions) -> LocalCompute {
    LocalCompute::open(options, Arc::new(At("2026-01-01T00:00:00Z".parse().unwrap())), Arc::new(Unique))
        .unwrap()
}

fn order(token: &str, count: u32) -> LaunchOrder {
    let class = ClassName::parse("small").unwrap();
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    LaunchOrder {
        launch: Launch {
            launch_id: LaunchId::parse("l").unwrap(),
            attempt: 1,
            client_token: token.into(),
            resource_class: class,
            usage_class: UsageClass::OnDemand,
            count,
            request: None,
            launch_digest: None,
            phase: LaunchPhase::Intent,
            instances: Vec::new(),
            message: String::new(),
            created_at: at,
            expires_at: None,
            uid: None,
            version: 1,
            updated_at: at,
        },
        spec: spec(),
        types: InstanceTypes::default(),
        image: None,
    }
}

fn spec() -> PoolSpec {
    serde_json::from_str(r#"{"resourceClass":"small","cpu":2,"mmem":2048}"#).unwrap()
}

fn ids(launched: &Launched) -> Vec<InstanceId> {
    launched.machines.iter().map(|machine| machine.id.clone()).collect()
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let waited = tokio::time::timeout(LIMIT, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "in vain for {what}");
}

async fn state(compute: &LocalCompute, id: &InstanceId) -> Option<MachineState> {
    compute.describe(std::slice::from_ref(id)).await.unwrap().get(id).copied()
}

async fn until_ended(compute: &LocalCompute, id: &InstanceId) {
    until("its end", async || state(compute, id).await == Some(MachineState::Terminated)).await;
}

/// Simulates one life of the operator, cut short without a chance to tidy up.
fn life<T>(action: impl AsyncFnOnce() -> T) -> T {
    let runtime = Runtime::new().unwrap();
    let answer = runtime.block_on(action());
    runtime.shutdown_timeout(LIMIT);
    answer
}

#[tokio::test]
async fn a_token_brings_the_same_machines_however_often_it_is_used() {
    let dir = TestDirectory::new(IDLE);
    let compute = dir.open();
    let first = compute.launch(&order("t-1", 2)).await.unwrap();
    let again = compute.launch(&order("t-1", 2)).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(first.machines.len(), 2);
    let other = compute.launch(&order("t-2", 1)).await.unwrap();
    assert!(!ids(&first).contains(&other.machines[0].id));
    assert_eq!(compute.list().await.unwrap().len(), 3);
    for id in ids(&first) {
        assert_eq!(process::of_machine(&id).len(), 1, "one agent each");
    }
    compute.end_all().await;
}

#[tokio::test]
async fn a_token_used_for_something_else_is_spent() {
    let dir = TestDirectory::new(IDLE);
    let compute = dir.open();
    compute.launch(&order("t-1", 1)).await.unwrap();
    let refused = compute.launch(&order("t-1", 2)).await;
    assert!(matches!(refused, Err(ComputeError::TokenSpent(_))), "{refused:?}");
    assert_eq!(compute.list().await.unwrap().len(), 1);
    compute.end_all().await;
}

#[test]
fn what_was_written_down_but_never_started_is_started_by_its_token() {
    let dir = TestDirectory::new(IDLE);
    let planned = life(async || {
        let compute = dir.open();
        let facts = compute.shared.facts(&order("t-1", 2), 1);
        compute.shared.directory.plan(&facts).unwrap();
        facts.id
    });
    life(async || {
        let compute = dir.open();
        assert_eq!(state(&compute, &planned).await, Some(MachineState::Pending));
        let launched = compute.launch(&order("t-1", 2)).await.unwrap();
        assert_eq!(launched.machines.len(), 2);
        assert_eq!(ids(&launched)[1], planned);
        assert_eq!(state(&compute, &planned).await, Some(MachineState::Running));
        compute.end_all().await;
    });
}

#[test]
fn a_machine_survives_its_operator_and_is_adopted_by_the_next() {
    let dir = TestDirectory::new(IDLE);
    let launched = life(async || dir.open().launch(&order("t-1", 1)).await.unwrap());
    let id = ids(&launched)[0].clone();
    let agent = dir.pid(&id);
    assert!(agent.alive());
    life(async || {
        let compute = dir.open();
        assert_eq!(compute.launch(&order("t-1", 1)).await.unwrap(), launched);
        assert_eq!(dir.pid(&id), agent, "the same process");
        compute.terminate(std::slice::from_ref(&id)).await.unwrap();
        until_ended(&compute, &id).await;
        assert!(!agent.alive());
    });
}

#[test]
fn what_a_dead_agent_left_running_is_killed_by_the_next_operator() {
    let dir = TestDirectory::new("sleep 600 & exec sleep 600");
    let id = life(async || ids(&dir.open().launch(&order("t-1", 1)).await.unwrap())[0].clone());
    life(async || until("both processes", async || process::of_machine(&id).len() == 2).await);
    dir.pid(&id).signal(nix::sys::signal::Signal::SIGKILL);
    life(async || {
        until("the agent's death", async || !dir.pid(&id).alive()).await;
        assert_eq!(process::of_machine(&id).len(), 1, "its child lives on");
        let compute = dir.open();
        until_ended(&compute, &id).await;
        assert!(process::of_machine(&id).is_empty());
    });
}

#[test]
fn a_foreign_process_with_the_agents_pid_is_left_alone() {
    let dir = TestDirectory::new(IDLE);
    let id = life(async || {
        let compute = dir.open();
        let id = ids(&compute.launch(&order("t-1", 1)).await.unwrap())[0].clone();
        assert_eq!(process::sweep(&id, LIMIT).await, []);
        id
    });
    fs::remove_file(dir.machine(&id).join("ended.json")).unwrap_or_default();
    let mut foreign = Command::new("sleep").arg("600").env_remove(MARKER).spawn().unwrap();
    let real = Process::of(i32::try_from(foreign.id()).unwrap()).unwrap();
    for stale in [Process { start: real.start - 1, ..real.clone() }, real.clone()] {
        crate::files::replace_json(&dir.machine(&id).join("agent.pid"), &stale).unwrap();
        life(async || {
            let compute = dir.open();
            until_ended(&compute, &id).await;
        });
        fs::remove_file(dir.machine(&id).join("ended.json")).unwrap();
        assert!(real.alive(), "pid {} is not ours", real.pid);
    }
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}

#[tokio::test]
async fn terminating_asks_first_and_then_kills_whatever_carries_the_mark() {
    let dir = TestDirectory::new(
        "trap 'echo asked; exit' TERM\n(trap '' TERM; exec setsid sleep 600) &\necho up\nwhile :; do sleep 1; done",
    );
    // As long as it takes: the speed of a shell on a busy host is not tested here.
    let compute = open(LocalOptions { patience: LIMIT, ..dir.options() });
    let id = ids(&compute.launch(&order("t-1", 1)).await.unwrap())[0].clone();
    let log = || fs::read_to_string(dir.machine(&id).join("agent.log")).unwrap_or_default();
    until("the agent to be up", async || log().contains("up")).await;
    compute.terminate(std::slice::from_ref(&id)).await.unwrap();
    assert_ne!(state(&compute, &id).await, Some(MachineState::Running));
    compute.terminate(std::slice::from_ref(&id)).await.unwrap();
    until_ended(&compute, &id).await;
    assert!(process::of_machine(&id).is_empty());
    assert!(log().contains("asked"), "{}", log());
}

#[tokio::test]
async fn an_agent_that_does_not_go_when_asked_is_killed() {
    let dir = TestDirectory::new("trap '' TERM\necho up\nwhile :; do sleep 1; done");
    let compute = dir.open();
    let id = ids(&compute.launch(&order("t-1", 1)).await.unwrap())[0].clone();
    let log = || fs::read_to_string(dir.machine(&id).join("agent.log")).unwrap_or_default();
    until("the agent to be up", async || log().contains("up")).await;
    let agent = dir.pid(&id);
    compute.terminate(std::slice::from_ref(&id)).await.unwrap();
    until_ended(&compute, &id).await;
    assert!(!agent.alive() && process::of_machine(&id).is_empty());
}

#[tokio::test]
async fn an_agents_death_is_its_machines() {
    let dir = TestDirectory::new("touch work/trace\nsleep 600 & echo bye");
    let compute = dir.open();
    let id = ids(&compute.launch(&order("t-1", 1)).await.unwrap())[0].clone();
    until_ended(&compute, &id).await;
    assert!(process::of_machine(&id).is_empty());
    assert!(!dir.machine(&id).join("work").exists());
    assert_eq!(fs::read_to_string(dir.machine(&id).join("agent.log")).unwrap(), "bye\n");
}

#[tokio::test]
async fn a_missing_agent_is_named_and_the_same_token_works_once_it_is_there() {
    let dir = TestDirectory::new(IDLE);
    let program = dir.dir.path().join("agent");
    fs::rename(&program, dir.dir.path().join("away")).unwrap();
    let compute = dir.open();
    let refused = compute.launch(&order("t-1", 1)).await.unwrap_err();
    assert!(
        matches!(&refused, ComputeError::Refused(text) if text.contains(program.to_str().unwrap())),
        "{refused}"
    );
    fs::rename(dir.dir.path().join("away"), &program).unwrap();
    assert_eq!(compute.launch(&order("t-1", 1)).await.unwrap().machines.len(), 1);
    compute.end_all().await;
}

#[tokio::test]
async fn two_operators_on_one_directory_are_refused() {
    let dir = TestDirectory::new(IDLE);
    let _first = dir.open();
    let clock = Arc::new(At(Timestamp::UNIX_EPOCH));
    let Err(second) = LocalCompute::open(dir.options(), clock, Arc::new(Unique)) else { panic!("refused") };
    assert!(second.to_string().contains("another operator"), "{second}");
}

#[test]
fn an_agent_that_was_given_another_endpoint_is_ended() {
    let dir = TestDirectory::new(IDLE);
    let id = life(async || ids(&dir.open().launch(&order("t-1", 1)).await.unwrap())[0].clone());
    life(async || {
        let mut options = dir.options();
        options.agent.endpoint = "http://127.0.0.1:2".into();
        let compute = open(options);
        until_ended(&compute, &id).await;
        assert!(process::of_machine(&id).is_empty());
    });
}

#[tokio::test]
async fn the_agent_is_told_what_it_needs_and_nothing_of_our_environment() {
    let dir = TestDirectory::new("env > env.txt; exec sleep 600");
    let compute = dir.open();
    let mut order = order("t-1", 1);
    order.spec.launch.pre_runner_script = Some("echo \"hello\"".into());
    let id = ids(&compute.launch(&order).await.unwrap())[0].clone();
    let config = Figment::from(Toml::file(dir.machine(&id).join("agent.toml")));
    let value = |key: &str| config.extract_inner::<String>(key).unwrap();
    assert_eq!(value("instance_id"), id.as_str());
    assert_eq!(value("instance_arn"), format!("arn:aws:ec2:local:000000000000:instance/{id}"));
    assert_eq!(value("timing.poll"), "100ms");
    assert_eq!(value("power.off"), "exit");
    assert!(Path::new(&value("work_dir")).is_dir());
    let said = Command::new("sh").arg(value("pre_runner_script")).output().unwrap();
    assert_eq!(said.stdout, b"hello\n", "{said:?}");
    let environment = dir.machine(&id).join("env.txt");
    until("the environment", async || fs::read_to_string(&environment).is_ok_and(|e| e.contains("PATH=")))
        .await;
    let environment = fs::read_to_string(environment).unwrap();
    assert!(environment.contains(&format!("{MARKER}={id}")));
    assert!(!environment.contains("CARGO"), "{environment}");
    compute.end_all().await;
}
