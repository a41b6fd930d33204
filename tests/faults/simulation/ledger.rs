//! The history table as operators meet it, and the laws of what is in it, judged against what each write of the yard's
//! table showed:
//!
//! - **S45:** the record of a request leaves the table only once the history has it.
//! - **S29:** what is over is in the history, and every second of every machine belongs there to whom it served. Lines
//!   that are read twice, in another order, tell the same.
//! - **S30:** a line that is written again is as it was.
//! - **S44:** where the operators sign, each claim that was not held at its end has one statement, of its machine's line,
//!   and none says clean of a claim that left something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use runyard_core::decide::Policy;
use runyard_core::ledger::{Entry, Period, entries};
use runyard_core::model::history::{Activity, HistoryLine, MachineLine};
use runyard_core::model::{
    AttributeValue, ClaimId, Instance, InstanceId, Item, Lease, Place, RecordId, Request, Write,
};
use runyard_core::ports::{Page, Signer, Store, StoreError, Watch};
use runyard_core::statement::{Envelope, digest_of};
use runyard_fakes::{MemoryStore, PaperKey};
use runyard_operator::controller::HistoryTable;
use tokio::time::{Instant, sleep};

use crate::simulation::actor::Actor;
use crate::simulation::bugs::Bug;
use crate::simulation::chance::Chance;
use crate::simulation::laws::{Laws, record};
use crate::simulation::world::World;

/// How far the operators' clocks may be off where there is a history: two of them less than a minute.
pub(crate) const CLOCKS: Duration = Duration::from_secs(20);
/// How long what was decided may take to be written: what takes longer is not looked for.
const LATE: i64 = 30;

/// What a machine did from some time on, as the write showed it that began it.
#[derive(Debug)]
struct Begun {
    place: Place,
    from: Timestamp,
    request: Option<RecordId>,
}

/// The history table of one seed's yard. Its numbers are its own, so that a seed without it is what it was before.
pub(crate) struct Shelf {
    chance: Chance,
    on: bool,
    /// Whether the operators sign statements.
    signs: bool,
    away_until: Mutex<Option<Instant>>,
    store: MemoryStore,
    truth: Mutex<Truth>,
}

/// What really was.
#[derive(Default)]
struct Truth {
    /// What each machine did, in the order of the writes.
    lives: BTreeMap<RecordId, Vec<Begun>>,
    /// The records whose writes took long: they are not looked for.
    late: BTreeSet<RecordId>,
    /// The claims that were cleaned, and whether nothing of them was left.
    cleaned: BTreeMap<ClaimId, bool>,
    /// From when on what is over is wanted.
    begun: Option<Timestamp>,
}

impl Shelf {
    pub(crate) fn of(seed: u64, possible: bool) -> Self {
        let chance = Chance::of(seed ^ 0x4C65_6467_6572);
        let on = possible && chance.percent(60);
        let (away_until, store, truth) = Default::default();
        let signs = on && seed % 5 == 2;
        Self { chance, on, signs, away_until, store, truth }
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.on
    }

    /// When the yard begins: shortly before an hour is over, so that it is closed while things go wrong.
    pub(crate) fn begin(&self, usual: Timestamp) -> Timestamp {
        if self.on {
            usual + jiff::SignedDuration::from_mins(self.chance.number(40..60) as i64)
        } else {
            usual
        }
    }

    /// How long the records of ended requests stay in the table.
    pub(crate) fn ended_stays(&self) -> SignedDuration {
        if self.on { SignedDuration::from_secs(90) } else { Policy::ENDED_STAYS }
    }

    /// The table for one operator.
    pub(crate) fn table(&self, actor: &Arc<Actor>) -> Option<HistoryTable> {
        let store = Arc::new(ShelfOf(actor.clone()));
        let signer = self.signs.then(|| Arc::new(PaperKey) as Arc<dyn Signer>);
        self.on.then(|| HistoryTable { store, events: true, keep: 90 * 24 * 3600, signer })
    }

    /// A claim as its machine's clean-up really left it.
    pub(crate) fn cleaned(&self, claim: &ClaimId, clean: bool) {
        self.truth.lock().unwrap().cleaned.insert(claim.clone(), clean);
    }

