use serde_json::json;

use crate::decide::{Effect, Planned, WaitReason};
use crate::model::{
    ClaimId, ConditionType, Instance, Life, Phase, Pool, ReadySource, Reason, Record, RecordId, Request,
    RunnerTrouble, Signal, TroubleKind,
};
use crate::testing::*;
use crate::yard::Observation;
use crate::yard::lacking;

mod archived;
mod bounds;
mod intent;
mod labels;
mod slots;
mod told;

fn yard(request: Request, machines: Vec<Built>) -> Scene {
    let mut scene = Scene::with(json!({}));
    scene.put(&request);
    machines.into_iter().for_each(|built| drop(scene.add(built)));
    scene
}

fn running(name: &str) -> Built {
    machine(name).running(&ask("1")).until(5000)
}

fn lacks(scene: &Scene) -> u32 {
    lacking(&scene.yard, &ask("1"), scene.yard.request(&ask("1")).unwrap())
}

fn degraded(request: &Request) -> Option<(bool, String)> {
    let of = |c: &&crate::model::Condition| c.condition_type == ConditionType::Degraded;
    request.status.conditions.iter().find(of).map(|c| (c.status, c.reason.clone()))
}

/// Builds a new request, as a workflow writes it.
fn new(more: serde_json::Value) -> Request {
    let mut request = request("1", 1, more);
    request.status = crate::model::Status::default();
    request
}

#[test]
fn a_request_that_cannot_be_served_fails_at_once_with_the_reason() {
    let spec = json!({"max": 4, "repositories": ["acme/*"], "maxRuntimeMinutes": 60});
    for (more, reason) in [
        (json!({"count": 5}), "OverMax"),
        (json!({"count": 0}), "Invalid"),
        (json!({"count": 501}), "Invalid"),
        (json!({"count": 2, "minCount": 3}), "Invalid"),
        (json!({"minCount": 0}), "Invalid"),
        (json!({"timeoutSeconds": 0}), "Invalid"),
        (json!({"maxRuntimeMinutes": 0}), "Invalid"),
        (json!({"maxRuntimeMinutes": 61}), "NotAllowed"),
        (json!({"maxRuntimeMinutes": u64::MAX}), "Invalid"),
    ] {
        let mut scene = Scene::with(spec.clone());
        scene.put(&new(more.clone()));
        let (step, note) = answer(&scene.of_request("1"));
        assert_eq!((step.after.phase(), note.reason), (Phase::Failed, reason), "{more}");
        assert!(step.after.status.message.starts_with(reason), "{}", step.after.status.message);
        assert_eq!(step.after.status.expires_at, Some(start().as_second() + 7 * 24 * 3600));
        assert!(scene.claims().is_empty() && scene.intents().is_empty());
    }
    let mut scene = Scene::with(json!({"repositories": ["other/*"]}));
    scene.put(&new(json!({})));
    assert_eq!(answer(&scene.of_request("1")).1.reason, "NotAllowed");
}

#[test]
fn a_class_is_unknown_only_after_a_strong_read() {
    let mut scene = Scene::empty();
    scene.put(&new(json!({})));
    let pool = Pool::key_of(&linux());
    assert_eq!(scene.of_request("1").actions, [Planned::look(pool.clone())]);
    scene.look(pool, None);
    assert_eq!(answer(&scene.of_request("1")).1.reason, "UnknownClass");
}

#[test]
fn a_request_waits_for_an_unreadable_class_until_its_deadline_without_a_read_loop() {
    for schema in [None, Some(2)] {
        let mut scene = Scene::empty();
        scene.put(&new(json!({})));
        scene.spoil(&Pool::key_of(&linux()), schema);
        let (step, _) = answer(&scene.of_request("1"));
        let deadline = Some(at(600));
        assert_eq!((step.after.status.phase, step.after.status.deadline), (None, deadline));
        assert_eq!(accepted(&step.after), Some((false, "ClassUnreadable".into())), "in the same write");
        scene.put(&step.after);
        let plan = scene.of_request("1");
        assert_eq!((plan.actions.as_slice(), plan.waits[0].reason), ([].as_slice(), WaitReason::Mismatch));
        assert_eq!(plan.wake, Some(scene.now.mono + secs(600)));
        scene.wait(600);
        let (step, _) = answer(&scene.of_request("1"));
        assert_eq!(step.after.phase(), Phase::Failed);
        assert!(step.after.status.message.contains("cannot be read"), "{}", step.after.status.message);
    }
}

