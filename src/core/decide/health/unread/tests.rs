use serde_json::json;

use crate::decide::{Effect, Planned};
use crate::model::{
    Agent, AttributeValue, ConditionType, Instance, Item, Life, Phase, Pool, Record, RecordId, Request,
    Signal,
};
use crate::testing::*;
use crate::yard::Observation;

/// How a readable record turns into an unreadable one: it is of a newer form, or an attribute is broken.
const SPOILT: [(&str, &str); 2] = [("schema", "newer"), ("uses", "broken")];

/// Returns the stored form of a record with one attribute that makes it unreadable.
fn spoilt(mut item: Item, name: &str) -> Item {
    let value = match name {
        "schema" => AttributeValue::N("2".into()),
        _ => AttributeValue::S("many".into()),
    };
    item.insert(name.to_owned(), value);
    item
}

fn spoil(scene: &mut Scene, item: Item, name: &str) {
    let key = RecordId::of(&item).unwrap();
    scene.see(Observation::Record(key, Some(spoilt(item, name))));
}

/// Returns for how many seconds from now a released, clean machine stays in the pool.
fn stays(scene: &Scene) -> i64 {
    let (step, _) = write(&scene.of_machine("i-1"));
    assert!(matches!(step.after.life, Life::Idle { pooled_at: Some(_) }), "{:?}", step.after.life);
    let threshold = step.after.threshold.unwrap();
    threshold.at.duration_since(threshold.set_at).as_secs()
}

#[test]
fn a_machine_released_while_its_class_cannot_be_read_keeps_its_idle_time() {
    for schema in [None, Some(2)] {
        let mut scene = Scene::with(json!({"idleSeconds": 600}));
        scene.add(machine("i-1").cleaning(&ask("9")).says(Signal::RemoveRegOk));
        scene.add(machine("i-2").pooled());
        assert_eq!(stays(&scene), 600);
        scene.spoil(&Pool::key_of(&linux()), schema);
        assert_eq!(stays(&scene), 1800, "{schema:?}");
        // A machine that is in the pool keeps its deadline.
        assert_eq!(scene.of_machine("i-2").actions, []);
        scene.wait(1699);
        scene.speaks("i-2", |_| ());
        assert_eq!(ends(&scene.of_machine("i-2")), None, "{schema:?}");
        scene.wait(1);
        assert_eq!(ends(&scene.of_machine("i-2")), Some(crate::model::Reason::Threshold), "{schema:?}");
    }
}

#[test]
fn a_class_counts_as_deleted_after_a_strong_read_and_keeps_nothing_idle() {
    let mut scene = Scene::empty();
    scene.add(machine("i-1").cleaning(&ask("9")).says(Signal::RemoveRegOk));
    let key = Pool::key_of(&linux());
    assert_eq!(scene.of_machine("i-1").actions, [Planned::look(key.clone())]);
    scene.look(key, None);
    assert_eq!(stays(&scene), 0);
    scene.pool(1, json!({}));
    assert_eq!(stays(&scene), 1800, "it was applied again");
}

/// Creates request 1 of a class that lends for two hours; it is ready for one hour, and its machine has another hour.
fn ready_for_an_hour(more: serde_json::Value) -> Scene {
    let mut scene = Scene::with(json!({"maxRuntimeMinutes": 120}));
    let mut fields = json!({"phase": "Ready", "readyAt": at(-3600), "generation": 1});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    scene.put(&holding("1", 1, &["i-1"], fields));
    scene.add(machine("i-1").running(&ask("1")).until(3600));
    scene
}

#[test]
fn nobody_is_released_over_time_by_a_class_that_cannot_be_read() {
    let mut scene = ready_for_an_hour(json!({}));
    assert_eq!(scene.of_request("1").actions, []);
    scene.spoil(&Pool::key_of(&linux()), Some(2));
    assert_eq!(scene.of_request("1").actions, [], "the default of half an hour is not its class's");
    let mut scene = ready_for_an_hour(json!({"maxRuntimeMinutes": 61}));
    scene.spoil(&Pool::key_of(&linux()), Some(2));
    assert_eq!(note(&scene.of_request("1").actions).reason, "RuntimeEnds");
    scene.wait(60);
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Releasing, "it said so itself");
}