    /// A record as a write left it.
    pub(crate) fn written(&self, now: Timestamp, key: &RecordId, new: Option<&Item>) {
        if !self.on {
            return;
        }
        let mut truth = self.truth.lock().unwrap();
        if let Some(lease) = record::<Lease>(new) {
            truth.begun = truth.begun.or(lease.history_until);
        }
        if let Some(request) = record::<Request>(new)
            && request.status.ended_at.is_some_and(|at| late(at, now))
        {
            truth.late.insert(key.clone());
        }
        let Some(machine) = record::<Instance>(new) else { return };
        let (place, from) = (machine.place(), machine.state_since);
        let over = machine.gone_at().unwrap_or(from);
        let life = truth.lives.entry(key.clone()).or_default();
        let changed = life.last().is_none_or(|last| last.place != place);
        if let Some(held) = life.last_mut().filter(|last| !changed && last.place == Place::IdleHeld) {
            // It is the clean-up's until an operator sees the hold.
            held.from = from;
        }
        if changed {
            let held = machine.held_by().cloned();
            let request = match place {
                Place::IdleCleaning => life.last().and_then(|last| last.request.clone()),
                Place::Nowhere
                | Place::CreatedBound
                | Place::CreatedWarm
                | Place::Claimed
                | Place::Running
                | Place::IdlePooled
                | Place::IdleHeld
                | Place::Terminated => held,
            };
            life.push(Begun { place, from, request });
        }
        if (changed || machine.gone_at().is_some()) && late(over, now) {
            truth.late.insert(key.clone());
        }
    }

    /// S45: what is wrong with the removal of a record. The record of a request leaves the table only once the history
    /// has it; of one that got no machine because its key was used, the history has the one before.
    pub(crate) fn removed(&self, key: &RecordId, old: &Item) -> Option<String> {
        key.request()?;
        let served = record::<Request>(Some(old)).is_none_or(|request| !request.status.served.is_empty());
        let kept = self.store.records();
        let mut kept = kept.iter().filter(|item| RecordId::of(item).as_ref() == Some(key));
        let has = kept.any(|item| item == old || !served);
        (!has).then(|| format!("S45 {key}: removed, and the history does not have it: {old:?}"))
    }

    fn lines(&self) -> Vec<HistoryLine> {
        self.store.records().iter().filter_map(|item| HistoryLine::of_item(item).ok()).collect()
    }

    /// S29, once nothing goes wrong any more: what is not as it should be yet.
    pub(crate) fn astray(&self, laws: &Laws) -> Vec<String> {
        let truth = self.truth.lock().unwrap();
        let Some(begun) = truth.begun.filter(|_| self.on) else { return Vec::new() };
        let lines = self.lines();
        let mut wrong = requests(laws, &truth, begun, &lines);
        let machines: Vec<MachineLine> = lines.into_iter().filter_map(of_machine).collect();
        let all = entries(&machines, Period::ALL);
        let again: Vec<&MachineLine> = machines.iter().rev().chain(&machines).collect();
        if entries(again, Period::ALL) != all {
            wrong.push("S29 the lines tell another ledger when they are read twice".into());
        }
        for machine in laws.instances() {
            let key = Instance::key_of(&machine.facts.instance_arn);
            let Some(life) = truth.lives.get(&key).filter(|_| !truth.late.contains(&key)) else { continue };
            let id = &machine.facts.instance_id;
            let lived = lived(life, machine.gone_at(), begun);
            // What was over before the history began is in no line, and so it is the pool's.
            let from = lived.first().map_or(i64::MAX, |first| first.0);
            let told = told(&all, id, Period { from, to: i64::MAX });
            if told != lived {
                wrong.push(format!("S29 {id}: the lines tell {told:?}, it was {lived:?}"));
            }
        }
        if self.signs {
            wrong.extend(statements(&truth, &self.lines()));
        }
        wrong
    }
}

