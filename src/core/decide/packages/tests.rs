use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::decide::Effect;
use crate::decide::context::{Followed, Following};
use crate::model::{
    ClassName, ConditionType, Instance, Life, Pool, Reason, RunnerPackage, Signal, Threshold, Versioned,
};
use crate::ports::github::EndOfLife;
use crate::testing::{Scene, arn, ask, at, linux, machine, request, secs};
use crate::yard::Unit;

use super::{Packages, first_end};

fn package(version: &str) -> RunnerPackage {
    let url = format!("https://github.com/actions/runner/releases/download/v{version}/a.tar.gz");
    let digest = version.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    RunnerPackage { version: version.into(), url, sha256: format!("{digest:0>64}") }
}

/// Creates a scene in which machines of class `linux` follow GitHub's list, which begins with the pinned version.
fn following(pinned: &str) -> Scene {
    let mut scene = Scene::with(json!({"max": 50}));
    let usual = Some(Followed { architecture: "x64".into(), pinned: package(pinned) });
    scene.policy.following = Following { usual, ..Following::default() };
    scene
}

fn offers(scene: &mut Scene, version: &str) {
    scene.yard.latest = [("x64".to_owned(), package(version))].into();
}

fn pool(scene: &Scene) -> &Pool {
    scene.yard.pool(&linux()).unwrap()
}

/// Applies the decisions of the classes; returns the reasons of their events about runner packages.
fn pass(scene: &mut Scene) -> Vec<String> {
    let names: Vec<ClassName> = scene.yard.classes().map(|(name, _)| name.clone()).collect();
    let mut told = Vec::new();
    for name in names {
        let actions = scene.judge(&Unit::Class(name)).actions;
        let events = actions.iter().flat_map(|action| &action.events);
        told.extend(
            events.map(|event| event.note.reason.to_owned()).filter(|reason| reason.starts_with("Runner")),
        );
        scene.apply(&actions);
    }
    told
}

/// Adds a request and a pooled machine for it; returns the package that the claim names.
fn claim(scene: &mut Scene, run: &str) -> Option<String> {
    let now = scene.now.wall;
    let times = json!({"acceptedAt": now, "deadline": now + SignedDuration::from_secs(600)});
    let name = format!("i-{run}");
    scene.add(machine(&name).pooled().with(|i| {
        i.facts.created_at = now;
        i.threshold = Some(Threshold { at: now + SignedDuration::from_secs(1800), set_at: now });
    }));
    scene.put(&request(run, 1, times));
    let mut claims = scene.served();
    claims.retain(|action| matches!(action.effect, Effect::Claim { .. }));
    assert_eq!(claims.len(), 1, "{claims:?}");
    scene.apply(&claims);
    named(scene, run)
}

fn named(scene: &Scene, run: &str) -> Option<String> {
    let instance = &scene.yard.instance(&arn(&format!("i-{run}"))).unwrap().instance;
    instance.runner.as_ref().map(|package| package.version.clone())
}

fn becomes(scene: &mut Scene, run: &str, change: impl FnOnce(&mut Instance)) {
    let now = scene.now.wall;
    let mut instance = scene.yard.instance(&arn(&format!("i-{run}"))).unwrap().instance.clone();
    change(&mut instance);
    instance.state_since = now;
    instance.advance(now);
    scene.put(&instance);
}

/// Lets its runner listen, and then ends its run.
fn runs(scene: &mut Scene, run: &str) -> Vec<String> {
    let id = ask(run).run_id;
    becomes(scene, run, |i| i.life = Life::Running { run: id });
    let mut told = pass(scene);
    becomes(scene, run, |i| i.life = Life::Idle { pooled_at: None });
    told.extend(pass(scene));
    becomes(scene, run, |i| {
        i.life = Life::Terminated { reason: Reason::MaxUses, gone_at: None };
        i.threshold = None;
    });
    told
}

