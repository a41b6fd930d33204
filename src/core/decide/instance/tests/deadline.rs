use super::*;

#[test]
fn every_live_state_ends_at_its_deadline_and_not_a_second_before() {
    for built in kinds() {
        let place = built.instance.place();
        assert_eq!(ends(&yard(built.clone().until(1)).of_machine("i-1")), None, "{place:?}");
        assert_eq!(ends(&yard(built.until(0)).of_machine("i-1")), Some(Reason::Threshold), "{place:?}");
    }
}

#[test]
fn a_deadline_beats_a_signal() {
    let scene = yard(machine("i-1").claimed(&ask("1")).says(Signal::RegOk).until(0));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Threshold));
}

#[test]
fn what_a_person_expires_says_so_and_is_not_kept_for_its_class() {
    let by = |built: Built| built.until(0).with(|i| i.expired_by = Some("ada".into()));
    for built in kinds() {
        let mut scene = yard(by(built));
        scene.pool(2, serde_json::json!({"desired": 5}));
        let (step, note) = write(&scene.of_machine("i-1"));
        assert_eq!(step.after.life, Life::Terminated { reason: Reason::Expired, gone_at: None });
        assert!(note.message.contains("ada"));
    }
}

#[test]
fn while_github_is_away_deadlines_of_what_waits_for_it_are_moved_on_in_the_record() {
    let request = ask("1");
    let one = || machine("i-1");
    for (built, more) in [
        (one().bound(&request), Some(900)),
        (one().claimed(&request), Some(300)),
        (one().cleaning(&request), Some(240)),
        (one().running(&request), None),
        (one().pooled(), None),
        (one(), None),
    ] {
        let place = built.instance.place();
        let mut scene = yard(built.until(30));
        scene.policy.github = true;
        scene.see(Observation::GitHub(arn("i-1"), false));
        let moved = scene.of_machine("i-1").actions.into_iter().find_map(|action| match action.effect {
            Effect::Instance(step, _) => Some((step.after.place(), step.after.threshold)),
            _ => None,
        });
        assert_eq!(moved, more.map(|seconds| (place, renewed(seconds))), "{place:?}");
        scene.see(Observation::GitHub(arn("i-1"), true));
        let writes = scene.of_machine("i-1").actions.iter().any(|a| matches!(a.effect, Effect::Instance(..)));
        assert!(!writes, "{place:?}");
    }
}

#[test]
fn while_github_is_away_a_deadline_is_renewed_in_its_last_quarter() {
    for (left, moves) in [(76, false), (75, true), (74, true)] {
        let threshold = Threshold { at: at(left), set_at: at(left - 300) };
        let mut scene = yard(machine("i-1").claimed(&ask("1")).with(|i| i.threshold = Some(threshold)));
        scene.policy.github = true;
        scene.see(Observation::GitHub(arn("i-1"), false));
        let moved = scene.of_machine("i-1").actions.iter().any(|a| matches!(a.effect, Effect::Instance(..)));
        assert_eq!(moved, moves, "{left} of 300 s left");
    }
}

#[test]
fn while_github_is_away_a_deadline_that_is_later_than_it_would_be_set_now_stays() {
    // A deadline of an hour, by an earlier setting.
    let threshold = Threshold { at: at(310), set_at: at(310 - 3600) };
    let mut scene = yard(machine("i-1").claimed(&ask("1")).with(|i| i.threshold = Some(threshold)));
    scene.policy.github = true;
    scene.see(Observation::GitHub(arn("i-1"), false));
    let moved = |scene: &Scene| write(&scene.of_machine("i-1")).0.after.threshold;
    assert!(!scene.of_machine("i-1").actions.iter().any(|a| matches!(a.effect, Effect::Instance(..))));
    scene.wait(11);
    assert_eq!(moved(&scene), Some(Threshold { at: at(311), set_at: at(11) }));
}

#[test]
fn while_github_is_away_a_deadline_that_passed_does_not_end_what_waits_for_it() {
    let mut scene = yard(machine("i-1").claimed(&ask("1")).until(-10));
    scene.policy.github = true;
    scene.see(Observation::GitHub(arn("i-1"), false));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.threshold, renewed(300));
    let mut scene =
        yard(machine("i-1").claimed(&ask("1")).until(-10).with(|i| i.expired_by = Some("ada".into())));
    scene.policy.github = true;
    scene.see(Observation::GitHub(arn("i-1"), false));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Expired), "a person's word counts");
}

#[test]
fn an_outage_of_one_account_moves_no_deadline_of_another() {
    let mut scene = yard(machine("i-1").claimed(&ask("1")).until(30));
    let mut other = ask("2");
    other.repository = "other/site".parse().unwrap();
    scene.add(machine("i-2").claimed(&other).until(30));
    scene.policy.github = true;
    scene.see(Observation::GitHub(arn("i-2"), false));
    let moves = |scene: &Scene, name: &str| {
        scene.of_machine(name).actions.iter().any(|a| matches!(a.effect, Effect::Instance(..)))
    };
    assert_eq!((moves(&scene, "i-1"), moves(&scene, "i-2")), (false, true));
    scene.see(Observation::GitHub(arn("i-1"), true));
    assert!(moves(&scene, "i-2"), "what one account hears says nothing of another");
}

