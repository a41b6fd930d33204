use serde_json::json;

use super::*;
use crate::model::ClaimId;
use crate::model::{Interruption, InterruptionAction, Reason};
use crate::testing::*;
use crate::yard::Observation;

fn notice(action: InterruptionAction, seconds: i64) -> Interruption {
    Interruption { action, at: at(seconds) }
}

const REBALANCE: InterruptionAction = InterruptionAction::Rebalance;
const STOP: InterruptionAction = InterruptionAction::Stop;
const TERMINATE: InterruptionAction = InterruptionAction::Terminate;

#[test]
fn the_end_beats_the_risk_and_the_earlier_the_later_whoever_told_it() {
    for (told, sent, counts, interrupted) in [
        (None, None, None, false),
        (Some(notice(REBALANCE, 10)), None, Some(notice(REBALANCE, 10)), false),
        (None, Some(notice(STOP, 10)), Some(notice(STOP, 10)), true),
        (Some(notice(REBALANCE, 10)), Some(notice(TERMINATE, 90)), Some(notice(TERMINATE, 90)), true),
        (Some(notice(TERMINATE, 20)), Some(notice(STOP, 10)), Some(notice(STOP, 10)), true),
    ] {
        let built = machine("i-1").agent(|agent| agent.interruption = told.clone());
        let tracked = Tracked { agent: built.agent, notice: sent.clone(), ..Tracked::new(built.instance) };
        assert_eq!(
            (tracked.interruption(), tracked.is_interrupted()),
            (counts.as_ref(), interrupted),
            "{told:?} {sent:?}"
        );
    }
    let graver = |one, other| Tracked::graver(one, other);
    assert_eq!(graver(notice(REBALANCE, 1), notice(TERMINATE, 9)), notice(TERMINATE, 9));
    assert_eq!(graver(notice(TERMINATE, 9), notice(REBALANCE, 1)), notice(TERMINATE, 9));
    assert_eq!(graver(notice(STOP, 9), notice(TERMINATE, 9)), notice(STOP, 9), "the first of two equals");
}

#[test]
fn a_notice_is_settled_when_nothing_remains_to_be_done_at_once() {
    let request = ask("1");
    let one = || machine("i-1");
    for (built, news, settled) in [
        (one(), None, true),
        (one(), Some(REBALANCE), true),
        (one().pooled(), Some(REBALANCE), true),
        (one().pooled(), Some(TERMINATE), false),
        (one().running(&request), Some(REBALANCE), true),
        (one().running(&request), Some(TERMINATE), false),
        (one().cleaning(&request), Some(STOP), false),
        (one().ended(Reason::Expired), Some(TERMINATE), true),
    ] {
        let place = built.instance.place();
        let mut scene = Scene::with(json!({}));
        scene.add(built.agent(|agent| agent.interruption = news.map(|action| notice(action, 60))));
        assert_eq!(scene.yard.settled_notice(&id("i-1")), settled, "{place:?} {news:?}");
    }
    let mut scene = Scene::with(json!({}));
    assert!(scene.yard.settled_notice(&id("i-9")), "none of ours");
    for built in [one().pooled(), one().running(&request)] {
        scene.add(built.with(|i| i.version += u64::from(i.uses)));
        let news = crate::model::Notice { instance: id("i-1"), news: crate::model::News::Changed };
        scene.see(Observation::Notice(news));
        assert!(!scene.yard.settled_notice(&id("i-1")), "EC2 is to be asked about it");
    }
}

/// Creates a class with so many machines; `missing` of them are not on the last list, and the last `young` of those are
/// young.
fn lacking(live: usize, missing: usize, young: usize) -> Option<u32> {
    let mut scene = Scene::with(json!({"max": 50}));
    let machines: Vec<Built> = (0..live)
        .map(|n| {
            let age = if n < missing && n >= missing - young { -599 } else { -600 };
            machine(&format!("i-{n:02}")).pooled().with(|i| i.facts.created_at = at(age))
        })
        .collect();
    machines.iter().for_each(|built| drop(scene.add(built.clone())));
    let shown = machines.iter().skip(missing).map(|built| built.listed(crate::ports::MachineState::Running));
    scene.see(Observation::Inventory(shown.collect()));
    scene.yard.class(&linux()).unwrap().unbelieved(at(-600))
}

#[test]
fn a_list_that_lacks_more_than_three_and_thirty_percent_of_a_class_is_doubted() {
    assert_eq!((lacking(4, 3, 0), lacking(4, 4, 0)), (None, Some(4)));
    assert_eq!((lacking(20, 6, 0), lacking(20, 7, 0)), (None, Some(7)));
    assert_eq!(lacking(20, 7, 1), None, "it need not know the youngest yet");
    assert_eq!(lacking(20, 8, 1), Some(7));
}

