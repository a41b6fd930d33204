use crate::model::history::{Activity, PastSpan};
use crate::model::{Instance, Jobs, Repository};

use super::*;

#[test]
fn a_cleaned_machine_is_pooled_with_its_last_claim_and_without_its_credential() {
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

/// Grants the jobs of a machine root.
fn with_root(instance: &mut Instance) {
    instance.jobs = Jobs { root: true, ..Jobs::default() };
}

#[test]
fn a_machine_whose_job_could_become_root_ends_when_it_is_given_back() {
    for spec in [serde_json::json!({}), serde_json::json!({"reuseWithin": "any", "maxUses": 9})] {
        let released = serde_json::json!({"desired": "released"});
        for built in [machine("i-1").running(&ask("1")), machine("i-1").claimed(&ask("1"))] {
            let mut scene = Scene::with(spec.clone());
            scene.put(&holding("1", 1, &["i-1"], released.clone()));
            scene.add(built.with(with_root));
            assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::MaxUses), "{spec}");
        }
        for said in [None, Some(Signal::RemoveRegOk)] {
            let mut scene = Scene::with(spec.clone());
            scene.put(&holding("1", 1, &["i-1"], released.clone()));
            let built = machine("i-1").cleaning(&ask("1")).with(with_root);
            scene.add(said.map_or(built.clone(), |signal| built.says(signal)));
            assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::MaxUses), "{spec} {said:?}");
        }
    }
}

#[test]
fn a_machine_whose_class_is_gone_is_not_pooled_after_a_job_that_could_become_root() {
    let mut scene = Scene::empty();
    scene.add(machine("i-1").cleaning(&ask("1")).with(with_root).says(Signal::RemoveRegOk));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::MaxUses));
}

#[test]
fn a_machine_whose_job_could_become_root_ends_after_it_and_gets_no_second_box() {
    let mut scene = Scene::with(serde_json::json!({"registrationMode": "job", "reuseWithin": "none"}));
    scene.put(&holding("1", 1, &["i-1"], serde_json::json!({})));
    let built = machine("i-1").running(&ask("1")).with(with_root).with(|i| i.registration_seq = 1);
    scene.add(built.says(Signal::RegOk).agent(|agent| agent.registration_done = Some(1)));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::MaxUses));
}

#[test]
fn a_machine_at_its_classs_use_limit_ends_instead_of_entering_the_pool() {
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
fn a_drained_machine_serves_its_run_and_ends_when_it_is_clean() {
    let drained = |built: Built| built.until(600).with(|i| i.expired_by = Some("ada".into()));
    assert_eq!(ends(&yard(drained(machine("i-1").running(&ask("1")))).of_machine("i-1")), None);
    let mut scene = Scene::with(serde_json::json!({"desired": 5}));
    scene.put(&holding("1", 1, &["i-1"], serde_json::json!({"desired": "released"})));
    scene.add(drained(machine("i-1").cleaning(&ask("1"))).says(Signal::RemoveRegOk));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Expired));
}

/// Adds machines that ended after jobs of `acme/web`, each at another moment before now, in seconds.
fn failed_before(scene: &mut Scene, failed: &[(Reason, i64)]) {
    for (number, (reason, before)) in failed.iter().enumerate() {
        let cleaned = PastSpan::new(Activity::Cleaning, at(-before - 60), None);
        let built = machine(&format!("i-{}", number + 10)).cleaning(&ask("7")).ended(*reason);
        scene.add(built.with(|i| (i.state_since, i.spans) = (at(-before), vec![cleaned])));
    }
}

#[test]
fn after_three_clean_ups_that_failed_no_other_is_tried_for_an_hour() {
    use Reason::{CleanupFailed, Surplus, Threshold as Deadline};
    for (failed, braked) in [
        (&[(CleanupFailed, 30), (Deadline, 20), (CleanupFailed, 10)][..], true),
        (&[(CleanupFailed, 3700), (CleanupFailed, 3650), (CleanupFailed, 3600)], false),
        (&[(CleanupFailed, 3700), (CleanupFailed, 3650), (CleanupFailed, 3599)], true),
        (&[(CleanupFailed, 30), (CleanupFailed, 20)], false),
        (&[(CleanupFailed, 30), (Surplus, 20), (CleanupFailed, 10)], false),
    ] {
        let ends_of = |built: Built| {
            let mut scene = yard(built);
            failed_before(&mut scene, failed);
            scene.of_machine("i-1")
        };
        // It ends before its agent has reported the result of its cleaning.
        let plan = ends_of(machine("i-1").cleaning(&ask("8")));
        assert_eq!(ends(&plan), braked.then_some(Reason::MaxUses), "{failed:?}");
        if braked {
            let told = note(&plan.actions);
            assert_eq!(told.reason, "CleanupBrake");
            assert!(told.message.contains("acme/web failed 3 times in a row (i-10, i-11, i-12)"), "{told:?}");
        }
        // While its run has it, and once it is proved clean, nothing changes.
        assert_eq!(ends(&ends_of(machine("i-1").pooled())), None);
        let mut other = ask("8");
        other.repository = Repository::parse("acme/api").unwrap();
        assert_eq!(ends(&ends_of(machine("i-1").cleaning(&other))), None, "another repository's");
    }
}