#[test]
fn a_class_that_stays_with_its_pin_names_no_package() {
    let mut scene = Scene::with(json!({"max": 50}));
    offers(&mut scene, "2.337.0");
    assert_eq!(pass(&mut scene), Vec::<String>::new());
    assert_eq!(claim(&mut scene, "1"), None);
    let mut scene = following("2.336.0");
    scene.pool(2, json!({"launch": {"launchTemplateId": "lt-1"}}));
    offers(&mut scene, "2.337.0");
    assert_eq!((pass(&mut scene), claim(&mut scene, "1")), (vec![], None), "it brings its own");
}

#[test]
fn a_new_version_is_tried_by_three_claims_before_all_get_it() {
    let mut scene = following("2.336.0");
    assert_eq!(claim(&mut scene, "1").unwrap(), "2.336.0");
    offers(&mut scene, "2.337.0");
    assert_eq!(pass(&mut scene), ["RunnerTried"]);
    let tried: Vec<_> = (2..7).map(|run| claim(&mut scene, &run.to_string()).unwrap()).collect();
    assert_eq!(tried, ["2.337.0", "2.337.0", "2.337.0", "2.336.0", "2.336.0"], "three, and no more");
    assert_eq!(runs(&mut scene, "5"), Vec::<String>::new(), "it was not a trial");
    for run in ["2", "3"] {
        assert_eq!(runs(&mut scene, run), Vec::<String>::new());
        let next = format!("{run}0");
        assert_eq!(claim(&mut scene, &next).unwrap(), "2.336.0");
    }
    assert_eq!(runs(&mut scene, "4"), ["RunnerAdopted"]);
    assert_eq!(claim(&mut scene, "9").unwrap(), "2.337.0");
    assert_eq!(pool(&scene).status.runner.adopted, Some(package("2.337.0")));
    assert_eq!(pass(&mut scene), Vec::<String>::new(), "once");
}

#[test]
fn a_version_is_adopted_when_its_first_runs_are_over_and_not_before() {
    let mut scene = following("2.336.0");
    offers(&mut scene, "2.337.0");
    pass(&mut scene);
    for run in ["1", "2", "3"] {
        claim(&mut scene, run);
        let id = ask(run).run_id;
        becomes(&mut scene, run, |i| i.life = Life::Running { run: id });
        pass(&mut scene);
    }
    let trial = pool(&scene).status.runner.trial.clone().unwrap();
    assert_eq!(trial.claims.len(), 3);
    assert_eq!(claim(&mut scene, "4").unwrap(), "2.336.0");
    for (run, told) in [("1", vec![]), ("2", vec![]), ("3", vec!["RunnerAdopted"])] {
        becomes(&mut scene, run, |i| i.life = Life::Idle { pooled_at: None });
        assert_eq!(pass(&mut scene), told, "{run}");
    }
}

#[test]
fn a_version_whose_runner_cannot_register_is_held_back_for_a_day() {
    for dead in [false, true] {
        let mut scene = following("2.336.0");
        offers(&mut scene, "2.337.0");
        pass(&mut scene);
        assert_eq!(claim(&mut scene, "1").unwrap(), "2.337.0");
        if dead {
            becomes(&mut scene, "1", |i| {
                i.life = Life::Terminated { reason: Reason::Threshold, gone_at: None };
                i.threshold = None;
            });
        } else {
            let claim = scene.yard.instance(&arn("i-1")).unwrap().instance.claim.clone().unwrap().id;
            scene.speaks("i-1", |agent| {
                agent.signal = Some(Signal::RegFailed);
                agent.signal_claim_id = Some(claim.to_string());
                agent.signal_detail = Some("its SHA-256 is 0, not 1".into());
            });
        }
        assert_eq!(claim(&mut scene, "2").unwrap(), "2.336.0", "before anything is written");
        assert_eq!(pass(&mut scene), ["RunnerHeldBack"]);
        let held_back = pool(&scene).status.runner.held_back.clone().unwrap();
        assert!(held_back.message.contains("i-1"), "{held_back:?}");
        scene.wait(60);
        pass(&mut scene);
        let told =
            pool(&scene).status.conditions.iter().any(|c| c.condition_type == ConditionType::RunnerHeldBack);
        assert!(told, "a condition says so");
        assert_eq!(claim(&mut scene, "3").unwrap(), "2.336.0");
        scene.wait(23 * 3600);
        assert_eq!(pass(&mut scene), Vec::<String>::new());
        scene.wait(3600);
        assert_eq!(pass(&mut scene), ["RunnerTried"], "the old failure is of an earlier trial");
        assert_eq!(claim(&mut scene, "4").unwrap(), "2.337.0");
    }
}

