use serde_json::json;

use crate::decide::{Effect, Planned, WaitReason};
use crate::model::{
    ClaimId, Containers, Instance, Jobs, Life, Phase, Reason, Request, Threshold, UsageClass,
};
use crate::testing::*;
use crate::yard::Observation;

fn waiting(run: &str, count: u32, since: i64) -> Request {
    request(run, count, json!({"acceptedAt": at(since)}))
}

fn pooled(scene: &mut Scene, names: &[&str]) {
    names.iter().for_each(|name| drop(scene.add(machine(name).pooled())));
}

#[test]
fn a_claim_is_one_transaction_and_changes_just_this() {
    let mut scene = Scene::with(json!({}));
    let box_ = crate::model::Registration { sealed: "box".into(), expires_at: None };
    let built = machine("i-1").pooled().agent(|a| a.public_key = Some("key".into()));
    scene.add(built.with(|i| (i.registration, i.uses) = (Some(box_), 3)));
    scene.put(&waiting("1", 2, -50));
    let actions = scene.served();
    let Effect::Claim { request, machines, .. } = &actions[0].effect else { panic!("{actions:?}") };
    let mut machine = machines[0].before.clone();
    (machine.version, machine.updated_at, machine.state_since) = (6, start(), start());
    machine.life = Life::Claimed { run: "1".parse().unwrap() };
    machine.claim = Some(crate::model::Claim { id: ClaimId::of(&id("i-1"), 6), request: ask("1").into() });
    machine.threshold = Some(Threshold { at: at(300), set_at: start() });
    machine.trust_domain = "owner:acme".into();
    machine.public_key = Some("key".into());
    machine.registration = None;
    crate::model::Versioned::settle(&mut machine, &machines[0].before);
    assert_eq!(machines[0].after, machine);
    let mut after = request.before.clone();
    (after.version, after.updated_at) = (4, Some(start()));
    after.status.phase = Some(Phase::Fulfilling);
    after.status.instances = vec![id("i-1")];
    after.status.served = vec![id("i-1")];
    after.status.claims = [(id("i-1"), ClaimId::of(&id("i-1"), 6))].into();
    after.status.message = "1 of 2 machines claimed".into();
    assert_eq!(request.after, after);
}

#[test]
fn a_new_request_is_accepted_with_its_place_and_deadline_or_served_at_once() {
    let mut scene = Scene::with(json!({}));
    let mut new = request("1", 1, json!({"timeoutSeconds": 90}));
    new.status = crate::model::Status::default();
    scene.put(&new);
    let actions = scene.served();
    let [Effect::Request(step)] = effects(&actions)[..] else { panic!("{actions:?}") };
    let status = &step.after.status;
    assert_eq!(
        (status.phase, status.accepted_at, status.deadline),
        (Some(Phase::Pending), Some(start()), Some(at(90)))
    );
    pooled(&mut scene, &["i-1"]);
    let actions = scene.served();
    let [Effect::Claim { request, .. }] = effects(&actions)[..] else { panic!("{actions:?}") };
    let status = &request.after.status;
    assert_eq!((status.phase, status.deadline), (Some(Phase::Fulfilling), Some(at(90))));
}

#[test]
fn the_oldest_is_served_first_and_ties_go_by_key() {
    let mut scene = Scene::with(json!({}));
    for (run, since) in [("3", -10), ("1", -30), ("2", -30)] {
        scene.put(&waiting(run, 1, since));
    }
    pooled(&mut scene, &["i-1", "i-2"]);
    assert_eq!(runs(&scene.claims()), ["1", "2"]);
}

#[test]
fn a_repository_whose_clean_ups_fail_waits_behind_others() {
    let of = |repository: &str, run: &str, since: i64| {
        request(run, 1, json!({"repository": repository, "acceptedAt": at(since)}))
    };
    let scene = |more: serde_json::Value, last: i64| {
        let mut spec = json!({"reuseWithin": "owner", "max": 1});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut scene = Scene::with(spec);
        for (name, since) in [("i-7", last - 20), ("i-8", last - 10), ("i-9", last)] {
            let ended = machine(name).cleaning(&ask("6")).ended(Reason::CleanupFailed);
            scene.add(ended.with(|i| i.state_since = at(since)));
        }
        pooled(&mut scene, &["i-1"]);
        scene.put(&of("acme/web", "1", -90));
        scene
    };
    for spec in [json!({}), json!({"sharing": {"by": "repository"}})] {
        let mut alone = scene(spec.clone(), -10);
        assert_eq!(runs(&alone.claims()), ["1"], "nobody else waits");
        alone.put(&of("acme/api", "2", -10));
        assert_eq!(runs(&alone.claims()), ["2"], "the younger one of another repository");
        let plan = alone.of_class();
        let waits = plan.waits.iter().filter(|wait| wait.reason == WaitReason::Behind);
        let told: Vec<&str> = waits.map(|wait| wait.message.as_ref()).collect();
        assert!(told.iter().any(|told| told.contains("its requests wait behind others")), "{told:?}");
        let mut later = scene(spec, -3600);
        later.put(&of("acme/api", "2", -10));
        assert_eq!(runs(&later.claims()), ["1"], "an hour after the last");
    }
}

