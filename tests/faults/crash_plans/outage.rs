//! What if DynamoDB is away for three hours and, soon after, EC2 launches nothing for eight? Jobs run and workflows
//! come all the while; the machines' own guards do what the contract lets them do, and nothing else may be lost.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runyard_core::model::{InstanceId, Phase, RecordId, Request, State};
use runyard_core::ports::{Clock as _, ComputeError, MachineState};
use serde_json::json;

use crate::crash_plans::down::Switches;
use runyard_tests::agents::Habit;
use runyard_tests::world::{World, linux};

const MINUTE: Duration = Duration::from_secs(60);
/// A workflow comes this often.
const EVERY: u64 = 6;
/// How long a workflow's job takes, and how long it waits for its machine, in minutes.
const JOB: u64 = 12;
/// Most attempts to launch in a minute while none succeeds: each of the open launches asks again by itself, after 0.5 s
/// and then after twice the pause each time.
const LAUNCHES: usize = 30;
/// Requests of the crowd, and the machines of each.
const CROWD: u32 = 4;
const EACH: u32 = 6;
/// Most calls from an intent to launch to a machine that serves, its request's and its launch's included.
const CALLS_OF_A_MACHINE: usize = 8;
/// How long a machine waits past its threshold before it ends itself (`timing.grace`).
const GRACE: SignedDuration = SignedDuration::from_mins(5);
/// Machines kept warm.
const WARM: u32 = 3;

/// The yard, what befalls it, and what is counted.
struct Drill {
    world: World,
    away: Switches,
    table_away: RefCell<bool>,
    /// The last threshold each machine's guard has read.
    guards: RefCell<BTreeMap<InstanceId, Timestamp>>,
    /// Machines that ended themselves.
    guarded: RefCell<BTreeSet<InstanceId>>,
    /// Workflows whose request was acknowledged, with the minute in which each gives back.
    runs: RefCell<Vec<(RecordId, u64)>>,
    minute: RefCell<u64>,
    /// The busiest minute so far, by service.
    peaks: RefCell<BTreeMap<&'static str, usize>>,
}

impl Drill {
    async fn new() -> Self {
        let world = World::new();
        world.agents.pace(Duration::from_secs(10));
        let mut spec = linux(WARM, 60);
        spec["maxRuntimeMinutes"] = 1200.into();
        world.pool(spec).await;
        let away = Switches::default();
        world.start_over("one", |ports| away.before(ports));
        Self {
            world,
            away,
            table_away: RefCell::new(false),
            guards: RefCell::default(),
            guarded: RefCell::default(),
            runs: RefCell::default(),
            minute: RefCell::new(0),
            peaks: RefCell::default(),
        }
    }

    /// Lets so many minutes pass, with workflows that come and go.
    async fn minutes(&self, minutes: u64) {
        for _ in 0..minutes {
            tokio::time::sleep(MINUTE).await;
            *self.minute.borrow_mut() += 1;
            let minute = *self.minute.borrow();
            self.guard();
            self.world.check();
            let calls = self.away.take();
            let all = ("all", calls.values().sum());
            for (service, calls) in calls.into_iter().chain([all]) {
                let mut peaks = self.peaks.borrow_mut();
                let peak = peaks.entry(service).or_default();
                *peak = calls.max(*peak);
            }
            if !*self.table_away.borrow() {
                self.workflows(minute).await;
            }
        }
    }

    /// Workflows of this minute: one comes, those whose job is done give back. While the table is away a workflow gets
    /// no further than an error, and what is to be given back is left to the operator.
    async fn workflows(&self, minute: u64) {
        if minute.is_multiple_of(EVERY) {
            let run = minute.to_string();
            let timeout = if minute.is_multiple_of(10 * EVERY) { 12 * 3600 } else { 600 };
            let more = json!({"timeoutSeconds": timeout, "maxRuntimeMinutes": 2 * JOB});
            let key = self.world.provision(&run, "linux", 1, more).await;
            self.runs.borrow_mut().push((key, minute + JOB));
        }
        let mut due = Vec::new();
        self.runs.borrow_mut().retain(|(key, at)| {
            if *at == minute {
                due.push(key.clone());
            }
            *at > minute
        });
        for key in due {
            // One that waits for its machine gives back when it had its job.
            match self.world.request(&key).await.phase() {
                Phase::Ready => self.world.release(&key).await,
                Phase::Pending | Phase::Fulfilling => self.runs.borrow_mut().push((key, minute + JOB)),
                Phase::Releasing | Phase::Released | Phase::Failed => {}
            }
        }
    }

    /// Workflows that want more machines than there are, and have patience.
    async fn crowd(&self, name: &str) {
        for run in 0..CROWD {
            let more = json!({"timeoutSeconds": 10 * 3600, "maxRuntimeMinutes": 60});
            let key = self.world.provision(&format!("{name}-{run}"), "linux", EACH, more).await;
            self.runs.borrow_mut().push((key, *self.minute.borrow() + JOB));
        }
    }

