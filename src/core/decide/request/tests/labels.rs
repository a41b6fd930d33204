//! Which jobs does a runner take? No two live requests of one owner have the same label.

use super::*;
use crate::yard::Unit;

/// Builds a request that is not accepted yet, at `<repository>#<run>/<name>/<attempt>`.
fn asks(repository: &str, run: &str, name: &str, attempt: u32) -> Request {
    let more = json!({"repository": repository, "name": name, "attempt": attempt});
    let mut request = request(run, 1, more);
    request.status = crate::model::Status::default();
    request
}

fn live(mut request: Request) -> Request {
    (request.status.phase, request.status.accepted_at) = (Some(Phase::Fulfilling), Some(at(-10)));
    request
}

fn answer_of(scene: &Scene, request: &Request) -> Option<&'static str> {
    let actions = scene.judge(&Unit::Request(request.id.clone())).actions;
    match effects(&actions)[..] {
        [Effect::Request(_)] => Some(note(&actions).reason),
        [] => None,
        _ => panic!("{actions:?}"),
    }
}

#[test]
fn a_label_that_a_live_request_of_the_owner_has_is_refused() {
    for (first, second, taken) in [
        (("acme/web", "42", "gpu", 1), ("acme/web", "42-gpu", "default", 1), true),
        (("acme/web", "42", "gpu", 1), ("ACME/api", "42-GPU", "default", 1), true),
        (("acme/web", "42", "default", 1), ("acme/api", "42", "default", 1), true),
        (("acme/web", "a-B", "default", 1), ("acme/web", "A-b", "default", 1), true),
        (("Acme/Web", "42", "default", 1), ("acme/web", "42", "default", 1), true),
        (("acme/web", "42", "default", 1), ("acme/web", "42", "default", 2), false),
        (("Acme/Web", "42", "default", 1), ("acme/web", "42", "default", 2), false),
        (("acme/web", "42", "gpu", 1), ("acme/web", "42", "cpu", 1), false),
        (("acme/web", "42", "default", 1), ("other/web", "42", "default", 1), false),
    ] {
        let mut scene = Scene::with(json!({}));
        let of =
            |(repository, run, name, attempt): (&str, &str, &str, u32)| asks(repository, run, name, attempt);
        scene.put(&live(of(first)));
        let new = of(second);
        scene.put(&new);
        assert_eq!(answer_of(&scene, &new), taken.then_some("LabelTaken"), "{first:?} {second:?}");
    }
}

#[test]
fn a_label_is_free_again_when_its_request_is_over() {
    let (first, second) = (asks("acme/web", "42", "gpu", 1), asks("acme/web", "42-gpu", "default", 1));
    let mut scene = Scene::with(json!({}));
    scene.put(&live(first.clone()));
    let mut over = live(first.clone());
    (over.status.phase, over.version) = (Some(Phase::Released), 9);
    scene.put(&second);
    let dirty = scene.put(&over);
    assert!(dirty.contains(&Unit::Request(second.id.clone())) && dirty.contains(&Unit::Class(linux())));
    assert_eq!(answer_of(&scene, &second), None);
    let dirty = scene.see(Observation::Record(first.key(), None));
    assert!(dirty.contains(&Unit::Request(second.id.clone())), "{dirty:?}");
    scene.see(Observation::Record(second.key(), None));
    assert!(scene.yard.labels.is_empty() && scene.yard.attempts.is_empty());
}

#[test]
fn of_two_new_requests_with_one_label_one_is_taken_on() {
    let (first, second) = (asks("acme/web", "42", "gpu", 1), asks("acme/web", "42-gpu", "default", 1));
    let mut scene = Scene::with(json!({}));
    scene.put(&first);
    scene.put(&second);
    let taken = scene.served();
    let [Effect::Request(step)] = effects(&taken)[..] else { panic!("{taken:?}") };
    assert_eq!(step.before.id, first.id);
    assert_eq!(scene.judge(&Unit::Request(second.id.clone())).waits[0].reason, WaitReason::Behind);
    scene.put(&step.after);
    assert_eq!(answer_of(&scene, &second), Some("LabelTaken"));
    assert!(scene.served().iter().all(|action| !matches!(action.effect, Effect::Request(_))));
}

#[test]
fn a_class_with_secret_labels_refuses_a_request_without_one_and_names_the_flag() {
    for (mode, suffix, refused) in [
        ("secret", None, true),
        ("secret", Some("k3x9q0ab"), false),
        ("run", None, false),
        ("run", Some("k3x9q0ab"), false),
    ] {
        let mut scene = Scene::with(json!({"labelMode": mode}));
        let mut asked = asks("acme/web", "42", "default", 1);
        asked.intent.label_suffix = suffix.map(|suffix| suffix.parse().unwrap());
        scene.put(&asked);
        let plan = scene.judge(&Unit::Request(asked.id.clone()));
        assert_eq!(answer_of(&scene, &asked), refused.then_some("NotAllowed"), "{mode} {suffix:?}");
        if let [Effect::Request(step)] = effects(&plan.actions)[..] {
            assert!(step.after.status.message.contains("--secret-label"), "{}", step.after.status.message);
        }
    }
}

#[test]
fn a_secret_part_tells_labels_apart_and_counts_as_it_is_written_last() {
    let secret = |suffix: &str, version| {
        let mut request = asks("acme/web", "42", "default", 1);
        request.intent.label_suffix = Some(suffix.parse().unwrap());
        request.version = version;
        request
    };
    let mut scene = Scene::with(json!({}));
    scene.put(&live(asks("acme/api", "42", "default", 1)));
    scene.put(&live(asks("acme/cms", "42", "k3x9q0ab", 1)));
    scene.put(&secret("00000000", 1));
    let asked = secret("00000000", 1);
    assert_eq!(answer_of(&scene, &asked), None, "another run of that id has another label");
    let dirty = scene.put(&secret("k3x9q0ab", 2));
    assert!(dirty.contains(&Unit::Request(asked.id.clone())));
    assert_eq!(answer_of(&scene, &asked), Some("LabelTaken"), "it is that of name k3x9q0ab");
    let told = scene.judge(&Unit::Request(asked.id.clone()));
    assert!(!format!("{told:?}").contains("label 42-k3x9q0ab"), "what others can read has no secret");
    scene.put(&secret("00000000", 3));
    assert_eq!((answer_of(&scene, &asked), scene.yard.labels.len()), (None, 3));
}

#[test]
fn a_newer_attempt_supersedes_one_under_a_key_of_before() {
    let mut scene = Scene::with(json!({}));
    let former = live(asks("Acme/Web", "42", "default", 1));
    scene.put(&former);
    let dirty = scene.put(&asks("acme/web", "42", "default", 2));
    assert!(dirty.contains(&Unit::Request(former.id.clone())), "{dirty:?}");
    assert_eq!(scene.yard.superseded(&former.id), Some(2));
}

#[test]
fn a_machine_of_a_trust_domain_written_before_serves_its_owner() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 1, json!({})));
    scene.add(machine("i-1").pooled().with(|i| i.trust_domain = "owner:ACME".into()));
    assert_eq!(scene.claims(), [("1".to_owned(), vec!["i-1".to_owned()])]);
}
