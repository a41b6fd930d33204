use runyard_core::model::{ClassName, PoolMessage};
use serde_json::json;

use runyard_tests::world::{World, linux};

fn class() -> ClassName {
    ClassName::parse("linux").unwrap()
}

/// How often the metrics have counted an outcome of a message.
fn counted(world: &World, outcome: &str) -> f64 {
    let text = world.metrics.render();
    let series = format!("runyard_queue_messages_total{{outcome=\"{outcome}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).expect("the series is there")
}

#[tokio::test(start_paused = true)]
async fn messages_that_could_be_read_become_no_dead_letters() {
    let world = World::new();
    let mut pool = linux(12, 12);
    // None of them ends to make room for the request.
    pool["sharing"] = json!({"quotas": {"other/*": {"guaranteed": 12}}});
    world.pool(pool).await;
    world.start();
    while world.pooled().len() < 12 {
        world.sleep(1).await;
    }
    // A request that no free machine suits waits, and the queue is asked again and again.
    let key = world.provision("1", "linux", 1, json!({"usageClass": "spot", "timeoutSeconds": 7200})).await;
    world.sleep(2 * 3600 - 60).await;
    assert_eq!(world.request(&key).await.phase().as_str(), "Pending");
    assert_eq!(world.queue.dead(&class()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn whatever_lies_in_the_queue_is_put_away_counted_and_costs_no_machine() {
    let world = World::new();
    world.pool(linux(0, 3)).await;
    world.start();
    let key = world.provision("1", "linux", 2, json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    world.sleep(1).await;
    world.queue.lose_all();
    let mut pooled = world.pooled();
    let (free, other) = (pooled.remove(0), pooled.remove(0));
    let told = PoolMessage::announcing(&free);
    let body = |message: &PoolMessage| serde_json::to_string(message).unwrap();
    let unreadable = ["", "not json", "[1, 2]", "{}", &"x".repeat(256 * 1024)];
    unreadable.iter().for_each(|text| world.queue.post(&class(), text));
    // The truth, twice; of a machine nobody knows; of another class; of a free machine's claim of two weeks ago.
    let unknown = PoolMessage { instance_id: "i-00000000000000bad".parse().unwrap(), ..told.clone() };
    let foreign = PoolMessage { resource_class: "windows".parse().unwrap(), ..unknown.clone() };
    let old = PoolMessage { claim_id: "of-two-weeks-ago".into(), ..PoolMessage::announcing(&other) };
    for message in [&told, &told, &unknown, &foreign, &old] {
        world.queue.post(&class(), &body(message));
    }
    let launches = world.compute.orders().len();

    let next = world.provision("2", "linux", 1, json!({})).await;
    world.until_phase(&next, "Ready", 30).await;
    assert_eq!(world.request(&next).await.status.instances, *std::slice::from_ref(&free.facts.instance_id));
    assert_eq!(world.compute.orders().len(), launches, "no cold start");
    world.sleep(1).await;
    assert_eq!(counted(&world, "unreadable"), 5.0);
    assert_eq!(counted(&world, "stale"), 3.0);
    assert_eq!(counted(&world, "claimed"), 2.0, "a doubled message goes with the claim");
    assert_eq!(world.queue.bodies(&class()), Vec::<String>::new());
    let dead = world.queue.dead(&class());
    let wanted: Vec<&str> = unreadable.iter().map(|text| &text[..text.len().min(4096)]).collect();
    assert_eq!(dead, wanted, "what cannot be read is kept for a person, cut to a few KiB");
}
