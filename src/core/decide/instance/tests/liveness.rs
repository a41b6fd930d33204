use super::*;

#[test]
fn old_good_news_is_not_believed_where_silence_cannot_be_judged() {
    let request = ask("1");
    // It never sent a heartbeat: it may still boot.
    let bound = machine("i-1").bound(&request).says(Signal::RegOk).agent(|agent| agent.heartbeat_seq = 0);
    let mut scene = yard(bound.until(1000));
    scene.wait(61);
    assert_eq!(scene.of_machine("i-1").actions, []);
    // Its record cannot be read any more.
    let mut scene = yard(machine("i-1").cleaning(&request).says(Signal::RemoveRegOk).until(1000));
    scene.spoil(&Agent::key_of(&arn("i-1")), Some(2));
    scene.wait(61);
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn a_silent_agent_is_looked_at_strongly_before_its_machine_ends_on_that_very_beat() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(5000));
    scene.wait(61);
    let key = Agent::key_of(&arn("i-1"));
    assert_eq!(scene.of_machine("i-1").actions, [Planned::look(key.clone())]);
    let agent = scene.yard.instance(&arn("i-1")).unwrap().agent.clone().unwrap();
    scene.look(key, Some(agent.to_item()));
    let plan = scene.of_machine("i-1");
    let [Effect::Silence(step, seq)] = effects(&plan.actions)[..] else { panic!("{plan:?}") };
    assert_eq!(*seq, 7);
    let told = plan.actions[0].describe();
    assert!(told.ends_with("its agent has not spoken for 61 s"), "{told}");
    assert_eq!(step.after.life, Life::Terminated { reason: Reason::Unhealthy, gone_at: None });
    assert_eq!((step.after.threshold, step.after.state_since), (None, at(61)));
}

#[test]
fn a_beat_found_by_that_look_lets_the_machine_live() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(5000));
    scene.wait(61);
    let mut agent = scene.yard.instance(&arn("i-1")).unwrap().agent.clone().unwrap();
    agent.heartbeat_seq += 1;
    scene.look(Agent::key_of(&arn("i-1")), Some(agent.to_item()));
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn time_in_which_the_table_could_not_be_read_does_not_age_a_beat() {
    let mut scene = yard(machine("i-1").running(&ask("1")).until(5000));
    let seen = scene.now.seen;
    scene.wait(600);
    scene.now.seen = seen + secs(60);
    assert_eq!(scene.of_machine("i-1").actions, []);
}

#[test]
fn an_agent_that_never_spoke_has_until_the_boot_deadline() {
    for built in [machine("i-1"), machine("i-1").bound(&ask("1"))] {
        let mut scene = yard(built.agent(|agent| agent.heartbeat_seq = 0));
        scene.wait(299);
        assert_eq!(scene.of_machine("i-1").actions, []);
        scene.wait(1);
        assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Threshold));
    }
}

#[test]
fn a_machine_whose_agent_record_is_gone_is_looked_at_once_and_ends() {
    for built in [machine("i-1").running(&ask("1")), machine("i-1").pooled()] {
        let mut built = built;
        built.agent = None;
        let mut scene = yard(built);
        let key = Agent::key_of(&arn("i-1"));
        assert_eq!(scene.of_machine("i-1").actions, [Planned::look(key.clone())]);
        scene.look(key, None);
        assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Unhealthy));
    }
}

#[test]
fn an_unreadable_agent_record_is_left_to_the_deadline_and_not_read_in_a_loop() {
    for schema in [None, Some(2)] {
        let mut built = machine("i-1").running(&ask("1"));
        built.agent = None;
        let mut scene = yard(built);
        scene.spoil(&Agent::key_of(&arn("i-1")), schema);
        assert_eq!(scene.of_machine("i-1").actions, []);
        scene.wait(300);
        assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Threshold));
    }
}

