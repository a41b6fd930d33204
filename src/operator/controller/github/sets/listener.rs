//! The listener of one scale set: it makes sure that the set is at GitHub, holds its only session, and takes in its
//! messages. It never ends by a failure: it tries again, with pauses that grow to a minute.

use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::decide::{Missed, SetClass, SetView};
use crate::model::{Pool, PoolSpec, RequestKey, SetRecord, SetState, Uid, slot_number};
use crate::ports::StoreError;
use crate::ports::github::Scope;
use crate::ports::scale_sets::{JobNews, Message, ScaleSet, ScaleSetError, Session, SetSpec, Statistics};

use super::{CLOSING, Known, SetKey, Shared};

/// The first and the longest pause after failures in a row, each within 20 %.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(48)];
/// The pause where another listener has the session: GitHub forgets one that was killed after about a minute.
const HELD: Duration = Duration::from_secs(10);
/// After how many failures in a row a session is given up for another one.
const FAILURES: u32 = 3;
/// The number of the default runner group.
const DEFAULT_GROUP: u64 = 1;

/// The reason why a listener begins anew.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sets(#[from] ScaleSetError),
    #[error("GitHub has no runner group {0:?} there; create it, or change the class's runnerGroup")]
    Group(String),
}

/// Why a listener stops listening without a failure.
enum Ended {
    /// It was told to stop, or the loop has ended.
    Stopped,
    /// The set was deleted.
    Gone,
    /// The class changed: the set is made anew at GitHub.
    Changed,
}

/// The listener of a set.
pub(super) struct Listener {
    pub(super) shared: Shared,
    pub(super) key: SetKey,
    /// The token of the lease, with which every write is fenced.
    pub(super) token: u64,
    /// The record as this listener last wrote or read it.
    pub(super) record: SetRecord,
    pub(super) trouble_since: Option<Timestamp>,
    missed: Missed,
    /// The slots that this listener made, as long as the loop may not have heard of them.
    made: Vec<RequestKey>,
    failures: u32,
}

impl Listener {
    pub(super) fn new(shared: Shared, key: SetKey, token: u64) -> Self {
        let uid = Uid::parse(&shared.entropy.hex()).expect("hexadecimal digits make a uid");
        let record = SetRecord::born(key.0.clone(), key.1.clone(), Vec::new(), uid);
        let (trouble_since, missed, made) = (None, Missed::default(), Vec::new());
        Self { shared, key, token, record, trouble_since, missed, made, failures: 0 }
    }

    /// Listens until told to stop, or until the set is gone; returns the set.
    pub(super) async fn run(mut self, stop: CancellationToken) -> SetKey {
        loop {
            let pause = match self.listen(&stop).await {
                Ok(Ended::Stopped | Ended::Gone) => return self.key,
                Ok(Ended::Changed) => Duration::ZERO,
                Err(problem) => self.failed(&problem).await,
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.key,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Notes a failure, and returns how long to wait after it.
    async fn failed(&mut self, problem: &Problem) -> Duration {
        tracing::warn!(class = %self.class(), place = %self.key.1, %problem, "a scale set is not listened to");
        self.failures = self.failures.saturating_add(1);
        if let Err(error) = self.trouble(&problem.to_string()).await {
            tracing::warn!(%error, "the record of a scale set was not written");
        }
        let [first, longest] = PAUSES;
        let pause = match problem {
            Problem::Sets(ScaleSetError::SessionHeld(_)) => HELD,
            Problem::Sets(ScaleSetError::Throttled { retry_after }) => *retry_after,
            Problem::Sets(_) | Problem::Store(_) | Problem::Group(_) => {
                first.saturating_mul(1 << self.failures.min(6).saturating_sub(1)).min(longest)
            }
        };
        self.jittered(pause)
    }

    /// Notes that GitHub's service works.
    const fn answered(&mut self) {
        (self.failures, self.trouble_since) = (0, None);
    }

    /// Returns a time within 20 % of this one.
    fn jittered(&self, pause: Duration) -> Duration {
        let mut byte = [0];
        self.shared.entropy.fill(&mut byte);
        pause.mul_f64(0.8 + 0.4 * f64::from(byte[0]) / 255.0)
    }

    fn scope(&self) -> Scope {
        Scope::of_slots(self.key.1.of_slots())
    }

    async fn listen(&mut self, stop: &CancellationToken) -> Result<Ended, Problem> {
        let Some(known) = self.shared.known().await else { return Ok(Ended::Stopped) };
        let class = self.class_of(&known).await?;
        let labels = class.spec().and_then(PoolSpec::serves_sets).map_or(&[][..], |queue| &queue.labels);
        self.record = self.read(labels).await?;
        if let Some(spec) = class.spec() {
            self.ensure(spec).await?;
        }
        let Some(id) = self.record.scale_set_id else {
            self.state(SetState::Gone).await?;
            return Ok(Ended::Gone);
        };
        let scope = self.scope();
        let opened = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(Ended::Stopped),
            opened = self.shared.sets.open(&scope, id, &self.shared.identity) => opened,
        };
        let mut session = match opened {
            Ok(session) => session,
            Err(error @ ScaleSetError::SessionHeld(_)) => {
                self.state(SetState::Waiting).await?;
                return Err(error.into());
            }
            // The set of a class that is gone was deleted by a person, or by another operator.
            Err(ScaleSetError::NotFound(_)) if matches!(class, SetClass::Dropped) => {
                self.state(SetState::Gone).await?;
                return Ok(Ended::Gone);
            }
            Err(error) => return Err(error.into()),
        };
        let ended = self.messages(&mut session, stop).await;
        let close = self.shared.sets.close(&session);
        if let Ok(Err(error)) = tokio::time::timeout(CLOSING, close).await {
            tracing::warn!(class = %self.class(), place = %self.key.1, %error, "a session was not closed");
        }
        if matches!(ended, Ok(Ended::Gone)) {
            self.shared.sets.delete(&self.scope(), id).await?;
            self.state(SetState::Gone).await?;
        }
        ended
    }

    /// Returns what the class says of the set. A class that the loop does not know is gone once a read proves it.
    async fn class_of<'a>(&self, known: &'a Known) -> Result<SetClass<'a>, StoreError> {
        if let Some(class) = known.class(&self.key) {
            return Ok(class);
        }
        let there = self.shared.store.get(&Pool::key_of(&self.key.0)).await?.is_some();
        Ok(if there { SetClass::Held } else { SetClass::Dropped })
    }

