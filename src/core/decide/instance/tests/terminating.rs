use super::*;
use crate::decide::{Plan, WaitReason};
use crate::model::{Instance, LaunchPhase};
use crate::yard::Unit;

fn tombstoned() -> Scene {
    yard(machine("i-1").ended(Reason::Expired).with(|i| i.facts.created_at = at(-1000)))
}

#[test]
fn only_after_the_decision_is_recorded_is_the_end_asked_for() {
    for built in kinds() {
        let scene = yard(built.until(0));
        assert!(!scene.of_machine("i-1").actions.contains(&Planned::terminate(arn("i-1"))));
    }
    assert_eq!(tombstoned().of_machine("i-1").actions, [Planned::terminate(arn("i-1"))]);
}

/// Carries out the plans of so many seconds; returns how often each call was made.
fn calls_within(scene: &mut Scene, state: MachineState, seconds: u64) -> (usize, usize) {
    let (mut ends, mut looks) = (0, 0);
    let end = scene.now.mono + secs(seconds);
    loop {
        let plan = scene.of_machine("i-1");
        match effects(&plan.actions)[..] {
            [Effect::Terminate(arn)] => {
                ends += 1;
                scene.see(Observation::Ended(arn.clone()));
            }
            [Effect::Describe(arn)] => {
                looks += 1;
                scene.see(Observation::Stands(arn.clone(), Some(state)));
            }
            [] => match plan.wake {
                Some(wake) if wake < end => scene.now.mono = wake.max(scene.now.mono + secs(0)),
                Some(_) | None => return (ends, looks),
            },
            _ => panic!("{plan:?}"),
        }
        assert!(ends + looks < 100, "asked without a pause");
    }
}

#[test]
fn a_provider_that_does_not_end_a_machine_is_asked_again_with_backoff() {
    let (ends, looks) = calls_within(&mut tombstoned(), MachineState::Running, 300);
    assert!((3..12).contains(&ends) && (3..12).contains(&looks), "{ends} {looks}");
}

#[test]
fn terminate_and_describe_alternate_after_pauses_that_double_up_to_half_a_minute() {
    let mut scene = tombstoned();
    let mut pauses = Vec::new();
    for turn in 0..10 {
        if turn % 2 == 0 {
            assert_eq!(scene.of_machine("i-1").actions, [Planned::terminate(arn("i-1"))], "turn {turn}");
            scene.see(Observation::Ended(arn("i-1")));
        } else {
            assert_eq!(
                scene.of_machine("i-1").actions,
                [Planned::describe_machine(arn("i-1"))],
                "turn {turn}"
            );
            scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
        }
        let plan = scene.of_machine("i-1");
        let told = "its end is asked for, EC2 has not confirmed it";
        assert_eq!((plan.actions.len(), plan.waits[0].message.as_str()), (0, told));
        pauses.push((plan.wake.unwrap() - scene.now.mono).as_millis());
        scene.now.mono = plan.wake.unwrap();
    }
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000]);
}

#[test]
fn an_answer_of_the_moment_in_which_its_end_was_asked_for_says_nothing_of_it() {
    let mut scene = tombstoned();
    scene.see(Observation::Ended(arn("i-1")));
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
    scene.now.mono = scene.of_machine("i-1").wake.unwrap();
    assert_eq!(scene.of_machine("i-1").actions, [Planned::describe_machine(arn("i-1"))]);
}

#[test]
fn a_slow_shutdown_is_polled_with_pauses_and_not_terminated_twice() {
    let (ends, looks) = calls_within(&mut tombstoned(), MachineState::ShuttingDown, 300);
    assert_eq!(ends, 1);
    assert!((3..20).contains(&looks), "{looks}");
}

#[test]
fn what_its_provider_confirms_is_recorded_as_gone_for_a_day_in_one_transaction() {
    let mut scene = tombstoned();
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Terminated)));
    let plan = scene.of_machine("i-1");
    let [Effect::Bury(step)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    let mut expected = step.before.clone();
    (expected.version, expected.updated_at) = (6, start());
    expected.life = Life::Terminated { reason: Reason::Expired, gone_at: Some(start()) };
    expected.expires_at = Some(start().as_second() + 24 * 3600);
    assert_eq!(step.after, expected);
}

