//! Carrying out what was planned: one match, one port call per action, each conditional on what was read, each free
//! to fail alone. What it learns comes back as observations; the next pass is the retry.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::decide::{AtGitHub, Credential, Effect, Planned, PlannedEvent, RunnerConfig, StaleRunners, Step};
use crate::metrics::QueueOutcome;
use crate::model::{
    Agent, ClassName, Event, EventType, Guard, Instance, InstanceArn, InstanceId, Launch, LaunchId, PoolMessage,
    Record, RecordId, Request, RequestKey, Uid, Versioned, Write,
};
use crate::ports::{ComputeError, GitHubError, QueueError, StoreError};
use crate::yard::{Observation, Written};

use super::credential_issuer::{CredentialError, CredentialIssuer, UnknownGroup};
use super::run_check::RunProblem;
use super::{Ports, lease};

/// Longest a class waits for its queue before it claims from the records alone.
const QUEUE_PATIENCE: Duration = Duration::from_millis(300);

/// Messages received and not dealt with, by class and machine.
pub(super) type Receipts = Arc<Mutex<BTreeMap<ClassName, Vec<(PoolMessage, String)>>>>;

/// Names of intents of which nobody knows whether they were written, by class.
pub(super) type Unsettled = Arc<Mutex<BTreeMap<ClassName, LaunchId>>>;

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The condition of a write did not hold; the observations say what there is now.
    #[error("the record is not as it was read: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Lost(Vec<RecordId>),
    /// The table.
    #[error(transparent)]
    Store(StoreError),
    /// The machines' maker.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// GitHub, or a machine's key.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

impl Failure {
    /// One word for the kind of failure: two with the same word have the same reason.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Lost(_) => "Refused",
            Self::Store(error) => error.label(),
            Self::Compute(_) => "Compute",
            Self::Credential(CredentialError::GitHub(_)) => "GitHub",
            Self::Credential(CredentialError::Group { .. }) => "RunnerGroup",
            Self::Credential(CredentialError::Key) => "PublicKey",
            Self::Credential(CredentialError::Run { .. }) => "Run",
        }
    }

    /// What a person can do about one that comes again and again.
    pub(super) const fn fix(&self) -> &'static str {
        match self {
            Self::Lost(_) => {
                "compare these records with each other and mend or delete the one that does not fit"
            }
            Self::Store(StoreError::Denied(_)) => {
                "give the operator the permissions of config/iam/operator.json"
            }
            Self::Store(StoreError::NoTable(_)) => "run `runyard init`",
            Self::Store(StoreError::Invalid(_)) => "look at the size and the attributes of the record",
            Self::Store(
                StoreError::Refused { .. }
                | StoreError::Contended
                | StoreError::Throttled
                | StoreError::Unknown(_),
            ) => "look at the table's metrics and the operator's network",
            Self::Compute(_) => "check the operator's permissions and quotas at EC2",
            Self::Credential(CredentialError::GitHub(_)) => "check the operator's access to GitHub",
            Self::Credential(CredentialError::Group { .. }) => "mend the runner group",
            Self::Credential(CredentialError::Run { .. }) => {
                "ask for machines from a workflow run of that repository"
            }
            Self::Credential(CredentialError::Key) => {
                "expire the machine: its agent shows no key that can be used"
            }
        }
    }
}

/// What came of an action.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) seen: Vec<Observation>,
    pub(super) events: Vec<Event>,
    pub(super) failure: Option<Failure>,
}

/// Carries out actions.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) ports: Ports,
    pub(super) issuer: Option<Arc<CredentialIssuer>>,
    /// Whether GitHub is asked if a runner is gone before its machine goes to the pool.
    pub(super) verify_removed: bool,
    pub(super) receipts: Receipts,
    pub(super) unsettled: Unsettled,
}

