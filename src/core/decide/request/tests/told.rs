//! The messages of a request while it waits, serves and returns its machines, their times, and when it is looked at
//! again.

use std::time::Duration;

use super::super::flush_returned;
use super::*;
use crate::decide::{Context, Plan};
use crate::model::{Interruption, InterruptionAction, Status};

fn of(scene: &Scene) -> Plan {
    scene.of_request("1")
}

fn message(plan: &Plan) -> String {
    answer(plan).0.after.status.message.clone()
}

fn ready(count: u32, machines: &[&str]) -> Request {
    let was = json!({"type": "Ready", "status": true, "reason": "Ready", "message": "", "at": at(-10)});
    holding("1", count, machines, json!({"phase": "Ready", "readyAt": at(-10), "conditions": [was]}))
}

#[test]
fn who_waits_is_told_how_many_run_and_start_and_when_it_fails() {
    let request = holding("1", 3, &["i-1", "i-2"], json!({"minCount": 2}));
    let plan = of(&yard(request, vec![running("i-1"), machine("i-2").claimed(&ask("1"))]));
    let told: Vec<_> = plan.waits.iter().map(|wait| wait.message.as_str()).collect();
    assert_eq!(told, ["1 of 3 running, 1 starting; fails at 2026-01-05T12:08:20Z unless 2 run"]);
    assert_eq!(plan.wake, Some(secs(10_500)), "at its deadline");
}

#[test]
fn who_is_ready_is_looked_at_when_its_maximum_runtime_is_over() {
    let mut request = ready(1, &["i-1"]);
    request.intent.max_runtime_minutes = Some(20);
    let mut scene = yard(request, vec![running("i-1")]);
    assert_eq!(of(&scene).wake, Some(secs(10_890)), "first when that is said");
    scene.wait(890);
    let actions = of(&scene).actions;
    scene.apply(&actions);
    assert_eq!(of(&scene).wake, Some(secs(11_190)));
}

/// Returns the message of condition `RuntimeEnds` of request 1.
fn ends_told(scene: &Scene) -> Option<String> {
    let status = &scene.yard.request(&ask("1")).unwrap().status;
    let ends = status.conditions.iter().find(|c| c.condition_type == ConditionType::RuntimeEnds)?;
    assert!(ends.status);
    Some(ends.message.clone())
}

/// Carries out the plans of request 1, and returns the reasons of its events.
fn steps(scene: &mut Scene) -> Vec<&'static str> {
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    actions.iter().filter_map(Planned::note).map(|note| note.reason).collect()
}

#[test]
fn that_the_maximum_runtime_is_soon_over_is_said_once_five_minutes_before() {
    // Ready for 10 s; for a maximum runtime of 10 min or less the warning is written at half of it.
    for (minutes, said) in [(360, 21_290), (11, 350), (10, 290), (5, 140), (1, 20)] {
        let mut request = ready(1, &["i-1"]);
        request.intent.max_runtime_minutes = Some(minutes);
        let mut scene = yard(request, vec![running("i-1")]);
        scene.wait(said - 1);
        assert_eq!((steps(&mut scene), ends_told(&scene)), (vec![], None), "{minutes}");
        scene.wait(1);
        assert_eq!(steps(&mut scene), ["RuntimeEnds"], "{minutes}");
        let end = at(-10 + 60 * minutes as i64);
        assert_eq!(ends_told(&scene), Some(format!("its maximum runtime is over at {end}")));
        assert_eq!(steps(&mut scene), Vec::<&str>::new(), "once");
    }
}

#[test]
fn an_end_that_is_moved_on_is_said_again_before_the_new_one() {
    let mut scene = yard(ready(1, &["i-1"]), vec![running("i-1")]);
    scene.pool(2, json!({"maxRuntimeMinutes": 10}));
    scene.wait(400);
    assert_eq!(steps(&mut scene), ["RuntimeEnds"]);
    scene.pool(3, json!({"maxRuntimeMinutes": 20}));
    assert_eq!((steps(&mut scene), ends_told(&scene)), (vec!["RuntimeMoved"], None));
    scene.wait(500);
    assert_eq!(steps(&mut scene), ["RuntimeEnds"]);
}

