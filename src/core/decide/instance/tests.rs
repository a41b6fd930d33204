use super::super::testing::*;
use crate::decide::{Action, Credential, Observation};
use crate::model::{
    Agent, Cause, ClaimId, Interruption, InterruptionAction, Life, Place, Reason, Record, RecordId,
    Registration, Request, Signal, Threshold, UsageClass, legal,
};
use crate::ports::MachineState;

mod ending;
mod pooled;
mod wakes;

/// A yard where request 1 holds machine `i-1`.
fn yard(built: Built) -> Scene {
    held(built, serde_json::json!({}))
}

fn held(built: Built, more: serde_json::Value) -> Scene {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&holding("1", 1, &["i-1"], more));
    scene.add(built);
    scene
}

fn renewed(seconds: i64) -> Option<Threshold> {
    Some(Threshold { at: at(seconds), set_at: start() })
}

/// Every change a plan makes beside the version and the time of the write.
fn becomes(scene: &Scene, change: impl FnOnce(&mut crate::model::Instance)) {
    let (step, _) = write(&scene.of_machine("i-1"));
    let mut expected = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
    assert_eq!(step.before, expected, "the write replaces what was read");
    expected.version += 1;
    expected.updated_at = start();
    change(&mut expected);
    assert_eq!(step.after, expected);
}

#[test]
fn a_machine_whose_runner_listens_runs_until_the_requests_maximum_and_keeps_its_claim() {
    for built in [machine("i-1").bound(&ask("1")), machine("i-1").claimed(&ask("1"))] {
        let box_ = Registration { sealed: "box".into(), expires_at: None };
        let built = built.with(|i| i.registration = Some(box_)).says(Signal::RegOk);
        let scene =
            held(built.with(|i| i.registration_failures = 1), serde_json::json!({"maxRuntimeMinutes": 5}));
        becomes(&scene, |next| {
            next.life = Life::Running { run: "1".parse().unwrap() };
            next.threshold = renewed(300);
            next.state_since = start();
            next.uses = 1;
            next.registration = None;
            next.registration_failures = 0;
        });
    }
}

#[test]
fn the_maximum_runtime_is_the_smaller_of_the_requests_and_the_classs_and_half_an_hour_by_default() {
    for (request, class, seconds) in [
        (None, None, 1800),
        (Some(5), None, 300),
        (None, Some(7), 420),
        (Some(5), Some(7), 300),
        (Some(9), Some(7), 420),
    ] {
        let mut scene = Scene::with(serde_json::json!({"maxRuntimeMinutes": class}));
        scene.put(&holding("1", 1, &["i-1"], serde_json::json!({"maxRuntimeMinutes": request})));
        scene.add(machine("i-1").claimed(&ask("1")).says(Signal::RegOk));
        let (step, _) = write(&scene.of_machine("i-1"));
        assert_eq!(step.after.threshold, renewed(seconds), "{request:?} {class:?}");
    }
}

#[test]
fn a_warm_machine_that_booted_enters_the_pool_in_that_very_write() {
    let scene = yard(machine("i-1").says_for(Signal::Ok, ""));
    becomes(&scene, |next| {
        next.life = Life::Idle { pooled_at: Some(start()) };
        next.threshold = renewed(1800);
        next.state_since = start();
    });
}

#[test]
fn the_first_key_an_agent_shows_is_written_with_the_next_change() {
    let scene = yard(machine("i-1").says_for(Signal::Ok, "").agent(|a| a.public_key = Some("key".into())));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.public_key.as_deref(), Some("key"));
}

#[test]
fn a_released_request_gives_its_machine_back_uncleaned_with_its_claim_kept() {
    let built = [
        machine("i-1").bound(&ask("1")),
        machine("i-1").claimed(&ask("1")),
        machine("i-1").running(&ask("1")).until(1000),
    ];
    for built in built {
        for more in [
            serde_json::json!({"desired": "released"}),
            serde_json::json!({"phase": "Failed"}),
            serde_json::json!({"phase": "Releasing"}),
            serde_json::json!({"phase": "Released"}),
            // Given up: the request knows this claim and lists the machine no more.
            serde_json::json!({"instances": []}),
        ] {
            let scene = held(built.clone().says(Signal::RegOk), more);
            becomes(&scene, |next| {
                next.life = Life::Idle { pooled_at: None };
                next.threshold = renewed(240);
                next.state_since = start();
            });
        }
    }
}