    /// What every machine's guard does: it remembers the last threshold it could read and ends the machine past it.
    fn guard(&self) {
        let now = self.world.clock.now();
        let mut guards = self.guards.borrow_mut();
        if !*self.table_away.borrow() {
            for instance in self.world.instances() {
                if let Some(threshold) = instance.threshold {
                    guards.insert(instance.facts.instance_id, threshold.at);
                }
            }
        }
        let alive = self.world.compute.machines().into_iter().filter(|machine| machine.state.alive());
        for machine in alive {
            if guards.get(&machine.id).is_some_and(|at| *at + GRACE < now) {
                self.world.compute.set_state(&machine.id, MachineState::Terminated);
                self.guarded.borrow_mut().insert(machine.id);
            }
        }
    }

    fn table(&self, away: bool) {
        *self.table_away.borrow_mut() = away;
        self.away.table_away(away);
        // An agent that cannot reach the table says nothing.
        self.world.agents.all(if away { Habit::NeverBoots } else { Habit::Good });
    }

    /// Whether everything is as it should be: requests that can be served are, the pool is warm, nothing is leaked.
    fn converged(&self) -> Result<(), String> {
        let live: BTreeSet<_> = self.world.live().into_iter().map(|i| i.facts.instance_id).collect();
        let machines = self.world.compute.machines();
        let alive: BTreeSet<_> = machines.into_iter().filter(|m| m.state.alive()).map(|m| m.id).collect();
        if live != alive {
            return Err(format!("records of {live:?}, machines {alive:?}"));
        }
        let waiting = |request: &Request| matches!(request.phase(), Phase::Pending | Phase::Fulfilling);
        let waits: Vec<String> =
            self.world.all::<Request>().iter().filter(|r| waiting(r)).map(|r| r.id.to_string()).collect();
        if !waits.is_empty() {
            return Err(format!("still waiting: {waits:?}"));
        }
        let pooled = self.world.pooled().len();
        if pooled < WARM as usize {
            return Err(format!("{pooled} in the pool"));
        }
        Ok(())
    }

    /// How long it takes to converge, in paused time.
    async fn converges(&self, within: Duration) -> Duration {
        let begun = self.world.clock.elapsed();
        loop {
            let passed = self.world.clock.elapsed().saturating_sub(begun);
            let Err(why) = self.converged() else { return passed };
            assert!(passed < within, "not converged after {passed:?}: {why}\n{}", self.world.show());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// No machine was ended for another reason than the guard's, or a threshold's that passed as planned.
    fn nobody_killed(&self, jobs: &BTreeSet<InstanceId>) {
        for instance in self.world.in_state(State::Terminated) {
            let id = &instance.facts.instance_id;
            assert!(!jobs.contains(id), "{id} had a job: {:?}", instance.life);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn three_hours_without_the_table_and_eight_without_launches_cost_no_job() {
    let drill = Drill::new().await;
    drill.minutes(5).await;
    let mut long = Vec::new();
    for run in 0..5 {
        let more = json!({"maxRuntimeMinutes": 1200});
        long.push(drill.world.provision(&format!("long-{run}"), "linux", 1, more).await);
    }
    drill.minutes(45).await;
    // The same crowd as later, while all is well: what the outage costs is told from what the work costs.
    drill.crowd("early").await;
    drill.minutes(45).await;
    let running = |drill: &Drill| {
        let of_long = |instance: &runyard_core::model::Instance| {
            instance.state() == State::Running && instance.held_by().is_some_and(|key| long.contains(key))
        };
        let all = drill.world.instances().into_iter().filter(of_long);
        all.map(|instance| instance.facts.instance_id).collect::<BTreeSet<_>>()
    };
    let jobs = running(&drill);
    assert_eq!(jobs.len(), 5);
    let steady = drill.peaks.take();

    drill.table(true);
    drill.minutes(180).await;
    let ended = drill.world.compute.terminations().len();
    drill.table(false);
    let table_back = drill.converges(5 * MINUTE).await;
    drill.nobody_killed(&jobs);
    let without_table = drill.peaks.borrow().clone();
    drill.minutes(20).await;

    drill.away.launches_fail(Some(ComputeError::Unknown("503 Service Unavailable".into())));
    drill.crowd("crowd").await;
    drill.minutes(240).await;
    drill.away.launches_fail(Some(ComputeError::NoCapacity("InsufficientInstanceCapacity".into())));
    drill.minutes(240).await;
    drill.away.launches_fail(None);
    let launches_back = drill.converges(5 * MINUTE).await;
    drill.nobody_killed(&jobs);
    drill.minutes(20).await;
    drill.converges(MINUTE).await;
    assert_eq!(running(&drill), jobs, "every long job is where it was");
    let peaks = drill.peaks.take();
    println!(
        "converged {table_back:?} after the table and {launches_back:?} after the launches came back; {ended} \
         machines ended, {} ended themselves; calls in the busiest minute: steady {steady:?}, without the table \
         {without_table:?}, in all {peaks:?}",
        drill.guarded.borrow().len()
    );
    // In the minute in which launches come back the whole crowd gets its machines, each by a few writes of its own.
    assert!(
        peaks["all"] <= 2 * steady["all"] + (CROWD * EACH) as usize * CALLS_OF_A_MACHINE,
        "{peaks:?} in the busiest minute, {steady:?} when all is well"
    );
    assert!(peaks["launches"] <= LAUNCHES, "{peaks:?}");
    for request in drill.world.all::<Request>() {
        let told = request.phase() != Phase::Failed || !request.status.message.is_empty();
        assert!(told, "{} failed without a reason", request.id);
    }
}
