use super::*;

/// Pooled machines `i-0`, `i-1`, … that expire after these seconds.
fn pool(spec: serde_json::Value, expire: &[i64]) -> Scene {
    let mut scene = Scene::with(spec);
    for (n, seconds) in expire.iter().enumerate() {
        // Their deadlines are half an hour from when they were set.
        let set_at = at(seconds - 1800);
        let threshold = Some(Threshold { at: at(*seconds), set_at });
        scene.add(machine(&format!("i-{n}")).pooled().with(|i| i.threshold = threshold));
        scene.see(Observation::Announced(arn(&format!("i-{n}"))));
    }
    scene
}

#[test]
fn a_machine_within_desired_is_renewed_before_its_deadline_and_changes_nothing_else() {
    let scene = pool(serde_json::json!({"desired": 1}), &[60]);
    let (step, _) = write(&scene.of_machine("i-0"));
    let mut expected = step.before.clone();
    (expected.version, expected.updated_at) = (6, start());
    expected.threshold = renewed(1800);
    assert_eq!(step.after, expected);
    assert_eq!(pool(serde_json::json!({"desired": 1}), &[61]).of_machine("i-0").actions, []);
}

#[test]
fn of_more_than_desired_those_that_expire_last_are_kept_and_the_others_pass() {
    let mut scene = pool(serde_json::json!({"desired": 1}), &[50, 55]);
    assert_eq!(scene.of_machine("i-0").actions, []);
    assert!(matches!(scene.of_machine("i-1").actions.as_slice(), [Action::Instance(..)]));
    scene.wait(50);
    assert_eq!(ends(&scene.of_machine("i-0")), Some(Reason::Threshold));
}

#[test]
fn a_kept_machine_whose_deadline_passed_unseen_is_renewed_and_not_ended() {
    let scene = pool(serde_json::json!({"desired": 1}), &[-5]);
    assert_eq!(write(&scene.of_machine("i-0")).0.after.threshold, renewed(1800));
}

#[test]
fn machines_that_boot_or_are_cleaned_count_towards_desired() {
    for other in [machine("i-9"), machine("i-9").cleaning(&ask("1"))] {
        let mut scene = pool(serde_json::json!({"desired": 1}), &[0]);
        scene.add(other);
        assert_eq!(ends(&scene.of_machine("i-0")), Some(Reason::Threshold));
    }
}

#[test]
fn machines_at_the_end_of_their_time_do_not_keep_a_young_one_from_being_kept() {
    let mut scene = pool(serde_json::json!({"desired": 1, "maxUses": 3}), &[50]);
    let threshold = Some(Threshold { at: at(900), set_at: at(-900) });
    scene.add(machine("i-9").pooled().with(|i| (i.uses, i.threshold) = (3, threshold)));
    assert_eq!(write(&scene.of_machine("i-0")).0.after.threshold, renewed(1800));
}

#[test]
fn a_deadline_that_somebody_shortened_is_let_pass() {
    let mut scene = Scene::with(serde_json::json!({"desired": 1}));
    scene.add(machine("i-0").pooled().until(0));
    assert_eq!(ends(&scene.of_machine("i-0")), Some(Reason::Threshold));
}

#[test]
fn a_free_machine_is_announced_at_once_and_again_after_the_period() {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.add(machine("i-0").pooled());
    assert_eq!(scene.of_machine("i-0").actions, [Action::Announce(arn("i-0"))]);
    scene.see(Observation::Announced(arn("i-0")));
    assert_eq!(scene.of_machine("i-0").actions, []);
    scene.wait(299);
    scene.speaks("i-0", |_| ());
    assert_eq!(scene.of_machine("i-0").actions, []);
    scene.wait(1);
    assert_eq!(scene.of_machine("i-0").actions, [Action::Announce(arn("i-0"))]);
}

#[test]
fn over_max_the_first_to_expire_end_and_no_more_than_are_over() {
    let mut scene = pool(serde_json::json!({"max": 3}), &[900, 800, 700]);
    scene.put(&holding("1", 1, &["i-9"], serde_json::json!({})));
    scene.add(machine("i-9").running(&ask("1")));
    let surplus: Vec<_> = (0..3).map(|n| ends(&scene.of_machine(&format!("i-{n}")))).collect();
    assert_eq!(surplus, [None, None, Some(Reason::Surplus)]);
    assert_eq!(ends(&scene.of_machine("i-9")), None, "what runs is left alone");
}

#[test]
fn a_machine_whose_time_is_over_waits_for_its_replacement() {
    let worn = |scene: &mut Scene| scene.add(machine("i-9").pooled().with(|i| i.uses = 3));
    let spec = serde_json::json!({"desired": 1, "maxUses": 3, "max": 2});
    let mut scene = pool(spec.clone(), &[]);
    worn(&mut scene);
    assert_eq!(ends(&scene.of_machine("i-9")), None);
    assert_eq!(scene.intents(), [(1, None)], "its replacement is launched");
    let mut scene = pool(spec, &[900]);
    worn(&mut scene);
    assert_eq!(ends(&scene.of_machine("i-9")), Some(Reason::MaxUses));
    assert_eq!(ends(&scene.of_machine("i-0")), None);
}

#[test]
fn where_max_leaves_no_room_for_a_replacement_a_machine_whose_time_is_over_goes_first() {
    let mut scene = pool(serde_json::json!({"desired": 1, "maxAgeSeconds": 100, "max": 1}), &[]);
    scene.add(machine("i-9").pooled());
    assert_eq!(ends(&scene.of_machine("i-9")), Some(Reason::MaxAge));
}

#[test]
fn a_kept_machine_can_be_claimed_all_the_time() {
    // It is renewed before it has less than the 30 s left that a claim wants, however short its time.
    let mut scene = Scene::with(serde_json::json!({"desired": 1, "idleSeconds": 100}));
    scene
        .add(machine("i-0").pooled().with(|i| i.threshold = Some(Threshold { at: at(40), set_at: at(-60) })));
    assert_eq!(write(&scene.of_machine("i-0")).0.after.threshold, renewed(100));
}

#[test]
fn a_kept_machine_is_not_renewed_without_a_pause_however_short_its_time_and_at_the_end_of_time() {
    let mut scene = pool(serde_json::json!({"desired": 1, "idleSeconds": 0}), &[0]);
    let actions = scene.of_machine("i-0").actions;
    scene.apply(&actions);
    assert_eq!(scene.yard.instance(&arn("i-0")).unwrap().instance.threshold, renewed(1));
    assert_eq!(scene.of_machine("i-0").actions, []);
    let mut scene = Scene::with(serde_json::json!({"desired": 1}));
    scene.now.wall = "9999-12-30T21:59:00Z".parse().unwrap();
    let threshold =
        Some(Threshold { at: crate::model::millis(jiff::Timestamp::MAX), set_at: scene.now.wall });
    scene.add(machine("i-0").pooled().with(|i| {
        (i.threshold, i.facts.created_at) = (threshold, scene.now.wall);
    }));
    scene.see(Observation::Announced(arn("i-0")));
    assert_eq!(scene.of_machine("i-0").actions, []);
}

#[test]
fn a_deadline_at_the_ends_of_time_is_no_trouble() {
    for threshold in [jiff::Timestamp::MIN, jiff::Timestamp::MAX] {
        let mut scene = Scene::with(serde_json::json!({"desired": 1, "idleSeconds": u64::MAX / 2}));
        let threshold = Some(Threshold { at: crate::model::millis(threshold), set_at: start() });
        scene.add(machine("i-0").pooled().with(|i| i.threshold = threshold));
        scene.of_machine("i-0");
    }
}
