use super::*;

#[test]
fn a_released_request_gives_its_machine_back_uncleaned_with_its_claim_kept() {
    let built = [
        machine("i-1").bound(&ask("1")),
        machine("i-1").claimed(&ask("1")),
        machine("i-1").running(&ask("1")).until(1000),
    ];
    for built in built {
        for more in [
            serde_json::json!({"desired": "released"}),
            serde_json::json!({"phase": "Failed"}),
            serde_json::json!({"phase": "Releasing"}),
            serde_json::json!({"phase": "Released"}),
            // Given up: the request knows this claim and no longer lists the machine.
            serde_json::json!({"instances": []}),
        ] {
            let scene = held(built.clone().says(Signal::RegOk), more);
            becomes(&scene, |next| {
                next.life = Life::Idle { pooled_at: None };
                next.threshold = renewed(240);
                next.state_since = start();
            });
        }
    }
}

#[test]
fn a_machine_whose_request_is_gone_is_given_back_once_a_strong_read_says_so() {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.add(machine("i-1").running(&ask("1")));
    assert_eq!(scene.of_machine("i-1").actions, [Planned::look(ask("1").into())]);
    scene.look(ask("1").into(), None);
    assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::IdleCleaning);
}

#[test]
fn a_request_that_cannot_be_read_is_not_read_again_and_again_and_keeps_its_machine() {
    for schema in [None, Some(2)] {
        let mut scene = Scene::with(serde_json::json!({}));
        scene.add(machine("i-1").running(&ask("1")));
        scene.spoil(&ask("1").into(), schema);
        assert_eq!(scene.of_machine("i-1").actions, []);
    }
}

#[test]
fn an_image_of_the_request_from_before_the_claim_gives_nothing_up() {
    // The machine belonged to this request once (claim of version 3), was cleaned, and belongs to it again (claim of
    // version 5).
    let mut request = holding("1", 1, &["i-1"], serde_json::json!({"instances": []}));
    request.status.claims.insert(id("i-1"), ClaimId::of(&id("i-1"), 3));
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&request);
    scene.add(machine("i-1").claimed(&ask("1")));
    assert_eq!(scene.of_machine("i-1").actions, []);
}

/// Creates run 1 with two machines, whose request is deleted and created again.
fn made_anew(seconds: u64, more: serde_json::Value) -> Scene {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&holding("1", 2, &["i-1", "i-2"], serde_json::json!({})));
    scene.add(machine("i-1").running(&ask("1")).until(9000));
    scene.add(machine("i-2").bound(&ask("1")));
    scene.wait(seconds);
    scene.see(crate::yard::Observation::Record(ask("1").into(), None));
    scene.speaks("i-1", |_| ());
    let mut anew = request("1", 1, more);
    (anew.version, anew.uid) = (1, Some("another".parse().unwrap()));
    scene.put(&anew);
    scene
}

#[test]
fn a_request_made_anew_gives_back_the_machines_of_the_one_before() {
    for more in [serde_json::json!({}), serde_json::json!({"phase": null, "acceptedAt": null})] {
        let scene = made_anew(10, more);
        for name in ["i-1", "i-2"] {
            let plan = scene.of_machine(name);
            let [Effect::Disown(step, request)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
            assert_eq!((step.after.place(), request.version), (Place::IdleCleaning, 1));
            assert_eq!(note(&plan.actions).reason, "RequestMadeAnew");
        }
    }
}

#[test]
fn a_request_whose_image_may_be_older_than_the_claim_disowns_nobody() {
    let scene = made_anew(0, serde_json::json!({}));
    assert_eq!(scene.of_machine("i-1").actions, [], "it was seen no later than the machine");
    let mut scene = made_anew(10, serde_json::json!({}));
    let busy: crate::model::RecordId = ask("1").into();
    scene.yard.busy.insert(crate::model::Slot::Record(busy));
    assert_eq!(scene.of_machine("i-1").actions, [], "it is being written");
}

#[test]
fn a_foreign_claim_is_given_up_when_its_request_no_longer_lists_the_machine() {
    let mut request = holding("1", 1, &["i-1"], serde_json::json!({"instances": []}));
    request.status.claims.clear();
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&request);
    scene.add(machine("i-1").claimed(&ask("1")));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.place(), Place::IdleCleaning);
}

#[test]
fn claims_of_which_somebody_else_named_one_have_no_order() {
    let theirs: ClaimId = "theirs".parse().unwrap();
    for (known, held) in [
        (theirs.clone(), ClaimId::of(&id("i-1"), 5)),
        (ClaimId::of(&id("i-1"), 5), theirs.clone()),
        (theirs, "another-of-theirs".parse().unwrap()),
    ] {
        let mut request = holding("1", 1, &["i-1"], serde_json::json!({"instances": []}));
        request.status.claims.insert(id("i-1"), known.clone());
        let mut scene = Scene::with(serde_json::json!({}));
        scene.put(&request);
        scene.add(machine("i-1").claimed(&ask("1")).with(|i| i.claim.as_mut().unwrap().id = held.clone()));
        let given_up = scene.of_machine("i-1").actions.len() == 1;
        assert!(given_up, "its request knows {known}, the machine {held}");
    }
}
