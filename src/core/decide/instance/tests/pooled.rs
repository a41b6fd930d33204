use super::*;

/// Creates pooled machines `i-0`, `i-1`, … that expire after these seconds.
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
    assert!(matches!(effects(&scene.of_machine("i-1").actions)[..], [Effect::Instance(..)]));
    scene.wait(50);
    assert_eq!(ends(&scene.of_machine("i-0")), Some(Reason::Threshold));
}

/// An operator whose clock was an hour ahead wrote the deadlines of idle machines. To the other operators the deadlines
/// were an hour away and not to be renewed; the agents, which count how long a deadline was set for, ended their
/// machines one by one.
#[test]
fn a_kept_machine_with_a_deadline_of_a_fast_clock_is_renewed_by_its_agents_count() {
    let ahead = |seconds: i64| Some(Threshold { at: at(3600 + seconds + 1800), set_at: at(3600 + seconds) });
    let mut scene = pool(serde_json::json!({"desired": 1}), &[1800]);
    let mut image = scene.yard.instance(&arn("i-0")).unwrap().instance.clone();
    image.threshold = ahead(0);
    image.version += 1;
    scene.put(&image);
    assert_eq!(scene.of_machine("i-0").actions, [], "it was seen to be set this moment");
    scene.wait(1739);
    scene.speaks("i-0", |_| ());
    scene.see(Observation::Announced(arn("i-0")));
    let plan = scene.of_machine("i-0");
    assert_eq!((plan.actions.as_slice(), plan.wake), ([].as_slice(), Some(scene.now.mono + secs(1))));
    scene.wait(1);
    scene.speaks("i-0", |_| ());
    let expected = Some(Threshold { at: at(1740 + 1800), set_at: at(1740) });
    assert_eq!(write(&scene.of_machine("i-0")).0.after.threshold, expected);
}

#[test]
fn such_a_deadline_that_stood_there_before_is_renewed_at_once() {
    let mut scene = Scene::with(serde_json::json!({"desired": 1}));
    let threshold = Some(Threshold { at: at(3600 + 1800), set_at: at(3600) });
    scene.add(machine("i-0").pooled().with(|i| i.threshold = threshold));
    scene.see(Observation::Announced(arn("i-0")));
    assert_eq!(write(&scene.of_machine("i-0")).0.after.threshold, renewed(1800));
}

