//! Changes go before the units that a full list marks, however many those are.

use runyard_fakes::{FakeCompute, MemoryQueue, MemoryStore, SeededEntropy, TokioClock, as_shipped};
use serde_json::json;

use super::slices::SLICE;
use super::*;
use crate::controller::GitHubWatch;
use crate::metrics::Metrics;
use crate::model::{
    Instance, InstanceArn, InstanceFacts, InstanceId, Item, Life, Record as _, RecordId, Slot, Threshold,
    UsageClass,
};

fn settings() -> Settings {
    Settings {
        identity: "one".into(),
        table: "runyard".parse().unwrap(),
        organization: false,
        rebalance: crate::model::Rebalance::Last,
        timing: as_shipped(),
        requests_per_repository: 2000,
        runner_version: None,
        following: Default::default(),
        sharing: Default::default(),
        prices: Default::default(),
        sweep: Duration::from_secs(60),
        github: GitHubWatch::default(),
        ended_stays: crate::decide::Policy::ENDED_STAYS,
    }
}

/// Creates a loop that leads, with its ports in memory.
async fn leading() -> (Loop, Inputs) {
    let clock = Arc::new(TokioClock::starting("2026-01-05T12:00:00Z".parse().unwrap()));
    let entropy = Arc::new(SeededEntropy::new(7));
    let ports = Ports {
        store: Arc::new(MemoryStore::new()),
        queue: Arc::new(MemoryQueue::new(clock.clone())),
        compute: Arc::new(FakeCompute::new(clock.clone(), entropy.clone())),
        github: None,
        notices: None,
        doorbell: None,
        scale_sets: None,
        job_bell: None,
        history: None,
        metrics: Metrics::new(clock.clone()),
        clock: clock.clone(),
        entropy,
    };
    let (settings, health) = (settings(), Arc::new(Health::new(clock)));
    let asks = health.snapshots().answer();
    let started = BackgroundTasks::start(&ports, &settings, asks, &CancellationToken::new()).await;
    let (mut state, inputs, _) = Loop::new(ports, &settings, health, started);
    state.role.lease = Some(1);
    (state, inputs)
}

fn item(fields: serde_json::Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(fields).unwrap();
    item.into_inner().into_iter().collect()
}

fn pool() -> Item {
    item(
        json!({"pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 1, "resourceClass": "linux", "max": 9}),
    )
}

/// Builds a machine that boots, and whose deadline is far.
fn machine(number: usize, state: &Loop) -> Item {
    let id = InstanceId::parse(&format!("i-{number:05}")).unwrap();
    let now = state.now().wall;
    let facts = InstanceFacts {
        instance_arn: InstanceArn::local(&id),
        instance_id: id,
        resource_class: "linux".parse().unwrap(),
        instance_type: "m7i.large".into(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mmem: 4096,
        availability_zone: "local-a".into(),
        launch_id: None,
        launch_digest: None,
        created_at: now,
    };
    let threshold = Some(Threshold { at: now + jiff::SignedDuration::from_secs(900), set_at: now });
    Instance { threshold, version: 1, ..Instance::born(facts, Life::Created { run: None }) }.to_item()
}

fn request() -> Item {
    item(json!({
        "pk": "request#acme/web#1", "sk": "request#default#1", "kind": "request", "version": 1,
        "runId": "1", "attempt": 1, "repository": "acme/web", "name": "default", "resourceClass": "linux", "count": 1,
        "desired": "provisioned", "generation": 1, "createdAt": "2026-01-05T12:00:00Z",
    }))
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_while_a_full_list_is_judged_waits_for_one_slice() {
    let (mut state, _inputs) = leading().await;
    let mut items: Vec<Item> = (0..5 * SLICE).map(|number| machine(number, &state)).collect();
    items.push(pool());
    let mut keys = BTreeSet::new();
    for item in items {
        let key = RecordId::of(&item).unwrap();
        keys.insert(key.clone());
        state.observe(Observation::Record(key, Some(item)));
    }
    state.settle_with_slice();
    assert!(state.yard.busy.is_empty(), "nothing is judged before the first full list");
    let units = state.yard.units();
    state.mark(units);
    assert!(state.wait(Duration::ZERO).is_some(), "and the loop sleeps until then");
    state.listing.in_flight = Some((Duration::ZERO, BTreeSet::new()));
    state.listed(keys);
    let all = state.slices.len();
    assert!(all > 5 * SLICE && state.dirty.is_empty(), "{all} units are judged in slices");
    state.settle_with_slice();
    assert_eq!(state.wait(Duration::ZERO), None, "the next slice does not wait");
    let request = request();
    let key = RecordId::of(&request).unwrap();
    state.observe(Observation::Record(key.clone(), Some(request)));
    state.settle_with_slice();
    assert!(state.yard.is_busy(Slot::Record(key)), "the request is being accepted");
    // Its class and itself were judged for the change, and are in no slice any more.
    assert!((all - 2 * SLICE - 2..=all - 2 * SLICE).contains(&state.slices.len()), "{}", state.slices.len());
    let mut turns = 0;
    while !state.slices.is_empty() {
        state.settle_with_slice();
        turns += 1;
    }
    assert!(turns >= 3, "the rest took {turns} slices");
    assert!(state.wait(Duration::ZERO).is_some());
}
