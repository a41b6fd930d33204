use std::collections::BTreeMap;
use std::time::Duration;

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

    // Each run takes two machines, so it receives two messages at most.
    for run in 2..=12 {
        let next = world.provision(&run.to_string(), "linux", 2, json!({})).await;
        world.until_phase(&next, "Ready", 30).await;
        world.release(&next).await;
        world.until_phase(&next, "Released", 30).await;
        world.sleep(3).await;
    }
    assert_eq!(world.compute.orders().len(), launches, "no cold start");
    assert_eq!(counted(&world, "unreadable"), 5.0);
    let dead = world.queue.dead(&class());
    let wanted: Vec<&str> = unreadable.iter().map(|text| &text[..text.len().min(4096)]).collect();
    assert_eq!(dead, wanted, "what cannot be read is kept for a person, cut to a few KiB");
    // What is left are the true messages of the two.
    let mut told: Vec<_> = world
        .queue
        .bodies(&class())
        .iter()
        .map(|body| PoolMessage::read(body).unwrap().instance_id)
        .collect();
    told.sort();
    assert_eq!(told, [&free, &other].map(|instance| instance.facts.instance_id.clone()));
}

/// Returns the number of messages of each machine in the queue.
fn messages(world: &World) -> BTreeMap<String, usize> {
    let mut messages = BTreeMap::new();
    for body in world.queue.bodies(&class()) {
        let told = PoolMessage::read(&body).expect("an announcement");
        *messages.entry(told.instance_id.to_string()).or_default() += 1;
    }
    messages
}

/// A class with five idle machines, and the ids of these.
async fn five_idle() -> (World, BTreeMap<String, usize>) {
    let world = World::new();
    let mut pool = linux(5, 5);
    // None of them ends to make room for a request.
    pool["sharing"] = json!({"quotas": {"other/*": {"guaranteed": 5}}});
    world.pool(pool).await;
    world.start();
    world.until("they are idle", Duration::from_secs(60), async || world.pooled().len() == 5).await;
    world.sleep(3).await;
    let once = world.pooled().iter().map(|one| (one.facts.instance_id.to_string(), 1)).collect();
    (world, once)
}

#[tokio::test(start_paused = true)]
async fn idle_machines_leave_one_message_each_in_the_queue_however_long_it_takes() {
    let (world, once) = five_idle().await;
    // A request that none of them suits waits meanwhile, and nobody asks the queue for it.
    let key = world.provision("1", "linux", 1, json!({"usageClass": "spot", "timeoutSeconds": 7200})).await;
    world.calls.take();
    let mut sent = 0;
    for _ in 0..(2 * 3600 / 30 - 2) {
        world.sleep(30).await;
        assert_eq!(messages(&world), once);
        let calls = world.calls.take();
        sent += calls.iter().filter(|call| call.name == "announce").count();
        assert!(!calls.iter().any(|call| ["receive", "delete"].contains(&call.name)), "{calls:?}");
    }
    assert_eq!(world.request(&key).await.phase().as_str(), "Pending");
    assert_eq!(sent, 5 * 11, "once in ten minutes each");
}

#[tokio::test(start_paused = true)]
async fn machines_that_are_lent_again_and_again_leave_no_more_messages_than_idle_ones() {
    let (world, once) = five_idle().await;
    for run in 1..=60 {
        // Every other claim comes so soon that it does not ask the queue.
        let key = world.provision(&run.to_string(), "linux", 1 + run % 3, json!({})).await;
        world.until_phase(&key, "Ready", 30).await;
        world.release(&key).await;
        world.until_phase(&key, "Released", 30).await;
        world.sleep(u64::from(run % 2) * 60).await;
        let messages = messages(&world);
        assert!(messages.iter().all(|(id, count)| once.contains_key(id) && *count == 1), "{messages:?}");
    }
    world.sleep(600).await;
    assert_eq!(messages(&world), once);
}