#[test]
fn a_machine_whose_request_is_gone_is_given_back_once_a_strong_read_says_so() {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.add(machine("i-1").running(&ask("1")));
    assert_eq!(scene.of_machine("i-1").actions, [Action::Look(ask("1").into())]);
    scene.look(ask("1").into(), None);
    assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::IdleCleaning);
}

#[test]
fn a_request_that_cannot_be_read_is_not_read_again_and_again_and_keeps_its_machine() {
    for schema in [None, Some(2)] {
        let mut scene = Scene::with(serde_json::json!({}));
        scene.add(machine("i-1").running(&ask("1")));
        scene.spoil(&ask("1").into(), schema);
        assert_eq!(scene.of_machine("i-1").actions, []);
    }
}

#[test]
fn an_image_of_the_request_from_before_the_claim_gives_nothing_up() {
    // The machine was this request's once (claim of version 3), was cleaned, and is its again (claim of version 5).
    let mut request = holding("1", 1, &["i-1"], serde_json::json!({"instances": []}));
    request.status.claims.insert(id("i-1"), ClaimId::of(&id("i-1"), 3));
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&request);
    scene.add(machine("i-1").claimed(&ask("1")));
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn a_claim_that_somebody_else_named_is_given_up_when_its_request_lists_the_machine_no_more() {
    let mut request = holding("1", 1, &["i-1"], serde_json::json!({"instances": []}));
    request.status.claims.clear();
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&request);
    scene.add(machine("i-1").claimed(&ask("1")));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::IdleCleaning);
}

#[test]
fn claims_of_which_somebody_else_named_one_have_no_order() {
    let theirs: ClaimId = "theirs".parse().unwrap();
    for (known, held) in [
        (theirs.clone(), ClaimId::of(&id("i-1"), 5)),
        (ClaimId::of(&id("i-1"), 5), theirs.clone()),
        (theirs, "another-of-theirs".parse().unwrap()),
    ] {
        let mut request = holding("1", 1, &["i-1"], serde_json::json!({"instances": []}));
        request.status.claims.insert(id("i-1"), known.clone());
        let mut scene = Scene::with(serde_json::json!({}));
        scene.put(&request);
        scene.add(machine("i-1").claimed(&ask("1")).with(|i| i.claim.as_mut().unwrap().id = held.clone()));
        let given_up = scene.of_machine("i-1").actions.len() == 1;
        assert!(given_up, "its request knows {known}, the machine {held}");
    }
}

#[test]
fn what_its_agent_says_of_a_failure_is_told_with_it_and_not_at_any_length() {
    let told = |detail: Option<String>| {
        let built = machine("i-1").says_for(Signal::Failed, "").agent(|agent| agent.signal_detail = detail);
        write(&yard(built).of_machine("i-1")).1.message.to_string()
    };
    assert_eq!(told(Some("no disk".into())), "first boot failed: no disk");
    assert_eq!(told(Some(String::new())), "first boot failed");
    assert_eq!(told(None), "first boot failed");
    assert_eq!(told(Some("ä".repeat(900))), format!("first boot failed: {}", "ä".repeat(500)));
}

#[test]
fn old_good_news_is_not_believed_where_silence_cannot_be_judged() {
    let request = ask("1");
    // It never beat: it may still boot.
    let bound = machine("i-1").bound(&request).says(Signal::RegOk).agent(|agent| agent.heartbeat_seq = 0);
    let mut scene = yard(bound.until(1000));
    scene.wait(61);
    assert_eq!(scene.of_machine("i-1").actions, []);
    // Its record cannot be read any more.
    let mut scene = yard(machine("i-1").cleaning(&request).says(Signal::RemoveRegOk).until(1000));
    scene.spoil(&Agent::key_of(&arn("i-1")), Some(2));
    scene.wait(61);
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn the_first_failed_registration_of_a_claimed_machine_cleans_it_the_second_in_a_row_ends_it() {
    let scene = yard(machine("i-1").claimed(&ask("1")).says(Signal::RegFailed));
    becomes(&scene, |next| {
        next.life = Life::Idle { pooled_at: None };
        next.threshold = renewed(240);
        next.state_since = start();
        next.registration_failures = 1;
    });
    let again = machine("i-1").claimed(&ask("1")).with(|i| i.registration_failures = 1);
    let scene = yard(again.says(Signal::RegFailed));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::RegistrationFailed));
}

