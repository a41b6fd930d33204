//! An operator on a real engine whose table takes many pages to list: a peer holds one of them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use runyard_core::model::{AttributeValue, Item, RecordId, TableName, Timing, Write};
use runyard_core::ports::{Clock, Store as _};
use runyard_fakes::as_shipped;
use runyard_operator::controller::{GitHubWatch, Ports, Settings, run};
use runyard_operator::in_process::compute_none::NoCompute;
use runyard_operator::in_process::queue_memory::InProcessQueue;
use runyard_operator::metrics::Metrics;
use runyard_operator::process::clock::{SystemClock, SystemEntropy};
use runyard_operator::status::Health;
use runyard_store::{DynamoStore, Watching};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ports::store::sdk_config;
use crate::ports::wire::{Plan, peer};
use runyard_support::engine::Engine;

fn settings() -> Settings {
    Settings {
        identity: "one".into(),
        table: table(),
        organization: false,
        rebalance: runyard_core::model::Rebalance::Last,
        timing: Timing { resync: Duration::from_millis(200), ..as_shipped() },
        sweep: Duration::from_secs(60),
        requests_per_repository: 2000,
        runner_version: None,
        following: Default::default(),
        sharing: Default::default(),
        prices: Default::default(),
        github: GitHubWatch::default(),
        ended_stays: runyard_core::decide::Policy::ENDED_STAYS,
    }
}

fn table() -> TableName {
    TableName::parse("runyard").unwrap()
}

fn item(value: serde_json::Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(value).unwrap();
    item.into_inner().into_iter().collect()
}

async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while !so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The last page of the second list is held back until an intent was taken in: it would be for ever if one waited for
/// the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_is_taken_in_before_the_last_page_of_a_list_is_served() {
    let engine = Engine::dynoxide_memory();
    let direct = DynamoStore::connect(table(), &sdk_config(engine.endpoint()).await);
    direct.create_table().await.unwrap();
    let event = |number| item(serde_json::json!({"pk": format!("pool#{number}"), "sk": "event#1"}));
    let events: Vec<Item> = (0..40).map(event).collect();
    assert_eq!(direct.append(&events).await.unwrap(), 0, "all are kept");
    let (release, released) = watch::channel(false);
    let (pages, held) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let holding = held.clone();
    let judge = move |call: &str, _: usize, _: &serde_json::Value| {
        // Ten pages and a little more are a list; the fifteenth page is in the midst of the second.
        if call == "Scan" && pages.fetch_add(1, Ordering::SeqCst) >= 15 {
            holding.fetch_add(1, Ordering::SeqCst);
            return Plan::When(released.clone(), Box::new(Plan::Pass));
        }
        Plan::Pass
    };
    let (endpoint, _) = peer(engine.endpoint(), judge).await;
    let often = Watching { every: Duration::from_millis(10), ..Watching::default() };
    let store = DynamoStore::connect(table(), &sdk_config(&endpoint).await).watching(often).paged(4);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let ports = Ports {
        store: Arc::new(store),
        queue: Arc::new(InProcessQueue::new(clock.clone(), runyard_core::model::ANNOUNCED)),
        compute: Arc::new(NoCompute::new(clock.clone())),
        github: None,
        notices: None,
        doorbell: None,
        scale_sets: None,
        job_bell: None,
        history: None,
        clock: clock.clone(),
        entropy: Arc::new(SystemEntropy),
        metrics: Metrics::new(clock.clone()),
    };
    let (stop, health) = (CancellationToken::new(), Arc::new(Health::new(clock)));
    let running = tokio::spawn(run(ports, settings(), health, stop.clone()));
    until("a page of the second list is held", async || held.load(Ordering::SeqCst) > 0).await;
    let key = RecordId::new("request#acme/web#1", "request#default#1");
    let intent = item(serde_json::json!({
        "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 1, "runId": "1", "attempt": 1,
        "repository": "acme/web", "name": "default", "resourceClass": "nowhere", "count": 1,
        "desired": "provisioned", "generation": 1,
    }));
    direct.write(&Write::create(key.clone(), intent)).await.unwrap();
    let failed = Some(AttributeValue::S("Failed".into()));
    until("it is refused: there is no such class", async || {
        direct.get(&key).await.unwrap().and_then(|item| item.get("phase").cloned()) == failed
    })
    .await;
    // Only now is a page served again.
    release.send_replace(true);
    stop.cancel();
    running.await.unwrap().unwrap();
}
