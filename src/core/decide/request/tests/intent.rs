//! The handling of an intent that is changed after the request was accepted, and the record of who released a request.

use super::*;
use crate::model::{AttributeValue, Item, ReleasedBy, Versioned};

/// Builds an accepted request for two machines, whose intent was changed to this since.
fn changed(status: serde_json::Value, written: serde_json::Value) -> Request {
    let mut taken = request("1", 2, status);
    taken.keep_intent();
    let mut stored = taken.to_item();
    stored.extend(item(json!({"generation": 2, "version": taken.version + 1})));
    stored.extend(item(written));
    record(&stored)
}

fn ignored(request: &Request) -> Option<(bool, &str)> {
    let of = |c: &&crate::model::Condition| c.condition_type == ConditionType::IntentIgnored;
    request.status.conditions.iter().find(of).map(|c| (c.status, c.message.as_str()))
}

/// Returns the request after its next write, and its stored form.
fn stored(plan: &crate::decide::Plan) -> (Request, Item) {
    let (step, _) = answer(plan);
    let item = step.after.to_item();
    (record(&item), item)
}

#[test]
fn what_was_taken_on_is_kept_in_the_record() {
    let mut scene = Scene::with(json!({"max": 4}));
    let fields = json!({"count": 2, "minCount": 1, "allowedInstanceTypes": ["c*"], "timeoutSeconds": 30});
    scene.put(&new(fields.clone()));
    let taken = scene.served();
    let [Effect::Request(step)] = effects(&taken)[..] else { panic!("{taken:?}") };
    let Some(AttributeValue::M(accepted)) = step.after.to_item().remove("accepted") else { panic!("a map") };
    let mut wanted = item(fields);
    wanted.extend(item(json!({"resourceClass": "linux", "onDemandFallback": false})));
    assert_eq!(accepted.into_iter().collect::<Item>(), wanted);
}

#[test]
fn a_request_is_served_as_it_was_accepted() {
    for (written, names) in [
        (json!({"count": 1}), "count"),
        (json!({"count": 9}), "count"),
        (json!({"minCount": 1}), "minCount"),
        (json!({"resourceClass": "mac"}), "resourceClass"),
        (json!({"usageClass": "spot", "onDemandFallback": true}), "usageClass, onDemandFallback"),
        (json!({"allowedInstanceTypes": ["c*"]}), "allowedInstanceTypes"),
        (json!({"maxRuntimeMinutes": 1, "timeoutSeconds": 1}), "maxRuntimeMinutes, timeoutSeconds"),
    ] {
        let mut scene = Scene::with(json!({"max": 4}));
        let request = changed(json!({}), written.clone());
        let served = (request.intent.count, request.intent.min_count, request.intent.resource_class.as_str());
        assert_eq!(served, (2, 2, "linux"), "{written}");
        scene.put(&request);
        let (after, kept) = stored(&scene.of_request("1"));
        let message = format!("{names}: changed after the request was accepted, served as it was then");
        assert_eq!(ignored(&after), Some((true, message.as_str())));
        assert_eq!((after.status.observed_generation, after.phase()), (2, Phase::Pending));
        for (name, value) in item(written.clone()) {
            assert_eq!(kept.get(&name), Some(&value), "what the workflow wrote stays");
        }
        scene.put(&after);
        assert!(scene.of_request("1").actions.is_empty(), "said once: {written}");
        assert_eq!(scene.intents(), [(2, Some(ask("1")))]);
    }
}

#[test]
fn an_ignored_change_that_is_taken_back_is_told_of_no_more() {
    let mut scene = Scene::with(json!({"max": 4}));
    scene.put(&changed(json!({}), json!({"timeoutSeconds": 1})));
    let (after, mut kept) = stored(&scene.of_request("1"));
    kept.remove("timeoutSeconds");
    kept.extend(item(json!({"generation": 3, "version": after.version + 1})));
    scene.put(&record::<Request>(&kept));
    let (after, _) = stored(&scene.of_request("1"));
    assert_eq!(
        (ignored(&after), after.status.observed_generation),
        (Some((false, "what is written is served")), 3)
    );
}