#[test]
fn a_younger_request_overtakes_only_with_what_the_older_refuses() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 2, json!({"acceptedAt": at(-30), "usageClass": "spot"})));
    scene.put(&waiting("2", 2, -10));
    pooled(&mut scene, &["i-1"]);
    let spot = |name: &str| machine(name).pooled().with(|i| i.facts.usage_class = UsageClass::Spot);
    scene.add(spot("i-2"));
    let claims = scene.claims();
    assert_eq!(claims, [("1".into(), vec!["i-2".into()]), ("2".into(), vec!["i-1".to_owned()])]);
}

#[test]
fn a_claim_carries_what_its_class_grants_jobs_and_drops_what_the_last_had() {
    let root = json!({"jobs": {"root": true, "environment": {"A": "1"}}});
    let granted = |more: serde_json::Value| {
        let mut spec = root.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut scene = Scene::with(spec);
        let left = Jobs { containers: Containers::Rootless, ..Jobs::default() };
        scene.add(machine("i-1").pooled().with(|i| i.jobs = left));
        scene.put(&request("1", 1, json!({})));
        let actions = scene.served();
        let Effect::Claim { machines, .. } = &actions[0].effect else { panic!("{actions:?}") };
        let jobs = &machines[0].after.jobs;
        assert_eq!(jobs.environment.len(), 1);
        (jobs.root, jobs.containers)
    };
    let once = json!({"reuseWithin": "none", "registrationMode": "job"});
    assert_eq!(granted(once), (true, Containers::Nothing));
    assert_eq!(granted(json!({"reuseWithin": "owner"})), (false, Containers::Nothing));
}

#[test]
fn no_machine_and_no_request_is_claimed_twice_in_one_plan() {
    let mut scene = Scene::with(json!({}));
    let names: Vec<String> = (0..5).map(|n| format!("i-{n}")).collect();
    pooled(&mut scene, &names.iter().map(String::as_str).collect::<Vec<_>>());
    for run in ["1", "2", "3"] {
        scene.put(&waiting(run, 3, -10));
    }
    let mut claimed: Vec<String> = scene.claims().into_iter().flat_map(|(_, ids)| ids).collect();
    claimed.sort();
    assert_eq!(claimed, names);
}

#[test]
fn a_claim_takes_at_most_forty_machines() {
    let mut scene = Scene::with(json!({"max": 100}));
    let names: Vec<String> = (0..45).map(|n| format!("i-{n}")).collect();
    pooled(&mut scene, &names.iter().map(String::as_str).collect::<Vec<_>>());
    scene.put(&waiting("1", 45, -10));
    assert_eq!(scene.claims()[0].1.len(), 40);
}

#[test]
fn a_request_that_is_being_written_keeps_its_place_and_nothing_is_launched_for_it() {
    let mut scene = Scene::with(json!({}));
    scene.put(&waiting("1", 1, -30));
    scene.put(&waiting("2", 1, -10));
    pooled(&mut scene, &["i-1"]);
    scene.yard.busy.insert(ask("1").into());
    assert!(scene.claims().is_empty(), "the machine is for the older one");
    assert_eq!(scene.intents(), [], "unless that turns out not to need it");
    // Its claim is in progress: both records are being written.
    scene.yard.busy.insert(Instance::key_of(&arn("i-1")).into());
    assert_eq!(scene.intents(), [(1, Some(ask("2")))]);
}

#[test]
fn the_queue_is_asked_before_machines_are_claimed_and_not_again_within_a_moment() {
    let mut scene = Scene::with(json!({}));
    scene.put(&waiting("1", 1, -10));
    let asks = |scene: &Scene| scene.of_class().actions.contains(&Planned::receive(linux(), 1));
    assert!(!asks(&scene), "nobody is free");
    pooled(&mut scene, &["i-1"]);
    assert!(asks(&scene));
    assert_eq!(scene.of_class().wake, Some(scene.now.mono + secs(1)), "should the queue not answer");
    scene.see(Observation::Hints(linux(), vec![]));
    assert!(!asks(&scene));
    scene.wait(2);
    assert!(asks(&scene));
    scene.see(Observation::QueueDown(linux()));
    scene.wait(15);
    assert!(!asks(&scene), "done without for a while");
    assert_eq!(runs(&scene.claims()), ["1"]);
}

#[test]
fn a_class_whose_free_machines_fit_no_waiting_request_asks_nothing() {
    let mut scene = Scene::with(json!({}));
    let asks = |scene: &Scene| {
        let receives = |action: &Planned| matches!(action.effect, Effect::Receive(..));
        scene.of_class().actions.iter().any(receives)
    };
    pooled(&mut scene, &["i-1", "i-2", "i-3"]);
    assert!(!asks(&scene), "nobody waits");
    scene.put(&request("1", 1, json!({"acceptedAt": at(-30), "usageClass": "spot"})));
    assert!(!asks(&scene), "none is for it");
    scene.put(&waiting("2", 2, -10));
    assert!(scene.of_class().actions.contains(&Planned::receive(linux(), 2)), "as many as it can have");
    scene.yard.busy.insert(crate::model::Slot::Queue(linux()));
    assert!(!asks(&scene), "it is being asked");
}

