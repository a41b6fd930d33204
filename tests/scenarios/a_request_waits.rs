use std::time::Duration;

use runyard_core::model::State;

use runyard_tests::world::{World, linux};

#[tokio::test(start_paused = true)]
async fn a_request_nobody_can_serve_fails_at_its_deadline_and_says_how_far_it_came() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.compute.capacity(Some(1));
    world.start();
    let key = world.provision("1", "linux", 2, serde_json::json!({"timeoutSeconds": 100})).await;
    world.sleep(95).await;
    assert_eq!(world.phase(&key).await, "Fulfilling");
    world.until_phase(&key, "Failed", 10).await;
    let request = world.request(&key).await;
    assert!(request.status.message.contains("1 of 2"), "{}", request.status.message);
    world.until("its machine is back", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    world
        .until("its list is empty", Duration::from_secs(30), async || {
            world.request(&key).await.status.instances.is_empty()
        })
        .await;
    assert_eq!(world.phase(&key).await, "Failed");
}

#[tokio::test(start_paused = true)]
async fn at_its_deadline_a_request_is_ready_with_its_minimum() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.compute.capacity(Some(2));
    world.start();
    let key =
        world.provision("1", "linux", 3, serde_json::json!({"timeoutSeconds": 100, "minCount": 2})).await;
    world.until_phase(&key, "Ready", 110).await;
    assert_eq!(world.request(&key).await.status.instances.len(), 2);
    assert!(world.request(&key).await.status.ready_at >= world.request(&key).await.status.deadline);
}

#[tokio::test(start_paused = true)]
async fn what_can_be_refused_is_refused_at_once() {
    let world = World::new();
    let mut spec = linux(0, 5);
    spec["repositories"] = serde_json::json!(["acme/*"]);
    world.pool(spec).await;
    world.start();
    let cases = [
        ("1", serde_json::json!({"resourceClass": "nowhere"}), "UnknownClass"),
        ("2", serde_json::json!({"resourceClass": "Not A Class"}), "UnknownClass"),
        ("3", serde_json::json!({"repository": "other/app", "pk": "request#other/app#3"}), "NotAllowed"),
        ("4", serde_json::json!({"count": 0}), "Invalid"),
        ("5", serde_json::json!({"count": 501}), "Invalid"),
        ("6", serde_json::json!({"count": 6}), "OverMax"),
        ("7", serde_json::json!({"minCount": 3, "count": 2}), "Invalid"),
    ];
    for (run, more, reason) in cases {
        let key = world.provision(run, "linux", 1, more).await;
        world.until_phase(&key, "Failed", 10).await;
        let message = world.request(&key).await.status.message;
        assert!(message.starts_with(reason), "{run}: {message}");
    }
    assert!(world.compute.orders().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_request_is_served_first() {
    let world = World::new();
    world.pool(linux(0, 1)).await;
    world.start();
    let first = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 3000})).await;
    world.until_phase(&first, "Ready", 60).await;
    let second = world.provision("2", "linux", 1, serde_json::json!({"timeoutSeconds": 3000})).await;
    world.sleep(1).await;
    let third = world.provision("3", "linux", 1, serde_json::json!({"timeoutSeconds": 3000})).await;
    world.sleep(1).await;
    world.release(&first).await;
    world.until_phase(&second, "Ready", 60).await;
    assert_eq!(world.phase(&third).await, "Pending");
    world.release(&second).await;
    world.until_phase(&third, "Ready", 60).await;
    assert_eq!(world.compute.machines().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_requests_that_each_hold_a_part_do_not_wait_for_each_other_for_ever() {
    let world = World::new();
    world.pool(linux(0, 4)).await;
    world.start();
    let one = serde_json::json!({"timeoutSeconds": 3000});
    let blocker = world.provision("0", "linux", 2, one.clone()).await;
    world.until_phase(&blocker, "Ready", 60).await;
    let older = world.provision("1", "linux", 3, one.clone()).await;
    world.sleep(1).await;
    let younger = world.provision("2", "linux", 3, one).await;
    world.sleep(20).await;
    world.release(&blocker).await;
    world.until_phase(&older, "Ready", 120).await;
    assert_ne!(world.phase(&younger).await, "Ready");
    world.release(&older).await;
    world.until_phase(&younger, "Ready", 120).await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_attempt_releases_the_older_ones() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let first = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&first, "Ready", 60).await;
    let again = serde_json::json!({"attempt": 2, "sk": "request#default#2"});
    let second = world.provision("1", "linux", 1, again).await;
    world.until_phase(&first, "Released", 60).await;
    world.until_phase(&second, "Ready", 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_blocks_nobody_and_is_left_alone() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let broken = world.provision("bad", "linux", 1, serde_json::json!({"count": "many"})).await;
    let newer = world.provision("new", "linux", 1, serde_json::json!({"schema": 2})).await;
    let good = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&good, "Ready", 60).await;
    for key in [broken, newer] {
        let item = runyard_core::ports::Store::get(&world.store, &key).await.unwrap().unwrap();
        assert!(!item.contains_key("phase"), "{item:?}");
    }
    assert_eq!(world.in_state(State::Running).len(), 1);
}
