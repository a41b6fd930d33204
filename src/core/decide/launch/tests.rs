use serde_json::json;

use crate::decide::{Effect, Plan, Planned, WaitReason};
use crate::model::{Agent, ClaimId, Launch, LaunchPhase, Life, Place, Reason, Threshold};
use crate::ports::{ComputeError, Launched, MachineState, Shortfall};
use crate::testing::*;
use crate::yard::{Observation, Unit};

fn yard(count: u32, request: Option<u32>) -> Scene {
    let mut scene = Scene::with(json!({}));
    if let Some(wants) = request {
        scene.put(&crate::testing::request("1", wants, json!({})));
    }
    scene.put(&launch("l-1", count, request.map(|_| ask("1")).as_ref()));
    scene
}

fn of_launch(scene: &Scene) -> Plan {
    scene.judge(&Unit::Launch("l-1".parse().unwrap()))
}

/// Returns whether the launch is ordered as it is recorded, and nothing else is done.
fn orders(scene: &Scene) -> bool {
    let plan = of_launch(scene);
    let launch = &scene.yard.launch(&"l-1".parse().unwrap()).unwrap().launch;
    matches!(effects(&plan.actions)[..], [Effect::Order(order)] if order.launch == *launch)
}

fn plan_with(scene: &mut Scene, names: &[&str]) -> Plan {
    let machines = names.iter().map(|name| machine(name).listed(MachineState::Pending)).collect();
    scene.see(Observation::Ordered("l-1".parse().unwrap(), Ok(Launched { machines, shortfalls: vec![] })));
    of_launch(scene)
}

fn places(plan: &Plan) -> Vec<Place> {
    match effects(&plan.actions)[..] {
        [Effect::Bind { machines, .. }] => machines.iter().map(|(instance, _)| instance.place()).collect(),
        _ => panic!("{plan:?}"),
    }
}

#[test]
fn an_open_intent_is_asked_for_by_who_holds_the_lease() {
    let mut scene = yard(1, None);
    assert!(orders(&scene));
    scene.role.lease = None;
    let plan = of_launch(&scene);
    assert_eq!((plan.actions.len(), plan.waits[0].reason), (0, WaitReason::NotLeader));
}

#[test]
fn after_a_restart_a_launch_is_retried_although_a_list_shows_some_of_its_machines() {
    let mut scene = yard(2, Some(2));
    scene.see(Observation::Inventory(vec![machine("i-1").listed(MachineState::Running)]));
    assert!(orders(&scene));
}

