//! Which numbers of a request are taken, to the last one that is, and which clock ends its waiting.

use super::*;

fn refusal(spec: serde_json::Value, more: serde_json::Value) -> Option<String> {
    let mut scene = Scene::with(spec);
    scene.put(&new(more));
    let plan = scene.of_request("1");
    (!plan.actions.is_empty()).then(|| answer(&plan).0.after.status.message.clone())
}

#[test]
fn the_largest_numbers_that_are_allowed_are_taken_and_the_next_are_not() {
    let wide = json!({"max": 1000});
    let narrow = json!({"max": 4, "maxRuntimeMinutes": 60});
    for (spec, taken, refused, message) in [
        (&wide, json!({"count": 500}), json!({"count": 501}), "Invalid: count: 501 is not within 1 to 500"),
        (
            &wide,
            json!({"count": 2, "minCount": 2}),
            json!({"count": 2, "minCount": 3}),
            "Invalid: minCount: 3 is not within 1 to count (2)",
        ),
        (
            &wide,
            json!({"timeoutSeconds": 604_800}),
            json!({"timeoutSeconds": 604_801}),
            "Invalid: timeoutSeconds: 604801 is not within 1 to 604800",
        ),
        (
            &wide,
            json!({"maxRuntimeMinutes": 50_400}),
            json!({"maxRuntimeMinutes": 50_401}),
            "Invalid: maxRuntimeMinutes: 50401 is not within 1 to 50400",
        ),
        (
            &narrow,
            json!({"count": 4}),
            json!({"count": 5}),
            "OverMax: count 5 is over the max of class linux (4)",
        ),
        (
            &narrow,
            json!({"maxRuntimeMinutes": 60}),
            json!({"maxRuntimeMinutes": 61}),
            "NotAllowed: maxRuntimeMinutes 61 is over what class linux allows (60)",
        ),
    ] {
        assert_eq!(refusal(spec.clone(), taken.clone()), None, "{taken}");
        assert_eq!(refusal(spec.clone(), refused.clone()).as_deref(), Some(message), "{refused}");
    }
}

#[test]
fn one_that_fails_before_it_was_taken_on_has_had_its_time() {
    let mut scene = Scene::with(json!({}));
    scene.put(&new(json!({"count": 0})));
    let status = answer(&scene.of_request("1")).0.after.status;
    assert_eq!((status.accepted_at, status.deadline), (Some(start()), Some(start())));
    let scene = yard(request("1", 1, json!({"failRequestedAt": at(-1)})), vec![]);
    let status = answer(&scene.of_request("1")).0.after.status;
    assert_eq!((status.accepted_at, status.deadline), (Some(at(-100)), Some(at(500))), "as it was");
    let ready = status.conditions.iter().find(|c| c.condition_type == ConditionType::Ready).unwrap();
    assert_eq!((ready.status, ready.reason.as_str()), (false, "FailedByPerson"));
}

#[test]
fn a_class_that_was_not_there_and_is_there_in_words_nobody_can_read_is_not_unknown() {
    let mut scene = Scene::empty();
    scene.put(&new(json!({})));
    let pool = Pool::key_of(&linux());
    scene.look(pool.clone(), None);
    scene.spoil(&pool, Some(2));
    assert_eq!(scene.of_request("1").actions, []);
}

#[test]
fn the_deadline_is_for_becoming_ready_and_says_nothing_after_that() {
    let late = json!({"phase": "Ready", "readyAt": at(-60), "deadline": at(-10)});
    let mut scene = yard(holding("1", 2, &["i-1"], late), vec![running("i-1"), machine("i-2").pooled()]);
    assert_eq!(scene.of_request("1").actions, []);
    assert_eq!(runs(&scene.claims()), ["1"], "what it lost is replaced");
}

#[test]
fn one_that_has_all_at_its_deadline_is_not_content_with_less() {
    let due = json!({"minCount": 1, "deadline": at(0)});
    let scene = yard(holding("1", 1, &["i-1"], due), vec![running("i-1")]);
    let status = answer(&scene.of_request("1")).0.after.status;
    assert_eq!((status.phase, status.settled_for), (Some(Phase::Ready), None));
}
