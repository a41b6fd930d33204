use runyard_core::model::{Agent, State};

use runyard_tests::world::{World, linux};

#[tokio::test(start_paused = true)]
async fn a_machine_is_launched_runs_is_cleaned_and_serves_the_next_run() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let first = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&first, "Ready", 60).await;
    let machine = world.in_state(State::Running)[0].clone();
    assert_eq!((machine.uses, machine.trust_domain.as_str()), (1, "owner:acme"));
    world.release(&first).await;
    world.until_phase(&first, "Released", 60).await;
    let request = world.request(&first).await;
    assert!(request.status.instances.is_empty());
    assert_eq!(request.status.served, std::slice::from_ref(&machine.facts.instance_id));
    let pooled = world.pooled();
    assert_eq!(pooled.len(), 1);
    assert!(pooled[0].run().is_none());
    assert_eq!(
        pooled[0].claim.as_ref().map(|claim| &claim.request),
        Some(&first),
        "the claim stays for the record"
    );

    let second = world.provision("2", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&second, "Ready", 60).await;
    let again = world.in_state(State::Running);
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].uses, &again[0].facts), (2, &machine.facts));
    assert_ne!(again[0].claim, machine.claim);
    assert_eq!(world.compute.orders().len(), 1, "one launch served both");
}

#[tokio::test(start_paused = true)]
async fn a_request_for_several_takes_the_pool_and_launches_the_rest() {
    let world = World::new();
    world.pool(linux(4, 20)).await;
    world.start();
    world
        .until("four are warm", std::time::Duration::from_secs(60), async || world.pooled().len() == 4)
        .await;
    world.compute.orders();
    let key = world.provision("1", "linux", 10, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let ordered: u32 =
        world.compute.orders().iter().map(|order| order.launch.count).filter(|n| *n != 4).sum();
    assert_eq!(world.request(&key).await.status.instances.len(), 10);
    let for_request: u32 =
        world.compute.orders().iter().filter(|o| o.launch.request.is_some()).map(|o| o.launch.count).sum();
    assert_eq!(for_request, 6, "four were claimed ({ordered} ordered beside the first four)");
}

#[tokio::test(start_paused = true)]
async fn a_release_before_anything_was_bound_ends_at_once() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.compute.capacity(Some(0));
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Pending", 10).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_idles_too_long_ends_and_its_records_go() {
    let world = World::new();
    let mut spec = linux(0, 5);
    spec["idleSeconds"] = 120.into();
    world.pool(spec).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    world.sleep(100).await;
    assert_eq!(world.pooled().len(), 1);
    world.sleep(40).await;
    assert_eq!(world.reasons(), ["threshold"]);
    world
        .until("the agent record is gone", std::time::Duration::from_secs(60), async || {
            world.all::<Agent>().is_empty()
        })
        .await;
    assert_eq!(world.compute.terminations().len(), 1);
    world.sleep(25 * 3600).await;
    assert!(world.instances().is_empty(), "the record goes a day after its machine");
}

#[tokio::test(start_paused = true)]
async fn a_class_without_reuse_ends_its_machines_after_one_claim() {
    let world = World::new();
    let mut spec = linux(0, 5);
    spec["reuseWithin"] = "none".into();
    world.pool(spec).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    assert_eq!(world.reasons(), ["max-uses"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_reused_only_within_its_trust_domain() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let ours = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&ours, "Ready", 60).await;
    world.release(&ours).await;
    world.until_phase(&ours, "Released", 60).await;
    let theirs = serde_json::json!({
        "repository": "other/app", "pk": "request#other/app#9", "runId": "9",
    });
    let theirs = world.provision("9", "linux", 1, theirs).await;
    world.until_phase(&theirs, "Ready", 60).await;
    assert_eq!(world.pooled().len(), 1, "ours still waits for ours");
    assert_eq!(world.compute.orders().len(), 2);
}