#[test]
fn only_what_is_pending_becomes_fulfilling_by_a_launch() {
    let mut scene = yard(request("1", 2, json!({"phase": "Fulfilling"})), vec![]);
    scene.put(&launch("l-1", 2, Some(&ask("1"))));
    assert_eq!(of(&scene).actions, []);
    scene.put(&request("1", 2, json!({"version": 4})));
    assert_eq!(message(&of(&scene)), "2 machines are being launched");
}

#[test]
fn a_loss_is_told_by_name_with_its_reason_and_recovered_only_with_the_whole_number() {
    let mut scene = yard(ready(2, &["i-1", "i-2"]), vec![running("i-1"), running("i-2")]);
    scene.add(running("i-1").ended(Reason::Vanished).with(|i| i.version = 6));
    assert_eq!(message(&of(&scene)), "lost i-1 (vanished); to be replaced");
    let actions = of(&scene).actions;
    scene.apply(&actions);
    scene.add(machine("i-9").pooled());
    let actions = scene.served();
    scene.apply(&actions);
    assert_eq!(of(&scene).actions, [], "its replacement does not run yet");
    let mut replacement = scene.yard.instance(&arn("i-9")).unwrap().instance.clone();
    replacement.life = crate::model::Life::Running { run: "1".parse().unwrap() };
    replacement.version += 1;
    scene.put(&replacement);
    assert_eq!(message(&of(&scene)), "2 machines are running again");
}

#[test]
fn a_machine_that_ec2_will_take_is_told_before_it_is_lost() {
    let notice = Interruption { action: InterruptionAction::Terminate, at: at(120) };
    let noticed = || running("i-1").agent(|agent| agent.interruption = Some(notice.clone()));
    let mut scene = yard(ready(2, &["i-1", "i-2"]), vec![noticed(), running("i-2")]);
    assert_eq!(message(&of(&scene)), "EC2 takes i-1 back at 2026-01-05T12:02:00Z; to be replaced");
    let (step, _) = answer(&of(&scene));
    assert_eq!(degraded(&step.after), Some((true, "interrupted".into())));
    let actions = of(&scene).actions;
    scene.apply(&actions);
    assert_eq!(of(&scene).actions, [], "said once, and not over while it stands");
}

#[test]
fn what_one_machine_was_lost_for_is_told_until_it_is_made_up_for() {
    let mut scene = yard(ready(2, &["i-1", "i-2"]), vec![running("i-1"), running("i-2")]);
    scene.add(running("i-1").ended(Reason::Interrupted).with(|i| i.version = 6));
    let actions = of(&scene).actions;
    scene.apply(&actions);
    scene.add(running("i-2").ended(Reason::Vanished).with(|i| i.version = 6));
    scene.add(machine("i-9").pooled());
    let actions = scene.served();
    scene.apply(&actions);
    let request = scene.yard.request(&ask("1")).unwrap();
    assert_eq!(degraded(request), Some((true, "interrupted".into())), "the first");
}

#[test]
fn one_that_was_not_ready_yet_is_not_degraded_by_a_loss() {
    let mut scene = yard(holding("1", 2, &["i-1"], json!({})), vec![running("i-1")]);
    scene.add(running("i-1").ended(Reason::Vanished).with(|i| i.version = 6));
    scene.add(machine("i-9").pooled());
    let actions = scene.served();
    scene.apply(&actions);
    assert_eq!(degraded(scene.yard.request(&ask("1")).unwrap()), None);
}

#[test]
fn a_release_counts_what_it_lists_and_what_it_gave_up_before() {
    let mut request = holding("1", 2, &["i-1", "i-2"], json!({"desired": "released"}));
    request.status.instances = vec![id("i-1")];
    let cleaned = machine("i-2").cleaning(&ask("1")).with(|i| i.version = 6);
    let scene = yard(request, vec![running("i-1"), cleaned]);
    assert_eq!(message(&of(&scene)), "released; waiting for 2 machines to be cleaned");
    let scene = yard(request_with_nothing_out(), vec![]);
    assert_eq!(message(&of(&scene)), "released; 2 machines given back");
}

fn request_with_nothing_out() -> Request {
    let mut request = holding("1", 2, &["i-1", "i-2"], json!({"desired": "released"}));
    request.status.instances.clear();
    request
}