#[test]
fn a_machine_that_never_boots_says_nothing_of_its_package() {
    let mut scene = following("2.336.0");
    offers(&mut scene, "2.337.0");
    pass(&mut scene);
    let bound = machine("i-9").bound(&ask("9")).ended(Reason::Threshold);
    let facts = bound.instance.facts.instance_id.clone();
    scene.add(bound.with(|i| {
        i.claim.as_mut().unwrap().id = crate::model::ClaimId::of(&facts, 1);
        i.runner = Some(package("2.337.0"));
        i.state_since = at(10);
    }));
    assert_eq!(pass(&mut scene), Vec::<String>::new());
}

fn other(scene: &mut Scene, name: &str, more: serde_json::Value) {
    let mut fields = json!({
        "pk": format!("pool#{name}"), "sk": "pool", "kind": "pool", "version": 1, "resourceClass": name, "max": 5,
    });
    for (name, value) in more.as_object().unwrap() {
        fields[name] = value.clone();
    }
    let pool: Pool = crate::testing::record(&crate::testing::item(fields));
    scene.put(&pool);
}

fn state_of(scene: &Scene, name: &str) -> (Option<String>, bool) {
    let runner = &scene.yard.pool(&ClassName::parse(name).unwrap()).unwrap().status.runner;
    (runner.adopted.as_ref().map(|package| package.version.clone()), runner.trial.is_some())
}

#[test]
fn one_class_tries_a_version_and_the_others_adopt_it_from_there() {
    let mut scene = following("2.336.0");
    other(&mut scene, "big", json!({}));
    other(&mut scene, "arm", json!({"launch": {"architecture": "arm64"}}));
    scene.put(&request("1", 1, json!({})));
    offers(&mut scene, "2.337.0");
    pass(&mut scene);
    assert_eq!(state_of(&scene, "linux"), (None, true), "it has work");
    assert_eq!(state_of(&scene, "big"), (None, false));
    for run in ["2", "3", "4"] {
        claim(&mut scene, run);
        runs(&mut scene, run);
    }
    pass(&mut scene);
    let adopted = Some("2.337.0".to_owned());
    assert_eq!(state_of(&scene, "linux").0, adopted);
    assert_eq!(state_of(&scene, "big"), (adopted, false));
    assert_eq!(state_of(&scene, "arm"), (None, false), "another architecture has its own list");
}

#[test]
fn a_class_without_claims_does_not_keep_others_from_trying() {
    let mut scene = following("2.336.0");
    other(&mut scene, "a-first-by-name", json!({}));
    offers(&mut scene, "2.337.0");
    pass(&mut scene);
    assert_eq!((state_of(&scene, "a-first-by-name").1, state_of(&scene, "linux").1), (true, false));
    scene.wait(599);
    pass(&mut scene);
    assert!(!state_of(&scene, "linux").1);
    scene.wait(2);
    pass(&mut scene);
    assert!(state_of(&scene, "linux").1);
}

