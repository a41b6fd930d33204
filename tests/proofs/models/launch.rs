//! Launches and collection: an intent, its order by token, the bind; operators that die in between, answers that are
//! lost, fleets that come in part, lists that lack a machine, machines that EC2 takes back.

use runyard_core::model::{Desired, Instance, Launch, LaunchPhase, Life, Phase, Reason, Request, State};

use crate::models::mutants::Mutant;
use crate::models::scenes::{pool, pooled, request};
use crate::models::world::{Left, World};
use crate::models::{Sometimes, Yards, exhaust, refuted};

/// Nothing in the pool, one request for so many machines, which may end.
fn empty_pool(operators: usize, count: u32, left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(operators, left, mutant).with_inventory();
    pool(&mut world, 2);
    request(&mut world, "1", count);
    world.started()
}

/// One machine in the pool, which EC2's lists may lack.
fn listed(left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(1, left, mutant).with_inventory();
    pool(&mut world, 1);
    pooled(&mut world, "i-1");
    world.started()
}

/// Nothing is open, every machine that lives is recorded and pooled or running, and each request has what it wants.
fn settled(world: &World) -> bool {
    let closed = world.all::<Launch>().all(|launch| launch.phase != LaunchPhase::Intent);
    let recorded = world.living().all(|machine| {
        world.instance(&machine.arn).is_some_and(|instance| match instance.life {
            Life::Running { .. } | Life::Idle { pooled_at: Some(_) } => true,
            Life::Created { .. }
            | Life::Claimed { .. }
            | Life::Idle { pooled_at: None }
            | Life::Terminated { .. } => false,
        })
    });
    let served = world.all::<Request>().all(|request| match request.intent.desired {
        Desired::Provisioned => request.phase() == Phase::Ready,
        Desired::Released => request.phase() == Phase::Released,
    });
    closed && recorded && served
}

fn bound(_: &Yards, world: &World) -> bool {
    world.all::<Launch>().any(|launch| launch.phase == LaunchPhase::Bound)
}

fn runs(_: &Yards, world: &World) -> bool {
    world.all::<Instance>().any(|instance| instance.state() == State::Running)
}

fn model(begin: World, more: &[Sometimes]) -> Yards {
    let sometimes: Vec<Sometimes> = vec![("a machine runs", runs), ("a launch is bound", bound)];
    Yards { begin, rest: settled, sometimes: [sometimes, more.to_vec()].concat() }
}

/// S22 at ground truth: nothing that lives at EC2 is taken for gone.
fn believed(world: &World) -> bool {
    settled(world) && world.living().count() == 1
}

fn ended_as(world: &World, of: Reason) -> bool {
    world.all::<Instance>().any(|instance| match instance.life {
        Life::Terminated { reason, .. } => reason == of,
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => false,
    })
}

#[test]
fn whatever_dies_between_intent_and_bind_no_machine_is_left_unrecorded() {
    let left = Left { crashes: 1, lost: 1, ..Left::default() };
    let begin = empty_pool(2, 1, left, None);
    assert_eq!(exhaust(model(begin, &[])), 40_284);
}

#[test]
fn a_fleet_that_comes_in_part_is_bound_and_the_rest_is_launched_again() {
    let left = Left { partial: 1, lost: 1, passes: 1, ..Left::default() };
    let warm: Sometimes = ("two launches are bound", |_, world| {
        world.all::<Launch>().filter(|launch| launch.phase == LaunchPhase::Bound).count() == 2
    });
    assert_eq!(exhaust(model(empty_pool(1, 2, left, None), &[warm])), 102_168);
}

#[test]
fn a_request_released_while_its_machine_comes_leaves_a_warm_one() {
    let left = Left { lost: 1, crashes: 1, ..Left::default() };
    let mut begin = empty_pool(1, 1, left, None);
    begin.left.releases = begin.all::<Request>().map(runyard_core::model::Record::key).collect();
    let warm: Sometimes =
        ("it is in the pool", |_, world| world.all::<Instance>().any(|i| i.pooled_at().is_some()));
    assert_eq!(exhaust(model(begin, &[warm])), 12_016);
}

#[test]
fn a_machine_that_ec2_takes_is_replaced_and_buried() {
    let left = Left { reclaimed: 1, unlisted: 1, crashes: 1, ..Left::default() };
    let vanished: Sometimes = ("one vanishes", |_, world| ended_as(world, Reason::Vanished));
    assert_eq!(exhaust(model(empty_pool(1, 1, left, None), &[vanished])), 18_720);
}

#[test]
fn a_list_that_lacks_a_machine_ends_nothing() {
    let left = Left { unlisted: 2, passes: 1, ..Left::default() };
    let sometimes: Vec<Sometimes> = vec![("time passes", |_, world| world.passed > 0)];
    let yards = Yards { begin: listed(left, None), rest: believed, sometimes };
    assert_eq!(exhaust(yards), 17);
}

#[test]
fn a_list_that_is_believed_is_refuted() {
    let left = Left { unlisted: 1, ..Left::default() };
    let begin = listed(left, Some(Mutant::ListsBelieved));
    let yards = Yards { begin, rest: believed, sometimes: Vec::new() };
    assert!(refuted(yards).starts_with("S22"));
}

#[test]
fn a_launch_that_brings_new_machines_each_time_it_is_asked_for_is_refuted() {
    let left = Left { crashes: 1, ..Left::default() };
    let begin = empty_pool(1, 1, left, Some(Mutant::FreshToken));
    assert!(refuted(model(begin, &[])).starts_with("S8"));
}

#[test]
fn an_intent_whose_answer_was_lost_and_that_gets_another_name_is_refuted() {
    let left = Left { lost: 1, ..Left::default() };
    let begin = empty_pool(1, 2, left, Some(Mutant::FreshName));
    assert!(refuted(model(begin, &[])).starts_with("S7"));
}

#[test]
fn a_bind_in_two_writes_is_refuted() {
    let left = Left { lost: 1, ..Left::default() };
    let begin = empty_pool(1, 1, left, Some(Mutant::BindInTwo));
    assert!(refuted(model(begin, &[])).starts_with("S1"));
}

#[test]
fn a_machine_that_is_ended_before_its_record_says_so_is_refuted() {
    let left = Left { reclaimed: 1, ..Left::default() };
    let begin = empty_pool(1, 1, left, Some(Mutant::KillFirst));
    assert!(refuted(model(begin, &[])).starts_with("S5"));
}

#[test]
fn no_grace_for_machines_without_a_record_is_refuted() {
    let left = Left { lost: 1, ..Left::default() };
    let begin = empty_pool(1, 1, left, Some(Mutant::NoGrace));
    assert!(refuted(model(begin, &[])).starts_with("S9"));
}
