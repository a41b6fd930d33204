use super::*;
use crate::metrics::Metrics;
use crate::model::{Launch, LaunchId, LaunchPhase, Lease, UsageClass};
use crate::ports::Refusal;
use runyard_fakes::{FakeCompute, Fault, MemoryQueue, MemoryStore, SeededEntropy, TokioClock};

fn executor(store: &MemoryStore) -> Executor {
    let clock = Arc::new(TokioClock::starting("2026-01-05T12:00:00Z".parse().unwrap()));
    let entropy = Arc::new(SeededEntropy::new(7));
    let ports = Ports {
        store: Arc::new(store.clone()),
        queue: Arc::new(MemoryQueue::new(clock.clone())),
        compute: Arc::new(FakeCompute::new(clock.clone(), entropy.clone())),
        github: None,
        notices: None,
        doorbell: None,
        scale_sets: None,
        job_bell: None,
        history: None,
        metrics: Metrics::new(clock.clone()),
        clock,
        entropy,
    };
    let (receipts, unsettled) = (Receipts::default(), Unsettled::default());
    Executor { ports, issuer: None, verify_removed: false, receipts, unsettled }
}

/// Returns a table whose lease has token 1.
fn table() -> MemoryStore {
    let store = MemoryStore::new();
    let lease = Lease {
        name: Lease::OPERATOR.into(),
        holder: "us".into(),
        token: 1,
        renewals: 0,
        term_seconds: 15.0,
        requested_at: None,
        completed_at: None,
        operator_version: None,
        history_until: None,
        version: 1,
        updated_at: None,
    };
    store.put(lease.to_item());
    store
}

/// Returns an intent of class `linux`.
pub(in crate::controller) fn intent() -> Planned {
    let now = "2026-01-05T12:00:00Z".parse().unwrap();
    let id = LaunchId::parse("unnamed").unwrap();
    let launch = Launch {
        client_token: Launch::token_of(&id, 1),
        launch_id: id,
        attempt: 1,
        resource_class: "linux".parse().unwrap(),
        usage_class: UsageClass::OnDemand,
        count: 2,
        request: None,
        launch_digest: None,
        phase: LaunchPhase::Intent,
        instances: Vec::new(),
        message: String::new(),
        created_at: now,
        expires_at: None,
        uid: None,
        version: 1,
        updated_at: now,
    };
    Planned::intend(launch, 1)
}

fn launches(store: &MemoryStore) -> usize {
    let launch = |item: &crate::model::Item| {
        crate::model::RecordId::of(item).is_some_and(|key| key.kind() == Some(crate::model::Kind::Launch))
    };
    store.records().iter().filter(|item| launch(item)).count()
}

fn lost() -> Fault<StoreError> {
    Fault::LoseAnswer(StoreError::Unknown("reset".into()))
}

fn shows_a_launch(outcome: &Outcome) -> bool {
    outcome.seen.iter().any(|seen| match seen {
        Observation::Record(key, Some(_)) | Observation::Looked(_, key, Some(_)) => {
            key.kind() == Some(crate::model::Kind::Launch)
        }
        Observation::Written(written) => matches!(**written, Written::Launch(_)),
        _ => false,
    })
}

#[tokio::test(start_paused = true)]
async fn an_intent_whose_answer_was_lost_is_looked_for_under_its_own_name() {
    let store = table();
    let executor = executor(&store);
    store.next_write(lost());
    let outcome = executor.execute(intent()).await;
    assert!(outcome.failure.is_none() && shows_a_launch(&outcome), "{outcome:?}");
}

/// The model of the launch found this in two steps: an operator without a response to its intent wrote a second one
/// under another name, and with both the class exceeded its `max`.
#[tokio::test(start_paused = true)]
async fn an_intent_of_which_nothing_is_known_is_not_written_twice_under_two_names() {
    let store = table();
    let executor = executor(&store);
    store.next_write(lost());
    store.next_read(Fault::Fail(StoreError::Unknown("reset".into())));
    store.next_read(Fault::Fail(StoreError::Unknown("reset".into())));
    let first = executor.execute(intent()).await;
    assert!(first.failure.is_some());
    store.heal();
    let second = executor.execute(intent()).await;
    assert!(shows_a_launch(&second), "{second:?}");
    assert_eq!(launches(&store), 1);
    let third = executor.execute(intent()).await;
    assert!(third.failure.is_none(), "a name that is known to be used is not kept: {third:?}");
    assert_eq!(launches(&store), 2);
}

/// The first attempt was applied and its response was lost; the error belongs to a retry below.
#[tokio::test(start_paused = true)]
async fn no_error_is_taken_for_proof_that_an_intent_was_not_written() {
    for error in [
        StoreError::Throttled,
        StoreError::Contended,
        StoreError::Unknown("reset".into()),
        StoreError::Denied("the session ended".into()),
        StoreError::NoTable("it is being changed".into()),
        StoreError::Invalid("another request of this token".into()),
    ] {
        let store = table();
        let executor = executor(&store);
        store.next_write(Fault::LoseAnswer(error.clone()));
        let seen = executor.execute(intent()).await;
        assert!(shows_a_launch(&seen), "it is looked for after {error}: {seen:?}");

        store.next_write(Fault::LoseAnswer(error.clone()));
        store.next_read(Fault::Fail(StoreError::Throttled));
        store.next_read(Fault::Fail(StoreError::Throttled));
        let unseen = executor.execute(intent()).await;
        assert!(unseen.failure.is_some() && !shows_a_launch(&unseen), "{unseen:?}");
        store.heal();
        let next = executor.execute(intent()).await;
        assert!(shows_a_launch(&next), "the next intent meets the one before it after {error}: {next:?}");
        assert_eq!(launches(&store), 2, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_intent_that_stands_in_the_way_and_is_not_shown_keeps_its_name() {
    let store = table();
    let executor = executor(&store);
    store.next_write(Fault::LoseAnswer(StoreError::Throttled));
    store.next_read(Fault::Fail(StoreError::Throttled));
    executor.execute(intent()).await;
    let name = executor.unsettled.lock().unwrap().values().next().cloned().expect("a name that is kept");
    let refusals = vec![Refusal { key: Launch::key_of(&name), current: None }];
    store.next_write(Fault::Fail(StoreError::Refused { refusals }));
    store.next_read(Fault::Fail(StoreError::Throttled));
    store.next_read(Fault::Fail(StoreError::Throttled));
    let unseen = executor.execute(intent()).await;
    assert!(!shows_a_launch(&unseen), "{unseen:?}");
    store.heal();
    let next = executor.execute(intent()).await;
    assert!(shows_a_launch(&next), "{next:?}");
    assert_eq!(launches(&store), 1);
}

#[tokio::test(start_paused = true)]
async fn an_intent_that_the_lease_alone_refused_keeps_no_name() {
    let store = table();
    let executor = executor(&store);
    let Effect::Intend(launch, _) = intent().effect else { unreachable!("an intent") };
    let late = executor.execute(Planned::intend(*launch, 2)).await;
    assert!(late.failure.is_some());
    assert_eq!(launches(&store), 0);
    assert!(executor.unsettled.lock().unwrap().is_empty());
}