#[test]
fn a_class_that_is_deleted_ends_no_request_before_its_machines() {
    let key = Pool::key_of(&linux());
    let mut scene = ready_for_an_hour(json!({}));
    scene.see(Observation::Record(key.clone(), None));
    assert_eq!(scene.of_request("1").actions, [], "it was not looked for");
    scene.look(key.clone(), None);
    assert_eq!(
        scene.of_request("1").actions,
        [],
        "its machine serves until `timing.end` before its own deadline"
    );
    scene.wait(3419);
    scene.speaks("i-1", |_| ());
    assert_eq!(note(&scene.of_request("1").actions).reason, "RuntimeEnds");
    scene.wait(1);
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Releasing);

    let mut scene = ready_for_an_hour(json!({"maxRuntimeMinutes": 61}));
    scene.look(key.clone(), None);
    scene.wait(60);
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Releasing, "it said so itself");

    let mut scene = Scene::with(json!({"maxRuntimeMinutes": 120}));
    scene.put(&holding("1", 1, &[], json!({"phase": "Ready", "readyAt": at(-1800), "generation": 1})));
    scene.look(key, None);
    let ended = answer(&scene.of_request("1")).0.after;
    assert_eq!(ended.status.released_by, Some(crate::model::ReleasedBy::MaxRuntime), "nothing serves it");
}

/// Creates request 1, which returns `i-1` and `i-2`; `i-1` was pooled, the record of `i-2` cannot be read and has its
/// deadline in five minutes.
fn one_unread(name: &str) -> (Scene, Item) {
    let mut scene = Scene::with(json!({}));
    let more = json!({"phase": "Ready", "readyAt": at(-50), "desired": "released", "updatedAt": at(0)});
    scene.put(&holding("1", 2, &["i-1", "i-2"], more));
    let mine = machine("i-1").running(&ask("1")).instance.claim;
    scene.add(machine("i-1").pooled().with(|i| (i.version, i.claim) = (7, mine)));
    let broken = machine("i-2").running(&ask("1"));
    scene.add(broken.clone());
    let item = broken.instance.to_item();
    spoil(&mut scene, item.clone(), name);
    (scene, item)
}

fn unaccounted(request: &Request) -> Option<String> {
    let mut told = request.status.conditions.iter();
    let found = told.find(|c| c.condition_type == ConditionType::Unaccounted && c.status)?;
    Some(found.message.clone())
}

#[test]
fn a_release_waits_for_a_machine_it_cannot_read_until_that_machine_has_ended_itself() {
    for (name, told) in SPOILT {
        let (mut scene, _) = one_unread(name);
        let plan = scene.of_request("1");
        assert_eq!(answer(&plan).0.after.phase(), Phase::Releasing, "{told}");
        scene.apply(&plan.actions);
        // Its deadline is in 300 s, and 300 s of grace follow.
        let plan = scene.of_request("1");
        assert_eq!(plan.actions, [], "{told}");
        assert_eq!(plan.wake.map(|at| (at - scene.now.mono).as_secs()), Some(600), "{told}");
        scene.wait(599);
        assert_eq!(scene.of_request("1").actions, [], "{told}");
        scene.wait(1);
        let (step, note) = answer(&scene.of_request("1"));
        let after = &step.after;
        assert_eq!((after.phase(), after.status.instances.len()), (Phase::Released, 0), "{told}");
        let message = &after.status.message;
        assert!(message.contains("1 of 2 unaccounted for") && message.contains("i-2"), "{told}: {message}");
        assert!(!message.contains("given back"), "{told}: {message}");
        assert!(unaccounted(after).is_some_and(|why| why.contains("1 of 2")), "{told}");
        assert_eq!(note.reason, "Unaccounted", "{told}");
    }
}

#[test]
fn a_release_ends_at_once_when_the_record_it_waits_for_is_readable_again() {
    for (name, told) in SPOILT {
        let (mut scene, item) = one_unread(name);
        let actions = scene.of_request("1").actions;
        scene.apply(&actions);
        let mine = machine("i-2").running(&ask("1")).instance.claim;
        let healed = machine("i-2").pooled().with(|i| (i.version, i.claim) = (8, mine));
        assert!(!item.is_empty());
        let dirty = scene.add(healed);
        assert!(dirty.contains(&crate::yard::Unit::Request(ask("1"))), "{told}");
        let (step, _) = answer(&scene.of_request("1"));
        assert_eq!(step.after.phase(), Phase::Released, "{told}");
        assert_eq!(
            (unaccounted(&step.after), step.after.status.message.contains("given back")),
            (None, true)
        );
    }
}

#[test]
fn the_deadline_a_newer_program_sets_in_a_record_is_the_one_that_is_waited_for() {
    let (mut scene, mut item) = one_unread("schema");
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    item.insert("threshold".into(), AttributeValue::S(at(900).to_string()));
    spoil(&mut scene, item.clone(), "schema");
    scene.wait(1199);
    assert_eq!(scene.of_request("1").actions, []);
    scene.wait(1);
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Released);
    // A record without a deadline keeps the last known one.
    let (mut scene, mut item) = one_unread("uses");
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    item.remove("threshold");
    spoil(&mut scene, item, "uses");
    scene.wait(599);
    assert_eq!(scene.of_request("1").actions, []);
    scene.wait(1);
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Released);
}

