use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::{Agent, Ahead, AheadStatus, Guard, Instance, Pool, RecordId, State, Write};
use runyard_core::ports::github::{RunState, Runner, Scope};
use runyard_core::ports::{GitHubError, Ringer as _, Store};
use runyard_operator::controller::{Bell, GitHubWatch, Ports};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use runyard_tests::world::{World, item, linux, watch as as_shipped};

use crate::an_intent_rings::{LikeAws, LikeSqs, agents_ring};

/// How long GitHub's REST API takes for an answer (the stand-in's `labels_answer`).
const REST: Duration = Duration::from_millis(250);

fn web() -> Scope {
    Scope::Repository { owner: "acme".into(), name: "web".into() }
}

/// A class that says nothing of `registeredAhead`: it is on, since a machine of it serves one repository.
fn spec() -> serde_json::Value {
    let mut spec = linux(1, 1);
    spec["reuseWithin"] = "repository".into();
    spec
}

/// Its only repository known from the start.
fn sole() -> serde_json::Value {
    let mut spec = spec();
    spec["repositories"] = serde_json::json!(["acme/web"]);
    spec
}

/// What the pool's status says of it.
async fn told(world: &World) -> AheadStatus {
    let key = Pool::key_of(&"linux".parse().unwrap());
    world.get::<Pool>(&key).await.and_then(|pool| pool.status.ahead).expect("the operator said it")
}

fn calls(world: &World, verb: &str) -> u64 {
    world.github.calls().get(verb).copied().unwrap_or(0)
}

fn is_quiet(world: &World) {
    let records = format!("{:?}", world.store.records());
    assert!(!records.contains("GitHubRefuses") && !records.contains("Stuck"), "{records}");
}

fn verifying() -> World {
    World::with_github().watching(GitHubWatch { verify_run: true, ..as_shipped() })
}

async fn ask(world: &World, run: u64) -> RecordId {
    world.github.set_run("acme", "web", run, RunState::Active { attempt: 1 });
    world.provision(&run.to_string(), "linux", 1, serde_json::json!({})).await
}

/// The only machine.
fn machine(world: &World) -> Instance {
    let [machine] = &world.live()[..] else { panic!("one machine: {}", world.show()) };
    machine.clone()
}

/// What its agent says of the runner that it registered ahead; none: it has none.
async fn says(world: &World, of: Option<(&Ahead, u64)>) {
    let key = Agent::key_of(&machine(world).facts.instance_arn);
    let report = of.map(|(ahead, number)| {
        item(&serde_json::json!({"ahead": {"id": ahead.id, "runnerId": number, "listening": true}}))
    });
    let report =
        report.unwrap_or_else(|| item(&serde_json::json!({"ahead": {"id": "", "listening": false}})));
    let beat = BTreeMap::from([("heartbeatSeq".to_owned(), 1)]);
    world.store.write(&Write::update(key, Guard::Exists, report, beat)).await.unwrap();
}

/// A yard whose only machine served a run of acme/web and is in the pool again, with its next runner at rest.
async fn at_rest(world: &World) -> u64 {
    world.start();
    served_once(world).await
}

async fn served_once(world: &World) -> u64 {
    world.pool(spec()).await;
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    assert_eq!(machine(world).ahead, None, "nobody knows whose machine it will be");
    let key = ask(world, 1).await;
    world.until_phase(&key, "Ready", 60).await;
    world.release(&key).await;
    rests(world).await
}

/// Plays the machine's agent until its runner is at rest.
async fn rests(world: &World) -> u64 {
    let (ahead, number) = registers(world).await;
    says(world, Some((&ahead, number))).await;
    confirmed(world, number).await;
    number
}

/// Registers the runner that the machine is asked for.
async fn registers(world: &World) -> (Ahead, u64) {
    world.until("there is one", Duration::from_secs(60), async || world.live().len() == 1).await;
    let asked = || machine(world).ahead.filter(|ahead| ahead.runner_id.is_none());
    world.until("its runner is to be registered", Duration::from_secs(60), async || asked().is_some()).await;
    let ahead = asked().unwrap();
    let number = world.github.register(&web(), &Ahead::name_of(&ahead.id), vec!["at-rest".into()]);
    (ahead, number)
}

