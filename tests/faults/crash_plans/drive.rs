//! One run: a workload, told to an operator that dies or is deceived as planned and is followed by another, in paused
//! time on a runtime of its own; judged when everything has come to rest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use runyard_fakes::MemoryStore;
use runyard_operator::controller::Ports;

use crate::crash_plans::history::History;
use crate::crash_plans::oracle::{self, End};
use crate::crash_plans::plan::{Call, Plan};
use crate::crash_plans::ports::tapped;
use crate::crash_plans::recorder::Recorder;
use crate::crash_plans::workloads::{Workload, timing};
use runyard_tests::world::World;

/// How long a dead operator is missing before another one is there.
const MISSED: Duration = Duration::from_secs(1);
/// How long after the story's end calls are still noted.
const AFTERWARDS: Duration = Duration::from_secs(6);
/// How long it may take until everything is as in the reference run: five resyncs (L1).
const PATIENCE: Duration = Duration::from_secs(150);
/// How long it must stay so.
const STEADY: Duration = Duration::from_secs(15);

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) trace: Vec<Call>,
    pub(crate) broken: Vec<String>,
    /// How often something went wrong as planned.
    pub(crate) hits: usize,
    /// Reads that would have said the same a moment ago.
    pub(crate) same: usize,
    /// The records at the end, for a person.
    pub(crate) shown: String,
}

/// Runs a workload; with a reference, until its end is the same or patience is over.
pub(crate) fn run(workload: &Workload, plan: Plan, reference: Option<&End>) -> Result<Ran, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    let told = catch_unwind(AssertUnwindSafe(|| runtime.block_on(tell(workload, plan, reference))));
    told.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without words".into())
    })
}

async fn tell(workload: &Workload, plan: Plan, reference: Option<&End>) -> Ran {
    let world = World::on(MemoryStore::new(), workload.github).set(timing);
    world.agents.pace(Duration::from_secs(1));
    let history = History::of(&world.store, world.clock).await;
    let recorder = Recorder::new(plan, history);
    world.pool((workload.pool)()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    start(&world, &recorder, workload, 1);
    let story = async {
        (workload.script)(&world).await;
        tokio::time::sleep(AFTERWARDS).await;
        recorder.close();
        rest(&world, reference).await;
    };
    tokio::select! {
        () = story => {}
        () = follow(&world, &recorder, workload) => {}
    }
    let mut broken = oracle::laws(&world, &recorder);
    broken.extend(oracle::unrest(&world));
    Ran {
        end: End::of(&world),
        trace: recorder.trace(),
        broken,
        hits: recorder.hits(),
        same: recorder.same(),
        shown: world.show(),
    }
}

fn start(world: &World, recorder: &Recorder, workload: &Workload, life: u32) {
    let over = |ports: Ports| tapped(ports, &recorder.life(), workload.notices);
    world.start_over(&format!("life-{life}"), over);
}

/// Puts another operator in the place of each that dies.
async fn follow(world: &World, recorder: &Recorder, workload: &Workload) {
    for life in 2.. {
        recorder.death().await;
        world.kill();
        tokio::time::sleep(MISSED).await;
        start(world, recorder, workload, life);
    }
}

/// Waits until everything is as in the reference run and stays so; without one, as long as that may take.
async fn rest(world: &World, reference: Option<&End>) {
    let end = tokio::time::Instant::now() + PATIENCE;
    let reached =
        |reference: &End| End::of(world).differs(reference).is_empty() && oracle::unrest(world).is_empty();
    while tokio::time::Instant::now() < end && !reference.is_some_and(reached) {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    tokio::time::sleep(STEADY).await;
}