#[test]
fn where_no_deadline_is_known_a_release_waits_as_long_as_its_machines_may_run() {
    let mut scene = Scene::with(json!({}));
    let more = json!({"phase": "Releasing", "desired": "released", "updatedAt": at(0)});
    scene.put(&holding("1", 1, &["i-1"], more));
    scene.spoil(&Instance::key_of(&arn("i-1")), None);
    // From the request's deadline: half an hour, the default of `maxRuntimeMinutes`, `timing.end` and the grace.
    let ended = 500 + 1800 + 180 + 300;
    let plan = scene.of_request("1");
    assert_eq!((plan.actions.len(), plan.wake.map(|at| (at - scene.now.mono).as_secs())), (0, Some(ended)));
    scene.wait(ended);
    let (step, _) = answer(&scene.of_request("1"));
    assert!(step.after.status.message.contains("1 of 1 unaccounted for"), "{}", step.after.status.message);
}

#[test]
fn a_machine_it_cannot_read_is_not_replaced_while_its_request_wants_it() {
    for (name, told) in SPOILT {
        let mut scene = Scene::with(json!({}));
        scene.put(&holding("1", 1, &["i-1"], json!({"phase": "Ready", "readyAt": at(-50)})));
        spoil(&mut scene, machine("i-1").running(&ask("1")).instance.to_item(), name);
        scene.wait(700);
        let request = scene.yard.request(&ask("1")).unwrap();
        assert_eq!(crate::yard::lacking(&scene.yard, &ask("1"), request), 0, "{told}");
    }
}

#[test]
fn a_failed_request_says_what_it_cannot_account_for() {
    let mut scene = Scene::with(json!({}));
    let more = json!({"phase": "Failed", "message": "DeadlinePassed: late", "updatedAt": at(0)});
    scene.put(&holding("1", 1, &["i-1"], more));
    spoil(&mut scene, machine("i-1").claimed(&ask("1")).instance.to_item(), "uses");
    assert_eq!(scene.of_request("1").actions, []);
    scene.wait(600);
    let (step, _) = answer(&scene.of_request("1"));
    assert_eq!((step.after.phase(), step.after.status.instances.len()), (Phase::Failed, 0));
    assert!(step.after.status.message.starts_with("DeadlinePassed: late; 1 of 1 unaccounted for"));
    assert!(unaccounted(&step.after).is_some());
}

#[test]
fn a_machine_that_was_given_up_and_cannot_be_read_is_waited_for_too() {
    let mut scene = Scene::with(json!({}));
    let built = machine("i-1").running(&ask("1"));
    scene.add(built.clone());
    let mut request = holding("1", 1, &["i-1"], json!({"phase": "Releasing", "desired": "released"}));
    request.status.instances.clear();
    request.updated_at = Some(at(0));
    scene.put(&request);
    spoil(&mut scene, built.instance.to_item(), "schema");
    assert_eq!(scene.of_request("1").actions, []);
    scene.wait(600);
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Released);
    // The list of another request is not affected.
    let other = holding("2", 1, &["i-1"], json!({"phase": "Releasing", "desired": "released"}));
    let mut other = Request { ..other };
    other.status.instances.clear();
    scene.put(&other);
    assert_eq!(answer(&scene.of_request("2")).0.after.phase(), Phase::Released);
}

#[test]
fn a_machine_whose_agent_record_cannot_be_read_or_is_gone_is_not_claimed() {
    let agent = Agent::key_of(&arn("i-1"));
    for (told, spoilt) in [("newer", Some(Some(2))), ("broken", Some(None)), ("gone", None)] {
        let mut scene = Scene::with(json!({}));
        scene.add(machine("i-1").pooled());
        scene.put(&request("1", 1, json!({})));
        assert_eq!(runs(&scene.claims()), ["1"], "{told}");
        match spoilt {
            Some(schema) => scene.spoil(&agent, schema),
            None => drop(scene.see(Observation::Record(agent.clone(), None))),
        }
        assert_eq!(scene.claims(), [], "{told}");
        scene.put(machine("i-1").agent(|agent| agent.heartbeat_seq = 9).agent.as_ref().unwrap());
        assert_eq!(runs(&scene.claims()), ["1"], "{told}: it can be read again");
    }
}

#[test]
fn no_credential_is_asked_for_that_cannot_be_made_without_an_unread_record() {
    let key = "a".repeat(43) + "=";
    let claimed = || machine("i-1").claimed(&ask("1")).with(|i| i.public_key = Some(key.clone()));
    let asks = |scene: &Scene| {
        let actions = scene.of_machine("i-1").actions;
        actions.iter().any(|action| matches!(action.effect, Effect::Credential(..)))
    };
    for unread in [Pool::key_of(&linux()), ask("1").into()] {
        let mut scene = Scene::with(json!({}));
        scene.policy.github = true;
        scene.put(&holding("1", 1, &["i-1"], json!({})));
        scene.add(claimed());
        assert!(asks(&scene));
        scene.spoil(&unread, Some(2));
        assert!(!asks(&scene), "{unread}");
    }
    // Its end needs neither.
    let mut scene = Scene::empty();
    scene.policy.github = true;
    scene.add(machine("i-1").cleaning(&ask("1")).with(|i| {
        (i.public_key, i.registration_seq) = (Some(key.clone()), 1);
    }));
    assert!(asks(&scene));
}

