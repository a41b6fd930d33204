//! Which numbers of a request are accepted, at their limits, and which clock ends its waiting?

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
fn globs_out_of_bounds_fail_a_request_in_a_write_that_does_not_copy_them() {
    let globs = |glob: &str, many: usize| json!({"allowedInstanceTypes": vec![glob.to_owned(); many]});
    assert_eq!(refusal(json!({}), globs(&"c".repeat(30), 40)), None);
    let long = format!("Invalid: allowedInstanceTypes: \"{}\" is not 1 to 30 letters", "c".repeat(30));
    for (more, words) in [
        (globs("c*", 41), "Invalid: allowedInstanceTypes: there are more than 40 globs"),
        (globs("c*", 15_000), "Invalid: allowedInstanceTypes: there are more than 40 globs"),
        (globs(&"c".repeat(31), 1), long.as_str()),
        (globs(&"c".repeat(60_000), 1), long.as_str()),
        (globs("c6_large", 1), "Invalid: allowedInstanceTypes: \"c6_large\" is not 1 to 30 letters"),
    ] {
        let mut scene = Scene::with(json!({}));
        scene.put(&new(more));
        let (step, _) = answer(&scene.of_request("1"));
        assert!(step.after.status.message.starts_with(words), "{}", step.after.status.message);
        let crate::model::Operation::Update { set, remove, .. } =
            crate::model::Versioned::replacing(&step.after, &step.before).operation
        else {
            panic!("an update")
        };
        assert!(
            !set.contains_key("allowedInstanceTypes") && !set.contains_key("accepted") && remove.is_empty()
        );
        assert!(format!("{set:?}").len() < 2000, "{set:?}");
    }
}

#[test]
fn types_that_a_class_does_not_open_to_requests_are_refused() {
    let globs = |globs: &[&str]| json!({"allowedInstanceTypes": globs});
    let nano = json!({"allowedInstanceTypes": ["t3.nano"]});
    let told = "NotAllowed: allowedInstanceTypes: class linux lets no request choose p5.48xlarge, only within t3.nano; \
                ask for these, or for none";
    assert_eq!(refusal(nano.clone(), globs(&["t3.nano", "p5.48xlarge"])).as_deref(), Some(told));
    assert!(refusal(nano.clone(), globs(&[])).is_some(), "an empty list is any type");
    let opened = json!({"allowedInstanceTypes": ["t3.nano"], "requestTypes": ["p5.*"]});
    for (spec, more) in [
        (nano.clone(), globs(&["t3.nano"])),
        (nano, json!({})),
        (opened, globs(&["p5.48xlarge"])),
        (json!({}), globs(&["p5.*"])),
    ] {
        assert_eq!(refusal(spec.clone(), more.clone()), None, "{spec} {more}");
    }
}

#[test]
fn globs_that_were_accepted_before_there_were_bounds_are_served_as_they_were() {
    let many = vec!["m7i.*".to_owned(); 60];
    let before = request("1", 1, json!({"allowedInstanceTypes": many}));
    assert_eq!(before.intent.allowed_instance_types.map(|types| types.0.len()), Some(60));
    let mut accepted = request("1", 1, json!({}));
    accepted.intent.allowed_instance_types = Some(crate::model::InstanceTypes(many.clone()));
    accepted.status.accepted = true;
    let again: Request = record(&crate::model::Record::to_item(&accepted));
    assert_eq!(again.intent.allowed_instance_types.map(|types| types.0), Some(many));
}

#[test]
fn a_class_or_a_priority_that_no_record_can_have_is_kept_as_far_as_shows_that() {
    let long = format!("{}é{}", "x".repeat(40), "x".repeat(9000));
    let more = json!({"resourceClass": long, "priority": long, "failRequestedBy": long});
    let intent = new(more).intent;
    assert_eq!((intent.resource_class.len(), intent.priority.map(|name| name.len())), (42, Some(42)));
    assert!(crate::model::ClassName::parse(&intent.resource_class).is_err());
    assert!(intent.fail_requested_by.is_some_and(|by| by.len() < 210));
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
