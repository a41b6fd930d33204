//! Visits every reachable run of one machine's last hours (Stateright): an operator that renews the deadline or is
//! silent, a table out of reach, an agent that is killed and restarted, a disk that accepts no more writes. The
//! decisions are those of production's `Memory` and of the watchdog timer's `decide`. In each state the machine must
//! not have ended too early, nor live too long; because time can always pass while it lives, this also covers the
//! outcome of a fair run from there (L5). The number of states is pinned; mutants must be refuted.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::*;
use crate::shutdown::watchdog_timer;
use crate::shutdown::watchdog_timer::{MARGIN, Verdict};

/// One step of time.
const STEP: Duration = Duration::from_secs(60);
const LENGTHS: Lengths = Lengths { created: STEP.saturating_mul(3), grace: STEP };
/// The difference of the operator's wall clock from this machine's boot clock: nothing may depend on it.
const AHEAD: i64 = 1_000_000;

/// A possible bug of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// Only the agent ends the machine.
    NoWatchdog,
    /// A restarted agent forgets its earlier state.
    Forgets,
    /// Each read of the same deadline counts from the beginning.
    CountsAnew,
    /// The machine ends without a last read of its record.
    NoLastLook,
    /// The threshold is compared with this machine's own clock.
    ComparesClocks,
}

/// The number of events that may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Left {
    renewals: u8,
    kills: u8,
    outages: u8,
    disk_failures: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum By {
    Agent,
    Watchdog,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Machine {
    /// Steps since boot.
    now: u32,
    /// The record's deadline: the step in which it was written, and its length in steps.
    record: Option<(u32, u32)>,
    /// The agent's state, while it runs.
    agent: Option<Memory>,
    file: Option<Memory>,
    reachable: bool,
    disk: bool,
    /// The latest end that the deadlines read so far justify.
    justified: u32,
    /// Whether the deadline in the record was read, and whether it was stored on disk.
    read: bool,
    kept: bool,
    ended: Option<By>,
    /// Whether only the last read kept it alive once.
    spared: bool,
    wrong: Option<&'static str>,
    left: Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Happens {
    TimePasses,
    Renewed(u32),
    Read,
    Killed,
    Started,
    OutOfReach,
    WithinReach,
    DiskFails,
}

#[derive(Clone)]
struct Life {
    mutant: Option<Mutant>,
    left: Left,
}

fn at(step: u32) -> Duration {
    STEP * step
}

fn steps(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs() / STEP.as_secs()).unwrap()
}

/// Returns a deadline as the record contains it, by the operator's clock.
fn deadline((written, length): (u32, u32)) -> Deadline {
    let wall_clock = |step: u32| Timestamp::from_second(AHEAD + i64::from(step) * 60).unwrap();
    Deadline { at: wall_clock(written + length), set_at: Some(wall_clock(written)) }
}

impl Machine {
    fn booted(left: Left) -> Self {
        let memory = Memory::resume(None, "boot", Duration::ZERO, LENGTHS);
        Self {
            now: 0,
            record: None,
            agent: Some(memory.clone()),
            file: Some(memory),
            reachable: true,
            disk: true,
            justified: steps(LENGTHS.created + LENGTHS.grace),
            read: false,
            kept: false,
            ended: None,
            spared: false,
            wrong: None,
            left,
        }
    }

    fn keep(&mut self) {
        if self.disk {
            self.file.clone_from(&self.agent);
        }
    }

    /// Reads the record in the agent.
    fn read(&mut self, mutant: Option<Mutant>) {
        let (Some(record), Some(memory)) = (self.record, &mut self.agent) else { return };
        if !self.read {
            self.read = true;
            self.justified = self.justified.max(self.now + record.1 + steps(LENGTHS.grace));
        }
        if mutant == Some(Mutant::CountsAnew) {
            memory.seen = None;
        }
        let mut deadline = deadline(record);
        if mutant == Some(Mutant::ComparesClocks) {
            deadline.set_at = Timestamp::from_second(i64::from(self.now) * 60).ok();
        }
        if memory.see(deadline, at(self.now), LENGTHS) {
            self.keep();
            self.kept = self.disk;
        }
    }

    /// Runs the agent's part of each step, as the guard's loop does.
    fn guards(&mut self, mutant: Option<Mutant>) {
        let over = |machine: &Self| {
            machine.agent.as_ref().is_some_and(|memory| memory.left(at(machine.now)).is_zero())
        };
        if !over(self) {
            return;
        }
        if self.reachable && mutant != Some(Mutant::NoLastLook) {
            self.read(mutant);
        }
        if !over(self) {
            self.spared = true;
            return;
        }
        self.ended = Some(By::Agent);
        let due = self.record.map(|(written, length)| written + length + steps(LENGTHS.grace));
        // A deadline that was read and could not be stored is lost with the agent that read it; then the earlier end is
        // the safe one.
        let knows = self.record.map(|record| deadline(record).at);
        let seen = self.agent.as_ref().and_then(|memory| memory.seen.as_ref()).map(|seen| seen.threshold);
        let known = self.reachable || self.kept || (self.read && seen == knows);
        if due.filter(|_| known).is_some_and(|due| self.now < due) {
            self.wrong = Some("it ended before the deadline in its record");
        } else if self.now < steps(LENGTHS.created) {
            self.wrong = Some("it ended before the boot deadline");
        }
    }

    /// Runs the watchdog timer, which systemd starts in each step.
    fn watchdog_fires(&mut self) {
        let file = self.file.as_ref().map(|memory| serde_json::to_vec(memory).unwrap());
        match watchdog_timer::decide(file.as_deref(), "boot", at(self.now), LENGTHS) {
            Verdict::Wait(_) => {}
            Verdict::PowerOff(_) => self.ended = Some(By::Watchdog),
        }
    }

    fn step(&mut self, happens: Happens, mutant: Option<Mutant>) {
        match happens {
            Happens::TimePasses => {
                self.now += 1;
                self.guards(mutant);
                if self.ended.is_none() && mutant != Some(Mutant::NoWatchdog) {
                    self.watchdog_fires();
                }
                if self.ended.is_none() && self.now > self.justified + steps(MARGIN) {
                    self.wrong = Some("it lives longer than anything it read allows");
                }
            }
            Happens::Renewed(length) => {
                self.left.renewals -= 1;
                self.record = Some((self.now, length));
                (self.read, self.kept) = (false, false);
            }
            Happens::Read => self.read(mutant),
            Happens::Killed => {
                self.left.kills -= 1;
                self.agent = None;
            }
            Happens::Started => {
                let kept = self.file.clone().filter(|_| mutant != Some(Mutant::Forgets));
                self.agent = Some(Memory::resume(kept, "boot", at(self.now), LENGTHS));
                self.keep();
            }
            Happens::OutOfReach => {
                self.left.outages -= 1;
                self.reachable = false;
            }
            Happens::WithinReach => self.reachable = true,
            Happens::DiskFails => {
                self.left.disk_failures -= 1;
                self.disk = false;
            }
        }
    }
}

impl Model for Life {
    type State = Machine;
    type Action = Happens;

    fn init_states(&self) -> Vec<Machine> {
        vec![Machine::booted(self.left.clone())]
    }

    fn actions(&self, machine: &Machine, actions: &mut Vec<Happens>) {
        if machine.ended.is_some() || machine.wrong.is_some() {
            return;
        }
        let mut may = |when: bool, happens: Happens| actions.extend(when.then_some(happens));
        let (runs, left) = (machine.agent.is_some(), &machine.left);
        may(true, Happens::TimePasses);
        may(left.renewals > 0, Happens::Renewed(2));
        may(left.renewals > 0, Happens::Renewed(5));
        may(runs && machine.reachable && machine.record.is_some(), Happens::Read);
        may(runs && left.kills > 0, Happens::Killed);
        may(!runs, Happens::Started);
        may(machine.reachable && left.outages > 0, Happens::OutOfReach);
        may(!machine.reachable, Happens::WithinReach);
        may(machine.disk && left.disk_failures > 0, Happens::DiskFails);
    }

    fn next_state(&self, last: &Machine, happens: Happens) -> Option<Machine> {
        let mut next = last.clone();
        next.step(happens, self.mutant);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("safe", |_: &Self, machine: &Machine| machine.wrong.is_none()),
            Property::sometimes("the agent ends it", |_: &Self, m: &Machine| m.ended == Some(By::Agent)),
            Property::sometimes("the watchdog timer ends it", |_: &Self, m: &Machine| {
                m.ended == Some(By::Watchdog)
            }),
            Property::sometimes("a last look spares it", |_: &Self, m: &Machine| m.spared),
        ]
    }
}

