//! One seed from beginning to end: the yard works while things go wrong, then nothing goes wrong any more, and within
//! its bounds everything must be as it should.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use runyard_core::model::{
    Ahead, ConditionType, Instance, InstanceId, LaunchPhase, Life, Phase, Place, RegistrationMode,
};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};

use crate::simulation::bugs::Bug;
use crate::simulation::fault_rates::Fault;
use crate::simulation::laws::Laws;
use crate::simulation::plans::{End, Plan};
use crate::simulation::world::World;
use crate::simulation::{injection, machines, neighbours, operators, queued_jobs, set_jobs, users};

/// What one seed showed.
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) hash: u64,
    pub(crate) calls: u64,
    pub(crate) simulated: Duration,
    pub(crate) fired: BTreeMap<Fault, u64>,
    pub(crate) claims: u64,
    pub(crate) reused: u64,
    pub(crate) ready: u64,
    /// How many requests got machines, and how many did not for each reason.
    pub(crate) outcomes: BTreeMap<String, u64>,
    /// Of those, how many were written for a re-run of failed jobs.
    pub(crate) derived: u64,
    /// How many shares waited for a machine that a request of another order got, and were compared with it.
    pub(crate) compared: u64,
    /// How often the request was passed over that was so most.
    pub(crate) passed_over: u32,
    /// What is broken, with the last events.
    pub(crate) failure: Option<String>,
}

/// No seed makes a fourth as many port calls.
const MOST_CALLS: u64 = 400_000;

/// Lives one seed; `told`: every event is printed.
pub(crate) fn live(seed: u64, told: bool, bug: Option<Bug>) -> Report {
    live_under(seed, told, bug, None)
}

/// The same under these faults alone.
pub(crate) fn live_under(seed: u64, told: bool, bug: Option<Bug>, only: Option<&[Fault]>) -> Report {
    LocalSet::new().block_on(&runtime(seed), async {
        let world = Arc::new(World::new(seed, told, bug, only));
        let begun = Instant::now();
        let failure = run(&world).await.err();
        // They know their world: a world that knew them for ever would stay for ever.
        world.actors.lock().unwrap().clear();
        let failure = failure.map(|why| {
            format!(
                "SEED={seed}: {why}\n-- what there is\n{}-- the last events\n{}",
                show(&world),
                world.trace.last()
            )
        });
        let (laws, watched) = (world.laws.lock().unwrap(), world.watched.lock().unwrap());
        Report {
            seed,
            hash: world.trace.hash(),
            calls: world.trace.calls(),
            simulated: begun.elapsed(),
            fired: world.fault_rates.fired(),
            claims: laws.claims_made,
            reused: laws.reused,
            ready: laws.requests().filter(|request| request.status.ready_at.is_some()).count() as u64,
            outcomes: outcomes(&laws),
            derived: laws.requests().filter(|request| request.status.derived_from.is_some()).count() as u64,
            compared: watched.compared,
            passed_over: watched.passed_over_at_most(),
            failure,
        }
    })
}

/// Lives one seed of neighbours: how many requests were served, or what is broken.
pub(crate) fn live_with_neighbours(seed: u64, told: bool, bug: Option<Bug>) -> Result<u64, String> {
    LocalSet::new().block_on(&runtime(seed), async {
        let world = Arc::new(World::new(seed, told, bug, Some(&[])));
        let lived = neighbours::live(&world, seed).await;
        world.actors.lock().unwrap().clear();
        lived.map_err(|why| format!("SEED={seed}: {why}\n{}{}", show(&world), world.trace.last()))
    })
}

/// Lives one seed of queued jobs: how many began, or what is broken.
pub(crate) fn live_with_queued_jobs(seed: u64, told: bool, bug: Option<Bug>) -> Result<u64, String> {
    LocalSet::new().block_on(&runtime(seed), async {
        let world = Arc::new(World::of_queued_jobs(seed, told, bug));
        let lived = queued_jobs::live(&world, seed).await;
        world.actors.lock().unwrap().clear();
        lived.map_err(|why| format!("SEED={seed}: {why}\n{}{}", show(&world), world.trace.last()))
    })
}

/// Lives one seed of a runner scale set: how many jobs were served, or what is broken.
pub(crate) fn live_with_set_jobs(seed: u64, told: bool, bug: Option<Bug>) -> Result<u64, String> {
    LocalSet::new().block_on(&runtime(seed), async {
        let world = Arc::new(World::of_set_jobs(seed, told, bug));
        let lived = set_jobs::live(&world, seed).await;
        world.actors.lock().unwrap().clear();
        lived.map_err(|why| format!("SEED={seed}: {why}\n{}{}", show(&world), world.trace.last()))
    })
}

