//! What if an operator is killed, or put to sleep past its lease, at each kind of write it makes, again and again,
//! while requests come and go? Another one is always there; no machine is ever held twice, every request is served and
//! ends.
//!
//! `RUNYARD_KILL_MINUTES=60 cargo test --test system killed_under_load -- --nocapture` goes on for an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join;
use nix::sys::signal::Signal;
use runyard_core::model::{AttributeValue, Item, Phase, Reading, Request, RequestKey, read};
use runyard_core::ports::{Store as _, Watch};
use tokio::time::{Instant, sleep, timeout_at};

use crate::e2e::history::{self, kind};
use crate::e2e::operators::{Asking, Operator, Yard};
use crate::e2e::simulator::Agents;
use crate::e2e::waiting::{PATIENCE, turn, until, until_none};
use runyard_support::laws;

/// How often somebody is killed or put to sleep, unless it is told by the clock.
const ROUNDS: usize = 12;
/// After which no further round is begun, on a machine that is busy with other things, if enough of them met their aim.
const BUSY: Duration = Duration::from_secs(60);
/// How long one table is used when an hour is asked for.
const EPISODE: Duration = Duration::from_secs(120);
/// Every so many rounds the victim sleeps instead of dying.
const SLEEPS: usize = 6;
/// Requests that are open at the same time.
const OPEN: usize = 6;
/// How long is waited for the write that is aimed at, unless too few aims were met before.
const AIM: Duration = Duration::from_secs(5);

/// The writes that are aimed at: a record's kind, and the state or phase it was given; in turn.
const AIMS: [(&str, &str); 10] = [
    ("launch", "Intent"),
    ("launch", "Bound"),
    ("request", "Pending"),
    ("request", "Fulfilling"),
    ("instance", "claimed"),
    ("instance", "running"),
    ("request", "Ready"),
    ("instance", "idle"),
    ("request", "Releasing"),
    ("request", "Released"),
];

#[expect(clippy::disallowed_methods, reason = "a test's own switch; the product never reads it")]
fn minutes() -> Option<u64> {
    std::env::var("RUNYARD_KILL_MINUTES").ok().map(|text| text.parse().expect("a number of minutes"))
}

/// Whether a record was given this state or phase.
fn became(item: &Item, (of, word): (&str, &str)) -> bool {
    let is = |name: &str| matches!(item.get(name), Some(AttributeValue::S(text)) if text == word);
    kind(item) == of && (is("state") || is("phase"))
}

/// Waits for a write of this kind; whether it came in time.
async fn aimed(watch: &mut dyn Watch, aim: (&str, &str), limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let Ok(changes) = timeout_at(end, watch.next()).await else { return false };
        let changes = changes.expect("the stream goes on");
        if changes.iter().filter_map(|change| change.item.as_ref()).any(|item| became(item, aim)) {
            return true;
        }
    }
}

