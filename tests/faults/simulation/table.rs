//! The table as an actor meets it: slow, failing, deaf, with answers that are lost and writes that take effect after
//! the caller was told that nobody knows; behind it the laws see each write that is applied.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{AttributeValue, Guard, InstanceId, Item, Operation, RecordId, Write};
use runyard_core::ports::{Change, Page, Store, StoreError, Watch};
use tokio::time::{Instant, sleep, timeout};

use crate::simulation::actor::{Actor, Role};
use crate::simulation::bugs::{
    Bug, claims, ends_surplus, held_for_long, outweighed, ready_since_accepted, spoiled, tombstones,
    without_hold,
};
use crate::simulation::fault_rates::Fault;
use crate::simulation::plans::{Wrong, news};
use crate::simulation::unreadable::is_spoilt;
use crate::simulation::world::World;

/// The table, for one actor.
pub(crate) struct Table(pub(crate) Arc<Actor>);

impl Table {
    fn world(&self) -> &Arc<World> {
        &self.0.world
    }

    fn note(&self, name: &str, about: &str, outcome: &str) {
        let quiet = outcome == "ok" && matches!(name, "get" | "glance" | "list" | "query" | "append");
        let beat = self.0.role == Role::Agent && name == "write" && outcome == "ok";
        self.world().trace.call(&self.0.name, name, about, outcome, quiet || beat);
    }

    /// An item as this actor understands it.
    fn understood(&self, item: Item) -> Item {
        let world = self.world();
        match world.bug {
            Some(Bug::VersionIsIdentity) if self.0.role == Role::Operator => {
                world.highest.seen_by(&self.0.name, item)
            }
            Some(Bug::PenaltyForgotten) if self.0.role == Role::Operator => outweighed(item),
            Some(Bug::HoldIsForgotten) if self.0.role == Role::Operator => without_hold(item),
            Some(Bug::RuntimeFromAcceptance) if self.0.role == Role::Operator => ready_since_accepted(item),
            Some(Bug::HoldHasNoEnd) if self.0.role == Role::Operator => held_for_long(item),
            Some(_) | None => item,
        }
    }

    /// What goes wrong before anything happens.
    async fn fails(&self, writes: bool) -> Option<StoreError> {
        let world = self.world();
        if self.0.is_cut_off() || world.fault_rates.lasts(Fault::StoreAway) {
            world.fault_rates.note(if self.0.is_cut_off() {
                Fault::AgentPartition
            } else {
                Fault::StoreAway
            });
            sleep(world.chance.millis(10..3000)).await;
            return Some(StoreError::Unknown("simulated: away".into()));
        }
        if world.strikes(Fault::StoreFails) {
            sleep(world.chance.millis(1..8000)).await;
            return Some(StoreError::Unknown("simulated: not sent".into()));
        }
        if world.strikes(Fault::StoreThrottles) {
            return Some(StoreError::Throttled);
        }
        (writes && world.strikes(Fault::StoreContended)).then_some(StoreError::Contended)
    }

    /// Keeps what the record is now, for the twenty seconds in which a replica may have it.
    fn remember(&self, key: &RecordId, found: Option<Item>) {
        let (now, mut past) = (Instant::now(), self.0.past.lock().unwrap());
        let of_key = past.entry(key.clone()).or_default();
        of_key.push_back((now, found));
        while of_key.len() > 1 && of_key[1].0 + Duration::from_secs(20) < now {
            of_key.pop_front();
        }
    }

    /// What the record was at some time of the last twenty seconds, as one of several replicas has it: also older than
    /// an earlier answer.
    fn stale(&self, key: &RecordId, found: Option<Item>) -> Option<Item> {
        self.remember(key, found);
        let past = self.0.past.lock().unwrap();
        let of_key = &past[key];
        let some = self.world().chance.number(0..of_key.len() as u64) as usize;
        of_key[some].1.clone()
    }

    async fn reading<T>(
        &self,
        name: &'static str,
        about: &str,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.0.enter().await;
        let outcome = match self.fails(false).await {
            Some(error) => Err(error),
            None => read.await,
        };
        self.0.leave().await;
        self.note(name, about, outcome.as_ref().map_or_else(StoreError::label, |_| "ok"));
        outcome
    }