async fn confirmed(world: &World, number: u64) {
    let confirmed = || machine(world).ahead.is_some_and(|ahead| ahead.runner_id == Some(number));
    world.until("GitHub confirmed it", Duration::from_secs(30), async || confirmed()).await;
    assert_eq!(machine(world).registration, None);
}

fn runner(world: &World, number: u64) -> Option<Runner> {
    world.github.all_runners().into_iter().find(|runner| runner.id == number)
}

#[tokio::test(start_paused = true)]
async fn a_runner_at_rest_is_ready_for_a_claim_with_its_label() {
    let world = verifying();
    let number = at_rest(&world).await;
    world.github.takes("set_labels", REST);
    world.github.takes("run", REST);
    let begun = tokio::time::Instant::now();
    let key = ask(&world, 2).await;
    world.until_phase(&key, "Ready", 60).await;
    let took = begun.elapsed();
    assert!(took <= Duration::from_millis(600), "the run and the label: {took:?}");
    assert_eq!(runner(&world, number).unwrap().labels, ["2"]);
    let held = machine(&world);
    assert_eq!((held.state(), held.registration.is_none()), (State::Running, true));
    world.release(&key).await;
    world.until("it is pooled", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    assert_eq!(runner(&world, number), None, "the runner of a run is gone before its machine is pooled");
    assert_ne!(rests(&world).await, number, "the next one is another");
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_github_does_not_show_yet_calls_nobody() {
    let world = verifying();
    at_rest(&world).await;
    let key = ask(&world, 2).await;
    world.until_phase(&key, "Ready", 60).await;
    world.release(&key).await;
    let (ahead, number) = registers(&world).await;
    let name = Ahead::name_of(&ahead.id);
    world.github.set_runner(&web(), &name, false, false);
    says(&world, Some((&ahead, number))).await;
    world.sleep(30).await;
    assert_eq!(machine(&world).ahead.unwrap().runner_id, None);
    is_quiet(&world);
    world.github.set_runner(&web(), &name, true, false);
    confirmed(&world, number).await;
}

#[tokio::test(start_paused = true)]
async fn a_label_is_set_only_for_a_run_that_github_knows() {
    let world = verifying();
    let number = at_rest(&world).await;
    let key = world.provision("66", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Failed", 120).await;
    assert!(runner(&world, number).is_none_or(|runner| runner.labels == ["at-rest"]));
    assert!(!world.github.calls().contains_key("set_labels"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_label_leads_back_to_a_registration_in_the_same_claim() {
    let refused = GitHubError::NotFound("runner".into());
    let away = GitHubError::Unreachable("timed out".into());
    for error in [refused, away] {
        let world = verifying();
        let number = at_rest(&world).await;
        world.github.outage_of("set_labels", Some(error.clone()));
        let key = ask(&world, 2).await;
        world.until_phase(&key, "Ready", 60).await;
        assert_eq!(runner(&world, number), None, "{error}: no other may have the label of the run");
        let held = machine(&world);
        assert_eq!((held.ahead, held.uses), (None, 2), "{error}");
        let request = world.request(&key).await;
        assert_eq!(request.status.served.len(), 1, "{error}: the same machine");
        let claim = held.claim.unwrap().id.to_string();
        assert_eq!(world.agents.opened().last().map(|(of, _)| of.as_str()), Some(claim.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_its_agent_lost_gets_no_label() {
    let world = verifying();
    let number = at_rest(&world).await;
    world.github.outage_of("run", Some(GitHubError::Unreachable("away".into())));
    let key = ask(&world, 2).await;
    world.until("claimed", Duration::from_secs(10), async || machine(&world).state() == State::Claimed).await;
    says(&world, None).await;
    world.github.outage_of("run", None);
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!((runner(&world, number), machine(&world).ahead), (None, None));
    assert!(!world.github.calls().contains_key("set_labels"));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_another_runner_is_not_believed() {
    let world = verifying();
    world.pool(spec()).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let key = ask(&world, 1).await;
    world.until_phase(&key, "Ready", 60).await;
    world.release(&key).await;
    let asked = || machine(&world).ahead.filter(|_| !world.pooled().is_empty());
    world.until("its runner is to be registered", Duration::from_secs(60), async || asked().is_some()).await;
    let another = world.github.register(&web(), "runyard-i-00000000000000001.9", vec!["secret".into()]);
    says(&world, Some((&asked().unwrap(), another))).await;
    world.sleep(20).await;
    assert_eq!(machine(&world).ahead.unwrap().runner_id, None);
    let key = ask(&world, 2).await;
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!(runner(&world, another).unwrap().labels, ["secret"]);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_says_no_registers_nobody_ahead() {
    let world = verifying();
    let mut spec = spec();
    spec["registeredAhead"] = false.into();
    world.pool(spec).await;
    world.start();
    let key = ask(&world, 1).await;
    world.until_phase(&key, "Ready", 120).await;
    world.release(&key).await;
    world.until("it is pooled", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    world.sleep(120).await;
    let held = machine(&world);
    assert_eq!((held.ahead, held.registration), (None, None));
    assert_eq!(told(&world).await.reasons, ["Off"]);
}

#[tokio::test(start_paused = true)]
async fn an_owners_class_calls_nobody_where_the_operator_is_of_repositories() {
    for organization in [false, true] {
        let world = verifying().set(|settings| settings.organization = organization);
        let mut spec = linux(1, 1);
        (spec["runnerGroup"], spec["repositories"]) = ("ours".into(), serde_json::json!(["acme/*"]));
        world.pool(spec).await;
        world.start();
        world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
        world.sleep(600).await;
        assert_eq!(machine(&world).ahead.is_some(), organization);
        assert_eq!(calls(&world, "registration"), u64::from(organization));
        let told = told(&world).await;
        let reasons: &[&str] = if organization { &[] } else { &["GitHubScope"] };
        assert_eq!(
            (told.on, &told.reasons[..]),
            (organization, &reasons.iter().map(ToString::to_string).collect::<Vec<_>>()[..])
        );
        assert_eq!(told.message.contains("github.scope organization"), !organization, "{}", told.message);
        is_quiet(&world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_its_agent_gave_up_is_made_anew_while_the_machine_rests() {
    let world = verifying();
    world.pool(sole()).await;
    world.start();
    let number = rests(&world).await;
    let begun = machine(&world);
    let first = begun.ahead.clone().unwrap();
    // GitHub refused its version, or deleted it: its agent has it no more, and says nothing else.
    says(&world, None).await;
    let lost = Instant::now();
    let another = || machine(&world).ahead.is_some_and(|ahead| ahead.id != first.id);
    world.until("another is asked for", Duration::from_secs(90), async || another()).await;
    assert!(lost.elapsed() >= Duration::from_secs(30), "not at once: its agent may only be slow to say so");
    assert_eq!(runner(&world, number), None, "the former one goes with it");
    let next = rests(&world).await;
    let held = machine(&world);
    assert_eq!(held.pooled_at(), begun.pooled_at(), "it stays in the pool meanwhile");
    assert_eq!(held.facts.instance_id, begun.facts.instance_id);
    let key = ask(&world, 2).await;
    world.until_phase(&key, "Ready", 10).await;
    assert_eq!(runner(&world, next).unwrap().labels, ["2"]);
    is_quiet(&world);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_github_refuses_each_time_costs_next_to_nothing() {
    let world = verifying();
    world.pool(sole()).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..240 {
        ids.extend(machine(&world).ahead.map(|ahead| ahead.id));
        world.sleep(15).await;
    }
    assert!((4..=7).contains(&ids.len()), "an hour of a runner that never comes: {ids:?}");
    assert_eq!(machine(&world).state(), State::Idle);
    is_quiet(&world);
    let key = ask(&world, 1).await;
    world.until_phase(&key, "Ready", 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_github_forgot_before_it_was_confirmed_is_made_anew() {
    let world = verifying();
    world.pool(sole()).await;
    world.start();
    let (first, number) = registers(&world).await;
    world.github.deregister(&web(), &Ahead::name_of(&first.id));
    says(&world, Some((&first, number))).await;
    let another = || machine(&world).ahead.is_some_and(|ahead| ahead.id != first.id);
    world.until("another is asked for", Duration::from_secs(420), async || another()).await;
    rests(&world).await;
    is_quiet(&world);
}

#[tokio::test(start_paused = true)]
async fn a_registration_ahead_that_github_refuses_is_no_error_and_no_loop() {
    let world = verifying();
    let denied = GitHubError::Denied("Resource not accessible by integration".into());
    world.github.outage_of("registration", Some(denied));
    world.pool(sole()).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    world.sleep(3600).await;
    let asked = calls(&world, "registration");
    assert!((2..=8).contains(&asked), "{asked} calls in an hour");
    is_quiet(&world);
    world.github.outage_of("registration", None);
    world.until("it is asked for", Duration::from_secs(3700), async || machine(&world).ahead.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn labels_that_github_refuses_turn_it_off_for_an_hour_and_the_pool_says_why() {
    let world = verifying();
    world.pool(sole()).await;
    world.start();
    let refused = GitHubError::Denied("Resource not accessible by integration".into());
    world.github.outage_of("set_labels", Some(refused));
    for run in 1..=3 {
        rests(&world).await;
        assert!(told(&world).await.on);
        let key = ask(&world, run).await;
        world.until_phase(&key, "Ready", 60).await;
        world.release(&key).await;
        world.until("it is pooled", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    }
    world.sleep(15).await;
    let off = told(&world).await;
    assert_eq!((off.on, &off.reasons[..]), (false, &["GitHubRefuses".to_owned()][..]));
    assert!(off.message.contains("not accessible by integration"), "{}", off.message);
    assert_eq!(machine(&world).ahead, None);
    let key = ask(&world, 4).await;
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!(calls(&world, "set_labels"), 3, "nobody asks for what is refused");
    world.release(&key).await;
    world.github.outage_of("set_labels", None);
    world.sleep(3600).await;
    rests(&world).await;
    let key = ask(&world, 5).await;
    world.until_phase(&key, "Ready", 10).await;
    world.sleep(15).await;
    assert!(told(&world).await.on);
    assert_eq!(calls(&world, "set_labels"), 4);
}

/// With AWS's latencies as `an_intent_rings` has them, a doorbell, and 250 ms for each answer of GitHub's.
#[tokio::test(start_paused = true)]
async fn a_claim_that_finds_a_runner_at_rest_is_ready_within_600_ms_on_aws() {
    let world = verifying();
    let (look, looks) = watch::channel(());
    let bell = Arc::new(LikeSqs::default());
    let doorbell = Some(Bell { port: bell.clone(), look: look.clone() });
    let _agents = agents_ring(&world.store, &bell).await;
    world.start_over("one", |ports| Ports {
        store: Arc::new(LikeAws { inner: ports.store.clone(), looks, lag: Duration::ZERO }),
        doorbell,
        ..ports
    });
    served_once(&world).await;
    world.github.takes("set_labels", REST);
    world.github.takes("run", REST);
    let mut took = Vec::new();
    for run in 2..22 {
        sleep(Duration::from_millis(5_000 + run * 37)).await;
        let begun = Instant::now();
        let key = ask(&world, run).await;
        bell.ring(&key).await.unwrap();
        while world.phase(&key).await != "Ready" {
            sleep(Duration::from_millis(1)).await;
        }
        took.push(begun.elapsed());
        world.release(&key).await;
        world.until_phase(&key, "Released", 30).await;
        rests(&world).await;
    }
    drop(look);
    assert_eq!(world.github.calls()["set_labels"], 20, "none went the normal way");
    took.sort();
    // For docs/performance.md: shown with `-- --nocapture`.
    println!("registered ahead: p50 {:?}, most {:?}", took[10], took[19]);
    assert!(took[10] <= Duration::from_millis(600), "{took:?}");
}
