//! Generates a day from an empty table: requests come and go, machines are lost, agents act, sometimes late.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use runyard_core::model::{
    Agent, AttributeValue, Desired, Instance, InstanceId, Item, Life, Phase, RecordId, Request, Signal,
    State, Versioned,
};
use runyard_core::ports::MachineState;
use runyard_core::yard::Observation;
use serde_json::json;

use crate::properties::world::{World, item, start};
use crate::properties::{claims_are_disjoint, legal_moves, one_write_a_record, within_max};

/// Seconds between two looks at the yard.
const TICK: u64 = 15;

#[derive(Clone, Debug)]
enum Event {
    /// A workflow asks.
    Ask { run: u8, count: u32, min: u32, attempt: u32 },
    /// A workflow lets go.
    Release { run: u8 },
    /// A machine ends by itself.
    Lose { machine: usize },
    /// A machine fails what it is at.
    Fail { machine: usize },
    /// A person changes the class.
    Scale { desired: u32, max: u32 },
    /// EC2 has nothing left, or has again.
    Capacity(bool),
    /// Machines are listed.
    Sweep,
    /// The table is listed.
    List,
}

#[derive(Clone, Debug)]
pub(crate) struct Day {
    desired: u32,
    max: u32,
    max_uses: Option<u32>,
    reuse: &'static str,
    events: Vec<(u8, Event)>,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0_u8..4, 1_u32..5, 1_u32..5, 1_u32..3)
            .prop_map(|(run, count, min, attempt)| Event::Ask { run, count, min: min.min(count), attempt }),
        4 => (0_u8..4).prop_map(|run| Event::Release { run }),
        3 => (0..9_usize).prop_map(|machine| Event::Lose { machine }),
        3 => (0..9_usize).prop_map(|machine| Event::Fail { machine }),
        2 => (0_u32..4, 1_u32..8).prop_map(|(desired, max)| Event::Scale { desired: desired.min(max), max }),
        1 => any::<bool>().prop_map(Event::Capacity),
        1 => Just(Event::Sweep),
        1 => Just(Event::List),
    ]
}

pub(crate) fn day() -> impl Strategy<Value = Day> {
    let class = (0_u32..4, 1_u32..8, proptest::option::of(1_u32..4));
    let reuse = prop_oneof![3 => Just("owner"), 1 => Just("none")];
    (class, reuse, vec((0_u8..6, event()), 1..25)).prop_map(|((desired, max, max_uses), reuse, events)| Day {
        desired: desired.min(max),
        max,
        max_uses,
        reuse,
        events,
    })
}

impl Day {
    /// Plays the day, then lets an hour pass in which nothing happens, and looks at what is left.
    pub(crate) fn play(&self) {
        let mut world = World::empty(start());
        world.list();
        self.pool(&mut world, self.desired, self.max);
        let mut failing: BTreeMap<InstanceId, bool> = BTreeMap::new();
        for (ticks, event) in &self.events {
            self.happens(event, &mut world, &mut failing);
            for _ in 0..*ticks {
                tick(&mut world, &failing);
            }
        }
        failing.clear();
        world.capacity = true;
        for n in 0..(3600 / TICK) {
            tick(&mut world, &failing);
            if n % 20 == 0 {
                sweep(&mut world);
                world.list();
            }
        }
        at_rest(&world);
    }

    fn pool(&self, world: &mut World, desired: u32, max: u32) {
        let key = RecordId::new("pool#linux", "pool");
        let version = world.get::<runyard_core::model::Pool>(&key).map_or(0, |pool| pool.version);
        world.store(item(json!({
            "pk": key.pk(), "sk": key.sk(), "kind": "pool", "version": version + 1, "resourceClass": "linux",
            "desired": desired, "max": max, "maxUses": self.max_uses, "reuseWithin": self.reuse,
        })));
    }

    fn happens(&self, event: &Event, world: &mut World, failing: &mut BTreeMap<InstanceId, bool>) {
        let live: Vec<Instance> =
            world.all::<Instance>().into_iter().filter(|instance| instance.state().live()).collect();
        match event {
            Event::Ask { run, count, min, attempt } => {
                let key =
                    RecordId::new(format!("request#acme/web#{run}"), format!("request#default#{attempt}"));
                if !world.table.contains_key(&key) {
                    world.store(item(json!({
                        "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 1, "runId": run.to_string(),
                        "attempt": attempt, "repository": "acme/web", "name": "default", "desired": "provisioned",
                        "resourceClass": "linux", "count": count, "minCount": min, "generation": 1,
                    })));
                }
            }
            Event::Release { run } => {
                let of_run =
                    world.all::<Request>().into_iter().filter(|r| r.id.run_id.as_str() == run.to_string());
                for mut request in of_run.collect::<Vec<_>>() {
                    request.intent.desired = Desired::Released;
                    request.intent.generation += 1;
                    request.advance(world.now.wall);
                    world.put(&request);
                }
            }
            Event::Lose { machine } => {
                if let Some(instance) = live.get(*machine) {
                    let id = &instance.facts.instance_id;
                    world.machines.get_mut(id).unwrap().state = MachineState::Terminated;
                }
            }
            Event::Fail { machine } => {
                if let Some(instance) = live.get(*machine) {
                    failing.insert(instance.facts.instance_id.clone(), true);
                }
            }
            Event::Scale { desired, max } => self.pool(world, *desired, *max),
            Event::Capacity(had) => world.capacity = *had,
            Event::Sweep => sweep(world),
            Event::List => world.list(),
        }
    }
}