#[test]
fn a_raised_count_within_max_is_taken_on() {
    for phase in ["Pending", "Ready"] {
        let mut scene = Scene::with(json!({"max": 4}));
        scene
            .put(&changed(json!({"phase": phase, "readyAt": at(-10), "settledFor": 1}), json!({"count": 4})));
        let (after, kept) = stored(&scene.of_request("1"));
        assert_eq!((after.intent.count, after.intent.min_count, ignored(&after)), (4, 4, None), "{phase}");
        assert_eq!((after.status.settled_for, after.written.is_none()), (None, true));
        assert_eq!(after.status.observed_generation, 2);
        assert!(
            matches!(&kept["accepted"], AttributeValue::M(map) if map["count"] == AttributeValue::N("4".into()))
        );
        scene.put(&after);
        assert_eq!(scene.intents(), [(4, Some(ask("1")))], "{phase}");
    }
}

#[test]
fn a_count_raised_over_max_is_taken_on_when_the_class_may_have_so_many() {
    let mut scene = Scene::with(json!({"max": 3}));
    scene.put(&changed(json!({}), json!({"count": 4})));
    let (after, _) = stored(&scene.of_request("1"));
    assert_eq!((after.intent.count, ignored(&after).map(|(is, _)| is)), (2, Some(true)));
    scene.put(&after);
    assert!(scene.pool(2, json!({"max": 4})).contains(&crate::yard::Unit::Request(ask("1"))));
    let (after, _) = stored(&scene.of_request("1"));
    assert_eq!((after.intent.count, ignored(&after).map(|(is, _)| is)), (4, Some(false)));
}

