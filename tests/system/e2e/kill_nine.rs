//! What if anything is killed at any moment? The operator, a machine, or both, again and again while workflows ask, run
//! and give back: every request still ends, and nothing is left.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use runyard_core::model::{Agent, Instance, InstanceId, Phase, Record as _, Request};
use tokio::time::{Instant, sleep};

use crate::e2e::history::{self, Snapshot};
use crate::e2e::home::{Client, Home};
use crate::e2e::waiting::{PATIENCE, turn, until, until_none};
use crate::e2e::workflow::{self, Fared, REPOSITORY};
use runyard_support::laws;

/// How often somebody is killed, unless too little happened meanwhile.
const TRIES: u32 = 54;
/// What has to happen at least: claims, looks that are of one moment, and jobs that run.
const CLAIMS: usize = 20;
const MOMENTS: u32 = TRIES / 2;
const JOBS: usize = 10;
/// Workflows at the same time.
const WORKFLOWS: u64 = 3;
/// How long the kill waits for the phase it aims at, before it takes what there is.
const AIM: Duration = Duration::from_secs(2);

/// Short, so that a lost machine is made up for while the test looks.
const TIMING: [(&str, &str); 11] = [
    ("RUNYARD_TIMING__CREATED", "20s"),
    ("RUNYARD_TIMING__CLAIMED", "15s"),
    ("RUNYARD_TIMING__CLEANUP", "15s"),
    ("RUNYARD_TIMING__GRACE", "3s"),
    ("RUNYARD_TIMING__HEARTBEAT", "500ms"),
    ("RUNYARD_TIMING__STALE", "8s"),
    ("RUNYARD_TIMING__AGENT_POLL", "100ms"),
    ("RUNYARD_TIMING__RESYNC", "2s"),
    ("RUNYARD_TIMING__REANNOUNCE", "2s"),
    ("RUNYARD_TIMING__LEASE", "2s"),
    ("RUNYARD_TIMING__ORPHAN", "4s"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Operator,
    Machine,
    Both,
}

/// How often who was killed while what was going on.
#[derive(Debug, Default)]
struct Tally {
    kills: BTreeMap<(Victim, &'static str), u32>,
    /// Records of one moment that were held against S1 and S2.
    moments: u32,
}

/// Where a kill is aimed: at requests in these phases.
const AIMS: [(&str, &[Phase]); 3] = [
    ("provision", &[Phase::Pending, Phase::Fulfilling]),
    ("jobs", &[Phase::Ready]),
    ("release", &[Phase::Releasing]),
];

/// The seed of this run: `RUNYARD_E2E_SEED` when the tests are built, else another one each time.
fn seed() -> u64 {
    option_env!("RUNYARD_E2E_SEED")
        .map_or_else(rand::random, |seed| seed.parse().expect("a seed is a number"))
}

#[tokio::test]
async fn whoever_is_killed_at_whatever_moment_every_request_ends_and_nothing_is_left() {
    let _turn = turn().await;
    let seed = seed();
    println!("seed {seed} (RUNYARD_E2E_SEED={seed} at build time repeats its choices)");
    let mut random = StdRng::seed_from_u64(seed);
    let mut home = Home::new(&TIMING);
    home.up().await;
    let client = home.client();
    client.runs(&["scale", "small", "--desired", "2"], 0).await;
    let results = home.beside("results.txt");
    std::fs::write(&results, "").expect("a file can be written");
    let (stop, fared) = (AtomicBool::new(false), Fared::default());
    let results_name = results.to_str().expect("UTF-8");
    let run_on = |number| workflow::run_on(&client, (number + 1, WORKFLOWS), results_name, &stop, &fared);
    let workflows = join_all((0..WORKFLOWS).map(run_on));
    let mut tally = Tally::default();
    let killing = async {
        let (started, mut tries) = (Instant::now(), 0);
        while tries < TRIES || (started.elapsed() < PATIENCE && !enough(&client, &results, &tally).await) {
            kill_somebody(&mut home, &client, &mut random, &mut tally).await;
            tries += 1;
        }
        stop.store(true, Ordering::Relaxed);
        println!("{tries} tries in {} s: {:?}", started.elapsed().as_secs(), tally.kills);
    };
    join(workflows, killing).await;
    println!("{fared:?}");
    at_rest(&home, &client).await;
    taken_down(&home, &client).await;
    judged(&client, &results, &tally).await;
    home.serving().signal(Signal::SIGTERM);
    let status = home.serving().ends().await;
    assert!(status.success(), "{status}");
    assert_eq!(home.processes(), Vec::<String>::new());
}

/// One try: aims at a phase, waits a random moment, kills, and starts again what a person would start again.
async fn kill_somebody(home: &mut Home, client: &Client, random: &mut StdRng, tally: &mut Tally) {
    let (_, phases) = AIMS[random.random_range(0..AIMS.len())];
    let victim = *[Victim::Operator, Victim::Operator, Victim::Machine, Victim::Machine, Victim::Both]
        .choose(random)
        .expect("there are victims");
    let end = Instant::now() + AIM;
    let aimed = |snapshot: &Snapshot| {
        snapshot.all::<Request>().iter().any(|request| phases.contains(&request.phase()))
    };
    until("the phase that is aimed at", async || {
        let snapshot = history::snapshot(&client.store).await?;
        (aimed(&snapshot) || Instant::now() > end).then_some(())
    })
    .await;
    // The random moment itself: it is not waited for anything.
    sleep(Duration::from_millis(random.random_range(0..250))).await;
    let seen = until("a look at the table", async || history::snapshot(&client.store).await).await;
    if seen.of_one_moment {
        tally.moments += 1;
        assert_eq!(laws::judge_moment(&seen.items), Vec::<String>::new());
    }
    let machine = victim_of(home, &seen, phases, random);
    let hit = seen.all::<Request>().iter().map(Request::phase).find(|phase| phases.contains(phase));
    let at = hit.map_or("between", |phase| phase.as_str());
    *tally.kills.entry((victim, at)).or_default() += 1;
    if victim != Victim::Operator
        && let Some(agent) = machine.and_then(|machine| home.agent(&machine))
    {
        agent.signal(Signal::SIGKILL);
    }
    if victim != Victim::Machine {
        home.serving().kill_nine();
        home.up().await;
    }
}

/// A living machine, if possible one of a request in these phases.
fn victim_of(home: &Home, seen: &Snapshot, phases: &[Phase], random: &mut StdRng) -> Option<InstanceId> {
    let requests = seen.all::<Request>();
    let aimed: Vec<_> = requests.iter().filter(|request| phases.contains(&request.phase())).collect();
    let of_aimed = |instance: &&Instance| {
        let claim = instance.claim.as_ref();
        claim.is_some_and(|claim| aimed.iter().any(|request| request.key() == claim.request))
    };
    let instances: Vec<_> = seen.all::<Instance>().into_iter().filter(|i| i.state().live()).collect();
    let ids = |instances: Vec<&Instance>| -> Vec<InstanceId> {
        let ids = instances.into_iter().map(|instance| instance.facts.instance_id.clone());
        ids.filter(|id| home.agent(id).is_some()).collect()
    };
    let preferred = ids(instances.iter().filter(of_aimed).collect());
    let all = ids(instances.iter().collect());
    preferred.choose(random).or_else(|| all.choose(random)).cloned()
}

/// Every request is over, and every live record stands for a living process and the other way round.
async fn at_rest(home: &Home, client: &Client) {
    until_none("open or without a process", async || {
        let snapshot = history::snapshot(&client.store).await?;
        let open = snapshot.all::<Request>().into_iter().filter(|request| !request.phase().is_final());
        let mut left: Vec<String> =
            open.map(|request| format!("{} is {}", request.id, request.phase())).collect();
        for request in snapshot.all::<Request>().iter().filter(|r| r.phase() == Phase::Failed) {
            assert!(!request.status.message.is_empty(), "{} failed without a reason", request.id);
        }
        let instances = snapshot.all::<Instance>();
        let live = |id: &InstanceId| instances.iter().any(|i| i.facts.instance_id == *id && i.state().live());
        for instance in instances.iter().filter(|instance| instance.state().live()) {
            let id = &instance.facts.instance_id;
            if home.agent(id).is_none() {
                left.push(format!("{id} is {} and no process", instance.state()));
            }
        }
        let agents = home.machines().into_iter().filter(|id| home.agent(id).is_some() && !live(id));
        left.extend(agents.map(|id| format!("{id} is a process and no live record")));
        Some(left)
    })
    .await;
}

/// Scales down to nothing and waits until nothing is left of anything.
async fn taken_down(home: &Home, client: &Client) {
    client.runs(&["scale", "small", "--desired", "0"], 0).await;
    until_none("there", async || {
        // Again and again: a machine that was still starting is idle only later.
        client.runs(&["expire", "small", "--idle"], 0).await;
        let snapshot = history::snapshot(&client.store).await?;
        let mut left = home.processes();
        let runners = client.github.runners(REPOSITORY).await?;
        left.extend(runners.into_iter().map(|runner| format!("runner {runner}")));
        left.extend(snapshot.all::<Agent>().iter().map(|agent| format!("record {}", agent.key())));
        let live = snapshot.all::<Instance>().into_iter().filter(|instance| instance.state().live());
        left.extend(live.map(|instance| format!("{} is {}", instance.key(), instance.state())));
        Some(left)
    })
    .await;
}

/// What the whole history says.
async fn verdict(client: &Client) -> laws::Verdict {
    laws::judge(&history::all_as(&client.environment["AWS_ACCESS_KEY_ID"], &client.endpoint).await)
}

/// How many jobs say that they ran.
fn ran(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("ran ")).count()
}

/// Whether enough happened for the end to mean something: on a busy machine that takes more kills.
async fn enough(client: &Client, results: &Path, tally: &Tally) -> bool {
    let text = std::fs::read_to_string(results).expect("the jobs' results");
    tally.moments >= MOMENTS && ran(&text) >= JOBS && verdict(client).await.claims >= CLAIMS
}

/// The whole history, and what the jobs themselves met.
async fn judged(client: &Client, results: &Path, tally: &Tally) {
    let verdict = verdict(client).await;
    println!(
        "{} writes, {} claims, machines ended: {:?}; {} moments looked at",
        verdict.steps, verdict.claims, verdict.ended, tally.moments
    );
    assert_eq!(verdict.broken, Vec::<String>::new());
    assert!(verdict.claims >= CLAIMS && tally.moments >= MOMENTS, "little happened: {verdict:?}");
    let text = std::fs::read_to_string(results).expect("the jobs' results");
    let met: Vec<&str> = text.lines().filter(|line| line.starts_with("met ")).collect();
    assert!(met.is_empty(), "jobs met another run's processes on their machine: {met:#?}");
    assert!(ran(&text) >= JOBS, "few jobs ran:\n{text}");
}
