use serde_json::json;

use super::{by_means, exact};
use crate::decide::{Effect, Planned};
use crate::model::{ConditionType, IdleMachines, Instance, InstanceArn, Life, Pool, Threshold};
use crate::testing::*;

/// Builds a machine that served repository `acme/<name>`, idle until so many seconds from the beginning.
fn idle(name: &str, repository: &str, until: i64) -> Built {
    let domain = if repository.is_empty() { String::new() } else { format!("repository:acme/{repository}") };
    machine(name).pooled().with(|i| i.trust_domain = domain).until(until)
}

/// Lets repositories borrow one machine each and give it back, so that the class knows its mix.
fn asked(scene: &mut Scene, repositories: &[&str]) {
    for (n, repository) in repositories.iter().enumerate() {
        let more =
            json!({"repository": format!("acme/{repository}"), "phase": "Released", "desired": "released"});
        scene.put(&request(&format!("{}", 900 + n), 1, more));
    }
}

#[test]
fn machines_for_anybody_and_those_of_the_only_domain_count_whole() {
    for (desired, anybody, machines, lack) in
        [(3, 0, 0, 3), (3, 3, 0, 0), (3, 1, 1, 1), (3, 0, 3, 0), (3, 0, 9, 0), (60, 10, 20, 30), (1, 0, 0, 1)]
    {
        let found = |way: fn(u32, u32, &[(f64, u32)]) -> u32| way(desired, anybody, &[(1.0, machines)]);
        assert_eq!(found(by_means), lack, "{desired} {anybody} {machines}");
        assert_eq!(found(exact), lack, "{desired} {anybody} {machines}");
    }
}

#[test]
fn a_machine_of_one_of_several_domains_counts_as_the_chance_that_it_is_asked_for() {
    let quarter = |machines: &[u32]| machines.iter().map(|count| (0.25, *count)).collect::<Vec<_>>();
    for (desired, anybody, machines, lack) in [
        (1, 0, vec![1, 1, 1, 1], 0),
        (1, 0, vec![1, 1, 1, 0], 1),
        (1, 1, vec![1, 0, 0, 0], 0),
        (2, 0, vec![2, 2, 2, 2], 0),
        // 2 of the same domain come in one of four times.
        (2, 0, vec![1, 1, 1, 1], 1),
        (2, 0, vec![4, 0, 0, 0], 2),
    ] {
        assert_eq!(exact(desired, anybody, &quarter(&machines)), lack, "{desired} {anybody} {machines:?}");
    }
    assert_eq!(exact(1, 0, &[(0.96, 1), (0.04, 0)]), 0, "hardly one of twenty comes from the other");
}

/// The promise: of `desired` requests drawn from the mix in one moment, 95 of 100 find a machine.
#[test]
fn of_the_next_requests_95_of_100_find_a_machine_whatever_the_mix_is() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..300 {
        let desired = 1 + random(80) as u32;
        let weights: Vec<u64> = (0..=random(7)).map(|_| 1 + random(20)).collect();
        let all: u64 = weights.iter().sum();
        let domains: Vec<(f64, u32)> = weights
            .iter()
            .map(|weight| (*weight as f64 / all as f64, random(u64::from(desired)) as u32))
            .collect();
        let way: fn(u32, u32, &[(f64, u32)]) -> u32 =
            if desired <= super::ONE_BY_ONE { exact } else { by_means };
        let more = way(desired, 0, &domains);
        let (mut found, draws) = (0, 100 + 4000 / desired);
        for _ in 0..draws {
            let (mut left, mut anybody) =
                (domains.iter().map(|(_, machines)| *machines).collect::<Vec<_>>(), more);
            for _ in 0..desired {
                let mut drawn = random(all);
                let of = weights.iter().position(|weight| {
                    let here = drawn < *weight;
                    drawn = drawn.saturating_sub(*weight);
                    here
                });
                let own = &mut left[of.unwrap()];
                let machines = if *own > 0 { own } else { &mut anybody };
                if *machines > 0 {
                    *machines -= 1;
                    found += 1;
                }
            }
        }
        let part = f64::from(found) / f64::from(draws * desired);
        assert!(part > 0.94, "{part} of {desired} requests of {domains:?} beside {more}");
        assert!(more <= desired);
    }
}