#[test]
fn a_new_machine_its_request_agent_and_launch_are_written_in_one_transaction() {
    let mut scene = yard(1, Some(1));
    let plan = plan_with(&mut scene, &["i-1"]);
    let [Effect::Bind { launch, request, machines }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    let (instance, agent) = &machines[0];
    assert_eq!(*agent, Agent::born(&arn("i-1"), start()));
    assert_eq!(instance.life, Life::Created { run: Some("1".parse().unwrap()) });
    let claim = instance.claim.as_ref().unwrap();
    assert_eq!((claim.id.clone(), claim.request.clone()), (ClaimId::of(&id("i-1"), 1), ask("1").into()));
    assert_eq!(instance.threshold, Some(Threshold { at: at(900), set_at: start() }));
    assert_eq!((instance.trust_domain.as_str(), instance.uses, instance.version), ("owner:acme", 0, 1));
    assert_eq!((launch.after.phase, launch.after.instances.clone()), (LaunchPhase::Bound, vec![id("i-1")]));
    let status = &request.as_ref().unwrap().after.status;
    assert_eq!(
        (status.instances.clone(), status.claims[&id("i-1")].clone()),
        (vec![id("i-1")], claim.id.clone())
    );
}

#[test]
fn a_launch_whose_class_is_gone_takes_what_it_brought_and_is_over_after_the_grace() {
    let gone = |count| {
        let mut scene = yard(count, Some(count));
        scene.see(Observation::Record(crate::model::Pool::key_of(&linux()), None));
        scene
    };
    let mut scene = gone(1);
    let plan = of_launch(&scene);
    assert_eq!((plan.actions.len(), plan.waits[0].reason), (0, WaitReason::Mismatch));
    assert_eq!(plan.wake, Some(scene.now.mono + secs(600)));
    scene.wait(600);
    let plan = of_launch(&scene);
    let [Effect::Launch(step)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!(step.after.phase, LaunchPhase::Failed);
    let mut scene = gone(1);
    scene.see(Observation::Inventory(vec![machine("i-1").listed(MachineState::Running)]));
    assert_eq!(
        places(&of_launch(&scene)),
        [Place::CreatedWarm],
        "for nobody: within what it may be used is not known"
    );
}

#[test]
fn the_record_of_a_launch_names_its_machines() {
    let plan = plan_with(&mut yard(3, None), &["i-1", "i-2"]);
    let [Effect::Bind { launch, .. }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!(launch.after.message, "2 of 3: i-1, i-2");
    assert_eq!(launch.after.expires_at, Some(at(86_400).as_second()), "it is kept for a day");
}

#[test]
fn the_record_of_a_launch_that_came_short_says_why_and_not_at_any_length() {
    let mut scene = yard(3, None);
    let short = |message: &str| Shortfall { code: "Short".into(), message: message.into() };
    let bound = |scene: &mut Scene, shortfalls: Vec<Shortfall>| {
        let machines = vec![machine("i-1").listed(MachineState::Pending)];
        scene.see(Observation::Ordered("l-1".parse().unwrap(), Ok(Launched { machines, shortfalls })));
        let plan = of_launch(scene);
        let [Effect::Bind { launch, .. }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
        launch.after.message.to_string()
    };
    assert_eq!(bound(&mut scene, vec![short("x"), short("y")]), "1 of 3: i-1; Short: x; Short: y");
    assert_eq!(bound(&mut yard(3, None), vec![short(&"x".repeat(2000))]).len(), 1000);
}

#[test]
fn what_a_machine_does_not_tell_of_its_size_is_its_classs() {
    let size = |cpu, mmem| {
        let mut scene = yard(1, None);
        let mut machine = machine("i-1").listed(MachineState::Pending);
        (machine.cpu, machine.mmem) = (cpu, mmem);
        let launched = Launched { machines: vec![machine], shortfalls: vec![] };
        scene.see(Observation::Ordered("l-1".parse().unwrap(), Ok(launched)));
        let plan = of_launch(&scene);
        let [Effect::Bind { machines, .. }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
        (machines[0].0.facts.cpu, machines[0].0.facts.mmem)
    };
    assert_eq!((size(0, 0), size(8, 16_384)), ((2, 4096), (8, 16_384)));
}

#[test]
fn a_request_that_gets_nothing_new_or_lacks_nothing_is_not_written() {
    let written = |scene: &mut Scene, name: &str| {
        let plan = plan_with(scene, &[name]);
        let [Effect::Bind { request, .. }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
        request.is_some()
    };
    let mut scene = yard(1, Some(2));
    scene.put(&holding("1", 2, &["i-1"], json!({"version": 4})));
    scene.add(machine("i-1").bound(&ask("1")));
    assert!(!written(&mut scene, "i-1"), "it has that one");
    let mut scene = yard(1, Some(1));
    scene.put(&holding("1", 1, &["i-9"], json!({"version": 4})));
    scene.add(machine("i-9").running(&ask("1")));
    assert!(!written(&mut scene, "i-1"), "it has all it asked for");
}

#[test]
fn what_the_request_does_not_want_any_more_starts_warm() {
    let mut scene = yard(3, Some(2));
    let plan = plan_with(&mut scene, &["i-1", "i-2", "i-3"]);
    assert_eq!(places(&plan), [Place::CreatedBound, Place::CreatedBound, Place::CreatedWarm]);
    let [Effect::Bind { machines, .. }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    let (warm, _) = &machines[2];
    assert!(warm.claim.is_none() && warm.trust_domain.is_empty());
}

#[test]
fn where_the_request_is_gone_over_or_released_everything_starts_warm() {
    assert_eq!(places(&plan_with(&mut yard(1, None), &["i-1"])), [Place::CreatedWarm]);
    let mut scene = Scene::with(json!({}));
    scene.put(&launch("l-1", 1, Some(&ask("1"))));
    assert_eq!(places(&plan_with(&mut scene, &["i-1"])), [Place::CreatedWarm]);
    for more in [json!({"desired": "released"}), json!({"phase": "Failed"}), json!({"phase": "Releasing"})] {
        scene.put(&request("1", 1, more.clone()));
        let plan = plan_with(&mut scene, &["i-1"]);
        assert_eq!(places(&plan), [Place::CreatedWarm], "{more}");
        let [Effect::Bind { request, .. }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
        assert!(request.is_none(), "the request is left as it is: {more}");
        scene.see(Observation::Record(ask("1").into(), None));
    }
}

#[test]
fn machines_that_are_recorded_already_are_not_recorded_again() {
    let mut scene = yard(2, Some(2));
    scene.put(&holding("1", 2, &["i-1"], json!({"version": 4})));
    scene.add(machine("i-1").bound(&ask("1")));
    let plan = plan_with(&mut scene, &["i-1", "i-2"]);
    let [Effect::Bind { launch, machines, request }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!(machines.iter().map(|(i, _)| i.facts.instance_id.clone()).collect::<Vec<_>>(), [id("i-2")]);
    assert_eq!(launch.after.instances, [id("i-1"), id("i-2")]);
    assert_eq!(request.as_ref().unwrap().after.status.instances, [id("i-1"), id("i-2")]);
}

#[test]
fn a_request_that_is_being_written_is_waited_for() {
    let mut scene = yard(1, Some(1));
    scene.yard.busy.insert(ask("1").into());
    let plan = plan_with(&mut scene, &["i-1"]);
    assert_eq!((plan.actions.len(), plan.waits[0].reason), (0, WaitReason::Busy));
    assert_eq!(plan.wake, Some(scene.now.mono + std::time::Duration::from_millis(20)));
}

#[test]
fn a_certain_no_fails_the_launch_with_its_reason() {
    let none = Launched {
        machines: vec![],
        shortfalls: vec![Shortfall { code: "Short".into(), message: "x".into() }],
    };
    for (answer, told) in [
        (Err(ComputeError::NoCapacity("none left".into())), "none left"),
        (Err(ComputeError::Refused("quota".into())), "quota"),
        (Ok(none), "Short: x"),
    ] {
        let mut scene = yard(1, Some(1));
        scene.see(Observation::Ordered("l-1".parse().unwrap(), answer));
        let plan = of_launch(&scene);
        let [Effect::Launch(step)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
        assert_eq!((step.after.phase, step.after.message.as_str()), (LaunchPhase::Failed, told));
        assert_eq!(step.after.expires_at, Some(at(86_400).as_second()), "its record is kept for a day");
    }
}

#[test]
fn an_uncertain_launch_is_retried_with_its_token_and_backoff_until_the_grace_ends() {
    let mut scene = yard(1, Some(1));
    let mut orders = 0;
    for _ in 0..600 {
        let plan = of_launch(&scene);
        match effects(&plan.actions)[..] {
            [Effect::Order(order)] => {
                orders += 1;
                scene.see(Observation::Ordered(
                    order.launch.launch_id.clone(),
                    Err(ComputeError::Unknown("lost".into())),
                ));
            }
            [] => scene.wait(1),
            _ => panic!("{plan:?}"),
        }
    }
    assert!((10..40).contains(&orders), "{orders}");
    scene.wait(60);
    let plan = of_launch(&scene);
    let [Effect::Launch(step)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!(step.after.phase, LaunchPhase::Failed);
}

#[test]
fn a_launch_order_is_retried_with_backoff_and_a_standby_only_looks_at_intervals() {
    let mut scene = yard(1, Some(1));
    let lost = |scene: &mut Scene| {
        let answer = Err(ComputeError::Unknown("lost".into()));
        scene.see(Observation::Ordered("l-1".parse().unwrap(), answer));
        of_launch(scene).wake.unwrap() - scene.now.mono
    };
    let millis = std::time::Duration::from_millis;
    let pauses: Vec<_> = (0..9).map(|_| lost(&mut scene)).collect();
    let growing = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000];
    assert_eq!(pauses, growing.map(millis));
    scene.role.lease = None;
    scene.wait(40);
    let plan = of_launch(&scene);
    assert_eq!((plan.actions.len(), plan.wake), (0, Some(scene.now.mono + millis(500))));
}

#[test]
fn machines_of_a_lost_answer_are_found_by_their_tags_and_this_attempt_only() {
    let mut scene = yard(1, Some(1));
    scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(ComputeError::Unknown("lost".into()))));
    let mut old = machine("i-0").listed(MachineState::Running);
    old.attempt = 7;
    scene.see(Observation::Inventory(vec![old.clone()]));
    assert_eq!(of_launch(&scene).actions, []);
    scene.see(Observation::Inventory(vec![old, machine("i-1").listed(MachineState::Running)]));
    assert_eq!(places(&of_launch(&scene)), [Place::CreatedBound]);
}

fn listed(names: &[&str]) -> Observation {
    Observation::Inventory(names.iter().map(|name| machine(name).listed(MachineState::Running)).collect())
}

/// Creates a launch of so many machines for a request, with this one response.
fn answered_by(count: u32, error: ComputeError) -> Scene {
    let mut scene = yard(count, Some(count));
    scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(error)));
    scene
}

#[test]
fn a_spent_token_is_searched_for_a_minute_before_its_attempt_fails() {
    let mut scene = answered_by(1, ComputeError::TokenSpent("other parameters".into()));
    let mut orders = 0;
    for _ in 0..60 {
        scene.see(listed(&[]));
        let plan = of_launch(&scene);
        match effects(&plan.actions)[..] {
            [Effect::Order(_)] => {
                orders += 1;
                let again = Err(ComputeError::TokenSpent("other parameters".into()));
                scene.see(Observation::Ordered("l-1".parse().unwrap(), again));
            }
            [] => assert!(plan.wake.is_some_and(|wake| wake <= scene.now.mono + secs(30)), "{plan:?}"),
            _ => panic!("{plan:?}"),
        }
        scene.wait(1);
    }
    assert!((3..10).contains(&orders), "{orders}");
    scene.see(listed(&[]));
    let plan = of_launch(&scene);
    let [Effect::Launch(step)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!((step.after.phase, step.after.message.as_str()), (LaunchPhase::Failed, "other parameters"));
}

#[test]
fn what_a_spent_token_brought_is_adopted_when_it_is_listed() {
    let mut scene = answered_by(2, ComputeError::TokenSpent("other".into()));
    scene.wait(20);
    scene.see(listed(&["i-1", "i-2"]));
    assert_eq!(places(&of_launch(&scene)), [Place::CreatedBound, Place::CreatedBound]);
}

#[test]
fn a_spent_token_is_searched_for_a_minute_however_long_no_answer_came_before() {
    let mut scene = answered_by(1, ComputeError::Unknown("lost".into()));
    scene.wait(200);
    scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(ComputeError::TokenSpent("other".into()))));
    scene.see(listed(&[]));
    assert_eq!(of_launch(&scene).actions, []);
}

#[test]
fn where_machines_are_never_listed_a_spent_token_fails_with_the_grace() {
    let mut scene = answered_by(1, ComputeError::TokenSpent("other".into()));
    scene.role.lease = None;
    scene.wait(599);
    assert_eq!(of_launch(&scene).actions, []);
    scene.wait(1);
    let plan = of_launch(&scene);
    let [Effect::Launch(step)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!(step.after.message, "other, and no machine of this launch was found");
}

#[test]
fn a_part_of_a_launch_is_not_adopted_before_its_token_and_later_lists_told_the_rest() {
    for error in [ComputeError::Unknown("lost".into()), ComputeError::TokenSpent("other".into())] {
        let mut scene = answered_by(2, error.clone());
        scene.see(listed(&["i-1"]));
        assert_eq!(of_launch(&scene).actions, [], "{error}");
        scene.wait(1);
        assert!(orders(&scene), "the token may bring both: {error}");
        let plan = plan_with(&mut scene, &["i-1", "i-2"]);
        assert_eq!(places(&plan), [Place::CreatedBound, Place::CreatedBound]);
        // The list of a minute later is complete.
        let mut scene = answered_by(2, error.clone());
        scene.see(listed(&["i-1"]));
        scene.wait(59);
        scene.see(listed(&["i-1"]));
        assert!(orders(&scene), "{error}");
        scene.wait(1);
        assert!(orders(&scene), "that list is too old: {error}");
        scene.see(listed(&["i-1"]));
        assert_eq!(places(&of_launch(&scene)), [Place::CreatedBound], "{error}");
    }
}

#[test]
fn a_part_of_a_launch_whose_class_is_gone_is_adopted_at_the_grace() {
    let mut scene = yard(2, Some(2));
    scene.see(Observation::Record(crate::model::Pool::key_of(&linux()), None));
    scene.see(listed(&["i-1"]));
    assert_eq!(of_launch(&scene).actions, []);
    scene.wait(600);
    assert_eq!(places(&of_launch(&scene)), [Place::CreatedWarm]);
}

#[test]
fn a_finished_launch_is_left_alone_and_goes_when_its_time_is_over() {
    let mut scene = Scene::with(json!({}));
    let done =
        Launch { phase: LaunchPhase::Bound, expires_at: Some(at(60).as_second()), ..launch("l-1", 1, None) };
    scene.put(&done);
    let plan = of_launch(&scene);
    assert_eq!((plan.actions.len(), plan.wake), (0, Some(scene.now.mono + secs(60))));
    scene.wait(60);
    let key = Launch::key_of(&done.launch_id);
    assert_eq!(of_launch(&scene).actions, [Planned::expire(key, at(60).as_second())]);
}

#[test]
fn a_machine_whose_records_are_there_and_cannot_be_read_is_not_bound_over_and_over() {
    for spoilt in [crate::model::Instance::key_of(&arn("i-1")), Agent::key_of(&arn("i-1"))] {
        let mut scene = yard(2, None);
        scene.spoil(&spoilt, Some(2));
        assert_eq!(places(&plan_with(&mut scene, &["i-1", "i-2"])), [Place::CreatedWarm], "{spoilt}");
    }
}

/// Returns the result of a launch for a request with these types: its machine's place, why it ended, and whether the
/// request got it.
fn brought(request: serde_json::Value, spec: serde_json::Value, kind: &str) -> (Place, bool, usize) {
    let mut scene = Scene::with(spec);
    scene.put(&crate::testing::request("1", 1, request));
    scene.put(&launch("l-1", 1, Some(&ask("1"))));
    let machine = machine("i-1").with(|i| i.facts.instance_type = kind.into()).listed(MachineState::Pending);
    let launched = Launched { machines: vec![machine], shortfalls: vec![] };
    scene.see(Observation::Ordered("l-1".parse().unwrap(), Ok(launched)));
    let backoffs = scene.yard.class(&linux()).unwrap().offerings.len();
    let plan = of_launch(&scene);
    let [Effect::Bind { request, machines, .. }] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    let (instance, _) = &machines[0];
    if let Life::Terminated { reason, .. } = instance.life {
        assert_eq!((reason, instance.threshold), (Reason::Surplus, None));
    }
    (instance.place(), request.is_some(), backoffs)
}

#[test]
fn a_machine_of_a_type_the_request_refuses_is_not_bound_to_it() {
    let (wants, keeps) =
        (json!({"allowedInstanceTypes": ["c*"]}), json!({"allowedInstanceTypes": ["m7i.*"]}));
    assert_eq!(brought(wants.clone(), keeps.clone(), "c7i.large"), (Place::CreatedBound, true, 0));
    assert_eq!(brought(wants.clone(), keeps.clone(), "m7i.large"), (Place::CreatedWarm, false, 1));
    assert_eq!(brought(wants, keeps.clone(), "t3.micro"), (Place::Terminated, false, 1));
    assert_eq!(brought(json!({}), keeps.clone(), "m7i.large"), (Place::CreatedBound, true, 0));
    assert_eq!(brought(json!({}), keeps, "t3.micro"), (Place::Terminated, false, 1), "its class refuses it");
    assert_eq!(brought(json!({}), json!({}), "t3.micro"), (Place::CreatedBound, true, 0));
}

#[test]
fn a_provider_that_answers_nobody_is_asked_no_more_often_for_a_new_launch() {
    let unclear = || Err(ComputeError::Unknown("503".into()));
    let mut scene = yard(1, None);
    (0..5).for_each(|_| drop(scene.see(Observation::Ordered("l-1".parse().unwrap(), unclear()))));
    scene.put(&launch("l-2", 1, None));
    let of_new = |scene: &Scene| scene.judge(&Unit::Launch("l-2".parse().unwrap())).actions.len();
    assert_eq!(of_new(&scene), 1, "the first order waits for nobody");
    scene.see(Observation::Ordered("l-2".parse().unwrap(), unclear()));
    scene.wait(29);
    assert_eq!(of_new(&scene), 0, "its second comes as late as the others'");
    scene.wait(1);
    assert_eq!(of_new(&scene), 1);
    // One certain response, to any launch.
    scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(ComputeError::NoCapacity("none".into()))));
    scene.see(Observation::Ordered("l-2".parse().unwrap(), unclear()));
    scene.wait(2);
    assert_eq!(of_new(&scene), 1);
}
