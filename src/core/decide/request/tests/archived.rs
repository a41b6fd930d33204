use super::*;
use crate::decide::Policy;

/// A yard with a history that has everything until now, and a request of a run that ended now.
fn ended(run: &str) -> (Scene, Request) {
    let mut scene = Scene::with(json!({}));
    (scene.yard.archives, scene.yard.delivered) = (true, Some(start()));
    let fields = json!({"phase": "Released", "desired": "released", "endedAt": start().to_string(),
        "expiresAt": start().as_second() + 7 * 24 * 3600});
    let over = request(run, 1, fields);
    scene.put(&over);
    (scene, over)
}

const DAY: u64 = Policy::ENDED_STAYS.as_secs() as u64;

#[test]
fn an_ended_request_moves_to_the_history_after_a_day() {
    let (mut scene, _) = ended("1");
    scene.put(&request("2", 1, json!({})));
    let plan = scene.of_request("1");
    assert_eq!((plan.actions.as_slice(), plan.wake), ([].as_slice(), Some(scene.now.mono + secs(DAY))));
    scene.wait(DAY);
    assert_eq!(scene.of_request("1").actions, [Planned::archive(ask("1"))]);
    assert!(scene.of_request("1").actions[0].leader_only);
}

#[test]
fn an_ended_request_stays_without_a_history_that_has_its_line() {
    let (mut scene, _) = ended("1");
    scene.put(&request("2", 1, json!({})));
    scene.wait(DAY);
    let earlier = start().saturating_sub(secs(1)).unwrap();
    for (archives, delivered) in [(false, Some(start())), (true, None), (true, Some(earlier))] {
        (scene.yard.archives, scene.yard.delivered) = (archives, delivered);
        assert_eq!(scene.of_request("1").actions, [], "{archives} {delivered:?}");
    }
}

/// The lookups of runs know a repository by its requests.
#[test]
fn the_last_run_of_a_repository_stays_until_a_later_one_asks_or_its_week_is_over() {
    let (mut scene, over) = ended("41");
    scene.wait(DAY);
    assert_eq!(scene.of_request("41").actions, []);
    for (run, repository, moves) in [
        ("40", "acme/web", false),
        ("41-x", "acme/webs", false),
        ("nightly", "acme/web", false),
        ("42", "acme/web", true),
    ] {
        let pk = format!("request#{repository}#{run}");
        scene.put(&request(run, 1, json!({"repository": repository, "pk": pk})));
        assert_eq!(!scene.of_request("41").actions.is_empty(), moves, "{run} of {repository}");
    }
    let mut scene = ended("41").0;
    scene.wait(7 * DAY);
    let expires = over.status.expires_at.unwrap();
    assert_eq!(scene.of_request("41").actions, [Planned::expire(over.key(), expires)]);
}

#[test]
fn a_run_without_a_number_is_none_that_is_looked_for() {
    let (mut scene, _) = ended("nightly");
    scene.wait(DAY);
    assert_eq!(scene.of_request("nightly").actions, [Planned::archive(ask("nightly"))]);
}

#[test]
fn a_request_moves_only_once_its_machines_are_back() {
    let (mut scene, _) = ended("1");
    let mut over = scene.yard.request(&ask("1")).unwrap().clone();
    over.status.served = [id("i-1")].into();
    over.version += 1;
    scene.put(&over);
    scene.put(&request("2", 1, json!({})));
    scene.add(machine("i-1").cleaning(&ask("1")));
    scene.wait(DAY);
    assert_eq!(scene.of_request("1").actions, []);
}

#[test]
fn a_new_request_is_looked_for_in_the_history_before_it_is_accepted() {
    let mut scene = Scene::with(json!({}));
    scene.yard.archives = true;
    scene.add(machine("i-1").pooled());
    scene.put(&new(json!({})));
    assert_eq!(scene.of_request("1").actions, [Planned::recall(ask("1"))]);
    assert!(scene.claims().is_empty(), "it is not known whether it is new");
    scene.see(Observation::Recalled(ask("1"), None));
    assert_eq!(scene.claims().len(), 1);

    scene.see(Observation::Recalled(ask("1"), Some("Released at noon".into())));
    let (step, note) = answer(&scene.of_request("1"));
    assert_eq!((step.after.phase(), note.reason), (Phase::Failed, "KeyTaken"));
    assert!(step.after.status.message.contains("Released at noon"), "{}", step.after.status.message);
    assert!(scene.claims().is_empty());
}

#[test]
fn nothing_is_looked_for_that_the_operator_made_or_that_is_given_back() {
    for more in [json!({"asked": "job"}), json!({"asked": "rerun"}), json!({"desired": "released"})] {
        let mut scene = Scene::with(json!({}));
        scene.yard.archives = true;
        scene.put(&new(more.clone()));
        let plan = scene.of_request("1");
        assert!(!plan.actions.contains(&Planned::recall(ask("1"))), "{more}");
    }
}
