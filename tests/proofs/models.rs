//! Every reachable state of small yards, visited (Stateright), with the production core deciding for each operator. The
//! faults are bounded: so many crashes, lost answers, reclaimed machines, changes of the lease. In each state safety
//! must hold, and a fair run from there without further faults must come to rest where it should ("always ESR": the
//! checker's own `eventually` is unsound on cycles and is not used). The number of states is pinned, so that a model
//! that quietly visits less is noticed. Mutants of the protocol must be refuted, each by a shortest counter-example.

mod ahead;
mod claim;
mod desired;
mod effects;
mod launch;
mod laws;
mod lease;
mod mutants;
mod operator;
mod scenes;
mod sets;
mod silence;
mod steps;
mod stored;
mod world;

use stateright::{Checker, HasDiscoveries, Model, Property};

use steps::told;
use world::{Happens, World};

/// What a model's runs must come to in the end.
pub(crate) type Rest = fn(&World) -> bool;
/// Something that must be reachable, or nothing was shown.
pub(crate) type Sometimes = (&'static str, fn(&Yards, &World) -> bool);

/// One model: where it begins, where every run must come to rest, and what must be seen on the way.
#[derive(Clone)]
pub(crate) struct Yards {
    begin: World,
    rest: Rest,
    sometimes: Vec<Sometimes>,
}

impl Model for Yards {
    type State = World;
    type Action = Happens;

    fn init_states(&self) -> Vec<World> {
        vec![self.begin.clone()]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Happens>) {
        // What is wrong once need not be followed further.
        if state.wrong.is_none() {
            actions.extend(state.next());
        }
    }

    fn next_state(&self, last: &World, happens: Happens) -> Option<World> {
        let mut next = last.clone();
        next.step(&happens);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let safe = Property::always("safe", |_: &Self, world: &World| !world.is_first(world.wrong));
        let rests = Property::always("comes to rest", |model: &Self, world: &World| {
            world.wrong.is_some() || !world.is_first(world.unrest(model.rest))
        });
        let sometimes = self.sometimes.iter().map(|(name, seen)| Property::sometimes(name, *seen));
        [safe, rests].into_iter().chain(sometimes).collect()
    }
}

/// Visits everything; the number of states.
fn exhaust(yards: Yards) -> usize {
    let checker = yards.checker().spawn_bfs().join();
    if let Some((what, steps)) = counterexample(&checker) {
        panic!("{what}\n  {}", steps.join("\n  "));
    }
    checker.assert_properties();
    checker.unique_state_count()
}

/// Runs a mutant until it is refuted; prints the shortest way there and answers what was wrong at its end.
fn refuted(yards: Yards) -> &'static str {
    let mutant = yards.begin.mutant().unwrap();
    let checker = yards.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let Some((what, steps)) = counterexample(&checker) else {
        panic!("{mutant:?} is not seen in {} states", checker.unique_state_count());
    };
    println!("{mutant:?}: {what}, in {} steps\n  {}", steps.len(), steps.join("\n  "));
    what
}

/// What went wrong at the end of a shortest way, and the way.
fn counterexample(checker: &impl Checker<Yards>) -> Option<(&'static str, Vec<String>)> {
    let path = checker.discovery("safe").or_else(|| checker.discovery("comes to rest"))?;
    let what = path.last_state().setting.failed.get().copied()?;
    Some((what, path.into_actions().iter().map(told).collect()))
}