/// Lives so many moments at which a job comes while a runner is given back, in fair weather.
pub(crate) fn live_with_late_jobs(seed: u64, timings: u64, bug: Option<Bug>) -> Result<(u64, u64), String> {
    LocalSet::new().block_on(&runtime(seed), async {
        let world = Arc::new(World::of_set_jobs_in_fair_weather(seed, bug));
        let lived = set_jobs::race(&world, timings).await;
        world.actors.lock().unwrap().clear();
        lived.map_err(|why| format!("{why}\n{}{}", show(&world), world.trace.last()))
    })
}

/// What became of each request: that it got its machines, or the reason why not; `no reason` must not occur.
fn outcomes(laws: &Laws) -> BTreeMap<String, u64> {
    let mut outcomes = BTreeMap::new();
    for request in laws.requests() {
        let status = &request.status;
        let refused =
            status.conditions.iter().find(|c| c.condition_type == ConditionType::Ready && !c.status);
        let outcome = match (status.ready_at, request.phase(), refused) {
            (Some(_), ..) => "served".to_owned(),
            (None, Phase::Failed, Some(refused)) if !status.message.is_empty() => refused.reason.clone(),
            (None, Phase::Released, _) => "released first".to_owned(),
            (
                None,
                Phase::Pending | Phase::Fulfilling | Phase::Ready | Phase::Releasing | Phase::Failed,
                _,
            ) => {
                format!("no reason ({})", request.phase())
            }
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    outcomes
}

/// One thread in simulated time. The commands listen for signals while they wait, and spread their attempts by chance.
fn runtime(seed: u64) -> tokio::runtime::Runtime {
    fastrand::seed(seed);
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// A story with one effect of an agent or a command that goes wrong, or none.
pub(crate) struct Story {
    pub(crate) end: End,
    /// Registrations under a name that was registered before.
    pub(crate) repeated: usize,
    pub(crate) effects: Vec<String>,
    pub(crate) failure: Option<String>,
}

/// Two runs one after the other ask for the same two machines, wait, work and give back.
pub(crate) fn live_story(mode: RegistrationMode, plan: Option<Plan>) -> Story {
    LocalSet::new().block_on(&runtime(1), async {
        let world = Arc::new(World::planned(mode, plan));
        let failure = tell(&world).await.err();
        let failure = failure.map(|why| format!("{why}\n{}{}", show(&world), world.trace.last()));
        let laws = world.laws.lock().unwrap();
        let requests = laws
            .requests()
            .map(|request| (request.id.to_string(), (request.phase(), request.status.ready_at.is_some())));
        let mut machines = BTreeMap::new();
        for instance in laws.instances() {
            let reason = match instance.life {
                Life::Terminated { reason, .. } => reason.as_str(),
                Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => "",
            };
            *machines.entry(format!("{:?} {reason}", instance.place())).or_default() += 1;
        }
        let registered = world.effects.registered.lock().unwrap().clone();
        let end = End {
            requests: requests.collect(),
            made: world.compute.orders().iter().map(|order| order.launch.count).sum(),
            machines,
            registered: registered.iter().cloned().collect(),
        };
        let repeated = registered.len() - end.registered.len();
        Story { end, repeated, effects: world.effects.made(), failure }
    })
}

async fn tell(world: &Arc<World>) -> Result<(), String> {
    users::open_one(world).await;
    tokio::spawn(machines::keep(world.clone()));
    tokio::spawn(operators::operate(world.clone(), "op-1".into()));
    for number in 1..=2 {
        let story = spawn_local(users::asks_works_gives_back(world.clone(), number));
        within(world, "the run is over", Duration::from_secs(3600), |_| {
            if story.is_finished() { Vec::new() } else { vec![format!("run {number}")] }
        })
        .await?;
    }
    world.fault_rates.clear_up();
    within(world, "L1", Duration::from_secs(1800), astray).await
}

async fn run(world: &Arc<World>) -> Result<(), String> {
    let chance = &world.chance;
    users::open(world).await;
    if world.fault_rates.none() {
        world.watched.lock().unwrap().begin(true);
    }
    tokio::spawn(machines::keep(world.clone()));
    for n in 1..=chance.number(2..4) {
        tokio::spawn(operators::operate(world.clone(), format!("op-{n}")));
    }
    tokio::spawn(users::change_pools(world.clone()));
    tokio::spawn(injection::deal(world.clone()));
    tokio::spawn(users::hold_machines(world.clone()));
    let length = chance.number(200..800);
    let mut workflows: Vec<_> = (1..=chance.number(4..13))
        .map(|n| spawn_local(users::workflow(world.clone(), n, chance.millis(0..length * 1000))))
        .collect();
    if let Some(flood) = &world.shares.flood {
        // The line is long when faults stop, and so it is seen how it is served.
        let at = || Duration::from_secs(length - world.shares.chance.number(0..60));
        workflows
            .extend((0..flood.count).map(|n| spawn_local(users::workflow(world.clone(), 100 + n, at()))));
    }
    within(world, "", Duration::from_secs(length), |_| vec!["not yet".into()]).await.or_else(no_bound)?;
    world.fault_rates.clear_up();
    world.actors.lock().unwrap().iter().for_each(|actor| actor.disturb());
    world.watched.lock().unwrap().begin(false);
    world.trace.tell("faults stop");
    let set = &world.settings;
    // A deadline that was written by a clock that was ahead passes so much later.
    let ahead = if world.fault_rates.has(Fault::ClocksDiffer) || world.fault_rates.has(Fault::ClockSteps) {
        world.operators_off
    } else {
        Duration::ZERO
    };
    // L2: whatever is asked for is decided by its deadline and two resyncs.
    let decided = Duration::from_secs(600 + 60) + 2 * set.timing.resync + ahead;
    within(world, "L2", decided, undecided).await?;
    world.decided.store(true, Ordering::SeqCst);
    // L1, L3, L4, L7, L8: everything that was held is given back, what is gone is known to be gone, the pools are full.
    let longest = set.timing.created
        + set.timing.claimed
        + set.timing.cleanup
        + set.timing.grace
        + 2 * set.timing.orphan
        + 3 * set.sweep;
    let github = set.github.sweep.unwrap_or_default() + Duration::from_secs(60);
    within(world, "L1", longest + 5 * set.timing.resync + github + Duration::from_secs(1800) + ahead, astray)
        .await?;
    for workflow in workflows {
        workflow.abort();
    }
    stays(world).await?;
    // S29: what is over is told, at the latest when the history table was asked again and all was listed once more.
    let told = 2 * set.timing.resync + Duration::from_secs(240);
    within(world, "", told, |world| world.shelf.astray(&world.laws.lock().unwrap())).await
}

fn no_bound(why: String) -> Result<(), String> {
    if why.starts_with("not within") { Ok(()) } else { Err(why) }
}

/// Waits until nothing is wrong any more; a broken promise ends it at once.
async fn within(
    world: &Arc<World>,
    law: &str,
    bound: Duration,
    wrong: impl Fn(&World) -> Vec<String>,
) -> Result<(), String> {
    let end = Instant::now() + bound;
    loop {
        world.look_at_shares();
        if let Some(first) = world.broken.lock().unwrap().first() {
            return Err(first.clone());
        }
        let wrong = wrong(world);
        if wrong.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(format!("not within {bound:?}: {law} {}", wrong.join("; ")));
        }
        if world.trace.calls() > MOST_CALLS {
            return Err(format!(
                "{MOST_CALLS} port calls: something is done over and over: {}",
                wrong.join("; ")
            ));
        }
        sleep(Duration::from_secs(5)).await;
    }
}

fn undecided(world: &World) -> Vec<String> {
    let laws = world.laws.lock().unwrap();
    let open = laws.requests().filter(|request| match request.phase() {
        Phase::Pending | Phase::Fulfilling => true,
        Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed => false,
    });
    let mut wrong: Vec<String> =
        open.map(|request| format!("{} is {}", request.id, request.phase())).collect();
    // Every queued job with our label gets a machine or a reason, which its attempt's request has.
    let waited_for = world.waited_for.lock().unwrap();
    let lacking = waited_for.iter().filter(|key| laws.request_of(key).is_none());
    wrong.extend(lacking.map(|key| format!("L14 jobs wait for {key}, which nobody wrote")));
    wrong
}

/// What is not yet as it is to be in the end, when nobody wants a machine.
fn astray(world: &World) -> Vec<String> {
    let mut wrong: Vec<String> = Vec::new();
    let laws = world.laws.lock().unwrap();
    let open = laws.requests().filter(|request| !request.phase().is_final());
    wrong.extend(open.map(|request| format!("{} is {}", request.id, request.phase())));
    let launches = laws.launches().filter(|launch| launch.phase == LaunchPhase::Intent);
    wrong.extend(launches.map(|launch| format!("{} is open", launch.launch_id)));
    let instances: Vec<&Instance> = laws.instances().collect();
    let live: BTreeSet<InstanceId> =
        instances.iter().filter(|i| i.state().live()).map(|i| i.facts.instance_id.clone()).collect();
    let alive: BTreeSet<InstanceId> =
        world.compute.machines().into_iter().filter(|m| m.state.alive()).map(|m| m.id).collect();
    wrong.extend(alive.difference(&live).map(|id| format!("L3 {id} is alive and nobody's")));
    wrong.extend(live.difference(&alive).map(|id| format!("L4 {id} is gone and recorded as live")));
    let working = instances.iter().filter(|i| i.state().live() && i.place() != Place::IdlePooled);
    wrong.extend(working.map(|i| format!("L7 {} is {:?}", i.facts.instance_id, i.place())));
    for pool in laws.pools() {
        let class = &pool.spec.resource_class;
        let pooled = instances.iter().filter(|i| i.pooled_at().is_some() && i.facts.resource_class == *class);
        let (pooled, wanted) = (pooled.count() as u32, pool.spec.desired.min(pool.spec.max));
        if pooled < wanted && !World::held_back(pool) {
            wrong.push(format!("{class} has {pooled} machines and wants {wanted}"));
        }
    }
    wrong.extend(world.untold(&laws));
    let machines = world.machines.lock().unwrap();
    let busy = machines.values().filter(|sim_host| sim_host.at_work());
    wrong.extend(busy.map(|sim_host| format!("{} still runs a runner", sim_host.machine.id)));
    let at_rest: BTreeSet<String> = instances
        .iter()
        .filter(|i| i.pooled_at().is_some())
        .filter_map(|i| i.ahead.as_ref().map(|ahead| Ahead::name_of(&ahead.id)))
        .collect();
    let listed = world.github.all_runners().into_iter().filter(|runner| !at_rest.contains(&runner.name));
    wrong.extend(listed.map(|runner| format!("L8 {} is registered", runner.name)));
    wrong
}

/// L1: and it stays so. Nothing is launched any more, and nothing is ended but what is old or too many. A class that was
/// full of machines that few may use gets those that it keeps for others as these end, one for one.
async fn stays(world: &Arc<World>) -> Result<(), String> {
    let launches = world.compute.orders().len();
    let kept: u32 = world.laws.lock().unwrap().pools().map(|pool| pool.spec.desired.min(pool.spec.max)).sum();
    let end = Instant::now() + world.settings.timing.resync + Duration::from_secs(30);
    while Instant::now() < end {
        within(world, "", Duration::from_secs(20), |_| vec!["not yet".into()]).await.or_else(no_bound)?;
    }
    let more = world.compute.orders().len() - launches;
    if more > usize::try_from(kept).unwrap_or(usize::MAX).max(2) {
        return Err(format!("L1: {more} more launches after all was well"));
    }
    Ok(())
}

fn show(world: &World) -> String {
    let mut lines = Vec::new();
    let laws = world.laws.lock().unwrap();
    for i in laws.instances() {
        let claim = i.claim.as_ref().map_or("", |claim| claim.id.as_str());
        let (id, at) = (&i.facts.instance_id, i.threshold.map(|t| t.at.to_string()).unwrap_or_default());
        if i.state().live() {
            lines.push(format!(
                "{id} {} {:?} {claim} until {at} v{}",
                i.facts.resource_class,
                i.place(),
                i.version
            ));
        }
    }
    for r in laws.requests() {
        let s = &r.status;
        lines.push(format!("{} {} {:?} of {} {}", r.id, r.phase(), s.instances, r.intent.count, s.message));
    }
    for l in laws.launches().filter(|launch| launch.phase == LaunchPhase::Intent) {
        lines.push(format!("{} {} {} {}", l.launch_id, l.phase, l.count, l.message));
    }
    for p in laws.pools() {
        lines.push(format!("{} desired {} max {}", p.spec.resource_class, p.spec.desired, p.spec.max));
    }
    lines.push(format!("{} machines live by the records", laws.live()));
    lines.iter().map(|line| format!("{line}\n")).collect()
}
