//! The number of records that one change makes the rules visit is as small in a small yard as in a large one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::json;

use super::{Effect, Planned, WaitReason};
use crate::model::{Ahead, AheadReport, Instance, Request};
use crate::testing::{Scene, arn, at, machine, request};
use crate::yard::{Observation, visits};

#[path = "../../../tests/bench/core/world.rs"]
#[allow(dead_code, reason = "the benchmarks take the rest")]
mod world;
#[path = "../../../tests/bench/core/yards.rs"]
#[allow(dead_code, reason = "the benchmarks take the rest")]
mod yards;

/// Returns the records visited by each change of a cycle, the same every time.
fn visited(records: usize) -> BTreeMap<String, u64> {
    let mut world = yards::yard(records);
    let mut counted = BTreeMap::new();
    for number in 0..3 {
        yards::cycle(&mut world, yards::fresh(records) + number, &mut |what, world, change| {
            visits();
            change(world);
            let visits = visits();
            let before = counted.insert(what.to_owned(), visits);
            assert!(before.is_none_or(|before| before == visits), "{what}: {before:?}, then {visits}");
        });
    }
    counted
}

#[test]
fn one_change_visits_as_many_records_among_a_thousand_as_among_a_hundred_thousand() {
    let (few, many) = (visited(1_000), visited(100_000));
    println!("{few:#?}");
    assert_eq!(few, many);
}

