//! The course of a machine with a person's hold.

use super::*;
use crate::model::{Agent, Hold, Instance};

/// Adds a hold for Ada until so many seconds after the beginning.
fn until(built: Built, seconds: i64) -> Built {
    built.with(|i| i.hold = Some(Hold { by: "ada".into(), until: at(seconds) }))
}

/// Builds a machine that has been held since the beginning, for an hour.
fn on_hold() -> Built {
    until(machine("i-1").cleaning(&ask("1")), 3600).until(3600).with(|i| i.state_since = start())
}

fn released() -> serde_json::Value {
    serde_json::json!({"desired": "released"})
}

#[test]
fn a_hold_takes_a_machine_when_its_request_gives_it_back_and_moves_its_deadline() {
    let running = until(machine("i-1").running(&ask("1")).until(1000), 3600);
    assert!(yard(running.clone()).of_machine("i-1").actions.is_empty(), "its run goes on");
    let box_ = Registration { sealed: "box".into(), expires_at: None };
    for built in
        [running, until(machine("i-1").claimed(&ask("1")), 3600).with(|i| i.registration = Some(box_))]
    {
        becomes(&held(built, released()), |next| {
            next.life = Life::Idle { pooled_at: None };
            next.threshold = renewed(3600);
            next.state_since = start();
            next.registration = None;
        });
    }
}

#[test]
fn a_hold_keeps_a_machine_that_failed_in_any_way_a_person_can_look_at() {
    let held_now = |scene: Scene| write(&scene.of_machine("i-1")).0.after.place();
    let request = ask("1");
    let all = [machine("i-1"), machine("i-1").bound(&request), machine("i-1").claimed(&request)];
    for built in all.clone().into_iter().chain([machine("i-1").running(&request).until(1000)]) {
        let place = built.instance.place();
        let failed = until(built.clone(), 3600).says_for(Signal::Failed, "");
        assert_eq!(held_now(yard(failed)), Place::IdleHeld, "{place:?}");
        if built.instance.claim.is_some() {
            for signal in [Signal::RegFailed, Signal::RemoveRegFailed] {
                let failed = until(built.clone(), 3600).says(signal);
                assert_eq!(held_now(yard(failed)), Place::IdleHeld, "{place:?} {signal}");
            }
        }
    }
    for built in all {
        assert_eq!(held_now(yard(until(built.until(0), 3600))), Place::IdleHeld, "its deadline passed");
    }
    let booted = until(machine("i-1"), 3600).says_for(Signal::Ok, "");
    assert_eq!(held_now(yard(booted)), Place::IdleHeld, "it is not pooled");
    assert_eq!(held_now(yard(until(machine("i-1").pooled(), 3600))), Place::IdleHeld);
}

#[test]
fn a_hold_keeps_a_machine_that_fell_silent_in_the_write_that_names_the_beat() {
    let mut scene = yard(until(machine("i-1").running(&ask("1")).until(9000), 3600));
    scene.wait(61);
    assert_eq!(scene.of_machine("i-1").actions, [Planned::look(Agent::key_of(&arn("i-1")))]);
    let agent = scene.yard.instance(&arn("i-1")).unwrap().agent.clone().unwrap();
    scene.look(Agent::key_of(&arn("i-1")), Some(agent.to_item()));
    let plan = scene.of_machine("i-1");
    let [Effect::Silence(step, 7)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!((step.after.place(), step.after.run()), (Place::IdleHeld, None));
    assert_eq!(step.after.threshold, Some(Threshold { at: at(3600), set_at: at(61) }));
}

#[test]
fn a_held_machine_is_neither_pooled_nor_cleaned_nor_ended_before_its_time() {
    let spec = serde_json::json!({"maxUses": 1, "maxAgeSeconds": 1});
    for signal in Signal::ALL {
        let mut scene = Scene::with(spec.clone());
        scene.put(&holding("1", 1, &["i-1"], released()));
        scene.add(on_hold().says(*signal));
        assert_eq!(scene.of_machine("i-1").actions, [], "{signal}");
        scene.wait(3599);
        assert_eq!(scene.of_machine("i-1").actions, [], "{signal}: its agent is silent");
        scene.wait(1);
        assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Expired), "{signal}");
        assert_eq!(write(&scene.of_machine("i-1")).1.reason, "HoldOver");
    }
}

