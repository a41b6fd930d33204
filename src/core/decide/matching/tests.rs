use serde_json::json;

use super::{Demand, Matcher, Refusal};
use crate::decide::Context;
use crate::model::{Instance, Interruption, InterruptionAction, Life, UsageClass};
use crate::testing::*;
use crate::yard::Observation;

/// The assignment of `i-1` when request 2 of `acme/web` asks for a machine.
#[derive(Debug, PartialEq, Eq)]
enum Picked {
    Claimed,
    NotThere,
    Listed,
    For(Refusal),
}

fn why(
    spec: serde_json::Value,
    ask: serde_json::Value,
    built: Built,
    prepare: impl FnOnce(&mut Scene),
) -> Picked {
    let mut scene = Scene::with(spec);
    scene.add(built);
    prepare(&mut scene);
    let request = request("2", 1, ask);
    let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
    let class = scene.yard.class(&linux()).unwrap();
    let spec = &class.pool.as_ref().unwrap().spec;
    let mut matcher = Matcher::new(&cx, class, spec);
    let share = matcher.pick(&request.id, &Demand::of(&request, spec), 1);
    match (share.machines.as_slice(), share.refusals.first(), matcher.met().as_slice()) {
        ([_], None, []) => Picked::Claimed,
        ([], Some(refusal), []) => Picked::For(*refusal),
        ([], None, [_]) => Picked::Listed,
        ([], None, []) => Picked::NotThere,
        other => panic!("{other:?}"),
    }
}

fn pooled() -> Built {
    machine("i-1").pooled()
}

#[test]
fn each_filter_refuses_by_itself() {
    let spot = |built: Built| built.with(|i| i.facts.usage_class = UsageClass::Spot);
    let domain = |name: &str| pooled().with(|i| i.trust_domain = name.into());
    let types = |globs: &[&str]| json!({"allowedInstanceTypes": globs});
    let warned = Interruption { action: InterruptionAction::Terminate, at: at(100) };
    for (name, spec, ask, built, expected) in [
        ("fits", json!({}), json!({}), pooled(), Picked::Claimed),
        ("not pooled", json!({}), json!({}), machine("i-1"), Picked::NotThere),
        ("cleaning", json!({}), json!({}), machine("i-1").cleaning(&ask("1")), Picked::NotThere),
        ("spot wanted", json!({}), json!({"usageClass": "spot"}), pooled(), Picked::For(Refusal::UsageClass)),
        ("spot wanted and had", json!({}), json!({"usageClass": "spot"}), spot(pooled()), Picked::Claimed),
        (
            "fallback is for launches",
            json!({}),
            json!({"usageClass": "spot", "onDemandFallback": true}),
            pooled(),
            Picked::For(Refusal::UsageClass),
        ),
        ("no wish", json!({}), json!({}), spot(pooled()), Picked::Claimed),
        ("type", json!({}), types(&["c*"]), pooled(), Picked::For(Refusal::InstanceType)),
        ("one of the globs", json!({}), types(&["c*", "m7i.*"]), pooled(), Picked::Claimed),
        ("the pool's types", types(&["c*"]), json!({}), pooled(), Picked::For(Refusal::InstanceType)),
        ("the request's types replace the pool's", types(&["c*"]), types(&["m*"]), pooled(), Picked::Claimed),
        ("same owner", json!({}), json!({}), domain("owner:acme"), Picked::Claimed),
        ("other owner", json!({}), json!({}), domain("owner:evil"), Picked::For(Refusal::TrustDomain)),
        (
            "same repository",
            json!({"reuseWithin": "repository"}),
            json!({}),
            domain("repository:acme/web"),
            Picked::Claimed,
        ),
        (
            "by repository",
            json!({"reuseWithin": "repository"}),
            json!({}),
            domain("repository:acme/api"),
            Picked::For(Refusal::TrustDomain),
        ),
        ("never used", json!({"reuseWithin": "repository"}), json!({}), pooled(), Picked::Claimed),
        ("29 s left", json!({}), json!({}), pooled().until(29), Picked::For(Refusal::Threshold)),
        ("30 s left", json!({}), json!({}), pooled().until(30), Picked::Claimed),
        (
            "interrupted",
            json!({}),
            json!({}),
            pooled().agent(|a| a.interruption = Some(warned)),
            Picked::For(Refusal::Retiring),
        ),
        (
            "used up",
            json!({"maxUses": 1}),
            json!({}),
            pooled().with(|i| i.uses = 1),
            Picked::For(Refusal::Retiring),
        ),
        ("too old", json!({"maxAgeSeconds": 100}), json!({}), pooled(), Picked::For(Refusal::Retiring)),
        (
            "expired by a person",
            json!({}),
            json!({}),
            pooled().with(|i| i.expired_by = Some("ada".into())),
            Picked::For(Refusal::Retiring),
        ),
    ] {
        assert_eq!(why(spec, ask, built, |_| ()), expected, "{name}");
    }
}

