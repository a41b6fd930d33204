//! A day after its end the record of a request moves to the history table: lists of the yard's table do not read it any
//! more, its key stays used, and later attempts of its run still find it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::decide::Policy;
use runyard_core::model::{Guard, Item, Operation, Phase, Reading, RecordId, Request, Write, read};
use runyard_core::ports::github::{JobState, RunState, WorkflowJob};
use runyard_core::ports::{Page, Store, StoreError, Watch};
use runyard_fakes::MemoryStore;
use runyard_operator::controller::{HistoryTable, Ports};
use serde_json::json;

use runyard_tests::world::{World, linux};

/// The age at which a record has moved: a day, the mark of the history and a list later.
const MOVED: Duration = Duration::from_secs(Policy::ENDED_STAYS.as_secs() as u64 + 900);

/// An operator with this history table.
fn with(store: Arc<dyn Store>) -> impl FnOnce(Ports) -> Ports {
    let history = HistoryTable { store, events: true, keep: 90 * 24 * 3600, signer: None };
    move |ports| Ports { history: Some(history), ..ports }
}

/// The record of a request in a table.
fn record(table: &MemoryStore, key: &RecordId) -> Option<Request> {
    let item = table.records().into_iter().find(|item| RecordId::of(item).as_ref() == Some(key))?;
    match read::<Request>(&item) {
        Reading::Record(request) => Some(request),
        other => panic!("{other:?}"),
    }
}

/// A run that asked, was ready and is over.
async fn over(world: &World, run: &str) -> RecordId {
    let key = world.provision(run, "linux", 1, json!({})).await;
    world.until_phase(&key, "Ready", 300).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 300).await;
    key
}

