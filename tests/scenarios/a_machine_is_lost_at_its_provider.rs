use std::time::Duration;

use runyard_core::model::{LaunchPhase, State};
use runyard_core::ports::{Clock, ComputeError, Machine, MachineState};

use runyard_tests::world::{World, linux};

#[tokio::test(start_paused = true)]
async fn a_machine_that_stopped_is_tombstoned_and_replaced() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let lost = world.in_state(State::Running)[0].facts.instance_id.clone();
    world.compute.set_state(&lost, MachineState::Terminated);
    world.until("it is known", Duration::from_secs(90), async || world.reasons() == ["vanished"]).await;
    world
        .until("another runs", Duration::from_secs(60), async || world.in_state(State::Running).len() == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_ours_without_a_record_is_recorded_as_ended_after_the_grace() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let id: runyard_core::model::InstanceId = "i-0000000000000dead".parse().unwrap();
    world.compute.put(Machine {
        arn: runyard_core::model::InstanceArn::local(&id),
        id: id.clone(),
        class: Some("linux".parse().unwrap()),
        launch: None,
        attempt: 1,
        instance_type: "local".into(),
        usage_class: runyard_core::model::UsageClass::OnDemand,
        cpu: 2,
        mmem: 4096,
        zone: String::new(),
        state: MachineState::Running,
        launched_at: world.clock.now(),
    });
    world.sleep(590).await;
    assert!(world.compute.terminations().is_empty(), "a young one is left alone");
    world.until("it ended", Duration::from_secs(180), async || world.reasons() == ["orphan"]).await;
    world
        .until("EC2 was told", Duration::from_secs(60), async || world.compute.terminations().contains(&id))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_launch_whose_answer_was_lost_is_asked_again_and_brings_one_set_of_machines() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.compute.next(runyard_fakes::Fault::LoseAnswer(ComputeError::Unknown("reset".into())));
    world.start();
    let key = world.provision("1", "linux", 2, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 120).await;
    assert_eq!(world.compute.machines().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_launch_without_capacity_fails_and_is_tried_again_later() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.compute.capacity(Some(0));
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 900})).await;
    world
        .until("a launch failed", Duration::from_secs(30), async || {
            world
                .all::<runyard_core::model::Launch>()
                .iter()
                .any(|launch| launch.phase == LaunchPhase::Failed)
        })
        .await;
    world.sleep(300).await;
    let tries = world.compute.orders().len();
    assert!(tries < 20, "{tries} launches in five minutes");
    world.compute.capacity(None);
    world.until_phase(&key, "Ready", 330).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_launch_brings_too_late_for_its_request_starts_warm() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.compute.next(runyard_fakes::Fault::LoseAnswer(ComputeError::Unknown("slow".into())));
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world
        .until("it was ordered", Duration::from_secs(10), async || !world.compute.machines().is_empty())
        .await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 30).await;
    world.until("it is pooled", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    assert!(world.pooled()[0].claim.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_leaves_nothing_its_successor_cannot_finish() {
    for after in [0, 3, 7, 20, 60, 150, 400, 1000, 2500] {
        let world = World::new();
        world.pool(linux(0, 5)).await;
        world.store.every_call_takes(Duration::from_millis(5));
        world.start();
        let key = world.provision("1", "linux", 2, serde_json::json!({})).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        world.kill();
        world.start();
        world.until_phase(&key, "Ready", 120).await;
        assert_eq!(world.compute.machines().len(), 2, "killed after {after} ms");
        world.release(&key).await;
        world.until_phase(&key, "Released", 120).await;
        world.stop().await;
    }
}