    /// Makes sure that the set is at GitHub as its class wants it.
    async fn ensure(&mut self, spec: &PoolSpec) -> Result<(), Problem> {
        let scope = self.scope();
        let group_id = match spec.runner_group.as_str() {
            "" => DEFAULT_GROUP,
            name => {
                let group = self.shared.sets.group(&scope, name).await?;
                group.ok_or_else(|| Problem::Group(name.to_owned()))?
            }
        };
        let labels = spec.serves_sets().map(|queue| queue.labels.clone()).unwrap_or_default();
        let wanted = SetSpec { name: labels.first().cloned().unwrap_or_default(), labels, group_id };
        let set = self.at_github(&scope, &wanted).await?;
        let mut next = self.record.clone();
        if next.scale_set_id != Some(set.id) {
            // Messages of another set have numbers of their own.
            (next.scale_set_id, next.last_message_id) = (Some(set.id), None);
        }
        (next.set_name, next.labels, next.runner_group_id) = (wanted.name, wanted.labels, group_id);
        Ok(self.write(next).await?)
    }

    async fn at_github(&self, scope: &Scope, wanted: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        let sets = &self.shared.sets;
        let renamed = self.record.set_name != wanted.name || self.record.runner_group_id != wanted.group_id;
        if let Some(id) = self.record.scale_set_id.filter(|_| renamed) {
            match sets.update(scope, id, wanted).await {
                Err(ScaleSetError::NotFound(_)) => {}
                updated => return updated,
            }
        }
        match sets.find(scope, wanted.group_id, &wanted.name).await? {
            None => sets.create(scope, wanted).await,
            Some(set) if is(&set.spec, wanted) => Ok(set),
            Some(set) => sets.update(scope, set.id, wanted).await,
        }
    }