#[test]
fn a_paused_class_claims_and_launches_nothing_and_says_so() {
    let mut scene = Scene::with(json!({"paused": true, "desired": 3}));
    scene.put(&waiting("1", 2, -10));
    pooled(&mut scene, &["i-1"]);
    assert!(scene.claims().is_empty() && scene.intents().is_empty());
    assert!(scene.of_class().waits.iter().any(|wait| wait.reason == WaitReason::Paused));
}

#[test]
fn why_free_machines_are_not_for_a_request_is_told_and_looked_at_again() {
    let mut scene = Scene::with(json!({}));
    pooled(&mut scene, &["i-1"]);
    scene.see(Observation::Announced(arn("i-1")));
    scene.put(&request("1", 1, json!({"acceptedAt": at(-30), "usageClass": "spot"})));
    scene.served();
    let plan = scene.of_class();
    let told: Vec<_> = plan.waits.iter().filter(|wait| wait.reason == WaitReason::Mismatch).collect();
    assert_eq!((told.len(), &told[0].subject), (1, &ask("1").into()), "{:?}", plan.waits);
    assert_eq!(told[0].message, "free machines are not for it: of another usage class");
    assert_eq!(plan.wake, Some(scene.now.mono + secs(1)), "freshness passes with time alone");
    // Another machine fits it, and none is refused to a request that takes any.
    scene.add(machine("i-2").pooled().with(|i| i.facts.usage_class = UsageClass::Spot));
    let mismatches = |scene: &Scene| {
        scene.of_class().waits.into_iter().filter(|wait| wait.reason == WaitReason::Mismatch).count()
    };
    assert_eq!(mismatches(&scene), 0, "it has what it asked for");
    let mut any = Scene::with(json!({}));
    any.put(&waiting("1", 1, -30));
    assert_eq!(mismatches(&any), 0, "none was refused");
}

/// Creates a scene in which request 1 listed `i-1`, which is in the pool again.
fn relisted(phase: &str) -> Scene {
    let mut scene = Scene::with(json!({"max": 1}));
    scene.put(&holding("1", 2, &["i-1", "i-9"], json!({"phase": phase, "acceptedAt": at(-90)})));
    scene.add(machine("i-9").running(&ask("1")).until(5000));
    let claim = machine("i-1").claimed(&ask("1")).instance.claim;
    scene.add(machine("i-1").pooled().with(|i| (i.claim, i.version) = (claim, 7)));
    scene
}

