use serde_json::json;

use super::*;
use crate::explain::{explain, pool};
use crate::model::{RequestKey, Uid, Versioned as _};
use crate::testing::{Scene, at, id, linux, machine};
use crate::yard::Observation;

/// Builds the spec of class `linux` with a set at `acme`.
fn spec(more: serde_json::Value) -> serde_json::Value {
    let mut spec = json!({
        "repositories": ["acme/*"], "reuseWithin": "owner", "registrationMode": "job", "max": 4,
        "queue": {"labels": ["runyard-small"], "scope": "organization", "maxSlots": 3, "standing": 1},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn record(state: SetState) -> SetRecord {
    let place = SetPlace::organization("acme").unwrap();
    let mut set = SetRecord::born(linux(), place, vec!["runyard-small".into()], Uid::parse("u-1").unwrap());
    (set.scale_set_id, set.state, set.announced) = (Some(7), state, 3);
    set.statistics = SetCounts { assigned: 5, running: 1, ..SetCounts::default() };
    set.statistics_at = Some(at(-20));
    set
}

fn put(scene: &mut Scene, mut set: SetRecord) {
    use crate::model::Record as _;
    set.advance(at(0));
    scene.see(Observation::Record(set.key(), Some(set.to_item())));
}

fn slot_key(number: u64) -> RequestKey {
    record(SetState::Listening).slot(number).unwrap()
}

/// A class with a set that listens and has two slots: the first has a job, the second waits for a machine.
fn scene() -> Scene {
    let mut scene = Scene::with(spec(json!({})));
    put(&mut scene, record(SetState::Listening));
    for number in [1, 2] {
        let mut slot = Request::slot_of_set(&slot_key(number), &linux(), Uid::parse("u-2").unwrap(), at(-60));
        if number == 1 {
            slot.status.instances = vec![id("i-1")];
            slot.status.claims = [(id("i-1"), crate::model::ClaimId::of(&id("i-1"), 5))].into();
            slot.status.phase = Some(crate::model::Phase::Ready);
        }
        scene.put(&slot);
    }
    let job = JobReport::of("acme/web", "41", 2, "build", at(-30)).unwrap();
    let busy = machine("i-1").running(&slot_key(1)).says(crate::model::Signal::RegOk);
    scene.add(busy.agent(|agent| agent.job = Some(job)));
    scene
}

fn only(scene: &Scene) -> SetReport {
    let mut sets = sets(&scene.yard);
    assert_eq!(sets.len(), 1, "{sets:?}");
    sets.remove(0)
}

fn reasons(scene: &Scene) -> Vec<&'static str> {
    only(scene).lacks.iter().map(SetLack::reason).collect()
}

#[test]
fn a_set_is_reported_with_its_counts_and_its_slots() {
    let report = only(&scene());
    assert_eq!((report.place.as_str(), report.set_name.as_str()), ("acme", "runyard-small"));
    assert_eq!((report.state, report.listening, report.announced), (Some(SetState::Listening), true, 3));
    assert_eq!(report.slots, SlotCounts { open: 2, job: 1, waiting: 1 });
    assert_eq!(report.lacks, [SetLack::AtMost(2, 3), SetLack::Machines(1)]);
    let told = report.told();
    assert_eq!(
        told[0],
        "scale set runyard-small at acme: Listening; GitHub counted 5 jobs, 1 of them running, at \
         2026-01-05T11:59:40Z; slots: 2, 1 with a job, 1 without a machine; GitHub may give it 3 jobs"
    );
    assert_eq!(
        told[1],
        "waits: scale set runyard-small at acme: 2 of its jobs wait: its class gives it at most 3 slots (queue.maxSlots, max)"
    );
    let lines = pool(&scene().yard, scene().now, &linux());
    assert!(told.iter().all(|line| lines.contains(line)), "{lines:?}");
    let document = serde_json::to_value(&report).unwrap();
    assert_eq!(document["slots"], json!({"open": 2, "job": 1, "waiting": 1}));
    assert_eq!(document["lacks"][1]["reason"], "Machines");
}

#[test]
fn what_a_set_lacks_is_told_by_its_state_and_its_class() {
    let with = |more: serde_json::Value, state: Option<SetState>| {
        let mut scene = Scene::with(spec(more));
        state.into_iter().for_each(|state| put(&mut scene, record(state)));
        reasons(&scene)
    };
    assert_eq!(with(json!({}), None), ["NotBegun"]);
    assert_eq!(with(json!({}), Some(SetState::Ensuring)), ["NotThere", "AtMost"]);
    assert_eq!(with(json!({}), Some(SetState::Waiting)), ["Held", "AtMost"]);
    assert_eq!(with(json!({"paused": true}), Some(SetState::Listening)), ["Paused", "AtMost"]);
    assert_eq!(with(json!({"registrationMode": "run"}), Some(SetState::Listening)), ["Unusable"]);
    assert_eq!(with(json!({"queue": {"runLabels": true}}), Some(SetState::Draining)), ["Ending"]);
    assert_eq!(with(json!({}), Some(SetState::Gone)), ["NotBegun", "AtMost"], "it is served again");
    let gone = Scene::with(json!({}));
    assert_eq!(sets(&gone.yard), [], "a class without sets");
}

#[test]
fn a_set_in_trouble_does_not_listen_and_says_since_when() {
    let mut scene = Scene::with(spec(json!({})));
    let mut set = record(SetState::Listening);
    let why = "GitHub cannot be reached".to_owned();
    set.conditions = vec![Condition::since(&[], ConditionType::Listening, false, "Trouble", why, at(-300))];
    put(&mut scene, set);
    let report = only(&scene);
    assert!(!report.listening);
    assert_eq!(report.lacks[0], SetLack::Trouble("GitHub cannot be reached".into()));
    assert!(
        report.told()[0].contains("Listening (trouble since 2026-01-05T11:55:00Z)"),
        "{:?}",
        report.told()
    );
}

#[test]
fn a_slot_that_failed_explains_why_none_is_made() {
    let mut scene = scene();
    let mut failed = Request::slot_of_set(&slot_key(3), &linux(), Uid::parse("u-3").unwrap(), at(-60));
    (failed.status.phase, failed.updated_at) = (Some(crate::model::Phase::Failed), Some(at(-5)));
    scene.put(&failed);
    assert_eq!(reasons(&scene), ["AtMost", "Failed", "Machines"]);
}

#[test]
fn of_two_classes_with_one_label_the_later_one_is_told_of_the_earlier() {
    let mut scene = scene();
    let mut second = spec(json!({"resourceClass": "second"}));
    (second["pk"], second["sk"], second["kind"]) = ("pool#second".into(), "pool".into(), "pool".into());
    second["version"] = json!(1);
    let item = crate::testing::item(second);
    scene.see(Observation::Record(crate::model::RecordId::new("pool#second", "pool"), Some(item)));
    let all = sets(&scene.yard);
    assert_eq!(all.len(), 2);
    assert_eq!(all[1].lacks, [SetLack::SharedLabel(linux(), "runyard-small".into())]);
}

#[test]
fn the_job_of_a_slot_answers_who_ran_on_its_machine() {
    let scene = scene();
    let slot = scene.yard.request(&slot_key(1)).unwrap();
    let jobs: Vec<String> =
        jobs_of_slot(&scene.yard, slot).iter().map(|(id, job)| format!("{id} {}", job.name)).collect();
    assert_eq!(jobs, ["i-1 build"]);
    let lines = explain(&scene.yard, &scene.policy, scene.now, scene.role, &slot_key(1));
    let expected = [
        "the operator wrote it as a slot of scale set runyard-small of class linux at acme: its runner gets one job, which \
         GitHub decides",
        "machine i-1 has or had job build of acme/web run 41/2, begun 2026-01-05T11:59:30Z",
    ];
    assert!(expected.iter().all(|line| lines.iter().any(|one| one == line)), "{lines:?}");
    let mut over = slot.clone();
    (over.status.served, over.status.job) =
        (vec![id("i-1")], jobs_of_slot(&scene.yard, slot)[0].1.clone().into());
    over.release_all();
    let mut later = Scene::with(spec(json!({})));
    later.put(&over);
    let lines = explain(&later.yard, &later.policy, later.now, later.role, &slot_key(1));
    assert!(lines.iter().any(|line| line == expected[1]), "the machine's record is gone: {lines:?}");
    let told = crate::explain::machine(&scene.yard, &crate::testing::arn("i-1")).unwrap();
    assert!(told.contains("for acme/~ run set-7/s1/1 (job build of acme/web run 41/2, begun"), "{told}");
}
