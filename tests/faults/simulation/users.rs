//! Simulated workflows and pool owners. Workflows run the production commands: they provision, wait, work and release,
//! or forget to release; they provision twice, are killed at any call, and retry when a command fails.

use std::sync::Arc;
use std::time::Duration;

use runyard::step;
use runyard::{StepFailed, StepPorts};
use runyard_core::model::{
    Guard, Hold, Instance, Item, Phase, Pool, PoolStatus, Record as _, RecordId, Request, Versioned, Write,
    millis,
};
use runyard_core::ports::github::{JobState, RunState, WorkflowJob};
use runyard_core::ports::{Store, StoreError};
use runyard_fakes::SeededEntropy;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::simulation::actor::{Actor, Role};
use crate::simulation::bugs::Bug;
use crate::simulation::fault_rates::Fault;
use crate::simulation::shares::REPOSITORIES;
use crate::simulation::table::Table;
use crate::simulation::world::World;

/// How long a class here lets a machine be held, in seconds.
pub(crate) const LONGEST_HOLD: u64 = 300;

/// An item of plain attributes.
pub(crate) fn item(value: &Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(value).unwrap();
    item.into_inner().into_iter().collect()
}

/// Makes the classes.
pub(crate) async fn open(world: &Arc<World>) {
    let (chance, person) = (&world.chance, Table(Actor::new(world, "admin", Role::Person)));
    for (number, (class, mode)) in world.classes.iter().enumerate() {
        let max = chance.number(2..14);
        let mut spec = json!({
            "resourceClass": class, "cpu": 2, "mmem": 4096, "max": max, "desired": chance.number(0..max.min(4)),
            "usageClass": *chance.one(&["on-demand", "spot"]), "registrationMode": mode.as_str(),
            "idleSeconds": *chance.one(&[120, 600, 1800]), "maxUses": *chance.one(&[json!(null), json!(1), json!(3)]),
            "reuseWithin": *chance.one(&["repository", "owner", "any", "none"]),
            "maxRuntimeMinutes": *chance.one(&[5, 10, 30]), "maxHoldSeconds": LONGEST_HOLD,
        });
        if (&spec["reuseWithin"], &spec["registrationMode"]) == (&json!("none"), &json!("job")) {
            spec["jobs"] = json!({"root": true, "containers": "engine"});
        }
        spec["sharing"] = world.shares.sharing();
        if world.bug == Some(Bug::LabelBeforeClaim) {
            spec["reuseWithin"] = json!("repository");
        }
        let able = (&spec["reuseWithin"], &spec["registrationMode"]) == (&json!("repository"), &json!("run"));
        spec["registeredAhead"] = world.registers_ahead.said(number, able);
        create(&person, spec).await;
    }
}

pub(crate) async fn create(person: &Table, spec: Value) {
    let spec = serde_json::from_value(spec).unwrap();
    let pool =
        Pool { spec, scale: None, status: PoolStatus::default(), uid: None, version: 1, updated_at: None };
    surely(person, &pool.creating()).await;
}

/// Makes one class that launches what is asked for and keeps what comes back.
pub(crate) async fn open_one(world: &Arc<World>) {
    let person = Table(Actor::new(world, "admin", Role::Person));
    for (class, mode) in &world.classes {
        let spec = json!({
            "resourceClass": class, "cpu": 2, "mmem": 4096, "max": 4, "desired": 0, "idleSeconds": 7200,
            "usageClass": "on-demand", "registrationMode": mode.as_str(), "reuseWithin": "any",
        });
        create(&person, spec).await;
    }
}

/// One run that does as it should.
pub(crate) async fn asks_works_gives_back(world: Arc<World>, number: u64) {
    let actor = Actor::new(&world, &format!("run-{number}"), Role::Workflow);
    let key = RecordId::new(format!("request#acme/web#{number}"), "request#default#1");
    let run = number.to_string();
    let of_run = ["--run-id", &run, "--repository", "acme/web", "--attempt", "1"];
    world.github.set_run("acme", "web", number, RunState::Active { attempt: 1 });
    let mut asked = vec!["provision", "--class", "small", "--count", "2", "--timeout", "30m", "--wait"];
    asked.extend(of_run);
    provision(&actor, &key, &asked).await;
    until_decided(&world, &key).await;
    sleep(Duration::from_secs(30)).await;
    release(&actor, &key, &of_run).await;
    world.github.set_run("acme", "web", number, RunState::Completed { attempt: 1 });
    while !world.laws.lock().unwrap().request_of(&key).is_some_and(|request| request.phase().is_final()) {
        sleep(Duration::from_secs(2)).await;
    }
}

