//! Slots of a runner scale set: requests of one machine that end with its runner.

use super::*;
use crate::decide::{Credential, Slots};
use crate::model::{JobReport, RequestKey, SetPlace};
use crate::yard::Unit;

fn key(name: &str) -> RequestKey {
    RequestKey {
        repository: "acme/~".parse().unwrap(),
        run_id: "set-7".parse().unwrap(),
        name: name.parse().unwrap(),
        attempt: 1,
    }
}

fn slot(more: serde_json::Value) -> Request {
    let mut fields = json!({
        "repository": "acme/~", "name": "s1", "asked": "set", "phase": "Fulfilling", "instances": ["i-1"],
        "served": ["i-1"], "claims": {"i-1": "i-1.5"},
    });
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request("set-7", 1, fields)
}

fn class() -> serde_json::Value {
    let queue = json!({"labels": ["runyard-linux"], "scope": "organization"});
    json!({"repositories": ["acme/*"], "registrationMode": "job", "reuseWithin": "owner", "queue": queue})
}

/// Creates a yard with a ready slot whose runner waits for a job.
fn standing() -> Scene {
    let mut scene = Scene::with(class());
    scene.policy.github = true;
    scene.put(&slot(json!({"phase": "Ready", "readyAt": at(-10)})));
    let built = machine("i-1").running(&key("s1")).until(50_000).with(|i| i.registration_seq = 1);
    scene.add(built.says(Signal::RegOk).agent(|agent| agent.runner_id = Some(9)));
    scene
}

fn judged(scene: &Scene) -> crate::decide::Plan {
    scene.judge(&Unit::Request(key("s1")))
}

fn begins(scene: &mut Scene, seconds: i64) {
    let job = JobReport::of("acme/web", "41", 1, "build", at(seconds)).unwrap();
    let dirty = scene.speaks("i-1", |agent| agent.job = Some(job));
    assert!(dirty.contains(&Unit::Request(key("s1"))), "its runtime begins");
}

#[test]
fn a_slot_is_released_when_its_runner_ended_and_gets_no_other() {
    let mut scene = standing();
    assert_eq!(judged(&scene).actions, [], "it waits for a job");
    begins(&mut scene, 0);
    assert_eq!(judged(&scene).actions, [], "its job runs");
    let dirty = scene.speaks("i-1", |agent| agent.registration_done = Some(1));
    assert!(dirty.contains(&Unit::Request(key("s1"))));
    let (step, note) = answer(&judged(&scene));
    assert_eq!((step.after.phase(), note.reason), (Phase::Releasing, "Releasing"));
    assert_eq!(step.after.status.released_by.map(|by| by.to_string()), Some("runner-ended".into()));
    let agent = scene.yard.by_id(&id("i-1")).unwrap().agent.clone().unwrap();
    assert!(agent.job.is_some() && step.after.status.job == agent.job, "{:?}", step.after.status.job);
    let boxes = |action: &&Planned| match &action.effect {
        Effect::Credential(_, credential) => {
            matches!(**credential, Credential::Registration(_) | Credential::Anew { .. })
        }
        _ => false,
    };
    assert_eq!(scene.of_machine("i-1").actions.iter().filter(boxes).count(), 0);
}

#[test]
fn the_maximum_runtime_of_a_slot_counts_from_its_job() {
    let mut scene = standing();
    scene.wait(3 * 3600);
    assert_eq!((judged(&scene).actions, judged(&scene).wake), (vec![], None), "no time passes before it");
    begins(&mut scene, 3 * 3600);
    assert_eq!(
        judged(&scene).wake,
        Some(scene.now.mono + secs(6 * 3600 - 300)),
        "six hours, and it is said before"
    );
    scene.wait(6 * 3600);
    let (step, _) = answer(&judged(&scene));
    assert_eq!(step.after.status.released_by.map(|by| by.to_string()), Some("max-runtime".into()));
}

#[test]
fn a_slot_that_no_job_needs_is_released_once_it_has_no_machine() {
    let mut scene = standing();
    scene.put(&slot(json!({"phase": "Ready", "readyAt": at(-10), "wanted": 0, "version": 4})));
    assert_eq!(judged(&scene).actions, [], "its agent is asked first");
    let rests = json!({"phase": "Ready", "readyAt": at(-10), "wanted": 0, "version": 5, "instances": []});
    scene.put(&slot(rests));
    let (step, _) = answer(&judged(&scene));
    assert!(matches!(step.after.phase(), Phase::Releasing | Phase::Released), "{}", step.after.phase());
}

#[test]
fn only_a_slot_of_a_set_of_its_class_is_accepted() {
    let accepted = |spec: serde_json::Value, more: serde_json::Value| {
        let mut request = slot(more);
        request.status = crate::model::Status::default();
        let mut scene = Scene::with(spec);
        scene.put(&request);
        let plan = scene.judge(&Unit::Request(request.id.clone()));
        plan.actions.is_empty()
    };
    assert!(accepted(class(), json!({})));
    assert!(!accepted(class(), json!({"asked": "verb"})), "a workflow wrote it");
    assert!(!accepted(class(), json!({"count": 2, "minCount": 2})));
    assert!(!accepted(class(), json!({"repository": "acme/web"})), "the set is the organisation's");
    assert!(!accepted(json!({"repositories": ["acme/*"]}), json!({})), "the class has no set");
    assert!(!accepted(class(), json!({"repository": "other/~"})));
}

#[test]
fn the_slots_of_a_set_are_told_from_the_records() {
    let mut scene = standing();
    let of = |scene: &Scene| {
        let all = Slots::all(&scene.yard);
        let slots = all.get(&(SetPlace::organization("acme").unwrap(), 7)).unwrap().clone();
        slots.open.iter().map(|slot| (slot.has_job, slot.wanted, slot.waits)).collect::<Vec<_>>()
    };
    assert_eq!(of(&scene), [(false, true, false)]);
    begins(&mut scene, 0);
    assert_eq!(of(&scene), [(true, true, false)]);
    scene.speaks("i-1", |agent| agent.signal_claim_id = Some(ClaimId::of(&id("i-1"), 3).to_string()));
    assert_eq!(of(&scene), [(false, true, false)], "the job was that of another claim");
}

#[test]
fn what_an_agent_says_of_the_box_of_a_former_claim_ends_no_slot() {
    let mut scene = Scene::with(class());
    scene.policy.github = true;
    scene.put(&slot(json!({})));
    let built = machine("i-1").claimed(&key("s1")).with(|i| i.registration_seq = 3);
    let built = built.agent(|agent| {
        (agent.registration_done, agent.public_key) = (Some(3), Some("key".into()));
        (agent.signal, agent.signal_claim_id) = (Some(Signal::RemoveRegOk), Some("i-1.2".into()));
    });
    scene.add(built);
    let released = |action: &Planned| match &action.effect {
        Effect::Request(step) => step.after.status.released_by.is_some(),
        _ => false,
    };
    assert!(!judged(&scene).actions.iter().any(released));
    let boxes = |action: &Planned| match &action.effect {
        Effect::Credential(_, credential) => matches!(**credential, Credential::Registration(_)),
        _ => false,
    };
    assert!(scene.of_machine("i-1").actions.iter().any(boxes), "it gets its own box");
}