#[test]
fn a_raised_maximum_runtime_within_the_classs_is_taken_on() {
    let ready = |more: serde_json::Value| {
        let mut fields = json!({"phase": "Ready", "readyAt": at(-10), "instances": ["i-1"]});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    for (class, own, written, taken) in [
        (None, Some(30), 60, true),
        (Some(60), Some(30), 60, true),
        (Some(60), Some(30), 61, false),
        (Some(60), Some(30), 30, false),
        (Some(60), Some(30), 29, false),
        (Some(60), None, 59, false),
        (None, None, 31, true),
        (None, None, 30, false),
        (None, Some(30), 50_400, true),
        (None, Some(30), 50_401, false),
    ] {
        let told = format!("{own:?} to {written} of {class:?}");
        let mut scene = Scene::with(json!({"maxRuntimeMinutes": class}));
        let as_written = json!({"maxRuntimeMinutes": written});
        scene.put(&changed(ready(json!({"maxRuntimeMinutes": own})), as_written));
        let plan = scene.of_request("1");
        if own == Some(written) {
            assert_eq!(answer(&plan).1.reason, "IntentSeen", "{told}");
            continue;
        }
        let (after, _) = stored(&plan);
        let served = if taken { Some(written) } else { own };
        assert_eq!((after.intent.max_runtime_minutes, after.phase()), (served, Phase::Ready), "{told}");
        assert_eq!(ignored(&after).is_some(), !taken, "{told}");
        assert_eq!(answer(&plan).1.reason, if taken { "RuntimeRaised" } else { "IntentIgnored" }, "{told}");
        assert_eq!((after.status.observed_generation, after.written.is_none()), (2, taken), "{told}");
    }
}

#[test]
fn a_raised_maximum_runtime_moves_the_end_and_takes_back_that_it_is_near() {
    let ready = json!({"phase": "Ready", "readyAt": at(-290), "maxRuntimeMinutes": 5});
    let mut before = changed(ready, json!({"maxRuntimeMinutes": 35, "count": 3}));
    let message = "its maximum runtime is over soon".to_owned();
    before.status.set_condition(ConditionType::RuntimeEnds, true, "MaxRuntime", message, at(-20));
    let mut scene = Scene::with(json!({}));
    scene.put(&before);
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    let after = scene.yard.request(&ask("1")).unwrap();
    assert_eq!((after.intent.count, after.intent.max_runtime_minutes, ignored(after)), (3, Some(35), None));
    scene.wait(1799);
    let said = |request: &Request| request.status.released_by;
    assert!(scene.of_request("1").actions.iter().all(|action| match &action.effect {
        Effect::Request(step) => said(&step.after).is_none(),
        _ => true,
    }));
    scene.wait(11);
    assert_eq!(said(&answer(&scene.of_request("1")).0.after), Some(ReleasedBy::MaxRuntime));
}

#[test]
fn a_count_raised_by_who_is_content_with_fewer_leaves_that_as_it_is() {
    let mut scene = Scene::with(json!({"max": 4}));
    scene.put(&changed(json!({"minCount": 1}), json!({"count": 4})));
    let (after, _) = stored(&scene.of_request("1"));
    assert_eq!((after.intent.count, after.intent.min_count, ignored(&after)), (4, 1, None));
}

#[test]
fn before_it_is_accepted_a_request_may_be_changed() {
    let mut scene = Scene::with(json!({"max": 4}));
    scene.put(&new(json!({"count": 2})));
    scene.put(&new(json!({"count": 1, "version": 4, "generation": 2})));
    let taken = scene.served();
    let [Effect::Request(step)] = effects(&taken)[..] else { panic!("{taken:?}") };
    assert_eq!((step.after.intent.count, step.after.status.observed_generation), (1, 2));
}

#[test]
fn what_an_operator_without_a_copy_took_on_is_kept_with_the_next_write() {
    let mut scene = Scene::with(json!({"max": 4}));
    scene.put(&request("1", 2, json!({"generation": 2})));
    let (after, kept) = stored(&scene.of_request("1"));
    assert!(after.status.accepted && kept.contains_key("accepted"));
}

#[test]
fn a_release_and_a_wish_to_fail_count_although_the_rest_is_ignored() {
    let mut scene = Scene::with(json!({"max": 4}));
    scene.put(&changed(json!({}), json!({"timeoutSeconds": 1, "failRequestedAt": at(0)})));
    assert_eq!(answer(&scene.of_request("1")).1.reason, "FailedByPerson");
    let mut scene = Scene::with(json!({"max": 4}));
    scene.put(&changed(json!({}), json!({"timeoutSeconds": 1, "desired": "released"})));
    assert_eq!(answer(&scene.of_request("1")).0.after.phase(), Phase::Released);
}

#[test]
fn the_operator_says_why_it_released_what_its_workflow_wants() {
    let over = json!({"phase": "Ready", "readyAt": at(-300), "maxRuntimeMinutes": 5});
    let ended = json!({"phase": "Ready", "readyAt": at(-10), "releasedBy": "run-ended"});
    for (more, newer, by, why) in [
        (over, false, ReleasedBy::MaxRuntime, "its maximum runtime is over"),
        (ended, false, ReleasedBy::RunEnded, "GitHub says that its run is over"),
        (json!({"phase": "Ready"}), true, ReleasedBy::Superseded, "superseded by attempt 2"),
    ] {
        let mut scene = yard(holding("1", 1, &["i-1"], more), vec![running("i-1")]);
        if newer {
            scene.put(&request("1", 1, json!({"attempt": 2, "phase": null, "acceptedAt": null})));
        }
        let (step, _) = answer(&scene.of_request("1"));
        let (after, status) = (&step.after, &step.after.status);
        assert_eq!((after.phase(), status.released_by), (Phase::Releasing, Some(by)));
        assert!(status.message.starts_with(why), "{}", status.message);
        assert_eq!(after.intent, step.before.intent, "what the workflow wrote stays");
        scene.put(after);
        scene.add(machine("i-1").pooled().with(|i| i.version = 9));
        let (step, _) = answer(&scene.of_request("1"));
        assert_eq!((step.after.phase(), step.after.status.released_by), (Phase::Released, Some(by)));
    }
}

#[test]
fn a_machine_is_given_back_as_soon_as_the_operator_released_its_request() {
    let released = json!({"phase": "Ready", "releasedBy": "run-ended"});
    let scene = yard(holding("1", 1, &["i-1"], released), vec![running("i-1")]);
    let plan = scene.of_machine("i-1");
    let (step, note) = write(&plan);
    assert_eq!((step.after.run(), note.reason), (None, "Released"));
}

#[test]
fn a_version_and_a_uid_guard_what_is_written() {
    let made = request("1", 1, json!({"uid": "u-1"}));
    let mut next = made.clone();
    next.advance(at(0));
    let crate::model::Operation::Update { guard, set, .. } = next.replacing(&made).operation else {
        panic!("an update")
    };
    assert_eq!(guard, crate::model::Guard::Image("u-1".parse().unwrap(), 3));
    assert!(!set.contains_key("uid"), "a record keeps its own");
}
