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
        assert_eq!(step.after.threshold, renewed(seconds), "{request:?} {class:?}");
    }
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