#[test]
fn a_machine_missing_from_the_list_is_described_once_it_is_older_than_the_grace() {
    for (age, asks) in [(599, false), (600, true)] {
        let mut scene = yard(machine("i-1").running(&ask("1")).with(|i| i.facts.created_at = at(-age)));
        let dirty = scene.see(Observation::Inventory(Vec::new()));
        assert!(dirty.contains(&crate::yard::Unit::Instance(arn("i-1"))));
        let asked = scene.of_machine("i-1").actions.contains(&Planned::describe_machine(arn("i-1")));
        assert_eq!(asked, asks, "{age} s old");
        scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
        assert_eq!(scene.of_machine("i-1").actions, [], "it is there after all");
    }
}

#[test]
fn a_machine_that_lists_miss_again_and_again_is_asked_for_every_half_minute() {
    let mut scene = yard(machine("i-1").running(&ask("1")).with(|i| i.facts.created_at = at(-600)));
    scene.policy.timing.stale = secs(8000);
    let asked = |scene: &mut Scene| {
        scene.see(Observation::Inventory(Vec::new()));
        scene.of_machine("i-1").actions.contains(&Planned::describe_machine(arn("i-1")))
    };
    assert!(asked(&mut scene));
    scene.see(Observation::Stands(arn("i-1"), Some(MachineState::Running)));
    assert!(!asked(&mut scene), "it was asked for this moment");
    scene.wait(29);
    assert!(!asked(&mut scene));
    scene.wait(1);
    assert!(asked(&mut scene));
    scene.policy.inventory = false;
    assert!(!asked(&mut scene), "a provider without an inventory");
}

#[test]
fn a_machine_that_changed_at_ec2_is_asked_for_by_name_where_there_is_an_inventory() {
    let mut scene = yard(machine("i-1").running(&ask("1")));
    let news = crate::model::Notice { instance: id("i-1"), news: crate::model::News::Changed };
    scene.see(Observation::Notice(news));
    assert_eq!(scene.of_machine("i-1").actions, [Planned::describe_machine(arn("i-1"))]);
    scene.policy.inventory = false;
    assert_eq!(scene.of_machine("i-1").actions, []);
}

/// Creates ten machines older than the grace; the list shows all but the first `n`.
fn list_lacks(n: usize) -> Scene {
    let mut scene = Scene::with(serde_json::json!({"max": 20}));
    let machines: Vec<Built> = (0..10)
        .map(|i| machine(&format!("i-{i}")).pooled().with(|i| i.facts.created_at = at(-1000)))
        .collect();
    machines.iter().for_each(|built| drop(scene.add(built.clone())));
    let listed = machines.iter().skip(n).map(|built| built.listed(MachineState::Running)).collect();
    scene.see(Observation::Inventory(listed));
    scene
}

#[test]
fn a_list_that_lacks_more_than_three_and_a_third_of_a_class_is_not_believed() {
    assert_eq!(list_lacks(3).of_machine("i-0").actions, [Planned::describe_machine(arn("i-0"))]);
    let scene = list_lacks(4);
    for i in 0..10 {
        let plan = scene.of_machine(&format!("i-{i}"));
        assert!(!plan.actions.contains(&Planned::describe_machine(arn(&format!("i-{i}")))), "{plan:?}");
    }
    let waits = scene.of_class().waits;
    assert!(waits.iter().any(|wait| wait.reason == super::super::WaitReason::Doubt), "{waits:?}");
}

#[test]
fn young_machines_that_no_list_shows_yet_do_not_make_it_unbelievable() {
    let mut scene = Scene::with(serde_json::json!({"max": 20}));
    for i in 1..10 {
        scene.add(machine(&format!("i-{i}")).pooled());
    }
    scene.add(machine("i-0").pooled().with(|i| i.facts.created_at = at(-1000)));
    scene.see(Observation::Inventory(Vec::new()));
    assert_eq!(scene.of_machine("i-0").actions, [Planned::describe_machine(arn("i-0"))]);
}
