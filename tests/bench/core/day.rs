//! A day of the yard on the real core: jobs come by chance, hold a machine for a while and let go; machines boot,
//! register, are cleaned and pooled, expire and are launched again. No task, no store, no clock; heartbeats are left
//! out.

use std::time::Duration;

use runyard_core::model::{RecordId, State};
use serde_json::json;

use super::world::{Delays, Event, World};
use super::yards::item;

/// Classes among which jobs choose.
const CLASSES: u64 = 10;
/// The share of all machine time that jobs ask for.
const LOAD: f64 = 0.7;
const DAY: Duration = Duration::from_secs(86_400);

/// Chance, the same every time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1, never 0.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    /// A waiting time of this mean.
    fn wait(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-self.share().ln())
    }
}

/// What came of a day.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) trace: u64,
    pub(crate) counts: super::world::Counts,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) machines: usize,
}

/// Plays a day of so many jobs on at most so many machines.
pub(crate) fn play(jobs: u64, machines: u64) -> Outcome {
    let delays = Delays {
        boot: Duration::from_secs(60),
        register: Duration::from_secs(3),
        clean: Duration::from_secs(5),
    };
    let mut world = World::empty(delays);
    for class in 0..CLASSES {
        world.store(item(json!({
            "pk": format!("pool#class-{class}"), "sk": "pool", "kind": "pool", "version": 1,
            "resourceClass": format!("class-{class}"), "desired": 0, "max": machines / CLASSES,
            "cpu": 2, "mmem": 4096, "maxRuntimeMinutes": 600,
        })));
    }
    world.list(std::collections::BTreeSet::new());
    let begun = world.now.mono;
    let between = DAY.div_f64(jobs as f64);
    let hold = DAY.mul_f64(machines as f64 * LOAD / jobs as f64);
    let mut chance = Chance(1);
    world.after(chance.wait(between), Event::Services(0));
    world.live(begun + DAY, |world, number| {
        let class = chance.next() % CLASSES;
        let run = 9_000_000_000 + number;
        let key = RecordId::new(format!("request#acme/web#{run}"), "request#default#1");
        world.store(item(json!({
            "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 1, "runId": run.to_string(), "attempt": 1,
            "repository": "acme/web", "name": "default", "resourceClass": format!("class-{class}"), "count": 1,
            "desired": "provisioned", "generation": 1, "maxRuntimeMinutes": 600, "timeoutSeconds": 43_200,
        })));
        world.after(delays.register + chance.wait(hold), Event::Release(key));
        if number + 1 < jobs {
            world.after(chance.wait(between), Event::Services(number + 1));
        }
    });
    let over = |phase: &str| {
        let requests = world.yard.requests();
        requests.filter(|(_, request)| request.phase().as_str() == phase).count() as u64
    };
    let live = world.yard.instances().filter(|tracked| tracked.instance.state() != State::Terminated);
    Outcome {
        trace: world.trace,
        counts: world.counts,
        served: over("Released"),
        failed: over("Failed"),
        machines: live.count(),
    }
}

/// Plays the day twice and prints both; `on_cpu` tells the nanoseconds that this took a processor.
pub(crate) fn print(jobs: u64, machines: u64, on_cpu: fn() -> f64) {
    let day = || {
        let begun = on_cpu();
        let outcome = play(jobs, machines);
        let seconds = (on_cpu() - begun) / 1e9;
        println!("{jobs} jobs on {machines} machines: {seconds:.1} s on a processor, {outcome:?}");
        outcome
    };
    let (first, second) = (day(), day());
    assert_eq!(first, second, "a day is the same every time");
    println!("the same bit for bit");
}
