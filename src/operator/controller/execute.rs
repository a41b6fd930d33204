//! Executes planned actions: one match, one port call per action, each conditional on what was read, each free to fail
//! alone. The results come back as observations; the next decision is the retry.

use std::sync::Arc;

use crate::decide::{Effect, Note, Planned, PlannedEvent, RunnerConfig, Step};
use crate::metrics::QueueOutcome;
use crate::model::{
    Agent, Event, EventType, Guard, Instance, InstanceArn, InstanceId, PinnedImage, Pool, Record, RecordId,
    Request, RequestKey, Versioned, Write, last_console_line,
};
use crate::ports::StoreError;
use crate::yard::{Observation, Written};

use super::Ports;
use crate::controller::github::credential_issuer::{CredentialError, CredentialIssuer, UnknownGroup};
use crate::controller::github::run_check::RunProblem;

mod archive;
mod failure;
mod launches;
mod queue;
mod runner;

pub(super) use failure::Failure;
pub(super) use launches::Unsettled;
pub(super) use queue::Receipts;
use runner::{ahead, answers, learned, waits_for_github};

/// The result of an action.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) seen: Vec<Observation>,
    pub(super) events: Vec<Event>,
    pub(super) failure: Option<Failure>,
}

/// Executes actions.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) ports: Ports,
    pub(super) issuer: Option<Arc<CredentialIssuer>>,
    /// Whether GitHub must confirm that a runner is gone before its machine goes to the pool.
    pub(super) verify_removed: bool,
    pub(super) receipts: Receipts,
    pub(super) unsettled: Unsettled,
}

/// Returns the outcome of a failed registration ahead of a claim, or of a failed label.
fn ahead_failed(error: CredentialError, keys: &[RecordId]) -> Outcome {
    let seen = ahead(&error, keys);
    Outcome { seen, failure: Some(Failure::Credential(error)), ..Outcome::default() }
}

/// The message of agents about a runner version that GitHub no longer accepts.
const DEPRECATED: &str = "takes no runner of this version";

impl Executor {
    /// Executes one action. It returns no error: a failure is part of the outcome.
    ///
    /// # Guarantees
    /// - Each write is conditional on the state that was read when it was planned; nothing is retried here.
    /// - The outcome contains the present state: the record as written, the conflicting record, or a strong read if it
    ///   is unknown whether the write was applied.
    /// - The events are the plan's, and only if the action was executed; or one that reports to a workflow a problem
    ///   that a person must fix.
    ///
    /// # Assumes
    /// The action holds its slots, so that no other action of this operator writes the same records.
    pub(super) async fn execute(&self, planned: Planned) -> Outcome {
        let mut events: Vec<Event> = planned.events.iter().map(|event| self.event(event)).collect();
        let keys: Vec<RecordId> = planned.records().cloned().collect();
        let begun = self.ports.clock.elapsed();
        let credential = matches!(planned.effect, Effect::Credential(..));
        let waits = waits_for_github(&planned.effect);
        let result = self.call(planned.effect, &mut events).await;
        match result {
            Ok(seen) => Outcome { seen, events, failure: None },
            Err(Failure::Store(StoreError::Refused { refusals })) => {
                let keys = refusals.iter().map(|refusal| refusal.key.clone()).collect();
                let mut seen = Vec::new();
                for refusal in refusals {
                    // `None` may also mean that the item was not returned, so it is read.
                    match refusal.current {
                        Some(item) => seen.push(Observation::Looked(begun, refusal.key, Some(item))),
                        None => seen.extend(self.look(refusal.key).await.ok()),
                    }
                }
                Outcome { seen, failure: Some(Failure::Lost(keys)), ..Outcome::default() }
            }
            Err(Failure::Store(StoreError::Unknown(why))) => {
                // It may have been applied, so the records are read.
                let mut seen = Vec::new();
                for key in keys {
                    seen.extend(self.look(key).await.ok());
                }
                Outcome {
                    seen,
                    failure: Some(Failure::Store(StoreError::Unknown(why))),
                    ..Outcome::default()
                }
            }
            Err(Failure::Credential(CredentialError::GitHub(error))) => {
                let seen = learned(&error, &keys, waits);
                let failure = Failure::Credential(CredentialError::GitHub(error));
                let events = self.refused(&keys, &failure).filter(|_| credential).into_iter().collect();
                Outcome { seen, events, failure: Some(failure) }
            }
            Err(Failure::Credential(CredentialError::Group { request, problem })) => {
                let events = vec![self.no_group(&request, &problem)];
                let failure = Some(Failure::Credential(CredentialError::Group { request, problem }));
                Outcome { events, failure, ..Outcome::default() }
            }
            Err(Failure::Credential(CredentialError::Run { request, problem })) => {
                let refused = match &problem {
                    RunProblem::Refused(why) => {
                        Some(Observation::RunRefused((*request).clone(), why.clone()))
                    }
                    RunProblem::Doubtful(_) | RunProblem::GitHub(_) => None,
                };
                // GitHub is reachable, whatever it responds about the run.
                let seen = answers(&keys).into_iter().chain(refused).collect();
                let failure = Some(Failure::Credential(CredentialError::Run { request, problem }));
                Outcome { seen, failure, ..Outcome::default() }
            }
            Err(Failure::Credential(error)) => ahead_failed(error, &keys),
            Err(failure) => Outcome { failure: Some(failure), ..Outcome::default() },
        }
    }