fn sweep(world: &mut World) {
    let machines = world.machines.values().cloned().collect();
    world.see(Observation::Inventory(machines));
}

/// A while passes: agents speak, then the operator acts, with every promise checked on the way.
fn tick(world: &mut World, failing: &BTreeMap<InstanceId, bool>) {
    world.later(TICK);
    speak(world, failing);
    let plans = world.judge();
    one_write_a_record(&plans);
    claims_are_disjoint(&plans);
    legal_moves(&plans);
    within_max(world, &plans);
    let before = world.table.clone();
    world.settle();
    world.check();
    // What is over stays over.
    for (key, item) in before {
        let state = |item: &Item| item.get("state").or(item.get("phase")).cloned();
        let last = [State::Terminated.as_str(), Phase::Released.as_str(), Phase::Failed.as_str()];
        let over = state(&item).filter(|s| matches!(s, AttributeValue::S(s) if last.contains(&s.as_str())));
        if let (Some(over), Some(now)) = (over, world.table.get(&key)) {
            assert_eq!(Some(over), state(now), "{key}");
        }
    }
}

/// Every agent whose machine is there derives its signal from its record and writes it with a beat.
fn speak(world: &mut World, failing: &BTreeMap<InstanceId, bool>) {
    for instance in world.all::<Instance>() {
        let id = &instance.facts.instance_id;
        let there = world.machines.get(id).is_some_and(|machine| machine.state.alive());
        let key = Agent::key_of(&instance.facts.instance_arn);
        let Some(mut agent) = world.get::<Agent>(&key).filter(|_| there) else { continue };
        let fails = failing.contains_key(id);
        let claim = instance.claim.as_ref().map_or(String::new(), |claim| claim.id.to_string());
        let (signal, about) = match instance.life {
            Life::Created { run: None } => (if fails { Signal::Failed } else { Signal::Ok }, String::new()),
            Life::Created { run: Some(_) } | Life::Claimed { .. } | Life::Running { .. } => {
                (if fails { Signal::RegFailed } else { Signal::RegOk }, claim)
            }
            Life::Idle { pooled_at: None } => {
                (if fails { Signal::RemoveRegFailed } else { Signal::RemoveRegOk }, claim)
            }
            Life::Idle { pooled_at: Some(_) } | Life::Terminated { .. } => {
                (agent.signal.unwrap_or(Signal::Ok), agent.signal_claim_id.clone().unwrap_or_default())
            }
        };
        agent.heartbeat_seq += 1;
        agent.signal = Some(signal);
        agent.signal_claim_id = Some(about);
        world.put(&agent);
    }
}

/// After an hour of quiet every request is answered, nothing is half done, and the class has what it wants.
fn at_rest(world: &World) {
    let class = world.yard.class(&"linux".parse().unwrap()).unwrap();
    let spec = &class.pool.as_ref().unwrap().spec;
    for request in world.all::<Request>() {
        let phase = request.phase();
        assert!(phase.is_final() || phase == Phase::Ready, "{} is still {phase}", request.id);
    }
    let live: Vec<Instance> =
        world.all::<Instance>().into_iter().filter(|instance| instance.state().live()).collect();
    assert!(live.len() as u32 <= spec.max, "{} live, max {}", live.len(), spec.max);
    for instance in &live {
        let half =
            instance.claim.is_some() && instance.state() == State::Idle && instance.pooled_at().is_none();
        assert!(!half, "{} is still being cleaned", instance.facts.instance_id);
        let there = &world.machines[&instance.facts.instance_id];
        assert!(there.state.alive(), "{} has a live record and is gone", instance.facts.instance_id);
    }
    let recorded = |id: &InstanceId| live.iter().any(|instance| instance.facts.instance_id == *id);
    let left: Vec<_> = world.machines.values().filter(|m| m.state.alive() && !recorded(&m.id)).collect();
    assert!(left.is_empty(), "machines without a live record: {left:?}");
    let idle = live.iter().filter(|instance| instance.run().is_none()).count() as u32;
    let room = spec.max - (live.len() as u32 - idle);
    assert!(idle >= spec.desired.min(room), "{idle} idle, {} wanted, room for {room}", spec.desired);
}