/// Idle machines whose agent's record is of a newer form: no request gets them, whatever the state of the pool.
#[test]
fn idle_machines_with_newer_agents_keep_nobody_warm_and_others_are_launched_once() {
    let newer = |scene: &mut Scene, name: &str| {
        scene.add(machine(name).pooled());
        scene.see(Observation::Announced(arn(name)));
        spoil(scene, machine(name).agent.unwrap().to_item(), "schema");
    };
    let mut scene = Scene::with(json!({"max": 5, "desired": 2}));
    scene.add(machine("i-0").pooled());
    scene.see(Observation::Announced(arn("i-0")));
    newer(&mut scene, "i-1");
    assert_eq!(scene.intents(), [(1, None)], "one idle of two");
    let told = |scene: &Scene| {
        scene.of_class().actions.into_iter().find_map(|action| match action.effect {
            Effect::Pool(step) => Some(step.after.status),
            _ => None,
        })
    };
    let status = told(&scene).unwrap();
    let condition =
        |of: ConditionType| status.conditions.iter().find(|one| one.condition_type == of).unwrap();
    let doubtful = condition(ConditionType::Doubtful);
    assert_eq!((doubtful.status, doubtful.reason.as_str()), (true, "NewerAgents"));
    assert!(doubtful.message.starts_with("1 idle machine cannot be claimed"), "{}", doubtful.message);
    assert!(!condition(ConditionType::Warm).status);
    assert_eq!(status.idle.unwrap().idle, 1);
    // Their replacements are no better: no more are launched than the class wants, once.
    newer(&mut scene, "i-2");
    newer(&mut scene, "i-3");
    assert_eq!(scene.intents(), []);
    // They keep their deadlines, so that machines do not come and go.
    scene.wait(1690);
    for name in ["i-1", "i-2", "i-3"] {
        let kept = scene.of_machine(name).actions;
        assert!(matches!(kept[..], [Planned { effect: Effect::Instance(..), .. }, ..]), "{name}: {kept:?}");
        assert_eq!(ends(&scene.of_machine(name)), None, "{name}");
    }
    // An operator that reads them again counts them.
    for name in ["i-1", "i-2", "i-3"] {
        scene.put(&Agent { heartbeat_seq: 9, ..machine(name).agent.unwrap() });
    }
    assert!(scene.yard.class(&linux()).unwrap().idle.unread_agents.is_empty());
    assert_eq!(scene.intents(), []);
}

#[test]
fn a_machine_counts_by_whether_its_agent_can_be_read_whatever_is_seen_first() {
    let counted = |scene: &Scene| {
        let idle = &scene.yard.class(&linux()).unwrap().idle;
        (idle.pooled.all(), idle.coming.all(), idle.unread_agents.len())
    };
    let agent = || machine("i-1").agent.unwrap().to_item();
    let mut scene = Scene::with(json!({}));
    spoil(&mut scene, agent(), "schema");
    scene.put(&machine("i-1").instance);
    assert_eq!(counted(&scene), (0, 0, 1), "the agent first");
    scene.put(&machine("i-1").pooled().with(|i| i.version = 6).instance);
    assert_eq!(counted(&scene), (0, 0, 1), "it is pooled");
    scene.pool(2, json!({"max": 3}));
    assert_eq!(counted(&scene), (0, 0, 1), "its class changes");
    scene.put(&machine("i-1").agent.unwrap());
    assert_eq!(counted(&scene), (1, 0, 0));
    spoil(&mut scene, agent(), "schema");
    assert_eq!(counted(&scene), (0, 0, 1));
    scene.put(&machine("i-1").running(&ask("1")).with(|i| i.version = 7).instance);
    assert_eq!(counted(&scene), (0, 0, 0));
    scene.put(&machine("i-1").cleaning(&ask("1")).with(|i| i.version = 8).instance);
    assert_eq!(counted(&scene), (0, 0, 1));
    scene.see(Observation::Record(Agent::key_of(&arn("i-1")), None));
    assert_eq!(counted(&scene), (0, 1, 0), "a record that is gone says nothing");
    scene.put(&machine("i-1").ended(crate::model::Reason::Expired).with(|i| i.version = 9).instance);
    assert_eq!(counted(&scene), (0, 0, 0));
}