/// Returns the condition `Accepted` of a request, and its reason.
fn accepted(request: &Request) -> Option<(bool, String)> {
    let of = |c: &&crate::model::Condition| c.condition_type == ConditionType::Accepted;
    request.status.conditions.iter().find(of).map(|c| (c.status, c.reason.clone()))
}

#[test]
fn who_waited_for_an_unreadable_class_is_accepted_when_it_can_be_read() {
    let mut scene = Scene::empty();
    scene.put(&new(json!({})));
    scene.spoil(&Pool::key_of(&linux()), None);
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    scene.wait(60);
    scene.pool(1, json!({}));
    let taken = scene.served();
    let [Effect::Request(step), ..] = effects(&taken)[..] else { panic!("{taken:?}") };
    assert_eq!(accepted(&step.after), Some((true, "Accepted".into())));
    assert_eq!((step.after.status.accepted_at, step.after.status.deadline), (Some(at(0)), Some(at(600))));
}

#[test]
fn a_person_can_fail_a_request_whose_class_cannot_be_read() {
    let mut scene = Scene::empty();
    scene.spoil(&Pool::key_of(&linux()), None);
    scene.put(&new(json!({"failRequestedAt": at(-1), "failRequestedBy": "cli:ada"})));
    let (step, note) = answer(&scene.of_request("1"));
    assert_eq!((step.after.phase(), note.reason), (Phase::Failed, "FailedByPerson"));
}

#[test]
fn who_waited_for_an_unreadable_class_is_judged_by_it_when_it_can_be_read() {
    let mut scene = Scene::empty();
    scene.put(&new(json!({})));
    scene.spoil(&Pool::key_of(&linux()), None);
    let (step, _) = answer(&scene.of_request("1"));
    scene.put(&step.after);
    scene.pool(1, json!({"repositories": ["other/*"]}));
    let (step, _) = answer(&scene.of_request("1"));
    assert_eq!(step.after.phase(), Phase::Failed);
    assert!(step.after.status.message.starts_with("NotAllowed"), "{}", step.after.status.message);
    assert_eq!(accepted(&step.after), None, "that its class could not be read is no reason any more");
}

#[test]
fn a_request_past_its_deadline_fails_although_its_class_can_be_read_again() {
    let mut scene = Scene::empty();
    scene.spoil(&Pool::key_of(&linux()), None);
    scene.put(&new(json!({})));
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    scene.pool(1, json!({}));
    assert_eq!(scene.of_request("1").wake, Some(scene.now.mono + secs(600)), "nobody takes it on: it is due");
    scene.wait(600);
    assert_eq!(scene.served(), [], "it is too late for its class");
    let (step, note) = answer(&scene.of_request("1"));
    assert_eq!((step.after.phase(), note.reason), (Phase::Failed, "DeadlinePassed"));
}

#[test]
fn a_request_that_is_ready_is_told_where_its_machines_came_from() {
    let told = |ages: [i64; 2]| {
        let of = |name, age: i64| running(name).with(|i| i.facts.created_at = crate::testing::at(-age));
        let machines = vec![of("i-1", ages[0]), of("i-2", ages[1])];
        let scene = yard(holding("1", 2, &["i-1", "i-2"], json!({})), machines);
        answer(&scene.of_request("1")).0.after.status.ready_source
    };
    // It was accepted 100 s ago.
    assert_eq!(told([200, 101]), Some(ReadySource::Warm));
    assert_eq!(told([100, 50]), Some(ReadySource::Cold));
    assert_eq!(told([200, 50]), Some(ReadySource::Mixed));
}

#[test]
fn a_request_that_is_ready_is_told_what_an_hour_of_its_machines_costs() {
    let region = crate::ledger::RegionPrices {
        on_demand: [("m7i".to_owned(), crate::ledger::Price::parse("0.1").unwrap())].into(),
        ..Default::default()
    };
    let told = |kind: &'static str, zone: &'static str| {
        let of = move |name| {
            running(name).with(|i| {
                i.facts.instance_type = kind.into();
                i.facts.availability_zone = zone.into();
            })
        };
        let mut scene = yard(holding("1", 2, &["i-1", "i-2"], json!({})), vec![of("i-1"), of("i-2")]);
        std::sync::Arc::make_mut(&mut scene.policy.prices).regions =
            [("us-east-1".to_owned(), region.clone())].into();
        answer(&scene.of_request("1")).0.after.status.hourly_cost_nanos
    };
    assert_eq!(told("m7i.xlarge", "us-east-1a"), Some(400_000_000));
    assert_eq!(told("x9.large", "us-east-1a"), None, "a type without a price is not free");
    assert_eq!(told("m7i.xlarge", "eu-west-1a"), None);
}

