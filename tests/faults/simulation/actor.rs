//! Who calls? An operator, an agent or a person, with a clock of its own, who may be stopped for a while or die at any
//! call, just before it or just after. Every call takes its time, so that others get in between.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runyard_core::model::{Item, RecordId, millis};
use runyard_core::ports::Clock;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::simulation::fault_rates::Fault;
use crate::simulation::world::World;

/// What an actor is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Operator,
    Agent,
    Workflow,
    Person,
}

/// What a record was, and until when.
pub(crate) type Past = VecDeque<(Instant, Option<Item>)>;

/// One of those who act.
pub(crate) struct Actor {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Told when it is to die.
    pub(crate) death: Notify,
    stopped_until: Mutex<Option<Instant>>,
    cut_off_until: Mutex<Option<Instant>>,
    /// When it was stopped, or its clock set, last.
    disturbed: Mutex<Option<Instant>>,
    /// What it read before, where it reads stale records.
    pub(crate) past: Mutex<BTreeMap<RecordId, Past>>,
    /// What its last glance showed, and when.
    pub(crate) glanced: Mutex<Option<(Instant, Option<Item>)>>,
    /// How far its wall clock is off.
    off_by: Mutex<SignedDuration>,
}

impl Actor {
    pub(crate) fn new(world: &Arc<World>, name: &str, role: Role) -> Arc<Self> {
        let off =
            if world.strikes(Fault::ClocksDiffer) { any_error(world, role) } else { SignedDuration::ZERO };
        Arc::new(Self {
            world: world.clone(),
            name: name.to_owned(),
            role,
            death: Notify::new(),
            stopped_until: Mutex::default(),
            cut_off_until: Mutex::default(),
            disturbed: Mutex::default(),
            past: Mutex::default(),
            glanced: Mutex::default(),
            off_by: Mutex::new(off),
        })
    }

    /// Before a call takes effect.
    pub(crate) async fn enter(&self) {
        self.take_time().await;
        self.may_die().await;
        self.wait_while_stopped().await;
    }

    /// After it did, before the caller knows.
    pub(crate) async fn leave(&self) {
        self.may_die().await;
        self.take_time().await;
        self.wait_while_stopped().await;
    }

    async fn take_time(&self) {
        let chance = &self.world.chance;
        match chance.number(0..10) {
            0..4 => {}
            4..8 => tokio::task::yield_now().await,
            _ if self.world.strikes(Fault::StoreSlow) => sleep(chance.millis(500..5000)).await,
            _ => sleep(chance.millis(1..30)).await,
        }
    }

    async fn may_die(&self) {
        let fault = match self.role {
            Role::Operator => Fault::OperatorCrashes,
            Role::Agent => Fault::AgentCrashes,
            Role::Workflow => Fault::CommandDies,
            Role::Person => return,
        };
        if self.world.strikes(fault) {
            self.die().await;
        }
    }

    /// Dies here.
    pub(crate) async fn die(&self) {
        self.world.trace.tell(&format!("{} dies", self.name));
        self.death.notify_one();
        std::future::pending::<()>().await;
    }

    async fn wait_while_stopped(&self) {
        loop {
            let until = *self.stopped_until.lock().unwrap();
            match until.filter(|until| !self.world.fault_rates.calm() && *until > Instant::now()) {
                Some(until) => sleep_until(until.min(Instant::now() + Duration::from_secs(1))).await,
                None => return,
            }
        }
    }

    /// Stops it for so long, as a paused virtual machine is.
    pub(crate) fn stop(&self, length: Duration) {
        self.world.trace.tell(&format!("{} is stopped for {length:?}", self.name));
        *self.stopped_until.lock().unwrap() = Some(Instant::now() + length);
        *self.disturbed.lock().unwrap() = Some(Instant::now() + length);
    }

    /// Whether for so long it was not stopped, nor its clock set.
    pub(crate) fn undisturbed(&self, length: Duration) -> bool {
        self.disturbed.lock().unwrap().is_none_or(|last| last + length <= Instant::now())
    }

    /// Cuts it off from the table for so long.
    pub(crate) fn cut_off(&self, length: Duration) {
        self.world.trace.tell(&format!("{} is cut off for {length:?}", self.name));
        *self.cut_off_until.lock().unwrap() = Some(Instant::now() + length);
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        let until = *self.cut_off_until.lock().unwrap();
        !self.world.fault_rates.calm() && until.is_some_and(|until| until > Instant::now())
    }

    /// Sets its wall clock, wrongly.
    pub(crate) fn step_clock(&self) {
        let off = any_error(&self.world, self.role);
        self.world.trace.tell(&format!("the clock of {} is off by {off:?} from now on", self.name));
        *self.off_by.lock().unwrap() = off;
        self.disturb();
    }

    /// Its clock is set.
    pub(crate) fn disturb(&self) {
        *self.disturbed.lock().unwrap() = Some(Instant::now());
    }
}

/// How far a clock of one of these may be off.
fn any_error(world: &World, role: Role) -> SignedDuration {
    let most = match role {
        Role::Operator => world.operators_off,
        Role::Agent | Role::Workflow | Role::Person => Duration::from_secs(3600),
    };
    let most = most.as_secs();
    SignedDuration::from_secs(world.chance.number(0..2 * most) as i64 - most as i64)
}

impl Clock for Actor {
    fn now(&self) -> Timestamp {
        // Operators judge deadlines that other operators wrote: their clocks are right once nothing is wrong any more.
        // Those of machines stay wrong.
        let right = self.role == Role::Operator && self.world.fault_rates.calm();
        let off = if right { SignedDuration::ZERO } else { *self.off_by.lock().unwrap() };
        millis(self.world.clock.now().saturating_add(off).unwrap_or(Timestamp::MAX))
    }

    fn elapsed(&self) -> Duration {
        // No two processes count from the same moment.
        self.world.clock.elapsed() + Duration::from_secs(100 + 7 * self.name.len() as u64)
    }
}
