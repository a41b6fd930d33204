//! Repositories that share a class in fair weather, and the law of neighbours: **no request of one repository fails, or
//! waits longer than a boot and an interval more, because of what another repository asked for, made fail, or holds
//! idle.** Those who do as they should never want more machines together than the class's `max`; beside them one asks
//! for types that EC2 refuses, one for runs that GitHub does not know, and for minutes GitHub takes the operators'
//! credential for a wrong one.

use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::{Phase, RecordId, RegistrationMode, Request};
use runyard_core::ports::github::RunState;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use crate::simulation::actor::{Actor, Role};
use crate::simulation::chance::Chance;
use crate::simulation::fault_rates::Fault;
use crate::simulation::table::Table;
use crate::simulation::users::{command, create, release};
use crate::simulation::world::World;
use crate::simulation::{machines, operators};

/// What those who do as they should call their repositories: three owners, five trust domains by repository.
const REPOSITORIES: [&str; 5] = ["acme/web", "acme/api", "acme/docs", "other/site", "third/lib"];
/// The types that EC2 refuses.
const TYPO: &str = "c99*";
/// The longest boot of a machine here, with the first signal of its agent.
const BOOT: Duration = Duration::from_secs(45);
/// What a machine takes to be cleaned, or ended and told of, before another has its place.
const GIVEN_BACK: Duration = Duration::from_secs(60);
/// How long GitHub takes the credential for a wrong one.
const WRONG: Duration = Duration::from_secs(180);
/// How long the yard is watched.
const LENGTH: Duration = Duration::from_secs(3600);

/// Lives one seed; tells what is broken, and how many requests were served.
pub(crate) async fn live(world: &Arc<World>, seed: u64) -> Result<u64, String> {
    let chance = Chance::of(seed ^ 0x4e65_6967_6862);
    let max = chance.number(3..7);
    let person = Table(Actor::new(world, "admin", Role::Person));
    let mode = if chance.percent(50) { RegistrationMode::Run } else { RegistrationMode::Job };
    let spec = json!({
        "resourceClass": "small", "cpu": 2, "mmem": 4096, "max": max, "desired": chance.number(0..3),
        "usageClass": "on-demand", "registrationMode": mode.as_str(), "idleSeconds": 1800,
        "reuseWithin": *chance.one(&["repository", "owner"]), "maxRuntimeMinutes": 10,
    });
    create(&person, spec).await;
    world.compute.refuse(TYPO, "InvalidFleetConfiguration: No instance type satisfies the requirements");
    tokio::spawn(machines::keep(world.clone()));
    (1..=2).for_each(|n| drop(tokio::spawn(operators::operate(world.clone(), format!("op-{n}")))));
    // Until somebody leads and has listed everything.
    sleep(Duration::from_secs(30)).await;
    spawn_local(asks_for_a_typo(world.clone(), "typo", 9_000 + seed % 7, true));
    spawn_local(asks_for_a_typo(world.clone(), "runs", 8_000 + seed % 7, false));
    if chance.percent(50) {
        spawn_local(wrong_credential(world.clone(), chance.seconds(100..600)));
    }
    let places = Arc::new(Semaphore::new(max as usize));
    let good: Vec<_> = (1..=chance.number(8..16))
        .map(|number| {
            let at = chance.seconds(0..900);
            let count = chance.number(1..max.min(4)) as u32;
            let work = chance.seconds(1..120);
            let repository = *chance.one(&REPOSITORIES);
            spawn_local(good(world.clone(), places.clone(), Asks { number, at, count, work, repository }))
        })
        .collect();
    let end = Instant::now() + LENGTH;
    while Instant::now() < end && !good.iter().all(tokio::task::JoinHandle::is_finished) {
        if let Some(first) = world.broken.lock().unwrap().first() {
            return Err(first.clone());
        }
        sleep(Duration::from_secs(5)).await;
    }
    let unfinished = good.iter().filter(|task| !task.is_finished()).count();
    if unfinished > 0 {
        return Err(format!("L15: {unfinished} requests are not over after {LENGTH:?}"));
    }
    let laws = world.laws.lock().unwrap();
    Ok(laws.requests().filter(|request| request.status.ready_at.is_some()).count() as u64)
}

/// What one who does as it should asks for.
struct Asks {
    number: u64,
    at: Duration,
    count: u32,
    work: Duration,
    repository: &'static str,
}

