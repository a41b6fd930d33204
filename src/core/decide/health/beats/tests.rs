use serde_json::json;

use super::*;
use crate::decide::Effect;
use crate::model::{ConditionType, Pool, Reason};
use crate::testing::*;

/// The interval of heartbeats.
const HEARTBEAT: u64 = 10;

/// Creates so many pooled machines of a class, all with a heartbeat of just now; the first `silent` of them never send
/// another, and 61 s pass.
fn yard(machines: usize, silent: usize) -> Scene {
    let mut scene = Scene::with(json!({"max": 1000}));
    for n in 0..machines {
        scene.add(machine(&format!("i-{n}")).pooled());
    }
    for seconds in [HEARTBEAT; 6] {
        scene.wait(seconds);
        (silent..machines).for_each(|n| drop(scene.speaks(&format!("i-{n}"), |_| ())));
    }
    scene.wait(1);
    scene
}

fn pass(scene: &mut Scene, time: Duration) {
    scene.now.wall = scene.now.wall.checked_add(time).unwrap();
    scene.now.mono += time;
    scene.now.seen += time;
}

/// Simulates machines of a class whose agents send heartbeats evenly spread over an interval, until one cut silences
/// the first `cut` of them at the same time. Returns how long each machine was silent when it ended, and how long the
/// first was silent when the class reported its doubt.
fn ends_after_cut(machines: usize, cut: usize) -> (Vec<(usize, Duration)>, Option<Duration>) {
    let mut scene = Scene::with(json!({"max": 1000}));
    let name = |n: usize| format!("i-{n}");
    (0..machines).for_each(|n| drop(scene.add(machine(&name(n)).pooled().until(9000))));
    let step = secs(HEARTBEAT) / machines as u32;
    let (mut spoke, mut ends, mut said) = (vec![Duration::ZERO; machines], Vec::new(), None);
    // Agents with successive numbers do not send heartbeats successively.
    let speaker = |tick: usize| (tick * 7) % machines;
    for tick in 0..machines * 20 {
        pass(&mut scene, step);
        let (speaks, is_cut) = (speaker(tick), tick >= machines * 3);
        if !is_cut || speaks >= cut {
            scene.speaks(&name(speaks), |_| ());
            spoke[speaks] = scene.now.seen;
        }
        for (n, spoke) in spoke.iter().enumerate() {
            if ends.iter().all(|(ended, _)| *ended != n) && ended(&mut scene, &name(n)).is_some() {
                ends.push((n, scene.now.seen - *spoke));
                scene.put(&machine(&name(n)).ended(Reason::Unhealthy).with(|i| i.version = 9).instance);
            }
        }
        if said.is_none() && conditions(&scene).contains(&ConditionType::Doubtful) {
            said = spoke.iter().min().map(|first| scene.now.seen - *first);
        }
    }
    (ends, said)
}

#[test]
fn those_that_one_cut_silences_are_doubted_whenever_each_of_them_speaks() {
    let (once, twice, step) = (secs(60), secs(120), secs(1));
    for (machines, cut) in [(40, 40), (40, 13), (20, 20), (11, 4), (4, 4)] {
        let (ends, said) = ends_after_cut(machines, cut);
        let said = said.unwrap_or_else(|| panic!("{cut} of {machines}: nobody says that it is doubted"));
        assert!(said > once && said <= once + 3 * step, "{cut} of {machines}: said after {said:?}");
        let gone: std::collections::BTreeSet<usize> = ends.iter().map(|(n, _)| *n).collect();
        assert_eq!(gone, (0..cut).collect(), "{cut} of {machines}: in the end each that is silent goes");
        for (n, silent) in ends {
            assert!(silent > twice && silent <= twice + 3 * step, "{cut} of {machines}: i-{n} {silent:?}");
        }
    }
}

#[test]
fn those_that_fall_silent_by_themselves_end_when_they_are() {
    for (machines, cut) in [(40, 12), (20, 3), (10, 3), (3, 3)] {
        let (ends, said) = ends_after_cut(machines, cut);
        assert_eq!((ends.len(), said), (cut, None));
        assert!(ends.iter().all(|(_, silent)| *silent <= secs(64)), "{ends:?}");
    }
}

/// Judges a machine until it ends or waits, including strong reads.
fn ended(scene: &mut Scene, name: &str) -> Option<Reason> {
    if let [Effect::Look(key)] = effects(&scene.of_machine(name).actions)[..] {
        let agent = scene.yard.instance(&arn(name)).unwrap().agent.clone().unwrap();
        scene.look(key.clone(), Some(crate::model::Record::to_item(&agent)));
    }
    ends(&scene.of_machine(name))
}

fn conditions(scene: &Scene) -> Vec<ConditionType> {
    let pools = scene.of_class().actions.into_iter().filter_map(|action| match action.effect {
        Effect::Pool(step) => Some(step.after),
        _ => None,
    });
    let pool: Pool = pools.last().expect("its status is written");
    pool.status.conditions.iter().filter(|c| c.status).map(|c| c.condition_type).collect()
}

#[test]
fn up_to_three_or_a_third_that_fall_silent_end_each_by_itself() {
    for (machines, silent, doubtful) in
        [(4, 3, false), (4, 4, true), (13, 3, false), (13, 4, true), (20, 6, false), (20, 7, true)]
    {
        let mut scene = yard(machines, silent);
        let end = ended(&mut scene, "i-0");
        assert_eq!(end.is_none(), doubtful, "{silent} of {machines}");
        assert_eq!(conditions(&scene).contains(&ConditionType::Doubtful), doubtful, "{silent} of {machines}");
    }
}

