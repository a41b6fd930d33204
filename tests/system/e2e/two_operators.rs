//! What if two operators work on one table, one of them sleeps past its lease and comes back, and one is killed? No
//! machine is held twice, nobody gets more than was asked for.

use std::collections::BTreeSet;

use futures::future::join;
use nix::sys::signal::Signal;
use runyard_core::model::{Instance, Phase, Request, RequestKey};

use crate::e2e::history::{self, Snapshot};
use crate::e2e::operators::{Operator, Yard};
use crate::e2e::simulator::Agents;
use crate::e2e::waiting::{turn, until, until_none};
use runyard_support::laws;

async fn looked(yard: &Yard) -> Option<Snapshot> {
    history::snapshot(&yard.store).await
}

async fn pooled(yard: &Yard, wanted: usize) {
    until(&format!("{wanted} machines in the pool"), async || {
        let instances = looked(yard).await?.all::<Instance>();
        let pooled = instances.iter().filter(|instance| instance.pooled_at().is_some()).count();
        (pooled >= wanted).then_some(())
    })
    .await;
}

/// Requests of this phase, at least so many.
async fn at_least(yard: &Yard, wanted: usize, so: impl Fn(Phase) -> bool) {
    until(&format!("{wanted} requests to get on"), async || {
        let requests = looked(yard).await?.all::<Request>();
        (requests.iter().filter(|request| so(request.phase())).count() >= wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn two_operators_of_which_one_sleeps_and_one_is_killed_never_hold_a_machine_twice() {
    let _turn = turn().await;
    let mut yard = Yard::new(10, 60, 1000).await;
    let agents = Agents::play(yard.store.clone());
    let operators = [yard.operator().await, yard.operator().await];
    pooled(&yard, 10).await;
    let disturbed = async {
        yard.ask(1..=50, |run| 1 + run % 2).await;
        at_least(&yard, 15, |phase| phase == Phase::Ready || phase.is_final()).await;
        let [mut first, second] = led_by_the_first(operators).await;
        // A zombie: it sleeps past its lease in the middle of its work, and wakes up to another leader.
        first.process.signal(Signal::SIGSTOP);
        yard.ask(51..=65, |_| 1).await;
        until("the stand-by to lead", async || second.leads().await?.then_some(())).await;
        at_least(&yard, 30, |phase| phase == Phase::Ready || phase.is_final()).await;
        first.process.signal(Signal::SIGCONT);
        until("the zombie to see it", async || (!first.leads().await?).then_some(())).await;
        // And one is killed while it leads.
        let mut killed = second;
        yard.ask(66..=80, |_| 2).await;
        killed.process.kill_nine();
        until("the other to lead", async || first.leads().await?.then_some(())).await;
        assert!(first.process.ended().is_none(), "it works on:\n{}", first.process.said());
        first
    };
    let (_last, ()) = join(disturbed, given_back(&yard, 80)).await;
    assert_eq!(agents.wrongs(), Vec::<String>::new());
    let verdict = laws::judge(&history::all(yard.endpoint()).await);
    println!("{} writes, {} claims, machines ended: {:?}", verdict.steps, verdict.claims, verdict.ended);
    assert_eq!(verdict.broken, Vec::<String>::new());
    let asked = (1..=50).map(|run| 1 + run % 2).sum::<usize>() + 15 + 30;
    assert!(verdict.claims >= asked, "{} claims for {asked} machines asked for", verdict.claims);
}

/// The leader in front.
async fn led_by_the_first([one, two]: [Operator; 2]) -> [Operator; 2] {
    let first = until("a leader", async || match (one.leads().await?, two.leads().await?) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        (true, true) | (false, false) => None,
    })
    .await;
    if first { [one, two] } else { [two, one] }
}

/// Gives every request back as soon as it is served, until so many have ended.
async fn given_back(yard: &Yard, requests: usize) {
    let mut released: BTreeSet<RequestKey> = BTreeSet::new();
    until_none("waiting", async || {
        let all = looked(yard).await?.all::<Request>();
        for request in all.iter().filter(|request| request.phase() == Phase::Ready) {
            if released.insert(request.id.clone()) {
                yard.release(request).await;
            }
        }
        let open = all.iter().filter(|request| request.phase() != Phase::Released);
        let mut left: Vec<String> =
            open.map(|r| format!("{} is {}: {}", r.id, r.phase(), r.status.message)).collect();
        if all.len() < requests {
            left.push(format!("{} requests are not written yet", requests - all.len()));
        }
        Some(left)
    })
    .await;
}

#[tokio::test]
async fn a_hundred_requests_on_a_hundred_idle_machines_take_one_each() {
    const MACHINES: u32 = 100;
    let _turn = turn().await;
    let mut yard = Yard::new(MACHINES, MACHINES, 1000).await;
    let agents = Agents::play(yard.store.clone());
    let _operators = [yard.operator().await, yard.operator().await];
    pooled(&yard, MACHINES as usize).await;
    yard.ask(1..=MACHINES, |_| 1).await;
    at_least(&yard, MACHINES as usize, |phase| phase == Phase::Ready).await;
    assert_eq!(agents.wrongs(), Vec::<String>::new());
    let verdict = laws::judge(&history::all(yard.endpoint()).await);
    assert_eq!(verdict.broken, Vec::<String>::new());
    assert_eq!(verdict.claims, MACHINES as usize, "each request one claim");
}