impl Executor {
    /// Carries out one action.
    pub(super) async fn execute(&self, planned: Planned) -> Outcome {
        let events = planned.events.iter().map(|event| self.event(event)).collect();
        let keys: Vec<RecordId> = planned.records().cloned().collect();
        let begun = self.ports.clock.elapsed();
        let result = self.call(planned.effect).await;
        match result {
            Ok(seen) => Outcome { seen, events, failure: None },
            Err(Failure::Store(StoreError::Refused { refusals })) => {
                let keys = refusals.iter().map(|refusal| refusal.key.clone()).collect();
                let mut seen = Vec::new();
                for refusal in refusals {
                    // None may also mean "not told": read it.
                    match refusal.current {
                        Some(item) => seen.push(Observation::Looked(begun, refusal.key, Some(item))),
                        None => seen.extend(self.look(refusal.key).await.ok()),
                    }
                }
                Outcome { seen, failure: Some(Failure::Lost(keys)), ..Outcome::default() }
            }
            Err(Failure::Store(StoreError::Unknown(why))) => {
                // It may have happened: what the records say decides.
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
            Err(Failure::Credential(CredentialError::GitHub(error))) => Outcome {
                seen: answered(&error).map(Observation::GitHub).into_iter().collect(),
                failure: Some(Failure::Credential(CredentialError::GitHub(error))),
                ..Outcome::default()
            },
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
                // Whatever it says of the run, GitHub answered.
                let seen = std::iter::once(Observation::GitHub(true)).chain(refused).collect();
                let failure = Some(Failure::Credential(CredentialError::Run { request, problem }));
                Outcome { seen, failure, ..Outcome::default() }
            }
            Err(failure) => Outcome { failure: Some(failure), ..Outcome::default() },
        }
    }

    /// Tells the workflow that waits why its machines cannot register.
    fn no_group(&self, request: &RequestKey, problem: &UnknownGroup) -> Event {
        let (id, now) = (self.ports.entropy.hex(), self.ports.clock.now());
        let mut event = Event::new(&Request::key_of(request), id, now, "operator");
        event.event_type = EventType::Warning;
        event.reason = "UnknownRunnerGroup".into();
        event.message = format!("{request}: {problem}");
        event
    }

    fn event(&self, planned: &PlannedEvent) -> Event {
        let (id, now) = (self.ports.entropy.hex(), self.ports.clock.now());
        let mut event = Event::new(&planned.subject, id, now, "operator");
        event.event_type = planned.note.event_type;
        event.reason = planned.note.reason.into();
        event.message.clone_from(&planned.note.message);
        event.from = planned.from.map(ToOwned::to_owned);
        event.to = planned.to.map(ToOwned::to_owned);
        event
    }