#[test]
fn a_hold_ends_when_its_class_allows_no_more_and_follows_another_until() {
    let held_for = |most: u64, built: Built| {
        let mut scene = Scene::with(serde_json::json!({"maxHoldSeconds": most}));
        scene.put(&holding("1", 1, &["i-1"], released()));
        scene.add(built);
        scene
    };
    let given_back = until(machine("i-1").running(&ask("1")).until(1000), 7200);
    let step = write(&held_for(600, given_back).of_machine("i-1")).0;
    assert_eq!(step.after.threshold, renewed(600));
    let mut scene = held_for(7200, until(on_hold(), 7200));
    let (step, note) = write(&scene.of_machine("i-1"));
    assert_eq!((step.after.threshold, note.reason), (renewed(7200), "Held"));
    scene.apply(&scene.of_machine("i-1").actions);
    assert_eq!(scene.of_machine("i-1").actions, []);
    assert_eq!(ends(&held_for(0, on_hold()).of_machine("i-1")), Some(Reason::Expired));
}

#[test]
fn a_hold_that_comes_during_clean_up_leaves_the_time_before_it_to_the_request() {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&holding("1", 1, &["i-1"], released()));
    scene.add(machine("i-1").cleaning(&ask("1")).until(300).with(|i| i.state_since = start()));
    scene.wait(40);
    let mut instance = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
    instance.hold = Some(Hold { by: "ada".into(), until: at(3600) });
    instance.version += 1;
    scene.put(&instance);
    scene.apply(&scene.of_machine("i-1").actions);
    let after = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
    assert_eq!((after.state_since, after.threshold.map(|t| t.at)), (at(40), Some(at(3600))));
    let open = crate::model::history::MachineLine::so_far(&after, at(100)).unwrap();
    use crate::model::history::Activity::{Cleaning, Held};
    let told: Vec<_> = open.spans.iter().map(|span| (span.activity, span.to)).collect();
    assert_eq!(told, [(Cleaning, at(40)), (Held, at(100))]);
    assert_eq!(open.spans[0].request, Some(Request::key_of(&ask("1"))));
    assert_eq!(open.held_by.as_deref(), Some("ada"));
    assert_eq!(scene.of_machine("i-1").actions, [], "once");
}

#[test]
fn a_hold_that_was_over_before_its_run_was_pools_nothing() {
    let over = until(machine("i-1").running(&ask("1")).until(1000), -1);
    let mut scene = held(over, released());
    scene.apply(&scene.of_machine("i-1").actions);
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Expired));
}

#[test]
fn a_person_ec2_and_another_key_end_a_held_machine_before_its_time() {
    let expired = on_hold().with(|i| i.expired_by = Some("ada".into()));
    assert_eq!(ends(&yard(expired).of_machine("i-1")), Some(Reason::Expired));
    let notice = Interruption { action: InterruptionAction::Terminate, at: at(20) };
    let taken = on_hold().agent(|agent| agent.interruption = Some(notice));
    assert_eq!(ends(&yard(taken).of_machine("i-1")), Some(Reason::Interrupted));
    let other = on_hold().with(|i| i.public_key = Some("a".into()));
    let other = other.agent(|agent| agent.public_key = Some("b".into()));
    assert_eq!(ends(&yard(other).of_machine("i-1")), Some(Reason::Unhealthy));
    let mut gone = yard(on_hold());
    gone.see(Observation::Stands(arn("i-1"), Some(MachineState::Stopped)));
    assert_eq!(ends(&gone.of_machine("i-1")), Some(Reason::Vanished));
}

#[test]
fn a_held_machine_counts_for_max_alone_and_is_given_back_for_its_request() {
    let mut scene = Scene::with(serde_json::json!({"desired": 1, "max": 1}));
    scene.put(&holding("1", 1, &["i-1"], serde_json::json!({"desired": "released", "phase": "Releasing"})));
    scene.add(on_hold());
    let class = scene.yard.class(&linux()).unwrap();
    assert_eq!((class.live(), class.cleaning, class.held, class.pooled.len()), (1, 0, 1, 0));
    assert_eq!(scene.intents(), [], "max is reached");
    assert_eq!(answer(&scene.of_request("1")).0.after.status.phase, Some(crate::model::Phase::Released));
    scene.pool(2, serde_json::json!({"desired": 1, "max": 2}));
    assert_eq!(scene.intents(), [(1, None)], "it is none of the idle ones");
}

