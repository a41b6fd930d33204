//! When was a record seen: by a list, by a look, by this program's own writes, and by the creators of machines?

use super::*;
use crate::model::{Agent, Interruption, InterruptionAction, News, Notice, Request, Threshold};
use crate::ports::{ComputeError, Launched, MachineState};
use crate::yard::Written;

/// Returns which of `i-1`, its agent, request 1, launch `l-1` and the pool exist.
fn there(scene: &Scene) -> [bool; 5] {
    let tracked = scene.yard.instance(&arn("i-1"));
    [
        tracked.is_some(),
        tracked.is_some_and(|tracked| tracked.agent.is_some()),
        scene.yard.request(&ask("1")).is_some(),
        scene.yard.launch(&"l-1".parse().unwrap()).is_some(),
        scene.yard.pool(&linux()).is_some(),
    ]
}

#[test]
fn what_changed_since_a_list_began_is_there_though_the_list_lacks_it() {
    let mut scene = Scene::peopled();
    scene.wait(10);
    let begun = scene.now.mono;
    // Each is written again at the very moment at which the list begins.
    scene.put(&machine("i-1").pooled().with(|i| i.version = 6).instance);
    scene.speaks("i-1", |_| ());
    scene.put(&request("1", 1, json!({"version": 4})));
    scene.put(&crate::model::Launch { version: 2, ..launch("l-1", 1, None) });
    scene.pool(2, json!({"max": 11}));
    scene.see(Observation::Listed(begun, BTreeSet::new()));
    assert_eq!(there(&scene), [true; 5]);
    scene.wait(1);
    scene.see(Observation::Listed(scene.now.mono, BTreeSet::new()));
    assert_eq!(there(&scene), [false; 5]);
}

#[test]
fn an_agent_that_was_seen_before_its_machine_is_there_since_then() {
    let mut scene = Scene::with(json!({}));
    let built = machine("i-1").pooled();
    let begun = scene.now.mono;
    scene.put(built.agent.as_ref().unwrap());
    scene.wait(5);
    scene.put(&built.instance);
    scene.see(Observation::Listed(begun, BTreeSet::new()));
    assert!(scene.yard.instance(&arn("i-1")).unwrap().agent.is_some());
    scene.see(Observation::Listed(begun + secs(1), BTreeSet::new()));
    assert!(scene.yard.instance(&arn("i-1")).unwrap().agent.is_none());
}

#[test]
fn what_is_written_here_is_known_without_being_read_and_can_be_read_again() {
    let mut scene = Scene::empty();
    let built = machine("i-1").pooled();
    let mut pooled = Scene::with(json!({}));
    pooled.add(built.clone());
    let pool = pooled.yard.pool(&linux()).unwrap().clone();
    let records = [
        Written::Instance(built.instance),
        Written::Agent(built.agent.unwrap()),
        Written::Request(request("1", 1, json!({}))),
        Written::Launch(launch("l-1", 1, None)),
        Written::Pool(pool),
    ];
    let begun = scene.now.mono;
    for record in records {
        let key = record.key();
        scene.spoil(&key, Some(2));
        scene.look(key.clone(), None);
        scene.spoil(&key, None);
        scene.see(Observation::Written(Box::new(record)));
        assert!(!scene.yard.is_unreadable(&key) && !scene.yard.absent.contains_key(&key.clone()), "{key}");
    }
    assert_eq!(there(&scene), [true; 5]);
    scene.see(Observation::Listed(begun, BTreeSet::new()));
    assert_eq!(there(&scene), [true; 5], "written since the list began");
}

#[test]
fn a_class_that_was_looked_for_has_its_own_requests_judged_again() {
    let mut scene = Scene::empty();
    scene.put(&request("1", 1, json!({})));
    scene.put(&request("2", 1, json!({"resourceClass": "mac"})));
    let dirty = scene.look(Pool::key_of(&linux()), None);
    assert!(dirty.contains(&Unit::Request(ask("1"))), "{dirty:?}");
    assert!(!dirty.contains(&Unit::Request(ask("2"))), "{dirty:?}");
}