#[test]
fn all_or_nothing_is_ready_only_with_all() {
    let request = || holding("1", 2, &["i-1", "i-2"], json!({}));
    let scene = yard(request(), vec![running("i-1"), machine("i-2").claimed(&ask("1"))]);
    assert_eq!(scene.of_request("1").actions, []);
    let scene = yard(request(), vec![running("i-1"), running("i-2")]);
    let (step, _) = answer(&scene.of_request("1"));
    assert_eq!((step.after.phase(), step.after.status.ready_at), (Phase::Ready, Some(start())));
    assert_eq!(step.after.status.settled_for, None);
}

#[test]
fn at_the_deadline_min_count_decides() {
    for (min, deadline, phase) in [
        (json!(2), 1, None),
        (json!(2), 0, Some(Phase::Ready)),
        (json!(3), 0, Some(Phase::Failed)),
        (json!(null), 0, Some(Phase::Failed)),
    ] {
        let more = json!({"minCount": min, "deadline": at(deadline)});
        let scene = yard(holding("1", 4, &["i-1", "i-2"], more), vec![running("i-1"), running("i-2")]);
        let plan = scene.of_request("1");
        let became = (!plan.actions.is_empty()).then(|| answer(&plan).0.after.phase());
        assert_eq!(became, phase, "minCount {min} at {deadline}");
    }
}

#[test]
fn a_request_that_is_due_gets_nothing_more() {
    let mut scene = yard(request("1", 1, json!({"deadline": at(0)})), vec![machine("i-1").pooled()]);
    assert!(scene.claims().is_empty() && scene.intents().is_empty());
    assert_eq!(answer(&scene.of_request("1")).1.reason, "DeadlinePassed");
}

#[test]
fn one_that_was_content_with_less_replaces_every_machine_it_loses_and_wants_no_more() {
    let more = json!({"minCount": 1, "deadline": at(0)});
    let names = ["i-1", "i-2", "i-3"];
    let mut scene = yard(holding("1", 5, &names, more), names.map(running).to_vec());
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    assert_eq!(scene.yard.request(&ask("1")).unwrap().status.settled_for, Some(3));
    assert_eq!(lacks(&scene), 0);
    for name in ["i-1", "i-2"] {
        scene.add(running(name).ended(Reason::Vanished).with(|i| i.version = 6));
    }
    assert_eq!(lacks(&scene), 2);
    // One can be replaced now; the other is still missing then.
    scene.add(machine("i-9").pooled());
    let actions = scene.served();
    scene.apply(&actions);
    assert_eq!(lacks(&scene), 1);
}

#[test]
fn ready_stays_ready_with_its_loss_and_recovers() {
    let names = ["i-1", "i-2"];
    let ready = json!({"phase": "Ready", "readyAt": at(-10)});
    let mut scene = yard(holding("1", 2, &names, ready), names.map(running).to_vec());
    assert_eq!(scene.of_request("1").actions, []);
    scene.add(running("i-1").ended(Reason::Interrupted).with(|i| i.version = 6));
    let (step, note) = answer(&scene.of_request("1"));
    assert_eq!(step.after.phase(), Phase::Ready);
    assert_eq!(degraded(&step.after), Some((true, "interrupted".into())));
    assert!(note.message.contains("i-1 (interrupted)"), "{}", note.message);
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    assert_eq!(scene.of_request("1").actions, [], "said once");
    scene.add(machine("i-9").pooled());
    let actions = scene.served();
    scene.apply(&actions);
    let held = &scene.yard.request(&ask("1")).unwrap().status;
    assert_eq!((held.instances.clone(), held.phase), (vec![id("i-2"), id("i-9")], Some(Phase::Ready)));
    let mut replacement = scene.yard.instance(&arn("i-9")).unwrap().instance.clone();
    replacement.life = crate::model::Life::Running { run: "1".parse().unwrap() };
    replacement.version += 1;
    scene.put(&replacement);
    let (step, _) = answer(&scene.of_request("1"));
    assert_eq!(degraded(&step.after), Some((false, "Recovered".into())));
}