#[test]
fn a_new_machine_that_cannot_register_ends_at_once() {
    let scene = yard(machine("i-1").bound(&ask("1")).says(Signal::RegFailed));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::RegistrationFailed));
}

#[test]
fn a_cleaned_machine_enters_the_pool_with_its_last_claim_and_without_what_removed_it() {
    let box_ = Registration { sealed: "box".into(), expires_at: None };
    let built = machine("i-1").cleaning(&ask("1")).with(|i| i.removal = Some(box_));
    let scene = held(built.says(Signal::RemoveRegOk), serde_json::json!({"desired": "released"}));
    becomes(&scene, |next| {
        next.life = Life::Idle { pooled_at: Some(start()) };
        next.threshold = renewed(1800);
        next.state_since = start();
        next.removal = None;
    });
}

#[test]
fn a_tombstone_empties_run_and_deadline_and_leaves_the_claim() {
    let box_ = Registration { sealed: "box".into(), expires_at: None };
    let built = machine("i-1").running(&ask("1")).until(0).with(|i| i.registration = Some(box_));
    becomes(&yard(built), |next| {
        next.life = Life::Terminated { reason: Reason::Threshold, gone_at: None };
        next.threshold = None;
        next.state_since = start();
        next.registration = None;
    });
}

/// One of each live kind.
fn kinds() -> Vec<Built> {
    let one = || machine("i-1");
    let request = ask("1");
    vec![
        one(),
        one().bound(&request),
        one().claimed(&request),
        one().running(&request),
        one().cleaning(&request),
        one().pooled(),
    ]
}

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
fn a_failed_boot_or_clean_up_ends_a_machine_in_every_state() {
    for built in kinds() {
        let place = built.instance.place();
        let scene = yard(built.clone().says_for(Signal::Failed, ""));
        assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::BootFailed), "{place:?}");
        if built.instance.claim.is_some() {
            let scene = yard(built.says(Signal::RemoveRegFailed));
            assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::CleanupFailed), "{place:?}");
        }
    }
}

#[test]
fn a_signal_for_another_claim_changes_nothing_in_any_state() {
    for built in kinds() {
        let place = built.instance.place();
        for signal in Signal::ALL {
            for claim in ["i-1.4", "i-1.6", "i-2.5", "x"] {
                let scene = yard(built.clone().says_for(*signal, claim));
                let plan = scene.of_machine("i-1");
                let moves = plan.actions.iter().any(|action| matches!(action, Action::Instance(..)));
                assert!(!moves, "{place:?} on {signal} for {claim}: {plan:?}");
            }
        }
    }
}

#[test]
fn a_signal_of_the_right_claim_that_does_not_belong_to_the_state_changes_nothing() {
    let request = ask("1");
    let one = || machine("i-1");
    for (built, signals) in [
        (one(), vec![Signal::RegOk, Signal::RegFailed, Signal::RemoveRegOk, Signal::RemoveRegFailed]),
        (one().bound(&request), vec![Signal::Ok]),
        (one().claimed(&request), vec![Signal::Ok, Signal::Failed]),
        (one().running(&request), vec![Signal::Ok, Signal::Failed, Signal::RegOk]),
        (one().cleaning(&request), vec![Signal::Ok, Signal::Failed, Signal::RegOk, Signal::RegFailed]),
        (one().pooled(), vec![Signal::Ok, Signal::RegOk, Signal::RegFailed, Signal::RemoveRegOk]),
    ] {
        for signal in signals {
            let scene = yard(built.clone().says(signal));
            let moves = scene.of_machine("i-1").actions.iter().any(|a| matches!(a, Action::Instance(..)));
            assert!(!moves, "{:?} on {signal}", built.instance.place());
        }
    }
}