#[test]
fn a_look_at_an_agent_says_which_beat_was_found_silent() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").pooled());
    let agent = scene.yard.instance(&arn("i-1")).unwrap().agent.clone().unwrap();
    let silent = |scene: &Scene| scene.yard.instance(&arn("i-1")).unwrap().silent;
    let key = Agent::key_of(&arn("i-1"));
    let dirty = scene.look(key.clone(), Some(agent.to_item()));
    assert!(dirty.contains(&Unit::Instance(arn("i-1"))));
    assert_eq!(silent(&scene), Some(7));
    scene.speaks("i-1", |_| ());
    assert_eq!(silent(&scene), None, "it beat again");
    scene.look(key, None);
    assert_eq!(silent(&scene), Some(0), "there is none");
    assert!(scene.look(Instance::key_of(&arn("i-1")), None).contains(&Unit::Instance(arn("i-1"))));
}

#[test]
fn a_notice_concerns_its_live_machine_and_the_graver_one_stays() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").running(&ask("1")));
    scene.add(machine("i-2").ended(Reason::Expired));
    let news = |name: &str, action, seconds| {
        let news = News::Interruption(Interruption { action, at: at(seconds) });
        Observation::Notice(Notice { instance: id(name), news })
    };
    let counts = |scene: &Scene, name: &str| scene.yard.instance(&arn(name)).unwrap().notice.clone();
    let dirty = scene.see(news("i-1", InterruptionAction::Terminate, 60));
    assert_eq!(dirty, [Unit::Instance(arn("i-1")), Unit::Request(ask("1"))].into());
    scene.see(news("i-1", InterruptionAction::Rebalance, 5));
    assert_eq!(counts(&scene, "i-1").unwrap().action, InterruptionAction::Terminate);
    scene.see(news("i-1", InterruptionAction::Terminate, 30));
    assert_eq!(counts(&scene, "i-1").unwrap().at, at(30));
    scene.see(news("i-2", InterruptionAction::Terminate, 60));
    assert_eq!(counts(&scene, "i-2"), None, "it has ended");
    assert!(scene.see(news("i-9", InterruptionAction::Terminate, 60)).is_empty(), "none of ours");
    for (name, changed) in [("i-1", true), ("i-2", false)] {
        scene.see(Observation::Notice(Notice { instance: id(name), news: News::Changed }));
        assert_eq!(scene.yard.instance(&arn(name)).unwrap().changed, changed, "{name}");
    }
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
    let tracked = scene.yard.instance(&arn("i-1")).unwrap();
    assert_eq!((tracked.changed, tracked.asked), (false, Some((scene.now.mono, 1))));
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
    assert_eq!(scene.yard.instance(&arn("i-1")).unwrap().asked, Some((scene.now.mono, 2)));
}

#[test]
fn a_machine_that_no_list_shows_is_missing_until_one_or_its_provider_knows_it() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").pooled());
    scene.add(machine("i-2").ended(Reason::Expired));
    let missing = |scene: &Scene| {
        let class = scene.yard.class(&linux()).unwrap();
        (scene.yard.instance(&arn("i-1")).unwrap().missing, class.missing.len())
    };
    let class = Unit::Class(linux());
    let (pooled, listed) = (Unit::Instance(arn("i-1")), machine("i-1").listed(MachineState::Running));
    assert_eq!(scene.see(Observation::Inventory(vec![])), [class.clone(), pooled.clone()].into());
    assert_eq!(missing(&scene), (true, 1));
    assert_eq!(scene.see(Observation::Inventory(vec![])), [pooled.clone()].into(), "its class knows");
    scene.see(Observation::Stands(arn("i-1"), None));
    assert_eq!(missing(&scene), (true, 1), "its provider does not know it either");
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
    assert_eq!(missing(&scene), (false, 0));
    scene.see(Observation::Inventory(vec![]));
    let dirty = scene.see(Observation::Inventory(vec![listed.clone()]));
    assert_eq!((missing(&scene), dirty), ((false, 0), [class].into()), "it is listed again");
    assert!(scene.see(Observation::Inventory(vec![listed])).is_empty(), "nothing changed");
}

