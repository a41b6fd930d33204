//! Listens to GitHub's runner scale sets: one listener for each set of a class, while this operator leads. What an answer
//! of GitHub means is judged in the core ([`crate::decide::SetView`]); a listener calls, and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::controller::ordered_watch;
use crate::controller::records::events::Events;
use crate::decide::{SetClass, Slots};
use crate::model::{ClassName, PoolSpec, SetPlace, SetRecord, SetState};
use crate::ports::{Clock, Entropy, ScaleSets, Store};
use crate::yard::Yard;

mod listener;
mod record;

use listener::Listener;

/// How often the classes are looked at for sets that begin or end.
const CLASSES: Duration = Duration::from_secs(5);
/// How long a listener that is told to end may take to close its session: without that, GitHub lets no other listen for
/// about a minute.
const CLOSING: Duration = Duration::from_secs(5);

/// A question to the loop for the scale sets.
pub(crate) type Ask = oneshot::Sender<Known>;

/// A set: its class and its place.
pub(super) type SetKey = (ClassName, SetPlace);

/// What the loop knows of scale sets.
#[derive(Default)]
pub(crate) struct Known {
    /// Whether the loop has read the whole table: before that, a class that it does not know may be there.
    complete: bool,
    /// The classes, if any of them has a set or had one.
    classes: BTreeMap<ClassName, PoolSpec>,
    /// The records of the sets.
    pub(super) records: BTreeMap<SetKey, SetRecord>,
    /// The slots of each set.
    pub(super) slots: BTreeMap<(SetPlace, u64), Slots>,
}

impl Known {
    /// Collects the classes, sets and slots of the yard.
    pub(crate) fn of(yard: &Yard) -> Self {
        let specs = || yard.classes().filter_map(|(_, class)| class.pool.as_ref()).map(|pool| &pool.spec);
        let records: BTreeMap<SetKey, SetRecord> =
            yard.sets().filter_map(|set| Some((set.key.clone()?, set.clone()))).collect();
        let mut known = Self { complete: yard.listed.is_some(), records, ..Self::default() };
        if known.records.is_empty() && !specs().any(|spec| spec.serves_sets().is_some()) {
            return known;
        }
        known.classes = specs().map(|spec| (spec.resource_class.clone(), spec.clone())).collect();
        if !known.records.is_empty() {
            known.slots = Slots::all(yard);
        }
        known
    }

    /// Returns what the class of a set says of it; none where the class is not known.
    pub(super) fn class(&self, (class, place): &SetKey) -> Option<SetClass<'_>> {
        let spec = self.classes.get(class)?;
        if spec.check_queue().is_err() {
            return Some(SetClass::Held);
        }
        if !spec.set_places().contains(place) {
            return Some(SetClass::Dropped);
        }
        let taken = spec.loses_its_set_to(self.classes.values());
        Some(taken.map_or(SetClass::Serves(spec), |_| SetClass::Held))
    }

    /// Returns the sets that need a listener: those that classes serve, and those that are not gone yet.
    fn sets(&self) -> BTreeSet<SetKey> {
        if !self.complete {
            return BTreeSet::new();
        }
        let places = self
            .classes
            .values()
            .flat_map(|spec| spec.set_places().into_iter().map(|place| (spec.resource_class.clone(), place)));
        let served = places.filter(|key| matches!(self.class(key), Some(SetClass::Serves(_))));
        let left = self.records.iter().filter(|(_, record)| record.state != SetState::Gone);
        served.chain(left.map(|(key, _)| key.clone())).collect()
    }
}

/// What all listeners share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) sets: Arc<dyn ScaleSets>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) events: Events,
    /// The name under which sessions are opened.
    pub(crate) identity: String,
    pub(crate) ask: mpsc::Sender<Ask>,
}

impl Shared {
    /// Asks the loop; none when it has ended.
    pub(super) async fn known(&self) -> Option<Known> {
        let (ask, answer) = oneshot::channel();
        self.ask.send(ask).await.ok()?;
        answer.await.ok()
    }
}

/// Runs the listeners while this operator leads.
pub(crate) struct SetWatch {
    pub(crate) shared: Shared,
    pub(crate) lease: ordered_watch::Receiver<Option<u64>>,
}

/// The listeners that run under one token of the lease.
struct Term {
    token: u64,
    stop: CancellationToken,
    tasks: JoinSet<SetKey>,
    running: BTreeSet<SetKey>,
}

impl Term {
    fn new(token: u64) -> Self {
        Self { token, stop: CancellationToken::new(), tasks: JoinSet::new(), running: BTreeSet::new() }
    }

    /// Lets the listeners close their sessions.
    async fn end(mut self) {
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLOSING, all).await;
    }
}

impl SetWatch {
    /// Listens until stopped.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut term: Option<Term> = None;
        loop {
            let token = self.lease.get();
            if term.as_ref().is_some_and(|term| Some(term.token) != token)
                && let Some(over) = term.take()
            {
                over.end().await;
            }
            if let Some(token) = token {
                let Some(known) = self.shared.known().await else { break };
                let term = term.get_or_insert_with(|| Term::new(token));
                for key in known.sets() {
                    if term.running.insert(key.clone()) {
                        let listener = Listener::new(self.shared.clone(), key, term.token);
                        term.tasks.spawn(listener.run(term.stop.clone()));
                    }
                }
            }
            let ended = async {
                match &mut term {
                    Some(term) if !term.tasks.is_empty() => term.tasks.join_next().await,
                    Some(_) | None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Ok(()) = self.lease.changed() => {}
                ended = ended => {
                    if let (Some(term), Some(Ok(key))) = (&mut term, ended) {
                        term.running.remove(&key);
                    }
                }
                () = tokio::time::sleep(CLASSES) => {}
            }
        }
        if let Some(term) = term {
            term.end().await;
        }
    }
}