/// S44: claims without their statement, and statements that say more than was.
fn statements(truth: &Truth, lines: &[HistoryLine]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut told = BTreeMap::new();
    for line in lines {
        let HistoryLine::Statement(line) = line else { continue };
        let opened = Envelope::parse(&line.envelope).and_then(|envelope| envelope.open(|_, _, _| Ok(())));
        let statement = opened.expect("a statement is read");
        if statement.predicate.clean && truth.cleaned.get(&line.claim_id) != Some(&true) {
            wrong.push(format!("S44 {}: is said to be clean, and was not cleaned", line.claim_id));
        }
        if told.insert(statement.subject[0].digest.sha256.clone(), line.claim_id.clone()).is_some() {
            wrong.push(format!("S44 {}: another claim has its line", line.claim_id));
        }
    }
    for line in lines {
        let HistoryLine::Machine(line) = line else { continue };
        let held = line.spans.iter().any(|span| span.activity == Activity::Held);
        if line.claims().next().is_some() && !held && !told.contains_key(&digest_of(line)) {
            wrong.push(format!("S44 {}: a claim has no statement: {line:?}", line.instance_id));
        }
    }
    wrong
}

fn of_machine(line: HistoryLine) -> Option<MachineLine> {
    match line {
        HistoryLine::Machine(line) => Some(line),
        HistoryLine::Request(_)
        | HistoryLine::LaunchFailure(_)
        | HistoryLine::Statement(_)
        | HistoryLine::Event(_) => None,
    }
}

fn late(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at).as_secs() > LATE
}

/// Ended requests without their line.
fn requests(laws: &Laws, truth: &Truth, begun: Timestamp, lines: &[HistoryLine]) -> Vec<String> {
    let told: BTreeSet<&RecordId> = lines
        .iter()
        .filter_map(|line| match line {
            HistoryLine::Request(line) => Some(&line.request),
            HistoryLine::Machine(_)
            | HistoryLine::LaunchFailure(_)
            | HistoryLine::Statement(_)
            | HistoryLine::Event(_) => None,
        })
        .collect();
    let over = laws.requests().filter(|request| {
        request.phase().is_final() && request.status.ended_at.is_some_and(|ended| ended > begun)
    });
    over.map(|request| RecordId::from(&request.id))
        .filter(|key| !told.contains(key) && !truth.late.contains(key))
        .map(|key| format!("S29 {key}: is over, and the history has no line of it"))
        .collect()
}

type Spent = (i64, i64, Activity, Option<RecordId>);

/// What the ledger says of a machine: from when to when it did what, for whom; neighbours alike are one.
fn told(all: &[Entry], id: &InstanceId, period: Period) -> Vec<Spent> {
    let of = all.iter().filter(|entry| entry.machine.instance_id == *id && entry.from < entry.to);
    let mut told: Vec<Spent> = Vec::new();
    for entry in of.filter_map(|entry| entry.within(period)) {
        join(&mut told, (entry.from, entry.to, entry.activity, entry.request));
    }
    told
}

fn join(spans: &mut Vec<Spent>, next: Spent) {
    match spans.last_mut() {
        Some(last) if (last.1, last.2, &last.3) == (next.0, next.2, &next.3) => last.1 = next.1,
        Some(_) | None => spans.push(next),
    }
}

/// What a machine really did until it last entered the pool or was gone, from the first stretch on that was over after
/// the history began.
fn lived(life: &[Begun], gone: Option<Timestamp>, begun: Timestamp) -> Vec<Spent> {
    let mut starts: Vec<Timestamp> = life.iter().map(|begun| begun.from).collect();
    starts.extend(gone);
    // Two operators' clocks may differ: nothing begins before what was before it.
    for at in 1..starts.len() {
        starts[at] = starts[at].max(starts[at - 1]);
    }
    let pooled = |at: &usize| life.get(*at).is_none_or(|begun| begun.place == Place::IdlePooled);
    let ends: Vec<usize> = (1..starts.len()).filter(pooled).collect();
    let first = ends.iter().position(|end| starts[*end] > begun);
    let Some((first, last)) = first.zip(ends.last()) else { return Vec::new() };
    let first = first.checked_sub(1).map_or(0, |before| ends[before]);
    let mut spans = Vec::new();
    for at in first..*last {
        let (from, to) = (starts[at].as_second(), starts[at + 1].as_second());
        let begun = &life[at];
        let activity = match begun.place {
            Place::CreatedBound | Place::CreatedWarm => Activity::Starting,
            Place::Claimed => Activity::Claimed,
            Place::Running => Activity::Running,
            Place::IdleCleaning => Activity::Cleaning,
            Place::IdlePooled => Activity::Idle,
            Place::IdleHeld => Activity::Held,
            Place::Terminated | Place::Nowhere => Activity::Ending,
        };
        if from < to {
            join(&mut spans, (from, to, activity, begun.request.clone()));
        }
    }
    spans
}