#[test]
fn a_machine_without_a_record_is_known_since_it_was_first_listed_alive() {
    let mut scene = Scene::with(json!({}));
    let listed = |state| Observation::Inventory(vec![machine("i-9").listed(state)]);
    let since = |scene: &Scene| scene.yard.unrecorded.get(&arn("i-9")).map(|(_, since)| *since);
    let first = scene.now.mono;
    let dirty = scene.see(listed(MachineState::Running));
    assert_eq!(dirty, [Unit::Instance(arn("i-9")), Unit::Launch("l-1".parse().unwrap())].into());
    scene.wait(30);
    scene.see(listed(MachineState::Running));
    assert_eq!(since(&scene), Some(first));
    scene.see(listed(MachineState::Terminated));
    assert_eq!(since(&scene), None, "it has ended");
    scene.see(listed(MachineState::Pending));
    scene.see(Observation::Inventory(vec![]));
    assert_eq!(since(&scene), None, "it is not listed any more");
    scene.see(listed(MachineState::Running));
    scene.add(machine("i-9").pooled());
    assert_eq!(since(&scene), None, "it is recorded");
}

#[test]
fn a_refusal_is_told_not_at_any_length_and_only_as_long_as_it_holds() {
    let mut scene = Scene::with(json!({}));
    scene.put(&launch("l-1", 1, None));
    let told = |scene: &mut Scene, error| {
        let dirty = scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(error)));
        assert_eq!(dirty, [Unit::Launch("l-1".parse().unwrap())].into());
        scene.yard.class(&linux()).unwrap().refusal.clone()
    };
    assert_eq!(told(&mut scene, ComputeError::Refused("ä".repeat(900))), Some("ä".repeat(300)));
    assert_eq!(told(&mut scene, ComputeError::Throttled), None);
}

#[test]
fn an_end_asked_for_again_is_counted() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").ended(Reason::Expired));
    for times in 1..=3 {
        scene.see(Observation::Ended(arn("i-1")));
        assert_eq!(scene.yard.instance(&arn("i-1")).unwrap().ended, Some((scene.now.mono, times)));
    }
    assert!(!scene.yard.instance(&arn("i-1")).unwrap().swept);
    scene.see(Observation::Swept(arn("i-1")));
    assert!(scene.yard.instance(&arn("i-1")).unwrap().swept);
}

/// Returns the requests in line of a class, the oldest first.
fn line(scene: &Scene) -> Vec<crate::model::RequestKey> {
    scene.yard.class(&linux()).unwrap().waiting.all().iter().map(|(_, key)| key.clone()).collect()
}

#[test]
fn who_lacks_machines_stands_in_its_classs_line_and_nobody_else() {
    let mut scene = Scene::with(json!({}));
    let with = |version: u64, more: serde_json::Value| -> Request {
        let mut fields = json!({"version": version});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request("1", 1, fields)
    };
    let class = Unit::Class(linux());
    assert!(scene.put(&with(3, json!({}))).contains(&class));
    assert_eq!(line(&scene), [ask("1")]);
    scene.put(&with(4, json!({"desired": "released"})));
    assert_eq!(line(&scene), [], "it gives back");
    scene.put(&with(5, json!({})));
    scene.put(&with(5, json!({"desired": "released"})));
    assert_eq!(line(&scene), [ask("1")], "an image of the same version says nothing new");
    scene.see(Observation::Record(ask("1").into(), None));
    assert_eq!(line(&scene), [], "its record is gone");
    // A request that is not accepted yet is in the queue, whatever machines it lists.
    scene.put(&with(6, json!({"phase": null, "count": 0})));
    assert_eq!(line(&scene), [ask("1")]);
}