    /// What an operator makes of an item, which by one defect is nothing when it cannot read it.
    fn seen(&self, item: Option<Item>) -> Option<Item> {
        let blind = self.world().bug == Some(Bug::UnreadIsAbsent) && self.0.role == Role::Operator;
        item.filter(|item| !(blind && is_spoilt(item)))
    }

    /// Makes the writes, under the eyes of the laws.
    async fn apply(world: &Arc<World>, who: &str, writes: &[Write]) -> Result<(), StoreError> {
        let changing = || writes.iter().filter(|write| !matches!(write.operation, Operation::Check(_)));
        let mut before = Vec::with_capacity(writes.len());
        for write in changing() {
            before.push(world.store.get(&write.key).await?);
        }
        match writes {
            [write] => drop(world.store.write(write).await?),
            writes => world.store.transact(writes).await?,
        }
        for (write, old) in changing().zip(&before) {
            let new = world.store.get(&write.key).await?;
            world.written(who, write, old.as_ref(), new.as_ref());
        }
        let changes: Vec<Write> = changing().cloned().collect();
        let broken = {
            let mut laws = world.laws.lock().unwrap();
            world.watched.lock().unwrap().written(world, &laws, &changes, &before);
            laws.together(writes)
        };
        broken.into_iter().for_each(|what| world.broke(what));
        Ok(())
    }

    /// Rings as the verbs and the agents do.
    fn ring(&self, writes: &[Write]) {
        let signals = |write: &Write| {
            let Operation::Update { set, .. } = &write.operation else { return false };
            set.contains_key("signal")
        };
        let rings = match self.0.role {
            Role::Operator => false,
            Role::Workflow | Role::Person => true,
            Role::Agent => writes.iter().any(signals),
        };
        if let Some(write) = writes.first().filter(|_| rings) {
            self.world().rings.written(&write.key);
        }
    }

    /// As the writes were meant, unless this world has a defect.
    async fn spoil_or_apply(&self, writes: &[Write]) -> Result<(), StoreError> {
        let world = self.world();
        if self.0.role == Role::Agent && world.bug == Some(Bug::AgentWritesBlindly) {
            let [write] = writes else { return Self::apply(world, &self.0.name, writes).await };
            if world.store.get(&write.key).await?.is_none() {
                world.store.put(
                    [("pk", &write.key.pk()), ("sk", &write.key.sk())]
                        .map(|(k, v)| (k.to_owned(), AttributeValue::S(v.clone())))
                        .into(),
                );
                let new = world.store.get(&write.key).await?;
                world.written(&self.0.name, write, None, new.as_ref());
            }
        }
        if self.0.role == Role::Workflow
            && world.bug == Some(Bug::SubmitOverwrites)
            && let [Write { key, operation: Operation::Create(item) }] = writes
            && world.store.get(key).await?.is_some()
        {
            let again = Write::update(key.clone(), Guard::StillProvisioned, item.clone(), BTreeMap::new());
            return Self::apply(world, &self.0.name, &[again]).await;
        }
        if self.0.role != Role::Operator {
            return Self::apply(world, &self.0.name, writes).await;
        }
        if world.bug == Some(Bug::KillsBeforeTombstone)
            && let Some(id) = writes.iter().find_map(tombstones).and_then(RecordId::machine)
            && let Ok(id) = InstanceId::parse(id)
        {
            world.ends(&self.0.name, std::slice::from_ref(&id));
        }
        if world.bug == Some(Bug::LabelBeforeClaim) {
            for (key, run) in writes.iter().filter_map(claims) {
                world.label_early(key, run).await;
            }
        }
        if world.bug == Some(Bug::RerunOverwrites)
            && let [Write { key, operation: Operation::Create(item) }] = writes
            && key.request().is_some()
            && world.store.get(key).await?.is_some()
        {
            let again = Write::update(key.clone(), Guard::StillProvisioned, item.clone(), BTreeMap::new());
            return Self::apply(world, &self.0.name, &[again]).await;
        }
        if world.bug == Some(Bug::ReservationKept) && world.laws.lock().unwrap().of_failed(writes) {
            return Ok(());
        }
        if world.bug == Some(Bug::SurplusKept) && writes.iter().any(ends_surplus) {
            return Err(StoreError::Contended);
        }
        let parts = spoiled(world.bug, writes);
        let last = parts.len() - 1;
        for (n, part) in parts.iter().enumerate() {
            Self::apply(world, &self.0.name, part).await?;
            if n < last {
                self.0.leave().await;
            }
        }
        Ok(())
    }

