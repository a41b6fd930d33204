//! Two agents for the machines of a yard: the one of this program, and one written from the first form of the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runyard_agent::agent::{Parts, Timing, run};
use runyard_agent::records::TableRecords;
use runyard_agent::reports::logs::Ring;
use runyard_agent::shutdown::guard::Lengths;
use runyard_agent::shutdown::power::Exit;
use runyard_agent::task::{Executor, RunnerProcess, Task, TaskOutcome};
use runyard_core::model::{Agent, AgentKey, AttributeValue, Guard, Instance, Write};
use runyard_core::ports::github::Scope;
use runyard_core::ports::{Clock as _, Machine, Store as _};
use runyard_fakes::{FakeGitHub, SeededEntropy, as_shipped};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::table::Table;
use runyard_tests::agents::Habit;
use runyard_tests::world::{World, item};

/// Calls `live` for each machine that comes up.
fn for_each(world: &World, live: impl Fn(Machine) + Send + 'static) {
    world.agents.all(Habit::NeverBoots);
    let (compute, mut known) = (world.compute.clone(), BTreeSet::new());
    tokio::spawn(async move {
        loop {
            for machine in compute.machines() {
                if machine.state.alive() && known.insert(machine.id.clone()) {
                    live(machine);
                }
            }
            sleep(Duration::from_millis(500)).await;
        }
    });
}

fn web() -> Scope {
    Scope::Repository { owner: "acme".into(), name: "web".into() }
}

/// Gives each machine the agent of this program, on the table as `table` has it. Their states are kept in `place`.
pub(crate) fn of_this_program(world: &World, table: &Table, place: &Path) {
    let (table, clock, github) = (Arc::new(table.clone()), world.clock, world.github.clone());
    let place = place.to_owned();
    for_each(world, move |machine| {
        let state_dir = place.join(machine.id.as_str());
        std::fs::create_dir_all(&state_dir).unwrap();
        let timing = as_shipped();
        let guard = Lengths { created: timing.created, grace: timing.grace };
        let parts = Parts {
            records: Arc::new(TableRecords::new(table.clone(), machine.arn.clone())),
            executor: Arc::new(Hands { github: github.clone(), runner: Mutex::default() }),
            clock: Arc::new(clock),
            entropy: Arc::new(SeededEntropy::new(3)),
            power: Arc::new(Exit),
            timing: Timing {
                heartbeat: timing.heartbeat,
                heartbeat_free: timing.heartbeat_free(),
                poll: timing.agent_poll,
                reregister: Duration::from_secs(2),
                guard,
            },
            state_dir,
            boot_id: "boot".into(),
            ring: Ring::default(),
        };
        tokio::spawn(run(parts, CancellationToken::new()));
    });
}

/// Does everything at once; what waits for a job waits for ever.
struct Hands {
    github: FakeGitHub,
    /// The runner's name and number.
    runner: Mutex<Option<(String, u64)>>,
}

#[async_trait]
impl Executor for Hands {
    async fn execute(&self, task: Task) -> TaskOutcome {
        match task {
            Task::Boot => TaskOutcome::Booted(Ok(())),
            Task::Configure { registration, .. } => {
                let number =
                    self.github.register(&web(), &registration.runner_name, registration.labels.clone());
                *self.runner.lock().unwrap() = Some((registration.runner_name.clone(), number));
                TaskOutcome::Configured
            }
            Task::Start { .. } => TaskOutcome::Started(RunnerProcess { pid: 7, started: 70 }),
            Task::Listen { .. } => TaskOutcome::Listening,
            Task::Lend { .. } => TaskOutcome::Lent,
            Task::Renew { .. } => TaskOutcome::Renewed,
            Task::Stop { .. } => TaskOutcome::Stopped { registered: self.runner.lock().unwrap().is_some() },
            Task::Deregister { .. } => {
                if let Some((name, _)) = self.runner.lock().unwrap().take() {
                    self.github.deregister(&web(), &name);
                }
                TaskOutcome::Deregistered
            }
            Task::Wipe { .. } => TaskOutcome::Wiped,
            Task::Settle { .. } => TaskOutcome::Settled,
            Task::Admit { .. } => TaskOutcome::Admitted,
            Task::Freeze { .. } => TaskOutcome::Frozen { busy: true },
            Task::Idle | Task::Serve { .. } | Task::Rest { .. } | Task::Frozen { .. } => {
                std::future::pending().await
            }
        }
    }

    fn runner_id(&self) -> Option<u64> {
        self.runner.lock().unwrap().as_ref().map(|(_, number)| *number)
    }

    async fn kill_everything(&self) {}
}

/// Gives each machine an agent that knows the first form of the contract and nothing of this program.
pub(crate) fn of_the_first_form(world: &World) {
    let (store, github, clock) = (world.store.clone(), world.github.clone(), world.clock);
    for_each(world, move |machine| {
        let (store, github) = (store.clone(), github.clone());
        tokio::spawn(async move {
            let key = AgentKey::generate(&mut crypto_box::aead::OsRng);
            let (mut registered, mut says) = (None::<(String, String)>, json!({}));
            loop {
                sleep(Duration::from_secs(1)).await;
                let Some(record) = store.get(&Instance::key_of(&machine.arn)).await.unwrap() else {
                    continue;
                };
                let text = |name: &str| match record.get(name) {
                    Some(AttributeValue::S(text)) => text.clone(),
                    _ => String::new(),
                };
                let (state, run, claim) = (text("state"), text("runId"), text("claimId"));
                if state == "terminated" {
                    return;
                }
                let opened = |name: &str| -> Option<Value> {
                    key.open(&text(name)).ok().filter(|sealed: &Value| sealed["claimId"] == claim.as_str())
                };
                let of_claim = registered.as_ref().is_some_and(|(of, _)| *of == claim);
                let signal = match (run.is_empty(), claim.is_empty(), of_claim) {
                    (_, true, _) => Some("UD_OK"),
                    (false, false, true) => Some("UD_REG_OK"),
                    (true, false, false) => Some("UD_REMOVE_REG_OK"),
                    (false, false, false) => opened("registration").map(|sealed| {
                        let label = sealed["labels"][0].as_str().expect("a label").to_owned();
                        let name = sealed["runnerName"].as_str().expect("a name").to_owned();
                        github.register(&web(), &name, vec![label]);
                        registered = Some((claim.clone(), name));
                        "UD_REG_OK"
                    }),
                    (true, false, true) => opened("removal").map(|_| {
                        github.deregister(&web(), &registered.take().expect("a runner").1);
                        "UD_REMOVE_REG_OK"
                    }),
                };
                let now = clock.now().to_string();
                if let Some(signal) = signal {
                    says = json!({"signal": signal, "signalClaimId": claim, "signalRunId": run, "signalAt": now});
                }
                let mut set = item(&says);
                set.extend(item(&json!({"heartbeatAt": now, "updatedAt": now, "agentVersion": "0.0.1"})));
                set.extend(item(&json!({"publicKey": key.public()})));
                let beat = BTreeMap::from([("heartbeatSeq".to_owned(), 1)]);
                let write = Write::update(Agent::key_of(&machine.arn), Guard::Exists, set, beat);
                store.write(&write).await.unwrap();
            }
        });
    });
}
