use super::*;

#[test]
fn a_machine_whose_runner_listens_runs_until_the_maximum_and_keeps_its_claim() {
    for built in [machine("i-1").bound(&ask("1")), machine("i-1").claimed(&ask("1"))] {
        let box_ = Registration { sealed: "box".into(), expires_at: None };
        let built = built.with(|i| i.registration = Some(box_)).says(Signal::RegOk);
        let scene =
            held(built.with(|i| i.registration_failures = 1), serde_json::json!({"maxRuntimeMinutes": 5}));
        becomes(&scene, |next| {
            next.life = Life::Running { run: "1".parse().unwrap() };
            next.threshold = renewed(300 + 180);
            next.state_since = start();
            next.uses = 1;
            next.registration = None;
        });
    }
}

#[test]
fn a_warm_machine_that_booted_enters_the_pool_in_that_very_write() {
    let scene = yard(machine("i-1").says_for(Signal::Ok, ""));
    becomes(&scene, |next| {
        next.life = Life::Idle { pooled_at: Some(start()) };
        next.threshold = renewed(1800);
        next.state_since = start();
    });
}

#[test]
fn the_first_key_an_agent_shows_is_written_with_the_next_change() {
    let scene = yard(machine("i-1").says_for(Signal::Ok, "").agent(|a| a.public_key = Some("key".into())));
    assert_eq!(write(&scene.of_machine("i-1")).0.after.public_key.as_deref(), Some("key"));
}

#[test]
fn what_its_agent_says_of_a_failure_is_told_with_it_and_not_at_any_length() {
    let told = |detail: Option<String>| {
        let built = machine("i-1").says_for(Signal::Failed, "").agent(|agent| agent.signal_detail = detail);
        write(&yard(built).of_machine("i-1")).1.message.to_string()
    };
    assert_eq!(told(Some("no disk".into())), "first boot failed: no disk");
    assert_eq!(told(Some(String::new())), "first boot failed");
    assert_eq!(told(None), "first boot failed");
    assert_eq!(told(Some("ä".repeat(900))), format!("first boot failed: {}", "ä".repeat(500)));
}

#[test]
fn a_first_failed_registration_cleans_the_machine_and_a_second_in_a_row_ends_it() {
    let scene = yard(machine("i-1").claimed(&ask("1")).says(Signal::RegFailed));
    becomes(&scene, |next| {
        next.life = Life::Idle { pooled_at: None };
        next.threshold = renewed(240);
        next.state_since = start();
        next.registration_failures = 1;
    });
    let again = machine("i-1").claimed(&ask("1")).with(|i| i.registration_failures = 1);
    let scene = yard(again.says(Signal::RegFailed));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::RegistrationFailed));
}

#[test]
fn a_new_machine_that_cannot_register_ends_at_once() {
    let scene = yard(machine("i-1").bound(&ask("1")).says(Signal::RegFailed));
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::RegistrationFailed));
}

#[test]
fn good_news_of_a_silent_agent_is_not_believed() {
    let request = ask("1");
    for built in [
        machine("i-1").says_for(Signal::Ok, ""),
        machine("i-1").bound(&request).says(Signal::RegOk),
        machine("i-1").claimed(&request).says(Signal::RegOk),
        machine("i-1").cleaning(&request).says(Signal::RemoveRegOk),
    ] {
        let mut scene = yard(built.until(1000));
        scene.wait(60);
        assert!(
            matches!(effects(&scene.of_machine("i-1").actions)[..], [Effect::Instance(..)]),
            "at 60 s it is"
        );
        scene.wait(1);
        assert!(
            matches!(effects(&scene.of_machine("i-1").actions)[..], [Effect::Look(_)]),
            "after 60 s it is not"
        );
    }
}