#[test]
fn a_runner_that_is_lost_gives_its_machine_back() {
    for signal in [Signal::RegFailed, Signal::RemoveRegOk] {
        let scene = yard(machine("i-1").running(&ask("1")).says(signal));
        assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::IdleCleaning, "{signal}");
    }
    let scene = yard(machine("i-1").claimed(&ask("1")).says(Signal::RemoveRegOk));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::IdleCleaning);
}

#[test]
fn good_news_of_a_silent_agent_is_not_believed() {
    let request = ask("1");
    for built in [
        machine("i-1").says_for(Signal::Ok, ""),
        machine("i-1").bound(&request).says(Signal::RegOk),
        machine("i-1").claimed(&request).says(Signal::RegOk),
        machine("i-1").cleaning(&request).says(Signal::RemoveRegOk),
    ] {
        let mut scene = yard(built.until(1000));
        scene.wait(60);
        assert!(
            matches!(scene.of_machine("i-1").actions.as_slice(), [Action::Instance(..)]),
            "at 60 s it is"
        );
        scene.wait(1);
        assert!(
            matches!(scene.of_machine("i-1").actions.as_slice(), [Action::Look(_)]),
            "after 60 s it is not"
        );
    }
}

#[test]
fn a_silent_agent_is_looked_at_strongly_before_its_machine_ends_on_that_very_beat() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(5000));
    scene.wait(61);
    let key = Agent::key_of(&arn("i-1"));
    assert_eq!(scene.of_machine("i-1").actions, [Action::Look(key.clone())]);
    let agent = scene.yard.instance(&arn("i-1")).unwrap().agent.clone().unwrap();
    scene.look(key, Some(agent.to_item()));
    let plan = scene.of_machine("i-1");
    let [Action::Silence(step, seq, _)] = plan.actions.as_slice() else { panic!("{plan:?}") };
    assert_eq!(*seq, 7);
    let told = plan.actions[0].describe();
    assert!(told.ends_with("its agent has not spoken for 61 s"), "{told}");
    assert_eq!(step.after.life, Life::Terminated { reason: Reason::Unhealthy, gone_at: None });
    assert_eq!((step.after.threshold, step.after.state_since), (None, at(61)));
}

#[test]
fn a_beat_found_by_that_look_lets_the_machine_live() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(5000));
    scene.wait(61);
    let mut agent = scene.yard.instance(&arn("i-1")).unwrap().agent.clone().unwrap();
    agent.heartbeat_seq += 1;
    scene.look(Agent::key_of(&arn("i-1")), Some(agent.to_item()));
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn time_in_which_the_table_could_not_be_read_does_not_age_a_beat() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(5000));
    let seen = scene.now.seen;
    scene.wait(600);
    scene.now.seen = seen + secs(60);
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn an_agent_that_never_spoke_has_until_the_boot_deadline() {
    for built in [machine("i-1"), machine("i-1").bound(&ask("1"))] {
        let mut scene = yard(built.agent(|agent| agent.heartbeat_seq = 0));
        scene.wait(299);
        assert_eq!(scene.of_machine("i-1").actions, []);
        scene.wait(1);
        assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Threshold));
    }
}

#[test]
fn a_machine_whose_agent_record_is_gone_is_looked_at_once_and_ends() {
    for built in [machine("i-1").running(&ask("1")), machine("i-1").pooled()] {
        let mut built = built;
        built.agent = None;
        let mut scene = yard(built);
        let key = Agent::key_of(&arn("i-1"));
        assert_eq!(scene.of_machine("i-1").actions, [Action::Look(key.clone())]);
        scene.look(key, None);
        assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Unhealthy));
    }
}

#[test]
fn an_agent_record_that_cannot_be_read_is_left_to_the_machines_deadline_without_a_loop_of_reads() {
    for schema in [None, Some(2)] {
        let mut built = machine("i-1").running(&ask("1"));
        built.agent = None;
        let mut scene = yard(built);
        scene.spoil(&Agent::key_of(&arn("i-1")), schema);
        assert_eq!(scene.of_machine("i-1").actions, []);
        scene.wait(300);
        assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Threshold));
    }
}