    async fn call(&self, effect: Effect) -> Result<Vec<Observation>, Failure> {
        match effect {
            Effect::Instance(step, github) => self.instance(*step, github).await,
            Effect::Silence(step, seq) => {
                let agent = Agent::key_of(&step.before.facts.instance_arn);
                let writes = [step.after.replacing(&step.before), Write::check(agent, Guard::Beat(seq))];
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
            Effect::Bury(step) => {
                let agent = Agent::key_of(&step.before.facts.instance_arn);
                let gone = Observation::Record(agent.clone(), None);
                let writes = [step.after.replacing(&step.before), Write::delete(agent, Guard::Anything)];
                self.transact(&writes, vec![seen(Written::Instance(step.after.clone())), gone]).await
            }
            Effect::Announce(arn, message) => {
                match self.announce(&message).await {
                    Ok(()) => self.ports.metrics.queue_message(QueueOutcome::Announced),
                    // A hint that was not given costs time only; it is given again with the next announcement.
                    Err(error) => tracing::warn!(%arn, %error, "a free machine could not be announced"),
                }
                Ok(vec![Observation::Announced(arn)])
            }
            Effect::Receive(class) => Ok(self.receive(class).await),
            Effect::Credential(step, credential) => self.credential(*step, &credential).await,
            Effect::SweepRunner(arn, stale) => self.sweep(arn, stale.as_ref()).await,
            Effect::Look(key) => Ok(vec![self.look(key).await.map_err(Failure::Store)?]),
            Effect::Expire(key, expires_at) => {
                let write = Write::delete(key.clone(), Guard::ExpiresAt(expires_at));
                self.ports.store.write(&write).await.map_err(Failure::Store)?;
                Ok(vec![Observation::Record(key, None)])
            }
        }
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

    async fn transact(&self, writes: &[Write], seen: Vec<Observation>) -> Result<Vec<Observation>, Failure> {
        self.ports.store.transact(writes).await.map_err(Failure::Store)?;
        Ok(seen)
    }

    /// Writes a machine's record, and does before what is to be done about its runner at GitHub.
    async fn instance(
        &self,
        mut step: Step<Instance>,
        github: AtGitHub,
    ) -> Result<Vec<Observation>, Failure> {
        let answered = match github {
            AtGitHub::Nothing => false,
            AtGitHub::AttachRemoval(repository) => {
                self.issuer().attach_removal(&mut step.after, &repository);
                false
            }
            AtGitHub::ConfirmRemoved(stale) if self.verify_removed => {
                self.issuer().remove(&stale).await.map_err(CredentialError::from)?;
                true
            }
            AtGitHub::ConfirmRemoved(_) => false,
        };
        let mut seen = self.replace(&step).await?;
        seen.extend(answered.then_some(Observation::GitHub(true)));
        Ok(seen)
    }

    /// Whoever asks GitHub for credentials.
    fn issuer(&self) -> &CredentialIssuer {
        self.issuer.as_ref().expect("credentials are planned only where there is a GitHub (`Policy::github`)")
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
        let observed = self.transact(&writes, observed).await?;
        let class = machines.first().map(|step| step.before.facts.resource_class.clone());
        if let Some(class) = class {
            let ids: Vec<_> = machines.iter().map(|step| step.before.facts.instance_id.clone()).collect();
            self.claimed(&class, &ids).await;
        }
        Ok(observed)
    }

    /// Removes the messages of claimed machines; a message that stays is known as stale when it comes again.
    async fn claimed(&self, class: &ClassName, ids: &[InstanceId]) {
        let spent = self.take_receipts(class, |message| ids.contains(&message.instance_id));
        spent.iter().for_each(|_| self.ports.metrics.queue_message(QueueOutcome::Claimed));
        if !spent.is_empty()
            && let Err(error) = self.ports.queue.delete(class, &spent).await
        {
            tracing::debug!(%class, %error, "messages of claimed machines were not removed");
        }
    }

    /// Takes the receipts of some messages of a class out of those not dealt with.
    pub(super) fn take_receipts(
        &self,
        class: &ClassName,
        which: impl Fn(&PoolMessage) -> bool,
    ) -> Vec<String> {
        let mut receipts = self.receipts.lock().expect("nobody panics while holding the receipts");
        let Some(held) = receipts.get_mut(class) else { return Vec::new() };
        let (taken, kept) = std::mem::take(held).into_iter().partition(|(message, _)| which(message));
        *held = kept;
        let taken: Vec<(PoolMessage, String)> = taken;
        taken.into_iter().map(|(_, receipt)| receipt).collect()
    }

    /// An intent that was not answered with success may stand in the table all the same: an error may be the answer to
    /// a repetition underneath, whose first attempt went through. Its name is used until what became of it is known, so
    /// that the next intent of the class meets it there instead of being written beside it, over `max`.
    async fn intend(&self, mut launch: Launch, token: u64) -> Result<Vec<Observation>, Failure> {
        let class = launch.resource_class.clone();
        let names = || self.unsettled.lock().expect("nobody panics while holding the names");
        let kept = names().get(&class).cloned();
        launch.launch_id = kept.unwrap_or_else(|| {
            let id = format!("l-{}", self.ports.entropy.hex());
            LaunchId::parse(&id).expect("hexadecimal digits make a launch id")
        });
        launch.client_token = Launch::token_of(&launch.launch_id, launch.attempt);
        launch.uid = Uid::parse(&self.ports.entropy.hex()).ok();
        let writes = [launch.creating(), Write::check(lease::fence(), Guard::Lease(token))];
        let written = self.transact(&writes, vec![seen(Written::Launch(launch.clone()))]).await;
        let known = match &written {
            Ok(_) => true,
            Err(Failure::Store(StoreError::Refused { refusals })) => {
                match refusals.iter().find(|refusal| refusal.key == launch.key()) {
                    Some(refusal) => refusal.current.is_some(),
                    // The lease alone was in the way: no intent of this name stands.
                    None => return written,
                }
            }
            Err(Failure::Lost(_) | Failure::Store(_) | Failure::Compute(_) | Failure::Credential(_)) => false,
        };
        if known {
            names().remove(&class);
            return written;
        }
        names().insert(class.clone(), launch.launch_id.clone());
        match self.look(launch.key()).await {
            Ok(found @ Observation::Looked(_, _, Some(_))) => {
                names().remove(&class);
                Ok(vec![found])
            }
            Ok(_) | Err(_) => written,
        }
    }

    async fn bind(
        &self,
        launch: Step<Launch>,
        request: Option<Box<Step<Request>>>,
        machines: Vec<(Instance, Agent)>,
    ) -> Result<Vec<Observation>, Failure> {
        let mut writes = vec![launch.after.replacing(&launch.before)];
        let mut observed = Vec::new();
        for (instance, agent) in &machines {
            writes.push(instance.creating());
            writes.push(Write::create(agent.key(), agent.to_item()));
            observed.push(seen(Written::Agent(agent.clone())));
            observed.push(seen(Written::Instance(instance.clone())));
        }
        if let Some(request) = &request {
            writes.push(request.after.replacing(&request.before));
            observed.push(seen(Written::Request(request.after.clone())));
        }
        observed.push(seen(Written::Launch(launch.after)));
        self.transact(&writes, observed).await
    }

    /// Announces a machine; a class whose queue is not there yet gets it.
    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        match self.ports.queue.announce(message).await {
            Err(QueueError::Missing) => {
                self.ports.queue.ensure(&message.resource_class).await?;
                self.ports.queue.announce(message).await
            }
            other => other,
        }
    }

    /// Who the queue says is free. A queue that does not answer in time is done without.
    async fn receive(&self, class: ClassName) -> Vec<Observation> {
        let received = tokio::time::timeout(QUEUE_PATIENCE, self.ports.queue.receive(&class, 10)).await;
        let messages = match received {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => {
                tracing::debug!(%class, %error, "the pool queue gave no answer");
                return vec![Observation::QueueDown(class)];
            }
            Err(_) => return vec![Observation::QueueDown(class)],
        };
        let mut hints = Vec::new();
        for message in messages {
            match message.body {
                Ok(body) => {
                    hints.push(body.instance_id.clone());
                    let mut receipts =
                        self.receipts.lock().expect("nobody panics while holding the receipts");
                    receipts.entry(class.clone()).or_default().push((body, message.receipt));
                }
                Err(raw) => {
                    self.ports.metrics.queue_message(QueueOutcome::Unreadable);
                    tracing::warn!(%class, "a message of the pool queue cannot be read, moving it to the dead letters");
                    if let Err(error) = self.ports.queue.bury(&class, &message.receipt, &raw).await {
                        tracing::warn!(%class, %error, "it could not be moved");
                    }
                }
            }
        }
        vec![Observation::Hints(class, hints)]
    }

    async fn credential(
        &self,
        mut step: Step<Instance>,
        credential: &Credential,
    ) -> Result<Vec<Observation>, Failure> {
        match credential {
            Credential::Registration(runner) => self.issuer().register(&mut step.after, runner).await?,
            Credential::Removal(repository) => self.issuer().deregister(&mut step.after, repository).await?,
        }
        let mut seen = self.replace(&step).await?;
        seen.push(Observation::GitHub(true));
        Ok(seen)
    }

    async fn sweep(&self, arn: InstanceArn, stale: Option<&StaleRunners>) -> Result<Vec<Observation>, Failure> {
        let Some(stale) = stale else { return Ok(vec![Observation::Swept(arn)]) };
        match self.issuer().remove(stale).await {
            // GitHub takes a while to see that the machine is gone: the next look at all runners is in time.
            Ok(()) | Err(GitHubError::Busy(_)) => {}
            Err(error) => return Err(CredentialError::from(error).into()),
        }
        Ok(vec![Observation::Swept(arn), Observation::GitHub(true)])
    }
}

fn seen(record: Written) -> Observation {
    Observation::Written(Box::new(record))
}

fn id_of(arn: &InstanceArn) -> InstanceId {
    InstanceId::parse(arn.instance_id()).expect("the id of a machine that has a record ends its ARN")
}

/// Whether GitHub answered; none when it was not asked, since our own budget says nothing of GitHub.
fn answered(error: &GitHubError) -> Option<bool> {
    match error {
        GitHubError::Deferred { .. } => None,
        GitHubError::Unreachable(_) | GitHubError::Throttled { .. } => Some(false),
        GitHubError::Denied(_)
        | GitHubError::NotFound(_)
        | GitHubError::NameTaken(_)
        | GitHubError::Busy(_)
        | GitHubError::Invalid(_) => Some(true),
    }
}

#[cfg(test)]
pub(super) mod tests;