/// Creates two machines of a request of this phase, one of them returned; the request was written 400 ms ago.
fn half_back(phase: &str) -> Scene {
    let more = json!({"phase": phase, "message": "as it was", "updatedAt": start()});
    let back = machine("i-1").pooled().with(|i| (i.version, i.claim) = (7, running("i-1").instance.claim));
    let mut scene = yard(holding("1", 2, &["i-1", "i-2"], more), vec![back, running("i-2")]);
    let pause = Duration::from_millis(400);
    scene.now.wall = scene.now.wall.saturating_add(jiff::SignedDuration::from_millis(400)).unwrap();
    (scene.now.mono, scene.now.seen) = (scene.now.mono + pause, scene.now.seen + pause);
    scene
}

#[test]
fn its_list_is_brought_up_to_date_once_a_second() {
    let mut scene = half_back("Releasing");
    let plan = of(&scene);
    assert_eq!((plan.actions.len(), plan.wake), (0, Some(scene.now.mono + Duration::from_millis(600))));
    let told: Vec<_> = plan.waits.iter().map(|wait| wait.message.as_str()).collect();
    assert_eq!(told, ["1 machine is being given back"]);
    scene.wait(1);
    assert_eq!(message(&of(&scene)), "1 machine given back, waiting for 1");
    let mut failed = half_back("Failed");
    failed.wait(1);
    assert_eq!(message(&of(&failed)), "as it was", "why it failed stays");
}

#[test]
fn one_that_is_over_is_looked_at_when_its_time_is_over() {
    let more = json!({"phase": "Failed", "expiresAt": at(60).as_second()});
    assert_eq!(of(&yard(request("1", 1, more), vec![])).wake, Some(secs(10_060)));
}

#[test]
fn a_request_lets_go_of_what_is_back_unless_it_holds_nothing_and_ends_anyway() {
    let lets_go = |more: serde_json::Value, second: Built| {
        let back =
            machine("i-1").pooled().with(|i| (i.version, i.claim) = (7, running("i-1").instance.claim));
        let scene = yard(holding("1", 2, &["i-1", "i-2"], more), vec![back, second]);
        let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
        flush_returned(&cx, &ask("1")).map(|action| action.describe())
    };
    let also_back =
        || machine("i-2").pooled().with(|i| (i.version, i.claim) = (7, running("i-2").instance.claim));
    let told = |phase: &str, n| {
        let back = super::super::machines(n);
        Some(format!("request acme/web run 1/default/1: {phase} -> {phase}: {back} given back"))
    };
    assert_eq!(lets_go(json!({"phase": "Releasing"}), running("i-2")), told("Releasing", 1));
    assert_eq!(
        lets_go(json!({"phase": "Releasing"}), also_back()),
        None,
        "its own next step empties its list"
    );
    assert_eq!(lets_go(json!({}), running("i-2")), told("Fulfilling", 1));
    assert_eq!(lets_go(json!({}), also_back()), told("Fulfilling", 2));
    let scene = yard(holding("1", 1, &["i-2"], json!({})), vec![running("i-2")]);
    let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
    assert!(flush_returned(&cx, &ask("1")).is_none(), "nothing is back");
}

#[test]
fn a_condition_is_told_once_with_the_time_since_when_it_is_so() {
    let mut status = Status::default();
    let mut set = |kind, is, seconds| {
        status.set_condition(kind, is, "Because", String::new(), at(seconds));
        let told = |c: &crate::model::Condition| (c.condition_type, c.status, c.at);
        status.conditions.iter().map(told).collect::<Vec<_>>()
    };
    let (ready, degraded) = (ConditionType::Ready, ConditionType::Degraded);
    assert_eq!(set(ready, true, 0), [(ready, true, at(0))]);
    assert_eq!(set(ready, true, 1), [(ready, true, at(0))]);
    assert_eq!(set(degraded, true, 2), [(ready, true, at(0)), (degraded, true, at(2))]);
    assert_eq!(set(ready, false, 3), [(degraded, true, at(2)), (ready, false, at(3))]);
}

#[test]
fn a_new_request_is_told_what_it_waits_for() {
    let mut scene = Scene::with(json!({}));
    scene.put(&new(json!({"count": 2})));
    let actions = scene.served();
    let [Effect::Request(step)] = effects(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(step.after.status.message, "waiting for 2 machines of class linux");
    assert_eq!(note(&actions).message, "2 machines of class linux");
}