/// The history table as one operator meets it: it is away for minutes, refuses, and loses answers.
struct ShelfOf(Arc<Actor>);

impl ShelfOf {
    fn world(&self) -> &World {
        &self.0.world
    }

    /// What goes wrong before anything happens.
    async fn fails(&self) -> Result<(), StoreError> {
        self.0.enter().await;
        let (world, shelf) = (self.world(), &self.world().shelf);
        if world.fault_rates.calm() {
            return Ok(());
        }
        let away = {
            let mut until = shelf.away_until.lock().unwrap();
            if shelf.chance.in_a_million(30_000) {
                world.trace.tell("* the history is away");
                *until = Some(Instant::now() + shelf.chance.seconds(5..400));
            }
            until.is_some_and(|until| Instant::now() < until)
        };
        if away || shelf.chance.percent(5) {
            sleep(shelf.chance.millis(1..2000)).await;
            return Err(StoreError::Unknown("simulated: the history is away".into()));
        }
        if shelf.chance.percent(5) { Err(StoreError::Throttled) } else { Ok(()) }
    }

    async fn answer<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        self.0.leave().await;
        let world = self.world();
        let lost = !world.fault_rates.calm() && world.shelf.chance.percent(10);
        if lost { Err(StoreError::Unknown("simulated: the answer was lost".into())) } else { outcome }
    }

    fn takes(&self, items: &[Item]) {
        for item in items {
            let Some(key) = RecordId::of(item) else { continue };
            // Events are for people, and many: they are not kept.
            if key.pk().starts_with("events#") {
                continue;
            }
            let before = self.world().shelf.store.records();
            let before = before.iter().find(|before| RecordId::of(before).as_ref() == Some(&key));
            // A request whose key the history did not answer about may have been served under it a second time.
            let is_line = !key.pk().starts_with("request#");
            if let Some(before) = before.filter(|before| is_line && *before != item) {
                self.world()
                    .broke(format!("S30 {key}: written again, and not as it was: {before:?} {item:?}"));
            }
            self.world().shelf.store.put(item.clone());
        }
    }
}

#[async_trait]
impl Store for ShelfOf {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        panic!("nobody gets {key} of the history")
    }

    async fn list(&self, _: Option<&RecordId>) -> Result<Page, StoreError> {
        panic!("nobody lists the history")
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.fails().await?;
        let page = self.world().shelf.store.query(pk, sk_prefix, after).await;
        self.answer(page).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.fails().await?;
        let store = &self.world().shelf.store;
        let written = store.write(write).await;
        self.answer(written).await
    }

    async fn transact(&self, _: &[Write]) -> Result<(), StoreError> {
        panic!("nobody changes the history")
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        if let Err(error) = self.fails().await {
            let taken_for_written = self.world().bug == Some(Bug::LinesTakenForWritten);
            return if taken_for_written { Ok(0) } else { Err(error) };
        }
        let is_request = |item: &Item| RecordId::of(item).is_some_and(|key| key.request().is_some());
        if self.world().bug == Some(Bug::MovedUnkept) && items.iter().any(is_request) {
            return Ok(0);
        }
        // A batch is no transaction: some of it may be refused.
        let calm = self.world().fault_rates.calm();
        let some = items.len() - usize::from(!calm && self.world().shelf.chance.percent(5));
        self.takes(&items[..some]);
        self.answer(Ok(items.len() - some)).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        panic!("nobody watches the history")
    }
}

/// The lease as one writes it who says that all was delivered before it was.
pub(crate) fn ahead_of_delivery(set: &mut Item) {
    let now = set.get("updatedAt").cloned();
    if set.contains_key("historyUntil")
        && let Some(now @ AttributeValue::S(_)) = now
    {
        set.insert("historyUntil".into(), now);
    }
}