#[test]
fn a_former_request_takes_a_machine_off_its_list_before_another_gets_it() {
    let mut scene = relisted("Releasing");
    scene.put(&waiting("2", 1, -10));
    let actions = scene.served();
    let [Effect::Request(step)] = effects(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((note(&actions).reason, step.after.status.instances.clone()), ("GivenBack", vec![id("i-9")]));
    scene.apply(&actions);
    assert_eq!(runs(&scene.claims()), ["2"]);
}

#[test]
fn one_that_lost_a_machine_and_lacks_one_may_have_it_again_in_one_write() {
    let mut scene = relisted("Fulfilling");
    let actions = scene.served();
    let [Effect::Claim { request, .. }] = effects(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(request.after.status.instances, [id("i-9"), id("i-1")]);
    assert_eq!(request.after.status.served, [id("i-1"), id("i-9")], "each once");
    assert_eq!(request.after.status.claims[&id("i-1")], ClaimId::of(&id("i-1"), 8));
}

#[test]
fn every_request_is_written_once_in_a_plan() {
    let mut scene = relisted("Fulfilling");
    scene.pool(2, json!({"max": 5}));
    // The older request is served with another machine and would have to let go of its lost one too.
    scene.add(machine("i-2").pooled().until(1750));
    scene.put(&request("2", 1, json!({"acceptedAt": at(-95), "usageClass": "spot"})));
    scene.put(&waiting("3", 2, -5));
    let mut keys: Vec<_> = scene.served().iter().flat_map(Planned::records).cloned().collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all);
}

mod rebalance {
    use super::*;

    /// Creates two requests that each hold a part of the machines that they need, and a class that cannot grow.
    fn stuck(older: serde_json::Value) -> Scene {
        let mut scene = Scene::with(json!({"max": 2}));
        let mut with = json!({"acceptedAt": at(-90)});
        with.as_object_mut().unwrap().extend(older.as_object().unwrap().clone());
        scene.put(&holding("1", 2, &["i-1"], with));
        scene.put(&holding("2", 2, &["i-2"], json!({"acceptedAt": at(-80)})));
        scene.add(machine("i-1").running(&ask("1")).until(5000));
        scene.add(machine("i-2").running(&ask("2")).until(5000));
        scene
    }

    fn gifts(scene: &mut Scene) -> Vec<(String, usize)> {
        let gift = |action: Planned| match &action.effect {
            Effect::Request(step) if action.note().is_some_and(|note| note.reason == "Yielded") => {
                Some((step.after.id.run_id.to_string(), step.after.status.instances.len()))
            }
            _ => None,
        };
        scene.served().into_iter().filter_map(gift).collect()
    }

    #[test]
    fn a_younger_that_waits_with_a_part_gives_it_to_the_older_that_waits() {
        let mut scene = stuck(json!({}));
        assert_eq!(gifts(&mut scene), [("2".to_owned(), 0)]);
        let actions = scene.served();
        scene.apply(&actions);
        assert_eq!(write(&scene.of_machine("i-2")).1.reason, "GivenUp");
    }

    #[test]
    fn what_is_given_already_is_not_given_again() {
        let mut scene = stuck(json!({}));
        scene.pool(2, json!({"max": 3}));
        scene.put(&holding("3", 2, &["i-3"], json!({"acceptedAt": at(-70)})));
        scene.add(machine("i-3").running(&ask("3")).until(5000));
        assert_eq!(gifts(&mut scene), [("3".to_owned(), 0)], "the youngest first");
        let actions = scene.served();
        scene.apply(&actions);
        assert_eq!(gifts(&mut scene), [], "until the machine is given back and clean");
        let actions = scene.of_machine("i-3").actions;
        scene.apply(&actions);
        assert_eq!(gifts(&mut scene), []);
    }

    #[test]
    fn what_is_being_written_gives_nothing_and_the_next_gives_instead() {
        let mut scene = stuck(json!({}));
        scene.pool(2, json!({"max": 3}));
        scene.put(&holding("3", 2, &["i-3"], json!({"acceptedAt": at(-70)})));
        scene.add(machine("i-3").running(&ask("3")).until(5000));
        scene.yard.busy.insert(ask("3").into());
        assert_eq!(gifts(&mut scene), [("2".to_owned(), 0)]);
    }

    #[test]
    fn one_that_is_written_in_this_plan_gives_nothing() {
        let mut scene = stuck(json!({"usageClass": "on-demand"}));
        scene.pool(2, json!({"max": 4}));
        // The youngest takes a spot machine now, and lacks another.
        scene.put(&holding("3", 3, &["i-3"], json!({"acceptedAt": at(-70)})));
        scene.add(machine("i-3").running(&ask("3")).until(5000));
        scene.put(&holding(
            "2",
            2,
            &["i-2"],
            json!({
                "acceptedAt": at(-80), "usageClass": "on-demand", "version": 4,
            }),
        ));
        scene.add(machine("i-9").pooled().with(|i| i.facts.usage_class = UsageClass::Spot));
        assert_eq!(runs(&scene.claims()), ["3"]);
        assert_eq!(gifts(&mut scene), [("2".to_owned(), 0)]);
    }

    #[test]
    fn one_that_gets_all_it_lacks_is_not_the_oldest_that_lacks() {
        let mut scene = stuck(json!({}));
        scene.pool(2, json!({"max": 3}));
        scene.add(machine("i-9").pooled());
        scene.put(&waiting("0", 1, -95));
        assert_eq!(gifts(&mut scene), [("2".to_owned(), 0)]);
    }

    #[test]
    fn nothing_is_given_that_the_older_cannot_use() {
        assert_eq!(gifts(&mut stuck(json!({"usageClass": "spot"}))), []);
        assert_eq!(gifts(&mut stuck(json!({"allowedInstanceTypes": ["c*"]}))), []);
        let mut scene = stuck(json!({}));
        scene.add(
            machine("i-2")
                .running(&ask("2"))
                .until(5000)
                .with(|i| (i.trust_domain, i.version) = ("owner:evil".into(), 6)),
        );
        assert_eq!(gifts(&mut scene), []);
    }

    #[test]
    fn a_class_that_can_grow_or_is_paused_takes_from_nobody() {
        for spec in [json!({"max": 3}), json!({"max": 2, "paused": true})] {
            let mut scene = stuck(json!({}));
            scene.pool(2, spec);
            assert_eq!(gifts(&mut scene), []);
        }
    }

    #[test]
    fn a_class_without_capacity_for_the_older_request_takes_from_the_younger() {
        let mut scene = stuck(json!({}));
        scene.pool(2, json!({"max": 9}));
        assert_eq!(gifts(&mut scene), []);
        scene.put(&launch("l-1", 1, Some(&ask("1"))));
        let none = Err(crate::ports::ComputeError::NoCapacity("InsufficientInstanceCapacity".into()));
        scene.see(Observation::Ordered("l-1".parse().unwrap(), none));
        let mut over = launch("l-1", 1, Some(&ask("1")));
        (over.phase, over.version) = (crate::model::LaunchPhase::Failed, 2);
        scene.put(&over);
        assert_eq!(gifts(&mut scene), [("2".to_owned(), 0)]);
        scene.wait(180);
        assert_eq!(gifts(&mut scene), [], "it is asked for again");
    }

    #[test]
    fn what_is_ready_gives_nothing() {
        let mut scene = stuck(json!({}));
        let ready = json!({"acceptedAt": at(-80), "phase": "Ready", "readyAt": at(-5), "version": 4});
        scene.put(&holding("2", 2, &["i-2"], ready));
        assert_eq!(gifts(&mut scene), []);
    }
}

mod reports {
    use super::*;
    use crate::model::{ConditionType, Pool, State};

    fn report(scene: &Scene) -> Option<Pool> {
        scene.of_class().actions.into_iter().find_map(|action| match action.effect {
            Effect::Pool(step) => Some(step.after),
            _ => None,
        })
    }

    #[test]
    fn a_class_tells_what_there_is_when_it_changed_and_at_most_every_ten_seconds() {
        let mut scene = Scene::with(json!({"desired": 2}));
        pooled(&mut scene, &["i-1"]);
        let told = report(&scene).unwrap();
        assert_eq!(told.status.counts[&State::Idle], 1);
        let warm = told.status.conditions.iter().find(|c| c.condition_type == ConditionType::Warm).unwrap();
        assert!(!warm.status);
        scene.put(&told);
        scene.see(Observation::Reported(linux()));
        let mut later = scene.clone();
        later.wait(10);
        assert!(report(&later).is_none(), "nothing changed");
        later.pool(9, json!({"desired": 3}));
        assert!(
            report(&later).unwrap().status.message.contains("1 idle of 3 wanted"),
            "the same counts, another wish"
        );
        pooled(&mut scene, &["i-2"]);
        assert!(report(&scene).is_none(), "too soon");
        assert_eq!(scene.of_class().wake, Some(scene.now.mono + secs(10)));
        scene.wait(10);
        assert_eq!(report(&scene).unwrap().status.counts[&State::Idle], 2);
        scene.role.lease = None;
        assert!(report(&scene).is_none(), "that is the leader's");
    }

    #[test]
    fn a_class_tells_whether_it_registers_ahead_and_what_would_have_to_hold() {
        let told = |scene: &Scene| report(scene).and_then(|pool| pool.status.ahead);
        let reasons = |scene: &Scene| told(scene).unwrap().reasons;
        let mut scene = Scene::with(json!({"reuseWithin": "repository"}));
        assert_eq!(reasons(&scene), ["NoGitHub"]);
        scene.policy.github = true;
        let on = told(&scene).unwrap();
        assert!(on.on && on.reasons.is_empty() && on.message.contains("saves about 1.2 s"), "{on:?}");
        scene.put(&report(&scene).unwrap());
        assert_eq!(report(&scene), None, "it is told already");
        scene.pool(9, json!({"reuseWithin": "owner", "runnerGroup": "g"}));
        assert_eq!(reasons(&scene), ["GitHubScope"]);
        scene.policy.organization = true;
        assert_eq!(reasons(&scene), [""; 0]);
        scene.pool(10, json!({"keep": [{"name": "a", "path": "~/a"}], "registeredAhead": false}));
        assert_eq!(reasons(&scene), ["Off", "RunnerGroup", "Keep"]);
    }

    #[test]
    fn a_class_tells_of_a_runner_version_that_ended_and_of_labels_that_github_refuses() {
        let told = |scene: &Scene| report(scene).unwrap().status.ahead.unwrap();
        let mut scene = Scene::with(json!({"reuseWithin": "repository"}));
        scene.policy.github = true;
        scene.add(machine("i-1").claimed(&ask("1")));
        for _ in 0..3 {
            assert!(told(&scene).on);
            scene.see(Observation::LabelFailed(arn("i-1"), Some("403: not this App".into())));
        }
        let refused = told(&scene);
        assert_eq!(refused.reasons, ["GitHubRefuses"]);
        assert!(refused.message.contains("403: not this App"), "{}", refused.message);
        assert_eq!(scene.of_class().wake, Some(scene.now.mono + secs(3600)));
        scene.wait(3600);
        assert!(told(&scene).on, "it is tried again");
        scene.see(Observation::LabelFailed(arn("i-1"), Some("403: not this App".into())));
        assert!(!told(&scene).on);
        scene.see(Observation::LabelGiven(arn("i-1")));
        assert!(told(&scene).on);
        let end = crate::ports::github::EndOfLife { registration: None, runtime: Some(scene.now.wall) };
        scene.yard.runner = Some(crate::ports::github::RunnerSupport { version: "2.336.0".into(), end });
        assert_eq!(told(&scene).reasons, ["RunnerDeprecated"]);
    }

    #[test]
    fn a_condition_that_is_over_goes_although_nothing_else_changed() {
        let mut scene = Scene::with(json!({"desired": 1}));
        pooled(&mut scene, &["i-1"]);
        let mut told = report(&scene).unwrap();
        let over = |pool: &mut Pool| {
            let mut doubtful = pool.status.conditions[0].clone();
            doubtful.condition_type = ConditionType::Doubtful;
            pool.status.conditions.push(doubtful);
        };
        scene.put(&told);
        assert!(report(&scene).is_none());
        over(&mut told);
        told.version += 1;
        scene.put(&told);
        let told = report(&scene).unwrap().status.conditions;
        assert!(told.iter().all(|one| one.condition_type != ConditionType::Doubtful), "{told:?}");
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn a_list_that_is_not_believed_is_a_condition_of_its_class() {
        let mut scene = Scene::with(json!({"desired": 4}));
        let machines: Vec<String> = (1..=4).map(|n| format!("i-{n}")).collect();
        let old = |i: &mut Instance| i.facts.created_at = at(-3600);
        machines.iter().for_each(|name| drop(scene.add(machine(name).pooled().with(old))));
        let doubt = |scene: &Scene| {
            let told = report(scene).unwrap().status.conditions;
            let doubt = told.into_iter().find(|one| one.condition_type == ConditionType::Doubtful);
            doubt.map(|one| (one.status, one.reason, one.message))
        };
        assert_eq!(doubt(&scene), None);
        scene.see(Observation::Inventory(Vec::new()));
        let (status, reason, message) = doubt(&scene).unwrap();
        assert_eq!((status, reason.as_str()), (true, "Inventory"));
        assert!(message.starts_with("the list of machines lacks 4 of 4"), "{message}");
    }

    #[test]
    fn the_same_counts_with_another_wish_are_told_too() {
        let mut scene = Scene::with(json!({"desired": 1}));
        pooled(&mut scene, &["i-1"]);
        let mut told = report(&scene).unwrap();
        told.spec.desired = 3;
        scene.put(&told);
        assert!(report(&scene).unwrap().status.message.contains("1 idle of 3 wanted"));
    }

    #[test]
    fn what_is_in_the_pool_cleaned_or_booting_for_it_is_idle_or_will_be() {
        let mut scene = Scene::with(json!({"desired": 4}));
        pooled(&mut scene, &["i-1"]);
        scene.add(machine("i-2").cleaning(&ask("9")));
        scene.add(machine("i-3"));
        scene.add(machine("i-4"));
        let told = report(&scene).unwrap().status;
        assert_eq!(told.message, "4 idle of 4 wanted, 4 live of at most 10");
        assert!(told.conditions.iter().any(|c| c.condition_type == ConditionType::Warm && c.status));
    }

    #[test]
    fn a_condition_keeps_the_time_since_when_it_is_so() {
        use crate::ports::ComputeError;
        let mut scene = Scene::with(json!({"desired": 1}));
        let since = |scene: &mut Scene| {
            let told = report(scene).unwrap();
            scene.put(&told);
            scene.see(Observation::Reported(linux()));
            let of = |kind| {
                let found = told.status.conditions.iter().find(|c| c.condition_type == kind).unwrap();
                (found.status, found.at)
            };
            (of(ConditionType::Warm), of(ConditionType::Blocked))
        };
        assert_eq!(since(&mut scene), ((false, start()), (false, start())));
        scene.wait(10);
        scene.put(&launch("l-1", 1, None));
        scene
            .see(Observation::Ordered("l-1".parse().unwrap(), Err(ComputeError::Refused("no right".into()))));
        assert_eq!(since(&mut scene), ((false, start()), (true, at(10))), "one changed");
        scene.wait(10);
        // The backoff ends at this very moment.
        scene.now.mono = scene.yard.class(&linux()).unwrap().backoff.until.max(scene.now.mono);
        pooled(&mut scene, &["i-1"]);
        assert_eq!(since(&mut scene), ((true, at(20)), (false, at(20))));
        scene.wait(10);
        scene.add(machine("i-2"));
        assert_eq!(since(&mut scene), ((true, at(20)), (false, at(20))), "told again, for another reason");
    }

    #[test]
    fn a_backoff_that_ends_at_this_moment_holds_nothing_back() {
        use crate::ports::ComputeError;
        let mut scene = Scene::with(json!({"desired": 1}));
        scene.put(&launch("l-1", 1, None));
        scene
            .see(Observation::Ordered("l-1".parse().unwrap(), Err(ComputeError::Refused("no right".into()))));
        scene.now.mono = scene.yard.class(&linux()).unwrap().backoff.until;
        assert!(!report(&scene).unwrap().status.message.contains("held back"));
    }

    #[test]
    fn why_a_launch_was_refused_is_told_until_one_is_not() {
        use crate::ports::ComputeError;
        let answer = |scene: &mut Scene, answer: ComputeError| {
            scene.put(&launch("l-1", 1, None));
            scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(answer)));
        };
        let mut scene = Scene::with(json!({"desired": 1}));
        answer(&mut scene, ComputeError::Refused("HttpTokens is optional".into()));
        let told = report(&scene).unwrap().status;
        let blocked = told.conditions.iter().find(|c| c.condition_type == ConditionType::Blocked).unwrap();
        assert!(blocked.status);
        for text in [&told.message, &blocked.message] {
            assert!(text.contains("refused: HttpTokens is optional"), "{text}");
        }
        answer(&mut scene, ComputeError::NoCapacity("none left".into()));
        assert!(!report(&scene).unwrap().status.message.contains("refused"));
    }

    #[test]
    fn a_list_of_machines_that_is_not_believed_is_told() {
        let mut scene = Scene::with(json!({}));
        for n in 0..5 {
            scene.add(machine(&format!("i-{n}")).pooled().with(|i| i.facts.created_at = at(-1000)));
        }
        scene.see(Observation::Inventory(vec![]));
        assert!(report(&scene).unwrap().status.message.contains("5 of 5"));
        assert_eq!(ends(&scene.of_machine("i-0")), None::<Reason>);
    }
}