    /// Reports to the waiting workflow why its machines cannot register.
    fn no_group(&self, request: &RequestKey, problem: &UnknownGroup) -> Event {
        let (id, now) = (self.ports.entropy.hex(), self.ports.clock.now());
        let mut event = Event::new(&Request::key_of(request), id, now, "operator");
        event.event_type = EventType::Warning;
        event.reason = "UnknownRunnerGroup".into();
        event.message = format!("{request}: {problem}");
        event
    }

    /// Creates an event at the machine about a refusal of GitHub that a person must fix; it remains after the machine
    /// has ended.
    fn refused(&self, keys: &[RecordId], failure: &Failure) -> Option<Event> {
        let subject = keys.iter().find(|key| key.instance().is_some()).filter(|_| failure.refuses())?;
        let note = Note::warning("GitHubRefuses", format!("{failure}; {}", failure.fix()));
        Some(self.event(&PlannedEvent { subject: subject.clone(), note, from: None, to: None }))
    }

    fn event(&self, planned: &PlannedEvent) -> Event {
        if let (true, Some(issuer)) = (planned.note.message.contains(DEPRECATED), &self.issuer) {
            issuer.doubted.notify_one();
        }
        let (id, now) = (self.ports.entropy.hex(), self.ports.clock.now());
        let mut event = Event::new(&planned.subject, id, now, "operator");
        event.event_type = planned.note.event_type;
        event.reason = planned.note.reason.into();
        event.message.clone_from(&planned.note.message);
        event.from = planned.from.map(ToOwned::to_owned);
        event.to = planned.to.map(ToOwned::to_owned);
        event
    }