#[test]
fn a_ready_request_says_which_machines_runner_does_not_listen_and_why_until_it_does() {
    let ready = json!({"phase": "Ready", "readyAt": at(-10)});
    for (kind, reason) in [
        (TroubleKind::Ended, "RunnerEnded"),
        (TroubleKind::Conflict, "RunnerConflict"),
        (TroubleKind::Unreachable, "RunnerUnreachable"),
    ] {
        let troubled = running("i-2").agent(|agent| {
            let words = "its listener died".to_owned();
            agent.runner_trouble = Some(RunnerTrouble { since: at(-1), kind, words });
        });
        let request = holding("1", 2, &["i-1", "i-2"], ready.clone());
        let mut scene = yard(request, vec![running("i-1"), troubled]);
        let (step, note) = answer(&scene.of_request("1"));
        assert_eq!((step.after.phase(), degraded(&step.after)), (Phase::Ready, Some((true, reason.into()))));
        let told = format!("a runner does not listen: i-2: its listener died; {}", kind.what_next());
        assert_eq!((note.message.as_ref(), &step.after.status.message), (told.as_str(), &told));
        let actions = scene.of_request("1").actions;
        scene.apply(&actions);
        assert_eq!(scene.of_request("1").actions, [], "said once");
        let dirty = scene.speaks("i-2", |agent| agent.runner_trouble = None);
        assert!(dirty.iter().any(|unit| *unit == crate::yard::Unit::Request(ask("1"))), "{dirty:?}");
        let (step, _) = answer(&scene.of_request("1"));
        assert_eq!(degraded(&step.after), Some((false, "Recovered".into())));
    }
}

#[test]
fn a_loss_that_is_replaced_in_the_same_moment_is_still_told() {
    let ready = json!({"phase": "Ready", "readyAt": at(-10)});
    let mut scene = yard(holding("1", 1, &["i-1"], ready), vec![]);
    scene.add(running("i-1").ended(Reason::Vanished).with(|i| i.version = 6));
    scene.add(machine("i-9").pooled());
    let actions = scene.served();
    scene.apply(&actions);
    let request = scene.yard.request(&ask("1")).unwrap();
    assert_eq!(degraded(request), Some((true, "vanished".into())));
}

#[test]
fn an_image_of_a_machine_from_before_its_claim_proves_no_loss() {
    // Another operator claimed the machine in the write that made its version 5; in its version 4 it was pooled.
    let request = holding("1", 1, &["i-1"], json!({}));
    let mut scene =
        yard(request, vec![machine("i-1").pooled().with(|i| i.version = 4), machine("i-2").pooled()]);
    assert_eq!(lacks(&scene), 0);
    assert!(scene.claims().is_empty(), "nothing is claimed in its place");
    scene.add(running("i-1").ended(Reason::Vanished).with(|i| i.version = 6));
    assert_eq!(lacks(&scene), 1);
    assert_eq!(runs(&scene.claims()), ["1"]);
}

#[test]
fn a_machine_is_lost_when_it_serves_another_claim_or_none() {
    let ours = || holding("1", 1, &["i-1"], json!({}));
    let newer = |built: Built| built.with(|i| i.version = 9);
    for (built, lost) in [
        (machine("i-1").claimed(&ask("1")), false),
        (running("i-1"), false),
        (newer(running("i-1")), false),
        (newer(machine("i-1").claimed(&ask("2"))), true),
        (newer(machine("i-1").cleaning(&ask("1"))), true),
        (newer(machine("i-1").pooled()), true),
        (newer(machine("i-1").ended(Reason::Threshold)), true),
        (newer(running("i-1")).with(|i| i.claim.as_mut().unwrap().id = ClaimId::of(&id("i-1"), 9)), true),
    ] {
        let scene = yard(ours(), vec![built.clone()]);
        assert_eq!(lacks(&scene) == 1, lost, "{:?} v{}", built.instance.place(), built.instance.version);
    }
}

