//! Claims: two operators with pictures of any age, two requests, machines in the pool; crashes, lost answers, reclaimed
//! machines, releases at any moment; agents that act on what they read a while ago.

use runyard_core::model::{Desired, Instance, Life, Phase, Request, State};

use crate::models::mutants::Mutant;
use crate::models::scenes::{pool, pooled, request};
use crate::models::world::{Left, World};
use crate::models::{Rest, Sometimes, Yards, exhaust, refuted};

/// Two operators, one machine and no room for another, two requests for it.
fn scramble(left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(2, left, mutant);
    pool(&mut world, 1);
    pooled(&mut world, "i-1");
    request(&mut world, "1", 1);
    request(&mut world, "2", 1);
    world.started()
}

/// Two operators, two machines, one request for one of them that ends.
fn spare(left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(2, left, mutant);
    pool(&mut world, 2);
    pooled(&mut world, "i-1");
    pooled(&mut world, "i-2");
    let key = request(&mut world, "1", 1);
    world.left.releases = vec![key];
    world.started()
}

/// Two operators, two machines, two requests.
fn plenty(left: Left) -> World {
    let mut world = World::new(2, left, None);
    pool(&mut world, 2);
    pooled(&mut world, "i-1");
    pooled(&mut world, "i-2");
    request(&mut world, "1", 1);
    request(&mut world, "2", 1);
    world.started()
}

/// One machine that serves a request, which ends, and then another; its agent is slow.
fn reuse(operators: usize, left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(operators, left, mutant);
    pool(&mut world, 1);
    pooled(&mut world, "i-1");
    let first = request(&mut world, "1", 1);
    request(&mut world, "2", 1);
    world.left.releases = vec![first];
    world.started()
}

/// The same where runners are removed at GitHub, which may take one for busy.
fn deregistered(left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(1, left, mutant).with_github();
    pool(&mut world, 1);
    pooled(&mut world, "i-1");
    let first = request(&mut world, "1", 1);
    request(&mut world, "2", 1);
    world.left.releases = vec![first];
    world.started()
}

/// No machine is between states, no request is on its way out; a machine that lives is pooled or runs.
fn tidy(world: &World) -> bool {
    let mut machines = world.all::<Instance>();
    machines.all(|instance| match instance.life {
        Life::Running { .. } | Life::Terminated { .. } | Life::Idle { pooled_at: Some(_) } => true,
        Life::Created { .. } | Life::Claimed { .. } | Life::Idle { pooled_at: None } => false,
    }) && world.all::<Request>().all(|request| request.phase() != Phase::Releasing)
}

/// Whoever can be served is: each machine that lives runs for a request while there is one that waits.
fn served(world: &World) -> bool {
    let wanting = world.all::<Request>().filter(|r| r.intent.desired == Desired::Provisioned).count();
    let living = world.all::<Instance>().filter(|instance| instance.state().live()).count();
    let ready = world.all::<Request>().filter(|request| request.phase() == Phase::Ready).count();
    let released = world.all::<Request>().filter(|r| r.intent.desired == Desired::Released);
    tidy(world) && ready >= wanting.min(living) && { released }
        .all(|request| request.phase() == Phase::Released)
}

pub(crate) fn model(begin: World) -> Yards {
    let sometimes: Vec<Sometimes> = vec![
        ("a machine runs", |_, world| world.all::<Instance>().any(|i| i.state() == State::Running)),
        ("a request is ready", |_, world| world.all::<Request>().any(|r| r.phase() == Phase::Ready)),
        ("a writer comes second", |_, world| world.operators.len() == 1 || world.refused()),
    ];
    let rest: Rest = served;
    Yards { begin, rest, sometimes }
}

#[test]
fn one_machine_is_never_held_by_two_requests_whatever_crashes() {
    let left = Left { crashes: 1, lost: 1, ..Left::default() };
    assert_eq!(exhaust(model(scramble(left, None))), 5665);
}

#[test]
fn a_request_never_holds_more_than_it_asked_for_and_gives_everything_back() {
    let left = Left { lost: 1, ..Left::default() };
    assert_eq!(exhaust(model(spare(left, None))), 27_296);
}

#[test]
fn two_requests_take_a_machine_each_and_none_stands_on_two_lists() {
    let left = Left { crashes: 1, ..Left::default() };
    assert_eq!(exhaust(model(plenty(left))), 55_169);
}

#[test]
fn a_machine_goes_from_one_request_to_the_next_clean_however_slow_its_agent_is() {
    let left = Left { lost: 1, crashes: 1, repeats: 1, ..Left::default() };
    assert_eq!(exhaust(model(reuse(1, left, None))), 15_634);
}

#[test]
fn a_machine_goes_from_one_request_to_the_next_between_two_operators() {
    assert_eq!(exhaust(model(reuse(2, Left::default(), None))), 100_815);
}

#[test]
fn a_machine_is_pooled_only_after_github_let_go_of_its_runner() {
    let left = Left { lost: 1, crashes: 1, busy: 2, ..Left::default() };
    assert!(exhaust(model(deregistered(left, None))) > 1000);
}

#[test]
fn a_pool_that_takes_a_busy_runner_for_gone_is_refuted() {
    let left = Left { busy: 1, ..Left::default() };
    let begin = deregistered(left, Some(Mutant::PooledWhileBusy));
    assert!(refuted(model(begin)).starts_with("S4"));
}

#[test]
fn a_claim_that_does_not_spend_the_machine_is_refuted() {
    let begin = scramble(Left::default(), Some(Mutant::ClaimWithoutMachine));
    assert!(refuted(model(begin)).starts_with("S1"));
}

#[test]
fn a_claim_that_does_not_spend_the_request_is_refuted() {
    let begin = spare(Left::default(), Some(Mutant::ClaimWithoutRequest));
    assert!(refuted(model(begin)).starts_with("S"));
}

#[test]
fn writes_without_conditions_are_refuted() {
    let begin = scramble(Left::default(), Some(Mutant::Unconditional));
    assert!(refuted(model(begin)).starts_with("S"));
}

#[test]
fn a_signal_that_counts_for_any_claim_is_refuted() {
    let left = Left { repeats: 1, ..Left::default() };
    let begin = reuse(1, left, Some(Mutant::SignalForAnyClaim));
    assert!(refuted(model(begin)).starts_with("S"));
}

#[test]
fn an_agent_that_reads_the_past_is_refuted() {
    let begin = reuse(1, Left::default(), Some(Mutant::AgentReadsStale));
    assert!(refuted(model(begin)).starts_with("S"));
}