    /// Carries out an effect and adds the events that depend on its result.
    #[expect(clippy::too_many_lines, reason = "a table: one arm for each effect")]
    async fn call(&self, effect: Effect, events: &mut Vec<Event>) -> Result<Vec<Observation>, Failure> {
        match effect {
            Effect::Instance(step, github) => self.instance(*step, github).await,
            Effect::Silence(step, seq) => {
                let agent = Agent::key_of(&step.before.facts.instance_arn);
                let writes = [step.after.replacing(&step.before), Write::check(agent, Guard::Beat(seq))];
                self.transact(&writes, vec![seen(Written::Instance(step.after.clone()))]).await
            }
            Effect::Disown(step, request) => {
                let check = Write::check(request.key(), Guard::image(request.as_ref()));
                let writes = [step.after.replacing(&step.before), check];
                self.transact(&writes, vec![seen(Written::Instance(step.after.clone()))]).await
            }
            Effect::Request(step) => self.replace(&step).await,
            Effect::Launch(step) => self.replace(&step).await,
            Effect::Pool(step) => {
                let class = step.before.spec.resource_class.clone();
                let mut seen = self.replace(&step).await?;
                seen.push(Observation::Reported(class));
                Ok(seen)
            }
            Effect::Resolve(pool) => self.resolve(*pool, events).await,
            Effect::Claim { request, machines, runner } => {
                self.claim(*request, machines, runner.as_deref()).await
            }
            Effect::Intend(launch, token) => self.intend(*launch, token).await,
            Effect::Order(order) => {
                let answer = self.ports.compute.launch(&order).await;
                Ok(vec![Observation::Ordered(order.launch.launch_id.clone(), answer)])
            }
            Effect::Bind { launch, request, machines } => self.bind(*launch, request, machines).await,
            Effect::Orphan(instance) => {
                let item = self.ports.store.write(&instance.creating()).await.map_err(Failure::Store)?;
                Ok(vec![Observation::Record(instance.key(), Some(item))])
            }
            Effect::Terminate(arn) => {
                let id = id_of(&arn);
                self.ports.compute.terminate(&[id]).await?;
                Ok(vec![Observation::Ended(arn)])
            }
            Effect::Describe(arn) => {
                let id = id_of(&arn);
                let states = self.ports.compute.describe(std::slice::from_ref(&id)).await?;
                let why = self.ports.compute.why_ended(&id);
                let why = why.map(|reason| Observation::WhyEnded(arn.clone(), reason));
                Ok(why.into_iter().chain([Observation::Stands(arn, states.get(&id).copied())]).collect())
            }
            Effect::Console(arn) => {
                let line = match self.ports.compute.console(&id_of(&arn)).await {
                    Ok(console) => console.as_deref().and_then(last_console_line),
                    // Consoles are only for people, and are read again.
                    Err(error) => {
                        tracing::warn!(%arn, %error, "the console of an ended machine cannot be read");
                        None
                    }
                };
                Ok(vec![Observation::Console(arn, line)])
            }
            Effect::Bury(step) => {
                let agent = Agent::key_of(&step.before.facts.instance_arn);
                let gone = Observation::Record(agent.clone(), None);
                let writes = [step.after.replacing(&step.before), Write::delete(agent, Guard::Anything)];
                self.transact(&writes, vec![seen(Written::Instance(step.after.clone())), gone]).await
            }
            Effect::Announce(arn, message) => {
                match self.announce(&message).await {
                    Ok(()) => self.ports.metrics.queue_message(QueueOutcome::Announced),
                    // A lost hint costs only time; the next announcement repeats it.
                    Err(error) => tracing::warn!(%arn, %error, "a free machine could not be announced"),
                }
                Ok(vec![Observation::Announced(arn)])
            }
            Effect::Receive(class, most) => Ok(self.receive(class, most).await),
            Effect::Credential(step, credential) => self.credential(*step, &credential).await,
            Effect::SweepRunner(arn, stale) => self.sweep(arn, stale.as_ref()).await,
            Effect::Look(key) => Ok(vec![self.look(key).await.map_err(Failure::Store)?]),
            Effect::Expire(key, expires_at) => {
                if let Some(arn) = key.instance() {
                    self.purge(&Agent::key_of(arn)).await?;
                }
                let write = Write::delete(key.clone(), Guard::ExpiresAt(expires_at));
                self.ports.store.write(&write).await.map_err(Failure::Store)?;
                Ok(vec![Observation::Record(key, None)])
            }
            Effect::Archive(id) => self.archive(&id).await,
            Effect::Recall(id) => Ok(self.recall(id).await),
        }
    }