#[test]
fn classes_that_nothing_names_any_more_are_forgotten_at_the_next_list() {
    let mut scene = Scene::with(json!({}));
    let names = |scene: &Scene| scene.yard.classes().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    for (run, class, phase) in [("1", "smal", "Failed"), ("2", "lage", "Pending"), ("3", "mac", "Released")] {
        scene.put(&request(run, 1, json!({"resourceClass": class, "phase": phase})));
    }
    let mac = crate::model::ClassName::parse("mac").unwrap();
    scene.add(machine("i-1").pooled().with(|i| i.facts.resource_class = mac));
    let keys: std::collections::BTreeSet<RecordId> = ["1", "2", "3"]
        .into_iter()
        .map(|run| crate::model::Request::key_of(&ask(run)))
        .chain([
            crate::model::Pool::key_of(&linux()),
            crate::model::Instance::key_of(&crate::testing::arn("i-1")),
        ])
        .collect();
    scene.wait(1);
    let listed = Observation::Listed(scene.now.mono, keys);
    scene.see(listed);
    assert_eq!(names(&scene), ["lage", "linux", "mac"], "what waits, has a pool or a machine stays");
    // A record of a forgotten class brings it back only where a request waits.
    scene.put(&request("4", 1, json!({"resourceClass": "tiny", "phase": "Failed", "version": 9})));
    assert_eq!(names(&scene), ["lage", "linux", "mac"]);
    scene.put(&request("5", 1, json!({"resourceClass": "tiny"})));
    assert_eq!(names(&scene), ["lage", "linux", "mac", "tiny"]);
}

#[test]
fn a_machine_whose_time_is_over_twice_retires_once() {
    let spec = json!({"maxUses": 3, "maxAgeSeconds": 200});
    let mut scene = Scene::with(spec);
    scene.add(machine("i-1").pooled().with(|i| i.uses = 3));
    scene.add(machine("i-2").pooled().with(|i| (i.uses, i.facts.created_at) = (3, at(-199))));
    scene.add(machine("i-3").pooled().with(|i| i.facts.created_at = at(-200)));
    scene.add(machine("i-4").pooled().with(|i| (i.uses, i.facts.created_at) = (2, at(-199))));
    let asked = machine("i-5").pooled().with(|i| i.facts.created_at = at(-10));
    scene.add(asked.with(|i| i.expired_by = Some("ada".into())));
    let class = scene.yard.class(&linux()).unwrap();
    let spec = &class.pool.as_ref().unwrap().spec;
    let mut retiring: Vec<String> =
        class.retiring(spec, scene.now.wall).map(|arn| arn.instance_id().to_string()).collect();
    retiring.sort();
    assert_eq!(retiring, ["i-1", "i-2", "i-3", "i-5"]);
}

