use super::*;
use crate::decide::Plan;

fn young(reason: Reason) -> Scene {
    yard(machine("i-1").ended(reason).with(|i| i.state_since = start()))
}

fn reads(plan: &Plan) -> bool {
    plan.actions.contains(&Planned::console(arn("i-1")))
}

/// Expects one read, at once or when it is due, and returns this line.
fn look(scene: &mut Scene, line: Option<&str>) {
    scene.see(Observation::Ended(arn("i-1")));
    if !reads(&scene.of_machine("i-1")) {
        let wait = (scene.of_machine("i-1").wake.unwrap() - scene.now.mono).as_secs();
        scene.wait(wait + 1);
    }
    for _ in 0..30 {
        if reads(&scene.of_machine("i-1")) {
            scene.see(Observation::Console(arn("i-1"), line.map(str::to_owned)));
            return;
        }
        scene.wait(15);
    }
    panic!("nobody looks");
}

#[test]
fn a_console_is_read_until_it_says_why_the_machine_ended() {
    let mut scene = young(Reason::BootFailed);
    let plan = scene.of_machine("i-1");
    assert!(reads(&plan) && plan.actions.contains(&Planned::terminate(arn("i-1"))), "{plan:?}");
    look(&mut scene, None);
    assert!(!reads(&scene.of_machine("i-1")), "not again at once");
    look(&mut scene, Some("first boot installs the agent"));
    assert_eq!(scene.yard.instance(&arn("i-1")).unwrap().instance.console, None, "more may come");
    look(&mut scene, Some("powers off: no route to DynamoDB"));
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::ShuttingDown)));
    let plan = scene.of_machine("i-1");
    let (step, note) = write(&plan);
    assert_eq!(step.after.console.as_deref(), Some("powers off: no route to DynamoDB"));
    assert_eq!(note.reason, "ConsoleRead");
    assert!(note.message.contains("no route to DynamoDB"), "{note:?}");
    scene.apply(&plan.actions);
    scene.wait(100);
    assert!(!reads(&scene.of_machine("i-1")), "it is known");
    let told = crate::explain::machine(&scene.yard, &arn("i-1")).unwrap();
    assert!(told.contains("no route to DynamoDB"), "{told}");
}

#[test]
fn a_line_that_says_no_reason_is_kept_when_no_other_comes() {
    let mut scene = young(Reason::Vanished);
    look(&mut scene, Some("first boot installs the agent"));
    scene.wait(1300);
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::ShuttingDown)));
    scene.see(Observation::Ended(arn("i-1")));
    let (step, _) = write(&scene.of_machine("i-1"));
    assert_eq!(step.after.console.as_deref(), Some("first boot installs the agent"));
}

#[test]
fn a_console_that_stays_empty_is_given_up() {
    let mut scene = young(Reason::Vanished);
    let mut looks = 0;
    for _ in 0..400 {
        if reads(&scene.of_machine("i-1")) {
            looks += 1;
            scene.see(Observation::Console(arn("i-1"), None));
        }
        scene.wait(5);
    }
    assert!((4..=7).contains(&looks), "{looks}");
}

#[test]
fn only_machines_that_ended_before_they_were_of_use_are_looked_at() {
    use Reason::*;
    for (reason, wanted) in [
        (BootFailed, true),
        (RegistrationFailed, true),
        (Unhealthy, true),
        (Vanished, true),
        (CleanupFailed, false),
        (Interrupted, false),
        (Drifted, false),
        (Surplus, false),
        (MaxUses, false),
        (MaxAge, false),
        (Expired, false),
        (Orphan, false),
    ] {
        assert_eq!(reads(&young(reason).of_machine("i-1")), wanted, "{reason}");
    }
    let used = machine("i-1").ended(Reason::Vanished).with(|i| (i.state_since, i.uses) = (start(), 1));
    assert!(!reads(&yard(used).of_machine("i-1")));
    // By its deadline: a machine that never reported its boot, and not one that was free for long enough.
    let expired = |built: Built| yard(built.with(|i| i.state_since = start())).of_machine("i-1");
    assert!(reads(&expired(machine("i-1").ended(Reason::Threshold))));
    let pooled = machine("i-1").says_for(Signal::Ok, "").ended(Reason::Threshold);
    assert!(!reads(&expired(pooled.with(|i| i.public_key = Some("key".into())))));
}

#[test]
fn only_the_leader_reads_consoles_and_only_where_there_are_any() {
    assert!(Planned::console(arn("i-1")).leader_only);
    let mut scene = young(Reason::BootFailed);
    scene.policy.inventory = false;
    assert!(!reads(&scene.of_machine("i-1")));
}

#[test]
fn the_last_line_of_a_console_stands_in_why_launches_are_held_back() {
    let mut scene = Scene::with(serde_json::json!({"desired": 1}));
    for name in ["i-1", "i-2", "i-3", "i-4"] {
        scene.add(machine(name));
        let dead = machine(name).ended(Reason::BootFailed).with(|i| i.version = 6);
        scene.put(&dead.instance);
        scene.put(&dead.with(|i| (i.version, i.console) = (7, Some("powers off: no nft".into()))).instance);
    }
    let told = scene.of_class().waits.iter().map(|wait| wait.message.clone()).collect::<String>();
    assert!(told.contains("held back") && told.contains("i-4: powers off: no nft"), "{told}");
    // A machine that is of use ends it.
    scene.add(machine("i-5"));
    let good = machine("i-5").pooled().with(|i| i.version = 6);
    scene.put(&good.instance);
    assert_eq!(scene.yard.class(&linux()).unwrap().last_console, None);
}