#[test]
fn while_another_is_served_nothing_is_launched_in_place_of_a_machine_that_is_free() {
    let mut scene = Scene::with(json!({}));
    pooled(&mut scene, &["i-1", "i-2"]);
    scene.put(&waiting("1", 1, -50));
    scene.put(&waiting("2", 1, -40));
    // The first request's claim of one machine is on its way; which machine the second gets is known after that.
    scene.yard.busy.insert(ask("1").into());
    scene.yard.busy.insert(Instance::key_of(&arn("i-1")).into());
    let plan = scene.served();
    assert_eq!(plan, [], "neither a claim that may be in vain nor a cold start");
    let waits = scene.of_class().waits;
    let younger = waits.iter().find(|wait| wait.subject == ask("2")).unwrap();
    assert_eq!(
        (younger.reason, younger.message.as_str()),
        (WaitReason::Busy, "an older request is being served")
    );
    scene.yard.busy.remove(&ask("1").into());
    scene.add(machine("i-1").claimed(&ask("1")).with(|i| i.version = 6));
    let mut served = holding("1", 1, &["i-1"], json!({"phase": "Fulfilling", "acceptedAt": at(-50)}));
    served.version += 1;
    scene.put(&served);
    assert_eq!(scene.claims(), [("2".to_owned(), vec!["i-2".to_owned()])]);
}