    /// Takes in messages until the session is of no use any more.
    async fn messages(&mut self, session: &mut Session, stop: &CancellationToken) -> Result<Ended, Problem> {
        let mut counts = Some(session.statistics);
        let mut message: Option<Message> = None;
        let mut just_renewed = false;
        loop {
            let Some(known) = self.shared.known().await else { return Ok(Ended::Stopped) };
            let capacity = match self.answer(&known, session, message.as_ref(), counts.take()).await? {
                Next::Ended(ended) => return Ok(ended),
                Next::Wait { capacity } => capacity,
            };
            if let Some(message) = message.take() {
                self.delete(session, message.id).await?;
                self.answered();
            }
            let answered = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(Ended::Stopped),
                answered = self.poll(session, capacity, just_renewed) => answered?,
            };
            just_renewed = matches!(answered, Polled::Renewed);
            match answered {
                Polled::Answer(answer) => message = answer,
                Polled::Renewed => counts = Some(session.statistics),
            }
        }
    }

    /// Deletes a message; once more with a new credential where that of the session is over.
    async fn delete(&self, session: &mut Session, message: u64) -> Result<(), ScaleSetError> {
        match self.shared.sets.delete_message(session, message).await {
            Err(ScaleSetError::Expired(_)) => {}
            answered => return answered,
        }
        *session = self.shared.sets.renew(session).await?;
        self.shared.sets.delete_message(session, message).await
    }

    /// Waits for an answer. A call that fails is none; it is made again a few times. A credential that is refused
    /// although it was just renewed ends the session.
    async fn poll(
        &mut self,
        session: &mut Session,
        capacity: u32,
        just_renewed: bool,
    ) -> Result<Polled, Problem> {
        let mut failures = 0;
        loop {
            match self.shared.sets.message(session, self.record.last_message_id, capacity).await {
                Ok(answer) => {
                    // A message is an answer once it was taken in and deleted: until then it comes again.
                    if answer.is_none() {
                        self.answered();
                    }
                    return Ok(Polled::Answer(answer));
                }
                Err(ScaleSetError::Expired(_)) if !just_renewed => {
                    *session = self.shared.sets.renew(session).await?;
                    return Ok(Polled::Renewed);
                }
                Err(error @ (ScaleSetError::Unreachable(_) | ScaleSetError::Throttled { .. }))
                    if failures < FAILURES =>
                {
                    failures += 1;
                    let pause = self.failed(&error.into()).await;
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes in one answer of GitHub: a message, counts, or neither.
    async fn answer(
        &mut self,
        known: &Known,
        session: &mut Session,
        message: Option<&Message>,
        counts: Option<Statistics>,
    ) -> Result<Next, Problem> {
        let class = self.class_of(known).await?;
        let labels = class.spec().and_then(PoolSpec::serves_sets).map(|queue| &queue.labels);
        if labels.is_some_and(|labels| *labels != self.record.labels) {
            return Ok(Next::Ended(Ended::Changed));
        }
        self.state(match class {
            SetClass::Serves(_) | SetClass::Held => SetState::Listening,
            SetClass::Dropped => SetState::Draining,
        })
        .await?;
        let of = (self.key.1.clone(), session.set);
        let mut slots = known.slots.get(&of).cloned().unwrap_or_default();
        self.made.retain(|key| slot_number(key).is_some_and(|number| number > slots.highest));
        slots.add_made(&self.made);
        let record = self.record.clone();
        let view = SetView { record: &record, class, slots: &slots };
        let capacity = view.capacity();
        if let Some(message) = message {
            self.shared.events.metrics().scale_set_unknown(message.unknown);
            self.acquire(session, message).await?;
        }
        let step = view.step(message, counts, &mut self.missed, self.shared.clock.now());
        let made = step.make.clone();
        self.take(step).await?;
        self.made.extend_from_slice(&made);
        // Slots of a set that GitHub does not have any more serve nobody.
        let former = known.slots.iter().filter(|((place, set), slots)| {
            *place == self.key.1 && *set != session.set && slots.class == self.key.0.as_str()
        });
        for key in former.flat_map(|(_, slots)| slots.free()) {
            self.unwant(key).await?;
        }
        if matches!(class, SetClass::Dropped) && slots.open.is_empty() && made.is_empty() {
            return Ok(Next::Ended(Ended::Gone));
        }
        Ok(Next::Wait { capacity })
    }

    /// Acquires the jobs that wait for that; GitHub Enterprise Server alone has such jobs.
    async fn acquire(&self, session: &mut Session, message: &Message) -> Result<(), ScaleSetError> {
        let available = message.jobs.iter().filter(|job| job.news == JobNews::Available);
        let numbers: Vec<u64> = available.map(|job| job.runner_request_id).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        match self.shared.sets.acquire(session, &numbers).await {
            Err(ScaleSetError::Expired(_)) => {}
            answered => return answered,
        }
        *session = self.shared.sets.renew(session).await?;
        self.shared.sets.acquire(session, &numbers).await
    }
}

/// What a poll came to.
enum Polled {
    /// A message, or the end of a wait without one.
    Answer(Option<Message>),
    /// The session was renewed, which tells its counts.
    Renewed,
}

/// What follows an answer.
enum Next {
    /// The next answer is awaited; the set may hold so many jobs.
    Wait {
        capacity: u32,
    },
    Ended(Ended),
}

/// Returns whether a set is what is wanted; GitHub does not regard the case and the order of labels.
fn is(set: &SetSpec, wanted: &SetSpec) -> bool {
    let labels = |set: &SetSpec| {
        let mut labels: Vec<String> = set.labels.iter().map(|label| label.to_ascii_lowercase()).collect();
        labels.sort();
        labels
    };
    set.name == wanted.name && set.group_id == wanted.group_id && labels(set) == labels(wanted)
}