/// Writes until there is an answer: what was written, or none when the guard did not hold.
async fn surely(table: &Table, write: &Write) -> Option<Item> {
    loop {
        match table.write(write).await {
            Ok(item) => return Some(item),
            Err(StoreError::Refused { .. }) => return None,
            Err(_) => sleep(Duration::from_secs(2)).await,
        }
    }
}

/// A person holds a machine now and then, whatever it does, for shorter or for longer than its class allows.
pub(crate) async fn hold_machines(world: Arc<World>) {
    if !world.fault_rates.has(Fault::MachineHeld) {
        return;
    }
    let person = Table(Actor::new(&world, "ada", Role::Person));
    loop {
        sleep(Duration::from_secs(5)).await;
        if !world.fault_rates.strikes(Fault::MachineHeld, &world.holds) {
            continue;
        }
        world.trace.tell("* MachineHeld");
        let live = |machine: &&Instance| machine.state().live();
        let keys: Vec<RecordId> =
            world.laws.lock().unwrap().instances().filter(live).map(Instance::key).collect();
        if keys.is_empty() {
            continue;
        }
        let Some(machine) = world.get::<Instance>(world.holds.one(&keys)).await else { continue };
        let (now, length) = (world.clock_now(), world.holds.number(10..2 * LONGEST_HOLD));
        let hold = Hold { by: "cli:ada".into(), until: millis(now + Duration::from_secs(length)) };
        let (hold, at) = (item(&json!({"hold": hold})), item(&json!({"updatedAt": millis(now)})));
        let set = hold.into_iter().chain(at).collect();
        let one_more = [("version".to_owned(), 1)].into();
        let write = Write::update(machine.key(), Guard::Version(machine.version), set, one_more);
        surely(&person, &write).await;
    }
}

/// Changes a class's limits now and then.
pub(crate) async fn change_pools(world: Arc<World>) {
    let person = Table(Actor::new(&world, "admin", Role::Person));
    loop {
        sleep(Duration::from_secs(5)).await;
        if world.strikes(Fault::PoolMadeAnew) {
            make_anew(&world, &person).await;
        }
        if !world.strikes(Fault::PoolChanges) {
            continue;
        }
        let classes: Vec<&String> = world.classes.keys().collect();
        let key = RecordId::new(format!("pool#{}", world.chance.one(&classes)), "pool");
        let Some(pool) = world.get::<Pool>(&key).await else { continue };
        let mut after = pool.clone();
        after.spec.max = world.chance.number(1..14) as u32;
        after.spec.desired = world.chance.number(0..4).min(u64::from(after.spec.max)) as u32;
        after.advance(world.clock_now());
        surely(&person, &after.replacing(&pool)).await;
    }
}

/// Deletes a class and applies it again: with a record that has a `uid`, or with one of a program that knows of none,
/// which may have more machines than the former and not fewer, because it is known from a list or a refused write only.
async fn make_anew(world: &Arc<World>, person: &Table) {
    let classes: Vec<&String> = world.classes.keys().collect();
    let key = RecordId::new(format!("pool#{}", world.chance.one(&classes)), "pool");
    let Some(pool) = world.get::<Pool>(&key).await.filter(|pool| pool.version > 1) else { return };
    surely(person, &Write::delete(key.clone(), Guard::image(&pool))).await;
    // An operator wrote its status meanwhile.
    if world.get::<Pool>(&key).await.is_some() {
        return;
    }
    let mut spec = pool.spec.clone();
    let uid = world.chance.percent(60).then(|| format!("u-{}", world.chance.number(0..u64::MAX)));
    let least = if uid.is_some() { 1 } else { u64::from(spec.max) };
    spec.max = world.chance.number(least..14.max(least + 1)) as u32;
    spec.desired = world.chance.number(0..4).min(u64::from(spec.max)) as u32;
    let uid = uid.map(|uid| uid.parse().expect("a uid"));
    let anew = Pool { spec, scale: None, status: PoolStatus::default(), uid, version: 1, updated_at: None };
    surely(person, &anew.creating()).await;
}