#[test]
fn what_a_request_gets_and_what_may_be_left_for_it_are_not_launched() {
    let mut scene = Scene::with(json!({}));
    pooled(&mut scene, &["i-1", "i-2"]);
    scene.put(&waiting("1", 1, -50));
    scene.put(&waiting("2", 4, -40));
    scene.yard.busy.insert(ask("1").into());
    let claims = scene.claims();
    assert_eq!(
        claims.iter().map(|(run, machines)| (run.as_str(), machines.len())).collect::<Vec<_>>(),
        [("2", 1)]
    );
    assert_eq!(scene.intents(), [(2, Some(ask("2")))]);
}

#[test]
fn a_queue_that_hangs_holds_up_no_claim_of_the_machine_that_is_announced_there() {
    let mut scene = Scene::with(json!({}));
    pooled(&mut scene, &["i-1"]);
    let announcing = scene.of_machine("i-1").actions;
    assert!(matches!(effects(&announcing)[..], [Effect::Announce(..)]), "{announcing:?}");
    scene.yard.busy.extend(announcing[0].slots.clone());
    scene.put(&waiting("1", 1, -50));
    assert_eq!(scene.claims(), [("1".to_owned(), vec!["i-1".to_owned()])]);
}

mod lines {
    use super::*;
    use crate::model::Record as _;