#[test]
fn a_class_with_schedules_costs_what_one_without_does_before_and_after_they_fire() {
    let schedules = json!([
        {"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "desired": 0},
        {"cron": "0 18 * * 1-5", "timeZone": "Europe/Berlin", "desired": 0},
    ]);
    let [mut without, mut with] = [json!([]), schedules].map(|of| Scene::with(json!({"schedules": of})));
    for scene in [&mut without, &mut with] {
        // The status is written, so that no later decision writes it.
        let plan = scene.of_class();
        scene.apply(&plan.actions);
    }
    for _ in 0..3 {
        let [plain, scheduled] = [&mut without, &mut with].map(|scene| {
            // A day later each of them fired; what is told of any record shows that.
            scene.wait(86_400);
            scene.put(&crate::testing::launch("l-1", 1, None));
            allocation_counter::measure(|| drop(scene.of_class()))
        });
        assert_eq!(plain.count_total, scheduled.count_total, "a schedule is parsed by a decision");
    }
}

/// Creates a class of many machines of one owner, and so many requests of its repositories, each accepted or not yet.
fn line(machines: usize, requests: usize, accepted: bool) -> Scene {
    let mut scene = Scene::with(json!({"max": machines.max(1)}));
    for n in 0..machines {
        scene.add(machine(&format!("i-{n:05}")).pooled());
    }
    for n in 0..requests {
        let repository = format!("acme/repository-{}", n % 100);
        let mut asked = request(&format!("{n:05}"), 1, json!({"repository": repository}));
        asked.status.accepted_at = Some(at(n as i64 - 20_000));
        if !accepted {
            asked.status = crate::model::Status::default();
        }
        scene.put(&asked);
    }
    scene
}

/// Serves a queue as the loop does, judging the class after so many writes each time; returns the requests written in
/// their order, and how many records were visited.
fn serve(scene: &mut Scene, written_between: usize) -> (Vec<String>, u64) {
    let (mut in_flight, mut done) = (VecDeque::<Planned>::new(), Vec::new());
    visits();
    loop {
        for action in scene.served() {
            if matches!(action.effect, Effect::Intend(..)) {
                continue;
            }
            if !action.slots.iter().any(|slot| scene.yard.busy.contains(slot)) {
                scene.yard.busy.extend(action.slots.clone());
                in_flight.push_back(action);
            }
        }
        if in_flight.is_empty() {
            return (done, visits());
        }
        for action in in_flight.drain(..written_between.min(in_flight.len())).collect::<Vec<_>>() {
            scene.yard.busy.retain(|slot| !action.slots.contains(slot));
            scene.apply(std::slice::from_ref(&action));
            if let Effect::Claim { request, .. } | Effect::Request(request) = &action.effect {
                done.push(request.before.id.run_id.to_string());
            }
        }
    }
}

#[test]
fn each_of_a_line_of_a_thousand_on_a_thousand_machines_costs_what_each_of_250_does() {
    for (written_between, length) in [(1, 128), (8, 256), (32, 256)] {
        let visited = |length: usize| {
            let mut scene = line(length, length, true);
            let (done, visited) = serve(&mut scene, written_between);
            assert_eq!(done, (0..length).map(|n| format!("{n:05}")).collect::<Vec<_>>(), "the oldest first");
            visited
        };
        // The beginning and the end of a queue cost less: the difference shows the cost of the part between.
        let [few, some, many] = [length, 2 * length, 4 * length].map(visited);
        println!(
            "judged each {written_between} writes: {few}, {some}, {many} visits from {length} requests on"
        );
        assert_eq!(many - some, 2 * (some - few));
        assert!(many < 4 * length as u64 * 175, "{many} visits for {} requests", 4 * length);
    }
}

#[test]
fn accepting_one_of_two_thousand_requests_costs_what_one_of_five_hundred_does() {
    for written_between in [4, 32] {
        let visited = |length: usize| {
            let (done, visited) = serve(&mut line(0, length, false), written_between);
            assert_eq!(done.len(), length);
            visited
        };
        let [few, some, many] = [512, 1024, 2048].map(visited);
        println!("taken on each {written_between} writes: {few}, {some}, {many} visits for 512, 1024, 2048");
        assert_eq!(many - some, 2 * (some - few));
    }
}

#[test]
fn a_hopeless_queue_costs_the_same_to_judge_at_ten_thousand_as_at_a_hundred() {
    let visited = |length: usize| {
        let mut scene = line(0, length, true);
        scene.pool(2, json!({"max": 0}));
        visits();
        let plan = scene.of_class();
        let waits: Vec<_> = plan.waits.into_iter().map(|wait| (wait.reason, wait.message)).collect();
        let behind = format!("{} younger requests wait behind those", length - 1);
        assert_eq!(waits.first().map(|(reason, _)| *reason), Some(WaitReason::AtMax));
        assert!(waits.contains(&(WaitReason::Behind, behind)), "{waits:?}");
        visits()
    };
    assert_eq!(visited(100), visited(10_000));
}

/// Creates a class of one machine that `acme/repository-00007` used, and as many requests as repositories: each demand
/// has one, and only the youngest can use the machine.
fn demands(repositories: usize) -> Scene {
    let mut scene = Scene::with(json!({"max": 0, "reuseWithin": "repository"}));
    for n in 0..repositories {
        let repository = format!("acme/repository-{:05}", (n + 8) % repositories);
        let mut asked = request(&format!("{n:06}"), 1, json!({"repository": repository}));
        asked.status.accepted_at = Some(at(n as i64 - 20_000));
        scene.put(&asked);
    }
    let used = |i: &mut Instance| i.trust_domain = "repository:acme/repository-00007".into();
    scene.add(machine("i-1").pooled().with(used));
    scene.see(Observation::Hints("linux".parse().unwrap(), Vec::new()));
    scene
}

#[test]
fn a_pass_costs_the_same_among_ten_thousand_demands_as_among_a_hundred() {
    let cost = |repositories: usize| {
        let scene = demands(repositories);
        visits();
        let mut plan = None;
        let allocated = allocation_counter::measure(|| plan = Some(scene.of_class())).count_total;
        let visited = visits();
        let claims = plan.unwrap().actions.into_iter().filter_map(|action| match action.effect {
            Effect::Claim { request, .. } => Some(request.before.id.repository.to_string()),
            _ => None,
        });
        assert_eq!(claims.collect::<Vec<_>>(), ["acme/repository-00007"], "the youngest alone can use it");
        (visited, allocated)
    };
    let (few, many) = (cost(100), cost(10_000));
    println!("{few:?} visits and allocations");
    assert_eq!(few, many);
}

#[test]
fn machines_that_are_for_nobody_who_waits_are_refused_by_the_group() {
    let visited = |machines: usize, requests: usize| {
        let mut scene = line(0, requests, true);
        scene.pool(2, json!({"max": machines}));
        for n in 0..machines {
            let other = |i: &mut Instance| i.trust_domain = format!("owner:other-{}", n % 3);
            scene.add(machine(&format!("i-{n:05}")).pooled().with(other));
        }
        scene.see(Observation::Hints("linux".parse().unwrap(), Vec::new()));
        visits();
        let plan = scene.of_class();
        let visited = visits();
        let told =
            plan.waits.iter().find(|wait| wait.reason == WaitReason::Mismatch).map(|wait| &wait.message);
        assert_eq!(told.unwrap(), "free machines are not for it: used by another trust domain");
        visited
    };
    assert_eq!(visited(100, 100), visited(1_000, 1_000));
}

#[test]
fn ten_thousand_waiting_requests_of_one_class_add_nothing_to_a_change_of_another() {
    let visited = |others: usize| {
        let mut scene = line(0, others, true);
        let mut pool: crate::model::Pool = scene.yard.pool(&"linux".parse().unwrap()).unwrap().clone();
        pool.spec.resource_class = "small".parse().unwrap();
        pool.spec.max = 1;
        scene.put(&pool);
        let small = |i: &mut Instance| i.facts.resource_class = "small".parse().unwrap();
        scene.add(machine("i-small").pooled().with(small));
        scene.see(Observation::Hints("small".parse().unwrap(), Vec::new()));
        visits();
        let asked: Request =
            request("honest", 1, json!({"resourceClass": "small", "repository": "acme/other"}));
        let mut plan = Vec::new();
        for unit in scene.put(&asked) {
            plan.extend(scene.judge(&unit).actions);
        }
        let claimed: BTreeSet<_> = plan.iter().flat_map(|action| action.slots.clone()).collect();
        assert!(claimed.contains(&Instance::key_of(&arn("i-small")).into()), "{plan:?}");
        visits()
    };
    assert_eq!(visited(0), visited(10_000));
}

#[test]
fn a_claim_visits_as_many_of_ten_thousand_runners_at_rest_as_of_a_hundred() {
    let visited = |machines: u64| {
        let mut scene = Scene::with(json!({"max": 100_000, "reuseWithin": "repository"}));
        scene.policy.github = true;
        for n in 0..machines {
            let (name, runner_id) = (format!("i-{n:05}"), Some(n));
            let id = format!("{name}.4");
            let built = machine(&name).pooled().agent(|agent| {
                agent.ahead = Some(AheadReport { id: id.clone(), runner_id, listening: true });
            });
            scene.add(built.with(|i| {
                i.trust_domain = "repository:acme/web".into();
                i.ahead = Some(Ahead { id: id.parse().unwrap(), runner_id });
            }));
        }
        scene.see(Observation::Hints("linux".parse().unwrap(), Vec::new()));
        scene.put(&request("1", 1, json!({})));
        visits();
        let served = scene.served();
        let claimed = served.iter().find_map(|action| match &action.effect {
            Effect::Claim { machines, .. } => machines[0].after.ahead.clone(),
            _ => None,
        });
        assert!(claimed.is_some(), "{served:?}");
        visits()
    };
    assert_eq!(visited(100), visited(10_000));
}

/// Creates a shared class without machines, with so many waiting requests of each of so many repositories.
fn shared_line(repositories: usize, each: usize, within: &str) -> Scene {
    let spec = json!({"max": 0, "sharing": {"weights": {"acme/repository-1*": 2}}, "reuseWithin": within});
    let mut scene = Scene::with(spec);
    for n in 0..repositories * each {
        let repository = format!("acme/repository-{:05}", n % repositories);
        let mut asked =
            request(&format!("{n:06}"), 1, json!({"repository": repository, "timeoutSeconds": 604_800}));
        asked.status.accepted_at = Some(at(n as i64 / 1000 - 250));
        scene.put(&asked);
    }
    scene
}

#[test]
fn a_change_of_a_shared_class_visits_as_many_of_ten_thousand_shares_as_of_a_hundred() {
    for within in ["owner", "repository"] {
        let visited = |repositories: usize, each: usize| {
            let mut scene = shared_line(repositories, each, within);
            scene.see(Observation::Hints("linux".parse().unwrap(), Vec::new()));
            let mut counted = Vec::new();
            // Nothing is free.
            visits();
            let claims =
                |plan: &[Planned]| plan.iter().filter(|a| matches!(a.effect, Effect::Claim { .. })).count();
            assert_eq!(claims(&scene.served()), 0);
            counted.push(visits());
            // A machine comes back, and is claimed at once.
            for n in 0..3 {
                let used = |i: &mut Instance| {
                    i.trust_domain = if within == "owner" {
                        "owner:acme".into()
                    } else {
                        format!("repository:acme/repository-0000{}", n + 3)
                    };
                };
                scene.add(machine(&format!("i-{n:05}")).pooled().with(used));
                scene.see(Observation::Hints("linux".parse().unwrap(), Vec::new()));
                visits();
                let plan = scene.of_class();
                counted.push(visits());
                assert_eq!(
                    plan.actions.iter().filter(|a| matches!(a.effect, Effect::Claim { .. })).count(),
                    1
                );
                scene.apply(&plan.actions);
            }
            counted
        };
        // Two each: a share that waits for nothing more is not visited again.
        let few = visited(100, 2);
        println!("{within}: {few:?} visits");
        assert_eq!(few, visited(10_000, 2), "{within}: by the number of shares");
        assert_eq!(visited(100, 10), visited(100, 100), "{within}: by the length of the line");
    }
}
