//! Did it end as it would have without the mishap? What remains at the end, without names and times, and how much was
//! made, ended and registered on the way; and the one table of the differences that are allowed, each with its reason.

use std::collections::{BTreeMap, BTreeSet};

use runyard_core::model::{Agent, Instance, Launch, Life, Pool, Request};
use runyard_core::ports::github::Runner;

use crate::crash_plans::plan::{Call, Kind};
use crate::crash_plans::recorder::Recorder;
use runyard_support::laws;
use runyard_tests::world::World;

/// An end: each quantity by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct End(BTreeMap<String, String>);

/// A quantity that is not what it was in the reference run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) what: String,
    pub(crate) reference: String,
    pub(crate) here: String,
}

fn tally(all: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts.into_iter().map(|(one, count)| format!("{count} × {one}")).collect::<Vec<_>>().join("; ")
}

fn request(request: &Request) -> String {
    let status = &request.status;
    let mut conditions: Vec<String> =
        status.conditions.iter().map(|c| format!("{} {} {}", c.condition_type, c.status, c.reason)).collect();
    conditions.sort();
    let phase = request.phase();
    format!(
        "{phase}, {}, holds {}, served by {}, {conditions:?}",
        request.intent.desired,
        status.instances.len(),
        status.served.len()
    )
}

fn instance(instance: &Instance) -> String {
    let state = instance.state();
    let more = match &instance.life {
        Life::Terminated { reason, gone_at } => format!("{reason}, gone {}", gone_at.is_some()),
        Life::Idle { pooled_at } => format!("pooled {}", pooled_at.is_some()),
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => {
            instance.held_by().map_or("held by nobody".into(), |key| format!("held by {}", key.pk()))
        }
    };
    format!("{state} ({more}), used {}×", instance.uses)
}

impl End {
    /// What there is now.
    pub(crate) fn of(world: &World) -> Self {
        let mut end = BTreeMap::new();
        for one in world.all::<Request>() {
            end.insert(format!("request {}", one.id), request(&one));
        }
        let instances = world.instances();
        end.insert("machines".into(), tally(instances.iter().map(instance)));
        end.insert("agents' records".into(), world.all::<Agent>().len().to_string());
        let launch =
            |l: &Launch| format!("{} of {}, for a request: {}", l.phase, l.count, l.request.is_some());
        end.insert("launches".into(), tally(world.all::<Launch>().iter().map(launch)));
        let pool = |pool: &Pool| format!("{:?}", pool.status.counts);
        end.insert("classes".into(), tally(world.all::<Pool>().iter().map(pool)));
        let machines = world.compute.machines();
        // To end one that is gone already is none; how often that may be asked is one of the laws.
        let ended = machines.iter().filter(|machine| !machine.state.alive()).count();
        end.insert("creations".into(), machines.len().to_string());
        end.insert("terminations".into(), ended.to_string());
        let registrations: usize = world.agents.served().values().map(Vec::len).sum();
        end.insert("registrations".into(), registrations.to_string());
        let name = |runner: &Runner| format!("online {}, busy {}", runner.online, runner.busy);
        end.insert("runners".into(), tally(world.github.all_runners().iter().map(name)));
        let (sets, runners, jobs) = (world.sets.sets(), world.sets.runners(), world.sets.jobs());
        let left = format!("{} sets, {} of their runners, {} jobs", sets.len(), runners.len(), jobs.len());
        end.insert("scale sets".into(), left);
        Self(end)
    }

    /// What is not as it was in the reference run.
    pub(crate) fn differs(&self, reference: &Self) -> Vec<Difference> {
        let names: BTreeSet<&String> = self.0.keys().chain(reference.0.keys()).collect();
        let of = |end: &Self, name: &String| end.0.get(name).cloned().unwrap_or_default();
        let both = names.into_iter().map(|name| (name, of(reference, name), of(self, name)));
        both.filter(|(_, reference, here)| reference != here)
            .map(|(what, reference, here)| Difference { what: what.clone(), reference, here })
            .collect()
    }
}

/// What holds on the way to every end, reference or not.
pub(crate) fn laws(world: &World, recorder: &Recorder) -> Vec<String> {
    let mut broken = laws::judge(&recorder.history().steps()).broken;
    broken.extend(recorder.wrongs());
    let mut asked: BTreeMap<_, usize> = BTreeMap::new();
    world.compute.terminations().into_iter().for_each(|id| *asked.entry(id).or_default() += 1);
    for (id, times) in asked.into_iter().filter(|(_, times)| *times > 1 + recorder.hits()) {
        broken.push(format!("{id} was ended {times} times over"));
    }
    broken
}

/// What is not as it must be once everything has come to rest.
pub(crate) fn unrest(world: &World) -> Vec<String> {
    let mut unrest = Vec::new();
    let live: BTreeSet<_> = world.live().into_iter().map(|i| i.facts.instance_id).collect();
    let alive: BTreeSet<_> =
        world.compute.machines().into_iter().filter(|m| m.state.alive()).map(|m| m.id).collect();
    for id in alive.difference(&live) {
        unrest.push(format!("{id} is alive and no record says so: it is leaked"));
    }
    for id in live.difference(&alive) {
        unrest.push(format!("{id} is gone and its record says that it lives"));
    }
    for pool in world.all::<Pool>() {
        let class = &pool.spec.resource_class;
        let hints = world.queue.bodies(class);
        let free = world.pooled().into_iter().filter(|i| i.facts.resource_class == *class);
        for instance in free.filter(|i| !hints.iter().any(|hint| hint.contains(i.facts.instance_id.as_str())))
        {
            unrest.push(format!("{} is free and no message says so", instance.facts.instance_id));
        }
        if live.len() > pool.spec.max as usize {
            unrest.push(format!("{} machines live, at most {} may", live.len(), pool.spec.max));
        }
    }
    unrest
}

/// A difference that is allowed: in which quantity, after what, and why.
struct Allowed {
    what: &'static str,
    /// How the call's name begins; anything where it is empty.
    call: &'static str,
    kinds: &'static [Kind],
    why: &'static str,
}

/// The only differences there may be.
const ALLOWED: [Allowed; 3] = [
    Allowed {
        what: "registrations",
        call: "changes request",
        kinds: &[Kind::Stale],
        why: "a release nobody heard of is known by the next list; its machines have registered meanwhile",
    },
    Allowed {
        what: "machines",
        call: "changes request",
        kinds: &[Kind::Stale],
        why: "the same: they count one use",
    },
    Allowed {
        what: "request acme/~",
        call: "changes agent",
        kinds: &[Kind::Stale],
        why: "the job of a slot ran before anybody heard that its runner listens: the slot was never ready",
    },
];

/// Why a difference is allowed, if it is.
pub(crate) fn allowed(difference: &Difference, plan: &[(Call, Kind)]) -> Option<&'static str> {
    let fits = |row: &&Allowed| {
        let by = |(call, kind): &(Call, Kind)| call.label.starts_with(row.call) && row.kinds.contains(kind);
        difference.what.starts_with(row.what) && plan.iter().any(by)
    };
    ALLOWED.iter().find(fits).map(|row| row.why)
}