#[test]
fn a_silence_of_many_is_judged_after_one_more_stale_and_then_one_by_one() {
    let mut scene = yard(10, 5);
    assert_eq!(ended(&mut scene, "i-0"), None);
    let plan = scene.of_machine("i-0");
    assert!(plan.waits.iter().any(|wait| wait.message.contains("5 of 10 agents fell silent together")));
    // 61 s of the 120 s have passed.
    assert_eq!(plan.wake, Some(scene.now.mono + secs(59) + Duration::from_millis(1)));
    let waited = |scene: &mut Scene, seconds| {
        scene.wait(seconds);
        (5..10).for_each(|n| drop(scene.speaks(&format!("i-{n}"), |_| ())));
    };
    waited(&mut scene, 59);
    assert_eq!(ended(&mut scene, "i-0"), None);
    waited(&mut scene, 1);
    assert_eq!(ended(&mut scene, "i-0"), Some(Reason::Unhealthy));
    assert_eq!(ended(&mut scene, "i-4"), Some(Reason::Unhealthy), "each by itself");
    assert_eq!(ended(&mut scene, "i-5"), None, "it speaks");
}

#[test]
fn who_speaks_again_after_a_silence_of_many_lives_on() {
    let mut scene = yard(10, 5);
    (0..4).for_each(|n| drop(scene.speaks(&format!("i-{n}"), |_| ())));
    assert!(!conditions(&scene).contains(&ConditionType::Doubtful));
    for n in 0..4 {
        assert_eq!(ended(&mut scene, &format!("i-{n}")), None);
    }
    assert_eq!(ended(&mut scene, "i-4"), Some(Reason::Unhealthy), "it alone is silent");
}

#[test]
fn time_in_which_the_table_was_away_makes_no_silence_of_many() {
    let mut scene = yard(10, 0);
    scene.now.mono += secs(3600);
    assert_eq!(ended(&mut scene, "i-0"), None);
    assert!(!conditions(&scene).contains(&ConditionType::Doubtful));
}

#[test]
fn machines_that_serve_are_given_back_while_their_silence_is_in_doubt() {
    let mut scene = yard(10, 5);
    scene.put(&holding("1", 1, &["i-0"], json!({"desired": "released"})));
    scene.put(&machine("i-0").running(&ask("1")).with(|i| i.version = 6).instance);
    let (step, _) = write(&scene.of_machine("i-0"));
    assert!(step.after.run().is_none());
}

#[test]
fn claims_avoid_machines_whose_silence_is_in_doubt() {
    let mut scene = yard(10, 5);
    scene.put(&request("1", 10, json!({})));
    let claims = scene.claims();
    let mut got: Vec<String> = claims.into_iter().flat_map(|(_, machines)| machines).collect();
    got.sort();
    assert_eq!(got, ["i-5", "i-6", "i-7", "i-8", "i-9"]);
}

#[test]
fn a_class_is_looked_at_when_too_many_of_its_agents_would_be_silent() {
    let mut scene = yard(10, 0);
    scene.wait(40);
    // All sent a heartbeat 41 s ago.
    assert_eq!(
        scene.of_class().wake.map(|at| at - scene.now.mono),
        Some(secs(19) + Duration::from_millis(1))
    );
    scene.wait(20);
    assert!(scene.of_class().wake.is_some_and(|at| at - scene.now.mono <= secs(1)));
}

#[test]
fn what_is_counted_follows_machines_and_their_agents() {
    let counted = |scene: &Scene| {
        let beats = &scene.yard.class(&linux()).unwrap().beats;
        assert_eq!(beats.at.values().sum::<u32>(), beats.agents);
        beats.agents
    };
    let mut scene = yard(3, 0);
    assert_eq!(counted(&scene), 3);
    scene.add(machine("i-3").agent(|agent| agent.heartbeat_seq = 0));
    assert_eq!(counted(&scene), 3, "it never spoke");
    scene.speaks("i-3", |_| ());
    assert_eq!(counted(&scene), 4);
    scene.spoil(&crate::model::Agent::key_of(&arn("i-3")), Some(2));
    assert_eq!(counted(&scene), 3, "nobody knows whether it speaks");
    scene.put(&machine("i-0").ended(Reason::Expired).with(|i| i.version = 9).instance);
    assert_eq!(counted(&scene), 2);
    scene.see(crate::yard::Observation::Record(crate::model::Instance::key_of(&arn("i-1")), None));
    assert_eq!(counted(&scene), 1);
}

#[test]
fn good_news_of_machines_whose_silence_is_in_doubt_is_not_believed() {
    let cleaned = || machine("i-0").cleaning(&ask("9")).says(crate::model::Signal::RemoveRegOk);
    let mut scene = yard(10, 5);
    scene.add(cleaned().with(|i| i.version = 6).agent(|agent| agent.heartbeat_seq = 7));
    assert_eq!(scene.of_machine("i-0").actions, [], "it said so before it fell silent");
    scene.add(cleaned().with(|i| i.version = 6).agent(|agent| agent.heartbeat_seq = 8));
    assert_eq!(write(&scene.of_machine("i-0")).0.after.pooled_at(), Some(scene.now.wall));
}