#[test]
fn a_machine_without_a_record_is_lost_only_after_a_complete_list_that_began_later() {
    let mut scene = yard(holding("1", 1, &["i-1"], json!({})), vec![]);
    let keys = std::collections::BTreeSet::from([ask("1").into(), Pool::key_of(&linux())]);
    scene.see(Observation::Listed(scene.now.mono, keys.clone()));
    assert_eq!(lacks(&scene), 0, "begun when the request was seen to change");
    assert!(scene.intents().is_empty());
    scene.wait(1);
    scene.see(Observation::Listed(scene.now.mono, keys));
    assert_eq!(lacks(&scene), 1);
    assert_eq!(scene.intents(), [(1, Some(ask("1")))], "it stands in line again");
}

#[test]
fn a_machine_is_lost_whatever_else_cannot_be_read() {
    for spoilt in [Instance::key_of(&arn("i-2")), crate::model::Agent::key_of(&arn("i-1"))] {
        for schema in [None, Some(2)] {
            let mut scene = yard(holding("1", 1, &["i-1"], json!({})), vec![]);
            scene.spoil(&spoilt, schema);
            scene.wait(1);
            let keys = [ask("1").into(), Pool::key_of(&linux()), spoilt.clone()];
            scene.see(Observation::Listed(scene.now.mono, keys.into()));
            assert_eq!(lacks(&scene), 1, "{spoilt} {schema:?}");
        }
    }
}

#[test]
fn a_request_that_holds_nothing_is_released_at_once_in_every_phase() {
    for phase in [json!(null), json!("Pending"), json!("Fulfilling"), json!("Ready"), json!("Releasing")] {
        let scene = yard(request("1", 1, json!({"desired": "released", "phase": phase})), vec![]);
        let (step, _) = answer(&scene.of_request("1"));
        assert_eq!(step.after.phase(), Phase::Released, "{phase}");
        assert_eq!(step.after.status.expires_at, Some(start().as_second() + 7 * 24 * 3600));
    }
}

#[test]
fn one_released_before_it_was_taken_on_wants_nothing_and_says_nothing_but_that() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").pooled());
    scene.put(&new(json!({"desired": "released"})));
    assert_eq!(lacks(&scene), 0);
    assert!(scene.yard.class(&linux()).unwrap().waiting.all().is_empty(), "it stands in no line");
    assert_eq!((scene.claims(), scene.intents()), (vec![], vec![]));
    let after = answer(&scene.of_request("1")).0.after;
    let status = &after.status;
    assert_eq!((after.phase(), status.accepted_at, status.deadline), (Phase::Released, None, None));
    assert_eq!((status.conditions.len(), status.observed_generation), (0, after.intent.generation));
    assert_eq!(after.intent.desired, crate::model::Desired::Released);
}

#[test]
fn released_only_when_no_machine_is_out() {
    let names = ["i-1", "i-2", "i-3"];
    let more = json!({"phase": "Ready", "desired": "released", "generation": 2});
    let mut scene = yard(holding("1", 3, &names, more), names.map(running).to_vec());
    let actions = scene.of_request("1").actions;
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Releasing);
    assert_eq!(answer(&scene.of_request("1")).0.after.status.observed_generation, 2);
    scene.apply(&actions);
    let list = |scene: &Scene| scene.yard.request(&ask("1")).unwrap().status.instances.clone();
    assert_eq!(list(&scene), names.map(id));
    // One is cleaned, one ends, one still serves: the list empties as they come back.
    scene.add(machine("i-1").cleaning(&ask("1")).with(|i| i.version = 6));
    let plan = scene.of_request("1");
    assert_eq!((plan.actions.len(), plan.wake), (0, None), "nothing is back");
    let pooled = machine("i-2").pooled().with(|i| (i.version, i.claim) = (7, running("i-2").instance.claim));
    scene.add(pooled);
    scene.add(running("i-3").ended(Reason::Threshold).with(|i| i.version = 6));
    let plan = scene.of_request("1");
    assert_eq!(plan.actions, [], "others may come back at the same moment, for one write");
    assert!(plan.wake.is_some());
    scene.wait(1);
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    assert_eq!(list(&scene), [id("i-1")]);
    assert_eq!(scene.yard.request(&ask("1")).unwrap().phase(), Phase::Releasing);
    scene.add(machine("i-1").ended(Reason::CleanupFailed).with(|i| i.version = 7));
    let (step, _) = answer(&scene.of_request("1"));
    assert_eq!((step.after.phase(), step.after.status.instances.len()), (Phase::Released, 0));
    assert_eq!(step.after.status.served, names.map(id), "the history stays");
}