#[test]
fn a_kept_machine_whose_deadline_passed_unseen_is_renewed_and_not_ended() {
    let scene = pool(serde_json::json!({"desired": 1}), &[-5]);
    assert_eq!(write(&scene.of_machine("i-0")).0.after.threshold, renewed(1800));
    let wake = scene.of_machine("i-0").wake;
    assert_eq!(wake, Some(scene.now.mono + secs(1)), "looked at again in a moment, not at once");
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
fn a_deadline_brought_nearer_during_a_read_is_honoured() {
    let mut scene = pool(serde_json::json!({"desired": 1}), &[1700]);
    let threshold = Some(Threshold { at: at(30), set_at: at(0) });
    scene.add(machine("i-0").pooled().with(|i| (i.threshold, i.version) = (threshold, 6)));
    scene.see(Observation::Announced(arn("i-0")));
    assert_eq!(scene.of_machine("i-0").actions, [], "it is not renewed");
    scene.wait(30);
    scene.speaks("i-0", |_| ());
    assert_eq!(ends(&scene.of_machine("i-0")), Some(Reason::Threshold));
}

#[test]
fn a_deadline_set_before_the_class_wanted_them_idle_for_longer_moves_on() {
    let mut scene = Scene::with(serde_json::json!({"desired": 1, "idleSeconds": 1800}));
    let threshold = Some(Threshold { at: at(40), set_at: at(-260) });
    scene.add(machine("i-0").pooled().with(|i| i.threshold = threshold));
    scene.see(Observation::Announced(arn("i-0")));
    assert_eq!(write(&scene.of_machine("i-0")).0.after.threshold, renewed(1800));
}

#[test]
fn a_free_machine_is_announced_at_once_and_again_after_the_period() {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.add(machine("i-0").pooled());
    let announce = Planned::announce(&scene.yard.instance(&arn("i-0")).unwrap().instance);
    assert_eq!(scene.of_machine("i-0").actions, std::slice::from_ref(&announce));
    scene.see(Observation::Announced(arn("i-0")));
    assert_eq!(scene.of_machine("i-0").actions, []);
    scene.policy.timing.stale = secs(8000);
    scene.wait(599);
    scene.speaks("i-0", |_| ());
    assert_eq!(scene.of_machine("i-0").actions, []);
    scene.wait(1);
    assert_eq!(scene.of_machine("i-0").actions, std::slice::from_ref(&announce));
    // Its message was received and deleted while it stayed free.
    scene.see(Observation::Announced(arn("i-0")));
    scene.see(Observation::Unannounced(arn("i-0")));
    assert_eq!(scene.of_machine("i-0").actions, [announce]);
}

#[test]
fn a_machine_has_no_second_message_before_the_first_expired_or_was_deleted() {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.add(machine("i-0").pooled());
    scene.see(Observation::Announced(arn("i-0")));
    scene.add(machine("i-0").running(&ask("1")).with(|i| i.version = 6));
    scene.add(machine("i-0").pooled().with(|i| i.version = 7));
    assert_eq!(scene.of_machine("i-0").actions, []);
    // The message turned out to be stale.
    scene.see(Observation::Unannounced(arn("i-0")));
    assert!(matches!(
        scene.of_machine("i-0").actions[..],
        [Planned { leader_only: true, kind: "announce", .. }]
    ));
}

#[test]
fn a_kept_machine_is_renewed_at_a_tenth_of_its_time_and_in_time_to_be_claimed() {
    for (idle, before) in [(1800, 60), (600, 60), (590, 59), (450, 45), (100, 45), (80, 40), (60, 30)] {
        let renews = |left: i64| {
            let mut scene = Scene::with(serde_json::json!({"desired": 1, "idleSeconds": idle}));
            let threshold = Some(Threshold { at: at(left), set_at: at(left - idle) });
            scene.add(machine("i-0").pooled().with(|i| i.threshold = threshold));
            scene.see(Observation::Announced(arn("i-0")));
            !scene.of_machine("i-0").actions.is_empty()
        };
        assert_eq!((renews(before), renews(before + 1)), (true, false), "of {idle} s");
    }
}

#[test]
fn a_free_machine_is_looked_at_when_it_is_to_be_announced_or_renewed() {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.policy.timing.stale = secs(8000);
    scene.add(machine("i-0").pooled());
    let wake = |scene: &Scene| scene.of_machine("i-0").wake.unwrap() - scene.now.mono;
    assert_eq!(wake(&scene), secs(600), "it is announced now");
    scene.see(Observation::Announced(arn("i-0")));
    scene.wait(100);
    assert_eq!(wake(&scene), secs(500));
    scene.wait(550);
    assert_eq!(wake(&scene), secs(0), "overdue");
    scene.see(Observation::Announced(arn("i-0")));
    scene.add(machine("i-0").pooled().until(850).with(|i| i.version = 6));
    assert_eq!(wake(&scene), secs(140), "a minute before its deadline");
    scene.add(machine("i-0").pooled().until(700).with(|i| i.version = 7));
    assert_eq!(wake(&scene), secs(1), "not kept: its deadline is let come, and looked at now and then");
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
    let used_up = |scene: &mut Scene| scene.add(machine("i-9").pooled().with(|i| i.uses = 3));
    let spec = serde_json::json!({"desired": 1, "maxUses": 3, "max": 2});
    let mut scene = pool(spec.clone(), &[]);
    used_up(&mut scene);
    assert_eq!(ends(&scene.of_machine("i-9")), None);
    assert_eq!(scene.intents(), [(1, None)], "its replacement is launched");
    let mut scene = pool(spec, &[900]);
    used_up(&mut scene);
    assert_eq!(ends(&scene.of_machine("i-9")), Some(Reason::MaxUses));
    assert_eq!(ends(&scene.of_machine("i-0")), None);
}

#[test]
fn at_max_a_machine_whose_time_is_over_ends_before_its_replacement_starts() {
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
fn renewals_of_a_kept_machine_pause_even_with_a_short_time_or_at_the_end_of_time() {
    let mut scene = pool(serde_json::json!({"desired": 1, "idleSeconds": 0}), &[0]);
    let actions = scene.of_machine("i-0").actions;
    scene.apply(&actions);
    assert_eq!(scene.yard.instance(&arn("i-0")).unwrap().instance.threshold, renewed(60));
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

/// Creates a class launched with `ami-2` and pooled machines `i-0`, `i-1`, … launched with `ami-1` (true) or `ami-2`.
fn drifting(more: serde_json::Value, old: &[bool]) -> Scene {
    let spec = |ami: &str| {
        let mut spec = more.clone();
        spec["launch"] = serde_json::json!({"ami": ami});
        spec
    };
    let digest = |ami: &str| {
        let mut fields = spec(ami);
        fields["resourceClass"] = "linux".into();
        fields["cpu"] = 2.into();
        fields["mmem"] = 4096.into();
        crate::model::launch_digest(&serde_json::from_value(fields).unwrap())
    };
    let mut scene = Scene::with(spec("ami-1"));
    for (n, old) in old.iter().enumerate() {
        let launched = digest(if *old { "ami-1" } else { "ami-2" });
        let name = format!("i-{n}");
        let age = at(-200 + n as i64);
        scene.add(machine(&name).pooled().with(|i| {
            (i.facts.launch_digest, i.facts.created_at) = (Some(launched), age);
        }));
        scene.see(Observation::Announced(arn(&name)));
    }
    scene.pool(2, spec("ami-2"));
    scene
}

fn drifted(scene: &Scene, machines: usize) -> Vec<bool> {
    let ended = |n| ends(&scene.of_machine(&format!("i-{n}"))) == Some(Reason::Drifted);
    (0..machines).map(ended).collect()
}

#[test]
fn a_drifted_machine_goes_when_its_replacement_is_idle() {
    let mut scene = drifting(serde_json::json!({"desired": 2}), &[true, true]);
    assert_eq!(drifted(&scene, 2), [false, false]);
    assert_eq!(scene.intents(), [(1, None)], "one at a time is replaced");
    let scene = drifting(serde_json::json!({"desired": 2}), &[true, true, false]);
    assert_eq!(drifted(&scene, 3), [true, false, false], "the oldest first");
}

#[test]
fn as_many_are_replaced_at_once_as_the_class_says_those_that_are_ending_counted() {
    let spec = |at_once: u32| serde_json::json!({"desired": 0, "replacement": {"atOnce": at_once}});
    let three = [true, true, true];
    assert_eq!(drifted(&drifting(spec(0), &three), 3), [false, false, false]);
    assert_eq!(drifted(&drifting(spec(1), &three), 3), [true, false, false]);
    assert_eq!(drifted(&drifting(spec(2), &three), 3), [true, true, false]);
    let mut scene = drifting(spec(1), &three);
    let actions = scene.of_machine("i-0").actions;
    scene.apply(&actions);
    assert_eq!(drifted(&scene, 3), [false, false, false], "not before it is gone");
    let mut gone = scene.yard.instance(&arn("i-0")).unwrap().instance.clone();
    gone.life = Life::Terminated { reason: Reason::Drifted, gone_at: Some(start()) };
    gone.version += 1;
    scene.put(&gone);
    assert_eq!(drifted(&scene, 3), [false, true, false]);
}

#[test]
fn at_max_a_drifted_machine_ends_first_and_the_next_waits_for_its_replacement() {
    let mut scene = drifting(serde_json::json!({"desired": 2, "max": 2}), &[true, true]);
    assert_eq!(drifted(&scene, 2), [true, false]);
    let mut gone = scene.yard.instance(&arn("i-0")).unwrap().instance.clone();
    gone.life = Life::Terminated { reason: Reason::Drifted, gone_at: Some(start()) };
    gone.version += 1;
    scene.put(&gone);
    scene.add(machine("i-9"));
    assert_eq!(drifted(&scene, 2), [false, false], "its replacement boots");
}

#[test]
fn outside_the_hours_nothing_is_replaced_and_the_machine_waits_for_their_beginning() {
    // Scenes begin at 12:00.
    let spec = |hours: &str| serde_json::json!({"desired": 0, "replacement": {"hours": hours}});
    assert_eq!(drifted(&drifting(spec("12:00-13:00"), &[true]), 1), [true]);
    let scene = drifting(spec("12:10-13:00"), &[true]);
    let plan = scene.of_machine("i-0");
    assert_eq!(plan.actions, []);
    assert!(plan.waits.iter().any(|wait| wait.message.contains("not before 2026-01-05T12:10:00Z")));
    assert_eq!(drifted(&drifting(spec("whenever"), &[true]), 1), [false]);
    assert_eq!(scene.of_class().wake, Some(scene.now.mono + secs(600)), "its class looks again then");
    assert_eq!(drifting(spec("12:10-13:00"), &[false]).of_class().wake, None, "nothing is to be replaced");
}

#[test]
fn an_empty_launch_block_an_unknown_birth_a_pause_and_a_backoff_replace_nothing() {
    let spec = serde_json::json!({"desired": 0});
    let mut scene = drifting(spec.clone(), &[true]);
    scene.pool(3, spec.clone());
    assert_eq!(drifted(&scene, 1), [false], "the class says nothing of its launches");
    let mut scene = drifting(spec.clone(), &[]);
    scene.add(machine("i-0").pooled());
    assert_eq!(drifted(&scene, 1), [false], "nobody knows how it was launched");
    assert_eq!(drifted(&drifting(serde_json::json!({"desired": 0, "paused": true}), &[true]), 1), [false]);
    let mut scene = drifting(spec, &[true]);
    for n in 0..9 {
        scene.put(&launch(&format!("l-{n}"), 1, None));
        let failed = Err(crate::ports::ComputeError::Refused("no such image".into()));
        scene.see(Observation::Ordered(format!("l-{n}").parse().unwrap(), failed));
    }
    assert_eq!(drifted(&scene, 1), [false], "what replaces it cannot be had");
    scene.now.mono = scene.yard.class(&linux()).unwrap().backoff.until;
    assert_eq!(drifted(&scene, 1), [true], "it is tried again from this moment");
}

#[test]
fn a_serving_machine_is_untouched_and_a_released_one_is_pooled_then_replaced() {
    let old = |built: Built| {
        let mut scene = drifting(serde_json::json!({"desired": 0}), &[]);
        scene.put(&holding("1", 1, &["i-0"], serde_json::json!({})));
        scene.add(built.with(|i| i.facts.launch_digest = Some("0-0".into())));
        scene
    };
    assert_eq!(old(machine("i-0").running(&ask("1"))).of_machine("i-0").actions, []);
    let clean = old(machine("i-0").cleaning(&ask("1")).says(Signal::RemoveRegOk));
    assert!(write(&clean.of_machine("i-0")).0.after.pooled_at().is_some());
}

/// Creates idle machines `i-0` to `i-3` of repositories `acme/0` to `acme/3`, in a class that is now reused within
/// this.
fn reused(within: &str, more: serde_json::Value) -> Scene {
    let spec = |within: &str| {
        let mut spec = more.clone();
        spec["reuseWithin"] = within.into();
        spec
    };
    let mut scene = Scene::with(spec("repository"));
    for n in 0..4 {
        let (name, domain) = (format!("i-{n}"), format!("repository:acme/{n}"));
        scene.add(machine(&name).pooled().with(|i| {
            (i.trust_domain, i.facts.created_at) = (domain, at(-200 + n));
        }));
        scene.see(Observation::Announced(arn(&name)));
    }
    scene.pool(2, spec(within));
    scene
}

#[test]
fn a_class_that_reuses_more_widely_keeps_its_machines_and_claims_widen_them() {
    for (within, domain) in [("owner", "owner:acme"), ("any", "any")] {
        let mut scene = reused(within, serde_json::json!({"max": 4, "desired": 4}));
        assert_eq!(drifted(&scene, 4), [false; 4]);
        scene.put(&request("1", 1, serde_json::json!({"repository": "acme/other"})));
        let claimed = scene.served().into_iter().find_map(|action| match action.effect {
            Effect::Claim { machines, .. } => Some(machines[0].after.trust_domain.clone()),
            _ => None,
        });
        assert_eq!(claimed.as_deref(), Some(domain), "{within}");
    }
    let mut scene = reused("owner", serde_json::json!({"max": 4, "desired": 4}));
    scene.put(&request("1", 1, serde_json::json!({"repository": "other/repository"})));
    assert_eq!(scene.claims(), [], "of another owner");
}

#[test]
fn machines_that_a_narrower_class_lets_nobody_use_again_are_drifted() {
    // Its launch block is empty, and it is at its max.
    let mut scene = reused("none", serde_json::json!({"max": 4, "desired": 4}));
    assert_eq!(drifted(&scene, 4), [true, false, false, false]);
    let (step, note) = write(&scene.of_machine("i-0"));
    assert_eq!(note.message, "reuseWithin of its class lets nobody use it again; another takes its place");
    scene.put(&step.after);
    assert_eq!(drifted(&scene, 4), [false; 4], "one at a time");
    let scene = reused("none", serde_json::json!({"max": 4, "desired": 4, "replacement": {"atOnce": 3}}));
    assert_eq!(drifted(&scene, 4), [true, true, true, false]);
    let scene = reused("none", serde_json::json!({"max": 4, "desired": 4, "paused": true}));
    assert_eq!(drifted(&scene, 4), [false; 4]);
}
