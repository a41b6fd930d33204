//! When is a machine looked at again although nothing about it changed?

use super::*;

/// Returns the seconds from now until it is looked at again, with milliseconds.
fn looks_in(scene: &Scene) -> f64 {
    let wake = scene.of_machine("i-1").wake.unwrap();
    (wake.as_millis() as f64 - scene.now.mono.as_millis() as f64) / 1000.0
}

/// Creates a machine held by request 1, with nothing due for hours except for the given state.
fn calm(built: Built) -> Scene {
    let mut scene = yard(built.until(9000));
    scene.policy.timing.stale = secs(8000);
    scene
}

#[test]
fn at_its_deadline() {
    let scene = calm(machine("i-1").running(&ask("1")).until(9000));
    let mut near = scene.clone();
    near.add(machine("i-1").running(&ask("1")).until(40).with(|i| i.version = 6));
    assert_eq!(looks_in(&near), 40.0);
}

#[test]
fn when_its_agent_has_been_silent_for_too_long_if_it_ever_spoke() {
    let mut scene = calm(machine("i-1").running(&ask("1")));
    scene.policy.timing.stale = secs(60);
    scene.wait(20);
    assert_eq!(looks_in(&scene), 40.001);
    let never = calm(machine("i-1").bound(&ask("1")).agent(|agent| agent.heartbeat_seq = 0));
    let mut never = never;
    never.policy.timing.stale = secs(60);
    assert_eq!(looks_in(&never), 9000.0, "one that never spoke has until its deadline");
}

#[test]
fn one_whose_silent_agent_cannot_be_read_is_left_to_its_deadline_without_a_loop() {
    let mut scene = calm(machine("i-1").running(&ask("1")));
    scene.policy.timing.stale = secs(60);
    scene.wait(61);
    scene.spoil(&Agent::key_of(&arn("i-1")), None);
    assert_eq!(looks_in(&scene), 8939.0);
}

#[test]
fn shortly_before_ec2_takes_it_and_not_again_after() {
    let noticed = |seconds| {
        let notice = Interruption { action: InterruptionAction::Rebalance, at: at(seconds) };
        calm(machine("i-1").running(&ask("1")).agent(|agent| agent.interruption = Some(notice)))
    };
    assert_eq!(looks_in(&noticed(40)), 15.0, "25 s before");
    assert_eq!(looks_in(&noticed(25)), 8000.001, "that moment is now");
    assert_eq!(looks_in(&noticed(20)), 8000.001);
}

#[test]
fn when_what_registers_or_removes_its_runner_runs_out() {
    let boxed = |seconds| Some(Registration { sealed: "box".into(), expires_at: Some(at(seconds)) });
    let registers = |n| calm(machine("i-1").claimed(&ask("1")).with(|i| i.registration = boxed(n)));
    let removes = |n| calm(machine("i-1").cleaning(&ask("1")).with(|i| i.removal = boxed(n)));
    assert_eq!((looks_in(&registers(20)), looks_in(&removes(30))), (20.0, 30.0));
    let (registers_early, written_lately) = (looks_in(&registers(600)), looks_in(&removes(450)));
    assert_eq!((registers_early, written_lately), (300.0, 200.0), "five minutes before, and after the last");
    for over in [0, -10] {
        assert_eq!((looks_in(&registers(over)), looks_in(&removes(over))), (8000.001, 8000.001));
    }
}

#[test]
fn when_a_quarter_of_its_time_is_left_while_github_is_away() {
    let waits = |at_, set_at| {
        let threshold = Some(Threshold { at: at(at_), set_at: at(set_at) });
        let mut scene = calm(machine("i-1").claimed(&ask("1")));
        scene.add(machine("i-1").claimed(&ask("1")).with(|i| (i.threshold, i.version) = (threshold, 6)));
        scene.policy.github = true;
        scene.see(Observation::GitHub(arn("i-1"), false));
        scene
    };
    assert_eq!(looks_in(&waits(200, -200)), 100.0);
    assert_eq!(looks_in(&waits(10, -90)), 0.1, "less is left: it is being moved on");
}