#[test]
fn an_agent_that_shows_another_key_than_at_first_is_unhealthy() {
    for built in kinds() {
        let built =
            built.with(|i| i.public_key = Some("one".into())).agent(|a| a.public_key = Some("two".into()));
        assert_eq!(ends(&yard(built.clone()).of_machine("i-1")), Some(Reason::Unhealthy));
        let same = built.agent(|a| a.public_key = Some("one".into()));
        assert_eq!(ends(&yard(same).of_machine("i-1")), None);
    }
    // Before any write put the first one into the record.
    let mut scene = yard(machine("i-1").agent(|a| a.public_key = Some("one".into())));
    assert_eq!(ends(&scene.of_machine("i-1")), None);
    scene.speaks("i-1", |agent| agent.public_key = Some("two".into()));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Unhealthy));
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
fn a_notice_ends_an_idle_machine_at_once_a_busy_one_in_time_and_a_cleaned_one_after_its_clean_up() {
    let notice = |built: Built, action, seconds| {
        built.agent(|agent| agent.interruption = Some(Interruption { action, at: at(seconds) }))
    };
    let (terminate, stop) = (InterruptionAction::Terminate, InterruptionAction::Stop);
    let request = ask("1");
    let one = || machine("i-1");
    for (built, action, seconds, ends_now) in [
        (one(), terminate, 120, true),
        (one(), InterruptionAction::Rebalance, 0, true),
        (one().pooled(), terminate, 120, true),
        (one().pooled(), stop, 120, true),
        (one().pooled(), InterruptionAction::Rebalance, 0, true),
        (one().running(&request), terminate, 26, false),
        (one().running(&request), terminate, 25, true),
        (one().running(&request), stop, 0, true),
        (one().claimed(&request), stop, 120, true),
        (one().bound(&request), terminate, 120, true),
        (one().claimed(&request), InterruptionAction::Rebalance, 0, false),
        (one().claimed(&request).says(Signal::RegOk), terminate, 25, true),
        (one().running(&request), InterruptionAction::Rebalance, 0, false),
        (one().cleaning(&request), terminate, 26, false),
        (one().cleaning(&request), terminate, 25, true),
        (one().cleaning(&request), InterruptionAction::Rebalance, 0, false),
    ] {
        let place = built.instance.place();
        let scene = yard(notice(built, action, seconds));
        let expected = ends_now.then_some(Reason::Interrupted);
        assert_eq!(ends(&scene.of_machine("i-1")), expected, "{place:?} {action} at {seconds}");
    }
    let clean = one().cleaning(&request).says(Signal::RemoveRegOk);
    let scene = yard(notice(clean, InterruptionAction::Rebalance, 0));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Interrupted));
}

#[test]
fn a_notice_that_has_passed_does_not_wake_the_operator_again_and_again() {
    let notice = Interruption { action: InterruptionAction::Rebalance, at: at(-5) };
    let scene = yard(machine("i-1").running(&ask("1")).agent(|agent| agent.interruption = Some(notice)));
    let wake = scene.of_machine("i-1").wake.unwrap();
    assert!(wake >= scene.now.mono + secs(30), "{wake:?}");
}

#[test]
fn a_machine_that_stopped_or_ended_by_itself_vanished() {
    for state in [MachineState::Stopped, MachineState::ShuttingDown, MachineState::Terminated] {
        for built in kinds() {
            let mut scene = yard(built);
            scene.see(Observation::Stands(arn("i-1"), Some(state)));
            assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Vanished), "{state:?}");
        }
    }
    for state in [MachineState::Pending, MachineState::Running] {
        let mut scene = yard(machine("i-1").running(&ask("1")));
        scene.see(Observation::Stands(arn("i-1"), Some(state)));
        assert_eq!(ends(&scene.of_machine("i-1")), None);
    }
}

