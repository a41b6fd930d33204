//! Silence: an agent that is not heard for a while is looked at once more, and its machine is ended on that very
//! heartbeat or not at all.

use runyard_core::model::{Instance, Life, Reason};

use crate::models::mutants::Mutant;
use crate::models::scenes::{pool, pooled};
use crate::models::world::{Left, World};
use crate::models::{Sometimes, Yards, exhaust, refuted};

/// Two operators and a machine in the pool.
fn watched(left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(2, left, mutant);
    pool(&mut world, 1);
    pooled(&mut world, "i-1");
    world.started()
}

fn silent(_: &Yards, world: &World) -> bool {
    world.all::<Instance>().any(|instance| match instance.life {
        Life::Terminated { reason, .. } => reason == Reason::Unhealthy,
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => false,
    })
}

/// The machine is in the pool, or it is gone and that is recorded.
fn settled(world: &World) -> bool {
    world.all::<Instance>().all(|instance| match instance.life {
        Life::Idle { pooled_at: Some(_) } => true,
        Life::Terminated { gone_at, .. } => gone_at.is_some() && !world.alive(&instance.facts.instance_arn),
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => false,
    })
}

fn model(begin: World) -> Yards {
    let sometimes: Vec<Sometimes> = vec![
        ("a machine is ended for silence", silent),
        ("its agent speaks just before", |_, world| world.refused()),
        ("it is heard in time", |_, world| world.silent > 1 && world.living().count() == 1),
    ];
    Yards { begin, rest: settled, sometimes }
}

#[test]
fn a_machine_is_ended_for_silence_on_the_heartbeat_that_was_judged_or_not_at_all() {
    let left = Left { quiet: 2, beats: 2, lost: 1, crashes: 1, ..Left::default() };
    assert_eq!(exhaust(model(watched(left, None))), 92_763);
}

#[test]
fn an_end_for_silence_that_does_not_hold_the_heartbeat_is_refuted() {
    let left = Left { quiet: 1, beats: 1, ..Left::default() };
    let begin = watched(left, Some(Mutant::SilenceWithoutBeat));
    assert!(refuted(model(begin)).starts_with("S14"));
}

#[test]
fn an_agent_that_writes_where_no_record_is_is_refuted() {
    let left = Left { quiet: 1, beats: 1, ..Left::default() };
    let begin = watched(left, Some(Mutant::AgentResurrects));
    assert!(refuted(model(begin)).starts_with("S12"));
}