    fn reasons(scene: &Scene, run: &str) -> Vec<WaitReason> {
        let waits = scene.of_class().waits.into_iter();
        waits.filter(|wait| wait.subject == ask(run)).map(|wait| wait.reason).collect()
    }

    #[test]
    fn those_that_accept_the_same_wait_behind_the_first_that_gets_nothing_others_do_not() {
        let mut scene = Scene::with(json!({"max": 2}));
        for run in ["1", "2", "3"] {
            scene.put(&request(run, 1, json!({"acceptedAt": at(-50), "usageClass": "spot"})));
        }
        scene.put(&waiting("4", 1, -10));
        pooled(&mut scene, &["i-1", "i-2"]);
        assert_eq!(
            scene.claims(),
            [("4".to_owned(), vec!["i-1".to_owned()])].map(|(run, _)| (run, vec!["i-2".to_owned()]))
        );
        assert_eq!(reasons(&scene, "1"), [WaitReason::Mismatch, WaitReason::AtMax]);
        assert_eq!(reasons(&scene, "2"), []);
        let told = crate::explain::explain(&scene.yard, &scene.policy, scene.now, scene.role, &ask("3"));
        let told = told.join("\n");
        assert!(told.contains("waits: class linux has as many machines as max allows (2)"), "{told}");
    }