/// Returns the machines that requests for one machine each get in turn, from four machines whose last heartbeats were
/// 50, 40, 0 and 45 s ago.
fn in_order(spec: serde_json::Value, prepare: impl FnOnce(&mut Scene)) -> Vec<String> {
    let mut scene = Scene::with(spec);
    (0..4).for_each(|n| drop(scene.add(machine(&format!("i-{n}")).pooled().until(500 + n))));
    for (seconds, name) in [(5, "i-3"), (5, "i-1"), (40, "i-2")] {
        scene.wait(seconds);
        scene.speaks(name, |_| ());
    }
    prepare(&mut scene);
    let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
    let class = scene.yard.class(&linux()).unwrap();
    let spec = &class.pool.as_ref().unwrap().spec;
    let mut matcher = Matcher::new(&cx, class, spec);
    let picked = (2..7).flat_map(|run| {
        let request = request(&run.to_string(), 1, json!({}));
        matcher.pick(&request.id, &Demand::of(&request, spec), 1).machines
    });
    picked.map(|arn| arn.instance_id().to_owned()).collect()
}

#[test]
fn a_machine_that_spoke_lately_is_claimed_before_one_that_is_late() {
    assert_eq!(in_order(json!({}), |_| ()), ["i-2", "i-1", "i-3", "i-0"], "then the one that spoke last");
    // Regardless of the queue's announcements.
    let hints = |scene: &mut Scene| {
        let hints = ["i-0", "i-1"].map(id).to_vec();
        scene.see(Observation::Hints(linux(), hints));
    };
    assert_eq!(in_order(json!({}), hints), ["i-2", "i-1", "i-3", "i-0"]);
}

#[test]
fn the_queue_gives_no_precedence_to_a_machine_that_has_been_free_for_long() {
    let spoken = |pooled_ago: i64, name: &str, until: i64| {
        let life = Life::Idle { pooled_at: Some(at(-pooled_ago)) };
        machine(name).pooled().with(|i| i.life = life).until(until)
    };
    for (ago, first) in [(599, "i-old"), (600, "i-new"), (86_400, "i-new")] {
        let mut scene = Scene::with(json!({}));
        scene.add(spoken(ago, "i-old", 500));
        scene.add(spoken(1, "i-new", 501));
        scene.see(Observation::Hints(linux(), vec![id("i-old")]));
        let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
        let class = scene.yard.class(&linux()).unwrap();
        let spec = &class.pool.as_ref().unwrap().spec;
        let mut matcher = Matcher::new(&cx, class, spec);
        let request = request("2", 1, json!({}));
        let picked = matcher.pick(&request.id, &Demand::of(&request, spec), 1).machines;
        assert_eq!(picked, [arn(first)], "free for {ago} s");
    }
}

#[test]
fn a_machine_whose_agent_is_silent_or_never_spoke_is_not_claimed() {
    let wait = |seconds| move |scene: &mut Scene| scene.wait(seconds);
    assert_eq!(why(json!({}), json!({}), pooled(), wait(60)), Picked::Claimed);
    assert_eq!(why(json!({}), json!({}), pooled(), wait(61)), Picked::For(Refusal::Heartbeat));
    let mut mute = pooled();
    mute.agent = None;
    assert_eq!(why(json!({}), json!({}), mute, |_| ()), Picked::For(Refusal::Heartbeat));
}

#[test]
fn a_machine_that_is_being_written_is_not_claimed() {
    let busy = |scene: &mut Scene| {
        scene.yard.busy.insert(Instance::key_of(&arn("i-1")).into());
    };
    assert_eq!(why(json!({}), json!({}), pooled(), busy), Picked::For(Refusal::Busy));
}

#[test]
fn a_machine_that_its_former_request_lists_is_for_nobody_else() {
    let listed = |run: &str| {
        let (request, key) = (holding(run, 1, &["i-1"], json!({"phase": "Failed"})), ask(run));
        let built = pooled().with(|i| i.claim = machine("i-1").claimed(&key).instance.claim);
        why(json!({}), json!({}), built, |scene| drop(scene.put(&request)))
    };
    assert_eq!(listed("1"), Picked::Listed);
    assert_eq!(listed("2"), Picked::Claimed, "its own list is brought up to date by the claim");
}

#[test]
fn a_request_takes_what_served_its_own_domain_before_what_anybody_can_use() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").pooled().until(500).with(|i| i.trust_domain = "owner:acme".into()));
    scene.add(machine("i-2").pooled().until(700));
    scene.put(&request("1", 1, json!({})));
    assert_eq!(scene.claims(), [("1".to_owned(), vec!["i-1".to_owned()])]);
}

