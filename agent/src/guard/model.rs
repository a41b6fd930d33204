//! Every order in which an agent reads, dies, comes back and reboots while its deadline is renewed, its table is away
//! and time passes (Stateright), with the guard's own memory and the fuse's own verdict. Never too early: while the
//! table can be reached, no machine ends before its record's deadline and the grace. Never too late: whatever is dead or
//! away, the machine is off within the longest deadline, the grace and the fuse's margin (L5). Mutants must be refuted.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::*;
use crate::fuse::{self, MARGIN, Verdict};

const LENGTHS: Lengths = Lengths { created: Duration::from_secs(900), grace: Duration::from_secs(300) };
/// How far time goes at once; the fuse's timer is let look as often.
const STEP: u64 = 300;
/// The deadline that a record begins with, and the one it is renewed to, in seconds from when it is set.
const TERMS: [u64; 2] = [900, 1800];

/// One guard or input of the production code made worse.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutant {
    /// The record is not looked at once more before the end.
    NoLastLook,
    /// A deadline does not say when it was set, so its length is not known.
    NoLength,
    /// What was kept counts in whatever boot.
    AnyBoot,
    /// Nobody looks after a dead agent.
    NoFuse,
}

/// The machine, its agent's memory on disk and in the process, and its record.
#[derive(Clone, Debug, Hash, PartialEq)]
struct Machine {
    /// True time, in seconds.
    time: u64,
    booted: u64,
    boots: u8,
    disk: Option<String>,
    agent: Option<String>,
    /// Which deadline the record has, and since when.
    term: Option<(usize, u64)>,
    away: bool,
    off: bool,
    early: bool,
    /// When the deadline that counts was seen first, or else the machine booted.
    seen: u64,
    deaths: u8,
}

#[derive(Clone, Debug, PartialEq)]
enum Happens {
    TimePasses,
    Recorded,
    Renewed,
    AgentReads,
    AgentDies,
    AgentStarts,
    Reboots,
    TableGoes,
    TableComes,
}

struct Watch(Option<Mutant>);

impl Watch {
    fn boot(machine: &Machine) -> String {
        format!("boot-{}", machine.boots)
    }

    fn clock(machine: &Machine) -> Duration {
        Duration::from_secs(machine.time - machine.booted)
    }

    fn load(content: &str) -> Memory {
        serde_json::from_str(content).expect("a memory")
    }

    fn keep(machine: &mut Machine, memory: &Memory) {
        let content = serde_json::to_string(memory).expect("JSON");
        machine.disk = Some(content.clone());
        machine.agent = Some(content);
    }

    /// The record's deadline, by an operator's clock that is years behind.
    fn deadline(&self, machine: &Machine) -> Option<Deadline> {
        let (term, since) = machine.term?;
        let set_at: Timestamp = "1999-01-01T00:00:00Z".parse().expect("a moment");
        let set_at = set_at + Duration::from_secs(since);
        let at = set_at + Duration::from_secs(TERMS[term]);
        Some(Deadline { at, set_at: (self.0 != Some(Mutant::NoLength)).then_some(set_at) })
    }

    fn look(&self, machine: &mut Machine, memory: &mut Memory) {
        if let Some(deadline) = self.deadline(machine).filter(|_| !machine.away)
            && memory.see(deadline, Self::clock(machine), LENGTHS)
        {
            machine.seen = machine.time;
        }
    }

    fn starts(&self, machine: &mut Machine) {
        let mut kept = machine.disk.as_deref().map(Self::load);
        let boot = Self::boot(machine);
        if self.0 == Some(Mutant::AnyBoot) {
            kept.iter_mut().for_each(|kept| {
                kept.boot_id.clone_from(&boot);
                kept.began_ms = 0;
            });
        }
        let memory = Memory::resume(kept, &boot, Self::clock(machine), LENGTHS);
        Self::keep(machine, &memory);
    }

    /// The guard and the fuse look at their clocks.
    fn judges(&self, machine: &mut Machine) {
        let now = Self::clock(machine);
        if let Some(content) = machine.agent.clone() {
            let mut memory = Self::load(&content);
            if memory.left(now).is_zero() {
                if self.0 != Some(Mutant::NoLastLook) {
                    self.look(machine, &mut memory);
                    Self::keep(machine, &memory);
                }
                machine.off = memory.left(now).is_zero();
                let due =
                    machine.term.map_or(0, |(term, since)| since + TERMS[term] + LENGTHS.grace.as_secs());
                machine.early = machine.off && !machine.away && machine.time < due;
            }
        }
        let verdict =
            fuse::decide(machine.disk.as_deref().map(str::as_bytes), &Self::boot(machine), now, LENGTHS);
        machine.off |= self.0 != Some(Mutant::NoFuse) && matches!(verdict, Verdict::PowerOff(_));
    }
}