/// Requests come and are given back as soon as they are served, until it is enough; answers how many there were.
async fn load(asking: &Asking, stop: &AtomicBool, served: &AtomicU32) -> u32 {
    let (mut next, mut released) = (0, BTreeSet::<RequestKey>::new());
    loop {
        let Some(seen) = history::snapshot(&asking.store).await else { continue };
        let requests = seen.all::<Request>();
        for request in requests.iter().filter(|request| request.phase() == Phase::Ready) {
            if released.insert(request.id.clone()) {
                served.fetch_add(1, Ordering::SeqCst);
                asking.release(request).await;
            }
        }
        let open = requests.iter().filter(|request| !request.phase().is_final()).count();
        let stopping = stop.load(Ordering::SeqCst);
        if stopping && open == 0 {
            return next;
        }
        if !stopping && open < OPEN {
            next += 1;
            asking.ask(next..=next, |run| 1 + run % 3).await;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// The one that leads, by its place.
async fn leader(operators: &[Operator; 2]) -> usize {
    until("a leader", async || match (operators[0].leads().await?, operators[1].leads().await?) {
        (true, false) => Some(0),
        (false, true) => Some(1),
        (true, true) | (false, false) => None,
    })
    .await
}

/// One round: the victim is hit when the write that is aimed at was made, and another two requests are served after.
async fn round(
    yard: &mut Yard,
    operators: &mut [Operator; 2],
    (number, limit): (usize, Duration),
    served: &AtomicU32,
) -> (&'static str, bool) {
    let leads = leader(operators).await;
    let sleeps = number % SLEEPS == SLEEPS - 1;
    let victim = if sleeps || number % 3 != 2 { leads } else { 1 - leads };
    let mut watch = history::answered(|| yard.store.watch()).await.expect("the engine has a stream");
    let hit = aimed(watch.as_mut(), AIMS[number % AIMS.len()], limit).await;
    let before = served.load(Ordering::SeqCst);
    if sleeps {
        operators[victim].process.signal(Signal::SIGSTOP);
        let other = &operators[1 - victim];
        until("the stand-by to lead", async || other.leads().await?.then_some(())).await;
        operators[victim].process.signal(Signal::SIGCONT);
    } else {
        operators[victim].process.kill_nine();
        operators[victim] = yard.operator().await;
    }
    until("requests to be served again", async || {
        (served.load(Ordering::SeqCst) >= before + 2).then_some(())
    })
    .await;
    let seen = until("a look", async || history::snapshot(&yard.store).await).await;
    if seen.of_one_moment {
        assert_eq!(laws::judge_moment(&seen.items), Vec::<String>::new(), "after round {number}");
    }
    let what = match (sleeps, victim == leads) {
        (true, _) => "leader asleep",
        (false, true) => "leader killed",
        (false, false) => "stand-by killed",
    };
    (what, hit)
}

/// What was done, and what came of it.
#[derive(Default)]
struct Tally {
    rounds: usize,
    /// Rounds that met the write they aimed at.
    hits: usize,
    what: BTreeMap<&'static str, usize>,
    requests: u32,
    claims: usize,
    writes: usize,
    ended: BTreeMap<String, usize>,
}

impl Tally {
    /// Whether enough aims were met for them to mean something.
    const fn enough(&self) -> bool {
        self.hits * 3 >= self.rounds
    }
}

/// One table's life: rounds as long as it is to go on, then every request is served and given back, and the whole
/// history is judged.
async fn episode(tally: &mut Tally, goes_on: impl Fn(&Tally) -> bool) {
    // Machines wear out, so that there is always something to launch.
    let mut yard = Yard::new(2, 14, 3).await;
    let agents = Agents::play(yard.store.clone());
    let mut operators = [yard.operator().await, yard.operator().await];
    let (stop, served, started) = (AtomicBool::new(false), AtomicU32::new(0), Instant::now());
    let asking = yard.asking();
    let hitting = async {
        while goes_on(tally) {
            let number = tally.rounds;
            let limit = if tally.enough() { AIM } else { PATIENCE };
            let (what, hit) = round(&mut yard, &mut operators, (number, limit), &served).await;
            println!(
                "{number:4} {what} at {:?}, met: {hit}, {:.1} s",
                AIMS[number % AIMS.len()],
                started.elapsed().as_secs_f32()
            );
            *tally.what.entry(what).or_default() += 1;
            tally.hits += usize::from(hit);
            tally.rounds += 1;
        }
        stop.store(true, Ordering::SeqCst);
    };
    let ((), requests) = join(hitting, load(&asking, &stop, &served)).await;
    until_none("open", async || {
        let items = history::snapshot(&asking.store).await?.items;
        let open = items.iter().filter(|item| kind(item) == "request").filter_map(|item| {
            let Reading::Record(request) = read::<Request>(item) else { return Some(format!("{item:?}")) };
            (request.phase() != Phase::Released).then(|| format!("{} is {}", request.id, request.phase()))
        });
        Some(open.collect())
    })
    .await;
    assert_eq!(agents.wrongs(), Vec::<String>::new());
    let verdict = laws::judge(&history::all(yard.endpoint()).await);
    assert_eq!(verdict.broken, Vec::<String>::new());
    tally.requests += requests;
    tally.claims += verdict.claims;
    tally.writes += verdict.steps;
    for (reason, count) in verdict.ended {
        *tally.ended.entry(reason).or_default() += count;
    }
}

#[tokio::test]
async fn operators_killed_under_load_at_every_kind_of_write_lose_and_double_nothing() {
    let _turn = turn().await;
    let (started, mut tally) = (Instant::now(), Tally::default());
    match minutes() {
        None => {
            let usual = |rounds: usize| rounds < ROUNDS && started.elapsed() < BUSY;
            let lacking = |tally: &Tally| !tally.enough() && started.elapsed() < PATIENCE;
            episode(&mut tally, |tally| usual(tally.rounds) || lacking(tally)).await;
        }
        Some(minutes) => {
            let end = started + Duration::from_secs(60 * minutes);
            while Instant::now() < end {
                // On a table of its own now and then: one that was written for an hour makes the engine slow.
                let next = end.min(Instant::now() + EPISODE);
                episode(&mut tally, |_| Instant::now() < next).await;
            }
        }
    }
    let enough = tally.enough();
    let Tally { rounds, hits, what, requests, claims, writes, ended } = tally;
    println!(
        "{rounds} rounds in {} s ({hits} at the write aimed at): {what:?}; {requests} requests, {claims} claims, \
         {writes} writes, machines ended: {ended:?}",
        started.elapsed().as_secs(),
    );
    assert!(enough, "only {hits} of {rounds} rounds met the write they aimed at");
}