#[test]
fn a_machine_unknown_to_its_provider_is_gone_only_once_older_than_the_grace() {
    for (age, gone) in [(599, false), (600, true)] {
        let mut scene = yard(machine("i-1").ended(Reason::Expired).with(|i| i.facts.created_at = at(-age)));
        scene.see(Observation::Ended(arn("i-1")));
        scene.see(Observation::Stands(arn("i-1"), None));
        let buried = matches!(effects(&scene.of_machine("i-1").actions)[..], [Effect::Bury(_)]);
        assert_eq!(buried, gone, "{age} s old");
    }
}

#[test]
fn a_provider_without_an_inventory_is_taken_at_its_word() {
    let mut scene = tombstoned();
    scene.policy.inventory = false;
    assert_eq!(scene.of_machine("i-1").actions, [Planned::terminate(arn("i-1"))]);
    scene.see(Observation::Ended(arn("i-1")));
    assert!(matches!(effects(&scene.of_machine("i-1").actions)[..], [Effect::Bury(_)]));
}

fn gone() -> Scene {
    let mut scene = tombstoned();
    scene.see(Observation::Ended(arn("i-1")));
    scene.see(Observation::Stands(arn("i-1"), None));
    let actions = scene.of_machine("i-1").actions;
    scene.apply(&actions);
    scene
}

/// Returns the expiry that is planned a day after its end.
fn expiry() -> Planned {
    Planned::expire(Instance::key_of(&arn("i-1")), start().as_second() + 24 * 3600)
}

#[test]
fn a_machine_that_shows_up_again_after_it_was_recorded_as_gone_is_ended_again() {
    let mut scene = gone();
    assert_eq!(scene.of_machine("i-1").actions, []);
    scene.wait(60);
    let again = machine("i-1").listed(MachineState::Running);
    scene.see(Observation::Inventory(vec![again]));
    let (ends, _) = calls_within(&mut scene, MachineState::Running, 60);
    assert!(ends > 0, "asked to end it again");
}

#[test]
fn the_record_of_a_gone_machine_expires_after_a_day() {
    let mut scene = gone();
    assert_eq!(scene.of_machine("i-1").wake, Some(scene.now.mono + secs(24 * 3600)));
    scene.wait(24 * 3600);
    assert_eq!(scene.of_machine("i-1").actions, [expiry()]);
    scene.policy.github = true;
    assert_eq!(scene.of_machine("i-1").actions, [expiry()], "it never registered");
}

#[test]
fn the_runner_of_a_gone_machine_is_removed_once_and_by_nobody_after_an_hour() {
    let mut scene = gone();
    scene.policy.github = true;
    let mut instance = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
    (instance.registration_seq, instance.version) = (1, instance.version + 1);
    scene.put(&instance);
    let sweep = Planned::sweep_runner(&instance);
    assert!(sweep.leader_only, "one operator asks GitHub");
    scene.wait(3599);
    assert_eq!(scene.of_machine("i-1").actions, [sweep]);
    let mut later = scene.clone();
    later.wait(1);
    assert_eq!(later.of_machine("i-1").actions, [], "an operator that starts later asks for none of the day");
    later.wait(23 * 3600);
    assert_eq!(
        later.of_machine("i-1").actions,
        [expiry()],
        "and its record goes although nobody removed its runner"
    );
    scene.see(Observation::Swept(arn("i-1")));
    assert_eq!(scene.of_machine("i-1").actions, []);
}

fn orphan() -> Scene {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.see(Observation::Inventory(vec![machine("i-1").listed(MachineState::Running)]));
    scene
}

