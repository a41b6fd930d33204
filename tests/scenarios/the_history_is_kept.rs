//! What is over is in the history table, each second of each machine once, whoever crashed and whatever failed; and
//! nothing waits for that table.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::Timestamp;
use runyard_core::model::history::{Activity, HistoryLine, MOST_PAST_SPANS, MachineLine, StatementLine};
use runyard_core::model::{AttributeValue, Event, Instance, Item, Lease, RecordId, Write};
use runyard_core::ports::{Page, Signer, Store, StoreError, Watch};
use runyard_core::statement::{Envelope, Outcome, Statement, digest_of};
use runyard_fakes::{MemoryStore, PaperKey};
use runyard_operator::controller::{HistoryTable, Ports};
use serde_json::json;

use runyard_tests::agents::Habit;
use runyard_tests::world::{World, linux};

/// How the history table behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Good,
    /// There is no such table.
    Missing,
    /// No call is answered, and none is carried out.
    Away,
    /// What is written is there, and the answer is lost.
    Mute,
}

/// The history table, counting what is written to it and remembering every form of a line.
#[derive(Clone)]
struct Shelf {
    store: MemoryStore,
    mood: Arc<AtomicU8>,
    written: Arc<AtomicUsize>,
    forms: Arc<Mutex<BTreeMap<RecordId, Item>>>,
}

impl Shelf {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            mood: Arc::default(),
            written: Arc::default(),
            forms: Arc::default(),
        }
    }

    fn is(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }

    fn enter(&self) -> Result<(), StoreError> {
        match self.mood.load(Ordering::SeqCst) {
            mood if mood == Mood::Missing as u8 => Err(StoreError::NoTable("yard-history".into())),
            mood if mood == Mood::Away as u8 => Err(StoreError::Unknown("away".into())),
            _ => Ok(()),
        }
    }

    /// An operator over this table and another's.
    fn over(&self) -> impl Fn(Ports) -> Ports + use<> {
        self.signed_by(None)
    }

    /// The same, and the operator signs statements with this key.
    fn signed_by(&self, signer: Option<Arc<dyn Signer>>) -> impl Fn(Ports) -> Ports + use<> {
        let history =
            HistoryTable { store: Arc::new(self.clone()), events: true, keep: 90 * 24 * 3600, signer };
        move |ports| Ports { history: Some(history.clone()), ..ports }
    }

    fn lines(&self) -> Vec<HistoryLine> {
        self.store.records().iter().map(|item| HistoryLine::of_item(item).unwrap()).collect()
    }

    fn machines(&self) -> BTreeMap<String, Vec<MachineLine>> {
        let mut lives: BTreeMap<String, Vec<MachineLine>> = BTreeMap::new();
        for line in self.lines() {
            if let HistoryLine::Machine(line) = line {
                lives.entry(line.instance_id.to_string()).or_default().push(line);
            }
        }
        lives.values_mut().for_each(|lines| lines.sort_by_key(MachineLine::from));
        lives
    }

    /// The statements, each with the digest of a line that it names.
    fn statements(&self) -> Vec<Statement> {
        let statement = |line| match line {
            HistoryLine::Statement(line) => Some(opened(&line)),
            _ => None,
        };
        self.lines().into_iter().filter_map(statement).collect()
    }

    fn events(&self) -> Vec<Event> {
        let event = |line| match line {
            HistoryLine::Event(event) => Some(event),
            _ => None,
        };
        self.lines().into_iter().filter_map(event).collect()
    }
}

fn opened(line: &StatementLine) -> Statement {
    let opened = Envelope::parse(&line.envelope).unwrap().open(|keyid, bytes, signature| {
        assert_eq!((keyid.to_owned(), signature.to_vec()), PaperKey.sign(bytes));
        Ok(())
    });
    let statement = opened.unwrap();
    assert_eq!(
        (&statement.predicate.claim.id, statement.predicate.claim.request.as_ref()),
        (&line.claim_id, Some(&line.request))
    );
    statement
}