/// One workflow, from its request to its end.
pub(crate) async fn workflow(world: Arc<World>, number: u64, at: Duration) {
    sleep(at).await;
    let chance = &world.chance;
    let actor = Actor::new(&world, &format!("run-{number}"), Role::Workflow);
    let flood = world.shares.of_flood(number);
    let repository = flood.map_or_else(|| *chance.one(&REPOSITORIES), |(repository, _)| repository);
    let (owner, name) = repository.split_once('/').expect("owner and name");
    let key = RecordId::new(format!("request#{repository}#{number}"), "request#default#1");
    let run = number.to_string();
    let of_run = ["--run-id", &run, "--repository", repository, "--attempt", "1"];
    world.github.set_run(owner, name, number, RunState::Active { attempt: 1 });
    let asked = ask(&world, &of_run, flood.map(|(_, class)| class));
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    provision(&actor, &key, &asked).await;
    if world.strikes(Fault::SubmittedTwice) {
        provision(&actor, &key, &asked).await;
    }
    if world.strikes(Fault::ReleasedEarly) {
        sleep(chance.seconds(0..60)).await;
    } else {
        until_decided(&world, &key).await;
        let work = Instant::now() + chance.seconds(if flood.is_some() { 10..120 } else { 20..500 });
        while Instant::now() < work && !world.ending() {
            sleep(Duration::from_secs(5)).await;
        }
    }
    world.github.set_run(owner, name, number, RunState::Completed { attempt: 1 });
    if !world.strikes(Fault::RunEndsUnreleased) {
        release(&actor, &key, &of_run).await;
    }
    if world.strikes(Fault::JobsRunAgain) {
        runs_again(&world, &actor, (owner, name, number), &asked).await;
    }
}

/// A person re-runs the failed jobs of a run that is over. Its own job that asks was carried over; or it failed too and
/// asks again, at the same time as the operator may. The re-run may be cancelled before it is served.
async fn runs_again(world: &Arc<World>, actor: &Arc<Actor>, run: (&str, &str, u64), asked: &[&str]) {
    let (chance, (owner, name, number)) = (&world.chance, run);
    let key = |attempt: u32| {
        RecordId::new(format!("request#{owner}/{name}#{number}"), format!("request#default#{attempt}"))
    };
    let asks_again = chance.percent(40);
    first_attempt(world, run, asks_again);
    let served = |request: &Request| request.status.accepted_at.is_some();
    let accepted = world.laws.lock().unwrap().request_of(&key(1)).is_some_and(served);
    if !accepted || world.ending() || world.github.rerun(owner, name, number, false).is_err() {
        return;
    }
    let (second, cancelled) = (key(2), chance.percent(20));
    if !cancelled && !asks_again {
        world.waited_for.lock().unwrap().insert(second.clone());
    }
    if asks_again {
        sleep(chance.seconds(0..70)).await;
        let at = asked.iter().position(|one| *one == "--attempt").expect("it names its attempt") + 1;
        let again = [&asked[..at], &["2"], &asked[at + 1..]].concat();
        provision(actor, &second, &again).await;
    } else if cancelled {
        sleep(chance.seconds(0..150)).await;
    }
    let decided = || match world.laws.lock().unwrap().request_of(&second).map(Request::phase) {
        None | Some(Phase::Pending | Phase::Fulfilling) => false,
        Some(Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed) => true,
    };
    while !cancelled && !decided() && !world.ending() {
        sleep(Duration::from_secs(2)).await;
    }
    sleep(chance.seconds(5..200)).await;
    world.github.set_run(owner, name, number, RunState::Completed { attempt: 2 });
}

/// The jobs of a first attempt that is over: one failed on our machines; the one that asked succeeded, or failed later.
fn first_attempt(world: &World, (owner, name, number): (&str, &str, u64), asks_again: bool) {
    let end = world.clock_now();
    let at = |seconds: u64| Some(end - Duration::from_secs(seconds));
    let job = |name: &str, label: &str, state, times: (u64, u64)| WorkflowJob {
        name: name.to_owned(),
        labels: vec![label.to_owned()],
        state,
        attempt: 1,
        started_at: at(times.0),
        completed_at: at(times.1),
        runner: None,
    };
    let provision = if asks_again { JobState::Failed } else { JobState::Succeeded };
    for job in [
        job("lint", "ubuntu-latest", JobState::Succeeded, (30, 25)),
        job("provision", "ubuntu-latest", provision, (30, 20)),
        job("build", &number.to_string(), JobState::Failed, (10, 5)),
    ] {
        world.github.add_job(owner, name, number, job);
    }
}