#[test]
fn a_release_waits_for_a_machine_lost_before_it_that_is_still_being_cleaned() {
    let mut lost = holding("1", 2, &["i-1", "i-2"], json!({"desired": "released"}));
    lost.status.instances = vec![id("i-1")];
    let machines = vec![
        machine("i-1").pooled().with(|i| (i.version, i.claim) = (7, running("i-1").instance.claim)),
        machine("i-2").cleaning(&ask("1")).with(|i| i.version = 6),
    ];
    let mut scene = yard(lost, machines);
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Releasing);
    scene.add(machine("i-2").pooled().with(|i| (i.version, i.claim) = (7, running("i-2").instance.claim)));
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Released);
}

#[test]
fn a_failed_request_gives_its_machines_back_and_empties_its_list() {
    let failed = holding("1", 2, &["i-1", "i-2"], json!({"phase": "Failed"}));
    let mut scene =
        yard(failed, vec![running("i-1"), machine("i-2").ended(Reason::Threshold).with(|i| i.version = 6)]);
    assert_eq!(write(&scene.of_machine("i-1")).1.reason, "Released");
    let (step, _) = answer(&scene.of_request("1"));
    assert_eq!((step.after.phase(), step.after.status.instances.clone()), (Phase::Failed, vec![id("i-1")]));
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    assert_eq!(scene.of_request("1").actions, []);
    scene.add(machine("i-1").pooled().with(|i| (i.version, i.claim) = (7, running("i-1").instance.claim)));
    assert!(answer(&scene.of_request("1")).0.after.status.instances.is_empty());
}

#[test]
fn what_is_over_never_changes_and_goes_when_its_time_is_over() {
    for phase in ["Released", "Failed"] {
        for desired in ["provisioned", "released"] {
            let more = json!({"phase": phase, "desired": desired, "expiresAt": at(60).as_second()});
            let mut scene = yard(request("1", 1, more), vec![machine("i-1").pooled()]);
            assert_eq!(scene.of_request("1").actions, []);
            assert!(scene.claims().is_empty() && scene.intents().is_empty());
            scene.wait(60);
            assert_eq!(scene.of_request("1").actions, [Planned::expire(ask("1").into(), at(60).as_second())]);
        }
    }
}

#[test]
fn a_newer_attempt_releases_older_ones_and_gets_the_machines_itself() {
    let mut scene = yard(request("1", 1, json!({})), vec![machine("i-1").pooled()]);
    let newer = request("1", 1, json!({"attempt": 2}));
    let dirty = scene.put(&newer);
    assert!(dirty.contains(&crate::yard::Unit::Request(ask("1"))));
    let claims: Vec<RecordId> = scene
        .served()
        .into_iter()
        .filter_map(|action| match action.effect {
            Effect::Claim { request, .. } => Some(request.before.key()),
            _ => None,
        })
        .collect();
    assert_eq!(claims, [newer.key()]);
    let (step, note) = answer(&scene.of_request("1"));
    assert_eq!(step.after.phase(), Phase::Released);
    assert!(note.message.contains("attempt 2"), "{}", note.message);
    assert_eq!(
        scene.judge(&crate::yard::Unit::Request(newer.id.clone())).actions,
        [],
        "the newer is untouched"
    );
    let other = request("1", 1, json!({"attempt": 3, "name": "other"}));
    scene.put(&other);
    assert_eq!(
        scene.judge(&crate::yard::Unit::Request(newer.id.clone())).actions,
        [],
        "another name is another line"
    );
}

#[test]
fn a_person_can_fail_a_request_that_waits() {
    let scene = yard(request("1", 1, json!({"failRequestedAt": at(-1)})), vec![machine("i-1").pooled()]);
    let note = answer(&scene.of_request("1")).1;
    assert_eq!((note.reason, note.message.as_str()), ("FailedByPerson", "failed by a person"));
    assert!(scene.clone().claims().is_empty());
}

#[test]
fn a_request_that_a_person_failed_says_who_that_was() {
    let asked = json!({"failRequestedAt": at(-1), "failRequestedBy": "cli:ada"});
    let note = answer(&yard(request("1", 1, asked), vec![]).of_request("1")).1;
    assert_eq!(note.message, "failed by cli:ada");
}

