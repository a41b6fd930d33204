use std::time::Duration;

use serde_json::json;

use runyard_core::model::{Agent, Guard, Write};
use runyard_core::ports::Store;
use runyard_tests::world::{World, item, linux};

/// The value of the one series that begins so.
fn value(text: &str, series: &str) -> f64 {
    let prefix = format!("{series} ");
    let found = text.lines().find_map(|line| line.strip_prefix(&prefix));
    found.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn where_the_time_of_machines_goes_is_counted_once_for_all_operators() {
    let world = World::new();
    world.pool(linux(2, 4)).await;
    world.start_as("one");
    world.start_as("two");
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    world.sleep(100).await;
    let key = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&key, "Ready", 30).await;
    world.sleep(50).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 30).await;

    let text = world.metrics.render();
    let of = |name: &str| value(&text, &format!("{name}{{resource_class=\"linux\"}}"));
    let time = |activity: &str| {
        let labels = format!("activity=\"{activity}\",resource_class=\"linux\",usage_class=\"on-demand\"");
        value(&text, &format!("runyard_machine_seconds_total{{{labels}}}"))
    };
    // Two idle for a hundred seconds, then one beside the busy one, and the one that took the busy one's place.
    assert!(
        (270.0..330.0).contains(&(time("idle") + time("starting"))),
        "{} {}",
        time("idle"),
        time("starting")
    );
    assert!((49.0..60.0).contains(&time("busy")), "{}", time("busy"));
    assert!(time("ending") == 0.0);
    assert_eq!(of("runyard_claim_seconds_count"), 1.0);
    assert!(of("runyard_claim_seconds_sum") < 10.0);
    let boots = "runyard_boot_seconds_count{resource_class=\"linux\",usage_class=\"on-demand\"}";
    assert_eq!(value(&text, boots), 3.0);
    assert_eq!(value(&text, "runyard_orphan_instances"), 0.0);
    assert!(value(&text, "runyard_lease_age_seconds") < 15.0);
    assert_eq!(value(&text, "runyard_lease_changes_total"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_ends_says_how_often_it_was_used_and_queues_how_much_they_hold() {
    let world = World::new();
    let mut pool = linux(0, 4);
    pool["maxUses"] = json!(2);
    world.pool(pool).await;
    world.start();
    for run in ["1", "2"] {
        let key = world.provision(run, "linux", 1, json!({})).await;
        world.until_phase(&key, "Ready", 60).await;
        world.release(&key).await;
        world.until_phase(&key, "Released", 60).await;
    }
    world.queue.post(&"linux".parse().unwrap(), "nobody can read this");
    world.queue.post(&"linux".parse().unwrap(), "nor this");
    world.sleep(61).await;
    let text = world.metrics.render();
    let of = |name: &str| value(&text, &format!("{name}{{resource_class=\"linux\"}}"));
    assert_eq!((of("runyard_machine_uses_count"), of("runyard_machine_uses_sum")), (1.0, 2.0));
    let depth = |queue: &str| {
        value(&text, &format!("runyard_queue_depth{{queue=\"{queue}\",resource_class=\"linux\"}}"))
    };
    assert!(depth("pool") + depth("dead") >= 2.0, "{} {}", depth("pool"), depth("dead"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_counted_by_whether_its_machine_kept_its_repository() {
    let world = World::new();
    let mut pool = linux(2, 4);
    pool["keep"] = json!([{"name": "npm", "path": "~/.npm"}]);
    world.pool(pool).await;
    world.start();
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    let keeping = world.pooled()[0].facts.instance_arn.clone();
    let kept = json!({"npm": {"repository": "acme/web", "generation": 1, "bytes": 5, "usedAt": world.at()}});
    let write = Write::update(
        Agent::key_of(&keeping),
        Guard::Exists,
        item(&json!({"kept": kept})),
        std::collections::BTreeMap::new(),
    );
    world.store.write(&write).await.unwrap();
    world.sleep(2).await;
    let found = |found: &str| {
        let text = world.metrics.render();
        value(&text, &format!("runyard_kept_claims_total{{found=\"{found}\",resource_class=\"linux\"}}"))
    };
    let key = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!((found("warm"), found("cold")), (1.0, 0.0), "the machine that keeps it is taken first");
    let key = world.provision("2", "linux", 1, json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!((found("warm"), found("cold")), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_new_class_is_measured_under_its_name_at_once() {
    let world = World::new();
    world.start();
    world.sleep(60).await;
    assert!(!world.metrics.render().contains("resource_class=\"linux\""));
    world.pool(linux(1, 5)).await;
    let knows = async || {
        let text = world.metrics.render();
        text.contains("runyard_instances{resource_class=\"linux\"")
    };
    let key = runyard_core::model::Pool::key_of(&"linux".parse().unwrap());
    assert!(world.get::<runyard_core::model::Pool>(&key).await.is_some());
    world.until("its name is known", Duration::from_millis(500), knows).await;
}
