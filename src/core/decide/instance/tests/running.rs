use super::*;

#[test]
fn the_maximum_runtime_is_the_smaller_of_request_and_class_or_thirty_minutes() {
    for (request, class, seconds) in [
        (None, None, 1800),
        (Some(5), None, 300),
        (None, Some(7), 420),
        (Some(5), Some(7), 300),
        (Some(9), Some(7), 420),
    ] {
        let mut scene = Scene::with(serde_json::json!({"maxRuntimeMinutes": class}));
        scene.put(&holding("1", 1, &["i-1"], serde_json::json!({"maxRuntimeMinutes": request})));
        scene.add(machine("i-1").claimed(&ask("1")).says(Signal::RegOk));
        let (step, _) = write(&scene.of_machine("i-1"));
        assert_eq!(step.after.threshold, renewed(seconds + 180), "{request:?} {class:?}");
    }
}

/// Creates a scene in which the runner of `i-1` begins to listen for a request of this many machines.
fn listens(count: u32, more: serde_json::Value) -> Scene {
    let mut fields = serde_json::json!({"maxRuntimeMinutes": 5});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&holding("1", count, &["i-1"], fields));
    scene.add(machine("i-1").claimed(&ask("1")).says(Signal::RegOk));
    scene
}

#[test]
fn a_machine_that_serves_has_its_deadline_after_the_end_of_its_request() {
    let ready = |since: i64| serde_json::json!({"phase": "Ready", "readyAt": at(since)});
    for (count, more, seconds, why) in [
        (1, serde_json::json!({}), 300, "its request is ready in a moment"),
        (2, serde_json::json!({}), 500 + 300, "its request is ready by its deadline at the latest"),
        (2, serde_json::json!({"deadline": at(-5)}), 300, "its deadline has passed"),
        (2, ready(-100), 200, "it replaces another"),
        (2, ready(-299), 1, "it replaces another at the last moment"),
        (
            2,
            serde_json::json!({"phase": "Ready", "readyAt": at(-301)}),
            0,
            "its request is released in a moment",
        ),
    ] {
        let (step, _) = write(&listens(count, more).of_machine("i-1"));
        assert_eq!(step.after.threshold, renewed(seconds + 180), "{why}");
    }
}

#[test]
fn a_machine_ends_by_its_deadline_where_its_request_could_not_be_released() {
    let mut scene = listens(1, serde_json::json!({}));
    let actions = scene.of_machine("i-1").actions;
    scene.apply(&actions);
    scene.spoil(&crate::model::Request::key_of(&ask("1")), None);
    scene.wait(479);
    scene.speaks("i-1", |_| ());
    assert_eq!(ends(&scene.of_machine("i-1")), None);
    scene.wait(1);
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Threshold));
}

/// Creates a scene in which `i-1` serves request 1, which is ready since now and lent for five minutes; its record has
/// this deadline.
fn serves(until: i64, more: serde_json::Value) -> Scene {
    let mut fields = serde_json::json!({"maxRuntimeMinutes": 5, "phase": "Ready", "readyAt": at(0)});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&holding("1", 1, &["i-1"], fields));
    scene.add(machine("i-1").running(&ask("1")).until(until));
    scene
}

fn moved(scene: &Scene) -> Option<Threshold> {
    let plan = scene.of_machine("i-1");
    if plan.actions.is_empty() { None } else { write(&plan).0.after.threshold }
}

#[test]
fn the_deadline_of_a_machine_moves_at_most_once_when_its_request_is_ready() {
    for (until, told) in [
        (480, "as it is set now"),
        (390, "half of timing.end before it"),
        (480 + 600, "its request was ready long before its deadline"),
        (480 + 3600, "an hour before it"),
    ] {
        assert_eq!(moved(&serves(until, serde_json::json!({}))), None, "{told}");
    }
    for until in [30, 389, 480 + 3601] {
        let mut scene = serves(until, serde_json::json!({}));
        assert_eq!(moved(&scene), renewed(480), "{until}");
        let actions = scene.of_machine("i-1").actions;
        scene.apply(&actions);
        assert_eq!(moved(&scene), None, "once");
    }
}

#[test]
fn the_deadline_of_a_machine_follows_a_raised_maximum_runtime() {
    let raised = serde_json::json!({"maxRuntimeMinutes": 35});
    assert_eq!(moved(&serves(480, raised)), renewed(2280));
}

#[test]
fn no_deadline_moves_that_a_person_set_or_that_nothing_is_known_of() {
    let mut scene = serves(30, serde_json::json!({}));
    scene.add(machine("i-1").running(&ask("1")).until(30).with(|i| {
        i.version = 6;
        i.expired_by = Some("ada".into());
    }));
    assert_eq!(moved(&scene), None, "a person's word counts");
    assert_eq!(
        moved(&serves(30, serde_json::json!({"readyAt": at(-300)}))),
        None,
        "its request is released now"
    );
    let not_ready = serde_json::json!({"phase": "Fulfilling", "readyAt": null});
    assert_eq!(moved(&serves(30, not_ready)), None, "its request is not ready");
    let mut scene = serves(30, serde_json::json!({"maxRuntimeMinutes": null}));
    scene.spoil(&crate::model::Pool::key_of(&linux()), Some(2));
    assert_eq!(moved(&scene), None, "its class cannot be read");
    scene.pool(3, serde_json::json!({"maxRuntimeMinutes": 10}));
    assert_eq!(moved(&scene), renewed(780), "it gets its class's time when that can be read");
}

#[test]
fn without_a_maximum_of_its_own_a_request_has_six_hours_where_github_tells_its_end() {
    let lent = |watches: bool, trial: bool, run: &str| {
        let mut scene = Scene::with(serde_json::json!({}));
        scene.policy.watches_runs = watches;
        scene.put(&holding(run, 1, &["i-1"], serde_json::json!({"trial": trial})));
        scene.add(machine("i-1").claimed(&ask(run)).says(Signal::RegOk));
        write(&scene.of_machine("i-1")).0.after.threshold
    };
    assert_eq!(lent(true, false, "1"), renewed(6 * 3600 + 180));
    assert_eq!(lent(false, false, "1"), renewed(1800 + 180), "nobody says that its run is over");
    assert_eq!(lent(true, true, "1"), renewed(1800 + 180), "a trial is no run");
    assert_eq!(lent(true, false, "local-1"), renewed(1800 + 180), "GitHub has no such run");
}

#[test]
fn a_runner_that_is_lost_gives_its_machine_back() {
    for signal in [Signal::RegFailed, Signal::RemoveRegOk] {
        let scene = yard(machine("i-1").running(&ask("1")).says(signal));
        assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::IdleCleaning, "{signal}");
    }
    let scene = yard(machine("i-1").claimed(&ask("1")).says(Signal::RemoveRegOk));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::IdleCleaning);
}

#[test]
fn a_claim_that_ends_without_a_runner_counts_although_its_runner_listened_before() {
    let failing = |failures| {
        let built = machine("i-1").running(&ask("1")).with(|i| i.registration_failures = failures);
        yard(built.says(Signal::RegFailed)).of_machine("i-1")
    };
    assert_eq!(write(&failing(0)).0.after.registration_failures, 1);
    assert_eq!(ends(&failing(1)), Some(Reason::RegistrationFailed));
    let mut scene = yard(machine("i-1").running(&ask("1")).with(|i| i.registration_failures = 1));
    let released = serde_json::json!({"desired": "released", "version": 9});
    scene.put(&holding("1", 1, &["i-1"], released));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.registration_failures, 0, "its run had a runner");
}