/// A run that asks, works and gives back. It asks when the class has places for it, its own included.
async fn good(world: Arc<World>, places: Arc<Semaphore>, asks: Asks) {
    sleep(asks.at).await;
    let _places = places.acquire_many(asks.count).await.expect("nobody closes it");
    let actor = Actor::new(&world, &format!("run-{}", asks.number), Role::Workflow);
    let (owner, name) = asks.repository.split_once('/').expect("owner and name");
    world.github.set_run(owner, name, asks.number, RunState::Active { attempt: 1 });
    let (run, count) = (asks.number.to_string(), asks.count.to_string());
    let of_run = ["--run-id", &run, "--repository", asks.repository, "--attempt", "1"];
    let asked =
        [&["provision", "--class", "small", "--count", &count, "--timeout", "30m"], &of_run[..]].concat();
    let key = key(asks.repository, asks.number);
    until_asked(&actor, &key, &asked).await;
    let begun = Instant::now();
    let mut wrong = Duration::ZERO;
    loop {
        let request = world.laws.lock().unwrap().request_of(&key).cloned();
        let Some(request) = request else { return world.broke(format!("{key}: it is not there")) };
        match request.phase() {
            Phase::Ready => break,
            Phase::Failed | Phase::Releasing | Phase::Released => {
                let why = &request.status.message;
                return world.broke(format!("L15 {key}: it is {} ({why})", request.phase()));
            }
            Phase::Pending | Phase::Fulfilling => {}
        }
        let bound = 2 * BOOT + GIVEN_BACK + world.settings.timing.resync;
        if begun.elapsed() > bound + wrong {
            let why = &request.status.message;
            return world.broke(format!("L15 {key}: it waits for {:?} ({why})", begun.elapsed()));
        }
        sleep(Duration::from_secs(1)).await;
        // What was put off for a wrong credential is tried again after half a minute at most.
        if world.fault_rates.lasts(Fault::GitHubRefuses) {
            wrong = begun.elapsed() + Duration::from_secs(60);
        }
    }
    sleep(asks.work).await;
    world.github.set_run(owner, name, asks.number, RunState::Completed { attempt: 1 });
    release(&actor, &key, &of_run).await;
    while !world.laws.lock().unwrap().request_of(&key).is_some_and(|request| request.phase().is_final()) {
        sleep(Duration::from_secs(1)).await;
    }
    // Its machines are cleaned, or end: until then their places are nobody's.
    sleep(GIVEN_BACK).await;
}

fn key(repository: &str, number: u64) -> RecordId {
    RecordId::new(format!("request#{repository}#{number}"), "request#default#1")
}

/// Asks until the request is there.
async fn until_asked(actor: &Arc<Actor>, key: &RecordId, asked: &[&str]) {
    while actor.world.laws.lock().unwrap().request_of(key).is_none() {
        command(actor, asked).await;
        sleep(Duration::from_secs(1)).await;
    }
}

/// A workflow asks again and again for types that there are not; of a run that GitHub knows, or of one that it does not.
async fn asks_for_a_typo(world: Arc<World>, name: &str, first: u64, known: bool) {
    let actor = Actor::new(&world, name, Role::Workflow);
    let repository = format!("bad/{name}");
    for number in (first..).step_by(7) {
        if known {
            world.github.set_run("bad", name, number, RunState::Active { attempt: 1 });
        }
        let run = number.to_string();
        let of_run = ["--run-id", &run, "--repository", &repository, "--attempt", "1"];
        let asked = ["provision", "--class", "small", "--count", "1", "--timeout", "10m"];
        let typo = ["--allowed-instance-types", TYPO];
        let key = key(&repository, number);
        until_asked(&actor, &key, &[&asked[..], &of_run, &typo].concat()).await;
        let over = |request: &Request| request.phase().is_final();
        while !world.laws.lock().unwrap().request_of(&key).is_some_and(over) {
            sleep(Duration::from_secs(2)).await;
        }
        sleep(Duration::from_secs(20)).await;
    }
}

/// For some minutes GitHub takes the credential for a wrong one.
async fn wrong_credential(world: Arc<World>, at: Duration) {
    sleep(at).await;
    world.trace.tell("* the credential is wrong");
    world.fault_rates.begin(Fault::GitHubRefuses, WRONG);
}