#[test]
fn a_deadline_set_at_this_very_moment_was_set_by_no_clock_ahead() {
    for (set_at, ahead) in [(0, false), (1, true)] {
        let mut scene = Scene::with(json!({}));
        scene.add(machine("i-1").pooled());
        let threshold = Threshold { at: at(1800), set_at: at(set_at) };
        scene.add(machine("i-1").pooled().with(|i| (i.version, i.threshold) = (6, Some(threshold))));
        let set = scene.yard.instance(&arn("i-1")).unwrap().set_ahead;
        assert_eq!(set, ahead.then_some(scene.now.mono), "{set_at} s from now");
    }
}

#[test]
fn what_an_agent_says_counts_also_without_a_beat_of_its_own() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").running(&ask("1")));
    let agent = scene.yard.instance(&arn("i-1")).unwrap().agent.clone().unwrap();
    scene.put(&Agent { public_key: Some("key".into()), ..agent });
    let key = scene.yard.instance(&arn("i-1")).unwrap().agent.as_ref().unwrap().public_key.clone();
    assert_eq!(key.as_deref(), Some("key"));
}

#[test]
fn a_beat_concerns_the_request_only_when_it_tells_of_an_interruption() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").running(&ask("1")));
    let machine = Unit::Instance(arn("i-1"));
    assert_eq!(scene.speaks("i-1", |_| ()), [machine.clone()].into());
    let notice = Interruption { action: InterruptionAction::Terminate, at: at(60) };
    let dirty = scene.speaks("i-1", |agent| agent.interruption = Some(notice));
    assert_eq!(dirty, [machine.clone(), Unit::Request(ask("1"))].into());
    assert_eq!(scene.speaks("i-1", |_| ()), [machine].into());
}

#[test]
fn a_changed_class_has_its_own_machines_and_requests_judged_again() {
    let mut scene = Scene::with(json!({}));
    for (name, run, class) in [("i-1", "1", "linux"), ("i-2", "2", "mac")] {
        scene.add(machine(name).pooled().with(|i| i.facts.resource_class = class.parse().unwrap()));
        scene.put(&request(run, 1, json!({"resourceClass": class})));
    }
    let own = [Unit::Class(linux()), Unit::Instance(arn("i-1")), Unit::Request(ask("1"))];
    assert_eq!(scene.pool(2, json!({"max": 11})), own.clone().into());
    assert_eq!(scene.pool(3, json!({"max": 11})), own[..1].iter().cloned().collect(), "only its version");
}

#[test]
fn a_launch_that_brings_nothing_found_none_to_have() {
    for (brought, backoffs) in [(vec![], 1), (vec![machine("i-9").listed(MachineState::Pending)], 0)] {
        let mut scene = Scene::with(json!({}));
        scene.put(&launch("l-1", 1, None));
        let answer = Launched { machines: brought, shortfalls: vec![] };
        scene.see(Observation::Ordered("l-1".parse().unwrap(), Ok(answer)));
        assert_eq!(scene.yard.class(&linux()).unwrap().offerings.len(), backoffs);
    }
}

#[test]
fn a_machine_that_gave_way_is_departing_until_its_record_is_gone() {
    let mut scene = Scene::with(json!({}));
    let departing = |scene: &Scene| scene.yard.class(&linux()).unwrap().leaving.departing.len();
    let drifted = machine("i-1").ended(Reason::Drifted).instance;
    scene.put(&drifted);
    assert_eq!(departing(&scene), 1);
    scene.see(Observation::Record(drifted.key(), None));
    assert_eq!(departing(&scene), 0);
}

#[test]
fn that_a_record_was_not_there_is_forgotten_after_an_hour() {
    let mut scene = Scene::with(json!({}));
    let key = ask("7");
    scene.look(key.clone().into(), None);
    let listed = |scene: &mut Scene| {
        let keys = [crate::model::Pool::key_of(&linux())].into();
        scene.see(Observation::Listed(scene.now.mono, keys));
        scene.yard.absent.contains_key(&key.clone().into())
    };
    scene.wait(3599);
    assert!(listed(&mut scene));
    scene.wait(1);
    assert!(!listed(&mut scene));
}