#[test]
fn machines_as_large_as_the_class_wants_now_have_not_drifted() {
    let wants = |more: serde_json::Value| {
        let mut spec = json!({"launch": {"ami": "ami-1"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let drifts = |spec: serde_json::Value| {
        let mut scene = Scene::with(wants(json!({})));
        let digest = scene.yard.class(&linux()).unwrap().digest.clone();
        let built = machine("i-1").pooled().with(|i| i.facts.launch_digest = digest);
        scene.add(built.clone());
        scene.pool(2, spec);
        scene.yard.class(&linux()).unwrap().drift(&built.instance).is_some()
    };
    // It has 2 processors, 4096 MiB and is an m7i.large.
    for (spec, drifted) in [
        (json!({"cpu": 2, "mmem": 2048}), false),
        (json!({"cpu": 1, "mmem": 4096}), false),
        (json!({"cpu": 3}), true),
        (json!({"mmem": 4097}), true),
        (json!({"allowedInstanceTypes": ["m7i.*"]}), false),
        (json!({"allowedInstanceTypes": ["c7i.*"]}), true),
        (json!({"launch": {"ami": "ami-2"}}), true),
    ] {
        assert_eq!(drifts(wants(spec.clone())), drifted, "{spec}");
    }
}

#[test]
fn what_is_known_is_judged_and_what_nobody_can_read_is_left_alone() {
    let mut scene = Scene::peopled();
    assert_eq!(scene.yard.orphans(), 0);
    let ours = machine("i-2").listed(crate::ports::MachineState::Running);
    let there = machine("i-1").listed(crate::ports::MachineState::Running);
    scene.see(Observation::Inventory(vec![ours, there]));
    assert_eq!(scene.yard.orphans(), 1, "i-2 has no record");
    let units = [
        Unit::Instance(arn("i-1")),
        Unit::Instance(arn("i-2")),
        Unit::Request(ask("1")),
        Unit::Class(linux()),
        Unit::Launch("l-1".parse().unwrap()),
    ];
    assert_eq!(scene.yard.units(), units.into());
    assert_eq!(scene.yard.classes().map(|(name, _)| name).collect::<Vec<_>>(), [&linux()]);
    for schema in [None, Some(2)] {
        assert!(!scene.yard.is_unreadable(&ask("2").into()));
        scene.spoil(&ask("2").into(), schema);
        assert!(scene.yard.is_unreadable(&ask("2").into()) && !scene.yard.is_unreadable(&ask("1").into()));
        scene.see(Observation::Record(ask("2").into(), None));
    }
}

/// Returns the state of `i-1` for request 1, which claimed it in the write that made its version 5: whether it is held,
/// out, running, lost, and lost but still out.
fn holds(built: Option<Built>, prepare: impl FnOnce(&mut Scene)) -> (usize, u32, u32, usize, usize) {
    let mut scene = Scene::with(json!({}));
    scene.put(&holding("1", 1, &["i-1"], json!({})));
    built.into_iter().for_each(|built| drop(scene.add(built)));
    prepare(&mut scene);
    let request = scene.yard.request(&ask("1")).unwrap();
    let holding = scene.yard.holding(&ask("1"), request);
    let lost_out = holding.lost.iter().filter(|lost| lost.out).count();
    (holding.held.len(), holding.out, holding.running, holding.lost.len(), lost_out)
}

#[test]
fn what_a_request_holds_is_proved_by_records_as_new_as_its_claim() {
    let (ours, other) = (ask("1"), ask("2"));
    let one = || machine("i-1");
    let nothing = |_: &mut Scene| ();
    for (name, built, expected) in [
        ("starts", one().claimed(&ours), (1, 1, 0, 0, 0)),
        ("boots for it", one().bound(&ours), (1, 1, 0, 0, 0)),
        ("runs", one().running(&ours), (1, 1, 1, 0, 0)),
        ("cleaned after it", one().cleaning(&ours), (0, 1, 0, 1, 1)),
        ("pooled", one().pooled(), (0, 0, 0, 1, 0)),
        ("ended", one().running(&ours).ended(Reason::Vanished), (0, 0, 0, 1, 0)),
        ("runs for another", one().running(&other), (0, 0, 0, 1, 0)),
        ("cleaned after another", one().cleaning(&other), (0, 0, 0, 1, 0)),
        ("another's, seen before the claim", one().running(&other).with(|i| i.version = 4), (1, 1, 0, 0, 0)),
        (
            "its own, under another claim",
            one().running(&ours).with(|i| i.claim.as_mut().unwrap().id = ClaimId::of(&id("i-1"), 6)),
            (0, 0, 0, 1, 0),
        ),
    ] {
        assert_eq!(holds(Some(built), nothing), expected, "{name}");
    }
    assert_eq!(holds(None, nothing), (1, 1, 0, 0, 0), "not seen yet");
    let spoilt =
        |schema| holds(None, move |scene| scene.spoil(&crate::model::Instance::key_of(&arn("i-1")), schema));
    assert_eq!((spoilt(None), spoilt(Some(2))), ((1, 0, 0, 0, 0), (1, 0, 0, 0, 0)), "cannot be read");
    let beside = |scene: &mut Scene| {
        // Neither its agent nor another machine whose name has the same ending affects it.
        scene.spoil(&Agent::key_of(&arn("i-1")), None);
        scene.spoil(&crate::model::Instance::key_of(&arn("xi-1")), None);
        scene.wait(1);
        let keys = [ask("1").into(), Pool::key_of(&linux())];
        scene.see(Observation::Listed(scene.now.mono, keys.into()));
    };
    assert_eq!(holds(None, beside), (0, 0, 0, 1, 0), "a complete list does not show it");
}

#[test]
fn a_machine_that_was_given_up_is_out_until_it_is_pooled_or_ended() {
    let (ours, other) = (ask("1"), ask("2"));
    let one = || machine("i-1");
    for (built, leaves) in [
        (one().running(&ours), 1),
        (one().claimed(&ours), 1),
        (one().bound(&ours), 1),
        (one().cleaning(&ours), 1),
        (one().pooled().with(|i| i.claim = machine("i-1").running(&ask("1")).instance.claim), 0),
        (one().running(&ours).ended(Reason::Expired), 0),
        (one().running(&other), 0),
    ] {
        let mut scene = Scene::with(json!({}));
        let mut request = holding("1", 1, &["i-1"], json!({}));
        let place = built.instance.place();
        scene.add(built);
        assert_eq!(scene.yard.leaving(&ours, &request), 0, "it lists it");
        request.status.instances.clear();
        assert_eq!(scene.yard.leaving(&ours, &request), leaves, "{place:?}");
    }
}

#[test]
fn only_a_newer_attempt_of_the_same_run_repository_and_name_supersedes() {
    let mut scene = Scene::with(json!({}));
    let first = request("1", 1, json!({}));
    scene.put(&first);
    for other in [
        json!({"attempt": 2, "name": "other"}),
        json!({"attempt": 2, "repository": "acme/api"}),
        json!({"attempt": 1}),
    ] {
        scene.put(&request("1", 1, other.clone()));
        assert_eq!(scene.yard.superseded(&first.id), None, "{other}");
    }
    scene.put(&request("2", 1, json!({"attempt": 2})));
    assert_eq!(scene.yard.superseded(&first.id), None, "another run");
    scene.put(&request("1", 1, json!({"attempt": 3})));
    assert_eq!(scene.yard.superseded(&first.id), Some(3));
    let second = request("1", 1, json!({"attempt": 2}));
    scene.put(&second);
    assert_eq!((scene.yard.superseded(&first.id), scene.yard.superseded(&second.id)), (Some(3), Some(3)));
}