#[tokio::test(start_paused = true)]
async fn a_day_after_its_end_a_record_is_in_the_history_as_it_was() {
    let (world, history) = (World::new(), MemoryStore::new());
    world.pool(linux(0, 2)).await;
    world.start_over("one", with(Arc::new(history.clone())));
    let first = over(&world, "41").await;
    let last = over(&world, "42").await;
    let before = record(&world.store, &first).unwrap();
    world.sleep(Policy::ENDED_STAYS.as_secs() as u64 - 900).await;
    assert!(
        record(&world.store, &first).is_some() && record(&history, &first).is_none(),
        "its day is not over"
    );
    world.sleep(1800).await;
    assert_eq!((record(&world.store, &first), record(&history, &first)), (None, Some(before)));
    assert!(record(&world.store, &last).is_some(), "by the last run its repository is known");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_used_stays_used_after_its_record_moved() {
    let (world, history) = (World::new(), MemoryStore::new());
    world.pool(linux(0, 2)).await;
    world.start_over("one", with(Arc::new(history.clone())));
    let first = over(&world, "41").await;
    over(&world, "42").await;
    world.sleep(MOVED.as_secs()).await;
    assert!(record(&world.store, &first).is_none());
    let again = world.provision("41", "linux", 1, json!({})).await;
    world.until_phase(&again, "Failed", 60).await;
    let refused = record(&world.store, &again).unwrap();
    assert!(refused.status.message.starts_with("KeyTaken: "), "{}", refused.status.message);
    assert!(refused.status.served.is_empty(), "it got no machine");
    // Its own record does not replace that of the one before.
    world.sleep(MOVED.as_secs()).await;
    assert!(record(&world.store, &again).is_none());
    assert_eq!(record(&history, &first).unwrap().phase(), Phase::Released);
}

#[tokio::test(start_paused = true)]
async fn without_a_history_table_an_ended_request_stays() {
    let world = World::new();
    world.pool(linux(0, 2)).await;
    world.start();
    let first = over(&world, "41").await;
    over(&world, "42").await;
    world.sleep(MOVED.as_secs()).await;
    assert!(record(&world.store, &first).is_some());
}

/// What a table does not carry out, and never answers.
#[derive(Clone, Copy)]
enum Refuses {
    Everything,
    /// The removal of a request.
    Removals,
}

/// A table that fails while it is told to.
#[derive(Clone)]
struct Failing {
    table: MemoryStore,
    fails: Arc<AtomicBool>,
    refuses: Refuses,
}

impl Failing {
    fn new(table: &MemoryStore, refuses: Refuses) -> Self {
        Self { table: table.clone(), fails: Arc::new(AtomicBool::new(true)), refuses }
    }

    fn fails(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    fn enter(&self, removal: bool) -> Result<(), StoreError> {
        let refused = match self.refuses {
            Refuses::Everything => true,
            Refuses::Removals => removal,
        };
        if refused && self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::Unknown("nobody answers".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Failing {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.enter(false)?;
        self.table.get(key).await
    }
    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.enter(false)?;
        self.table.list(after).await
    }
    async fn query(&self, pk: &str, prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.enter(false)?;
        self.table.query(pk, prefix, after).await
    }
    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        let removal = matches!(write.operation, Operation::Delete(Guard::Version(_) | Guard::Image(..)));
        self.enter(removal && write.key.request().is_some())?;
        self.table.write(write).await
    }
    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.enter(false)?;
        self.table.transact(writes).await
    }
    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.enter(false)?;
        self.table.append(items).await
    }
    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.table.watch().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_copy_and_removal_is_made_up_for() {
    let (world, history) = (World::new(), MemoryStore::new());
    world.pool(linux(0, 2)).await;
    let store = Arc::new(Failing::new(&world.store, Refuses::Removals));
    let first_operator =
        world.start_over("one", |ports| with(Arc::new(history.clone()))(Ports { store, ..ports }));
    let first = over(&world, "41").await;
    over(&world, "42").await;
    world.sleep(MOVED.as_secs()).await;
    let copy = record(&history, &first).expect("the copy comes first");
    assert_eq!(record(&world.store, &first), Some(copy.clone()), "and the record stays until it is removed");
    first_operator.cancel();
    world.start_over("two", with(Arc::new(history.clone())));
    world.sleep(900).await;
    assert_eq!((record(&world.store, &first), record(&history, &first)), (None, Some(copy)));
}

#[tokio::test(start_paused = true)]
async fn a_history_table_that_fails_refuses_no_request_and_loses_no_record() {
    let (world, history) = (World::new(), MemoryStore::new());
    world.pool(linux(0, 2)).await;
    let failing = Failing::new(&history, Refuses::Everything);
    failing.fails(false);
    world.start_over("one", with(Arc::new(failing.clone())));
    let first = over(&world, "41").await;
    over(&world, "42").await;
    failing.fails(true);
    world.sleep(MOVED.as_secs()).await;
    assert!(record(&world.store, &first).is_some());
    let next = world.provision("43", "linux", 1, json!({})).await;
    world.until_phase(&next, "Ready", 300).await;
    failing.fails(false);
    world.sleep(1800).await;
    assert!(record(&world.store, &first).is_none() && record(&history, &first).is_some());
}

/// GitHub allows a re-run for thirty days.
#[tokio::test(start_paused = true)]
async fn jobs_that_are_run_again_after_two_days_get_what_the_run_asked_for() {
    let (world, history) = (World::with_github(), MemoryStore::new());
    world.pool(linux(0, 2)).await;
    world.start_over("one", with(Arc::new(history.clone())));
    world.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    let add = |name: &str, label: &str, state: JobState| {
        let over = state == JobState::Succeeded;
        world.github.add_job(
            "acme",
            "web",
            41,
            WorkflowJob {
                name: name.to_owned(),
                labels: vec![label.to_owned()],
                state,
                attempt: 1,
                started_at: Some(world.at()),
                completed_at: over.then(|| world.at()),
                runner: None,
            },
        );
    };
    let first = world.provision("41", "linux", 1, json!({})).await;
    add("provision", "ubuntu-latest", JobState::Succeeded);
    add("build", "41", JobState::Queued);
    world.until_phase(&first, "Ready", 300).await;
    let now = world.at();
    world.github.change_jobs("acme", "web", 41, 1, |job| {
        if job.name == "build" {
            (job.state, job.completed_at) = (JobState::Failed, Some(now));
        }
    });
    world.release(&first).await;
    world.until_phase(&first, "Released", 300).await;
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    world.github.set_run("acme", "web", 42, RunState::Active { attempt: 1 });
    over(&world, "42").await;
    world.github.set_run("acme", "web", 42, RunState::Completed { attempt: 1 });
    world.sleep(2 * MOVED.as_secs()).await;
    assert!(record(&world.store, &first).is_none());
    assert_eq!(world.github.rerun("acme", "web", 41, false), Ok(2));
    let second = RecordId::new("request#acme/web#41", "request#default#2");
    world.sleep(180).await;
    let derived = record(&world.store, &second).expect("the jobs of the second attempt are asked for");
    assert_eq!((derived.phase(), derived.status.derived_from), (Phase::Ready, Some(1)));
}