/// The steps of the review: four repositories borrow one after the other, from a class that keeps one machine.
#[test]
fn each_repository_that_asks_finds_a_warm_machine_as_long_as_max_allows() {
    let mut scene = Scene::with(json!({"max": 5, "desired": 1, "reuseWithin": "repository"}));
    scene.add(machine("i-0").pooled());
    let mut machines = 1;
    for (run, repository) in ["a", "b", "c", "d"].iter().enumerate() {
        let run = format!("{}", run + 1);
        scene.put(&request(&run, 1, json!({"repository": format!("acme/{repository}")})));
        let actions = scene.served();
        assert!(
            actions.iter().any(|action| matches!(action.effect, Effect::Claim { .. })),
            "{repository} waits: {actions:?}"
        );
        // The machine that the class launches in its place boots, then the machine is given back.
        scene.apply(&actions);
        for _ in 0..launched(&mut scene) {
            scene.add(machine(&format!("i-{machines}")).pooled());
            machines += 1;
        }
        assert_eq!(launched(&mut scene), 0, "no more than one is launched for it");
        for mut after in claimed(&actions) {
            (after.life, after.claim) = (Life::Idle { pooled_at: Some(scene.now.wall) }, None);
            after.threshold = Some(Threshold { at: at(1800), set_at: at(0) });
            after.version += 1;
            scene.put(&after);
        }
        let given_back = request(
            &run,
            1,
            json!({"repository": format!("acme/{repository}"), "version": 9, "phase": "Released", "desired": "released"}),
        );
        scene.put(&given_back);
        assert_eq!(launched(&mut scene), 0, "one more is idle by now");
    }
    assert_eq!(machines, 5, "all four have their own by now, and one is for anybody");
}

fn claimed(actions: &[Planned]) -> Vec<Instance> {
    let of = actions.iter().filter_map(|action| match &action.effect {
        Effect::Claim { machines, .. } => Some(machines.iter().map(|step| step.after.clone())),
        _ => None,
    });
    of.flatten().collect()
}

/// Returns how many machines the class launches to keep them.
fn launched(scene: &mut Scene) -> u32 {
    scene.intents().into_iter().filter(|(_, request)| request.is_none()).map(|(count, _)| count).sum()
}

/// Lets a yard without requests run minute by minute; returns how many machines were launched, and how many are idle in
/// the end.
fn quiet(scene: &mut Scene, minutes: u64) -> (u32, u32) {
    let (mut all, mut name) = (0, 100);
    for _ in 0..minutes {
        scene.wait(60);
        let arns: Vec<InstanceArn> =
            scene.yard.instances().map(|one| one.instance.facts.instance_arn.clone()).collect();
        for arn in arns {
            scene.speaks(arn.instance_id(), |_| ());
            let mut actions = scene.of_machine(arn.instance_id()).actions;
            actions.retain(|action| matches!(action.effect, Effect::Instance(..)));
            scene.apply(&actions);
        }
        let count = launched(scene);
        all += count;
        for _ in 0..count {
            name += 1;
            let now = scene.now.wall;
            let until = Threshold { at: crate::model::after(now, secs(1800 + name % 50)), set_at: now };
            let booted = machine(&format!("i-{name}")).pooled().with(|i| {
                (i.threshold, i.facts.created_at) = (Some(until), now);
                i.facts.launch_id = None;
            });
            scene.add(booted);
        }
    }
    let class = scene.yard.class(&linux()).unwrap();
    (all, class.live())
}

#[test]
fn a_class_that_nobody_asks_settles_at_the_machines_it_wants_and_launches_no_more() {
    let spec = |max: u32, desired: u32| json!({"max": max, "desired": desired, "reuseWithin": "repository"});
    for (max, desired, repositories) in [
        (9, 1, vec!["a", "b", "c", "d"]),
        (4, 1, vec!["a", "b", "c", "d"]),
        (9, 2, vec!["a", "a", "b"]),
        (9, 3, vec!["a", "b", "b", "c", "c", "c"]),
        (9, 2, vec!["a", "a", "a", "a"]),
    ] {
        let mut scene = Scene::with(spec(max, desired));
        asked(&mut scene, &repositories);
        for (n, repository) in repositories.iter().enumerate() {
            scene.add(idle(&format!("i-{n}"), repository, 600 + 60 * n as i64));
        }
        let (launches, live) = quiet(&mut scene, 200);
        assert!(launches <= desired, "{launches} launches for {desired} of {repositories:?}");
        assert_eq!(live, desired, "{repositories:?}");
        assert_eq!(quiet(&mut scene, 200), (0, desired), "{repositories:?}: nothing comes and goes");
    }
}