    /// How what an agent or a command is about to write goes wrong by plan.
    async fn planned(&self, writes: &[Write]) -> Result<Option<Wrong>, StoreError> {
        let ([write], Role::Agent | Role::Workflow) = (writes, self.0.role) else { return Ok(None) };
        let before = self.world().store.get(&write.key).await?;
        let what = || format!("{} writes {}", self.0.name, short(&write.key));
        Ok(news(write, before.as_ref()).then(|| self.world().effects.next(what)).flatten())
    }

    async fn writing(&self, name: &'static str, writes: &[Write]) -> Result<(), StoreError> {
        let about = || writes.iter().map(|write| short(&write.key)).collect::<Vec<_>>().join(", ");
        let lost = || StoreError::Unknown("simulated: the answer was lost".into());
        self.0.enter().await;
        let (world, chance) = (self.world(), &self.world().chance);
        let planned = self.planned(writes).await?;
        if planned == Some(Wrong::Before) {
            self.0.die().await;
        }
        let outcome = if let Some(error) = self.fails(true).await {
            Err(error)
        } else if world.strikes(Fault::StoreAppliesLate) {
            let (world, writes, wait) = (world.clone(), writes.to_vec(), chance.millis(50..10_000));
            let who = self.0.name.clone();
            tokio::spawn(async move {
                sleep(wait).await;
                let outcome = Self::apply(&world, &who, &writes).await;
                let label = outcome.as_ref().map_or_else(StoreError::label, |()| "ok");
                world.trace.tell(&format!("late write of {who}: {label} {}", short(&writes[0].key)));
            });
            Err(StoreError::Unknown("simulated: on its way".into()))
        } else {
            self.spoil_or_apply(writes).await
        };
        if planned == Some(Wrong::After) {
            self.0.die().await;
        }
        if outcome.is_ok() {
            self.ring(writes);
        }
        self.0.leave().await;
        let outcome = match outcome {
            Ok(()) if planned == Some(Wrong::Lost) => Err(lost()),
            // Repeated underneath, and it is the repetition that was answered.
            Ok(()) if world.strikes(Fault::StoreLosesAnswer) => {
                Err(if chance.percent(25) { StoreError::Throttled } else { lost() })
            }
            Err(StoreError::Throttled | StoreError::Contended)
                if world.bug == Some(Bug::ErrorTakenForSuccess) =>
            {
                Ok(())
            }
            Err(StoreError::Refused { mut refusals }) => {
                for refusal in &mut refusals {
                    refusal.current = refusal.current.take().map(|item| self.understood(item));
                }
                Err(StoreError::Refused { refusals })
            }
            outcome => outcome,
        };
        self.note(name, &about(), outcome.as_ref().map_or_else(StoreError::label, |()| "ok"));
        outcome
    }
}

/// A key without what all keys share.
pub(crate) fn short(key: &RecordId) -> String {
    key.pk().replace("arn:aws:ec2:local:000000000000:instance/", "")
}

#[async_trait]
impl Store for Table {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        let found = self.reading("get", &key.pk(), self.world().store.get(key)).await?;
        if self.world().bug == Some(Bug::AgentReadsStale) && self.0.role == Role::Agent {
            return Ok(self.stale(key, found));
        }
        if self.0.role == Role::Agent {
            self.remember(key, found.clone());
            let glanced = self.0.glanced.lock().unwrap().take();
            if let Some((at, shown)) = glanced.filter(|_| self.world().bug == Some(Bug::GlanceBelieved))
                && at.elapsed() < Duration::from_secs(5)
            {
                return Ok(shown);
            }
        }
        Ok(self.seen(found.map(|item| self.understood(item))))
    }

    async fn glance(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        let found = self.reading("glance", &key.pk(), self.world().store.get(key)).await?;
        let shown = self.stale(key, found);
        *self.0.glanced.lock().unwrap() = Some((Instant::now(), shown.clone()));
        Ok(shown)
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        let store =
            match self.world().fault_rates.has(Fault::ListInPieces) && !self.world().fault_rates.calm() {
                true => {
                    self.world().fault_rates.note(Fault::ListInPieces);
                    self.world().store.clone().paged(5)
                }
                false => self.world().store.clone(),
            };
        let mut page = self.reading("list", "", store.list(after)).await?;
        if self.world().bug == Some(Bug::LastPageLost) {
            page.next = None;
        }
        let understood = page.items.into_iter().map(|item| self.understood(item));
        page.items = understood.filter_map(|item| self.seen(Some(item))).collect();
        Ok(page)
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.reading("query", pk, self.world().store.query(pk, sk_prefix, after)).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.writing("write", std::slice::from_ref(write)).await?;
        Ok(self.world().store.get(&write.key).await?.unwrap_or_default())
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.writing("transact", writes).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        // Events are for people, and many: they are not kept.
        self.reading("append", "", async {
            Ok(items.iter().filter(|item| RecordId::of(item).is_none()).count())
        })
        .await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        let inner = self.reading("watch", "", self.world().store.watch()).await?;
        let world = self.world();
        let lag =
            if world.strikes(Fault::WatchLags) { world.chance.millis(1000..60_000) } else { Duration::ZERO };
        Ok(Box::new(Ear { actor: self.0.clone(), inner, lag, held: VecDeque::new(), deaf_until: None }))
    }
}

