//! What is a fault, how is it seen that it did its harm, and what does `debug` say then?

use std::time::Duration;

use runyard_core::model::{Agent, Condition, ConditionType, Instance, Launch, Life, Phase, Place, Request};
use runyard_store::DynamoStore;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::e2e::history::{self, Snapshot};
use crate::e2e::program::{Environment, verb};
use crate::e2e::waiting::until;

/// The repository of all runs.
pub(crate) const REPOSITORY: &str = "acme/web";
/// Between two questions.
const AGAIN: Duration = Duration::from_millis(500);
/// How long `debug` is asked again: an interval of the operator, and patience with a busy machine.
const NAMED: Duration = Duration::from_secs(180);

/// Where a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    FirstBoot,
    Registration,
    Network,
    Rights,
    CleanUp,
    Capacity,
    Runner,
}

impl Part {
    pub(crate) const ALL: [Self; 7] = [
        Self::FirstBoot,
        Self::Registration,
        Self::Network,
        Self::Rights,
        Self::CleanUp,
        Self::Capacity,
        Self::Runner,
    ];
}

/// By what it is seen that a fault did its harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// A machine of the class ended badly.
    Machine,
    /// The request failed.
    Request,
    /// A launch of the class came to nothing, or brought less than was asked for.
    Launch,
    /// The request waits, and its record says why.
    Waits,
    /// A machine of the class says what keeps its runner from listening.
    Troubled,
    /// The request lost what it was promised.
    Degraded,
    /// A machine of the class is there for a request, and the operator is to get it a credential of GitHub's.
    Bound,
}

/// A fault, and the name of the cause that `debug` is to find.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) part: Part,
    pub(crate) what: &'static str,
    pub(crate) cause: &'static str,
    pub(crate) harm: Harm,
}

/// Which faults were named.
#[derive(Default)]
pub(crate) struct Named {
    pub(crate) lines: Vec<String>,
    pub(crate) missed: Vec<String>,
}

impl Named {
    /// Waits until a fault did its harm to a run's request for a class, then asks `debug` for the cause.
    pub(crate) async fn ask(
        &mut self,
        (environment, store): (&Environment, &DynamoStore),
        fault: &Fault,
        (class, run): (&str, u64),
    ) {
        until(&format!("the harm of {fault:?}"), async || {
            let seen = history::snapshot(store).await?;
            done(&seen, fault.harm, class, run).then_some(())
        })
        .await;
        let (begun, mut said) = (Instant::now(), Value::Null);
        while begun.elapsed() < NAMED {
            // A request that got another machine suffers no more: nothing is wrong with it, and the machine is asked about.
            let seen = history::snapshot(store).await;
            let ended = seen.as_ref().and_then(|seen| recovered(seen, fault.harm, class, run));
            said = debug(environment, run, ended.as_deref()).await;
            if said["causes"][0]["cause"] == fault.cause {
                let after = begun.elapsed().as_millis();
                self.lines
                    .push(format!("{:?}: {}: {} after {after} ms", fault.part, fault.what, fault.cause));
                return;
            }
            sleep(AGAIN).await;
        }
        self.missed.push(format!("{fault:?}: {:#}\n{:#}", said["causes"], said["said"]));
    }

    /// All must be named: what was not is told with what was said about it.
    pub(crate) fn judge(self, wanted: usize) {
        println!("named {} of {wanted}\n{}", self.lines.len(), self.lines.join("\n"));
        assert!(
            self.missed.is_empty(),
            "{} of {wanted} missed:\n{}",
            self.missed.len(),
            self.missed.join("\n")
        );
        assert_eq!(self.lines.len(), wanted);
    }
}

/// The machine that ended badly, where its request is ready again.
fn recovered(seen: &Snapshot, harm: Harm, class: &str, run: u64) -> Option<String> {
    let run = run.to_string();
    let requests = seen.all::<Request>();
    let request = requests.iter().find(|request| request.id.run_id.as_str() == run)?;
    let ready = harm == Harm::Machine && request.phase() == Phase::Ready;
    let bad = machines(seen, class).filter(|machine| ready && failed(&machine.life)).last();
    bad.map(|machine| machine.facts.instance_id.to_string())
}

/// What `debug` says about a run's request, or about a machine.
async fn debug(environment: &Environment, run: u64, machine: Option<&str>) -> Value {
    let run = run.to_string();
    let what = machine.map_or(["request", &run], |id| ["instance", id]);
    let asked = ["debug", what[0], what[1], "--repository", REPOSITORY, "-o", "json"];
    let ended = verb(environment, &asked).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.json()
}

/// Whether the harm is done.
fn done(seen: &Snapshot, harm: Harm, class: &str, run: u64) -> bool {
    let run = run.to_string();
    let requests = seen.all::<Request>();
    let mut requests = requests.iter().filter(|request| request.id.run_id.as_str() == run);
    match harm {
        Harm::Machine => machines(seen, class).any(|machine| failed(&machine.life)),
        Harm::Request => requests.any(|request| request.phase() == Phase::Failed),
        Harm::Launch => seen
            .all::<Launch>()
            .iter()
            .any(|launch| launch.resource_class.as_str() == class && !launch.message.is_empty()),
        Harm::Degraded => requests.any(|request| {
            let lost = |one: &Condition| one.condition_type == ConditionType::Degraded && one.status;
            request.status.conditions.iter().any(lost)
        }),
        Harm::Troubled => {
            let troubled = |agent: &Agent| agent.runner_trouble.is_some();
            let told: Vec<_> = seen.all::<Agent>().into_iter().filter(troubled).collect();
            machines(seen, class).any(|machine| {
                told.iter().any(|agent| agent.arn.as_ref() == Some(&machine.facts.instance_arn))
            })
        }
        Harm::Bound => machines(seen, class)
            .any(|machine| matches!(machine.place(), Place::CreatedBound | Place::Claimed)),
        Harm::Waits => {
            requests.any(|request| request.phase() == Phase::Pending && request.status.accepted_at.is_some())
        }
    }
}

fn machines(seen: &Snapshot, class: &str) -> impl Iterator<Item = Instance> {
    seen.all::<Instance>().into_iter().filter(move |machine| machine.facts.resource_class.as_str() == class)
}

fn failed(life: &Life) -> bool {
    matches!(life, Life::Terminated { reason, .. } if reason.is_failure())
}

/// Asks for one machine of a class.
pub(crate) async fn asks(environment: &Environment, class: &str, run: u64) {
    let run = run.to_string();
    let asked = ["provision", "--run-id", &run, "--repository", REPOSITORY, "--class", class, "--count", "1"];
    let ended = verb(environment, &[&asked[..], &["--timeout", "30m"]].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