    #[test]
    fn a_head_of_line_that_cannot_be_had_takes_no_room_from_those_that_can() {
        let mut scene = Scene::with(json!({"max": 2}));
        let spot = json!({"acceptedAt": at(-90), "usageClass": "spot"});
        scene.put(&request("1", 2, spot));
        scene.put(&waiting("2", 1, -80));
        scene.put(&waiting("3", 2, -70));
        let mut none = launch("l-1", 2, Some(&ask("1")));
        none.usage_class = UsageClass::Spot;
        scene.put(&none);
        let lacked = crate::ports::ComputeError::NoCapacity("InsufficientInstanceCapacity".into());
        scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(lacked)));
        (none.phase, none.version) = (crate::model::LaunchPhase::Failed, 2);
        scene.put(&none);
        assert_eq!(scene.intents(), [(1, Some(ask("2"))), (1, Some(ask("3")))]);
        assert_eq!(reasons(&scene, "1"), [WaitReason::NoCapacity]);
        assert_eq!(reasons(&scene, "3"), [WaitReason::Behind], "what is lacking goes to older ones");
        scene.wait(1800);
        scene.put(&request(
            "1",
            2,
            json!({"acceptedAt": at(-90), "usageClass": "spot", "version": 4, "deadline": at(9000)}),
        ));
        scene.put(&request("2", 1, json!({"acceptedAt": at(-80), "version": 4, "deadline": at(9000)})));
        assert_eq!(scene.intents(), [(2, Some(ask("1")))], "the oldest again, as soon as it may be had");
        assert_eq!(reasons(&scene, "2"), [WaitReason::Behind]);
    }

    #[test]
    fn a_request_or_a_machine_whose_claim_failed_rests_and_others_are_served() {
        let mut scene = Scene::with(json!({}));
        pooled(&mut scene, &["i-1", "i-2", "i-3"]);
        scene.put(&waiting("1", 1, -50));
        scene.put(&waiting("2", 1, -40));
        let until = scene.now.mono + secs(30);
        scene.yard.backoffs.insert(ask("1").into(), until);
        scene.yard.backoffs.insert(Instance::key_of(&arn("i-3")), until);
        assert_eq!(scene.claims(), [("2".to_owned(), vec!["i-2".to_owned()])]);
        assert_eq!(reasons(&scene, "1"), [WaitReason::BackOff]);
        assert!(scene.of_class().wake.unwrap() <= until);
        scene.wait(30);
        assert_eq!(runs(&scene.claims()), ["1", "2"]);
    }

    #[test]
    fn no_more_requests_of_a_class_are_written_at_a_time_than_leave_room_for_others() {
        let mut scene = Scene::with(json!({"max": 100}));
        let names: Vec<String> = (0..100).map(|n| format!("i-{n}")).collect();
        pooled(&mut scene, &names.iter().map(String::as_str).collect::<Vec<_>>());
        for n in 0..100 {
            scene.put(&waiting(&format!("{n:03}"), 1, -50));
        }
        let claims = scene.claims();
        assert_eq!((claims.len(), claims[0].0.as_str(), claims[31].0.as_str()), (32, "000", "031"));
        scene.yard.busy.extend((0..31).map(|n| ask(&format!("{n:03}")).into()));
        assert_eq!(runs(&scene.claims()), ["031"]);
    }

    #[test]
    fn a_repository_has_as_many_open_requests_as_it_may_and_others_go_on() {
        let mut scene = Scene::with(json!({}));
        scene.policy.requests_per_repository = 2;
        let new = |run: &str, repository: &str| {
            let mut request = request(run, 1, json!({"repository": repository}));
            request.status = crate::model::Status::default();
            request
        };
        for run in ["1", "2", "3"] {
            scene.put(&new(run, "acme/web"));
        }
        scene.put(&new("4", "acme/other"));
        let taken = |scene: &mut Scene| -> Vec<(String, Phase)> {
            let taken = scene.served().into_iter().filter_map(|action| match action.effect {
                Effect::Request(step) => Some((step.after.id.run_id.to_string(), step.after.phase())),
                _ => None,
            });
            taken.collect()
        };
        let pending = |run: &str| (run.to_owned(), Phase::Pending);
        assert_eq!(
            taken(&mut scene),
            [pending("4"), pending("1"), pending("2")],
            "3 waits for what becomes of these"
        );
        let actions = scene.served();
        scene.apply(&actions);
        let mut actions = scene.served();
        actions.retain(|action| !matches!(action.effect, Effect::Intend(..)));
        let [Effect::Request(step)] = effects(&actions)[..] else { panic!("{actions:?}") };
        assert_eq!(
            (step.after.id.run_id.as_str(), step.after.phase(), note(&actions).reason),
            ("3", Phase::Failed, "TooMany")
        );
        let message = "acme/web has 2 open requests, as many as one repository may (limits.requests_per_repository); \
                       release some that are not needed, or raise that limit";
        assert_eq!(step.after.status.message, format!("TooMany: {message}"));
        // An ended request makes room for another.
        let mut over: Request = scene.yard.request(&ask("1")).unwrap().clone();
        (over.version, over.status.phase) = (over.version + 1, Some(Phase::Released));
        scene.put(&over);
        assert_eq!(taken(&mut scene), [pending("3")]);
        assert_eq!(over.key(), ask("1"));
    }
}