#[test]
fn pending_becomes_fulfilling_when_something_is_launched_for_it() {
    let mut scene = yard(request("1", 2, json!({})), vec![]);
    assert_eq!(scene.of_request("1").actions, []);
    scene.put(&launch("l-1", 2, Some(&ask("1"))));
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Fulfilling);
}

#[test]
fn a_request_that_never_ends_is_released_when_its_maximum_runtime_is_over() {
    let ready = json!({"phase": "Ready", "readyAt": at(-290), "maxRuntimeMinutes": 5});
    let mut scene = yard(holding("1", 2, &["i-1"], ready), vec![running("i-1"), machine("i-2").pooled()]);
    assert_eq!(runs(&scene.claims()), ["1"], "it gets what it lacks");
    scene.wait(10);
    scene.speaks("i-2", |_| ());
    assert!(scene.claims().is_empty(), "nothing is claimed for one that is about to be released");
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Releasing);
}

/// Creates class `linux` with two machines: request 9 has one; request 1 asks for two machines for a minute and has the
/// other one, whose runner listens since the beginning. Request 9 gives its machine back after 40 s, so that request 1
/// is ready then.
fn ready_after_40_seconds() -> Scene {
    let mut scene = Scene::with(json!({"max": 2}));
    scene.put(&holding("9", 1, &["i-9"], json!({"phase": "Ready", "readyAt": at(-50)})));
    scene.add(machine("i-9").running(&ask("9")));
    scene.put(&holding("1", 2, &["i-1"], json!({"maxRuntimeMinutes": 1})));
    scene.add(machine("i-1").claimed(&ask("1")).says(Signal::RegOk));
    let listens = scene.of_machine("i-1").actions;
    scene.apply(&listens);
    scene.wait(40);
    scene.speaks("i-1", |_| ());
    scene.put(&holding("9", 1, &[], json!({"phase": "Released", "version": 9})));
    scene.add(machine("i-9").pooled().with(|i| i.version = 9));
    scene.put(&holding("1", 2, &["i-1", "i-9"], json!({"maxRuntimeMinutes": 1, "version": 9})));
    scene.add(machine("i-9").running(&ask("1")).with(|i| i.version = 10));
    let ready = scene.of_request("1").actions;
    scene.apply(&ready);
    assert_eq!(scene.yard.request(&ask("1")).unwrap().status.ready_at, Some(at(40)));
    scene
}

#[test]
fn no_machine_ends_before_its_request_was_ready_for_its_maximum_runtime() {
    let mut scene = ready_after_40_seconds();
    for _ in 0..59 {
        scene.wait(1);
        scene.speaks("i-1", |_| ());
        scene.speaks("i-9", |_| ());
        let plan = scene.of_machine("i-1");
        assert_eq!(ends(&plan), None, "{}", scene.now.wall);
        scene.apply(&plan.actions);
        let plan = scene.of_request("1");
        scene.apply(&plan.actions);
        assert_eq!(scene.yard.request(&ask("1")).unwrap().phase(), Phase::Ready, "{}", scene.now.wall);
    }
    scene.wait(1);
    let released = scene.of_request("1").actions;
    scene.apply(&released);
    assert_eq!(scene.yard.request(&ask("1")).unwrap().phase(), Phase::Releasing);
    let (step, note) = write(&scene.of_machine("i-1"));
    assert_eq!((step.after.life, note.reason), (Life::Idle { pooled_at: None }, "Released"), "a gentle end");
}

#[test]
fn numbers_that_no_operator_would_write_are_no_trouble() {
    for more in [
        json!({"minCount": 9, "phase": "Ready", "readyAt": at(0), "settledFor": u32::MAX}),
        json!({"minCount": 0, "settledFor": 0, "phase": "Ready", "readyAt": "9999-12-30T00:00:00Z"}),
        json!({"count": u32::MAX, "timeoutSeconds": u64::MAX, "maxRuntimeMinutes": u64::MAX, "phase": null}),
        json!({"count": u32::MAX, "phase": "Pending", "deadline": "9999-12-30T00:00:00Z"}),
        json!({"deadline": "-009999-01-02T01:59:59Z", "acceptedAt": "9999-12-30T00:00:00Z"}),
        json!({"phase": "Released", "expiresAt": i64::MAX}),
    ] {
        let mut scene = yard(request("1", 1, more), vec![machine("i-1").pooled()]);
        scene.of_request("1");
        scene.served();
    }
}
