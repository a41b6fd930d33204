use super::*;

#[test]
fn a_notice_ends_an_idle_machine_at_once_and_a_busy_or_cleaning_one_in_time() {
    let notice = |built: Built, action, seconds| {
        built.agent(|agent| agent.interruption = Some(Interruption { action, at: at(seconds) }))
    };
    let (terminate, stop) = (InterruptionAction::Terminate, InterruptionAction::Stop);
    let request = ask("1");
    let one = || machine("i-1");
    for (built, action, seconds, ends_now) in [
        (one(), terminate, 120, true),
        (one(), InterruptionAction::Rebalance, 0, true),
        (one().pooled(), terminate, 120, true),
        (one().pooled(), stop, 120, true),
        (one().pooled(), InterruptionAction::Rebalance, 0, true),
        (one().running(&request), terminate, 26, false),
        (one().running(&request), terminate, 25, true),
        (one().running(&request), stop, 0, true),
        (one().claimed(&request), stop, 120, true),
        (one().bound(&request), terminate, 120, true),
        (one().claimed(&request), InterruptionAction::Rebalance, 0, false),
        (one().claimed(&request).says(Signal::RegOk), terminate, 25, true),
        (one().running(&request), InterruptionAction::Rebalance, 0, false),
        (one().cleaning(&request), terminate, 26, false),
        (one().cleaning(&request), terminate, 25, true),
        (one().cleaning(&request), InterruptionAction::Rebalance, 0, false),
    ] {
        let place = built.instance.place();
        let scene = yard(notice(built, action, seconds));
        let expected = ends_now.then_some(Reason::Interrupted);
        assert_eq!(ends(&scene.of_machine("i-1")), expected, "{place:?} {action} at {seconds}");
    }
    let clean = one().cleaning(&request).says(Signal::RemoveRegOk);
    let scene = yard(notice(clean, InterruptionAction::Rebalance, 0));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Interrupted));
}

#[test]
fn a_notice_that_has_passed_does_not_wake_the_operator_again_and_again() {
    let notice = Interruption { action: InterruptionAction::Rebalance, at: at(-5) };
    let scene = yard(machine("i-1").running(&ask("1")).agent(|agent| agent.interruption = Some(notice)));
    let wake = scene.of_machine("i-1").wake.unwrap();
    assert!(wake >= scene.now.mono + secs(30), "{wake:?}");
}