/// Returns the violation at the end of the shortest path to one.
fn refuted(mutant: Mutant) -> &'static str {
    let left = Left { renewals: 2, kills: 2, outages: 1, disk_failures: 0 };
    let checker = Life { mutant: Some(mutant), left }
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let path = checker.discovery("safe").unwrap_or_else(|| panic!("{mutant:?} does no harm"));
    path.last_state().wrong.unwrap()
}

#[test]
fn no_machine_ends_too_early_or_lives_too_long_whatever_is_out_of_reach() {
    let left = Left { renewals: 2, kills: 2, outages: 2, disk_failures: 1 };
    let checker = Life { mutant: None, left }.checker().spawn_bfs().join();
    if let Some(path) = checker.discovery("safe") {
        let wrong = path.last_state().wrong;
        panic!("{wrong:?}: {:?}", path.into_actions());
    }
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), 324_978);
}

#[test]
fn a_guard_that_is_wrong_is_refuted() {
    let long = "it lives longer than anything it read allows";
    let early = "it ended before the deadline in its record";
    for (mutant, wrong) in [
        (Mutant::NoWatchdog, long),
        (Mutant::Forgets, early),
        (Mutant::CountsAnew, long),
        (Mutant::NoLastLook, early),
        (Mutant::ComparesClocks, long),
    ] {
        assert_eq!(refuted(mutant), wrong, "{mutant:?}");
    }
}