#[test]
fn a_machine_that_its_maker_does_not_know_vanished_once_it_is_older_than_the_grace() {
    let aged = |seconds: i64| machine("i-1").running(&ask("1")).with(|i| i.facts.created_at = at(-seconds));
    for (age, reason) in [(599, None), (600, Some(Reason::Vanished))] {
        let mut scene = yard(aged(age));
        scene.see(Observation::Stands(arn("i-1"), None));
        assert_eq!(ends(&scene.of_machine("i-1")), reason, "{age} s old");
        scene.policy.inventory = false;
        assert_eq!(ends(&scene.of_machine("i-1")), None, "a maker without an inventory");
    }
}

#[test]
fn a_machine_missing_from_the_list_is_asked_for_by_name_once_it_is_older_than_the_grace() {
    for (age, asks) in [(599, false), (600, true)] {
        let mut scene = yard(machine("i-1").running(&ask("1")).with(|i| i.facts.created_at = at(-age)));
        let dirty = scene.see(Observation::Inventory(Vec::new()));
        assert!(dirty.contains(&crate::decide::Unit::Instance(arn("i-1"))));
        let asked = scene.of_machine("i-1").actions.contains(&Action::Describe(arn("i-1")));
        assert_eq!(asked, asks, "{age} s old");
        scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
        assert_eq!(scene.of_machine("i-1").actions, [], "it is there after all");
    }
}

#[test]
fn a_machine_that_lists_miss_again_and_again_is_asked_for_every_half_minute() {
    let mut scene = yard(machine("i-1").running(&ask("1")).with(|i| i.facts.created_at = at(-600)));
    scene.policy.stale = secs(8000);
    let asked = |scene: &mut Scene| {
        scene.see(Observation::Inventory(Vec::new()));
        scene.of_machine("i-1").actions.contains(&Action::Describe(arn("i-1")))
    };
    assert!(asked(&mut scene));
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
    assert!(!asked(&mut scene), "it was asked for this moment");
    scene.wait(29);
    assert!(!asked(&mut scene));
    scene.wait(1);
    assert!(asked(&mut scene));
    scene.policy.inventory = false;
    assert!(!asked(&mut scene), "a maker without an inventory");
}

#[test]
fn a_machine_that_changed_at_ec2_is_asked_for_by_name_where_there_is_an_inventory() {
    let mut scene = yard(machine("i-1").running(&ask("1")));
    let news = crate::model::Notice { instance: id("i-1"), news: crate::model::News::Changed };
    scene.see(Observation::Notice(news));
    assert_eq!(scene.of_machine("i-1").actions, [Action::Describe(arn("i-1"))]);
    scene.policy.inventory = false;
    assert_eq!(scene.of_machine("i-1").actions, []);
}

/// Ten machines older than the grace of which the list shows all but the first so many.
fn list_lacks(n: usize) -> Scene {
    let mut scene = Scene::with(serde_json::json!({"max": 20}));
    let machines: Vec<Built> = (0..10)
        .map(|i| machine(&format!("i-{i}")).pooled().with(|i| i.facts.created_at = at(-1000)))
        .collect();
    machines.iter().for_each(|built| drop(scene.add(built.clone())));
    let listed = machines.iter().skip(n).map(|built| built.listed(MachineState::Running)).collect();
    scene.see(Observation::Inventory(listed));
    scene
}

#[test]
fn a_list_that_lacks_more_than_three_and_a_third_of_a_class_is_not_believed() {
    assert_eq!(list_lacks(3).of_machine("i-0").actions, [Action::Describe(arn("i-0"))]);
    let scene = list_lacks(4);
    for i in 0..10 {
        let plan = scene.of_machine(&format!("i-{i}"));
        assert!(!plan.actions.contains(&Action::Describe(arn(&format!("i-{i}")))), "{plan:?}");
    }
    let waits = scene.of_class().waits;
    assert!(waits.iter().any(|wait| wait.reason == super::super::WaitReason::Doubt), "{waits:?}");
}

