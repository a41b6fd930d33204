use std::time::Duration;

use runyard_core::explain::{evidence, picture, probable, related};
use runyard_core::model::{
    Condition, ConditionType, Event, Pool, Reading, RecordId, State, read, runner_name,
};
use runyard_core::ports::github::{RunState, Scope};
use runyard_core::ports::{Clock, GitHubError, MachineState};
use runyard_operator::controller::GitHubWatch;

use runyard_tests::agents::Habit;
use runyard_tests::world::{World, linux, watch};

#[tokio::test(start_paused = true)]
async fn credentials_reach_a_machine_sealed_and_for_its_claim() {
    let world = World::with_github();
    world.pool(linux(1, 5)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let first = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&first, "Ready", 60).await;
    world.release(&first).await;
    world.until_phase(&first, "Released", 60).await;
    let second = world.provision("2", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&second, "Ready", 60).await;
    world.sleep(5).await;
    assert!(world.in_state(State::Running).iter().all(|instance| instance.registration.is_none()));
    for item in world.store.records() {
        let text = format!("{item:?}");
        for (_, token) in world.agents.opened() {
            assert!(token.is_empty() || !text.contains(&token), "a token stands in clear in {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_github_is_away_machines_that_wait_for_it_are_not_ended() {
    let world = World::with_github();
    world.pool(linux(1, 5)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let waiting = world.pooled()[0].facts.instance_id.clone();
    world.agents.one(&waiting, Habit::NeverRegisters);
    world.github.outage(Some(GitHubError::Unreachable("down".into())));
    let key = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 3600})).await;
    world
        .until("it is claimed", Duration::from_secs(10), async || !world.in_state(State::Claimed).is_empty())
        .await;
    world.sleep(1200).await;
    assert!(world.reasons().is_empty(), "{}", world.show());
    world.github.outage(None);
    world.agents.one(&waiting, Habit::Good);
    world.until_phase(&key, "Ready", 120).await;
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_our_own_budget_puts_off_costs_no_machine() {
    let world = World::with_github();
    world.pool(linux(2, 5)).await;
    world.start();
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    world.agents.all(Habit::NeverRegisters);
    world.github.outage(Some(GitHubError::Deferred { retry_after: Duration::from_secs(20) }));
    let key = world.provision("41", "linux", 1, serde_json::json!({"timeoutSeconds": 3600})).await;
    world
        .until("it is claimed", Duration::from_secs(60), async || !world.in_state(State::Claimed).is_empty())
        .await;
    let pooled = world.pooled()[0].clone();
    world.sleep(1200).await;
    assert!(world.reasons().is_empty(), "{}", world.show());
    let now = world.pooled().into_iter().find(|one| one.facts.instance_id == pooled.facts.instance_id);
    assert_eq!(
        now.unwrap().threshold,
        pooled.threshold,
        "GitHub is not away, and this one waits for nothing"
    );
    let told = events(&world, "GitHubBudget");
    assert!((1..=8).contains(&told.len()), "{told:?}");
    world.github.outage(None);
    world.agents.all(Habit::Good);
    world.until_phase(&key, "Ready", 120).await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_our_own_budget_puts_off_waits_and_looks_its_runner_up_once() {
    let world = World::with_github();
    world.pool(linux(1, 1)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let key = world.provision("41", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let name = runner_name(&world.in_state(State::Running)[0].claim.as_ref().unwrap().id, 1);
    let web = Scope::Repository { owner: "acme".into(), name: "web".into() };
    world.github.register(&web, &name, vec!["41".to_owned()]);
    world.github.set_runner(&web, &name, false, false);
    world
        .github
        .outage_of("remove_runner", Some(GitHubError::Deferred { retry_after: Duration::from_secs(20) }));
    let looked = world.github.calls().get("runner").copied().unwrap_or(0);
    world.release(&key).await;
    world.sleep(1200).await;
    assert!(world.pooled().is_empty() && world.reasons().is_empty(), "{}", world.show());
    assert!(world.github.calls()["remove_runner"] > 10, "{:?}", world.github.calls());
    assert_eq!(world.github.calls()["runner"], looked + 1);
    world.github.outage_of("remove_runner", None);
    world.until_phase(&key, "Released", 60).await;
    assert_eq!((world.pooled().len(), world.github.all_runners().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn runners_of_ended_machines_that_github_does_not_show_us_are_asked_for_once() {
    for refused in [GitHubError::Denied("suspended".into()), GitHubError::NotFound("deleted".into())] {
        let world = World::with_github();
        world.pool(linux(1, 1)).await;
        world.start();
        world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
        let key = world.provision("41", "linux", 1, serde_json::json!({})).await;
        world.until_phase(&key, "Ready", 120).await;
        world.github.outage_of("runner", Some(refused));
        let machine = world.in_state(State::Running)[0].facts.instance_id.clone();
        world.compute.set_state(&machine, MachineState::Terminated);
        world
            .until("it is gone", Duration::from_secs(300), async || world.in_state(State::Running).is_empty())
            .await;
        world.sleep(900).await;
        assert_eq!(
            world.github.calls().get("runner"),
            Some(&1),
            "{:?} {}",
            world.github.calls(),
            world.show()
        );
    }
}

/// The condition `Stuck` of a pool.
async fn stuck(world: &World, pool: &RecordId) -> Option<Condition> {
    let pool: Pool = world.get(pool).await.expect("the class is there");
    pool.status.conditions.into_iter().find(|one| one.condition_type == ConditionType::Stuck)
}

/// All events of this reason.
fn events(world: &World, reason: &str) -> Vec<Event> {
    let all = world.store.records();
    let event = |item| match read::<Event>(item) {
        Reading::Record(event) => Some(event),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    };
    let all =
        all.iter().filter(|item| RecordId::of(item).is_some_and(|key| key.is_event())).filter_map(event);
    all.filter(|event| event.reason == reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_github_refuses_is_told_until_it_is_accepted_again() {
    let call = "POST /repos/acme/web/actions/runners/registration-token";
    let cases = [
        (GitHubError::Denied(format!("{call}: Bad credentials (401)")), "github-credential"),
        (
            GitHubError::Denied(format!("{call}: Resource not accessible by integration (403)")),
            "github-permission",
        ),
        (GitHubError::NotFound(format!("{call}: Not Found (404)")), "github-scope"),
    ];
    for (refused, cause) in cases {
        let world = World::with_github();
        world.pool(linux(1, 5)).await;
        world.start();
        world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
        world.github.outage(Some(refused.clone()));
        let waiting = world.pooled()[0].facts.instance_id.clone();
        world.agents.one(&waiting, Habit::NeverRegisters);
        let key = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 3600})).await;
        let pool = Pool::key_of(&"linux".parse().unwrap());
        world
            .until("it is told", Duration::from_secs(30), async || stuck(&world, &pool).await.is_some())
            .await;
        let told = stuck(&world, &pool).await.unwrap().message;
        assert!(told.contains(&refused.to_string()) && told.contains("3 times or more"), "{told}");
        let before = world.get::<Pool>(&pool).await.unwrap().version;
        world.sleep(60).await;
        assert!(world.get::<Pool>(&pool).await.unwrap().version <= before + 2, "it is not written each time");
        let happened = events(&world, "GitHubRefuses");
        assert_eq!(happened.len(), 1, "{happened:?}");
        let items = world.store.records();
        let (yard, now, _) = picture(&items, world.clock.now());
        let said = evidence(&yard, &now, &items, &related(&items, &key), &happened);
        let causes = probable(said.iter().map(|one| one.words.as_str()));
        assert_eq!(causes.first().map(|one| one.cause.name), Some(cause), "{said:?}");
        world.github.outage(None);
        world.agents.one(&waiting, Habit::Good);
        world.until_phase(&key, "Ready", 120).await;
        world.until("no more", Duration::from_secs(60), async || stuck(&world, &pool).await.is_none()).await;
    }
}

/// A yard of one warm machine whose operator asks GitHub for runs before a credential.
async fn verifying() -> World {
    let world = World::with_github().watching(GitHubWatch { verify_run: true, ..watch() });
    world.pool(linux(1, 5)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    // Without a credential.
    world.agents.all(Habit::NeverRegisters);
    world
}

/// Whether the class says that something failed again and again.
async fn is_stuck(world: &World) -> bool {
    let pool = world.get::<Pool>(&Pool::key_of(&"linux".parse().unwrap())).await.unwrap();
    pool.status.conditions.iter().any(|condition| condition.condition_type == ConditionType::Stuck)
}

#[tokio::test(start_paused = true)]
async fn minutes_of_a_wrong_credential_fail_no_request_and_are_said() {
    let world = verifying().await;
    world.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    world.github.set_run("acme", "web", 42, RunState::Active { attempt: 1 });
    world.github.outage(Some(GitHubError::Denied("Bad credentials (401)".into())));
    let long = serde_json::json!({"timeoutSeconds": 3600});
    let warm = world.provision("41", "linux", 1, long.clone()).await;
    let cold = world.provision("42", "linux", 2, long).await;
    world.until("the class says it", Duration::from_secs(120), async || is_stuck(&world).await).await;
    world.sleep(240).await;
    for key in [&warm, &cold] {
        assert!(!world.request(key).await.phase().is_final(), "{}", world.show());
    }
    world.github.outage(None);
    world.agents.all(Habit::Good);
    world.until_phase(&warm, "Ready", 120).await;
    world.until_phase(&cold, "Ready", 120).await;
    world.until("the class is well again", Duration::from_secs(120), async || !is_stuck(&world).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_is_not_shown_fails_no_request_and_a_run_it_lacks_does() {
    let world = verifying().await;
    world.github.outage_in("acme/web", Some(GitHubError::NotFound("404".into())));
    let long = serde_json::json!({"timeoutSeconds": 3600});
    let key = world.provision("41", "linux", 1, long).await;
    world.sleep(240).await;
    assert!(!world.request(&key).await.phase().is_final(), "{}", world.show());
    world.github.outage_in("acme/web", None);
    // Tried again, known to be lacking, and lacking for a minute.
    world.until_phase(&key, "Failed", 300).await;
    let told = world.request(&key).await.status.message;
    assert!(told.starts_with("NotAllowed: acme/web has no run 41"), "{told}");
}