#[async_trait]
impl Store for Shelf {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        panic!("nobody gets {key} of the history")
    }
    async fn list(&self, _: Option<&RecordId>) -> Result<Page, StoreError> {
        panic!("nobody lists the history")
    }
    async fn query(&self, pk: &str, prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.enter()?;
        self.store.query(pk, prefix, after).await
    }
    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        panic!("nobody changes {} of the history", write.key)
    }
    async fn transact(&self, _: &[Write]) -> Result<(), StoreError> {
        panic!("nobody changes the history")
    }
    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.enter()?;
        self.written.fetch_add(items.len(), Ordering::SeqCst);
        for item in items {
            let before = self.forms.lock().unwrap().insert(RecordId::of(item).unwrap(), item.clone());
            assert!(
                before.is_none_or(|before| before == *item),
                "a line is written again as it was: {item:?}"
            );
        }
        let dropped = self.store.append(items).await?;
        if self.mood.load(Ordering::SeqCst) == Mood::Mute as u8 {
            return Err(StoreError::Unknown("the answer was lost".into()));
        }
        Ok(dropped)
    }
    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        panic!("nobody watches the history")
    }
}

/// The lines are the machines' lives: every second from the launch until it was gone, or until it entered the pool for
/// the last time, is in one span of one line.
fn conserved(shelf: &Shelf, world: &World) {
    let lives = shelf.machines();
    for instance in world.all::<Instance>() {
        let lines = lives.get(instance.facts.instance_id.as_str()).cloned().unwrap_or_default();
        let mut at = instance.facts.created_at;
        for span in lines.iter().flat_map(|line| &line.spans) {
            assert_eq!(span.from, at, "{lines:#?}");
            assert!(span.to >= span.from, "{span:?}");
            at = span.to;
        }
        let until = instance.gone_at().or(instance.pooled_at()).unwrap_or(at);
        assert_eq!(at, until, "{instance:?} {lines:#?}");
    }
}

async fn cycle(world: &World, run: &str) -> RecordId {
    let key = world.provision(run, "linux", 1, json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    world.sleep(30).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    world.sleep(3).await;
    key
}

async fn mark(world: &World) -> Option<Timestamp> {
    world.get::<Lease>(&Lease::key_of(Lease::OPERATOR)).await.and_then(|lease| lease.history_until)
}

/// A yard with one machine that has booted, and its history.
async fn yard() -> (World, Shelf) {
    yard_of(3).await
}

async fn yard_of(most: u32) -> (World, Shelf) {
    let (world, shelf) = (World::new(), Shelf::new());
    world.pool(linux(1, most)).await;
    world.start_over("one", shelf.over());
    world.sleep(60).await;
    (world, shelf)
}

#[tokio::test(start_paused = true)]
async fn each_claim_is_a_line_of_its_machine_and_one_of_its_request() {
    let (world, shelf) = yard().await;
    let key = cycle(&world, "1").await;
    world.sleep(30).await;
    let requests: Vec<_> = shelf
        .lines()
        .into_iter()
        .filter_map(|line| match line {
            HistoryLine::Request(line) => Some(line),
            _ => None,
        })
        .collect();
    let request = world.request(&key).await;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].request, key);
    assert_eq!(Some(requests[0].ended_at), request.status.ended_at);
    assert!(requests[0].ready_at <= requests[0].released_at && requests[0].released_at.is_some());
    let claimed: Vec<_> =
        shelf.machines().into_values().flatten().filter(|line| line.claims().count() > 0).collect();
    assert_eq!(claimed.len(), 1, "{claimed:#?}");
    let activities: Vec<_> = claimed[0].spans.iter().map(|span| span.activity).collect();
    assert_eq!(activities, [Activity::Idle, Activity::Claimed, Activity::Running, Activity::Cleaning]);
    assert!(claimed[0].spans[1..].iter().all(|span| span.request == Some(key.clone())));
    conserved(&shelf, &world);
    assert!(shelf.events().iter().any(|event| event.reason == "Ready"), "events are there too");
    assert!(world.all::<Event>().is_empty(), "and not in the table that is listed");
}