impl Model for Watch {
    type State = Machine;
    type Action = Happens;

    fn init_states(&self) -> Vec<Machine> {
        let mut machine = Machine {
            time: 0,
            booted: 0,
            boots: 1,
            disk: None,
            agent: None,
            term: None,
            away: false,
            off: false,
            early: false,
            seen: 0,
            deaths: 2,
        };
        self.starts(&mut machine);
        vec![machine]
    }

    fn actions(&self, machine: &Machine, actions: &mut Vec<Happens>) {
        if machine.off || machine.time >= 7200 {
            return;
        }
        actions.push(Happens::TimePasses);
        actions.extend(machine.term.is_none().then_some(Happens::Recorded));
        actions.extend(matches!(machine.term, Some((0, _))).then_some(Happens::Renewed));
        actions.push(if machine.away { Happens::TableComes } else { Happens::TableGoes });
        match machine.agent {
            Some(_) if machine.deaths > 0 => actions.extend([Happens::AgentReads, Happens::AgentDies]),
            Some(_) => actions.push(Happens::AgentReads),
            None => actions.push(Happens::AgentStarts),
        }
        if machine.boots < 2 {
            actions.push(Happens::Reboots);
        }
    }

    fn next_state(&self, last: &Machine, happens: Happens) -> Option<Machine> {
        let mut machine = last.clone();
        match happens {
            Happens::TimePasses => {
                machine.time += STEP;
                self.judges(&mut machine);
            }
            Happens::Recorded => machine.term = Some((0, machine.time)),
            Happens::Renewed => machine.term = Some((1, machine.time)),
            Happens::AgentReads => {
                let mut memory = Self::load(machine.agent.as_deref()?);
                self.look(&mut machine, &mut memory);
                Self::keep(&mut machine, &memory);
            }
            Happens::AgentDies => {
                machine.deaths -= 1;
                machine.agent = None;
            }
            Happens::AgentStarts => self.starts(&mut machine),
            Happens::Reboots => {
                machine.boots += 1;
                (machine.booted, machine.seen) = (machine.time, machine.time);
                machine.agent = None;
            }
            Happens::TableGoes => machine.away = true,
            Happens::TableComes => machine.away = false,
        }
        (machine != *last).then_some(machine)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let longest = TERMS[1] + LENGTHS.grace.as_secs() + MARGIN.as_secs() + STEP;
        assert_eq!(longest, LONGEST, "the bound that is checked");
        vec![
            Property::always("not too early", |_, machine: &Machine| !machine.early),
            Property::always("not too late", |_, machine: &Machine| {
                machine.off || machine.time < machine.seen + LONGEST
            }),
            Property::sometimes("it ends", |_, machine: &Machine| machine.off),
            Property::sometimes("it ends without its agent", |_, machine: &Machine| {
                machine.off && machine.agent.is_none()
            }),
            Property::sometimes("it ends in its second boot", |_, machine: &Machine| {
                machine.off && machine.boots == 2
            }),
        ]
    }
}

/// How long after the last news, or its boot, a machine lives at most, in seconds.
const LONGEST: u64 = 1800 + 300 + 60 + STEP;

#[test]
fn no_machine_ends_too_early_or_too_late_whatever_dies_or_is_away() {
    let checker = Watch(None).checker().spawn_bfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), 1);
}

#[test]
fn a_guard_or_a_fuse_made_worse_is_refuted() {
    for (mutant, what) in [
        (Mutant::NoLastLook, "not too early"),
        (Mutant::NoLength, "not too early"),
        (Mutant::AnyBoot, "not too late"),
        (Mutant::NoFuse, "not too late"),
    ] {
        let checker =
            Watch(Some(mutant)).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let path = checker.discovery(what);
        let path = path.unwrap_or_else(|| panic!("{mutant:?} is not seen as {what}"));
        println!("{mutant:?}: {what}: {:?}", path.into_actions());
    }
}
