//! The lease: budgets are spent by its holder alone. A holder that was replaced and does not know it yet cannot write
//! an intent; the new one has read everything before its first.

use runyard_core::model::{Launch, LaunchPhase};

use crate::models::mutants::Mutant;
use crate::models::scenes::{pool, request};
use crate::models::world::{Left, World};
use crate::models::{Sometimes, Yards, exhaust, refuted};

/// Two operators of which each may become the holder; one request for one machine, room for one only.
fn change_of_hands(left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(2, left, mutant);
    pool(&mut world, 1);
    request(&mut world, "1", 1);
    world.started()
}

fn model(begin: World) -> Yards {
    let sometimes: Vec<Sometimes> = vec![
        ("the lease changes hands", |model, world| world.token > model.begin.token),
        ("an intent is refused", |_, world| world.refused()),
        ("a launch is bound", |_, world| world.all::<Launch>().any(|l| l.phase == LaunchPhase::Bound)),
    ];
    Yards { begin, rest: |_| true, sometimes }
}

#[test]
fn a_holder_that_was_replaced_launches_nothing() {
    let left = Left { leases: 2, crashes: 1, lost: 1, ..Left::default() };
    assert_eq!(exhaust(model(change_of_hands(left, None))), 67_562);
}

#[test]
fn an_intent_that_does_not_check_the_lease_is_refuted() {
    let left = Left { leases: 1, ..Left::default() };
    let begin = change_of_hands(left, Some(Mutant::IntentWithoutLease));
    assert!(refuted(model(begin)).starts_with("S7"));
}

#[test]
fn a_new_holder_that_has_not_read_is_refuted() {
    let left = Left { leases: 1, ..Left::default() };
    let begin = change_of_hands(left, Some(Mutant::LeaseWithoutReading));
    assert!(refuted(model(begin)).starts_with("S7"));
}