    /// Pins the image to which a class's parameter points now.
    async fn resolve(&self, pool: Pool, events: &mut Vec<Event>) -> Result<Vec<Observation>, Failure> {
        let Some(parameter) = pool.spec.launch.parameter().map(str::to_owned) else { return Ok(Vec::new()) };
        let ami = self.ports.compute.resolve(&pool.spec).await?;
        let resolved_at = self.ports.clock.now();
        let image = PinnedImage { parameter, ami, resolved_at };
        let step = Step::of(&pool, resolved_at, |next| next.status.image = Some(image.clone()));
        let seen = self.replace(&step).await?;
        let former = pool.pinned().map(|pinned| pinned.ami.as_str());
        if former != Some(image.ami.as_str()) {
            let message = format!(
                "{} is {} now{}",
                image.parameter,
                image.ami,
                former.map(|former| format!("; it was {former}")).unwrap_or_default(),
            );
            let note = Note::normal("ImageChanged", message);
            events.push(self.event(&PlannedEvent { subject: pool.key(), note, from: None, to: None }));
        }
        Ok(seen)
    }

    /// Reads a record strongly.
    async fn look(&self, key: RecordId) -> Result<Observation, StoreError> {
        let begun = self.ports.clock.elapsed();
        let item = self.ports.store.get(&key).await?;
        Ok(Observation::Looked(begun, key, item))
    }

    async fn replace<T: Versioned>(&self, step: &Step<T>) -> Result<Vec<Observation>, Failure> {
        let item =
            self.ports.store.write(&step.after.replacing(&step.before)).await.map_err(Failure::Store)?;
        Ok(vec![Observation::Record(step.after.key(), Some(item))])
    }

    /// Deletes all rows under a machine's own partition key: its role may have written more than its record there.
    async fn purge(&self, agent: &RecordId) -> Result<(), Failure> {
        let (pk, mut after) = (agent.pk(), None);
        loop {
            let page = self.ports.store.query(&pk, "", after.as_ref()).await.map_err(Failure::Store)?;
            for key in page.items.iter().filter_map(RecordId::of) {
                let write = Write::delete(key, Guard::Anything);
                self.ports.store.write(&write).await.map_err(Failure::Store)?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn transact(&self, writes: &[Write], seen: Vec<Observation>) -> Result<Vec<Observation>, Failure> {
        self.ports.store.transact(writes).await.map_err(Failure::Store)?;
        Ok(seen)
    }

    async fn claim(
        &self,
        request: Step<Request>,
        mut machines: Vec<Step<Instance>>,
        runner: Option<&RunnerConfig>,
    ) -> Result<Vec<Observation>, Failure> {
        if let Some(runner) = runner {
            for step in &mut machines {
                self.issuer().attach_registration(&mut step.after, runner);
            }
        }
        let mut writes: Vec<Write> = machines.iter().map(|step| step.after.replacing(&step.before)).collect();
        writes.push(request.after.replacing(&request.before));
        let mut observed: Vec<Observation> =
            machines.iter().map(|step| seen(Written::Instance(step.after.clone()))).collect();
        observed.push(seen(Written::Request(request.after.clone())));
        let mut observed = self.transact(&writes, observed).await?;
        let class = machines.first().map(|step| step.before.facts.resource_class.clone());
        if let Some(class) = class {
            let arns: Vec<_> = machines.iter().map(|step| &step.before.facts.instance_arn).collect();
            observed.extend(self.claimed(&class, &arns).await);
        }
        Ok(observed)
    }
}

fn seen(record: Written) -> Observation {
    Observation::Written(Box::new(record))
}

fn id_of(arn: &InstanceArn) -> InstanceId {
    InstanceId::parse(arn.instance_id()).expect("the id of a machine that has a record ends its ARN")
}

#[cfg(test)]
pub(super) mod tests;