#[test]
fn a_machine_with_a_hold_is_not_claimed_from_the_pool() {
    let mut scene = Scene::with(serde_json::json!({}));
    scene.put(&request("1", 1, serde_json::json!({})));
    scene.add(until(machine("i-1").pooled(), 3600));
    assert_eq!(scene.claims(), []);
    scene.add(machine("i-2").pooled());
    assert_eq!(scene.claims(), [("1".to_owned(), vec!["i-2".to_owned()])]);
}

#[test]
fn the_runner_of_a_held_machine_goes_at_github_once() {
    let mut scene = yard(on_hold().with(|i| i.registration_seq = 1));
    scene.policy.github = true;
    let instance: Instance = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
    assert_eq!(scene.of_machine("i-1").actions, [Planned::sweep_runner(&instance)]);
    scene.see(Observation::Swept(arn("i-1")));
    assert_eq!(scene.of_machine("i-1").actions, []);
}

/// Pseudo-random numbers that are the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Simulates one life of a machine that a person holds at some moment; returns whether it entered the pool or got
/// another claim after that. `blind`: the operator does not read `hold`, like one of an earlier version.
fn served_again(seed: u64, blind: bool) -> bool {
    let mut draw = Draw(seed);
    let mut scene = Scene::with(serde_json::json!({"desired": draw.below(2), "reuseWithin": "any"}));
    let mut first = holding("1", 1, &["i-1"], serde_json::json!({}));
    let begun = [
        machine("i-1"),
        machine("i-1").claimed(&ask("1")),
        machine("i-1").running(&ask("1")),
        machine("i-1").pooled(),
    ];
    if draw.below(3) == 0 {
        first.status.phase = Some(crate::model::Phase::Releasing);
    }
    scene.put(&first);
    scene.put(&request("2", 1, serde_json::json!({})));
    scene.add(begun[draw.below(4) as usize].clone());
    let (moment, mut held_with) = (draw.below(12), None);
    for turn in 0..40 {
        let now = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
        if turn == moment && now.state().live() {
            held_with = Some((now.claim.clone(), now.pooled_at()));
            let until =
                now.updated_at.max(scene.now.wall) + jiff::SignedDuration::from_secs(draw.below(900) as i64);
            let hold = (!blind).then(|| Hold { by: "ada".into(), until });
            scene.put(&Instance { hold, version: now.version + 1, ..now });
        }
        match draw.below(4) {
            0 => scene.wait(draw.below(60)),
            1 => {
                let signal = Signal::ALL[draw.below(6) as usize];
                let claim = scene.yard.instance(&arn("i-1")).unwrap().instance.claim.clone();
                let of =
                    claim.filter(|_| draw.below(4) > 0).map_or(String::new(), |claim| claim.id.to_string());
                scene.speaks("i-1", |agent| (agent.signal, agent.signal_claim_id) = (Some(signal), Some(of)));
            }
            2 => {
                let mut actions = scene.served();
                actions.retain(|action| matches!(action.effect, Effect::Claim { .. }));
                scene.apply(&actions);
            }
            _ => {
                scene.speaks("i-1", |_| ());
                let mut actions = scene.of_machine("i-1").actions;
                actions.retain(|action| matches!(action.effect, Effect::Instance(..) | Effect::Silence(..)));
                scene.apply(&actions);
            }
        }
        let after = &scene.yard.instance(&arn("i-1")).unwrap().instance;
        // Until the operator has handled the hold, the machine is in the same pool as before, and in no other.
        if let Some((claim, pooled)) = &held_with
            && (after.claim != *claim || after.pooled_at().is_some_and(|at| Some(at) != *pooled))
        {
            return true;
        }
    }
    false
}

#[test]
fn whatever_happens_to_a_held_machine_it_never_serves_again() {
    for seed in 0..2000 {
        assert!(!served_again(seed, false), "seed {seed}");
    }
    let seen = (0..2000).filter(|seed| served_again(*seed, true)).count();
    assert!(seen > 20, "an operator that does not read the hold breaks it in {seen} lives of 2000");
}