#[test]
fn young_machines_that_no_list_shows_yet_do_not_make_it_unbelievable() {
    let mut scene = Scene::with(serde_json::json!({"max": 20}));
    for i in 1..10 {
        scene.add(machine(&format!("i-{i}")).pooled());
    }
    scene.add(machine("i-0").pooled().with(|i| i.facts.created_at = at(-1000)));
    scene.see(Observation::Inventory(Vec::new()));
    assert_eq!(scene.of_machine("i-0").actions, [Action::Describe(arn("i-0"))]);
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
        scene.see(Observation::GitHub(false));
        let moved = scene.of_machine("i-1").actions.into_iter().find_map(|action| match action {
            Action::Instance(step, _) => Some((step.after.place(), step.after.threshold)),
            _ => None,
        });
        assert_eq!(moved, more.map(|seconds| (place, renewed(seconds))), "{place:?}");
        scene.see(Observation::GitHub(true));
        let writes = scene.of_machine("i-1").actions.iter().any(|a| matches!(a, Action::Instance(..)));
        assert!(!writes, "{place:?}");
    }
}

#[test]
fn while_github_is_away_a_deadline_moves_on_when_no_more_than_a_quarter_of_it_is_left() {
    for (left, moves) in [(76, false), (75, true), (74, true)] {
        let threshold = Threshold { at: at(left), set_at: at(left - 300) };
        let mut scene = yard(machine("i-1").claimed(&ask("1")).with(|i| i.threshold = Some(threshold)));
        scene.policy.github = true;
        scene.see(Observation::GitHub(false));
        let moved = scene.of_machine("i-1").actions.iter().any(|a| matches!(a, Action::Instance(..)));
        assert_eq!(moved, moves, "{left} of 300 s left");
    }
}

#[test]
fn while_github_is_away_a_deadline_that_is_later_than_it_would_be_set_now_stays() {
    // Of an hour, by a setting of before.
    let threshold = Threshold { at: at(310), set_at: at(310 - 3600) };
    let mut scene = yard(machine("i-1").claimed(&ask("1")).with(|i| i.threshold = Some(threshold)));
    scene.policy.github = true;
    scene.see(Observation::GitHub(false));
    let moved = |scene: &Scene| write(&scene.of_machine("i-1")).0.after.threshold;
    assert!(!scene.of_machine("i-1").actions.iter().any(|a| matches!(a, Action::Instance(..))));
    scene.wait(11);
    assert_eq!(moved(&scene), Some(Threshold { at: at(311), set_at: at(11) }));
}

#[test]
fn while_github_is_away_a_deadline_that_passed_does_not_end_what_waits_for_it() {
    let mut scene = yard(machine("i-1").claimed(&ask("1")).until(-10));
    scene.policy.github = true;
    scene.see(Observation::GitHub(false));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.threshold, renewed(300));
    let mut scene =
        yard(machine("i-1").claimed(&ask("1")).until(-10).with(|i| i.expired_by = Some("ada".into())));
    scene.policy.github = true;
    scene.see(Observation::GitHub(false));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Expired), "a person's word counts");
}