/// A watch that lags, tells things twice and out of order, tells nothing, or breaks.
struct Ear {
    actor: Arc<Actor>,
    inner: Box<dyn Watch>,
    lag: Duration,
    held: VecDeque<(Instant, Change)>,
    deaf_until: Option<Instant>,
}

impl Ear {
    fn hear(&mut self, changes: Vec<Change>) {
        let world = self.actor.world.clone();
        let calm = world.fault_rates.calm();
        if self.deaf_until.is_some_and(|until| Instant::now() < until) && !calm {
            return;
        }
        let due = Instant::now() + if calm { Duration::ZERO } else { self.lag };
        for change in changes {
            if world.strikes(Fault::WatchShuffles) {
                let at = world.chance.number(0..self.held.len() as u64 + 1) as usize;
                self.held.insert(at, (due, change.clone()));
                if world.chance.percent(50) {
                    continue;
                }
            }
            self.held.push_back((due, change));
        }
    }

    /// Who looks at the table now and then does not see that a class was gone between two looks.
    fn unseen(&self, change: &Change) -> bool {
        let anew = self.actor.world.fault_rates.has(Fault::PoolMadeAnew);
        anew && change.item.is_none() && change.key.sk() == "pool"
    }

    fn due(&mut self) -> Vec<Change> {
        let now = Instant::now();
        let calm = self.actor.world.fault_rates.calm();
        let (due, held): (Vec<_>, Vec<_>) = self.held.drain(..).partition(|(at, _)| calm || *at <= now);
        self.held = held.into();
        due.into_iter().map(|(_, change)| change).collect()
    }
}

#[async_trait]
impl Watch for Ear {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let world = self.actor.world.clone();
        self.actor.enter().await;
        if world.strikes(Fault::WatchBreaks) {
            world.trace.tell(&format!("the watch of {} breaks", self.actor.name));
            return Err(StoreError::Invalid("simulated: trimmed".into()));
        }
        if world.strikes(Fault::WatchStalls) {
            let length = world.chance.seconds(10..200);
            world.trace.tell(&format!("the watch of {} tells nothing for {length:?}", self.actor.name));
            self.deaf_until = Some(Instant::now() + length);
        }
        if world.fault_rates.lasts(Fault::StoreAway) {
            sleep(Duration::from_secs(1)).await;
            return Err(StoreError::Unknown("simulated: away".into()));
        }
        let first = self.held.iter().map(|(at, _)| *at).min();
        let wait = first.map_or(Duration::from_secs(2), |at| at.saturating_duration_since(Instant::now()));
        let heard = timeout(wait.max(Duration::from_millis(1)), self.inner.next()).await;
        if let Ok(changes) = heard {
            let mut changes = changes?;
            let table = Table(self.actor.clone());
            changes.iter_mut().for_each(|change| change.item = table.seen(change.item.take()));
            self.hear(changes)
        }
        let table = Table(self.actor.clone());
        let told: Vec<Change> = self.due().into_iter().filter(|change| !self.unseen(change)).collect();
        let understood = |change: Change| Change { item: change.item.map(|i| table.understood(i)), ..change };
        let told: Vec<Change> = told.into_iter().map(understood).collect();
        world.trace.call(&self.actor.name, "next", "", if told.is_empty() { "" } else { "ok" }, true);
        Ok(told)
    }
}