#[test]
fn a_state_lasts_at_most_six_hours_longer_while_github_is_away() {
    for (hours, moves) in [(5, true), (6, false)] {
        let since = at(-hours * 3600);
        let mut scene = yard(machine("i-1").claimed(&ask("1")).until(30).with(|i| i.state_since = since));
        scene.policy.github = true;
        scene.see(Observation::GitHub(arn("i-1"), false));
        let moved = scene.of_machine("i-1").actions.iter().any(|a| matches!(a.effect, Effect::Instance(..)));
        assert_eq!(moved, moves, "{hours} h");
        scene.wait(31);
        scene.speaks("i-1", |_| ());
        assert_eq!(ends(&scene.of_machine("i-1")), (!moves).then_some(Reason::Threshold), "{hours} h");
    }
}

#[test]
fn a_deadline_that_cannot_move_on_any_more_is_not_written_again_and_again() {
    let last = "9999-12-30T21:59:30Z".parse().unwrap();
    let mut scene = yard(machine("i-1").claimed(&ask("1")).with(|i| i.state_since = last));
    (scene.policy.github, scene.now.wall) = (true, last);
    scene.see(Observation::GitHub(arn("i-1"), false));
    let actions = scene.of_machine("i-1").actions;
    scene.apply(&actions);
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn a_call_that_our_own_budget_puts_off_moves_the_deadline_of_its_machine_alone() {
    let put_off = |built: Built, waits: u64| {
        let mut scene = yard(built);
        scene.policy.github = true;
        scene.see(Observation::PutOff(arn("i-1"), secs(waits)));
        scene
    };
    let claimed =
        |left: i64| machine("i-1").claimed(&ask("1")).until(left).with(|i| i.state_since = at(left - 300));
    let scene = put_off(claimed(30), 5);
    assert_eq!(write(&scene.of_machine("i-1")).0.after.threshold, renewed(300));
    let mut scene = put_off(claimed(-10), 5);
    assert_eq!(ends(&scene.of_machine("i-1")), None, "it passed while the call was put off");
    scene.now.mono += secs(66);
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Threshold), "nothing is put off any more");
    let cleaned_for = |age: i64| {
        let threshold = Some(Threshold { at: at(-1), set_at: at(-241) });
        let built = machine("i-1").cleaning(&ask("1"));
        put_off(built.with(|i| (i.state_since, i.threshold) = (at(-age), threshold)), 5).of_machine("i-1")
    };
    assert_eq!(ends(&cleaned_for(3839)), None);
    assert_eq!(ends(&cleaned_for(3840)), Some(Reason::Threshold), "an hour more than usual in all");
    let mut others = put_off(claimed(30), 5);
    others.add(machine("i-2").claimed(&ask("1")).until(-10));
    assert_eq!(ends(&others.of_machine("i-2")), Some(Reason::Threshold), "no call of its own is put off");
    let mut next = put_off(claimed(-10), 5);
    next.add(claimed(-10).with(|i| {
        i.version += 1;
        i.claim.as_mut().unwrap().id = ClaimId::parse("i-1.99").unwrap();
    }));
    assert_eq!(ends(&next.of_machine("i-1")), Some(Reason::Threshold), "that was for an earlier claim");
}

#[test]
fn while_its_runner_is_busy_a_clean_up_gets_a_quarter_of_an_hour_more_in_all() {
    let moved = |age: i64, left: i64, busy: bool| {
        let built = machine("i-1").cleaning(&ask("1")).with(|i| i.state_since = at(-age));
        let mut scene = yard(built.until(left));
        scene.policy.github = true;
        if busy {
            scene.see(Observation::RunnerBusy(arn("i-1")));
        }
        let plan = scene.of_machine("i-1");
        let moved = effects(&plan.actions).into_iter().find_map(|effect| match effect {
            Effect::Instance(step, _) if step.after.state() == crate::model::State::Idle => {
                step.after.threshold
            }
            _ => None,
        });
        (moved, ends(&plan))
    };
    assert_eq!(moved(210, 30, false), (None, None));
    assert_eq!(moved(210, 30, true), (renewed(240), None));
    assert_eq!(moved(210, 100, true), (None, None), "not before its last quarter");
    assert_eq!(moved(1000, 30, true), (renewed(140), None), "240 s and a quarter of an hour in all");
    assert_eq!(moved(1139, 0, true), (renewed(1), None));
    assert_eq!(moved(1140, 0, true), (None, Some(Reason::Threshold)));
    assert_eq!(moved(240, 0, false), (None, Some(Reason::Threshold)));
}

#[test]
fn a_busy_runner_of_an_earlier_claim_or_of_a_machine_at_work_changes_nothing() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(1));
    scene.policy.github = true;
    scene.see(Observation::RunnerBusy(arn("i-1")));
    assert!(!scene.of_machine("i-1").actions.iter().any(|a| matches!(a.effect, Effect::Instance(..))));
    let mut scene = yard(machine("i-1").cleaning(&ask("1")).until(30));
    scene.policy.github = true;
    scene.see(Observation::RunnerBusy(arn("i-1")));
    scene.add(machine("i-1").cleaning(&ask("2")).until(30).with(|i| {
        i.version += 1;
        i.claim.as_mut().unwrap().id = ClaimId::parse("i-1.99").unwrap();
    }));
    assert!(!scene.of_machine("i-1").actions.iter().any(|a| matches!(a.effect, Effect::Instance(..))));
}