#[test]
fn a_deadline_that_cannot_move_on_any_more_is_not_written_again_and_again() {
    let mut scene = yard(machine("i-1").claimed(&ask("1")));
    (scene.policy.github, scene.now.wall) = (true, "9999-12-30T21:59:30Z".parse().unwrap());
    scene.see(Observation::GitHub(false));
    let actions = scene.of_machine("i-1").actions;
    scene.apply(&actions);
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn a_machine_gets_what_it_needs_to_register_once_its_key_is_known_and_again_when_that_runs_out() {
    let register = Action::Credential(arn("i-1"), Credential::Registration);
    let remove = Action::Credential(arn("i-1"), Credential::Removal);
    let keyed = |built: Built| built.agent(|agent| agent.public_key = Some("key".into()));
    let boxed = |seconds| Some(Registration { sealed: "box".into(), expires_at: Some(at(seconds)) });
    let request = ask("1");
    let claimed = || machine("i-1").claimed(&request);
    let cleaning = || machine("i-1").cleaning(&request).with(|i| i.registration_seq = 1);
    for (built, expected) in [
        (claimed(), None),
        (keyed(claimed()), Some(&register)),
        (keyed(machine("i-1").bound(&request)), Some(&register)),
        (keyed(claimed()).with(|i| i.registration = boxed(1)), None),
        (keyed(claimed()).with(|i| i.registration = boxed(0)), Some(&register)),
        (keyed(cleaning()), Some(&remove)),
        (keyed(cleaning()).with(|i| i.registration_seq = 0), None),
        (keyed(cleaning()).with(|i| i.removal = boxed(1)), None),
        (keyed(machine("i-1").running(&request)), None),
        (keyed(machine("i-1")), None),
    ] {
        let mut scene = yard(built.clone());
        scene.policy.github = true;
        assert_eq!(scene.of_machine("i-1").actions.first(), expected, "{:?}", built.instance.place());
        scene.policy.github = false;
        assert_eq!(scene.of_machine("i-1").actions, [], "without GitHub nothing is needed");
    }
}

#[test]
fn in_mode_job_the_next_box_follows_when_the_last_is_used_up() {
    let used = |done| {
        let built = machine("i-1").running(&ask("1")).with(|i| i.registration_seq = 2);
        let built = built.agent(|a| (a.registration_done, a.public_key) = (done, Some("key".into())));
        let mut scene = yard(built);
        scene.policy.github = true;
        scene.pool(2, serde_json::json!({"registrationMode": "job"}));
        scene.of_machine("i-1").actions
    };
    assert_eq!(used(None), []);
    assert_eq!(used(Some(1)), []);
    assert_eq!(used(Some(2)), [Action::Credential(arn("i-1"), Credential::Registration)]);
}

#[test]
fn a_machine_that_is_being_written_is_left_alone() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(0));
    scene.yard.busy.insert(crate::model::Instance::key_of(&arn("i-1")).into());
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn a_machine_that_served_as_often_as_its_class_allows_ends_instead_of_entering_the_pool() {
    for (spec, uses, reason) in [
        (serde_json::json!({"maxUses": 2}), 1, None),
        (serde_json::json!({"maxUses": 2}), 2, Some(Reason::MaxUses)),
        (serde_json::json!({"reuseWithin": "none", "maxUses": 9}), 1, Some(Reason::MaxUses)),
        (serde_json::json!({"reuseWithin": "none"}), 0, Some(Reason::MaxUses)),
        (serde_json::json!({"maxAgeSeconds": 201}), 1, None),
        (serde_json::json!({"maxAgeSeconds": 200}), 1, Some(Reason::MaxAge)),
    ] {
        let mut scene = Scene::with(spec.clone());
        scene.put(&holding("1", 1, &["i-1"], serde_json::json!({"desired": "released"})));
        let built = machine("i-1").cleaning(&ask("1")).with(|i| i.uses = uses);
        scene.add(built.says(Signal::RemoveRegOk));
        assert_eq!(ends(&scene.of_machine("i-1")), reason, "{spec} {uses}");
    }
}

#[test]
fn every_write_of_a_machine_is_in_the_table_of_transitions() {
    let causes =
        [Cause::Registered, Cause::GivenBack, Cause::RegistrationFailedOnce, Cause::Booted, Cause::Cleaned];
    for built in kinds() {
        for signal in Signal::ALL {
            for more in [serde_json::json!({}), serde_json::json!({"desired": "released"})] {
                let plan = held(built.clone().says(*signal), more).of_machine("i-1");
                let Some(Action::Instance(step, _)) = plan.actions.first() else { continue };
                let (from, to) = (step.before.place(), step.after.place());
                let known = causes.iter().any(|cause| legal(from, *cause, to));
                assert!(known || legal(from, Cause::Ended, to), "{from:?} -> {to:?} on {signal}");
            }
        }
    }
}

#[test]
fn a_machine_of_a_class_that_is_gone_is_still_judged() {
    let mut scene = Scene::empty();
    scene.put(&holding("1", 1, &["i-1"], serde_json::json!({})));
    scene.add(
        machine("i-1")
            .claimed(&ask("1"))
            .says(Signal::RegOk)
            .with(|i| i.facts.usage_class = UsageClass::Spot),
    );
    assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::Running);
    let request: Request = request("2", 1, serde_json::json!({}));
    assert_eq!(request.key(), ask("2"));
}