#[test]
fn an_unrecorded_machine_gets_its_grace_and_is_then_read_and_recorded_as_ended() {
    let mut scene = orphan();
    scene.wait(599);
    let plan = scene.of_machine("i-1");
    assert_eq!((plan.actions.len(), plan.wake), (0, Some(scene.now.mono + secs(1))));
    scene.wait(1);
    let key = Instance::key_of(&arn("i-1"));
    let mut busy = scene.clone();
    busy.yard.busy.insert(key.clone().into());
    assert_eq!(busy.of_machine("i-1").actions, [], "its record is being written");
    assert_eq!(scene.of_machine("i-1").actions, [Planned::look(key.clone())]);
    scene.look(key, None);
    let plan = scene.of_machine("i-1");
    let [Effect::Orphan(instance)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!(instance.life, Life::Terminated { reason: Reason::Orphan, gone_at: None });
    assert_eq!((instance.version, instance.threshold), (1, None));
    assert!(legal(Place::Nowhere, Cause::Ended, instance.place()));
}

#[test]
fn an_orphan_that_ended_or_was_recorded_meanwhile_is_nobodys_business() {
    let mut scene = orphan();
    scene.wait(600);
    scene.see(Observation::Inventory(vec![machine("i-1").listed(MachineState::Terminated)]));
    assert_eq!(scene.of_machine("i-1").actions, []);
    let mut scene = orphan();
    scene.wait(600);
    scene.add(machine("i-1"));
    assert!(
        !scene
            .of_machine("i-1")
            .actions
            .iter()
            .any(|a| matches!(a.effect, Effect::Orphan(..) | Effect::Look(_)))
    );
}

#[test]
fn an_orphan_whose_launch_is_open_or_whose_records_cannot_be_read_is_left_alone() {
    let mut scene = orphan();
    scene.put(&launch("l-1", 1, None));
    scene.wait(600);
    let plan = scene.of_machine("i-1");
    assert_eq!((plan.actions.len(), plan.wake), (0, Some(scene.now.mono + secs(600))));
    assert_eq!(plan.waits[0].reason, WaitReason::Starting);
    let mut bound = launch("l-1", 1, None);
    (bound.phase, bound.version) = (LaunchPhase::Bound, 2);
    scene.put(&bound);
    assert_eq!(scene.of_machine("i-1").actions.len(), 1);
    for key in [Instance::key_of(&arn("i-1")), RecordId::new("launch#l-1", "launch")] {
        let mut scene = orphan();
        scene.wait(600);
        scene.spoil(&key, Some(2));
        assert_eq!(scene.judge(&Unit::Instance(arn("i-1"))).actions, [], "{key}");
    }
}

/// Creates so many unrecorded machines of launch `l-1`, whose grace is over, besides so many recorded ones, and returns
/// the plan.
fn unrecorded(count: usize, recorded: usize, launch_is_known: bool) -> Plan {
    let mut scene = Scene::with(serde_json::json!({}));
    let names: Vec<String> = (0..count + recorded).map(|n| format!("i-{n}")).collect();
    for name in &names[count..] {
        scene.add(machine(name));
    }
    if launch_is_known {
        let mut bound = launch("l-1", 1, None);
        (bound.phase, bound.version) = (LaunchPhase::Bound, 2);
        scene.put(&bound);
    }
    let listed = names.iter().map(|name| machine(name).listed(MachineState::Running)).collect();
    scene.see(Observation::Inventory(listed));
    scene.wait(600);
    scene.of_machine("i-0")
}

#[test]
fn an_empty_table_or_one_of_an_earlier_day_ends_nothing() {
    let look = [Planned::look(Instance::key_of(&arn("i-0")))];
    assert_eq!(unrecorded(3, 0, false).actions, look);
    let plan = unrecorded(4, 0, false);
    assert_eq!(
        (plan.actions.as_slice(), plan.waits[0].reason),
        ([].as_slice(), WaitReason::Doubt),
        "{plan:?}"
    );
    assert_eq!(unrecorded(4, 14, false).actions, look, "not a third of what there is");
    assert_eq!(unrecorded(4, 13, false).actions, []);
    assert_eq!(unrecorded(40, 0, true).actions, look, "one launch too many is collected");
}

#[test]
fn a_machine_of_ours_without_a_class_is_left_to_a_person() {
    let mut scene = Scene::with(serde_json::json!({}));
    let mut machine = machine("i-1").listed(MachineState::Running);
    machine.class = None;
    scene.see(Observation::Inventory(vec![machine]));
    scene.wait(600);
    scene.look(Instance::key_of(&arn("i-1")), None);
    let plan = scene.of_machine("i-1");
    assert_eq!(plan.actions, []);
    assert_eq!(plan.waits[0].reason, WaitReason::Mismatch);
}