#[test]
fn a_machine_for_anybody_goes_on_beside_one_of_a_domain_that_may_not_ask() {
    let mut scene = Scene::with(json!({"max": 9, "desired": 1, "reuseWithin": "repository"}));
    scene.add(idle("i-1", "", 300));
    scene.add(idle("i-2", "a", 900));
    asked(&mut scene, &["a", "b"]);
    assert_eq!(quiet(&mut scene, 60), (0, 1));
    let left = scene.yard.instances().find(|one| one.instance.state().live()).unwrap();
    assert_eq!(left.instance.trust_domain, "", "the one for all is renewed, the other not");
    // Where nearly all requests are of its domain, the machine that expires last is as good as ever.
    let mut scene = Scene::with(json!({"max": 9, "desired": 1, "reuseWithin": "repository"}));
    scene.add(idle("i-1", "", 300));
    scene.add(idle("i-2", "a", 900));
    asked(&mut scene, &["a"]);
    assert_eq!(quiet(&mut scene, 60), (0, 1));
}

#[test]
fn a_pool_says_for_whom_its_idle_machines_are_and_that_they_are_not_for_the_next() {
    let mut scene = Scene::with(json!({"max": 9, "desired": 1, "reuseWithin": "repository"}));
    asked(&mut scene, &["a", "b"]);
    scene.add(idle("i-1", "a", 900));
    scene.add(idle("i-2", "a", 900));
    scene.add(machine("i-3").cleaning(&ask("1")).with(|i| i.trust_domain = "repository:acme/a".into()));
    let pool = |scene: &Scene| -> Pool {
        let status = scene.of_class().actions.into_iter().find_map(|action| match action.effect {
            Effect::Pool(step) => Some(step.after),
            _ => None,
        });
        status.expect("its status is written")
    };
    let told = pool(&scene);
    let warm = |pool: &Pool| {
        let warm =
            pool.status.conditions.iter().find(|one| one.condition_type == ConditionType::Warm).unwrap();
        (warm.status, warm.message.clone())
    };
    let message = "3 idle of 1 wanted, 1 lacking for other trust domains that ask";
    assert_eq!(warm(&told), (false, message.to_owned()));
    assert!(told.status.message.starts_with(message), "{}", told.status.message);
    let for_a =
        IdleMachines { idle: 3, idle_for_anybody: 0, warm_for: [("repository:acme/a".to_owned(), 3)].into() };
    assert_eq!(told.status.idle, Some(for_a));
    scene.add(idle("i-4", "b", 900));
    assert_eq!(warm(&pool(&scene)), (true, "4 idle of 1 wanted".to_owned()));
    let told = pool(&scene).status.idle.unwrap();
    assert_eq!((told.idle, told.warm_for.len()), (4, 2));
}

#[test]
fn the_mix_follows_a_change_of_reuse_within_and_counts_no_request_twice() {
    let mut scene = Scene::with(json!({"max": 9, "desired": 1, "reuseWithin": "repository"}));
    asked(&mut scene, &["a", "a", "b"]);
    asked(&mut scene, &["a", "a", "b"]);
    let chances = |scene: &Scene| -> Vec<(String, f64)> {
        let class = scene.yard.class(&linux()).unwrap();
        class.mix.chances().map(|(domain, chance)| (domain.to_owned(), (chance * 100.0).round())).collect()
    };
    let both = [("repository:acme/a".to_owned(), 67.0), ("repository:acme/b".to_owned(), 33.0)];
    assert_eq!(chances(&scene), both);
    scene.add(idle("i-1", "a", 900));
    assert_eq!(launched(&mut scene), 1);
    scene.pool(2, json!({"max": 9, "desired": 1}));
    assert_eq!(chances(&scene), [("owner:acme".to_owned(), 100.0)]);
    assert_eq!(launched(&mut scene), 0, "its machine is the owner's by now");
    let refused = json!({"repository": "acme/a", "deadline": at(-100), "phase": "Failed"});
    scene.pool(3, json!({"max": 9, "desired": 1, "reuseWithin": "repository"}));
    scene.put(&request("7", 5, refused));
    assert_eq!(chances(&scene), both, "what was refused asks for nothing");
}