#[test]
fn a_version_that_failed_in_one_class_is_tried_in_no_other() {
    let mut scene = following("2.336.0");
    other(&mut scene, "other", json!({}));
    offers(&mut scene, "2.337.0");
    pass(&mut scene);
    claim(&mut scene, "1");
    becomes(&mut scene, "1", |i| {
        i.life = Life::Terminated { reason: Reason::RegistrationFailed, gone_at: None };
        i.threshold = None;
    });
    assert_eq!(pass(&mut scene), ["RunnerHeldBack"]);
    scene.wait(3600);
    pass(&mut scene);
    assert_eq!(state_of(&scene, "other"), (None, false));
    offers(&mut scene, "2.338.0");
    assert_eq!(pass(&mut scene), ["RunnerTried"], "a newer one is another");
}

#[test]
fn what_github_lists_no_more_is_not_tried_on_and_nothing_older_is_adopted() {
    let mut scene = following("2.336.0");
    offers(&mut scene, "2.337.0");
    pass(&mut scene);
    offers(&mut scene, "2.335.0");
    pass(&mut scene);
    assert_eq!(state_of(&scene, "linux"), (None, false));
    assert_eq!(claim(&mut scene, "1").unwrap(), "2.336.0");
}

#[test]
fn a_newer_pin_is_used_instead_of_what_was_adopted() {
    let mut scene = following("2.338.0");
    let mut changed = pool(&scene).clone();
    changed.status.runner.adopted = Some(package("2.337.0"));
    changed.version = 2;
    scene.put(&changed);
    assert_eq!(claim(&mut scene, "1").unwrap(), "2.338.0");
}

#[test]
fn only_the_leader_writes_and_another_operator_reads_the_same_from_the_record() {
    let mut scene = following("2.336.0");
    offers(&mut scene, "2.337.0");
    scene.role.lease = None;
    assert_eq!(pass(&mut scene), Vec::<String>::new());
    scene.role.lease = Some(4);
    pass(&mut scene);
    // An operator that never read the list.
    scene.yard.latest.clear();
    scene.role.lease = None;
    assert_eq!(claim(&mut scene, "1").unwrap(), "2.337.0");
}

#[test]
fn a_pooled_machine_learns_of_its_next_package_by_writes_that_are_made_anyway() {
    let mut scene = following("2.336.0");
    let mut changed = pool(&scene).clone();
    changed.status.runner.adopted = Some(package("2.337.0"));
    changed.version = 2;
    scene.put(&changed);
    scene.add(machine("i-1").cleaning(&ask("1")).says(Signal::RemoveRegOk));
    let (step, _) = crate::testing::write(&scene.of_machine("i-1"));
    assert!(step.after.pooled_at().is_some());
    assert_eq!(step.after.runner, Some(package("2.337.0")));
}

/// The ends that GitHub named, and the time from which the next version was available: 30 days earlier.
const ENDS: [(&str, Option<&str>); 11] = crate::testing::RUNNER_ENDS;

#[test]
fn with_latest_no_claim_of_a_year_gets_a_version_whose_support_ended() {
    let day = SignedDuration::from_hours(24);
    let ends: Vec<(&str, Option<Timestamp>)> =
        ENDS.iter().map(|(version, end)| (*version, end.map(|end| end.parse().unwrap()))).collect();
    let mut scene = following(ends[0].0);
    let (mut seen, mut lost) = (BTreeSet::new(), Vec::new());
    scene.now.wall = "2025-12-20T12:00:00Z".parse().unwrap();
    for run in 0..340 {
        let now = scene.now.wall;
        // The last version whose predecessor ends in 30 days or less.
        let newest =
            1 + ends.iter().rposition(|(_, end)| end.is_some_and(|end| end <= now + day * 30)).unwrap_or(0);
        offers(&mut scene, ends[newest.min(10)].0);
        let known = |end: &Option<Timestamp>| end.filter(|end| *end <= now + day * 30);
        let dates = ends.iter().map(|(version, end)| {
            ((*version).to_owned(), EndOfLife { registration: None, runtime: known(end) })
        });
        scene.yard.ends = dates.collect();
        pass(&mut scene);
        let run = run.to_string();
        let version = claim(&mut scene, &run).unwrap();
        let end = ends.iter().find(|(of, _)| *of == version).and_then(|(_, end)| *end);
        if end.is_some_and(|end| end <= now) {
            lost.push((now, version.clone()));
        }
        seen.insert(version);
        runs(&mut scene, &run);
        scene.put(&request(&run, 1, json!({"phase": "Released", "version": 9})));
        scene.wait(24 * 3600);
    }
    assert_eq!(lost, []);
    assert!(seen.len() >= 8 && seen.contains("2.337.0"), "{seen:?}");
}