/// What a workflow asks for.
fn ask(world: &World, of_run: &[&str], of_flood: Option<&str>) -> Vec<String> {
    let chance = &world.chance;
    let classes: Vec<&String> = world.classes.keys().collect();
    let class = of_flood.unwrap_or_else(|| chance.one(&classes).as_str());
    let count = chance.number(if of_flood.is_some() { 1..3 } else { 1..6 }).to_string();
    let mut asked: Vec<&str> = vec!["provision", "--class", class, "--count", &count];
    asked.extend(of_run);
    asked.extend(["--timeout", *chance.one(&["2m", "300s", "10m"])]);
    if chance.percent(30) {
        asked.extend(["--min-count", "1"]);
    }
    if chance.percent(15) {
        asked.extend(["--usage-class", *chance.one(&["spot", "on-demand"])]);
    }
    if chance.percent(25) {
        asked.push("--wait");
    }
    if let Some(priority) = world.shares.priority() {
        asked.extend(["--priority", priority]);
    }
    asked.into_iter().map(str::to_owned).collect()
}

/// The production command, which may be killed at any of its calls.
pub(crate) async fn command(actor: &Arc<Actor>, arguments: &[&str]) -> Option<Result<(), StepFailed>> {
    let entropy = Arc::new(SeededEntropy::new(actor.world.chance.number(0..u64::MAX)));
    let ports = StepPorts { store: Arc::new(Table(actor.clone())), clock: actor.clone(), entropy };
    let ended = tokio::select! {
        biased;
        () = actor.death.notified() => None,
        ended = step(ports, arguments) => Some(ended),
    };
    let said =
        ended.as_ref().map(|ended| ended.as_ref().map_or_else(ToString::to_string, |()| "done".into()));
    actor.world.trace.tell(&format!(
        "{} {}: {}",
        actor.name,
        arguments[0],
        said.as_deref().unwrap_or("killed")
    ));
    ended
}

/// Asks until the request is there, whatever becomes of it.
async fn provision(actor: &Arc<Actor>, key: &RecordId, asked: &[&str]) {
    let world = &actor.world;
    loop {
        let ended = command(actor, asked).await;
        let there =
            |wanted: fn(&Request) -> bool| world.laws.lock().unwrap().request_of(key).is_some_and(wanted);
        match ended {
            Some(Ok(())) => {
                if !there(|_| true) {
                    world.broke(format!("S13 {key}: it was acknowledged and is not there"));
                }
                let waited = asked.contains(&"--wait");
                if waited && !there(|request| request.status.ready_at.is_some()) {
                    world.broke(format!("{key}: the command said it is ready, and it never was"));
                }
                return;
            }
            // It failed, or the wait is over: then it was taken back.
            Some(Err(StepFailed { code: 3 | 4, .. })) => return,
            Some(Err(StepFailed { code: 2, message })) => return world.broke(format!("{key}: {message}")),
            // Whoever comes again to what is over is told so.
            Some(Err(_)) | None if there(is_over) => return,
            Some(Err(_)) | None => sleep(Duration::from_secs(2)).await,
        }
    }
}

/// Whether nobody wants it any more.
fn is_over(request: &Request) -> bool {
    request.is_released() || request.phase().is_final()
}

/// Gives back until the command says that it is given back.
pub(crate) async fn release(actor: &Arc<Actor>, key: &RecordId, of_run: &[&str]) {
    let world = &actor.world;
    let mut asked = vec!["release"];
    asked.extend(of_run);
    if world.chance.percent(30) {
        asked.push("--wait");
    }
    loop {
        match command(actor, &asked).await {
            Some(Ok(()) | Err(StepFailed { code: 4, .. })) => break,
            Some(Err(StepFailed { code: 2, message })) => return world.broke(format!("{key}: {message}")),
            Some(Err(_)) | None => sleep(Duration::from_secs(2)).await,
        }
    }
    if !world.laws.lock().unwrap().request_of(key).is_none_or(is_over) {
        world.broke(format!("S13 {key}: the command said it is given back, and it is not"));
    }
}

/// Until the request is ready or over.
async fn until_decided(world: &World, key: &RecordId) {
    loop {
        let phase = world.laws.lock().unwrap().request_of(key).map(Request::phase);
        match phase {
            Some(Phase::Pending | Phase::Fulfilling) => sleep(Duration::from_secs(2)).await,
            Some(Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed) => return,
            None => {
                world.broke(format!("S13 {key}: it was acknowledged and is not there"));
                return;
            }
        }
    }
}
