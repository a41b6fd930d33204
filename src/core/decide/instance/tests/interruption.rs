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
        (one(), InterruptionAction::Rebalance, 0, false),
        (one().pooled(), terminate, 120, true),
        (one().pooled(), stop, 120, true),
        (one().pooled(), InterruptionAction::Rebalance, 0, false),
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
}

#[test]
fn a_risk_ends_free_and_clean_machines_at_once_only_where_it_is_to() {
    let request = ask("1");
    let risk = |built: Built| {
        let notice = Interruption { action: InterruptionAction::Rebalance, at: at(0) };
        built.agent(|agent| agent.interruption = Some(notice))
    };
    let clean = || machine("i-1").cleaning(&request).says(Signal::RemoveRegOk);
    for (rebalance, built, ends_now) in [
        (Rebalance::End, machine("i-1"), true),
        (Rebalance::End, machine("i-1").pooled(), true),
        (Rebalance::End, clean(), true),
        (Rebalance::End, machine("i-1").running(&request), false),
        (Rebalance::Last, clean(), false),
        (Rebalance::Ignore, machine("i-1").pooled(), false),
        (Rebalance::Ignore, clean(), false),
    ] {
        let place = built.instance.place();
        let mut scene = yard(risk(built));
        scene.policy.rebalance = rebalance;
        let expected = ends_now.then_some(Reason::Interrupted);
        assert_eq!(ends(&scene.of_machine("i-1")), expected, "{place:?} {rebalance}");
    }
}

/// Creates idle machines `i-0`, `i-1`, … of a class that wants so many; the first `risky` of them are at risk.
fn at_risk(desired: u32, max: u32, machines: usize, risky: usize) -> Scene {
    let mut scene = Scene::with(serde_json::json!({"desired": desired, "max": max}));
    for n in 0..machines {
        let notice = Interruption { action: InterruptionAction::Rebalance, at: at(0) };
        let told = (n < risky).then_some(notice);
        scene.add(machine(&format!("i-{n}")).pooled().agent(|agent| agent.interruption = told));
        scene.see(Observation::Announced(arn(&format!("i-{n}"))));
    }
    scene
}

fn end(scene: &Scene, machines: usize) -> Vec<bool> {
    let ended = |n| ends(&scene.of_machine(&format!("i-{n}"))) == Some(Reason::Interrupted);
    (0..machines).map(ended).collect()
}

#[test]
fn a_machine_at_risk_goes_when_its_replacement_is_idle() {
    let mut scene = at_risk(1, 5, 1, 1);
    assert_eq!((end(&scene, 1), scene.intents()), (vec![false], vec![(1, None)]));
    let plan = scene.of_machine("i-0");
    assert!(plan.waits.iter().any(|wait| wait.message.contains("EC2 expects to take it back")), "{plan:?}");
    scene.add(machine("i-9").pooled());
    assert_eq!((end(&scene, 1), scene.intents()), (vec![true], vec![]));
    scene.policy.rebalance = Rebalance::Ignore;
    assert_eq!(end(&scene, 1), [false]);
    assert_eq!(end(&at_risk(0, 5, 1, 1), 1), [false], "nothing replaces it");
    assert_eq!(end(&at_risk(1, 5, 3, 2), 3), [true, false, false], "one at a time");
    assert_eq!(end(&at_risk(2, 2, 2, 2), 2), [true, false], "no room for its replacement beside it");
}

#[test]
fn a_risk_that_the_queue_tells_counts_as_one_that_the_agent_tells() {
    let mut scene = at_risk(1, 5, 2, 0);
    assert_eq!(end(&scene, 2), [false, false]);
    let interruption = Interruption { action: InterruptionAction::Rebalance, at: at(0) };
    let news = crate::model::News::Interruption(interruption);
    scene.see(Observation::Notice(crate::model::Notice { instance: id("i-1"), news }));
    assert_eq!(end(&scene, 2), [false, true]);
    let request = request("1", 1, serde_json::json!({}));
    scene.put(&request);
    assert_eq!(scene.claims(), [("1".to_owned(), vec!["i-0".to_owned()])], "claims avoid it");
}

#[test]
fn a_notice_that_has_passed_does_not_wake_the_operator_again_and_again() {
    let notice = Interruption { action: InterruptionAction::Rebalance, at: at(-5) };
    let scene = yard(machine("i-1").running(&ask("1")).agent(|agent| agent.interruption = Some(notice)));
    let wake = scene.of_machine("i-1").wake.unwrap();
    assert!(wake >= scene.now.mono + secs(30), "{wake:?}");
}