#[test]
fn a_version_is_left_a_day_before_its_end_even_if_no_claim_tried_the_next() {
    let mut scene = following("2.336.0");
    offers(&mut scene, "2.337.0");
    pass(&mut scene);
    let end =
        EndOfLife { registration: None, runtime: Some(scene.now.wall + SignedDuration::from_hours(25)) };
    scene.yard.ends = [("2.336.0".to_owned(), end)].into();
    assert_eq!(pass(&mut scene), Vec::<String>::new());
    let wake = scene.of_class().wake.expect("it looks again");
    assert!(wake <= scene.now.mono + secs(3600), "{wake:?}");
    scene.wait(3600);
    assert_eq!(pass(&mut scene), ["RunnerAdopted"]);
    assert_eq!(claim(&mut scene, "1").unwrap(), "2.337.0");
}

#[test]
fn the_pool_tells_of_an_end_three_weeks_before_whatever_its_machines_follow() {
    for follows in [false, true] {
        let mut scene = following("2.336.0");
        if !follows {
            scene.policy.following = Following::default();
        }
        let told = |scene: &mut Scene| {
            scene.wait(60);
            pass(scene);
            let status = &pool(scene).status;
            let condition = status.conditions.iter().any(|c| c.condition_type == ConditionType::RunnerEnds);
            assert_eq!(condition, status.message.contains("ends on"), "{}", status.message);
            let plans = crate::explain::judge(&scene.yard, &scene.policy, scene.now, scene.role);
            let waits = plans.iter().flat_map(|(_, plan)| &plan.waits);
            let planned = waits.filter(|wait| wait.message.contains("ends on")).count();
            assert_eq!(planned, usize::from(condition), "`plan` says so too");
            condition
        };
        for (days, near) in [(22, false), (20, true)] {
            let end = scene.now.wall + SignedDuration::from_hours(24 * days);
            let end = EndOfLife { registration: None, runtime: Some(end) };
            scene.yard.runner = Some(crate::ports::github::RunnerSupport { version: "2.336.0".into(), end });
            assert_eq!(told(&mut scene), near, "{follows} {days}");
        }
    }
}

#[test]
fn followers_are_held_back_only_when_what_they_get_has_ended() {
    let mut scene = following("2.336.0");
    scene.pool(2, json!({"desired": 1}));
    let over = EndOfLife { registration: None, runtime: Some(scene.now.wall) };
    scene.yard.runner = Some(crate::ports::github::RunnerSupport { version: "2.336.0".into(), end: over });
    assert_eq!(scene.intents(), [], "nothing newer is known");
    assert!(scene.of_class().waits.iter().any(|wait| wait.message.contains("no newer one")));
    assert_eq!(first_end(&scene.yard, &scene.policy), over);
    offers(&mut scene, "2.337.0");
    pass(&mut scene);
    assert_eq!(scene.intents(), [(1, None)]);
    assert_eq!(first_end(&scene.yard, &scene.policy), EndOfLife::default());
    let cx =
        crate::decide::Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
    assert_eq!(Packages::of(&cx, pool(&scene)).usual, Some(&package("2.337.0")));
}
