use std::time::Duration;

use runyard_core::model::{Desired, Instance, RecordId, ReleasedBy, State, runner_name};
use runyard_core::ports::GitHubError;
use runyard_core::ports::github::{RunState, Scope};
use runyard_operator::controller::GitHubWatch;

use runyard_tests::agents::Habit;
use runyard_tests::world::{World, linux, watch};

fn web() -> Scope {
    Scope::Repository { owner: "acme".into(), name: "web".into() }
}

fn name_of(instance: &Instance) -> String {
    runner_name(&instance.claim.as_ref().unwrap().id, 1)
}

/// A yard of one warm machine.
async fn warm(world: &World) {
    world.pool(linux(1, 1)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
}

/// Serves one request; its runner is listed, and busy, as long as its agent lets it be.
async fn serving(world: &World, run: &str) -> (RecordId, String) {
    let key = world.provision(run, "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let name = name_of(&world.in_state(State::Running)[0]);
    world.github.register(&web(), &name, vec![run.to_owned()]);
    (key, name)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ended_without_its_release_step_is_released() {
    let world = World::with_github();
    warm(&world).await;
    let (key, _) = serving(&world, "41").await;
    world.sleep(150).await;
    assert_eq!(world.phase(&key).await, "Ready", "a run that GitHub does not know is no end");
    world.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    world.sleep(150).await;
    assert_eq!(world.phase(&key).await, "Ready");
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    world.until_phase(&key, "Released", 90).await;
    let over = world.request(&key).await;
    assert_eq!(
        (over.intent.generation, over.intent.desired),
        (1, Desired::Provisioned),
        "the workflow's own"
    );
    assert_eq!(over.status.released_by, Some(ReleasedBy::RunEnded));
    world.sleep(1).await;
    let told = world.store.records().iter().any(|item| {
        let text = format!("{item:?}");
        text.contains("RunEnded") && text.contains("attempt 1 of the run is completed")
    });
    assert!(told, "an event names the cause");
    let asked = world.github.calls()["run"];
    world.sleep(300).await;
    assert_eq!(world.github.calls()["run"], asked, "nobody asks about a request that is over");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_released_when_its_run_was_cancelled() {
    let world = World::with_github();
    world.pool(linux(0, 1)).await;
    world.start();
    let (first, _) = serving(&world, "41").await;
    let more = serde_json::json!({"timeoutSeconds": 3600});
    let waits = world.provision("42", "linux", 1, more).await;
    world.github.set_run("acme", "web", 42, RunState::Active { attempt: 1 });
    world.sleep(200).await;
    assert_eq!(world.phase(&waits).await, "Pending", "the only machine of its class serves another");
    world.github.set_run("acme", "web", 42, RunState::Completed { attempt: 1 });
    world.until_phase(&waits, "Released", 90).await;
    assert_eq!(world.request(&waits).await.status.released_by, Some(ReleasedBy::RunEnded));
    assert_eq!(world.phase(&first).await, "Ready");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_not_asked_about_where_that_is_off() {
    let world = World::with_github().watching(GitHubWatch { run_poll: None, ..watch() });
    warm(&world).await;
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    let (key, _) = serving(&world, "41").await;
    world.sleep(300).await;
    assert_eq!(world.phase(&key).await, "Ready");
    assert!(!world.github.calls().contains_key("run"));
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_not_pooled_while_github_lists_its_runner() {
    let world = World::with_github();
    warm(&world).await;
    let (key, name) = serving(&world, "1").await;
    world.github.set_runner(&web(), &name, true, true);
    world.release(&key).await;
    world.sleep(60).await;
    assert!(world.pooled().is_empty() && world.reasons().is_empty(), "{}", world.show());
    world.github.set_runner(&web(), &name, false, false);
    world.until_phase(&key, "Released", 60).await;
    assert_eq!(world.github.all_runners(), []);
    assert_eq!(world.pooled().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_stays_busy_ends_its_machine_a_quarter_of_an_hour_late() {
    let world = World::with_github();
    warm(&world).await;
    let (key, name) = serving(&world, "1").await;
    world.github.set_runner(&web(), &name, true, true);
    world.release(&key).await;
    world.sleep(1150).await;
    assert!(world.pooled().is_empty() && world.reasons().is_empty(), "{}", world.show());
    world.until_phase(&key, "Released", 120).await;
    assert_eq!(world.reasons(), ["threshold"]);
}

#[tokio::test(start_paused = true)]
async fn a_runner_busy_for_ten_minutes_costs_no_machine_and_nobody_is_called() {
    let world = World::with_github();
    warm(&world).await;
    let (key, name) = serving(&world, "1").await;
    world.github.set_runner(&web(), &name, true, true);
    world.release(&key).await;
    world.sleep(600).await;
    let stuck = world.store.records().iter().any(|item| format!("{item:?}").contains("Stuck"));
    assert!(!stuck && world.reasons().is_empty(), "{}", world.show());
    world.github.set_runner(&web(), &name, false, false);
    world.until_phase(&key, "Released", 60).await;
    assert_eq!((world.pooled().len(), world.github.all_runners().len()), (1, 0));
}

/// The same as `serving`, of an agent that tells the number of its runner.
async fn serving_by_number(world: &World, run: &str) -> (RecordId, u64) {
    let (key, name) = serving(world, run).await;
    let machine = world.in_state(State::Running)[0].facts.instance_id.clone();
    let number = world.github.register(&web(), &name, vec![run.to_owned()]);
    world.agents.tells(&machine, number);
    // With its next beat.
    world.sleep(20).await;
    (key, number)
}

#[tokio::test(start_paused = true)]
async fn a_runner_is_removed_by_its_number_before_its_machine_is_pooled() {
    let world = World::with_github();
    warm(&world).await;
    for run in ["1", "2", "3"] {
        let (key, _) = serving_by_number(&world, run).await;
        let before = world.github.calls();
        world.release(&key).await;
        world.until_phase(&key, "Released", 60).await;
        assert_eq!((world.pooled().len(), world.github.all_runners().len()), (1, 0));
        let mut after = world.github.calls();
        after.retain(|verb, n| {
            *n -= before.get(verb).copied().unwrap_or(0);
            *n > 0 && !["registration", "runners", "run"].contains(verb)
        });
        assert_eq!(after.into_iter().collect::<Vec<_>>(), [("remove_runner", 1), ("runner_by_id", 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_runner_left_to_the_operator_is_removed_though_nobody_looks_after_agents() {
    let world = World::with_github().watching(GitHubWatch { verify_removed: false, ..watch() });
    warm(&world).await;
    let (key, _) = serving_by_number(&world, "1").await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    assert_eq!((world.pooled().len(), world.github.all_runners().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_another_runners_removes_nothing_of_others() {
    let world = World::with_github();
    warm(&world).await;
    let (key, _) = serving_by_number(&world, "1").await;
    let theirs = world.github.register(&web(), "build-box", vec!["x".to_owned()]);
    world.agents.tells(&world.in_state(State::Running)[0].facts.instance_id, theirs);
    world.sleep(20).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    let left: Vec<_> = world.github.all_runners().into_iter().map(|runner| runner.name).collect();
    assert_eq!((left, world.pooled().len()), (vec!["build-box".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_is_gone_already_is_removed() {
    let world = World::with_github();
    warm(&world).await;
    let (key, number) = serving_by_number(&world, "1").await;
    world.github.deregister(&web(), &name_of(&world.in_state(State::Running)[0]));
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    assert_eq!(world.pooled().len(), 1, "runner {number} is not known any more");
}

#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_the_pool_while_github_is_away_and_is_not_ended() {
    let world = World::with_github();
    warm(&world).await;
    let (key, _) = serving(&world, "1").await;
    world.github.outage(Some(GitHubError::Unreachable("down".into())));
    world.release(&key).await;
    world.sleep(1200).await;
    assert!(world.pooled().is_empty() && world.reasons().is_empty(), "{}", world.show());
    world.github.outage(None);
    world.until_phase(&key, "Released", 60).await;
    assert_eq!((world.pooled().len(), world.github.all_runners().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cycle_whose_agent_deregistered_costs_one_question() {
    let world = World::with_github();
    warm(&world).await;
    for run in ["1", "2", "3"] {
        let before = world.github.calls();
        let (key, name) = serving(&world, run).await;
        world.github.deregister(&web(), &name);
        world.release(&key).await;
        world.until_phase(&key, "Released", 60).await;
        let mut after = world.github.calls();
        after.retain(|verb, n| {
            *n -= before.get(verb).copied().unwrap_or(0);
            *n > 0 && !["registration", "removal", "runners", "run"].contains(verb)
        });
        assert_eq!(after.into_iter().collect::<Vec<_>>(), [("runner", 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn runners_whose_claim_is_over_are_swept_and_others_are_not() {
    let every = Some(Duration::from_secs(120));
    let world = World::with_github().watching(GitHubWatch { sweep: every, ..watch() });
    warm(&world).await;
    let (key, name) = serving(&world, "1").await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    let gone = "runyard-i-0123456789abcdef0.3";
    let theirs = "runyard-i-0123456789abcdef1.3";
    for stale in [name.as_str(), gone, theirs, "build-box"] {
        world.github.register(&web(), stale, Vec::new());
    }
    world.github.set_runner(&web(), &name, true, true);
    world.github.set_runner(&web(), gone, false, false);
    world.github.set_runner(&web(), "build-box", false, false);
    let names = || world.github.all_runners().into_iter().map(|runner| runner.name).collect::<Vec<_>>();
    world.sleep(500).await;
    assert_eq!(names(), [name.as_str(), theirs, "build-box"], "busy, connected or not ours");
    world.github.set_runner(&web(), &name, false, false);
    world.sleep(200).await;
    assert_eq!(names(), [theirs, "build-box"]);
}

#[tokio::test(start_paused = true)]
async fn runners_are_swept_although_their_list_changes_whenever_it_is_read() {
    let every = Some(Duration::from_secs(120));
    let world = World::with_github().watching(GitHubWatch { sweep: every, ..watch() });
    warm(&world).await;
    let (key, name) = serving(&world, "1").await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    let gone = "runyard-i-0123456789abcdef0.3";
    for stale in [name.as_str(), gone, "build-box"] {
        world.github.register(&web(), stale, Vec::new());
        world.github.set_runner(&web(), stale, false, false);
    }
    world.github.lists_change();
    world.sleep(1200).await;
    let left: Vec<_> = world.github.all_runners().into_iter().map(|runner| runner.name).collect();
    assert_eq!(left, ["build-box"]);
}

#[tokio::test(start_paused = true)]
async fn runners_are_swept_without_a_list_of_the_table() {
    let lists = async |sweep: Option<Duration>| {
        let world = World::with_github().watching(GitHubWatch { sweep, ..watch() });
        warm(&world).await;
        let (key, _) = serving(&world, "1").await;
        world.release(&key).await;
        world.until_phase(&key, "Released", 60).await;
        world.calls.take();
        let before = world.github.calls().get("runners").copied().unwrap_or(0);
        world.sleep(3000).await;
        let looked = world.github.calls().get("runners").copied().unwrap_or(0) - before;
        (world.calls.take().iter().filter(|call| call.name == "list").count(), looked)
    };
    let (without, with) = (lists(None).await, lists(Some(Duration::from_secs(120))).await);
    assert_eq!((without.1, with.1 > 20), (0, true), "{with:?}");
    assert_eq!(without.0, with.0, "what the loop holds is enough");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_claims_that_leave_their_runners_behind_leave_no_stale_runner() {
    let world = World::with_github();
    world.pool(linux(40, 40)).await;
    world.start();
    world.until("all are warm", Duration::from_secs(120), async || world.pooled().len() == 40).await;
    for run in 1..=25 {
        let key = world.provision(&run.to_string(), "linux", 40, serde_json::json!({})).await;
        world.until_phase(&key, "Ready", 60).await;
        for instance in world.in_state(State::Running) {
            world.github.register(&web(), &name_of(&instance), vec![run.to_string()]);
        }
        assert_eq!(world.github.all_runners().len(), 40);
        world.release(&key).await;
        world.until_phase(&key, "Released", 120).await;
        assert_eq!(world.github.all_runners(), []);
    }
    assert!(world.reasons().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_claims_leave_no_runner_listed_whatever_their_agents_forgot() {
    const MACHINES: usize = 20;
    let world = World::with_github();
    world.pool(linux(20, 20)).await;
    world.start();
    world.until("all are warm", Duration::from_secs(60), async || world.pooled().len() == MACHINES).await;
    let mut claims = 0;
    for run in 1..=50 {
        let key = world.provision(&run.to_string(), "linux", 20, serde_json::json!({})).await;
        world.until_phase(&key, "Ready", 60).await;
        for (number, machine) in world.in_state(State::Running).iter().enumerate() {
            let name = name_of(machine);
            world.github.register(&web(), &name, vec![run.to_string()]);
            claims += 1;
            if number % 2 == run % 2 {
                world.github.deregister(&web(), &name);
            }
        }
        assert_eq!(world.github.all_runners().len(), MACHINES / 2, "the others are left to the operator");
        world.release(&key).await;
        world.until_phase(&key, "Released", 90).await;
        assert!(world.github.all_runners().is_empty(), "run {run}: {:?}", world.github.all_runners());
    }
    assert_eq!(claims, 1000);
    assert_eq!(world.pooled().len(), MACHINES, "and not one machine was lost over it\n{}", world.show());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_github_does_not_know_gets_no_credential_and_is_refused() {
    let world = World::with_github().watching(GitHubWatch::default());
    warm(&world).await;
    // Without a credential no agent registers anything.
    world.agents.all(Habit::NeverRegisters);
    let key = world.provision("41", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Failed", 120).await;
    let request = world.request(&key).await;
    assert_eq!(request.status.message, "NotAllowed: acme/web has no run 41 that GitHub shows us");
    assert!(!world.github.calls().contains_key("registration"), "{:?}", world.github.calls());
    assert!(world.all::<Instance>().iter().all(|instance| instance.registration_seq == 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_asked_about_once_before_its_machines_get_credentials() {
    let world = World::with_github().watching(GitHubWatch { run_poll: None, ..GitHubWatch::default() });
    world.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    world.pool(linux(3, 3)).await;
    world.start();
    world.until("three are warm", Duration::from_secs(60), async || world.pooled().len() == 3).await;
    let key = world.provision("41", "linux", 3, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!(world.github.calls()["run"], 1);
    assert_eq!(world.github.calls()["registration"], 1);
}
