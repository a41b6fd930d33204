//! Runners that are registered ahead of a claim.

use super::*;
use crate::decide::{AtGitHub, Plan, StaleRunners};
use crate::model::{Ahead, AheadPlace, AheadReport, RunnerPackage};

const ID: &str = "i-1.4";

fn package() -> RunnerPackage {
    RunnerPackage { version: "2.331.0".into(), url: "https://github.com/a".into(), sha256: "0".repeat(64) }
}

fn ahead(number: Option<u64>) -> Option<Ahead> {
    Some(Ahead { id: ID.parse().unwrap(), runner_id: number })
}

/// Creates a yard with a class that registers ahead for acme/web.
fn scene(machine: Built) -> Scene {
    let mut scene = Scene::with(serde_json::json!({"registeredAhead": true, "reuseWithin": "repository"}));
    scene.policy.github = true;
    scene.add(machine);
    scene.see(Observation::Announced(arn("i-1")));
    scene
}

/// Builds a machine in the pool that served acme/web before.
fn pooled() -> Built {
    let built = machine("i-1").pooled().agent(|agent| agent.public_key = Some("key".into()));
    built.with(|i| i.trust_domain = "repository:acme/web".into())
}

/// Builds a machine whose runner is at rest, with one number in its record and another in its agent's.
fn rests(number: Option<u64>, says: Option<u64>) -> Built {
    let built = pooled().with(|i| i.ahead = ahead(number)).with(|i| i.registration_seq = 1);
    built.agent(|agent| {
        agent.ahead = Some(AheadReport { id: ID.into(), runner_id: says, listening: says.is_some() });
    })
}

/// Returns the same machine, claimed for run 1 with it.
fn lent(number: Option<u64>) -> Built {
    let mut built = rests(Some(7), number);
    let claimed = machine("i-1").claimed(&ask("1")).instance;
    (built.instance.life, built.instance.claim) = (claimed.life, claimed.claim);
    built.instance.threshold = claimed.threshold;
    built
}

fn claimed(number: Option<u64>) -> Scene {
    let mut scene = scene(lent(number));
    scene.put(&holding("1", 1, &["i-1"], serde_json::json!({})));
    scene
}

fn github(plan: &Plan) -> AtGitHub {
    match effects(&plan.actions)[..] {
        [Effect::Instance(_, github)] => github.clone(),
        _ => panic!("not one write of a machine: {plan:?}"),
    }
}

