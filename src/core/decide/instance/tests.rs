use crate::decide::{Credential, Effect, Planned, Step};
use crate::model::{
    Agent, Cause, ClaimId, Interruption, InterruptionAction, Life, Place, Reason, Rebalance, Record,
    RecordId, Registration, Request, RunnerTrouble, Signal, Threshold, TroubleKind, UsageClass, legal,
};
use crate::ports::{MachineState, StateReason};
use crate::testing::*;
use crate::yard::Observation;

mod ahead;
mod cleaning;
mod console;
mod credentials;
mod deadline;
mod held;
mod interruption;
mod liveness;
mod pooled;
mod released;
mod retire;
mod running;
mod starting;
mod terminating;
mod wakes;

/// Creates a yard where request 1 holds machine `i-1`.
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

/// Checks every change that a plan makes besides the version and the time of the write.
fn becomes(scene: &Scene, change: impl FnOnce(&mut crate::model::Instance)) {
    let (step, _) = write(&scene.of_machine("i-1"));
    let mut expected = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
    assert_eq!(step.before, expected, "the write replaces what was read");
    expected.version += 1;
    expected.updated_at = start();
    change(&mut expected);
    crate::model::Versioned::settle(&mut expected, &step.before);
    assert_eq!(step.after, expected);
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

/// Builds one machine of each live kind.
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
                let moves = plan.actions.iter().any(|action| matches!(action.effect, Effect::Instance(..)));
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
            let moves =
                scene.of_machine("i-1").actions.iter().any(|a| matches!(a.effect, Effect::Instance(..)));
            assert!(!moves, "{:?} on {signal}", built.instance.place());
        }
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
    // Before any write stored the first one in the record.
    let mut scene = yard(machine("i-1").agent(|a| a.public_key = Some("one".into())));
    assert_eq!(ends(&scene.of_machine("i-1")), None);
    scene.speaks("i-1", |agent| agent.public_key = Some("two".into()));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Unhealthy));
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
fn a_machine_that_never_began_says_why_and_holds_its_class_back_at_once() {
    let key = "Client.InternalError: Client error on launch";
    let end = |built, never_began| {
        let mut scene = yard(built);
        scene.see(Observation::WhyEnded(arn("i-1"), StateReason { why: key.into(), never_began }));
        scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Terminated)));
        let told =
            scene.of_machine("i-1").actions.iter().map(|action| format!("{action:?}")).collect::<String>();
        assert!(told.contains(&format!("it stopped or ended by itself: {key}")), "{told}");
        let class = scene.yard.class(&linux()).unwrap();
        (class.backoff.until > scene.now.mono, class.refusal.clone())
    };
    assert_eq!(end(machine("i-1"), true), (true, Some(key.into())));
    assert_eq!(end(machine("i-1"), false), (false, None), "it was switched off");
    assert_eq!(end(machine("i-1").running(&ask("1")), true), (false, None), "it had begun");
}

#[test]
fn a_machine_unknown_to_its_provider_vanished_once_it_is_older_than_the_grace() {
    let aged = |seconds: i64| machine("i-1").running(&ask("1")).with(|i| i.facts.created_at = at(-seconds));
    for (age, reason) in [(599, None), (600, Some(Reason::Vanished))] {
        let mut scene = yard(aged(age));
        scene.see(Observation::Stands(arn("i-1"), None));
        assert_eq!(ends(&scene.of_machine("i-1")), reason, "{age} s old");
        scene.policy.inventory = false;
        assert_eq!(ends(&scene.of_machine("i-1")), None, "a provider without an inventory");
    }
}

#[test]
fn a_machine_that_is_being_written_is_left_alone() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(0));
    scene.yard.busy.insert(crate::model::Instance::key_of(&arn("i-1")).into());
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn every_write_of_a_machine_is_in_the_table_of_transitions() {
    let causes =
        [Cause::Registered, Cause::GivenBack, Cause::RegistrationFailedOnce, Cause::Booted, Cause::Cleaned];
    for built in kinds() {
        for signal in Signal::ALL {
            for more in [serde_json::json!({}), serde_json::json!({"desired": "released"})] {
                let plan = held(built.clone().says(*signal), more).of_machine("i-1");
                let [Effect::Instance(step, _), ..] = effects(&plan.actions)[..] else { continue };
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