#[tokio::test(start_paused = true)]
async fn records_forget_what_was_delivered_and_a_restart_writes_nothing() {
    let (world, shelf) = yard().await;
    cycle(&world, "1").await;
    let over = world.at();
    world.sleep(600).await;
    assert!(mark(&world).await > Some(over), "the lease says that all of it was delivered");
    let second = cycle(&world, "2").await;
    let machines = world.instances();
    let served = machines.iter().find(|one| one.claim.as_ref().is_some_and(|claim| claim.request == second));
    let spans = &served.expect("it served it").spans;
    assert_eq!(spans.len(), 4, "its boot was delivered before: {spans:?}");
    world.sleep(900).await;
    world.stop().await;
    let (lines, written) = (shelf.lines().len(), shelf.written.load(Ordering::SeqCst));
    world.start_over("two", shelf.over());
    world.sleep(60).await;
    assert_eq!((shelf.lines().len(), shelf.written.load(Ordering::SeqCst)), (lines, written));
    conserved(&shelf, &world);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_was_delivered_is_not_offered_again_by_each_list() {
    let (world, shelf) = yard_of(1).await;
    cycle(&world, "1").await;
    world.sleep(300).await;
    // Each event is one write.
    let lines = || shelf.written.load(Ordering::SeqCst) - shelf.events().len();
    let written = lines();
    world.calls.take();
    // Within the hour that it began in: closed hours are lines of their own.
    world.sleep(2400).await;
    assert!(world.calls.take().iter().filter(|call| call.name == "list").count() > 1);
    assert_eq!(lines(), written);
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_delivery_loses_no_line() {
    for mood in [Mood::Away, Mood::Mute] {
        let (world, shelf) = yard().await;
        world.sleep(400).await;
        shelf.is(mood);
        for run in ["1", "2", "3"] {
            cycle(&world, run).await;
        }
        // Long enough that a mark which does not wait for the delivery passes it.
        world.sleep(900).await;
        world.kill();
        shelf.is(Mood::Good);
        world.start_over("two", shelf.over());
        world.sleep(600).await;
        conserved(&shelf, &world);
        let requests = shelf.lines().iter().filter(|line| matches!(line, HistoryLine::Request(_))).count();
        assert_eq!(requests, 3, "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_table_that_is_away_delays_no_claim() {
    let waits = async |mood: Mood| {
        let (world, shelf) = yard().await;
        shelf.is(mood);
        let mut waits = Vec::new();
        for run in 0..20 {
            let begun = world.at();
            let key = world.provision(&run.to_string(), "linux", 1, json!({})).await;
            world.until_phase(&key, "Ready", 60).await;
            waits.push(world.request(&key).await.status.ready_at.unwrap().duration_since(begun));
            world.release(&key).await;
            world.until_phase(&key, "Released", 60).await;
            world.sleep(3).await;
        }
        let kept = world.instances().iter().map(|machine| machine.spans.len()).max();
        assert!(kept <= Some(MOST_PAST_SPANS), "{kept:?}");
        shelf.is(Mood::Good);
        world.sleep(900).await;
        conserved(&shelf, &world);
        waits
    };
    assert_eq!(waits(Mood::Away).await, waits(Mood::Good).await);
}

#[tokio::test(start_paused = true)]
async fn without_a_history_table_all_stays_as_it_was_until_there_is_one() {
    let (world, shelf) = (World::new(), Shelf::new());
    shelf.is(Mood::Missing);
    world.pool(linux(1, 3)).await;
    world.start_over("one", shelf.over());
    world.sleep(60).await;
    cycle(&world, "1").await;
    cycle(&world, "2").await;
    assert_eq!(mark(&world).await, None);
    assert!(!world.all::<Event>().is_empty(), "events are where they were");
    assert!(world.instances().iter().all(|machine| machine.spans.len() <= 4), "nothing is kept for nobody");
    shelf.is(Mood::Good);
    world.sleep(90).await;
    let before = world.all::<Event>().len();
    let key = cycle(&world, "3").await;
    world.sleep(60).await;
    assert_eq!(world.all::<Event>().len(), before, "new ones go to the history");
    let told = |line: &HistoryLine| matches!(line, HistoryLine::Request(line) if line.request == key);
    assert!(shelf.lines().iter().any(told));
}

/// Makes records unreadable, as a newer program's are; answers what they were.
fn spoil(world: &World, spoilt: impl Fn(&RecordId) -> bool) -> Vec<Item> {
    let records = world.store.records();
    let before: Vec<Item> =
        records.into_iter().filter(|item| RecordId::of(item).is_some_and(|key| spoilt(&key))).collect();
    for item in &before {
        let mut newer = item.clone();
        newer.insert("schema".into(), AttributeValue::N("2".into()));
        world.store.put(newer);
    }
    before
}

#[tokio::test(start_paused = true)]
async fn what_an_unreadable_record_would_tell_is_told_once_it_can_be_read() {
    // Read again by the operator that could not read it, and by one that begins then.
    for restarts in [false, true] {
        let (world, shelf) = yard().await;
        world.sleep(400).await;
        shelf.is(Mood::Away);
        let key = cycle(&world, "1").await;
        world.kill();
        let before = spoil(&world, |of| *of == key || matches!(of, RecordId::Instance(_)));
        assert!(before.len() > 1);
        shelf.is(Mood::Good);
        world.start_over("two", shelf.over());
        // Long enough that the mark passes what was over.
        world.sleep(900).await;
        if restarts {
            world.kill();
        }
        before.into_iter().for_each(|item| world.store.put(item));
        if restarts {
            world.start_over("three", shelf.over());
        }
        world.sleep(400).await;
        conserved(&shelf, &world);
        let told = |line: &HistoryLine| matches!(line, HistoryLine::Request(line) if line.request == key);
        assert!(shelf.lines().iter().any(told), "restarts: {restarts}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_late_write_tells_is_told_although_the_mark_passed_it() {
    let (world, shelf) = yard().await;
    let key = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let mut late = world.store.get(&key).await.unwrap().expect("the request is there");
    let at = world.at();
    late.insert("phase".into(), AttributeValue::S("Released".into()));
    late.insert("endedAt".into(), AttributeValue::S(at.to_string()));
    world.sleep(900).await;
    assert!(mark(&world).await > Some(at));
    // As if it had been on its way for so long.
    let version = world.request(&key).await.version + 1;
    late.insert("version".into(), AttributeValue::N(version.to_string()));
    world.store.put(late);
    world.sleep(60).await;
    let told = |line: &HistoryLine| matches!(line, HistoryLine::Request(line) if line.request == key);
    assert!(shelf.lines().iter().any(told));
}

/// A yard whose operator signs statements, and whose agents report what their clean-ups found.
async fn signing_yard() -> (World, Shelf) {
    let (world, shelf) = (World::new(), Shelf::new());
    world.agents.prove();
    world.pool(linux(1, 3)).await;
    world.start_over("one", shelf.signed_by(Some(Arc::new(PaperKey))));
    world.sleep(60).await;
    (world, shelf)
}

#[tokio::test(start_paused = true)]
async fn each_claim_has_one_statement_of_its_line_and_needs_no_write_more() {
    let writes = |world: &World| world.calls.take().iter().filter(|call| call.name == "write").count();
    let counted = async |signs: bool| {
        let (world, shelf) = if signs { signing_yard().await } else { yard().await };
        writes(&world);
        for run in ["1", "2", "3"] {
            cycle(&world, run).await;
        }
        let count = writes(&world);
        world.sleep(60).await;
        (world, shelf, count)
    };
    let (_, unsigned, without) = counted(false).await;
    assert!(unsigned.statements().is_empty() && without > 0);
    let (_world, shelf, with) = counted(true).await;
    assert_eq!(with, without, "a statement needs no write of its own in the yard's table");
    let lines: Vec<_> =
        shelf.machines().into_values().flatten().filter(|line| line.claims().count() > 0).collect();
    let statements = shelf.statements();
    assert_eq!((lines.len(), statements.len()), (3, 3), "{statements:#?}");
    for line in &lines {
        let digest = digest_of(line);
        let of_it = statements.iter().filter(|one| one.subject[0].digest.sha256 == digest).count();
        assert_eq!(of_it, 1, "{line:#?}");
    }
    for said in statements.iter().map(|statement| &statement.predicate) {
        assert!(said.clean && said.claim.outcome == Outcome::Pooled, "{said:#?}");
        let before = said.trust_domain.before.as_deref();
        assert!(before == Some("") || before == Some("owner:acme"), "{said:#?}");
        assert_eq!(said.trust_domain.after, "owner:acme");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_left_something_is_never_said_to_be_clean() {
    let (world, shelf) = signing_yard().await;
    world.agents.all(Habit::CleaningFails);
    cycle(&world, "1").await;
    world.sleep(600).await;
    let statements = shelf.statements();
    assert_eq!(statements.len(), 1, "{statements:#?}");
    let said = &statements[0].predicate;
    assert!(!said.clean && said.claim.outcome == Outcome::Ended, "{said:#?}");
    assert_eq!(said.failed, ["cleaning.files", "signal"]);
}

#[tokio::test(start_paused = true)]
async fn a_statement_survives_a_crash_before_the_delivery_as_it_was() {
    for mood in [Mood::Away, Mood::Mute] {
        let (world, shelf) = signing_yard().await;
        shelf.is(mood);
        for run in ["1", "2", "3"] {
            cycle(&world, run).await;
        }
        world.sleep(900).await;
        world.kill();
        shelf.is(Mood::Good);
        world.start_over("two", shelf.signed_by(Some(Arc::new(PaperKey))));
        world.sleep(600).await;
        let statements = shelf.statements();
        assert!(statements.len() == 3 && statements.iter().all(|one| one.predicate.clean), "{mood:?}");
    }
}