#[test]
fn a_pooled_machine_registers_ahead_where_its_class_asks_and_its_owner_is_known() {
    let boxes = |scene: &Scene| {
        let actions = scene.of_machine("i-1").actions;
        matches!(effects(&actions)[..], [Effect::Credential(_, of)] if matches!(**of, Credential::Ahead { .. }))
    };
    assert!(boxes(&scene(pooled())));
    let nobodys = pooled().with(|i| i.trust_domain = String::new());
    assert!(!boxes(&scene(nobodys.clone())), "anybody may be first");
    assert!(!boxes(&scene(pooled().agent(|agent| agent.public_key = None))));
    let of = |more: serde_json::Value| {
        let mut scene = scene(nobodys.clone());
        scene.pool(9, more);
        scene
    };
    let sole = serde_json::json!({"registeredAhead": true, "reuseWithin": "repository", "repositories": ["acme/web"]});
    let sole = of(sole);
    assert!(boxes(&sole));
    let actions = sole.of_machine("i-1").actions;
    let [Effect::Credential(step, _)] = effects(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(step.after.trust_domain, "repository:acme/web", "it serves nobody else from now on");
    let auto = serde_json::json!({"reuseWithin": "repository", "repositories": ["acme/web"]});
    assert!(boxes(&of(auto.clone())), "wherever it can be, unless somebody says otherwise");
    let mut off = auto;
    off["registeredAhead"] = false.into();
    assert!(!boxes(&of(off)));
}

#[test]
fn the_number_of_a_runner_at_rest_is_written_once_github_says_whose_it_is() {
    let plan = scene(rests(None, Some(7))).of_machine("i-1");
    let (step, number) = (github(&plan), 7);
    let place = AheadPlace::Repository("acme/web".into());
    assert_eq!(step, AtGitHub::Confirm { place, number, name: format!("runyard-ahead-{ID}") });
    assert!(scene(rests(None, None)).of_machine("i-1").actions.is_empty(), "it does not listen yet");
    assert!(scene(rests(Some(7), Some(7))).of_machine("i-1").actions.is_empty());
}

#[test]
fn a_claim_prefers_a_machine_whose_runner_listens_and_keeps_its_package() {
    let mut scene = scene(rests(Some(7), Some(7)).with(|i| i.runner = Some(package())));
    scene.add(machine("i-2").pooled().with(|i| i.trust_domain = "repository:acme/web".into()).until(1800));
    scene.put(&request("1", 1, serde_json::json!({})));
    let claims: Vec<_> = scene
        .served()
        .into_iter()
        .filter_map(|action| match action.effect {
            Effect::Claim { machines, .. } => Some(machines),
            _ => None,
        })
        .collect();
    let [machines] = &claims[..] else { panic!("{claims:?}") };
    let after = &machines[0].after;
    assert_eq!((after.facts.instance_id.as_str(), &after.ahead), ("i-1", &ahead(Some(7))));
    assert_eq!((&after.runner, &after.registration), (&Some(package()), &None));
}

#[test]
fn a_claim_of_a_machine_whose_runner_does_not_listen_takes_the_normal_way() {
    for built in [rests(None, Some(7)), rests(Some(7), None), rests(Some(7), Some(8))] {
        let mut scene = scene(built);
        scene.put(&request("1", 1, serde_json::json!({})));
        let served = scene.served();
        let [Effect::Claim { machines, .. }] = effects(&served)[..] else { panic!("{served:?}") };
        assert_eq!(machines[0].after.ahead, None);
    }
}

#[test]
fn a_label_makes_the_machine_run_and_the_agents_word_does_not() {
    for built in [claimed(Some(7)), {
        let mut scene = claimed(Some(7));
        scene.speaks("i-1", |agent| {
            agent.signal = Some(Signal::RegOk);
            agent.signal_claim_id = Some("i-1.5".into());
        });
        scene
    }] {
        let plan = built.of_machine("i-1");
        let AtGitHub::Label { runner, number } = github(&plan) else { panic!("{plan:?}") };
        assert_eq!((runner.labels, number), (vec!["1".to_owned()], 7));
        assert_eq!(write(&plan).0.after.state(), crate::model::State::Running);
    }
}

#[test]
fn a_label_that_github_does_not_set_leads_back_and_the_runner_is_deleted_before() {
    let forgets = |scene: &Scene| match github(&scene.of_machine("i-1")) {
        AtGitHub::Forget { number, runner } => Some((number.map(|(_, number)| number), runner.is_some())),
        _ => None,
    };
    let mut scene = claimed(Some(7));
    for _ in 0..2 {
        scene.see(Observation::LabelFailed(arn("i-1"), None));
        assert_eq!(forgets(&scene), None, "it is tried again");
    }
    scene.see(Observation::LabelFailed(arn("i-1"), None));
    assert_eq!(forgets(&scene), Some((Some(7), true)));
    scene.see(Observation::LabelSet(arn("i-1")));
    assert_eq!(forgets(&scene), None, "it has a job, so it has its label");
    scene.see(Observation::LabelFailed(arn("i-1"), Some("404".into())));
    assert_eq!(forgets(&scene), Some((Some(7), true)), "it was refused for good");
    let mut lost = claimed(Some(7));
    lost.speaks("i-1", |agent| agent.ahead = None);
    assert_eq!(forgets(&lost), Some((Some(7), true)));
    let after = write(&lost.of_machine("i-1")).0.after;
    assert_eq!((after.state(), after.ahead), (crate::model::State::Claimed, None));
}

#[test]
fn a_runner_at_rest_of_another_package_or_class_is_deleted_and_made_anew() {
    let old = scene(rests(Some(7), Some(7)).with(|i| i.runner = Some(package())));
    let AtGitHub::Forget { number: Some((_, 7)), runner: None } = github(&old.of_machine("i-1")) else {
        panic!("{:?}", old.of_machine("i-1"))
    };
    let after = write(&old.of_machine("i-1")).0.after;
    assert_eq!((after.ahead, after.runner), (None, None));
    let mut off = scene(rests(Some(7), Some(7)));
    off.pool(9, serde_json::json!({"reuseWithin": "repository", "registeredAhead": false}));
    assert!(matches!(
        github(&off.of_machine("i-1")),
        AtGitHub::Forget { number: Some((_, 7)), runner: None }
    ));
}

/// Returns whether the machine is asked to register another runner, and the number of the former one that is removed
/// for it.
fn asked(scene: &Scene) -> Option<Option<u64>> {
    let actions = scene.of_machine("i-1").actions;
    actions.iter().find_map(|action| match &action.effect {
        Effect::Credential(_, of) => match &**of {
            Credential::Ahead { former, .. } => Some(*former),
            Credential::Registration(_)
            | Credential::Anew { .. }
            | Credential::Removal(_)
            | Credential::Promotion(_) => None,
        },
        _ => None,
    })
}

/// Waits while its agent sends heartbeats.
fn waits(scene: &mut Scene, seconds: u64) {
    scene.wait(seconds);
    scene.speaks("i-1", |_| ());
    scene.see(Observation::Announced(arn("i-1")));
}

#[test]
fn a_runner_that_its_agent_gave_up_is_made_anew_later_each_time() {
    let built = pooled().with(|i| i.threshold.as_mut().unwrap().at = at(90_000));
    let mut scene = scene(built);
    let (mut before, mut waited) = (None, Vec::new());
    for version in 10..18 {
        let mut read = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
        let id = format!("i-1.{version}").parse().unwrap();
        (read.version, read.ahead) = (version, Some(Ahead { id, runner_id: Some(version) }));
        scene.put(&read);
        let begun = scene.now.mono;
        assert_eq!(asked(&scene), None, "its agent has not begun yet");
        while asked(&scene).is_none() {
            waits(&mut scene, 30);
        }
        assert_eq!(asked(&scene), Some(Some(version)), "the former one goes with it");
        waited.push((scene.now.mono - begun).as_secs());
        before = Some(version);
    }
    assert_eq!((before, &waited[..]), (Some(17), &[60, 120, 240, 480, 960, 1920, 3600, 3600][..]));
}

#[test]
fn a_registration_that_github_refuses_is_asked_for_again_later_each_time() {
    let built = pooled().with(|i| i.threshold.as_mut().unwrap().at = at(90_000));
    let mut scene = scene(built);
    assert_eq!(asked(&scene), Some(None));
    for wait in [60, 120, 240] {
        scene.see(Observation::AheadRefused(arn("i-1")));
        waits(&mut scene, wait - 30);
        assert_eq!(asked(&scene), None, "{wait}");
        waits(&mut scene, 30);
        assert_eq!(asked(&scene), Some(None), "{wait}");
    }
}

#[test]
fn a_runner_that_github_does_not_know_is_confirmed_for_a_while_and_then_made_anew() {
    let mut scene = scene(rests(None, Some(7)).with(|i| i.threshold.as_mut().unwrap().at = at(90_000)));
    let begun = scene.now.mono;
    while asked(&scene).is_none() {
        let AtGitHub::Confirm { number: 7, .. } = github(&scene.of_machine("i-1")) else { panic!() };
        waits(&mut scene, 30);
    }
    assert_eq!((scene.now.mono - begun).as_secs(), 300);
}

#[test]
fn a_runner_at_rest_of_a_version_that_ended_is_deleted_and_none_is_made() {
    let mut scene = scene(rests(Some(7), Some(7)));
    let end = crate::ports::github::EndOfLife { registration: None, runtime: Some(scene.now.wall) };
    scene.yard.runner = Some(crate::ports::github::RunnerSupport { version: "2.336.0".into(), end });
    assert!(matches!(
        github(&scene.of_machine("i-1")),
        AtGitHub::Forget { number: Some((_, 7)), runner: None }
    ));
    scene.add(pooled().with(|i| i.version = 90));
    assert_eq!(asked(&scene), None);
}

#[test]
fn an_owners_runner_is_registered_ahead_only_at_an_organisation_and_in_a_group() {
    let of = |organization: bool, spec: serde_json::Value| {
        let mut scene = scene(pooled().with(|i| i.trust_domain = "owner:acme".into()));
        scene.policy.organization = organization;
        scene.pool(9, spec);
        asked(&scene).is_some()
    };
    let (group, none) = (serde_json::json!({"runnerGroup": "g"}), serde_json::json!({}));
    assert!(of(true, group.clone()));
    assert!(!of(false, group), "it would be a call that fails each time");
    assert!(!of(true, none));
}

#[test]
fn a_machine_that_served_nobody_takes_its_runner_at_rest_along() {
    let built = rests(Some(7), Some(7));
    let Effect::SweepRunner(_, stale) = Planned::sweep_runner(&built.instance).effect else { panic!() };
    let (place, names) = (AheadPlace::Repository("acme/web".into()), vec![format!("runyard-ahead-{ID}")]);
    assert_eq!(stale, Some(StaleRunners { place, of_set: false, names, number: None }));
    let Effect::SweepRunner(_, stale) = Planned::sweep_runner(&lent(Some(7)).instance).effect else {
        panic!()
    };
    let names = stale.unwrap().names;
    assert!(names.contains(&format!("runyard-ahead-{ID}")) && names.contains(&"runyard-i-1.5".to_owned()));
    let Effect::SweepRunner(_, stale) = Planned::sweep_runner(&pooled().instance).effect else { panic!() };
    assert_eq!(stale, None);
}

#[test]
fn a_runner_at_rest_of_one_repository_makes_place_for_one_of_its_owner() {
    let owner = serde_json::json!({"registeredAhead": true, "reuseWithin": "owner", "runnerGroup": "g"});
    let mut scene = scene(rests(Some(7), Some(7)));
    scene.policy.organization = true;
    scene.pool(2, owner);
    // No request gets it, not even one of the repository that it is registered at.
    scene.see(Observation::Hints(linux(), Vec::new()));
    for repository in ["acme/web", "acme/api"] {
        let mut asked = scene.clone();
        asked.put(&request("1", 1, serde_json::json!({"repository": repository})));
        let lent = asked.served().into_iter().find_map(|action| match action.effect {
            Effect::Claim { machines, .. } => Some(machines[0].after.ahead.clone()),
            _ => None,
        });
        assert_eq!(lent, Some(None), "{repository}");
    }
    let plan = scene.of_machine("i-1");
    let (step, _) = write(&plan);
    let place = AheadPlace::Repository("acme/web".into());
    assert_eq!(github(&plan), AtGitHub::Forget { number: Some((place, 7)), runner: None });
    assert_eq!((step.after.ahead.as_ref(), step.after.trust_domain.as_str()), (None, "repository:acme/web"));
    scene.put(&step.after);
    scene.wait(120);
    scene.speaks("i-1", |agent| agent.ahead = None);
    let plan = scene.of_machine("i-1");
    let [Effect::Credential(step, _)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!(step.after.trust_domain, "owner:acme", "its next runner is of the owner");
}