#[test]
fn those_that_expire_last_go_first_and_what_the_queue_names_before_them() {
    let mut scene = Scene::with(json!({}));
    for (name, until) in [("i-1", 500), ("i-2", 700), ("i-3", 600)] {
        scene.add(machine(name).pooled().until(until));
    }
    scene.put(&request("1", 2, json!({})));
    assert_eq!(scene.claims(), [("1".to_owned(), vec!["i-2".to_owned(), "i-3".to_owned()])]);
    scene.see(Observation::Hints(linux(), vec![id("i-9"), id("i-1"), id("i-1")]));
    let claims: Vec<_> = scene.of_class().actions.iter().map(|action| action.describe()).collect();
    assert!(claims[0].ends_with("claim i-1, i-2"), "{claims:?}");
}

/// Builds a pooled machine whose agent reports that it keeps something of these repositories.
fn keeping(id: &str, repositories: &[&str]) -> Built {
    let kept = repositories.iter().enumerate().map(|(n, repository)| {
        let repository = (*repository).to_owned();
        (format!("npm#{n}"), crate::model::Kept { repository, generation: 1, bytes: 1, used_at: at(-50) })
    });
    let kept: crate::model::KeptDirectories = kept.collect();
    machine(id).pooled().agent(|agent| agent.kept = kept)
}

/// Returns the machines that a request of `acme/web` gets one after the other.
fn picked(scene: &Scene, lack: u32) -> Vec<String> {
    let request = request("2", 1, json!({}));
    let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
    let class = scene.yard.class(&linux()).unwrap();
    let spec = &class.pool.as_ref().unwrap().spec;
    let mut matcher = Matcher::new(&cx, class, spec);
    let mut picked = Vec::new();
    for _ in 0..lack {
        let share = matcher.pick(&request.id, &Demand::of(&request, spec), 1);
        picked.extend(share.machines.iter().map(|arn| arn.instance_id().to_owned()));
    }
    picked
}

#[test]
fn a_claim_prefers_a_machine_that_keeps_its_repository_and_gives_none_twice() {
    let keep = json!({"keep": [{"name": "npm", "path": "~/.npm"}]});
    for (spec, first) in [(keep, "i-2"), (json!({}), "i-4")] {
        let mut scene = Scene::with(spec);
        for built in [
            keeping("i-1", &["acme/api"]),
            keeping("i-2", &["acme/api", "acme/web"]),
            keeping("i-3", &[]),
            machine("i-4").pooled(),
        ] {
            scene.add(built);
        }
        let mut picked = picked(&scene, 9);
        assert_eq!(picked.first().map(String::as_str), Some(first));
        picked.sort();
        assert_eq!(picked, ["i-1", "i-2", "i-3", "i-4"]);
    }
}

#[test]
fn a_machine_that_keeps_the_repository_and_cannot_be_claimed_holds_nobody_back() {
    let mut scene = Scene::with(json!({"keep": [{"name": "npm", "path": "~/.npm"}]}));
    scene.add(keeping("i-1", &["acme/web"]).with(|i| i.threshold.as_mut().unwrap().at = at(10)));
    scene.add(keeping("i-2", &["acme/web"]).with(|i| i.trust_domain = "owner:evil".into()));
    scene.add(keeping("i-3", &[]));
    assert_eq!(picked(&scene, 2), ["i-3"]);
}

/// 2 000 claims of a day: 40 repositories, some used far more than others, on 24 machines with about half of them free,
/// each keeping the last five repositories that it served.
#[test]
fn on_a_simulated_day_claims_find_their_repository_far_more_often_than_by_chance() {
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let names: Vec<String> = (0..40).map(|n| format!("acme/r{n}")).collect();
    let (mut chosen, mut chance) = (vec![Vec::<usize>::new(); 24], vec![Vec::<usize>::new(); 24]);
    let (mut hits, mut lucky) = (0, 0);
    let serve = |kept: &mut Vec<usize>, repository| {
        let hit = kept.contains(&repository);
        kept.retain(|other| *other != repository);
        kept.insert(0, repository);
        kept.truncate(5);
        u32::from(hit)
    };
    for _ in 0..2000 {
        let repository = (draw(40) * draw(40) / 40) as usize;
        let free: Vec<usize> = (0..24).filter(|_| draw(2) == 0).collect();
        if free.is_empty() {
            continue;
        }
        let mut scene = Scene::with(json!({"keep": [{"name": "npm", "path": "~/.npm"}]}));
        for at in &free {
            // The request is of `acme/web`: machines that keep this repository report it under that name.
            let kept: Vec<&str> = chosen[*at]
                .iter()
                .map(|kept| if *kept == repository { "acme/web" } else { names[*kept].as_str() })
                .collect();
            scene.add(keeping(&format!("i-{at}"), &kept));
        }
        let got: usize = picked(&scene, 1)[0].strip_prefix("i-").unwrap().parse().unwrap();
        hits += serve(&mut chosen[got], repository);
        lucky += serve(&mut chance[free[draw(free.len() as u64) as usize]], repository);
    }
    eprintln!("found warm: {hits} of 2000 by preference, {lucky} by chance");
    assert!(hits > 1000 && hits > 2 * lucky, "{hits} {lucky}");
}
