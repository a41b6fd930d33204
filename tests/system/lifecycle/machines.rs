//! What runs on a machine that EC2 lists? One agent process each, from the moment it is listed until EC2 ends it; an
//! agent that switches its machine off has it ended, as EC2 does for machines that terminate on shutdown.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_ec2::Client;
use nix::sys::signal::Signal;
use runyard_core::model::InstanceId;
use runyard_standin::process;
use runyard_standin::process::MARKER;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::e2e::program::{Environment, agent};
use crate::lifecycle::cloud::{Listed, listed};

/// Between two looks at EC2.
const LOOK: Duration = Duration::from_millis(300);

/// What every agent is told.
pub(crate) struct Setup {
    pub(crate) table: String,
    pub(crate) dir: PathBuf,
    /// The classes whose machines come up without an agent.
    pub(crate) without_agent: Vec<String>,
    pub(crate) environment: Environment,
    /// Seconds from a machine's launch to the start of its agent; empty: at once.
    pub(crate) boots: Range<f64>,
    /// Durations of `[timing]`, by key.
    pub(crate) timing: Vec<(&'static str, &'static str)>,
    pub(crate) runner_url: String,
    pub(crate) runner_sha256: String,
}

/// The processes of every machine that was ever listed.
pub(crate) struct Machines {
    agents: Arc<Mutex<BTreeMap<String, Option<Child>>>>,
    keeping: JoinHandle<()>,
}

impl Machines {
    /// Begins to look at EC2.
    pub(crate) fn keep(ec2: Client, setup: Setup) -> Self {
        let agents: Arc<Mutex<BTreeMap<String, Option<Child>>>> = Arc::default();
        let shared = agents.clone();
        let keeping = tokio::spawn(async move {
            loop {
                // An engine that does not answer is asked again.
                for machine in listed(&ec2, &setup.table).await.unwrap_or_default() {
                    let off = settle(&machine, &setup, &mut shared.lock().unwrap());
                    if off {
                        let _ = ec2.terminate_instances().instance_ids(&machine.id).send().await;
                    }
                }
                sleep(LOOK).await;
            }
        });
        Self { agents, keeping }
    }

    /// How many agents were ever started.
    pub(crate) fn started(&self) -> usize {
        self.agents.lock().unwrap().len()
    }

    /// Every process that a machine still runs.
    pub(crate) fn processes(&self) -> Vec<String> {
        let agents = self.agents.lock().unwrap();
        let of = |id: &String| process::of_machine(&InstanceId::parse(id).expect("an id of EC2"));
        agents
            .keys()
            .flat_map(|id| of(id).into_iter().map(move |one| format!("{} of {id}", one.pid)))
            .collect()
    }
}

/// Starts or ends what a machine runs; whether it switched itself off.
fn settle(machine: &Listed, setup: &Setup, agents: &mut BTreeMap<String, Option<Child>>) -> bool {
    if machine.class.as_ref().is_some_and(|class| setup.without_agent.contains(class)) {
        return false;
    }
    match agents.get_mut(&machine.id) {
        None if machine.alive => {
            agents.insert(machine.id.clone(), Some(start(machine, setup)));
        }
        Some(running) if !machine.alive => {
            if let Some(mut child) = running.take() {
                end(&machine.id);
                child.wait().expect("a child can be waited for");
            }
        }
        Some(Some(child)) => return child.try_wait().expect("a child can be asked after").is_some(),
        Some(None) | None => {}
    }
    false
}

fn start(machine: &Listed, setup: &Setup) -> Child {
    let dir = setup.dir.join(&machine.id);
    for sub in ["state", "work"] {
        fs::create_dir_all(dir.join(sub)).expect("a directory");
    }
    let config = dir.join("agent.toml");
    fs::write(&config, configuration(machine, setup)).expect("a file");
    let log = File::create(dir.join("agent.log")).expect("a file");
    let boots = setup.boots.start + (setup.boots.end - setup.boots.start) * fastrand::f64();
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", r#"sleep "$0" && exec "$@""#]).arg(boots.to_string());
    command.arg(agent()).arg("--config").arg(&config).env_clear().envs(&setup.environment);
    command.env(MARKER, &machine.id).current_dir(&dir).stdin(Stdio::null());
    command.stdout(log.try_clone().expect("a file can be shared")).stderr(log);
    command.spawn().expect("the agent starts")
}

fn configuration(machine: &Listed, setup: &Setup) -> String {
    let Listed { id, owner, .. } = machine;
    let dir = setup.dir.join(id);
    let lines = [
        ("table", setup.table.clone()),
        ("instance_id", id.clone()),
        ("instance_arn", format!("arn:aws:ec2:us-east-1:{owner}:instance/{id}")),
        ("state_dir", dir.join("state").display().to_string()),
        ("work_dir", dir.join("work").display().to_string()),
        ("runner.url", setup.runner_url.clone()),
        ("runner.sha256", setup.runner_sha256.clone()),
        ("power.off", "exit".to_owned()),
    ];
    let timing = setup.timing.iter().map(|(key, value)| (format!("timing.{key}"), (*value).to_owned()));
    let lines = lines.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(timing);
    lines.map(|(key, value)| format!("{key} = {value:?}\n")).collect()
}

/// Kills whatever a machine runs, until nothing is left.
fn end(id: &str) {
    let machine = InstanceId::parse(id).expect("an id of EC2");
    loop {
        let living = process::of_machine(&machine);
        if living.is_empty() {
            return;
        }
        living.iter().for_each(|process| process.signal(Signal::SIGKILL));
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Machines {
    /// A test that fails leaves nothing running either.
    fn drop(&mut self) {
        self.keeping.abort();
        for (id, child) in self.agents.lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter_mut() {
            end(id);
            if let Some(child) = child {
                let _ = child.wait();
            }
        }
    }
}
