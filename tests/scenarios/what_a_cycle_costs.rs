//! Exact numbers of calls, as tests: what a warm cycle asks of the table and of SQS, and that neither the age of the
//! table nor what lies ahead in the queue changes that.

use std::time::Duration;

use runyard_core::model::{
    ClassName, Instance, InstanceArn, InstanceFacts, InstanceId, Life, PoolMessage, Reason, Record as _,
    RecordId, State, UsageClass,
};
use runyard_fakes::MemoryStore;
use serde_json::json;

use runyard_support::counting::Call;
use runyard_tests::world::{World, linux};

/// Everything that a warm cycle of one machine writes, in its order.
const CYCLE: [&str; 7] = [
    "transact instance request",
    "write instance", // running
    "write request",  // Ready
    "write instance", // idle
    "write request",  // Releasing
    "write instance", // pooled
    "write request",  // Released
];

/// A call as a word for what was done and the kinds of records it was done to.
fn word(call: &Call) -> String {
    let kinds = call.keys.iter().map(|key| key.pk().split('#').next().unwrap_or_default().to_owned());
    std::iter::once(call.name.to_owned()).chain(kinds).collect::<Vec<_>>().join(" ")
}

/// What was asked for the sake of machines and requests, and of SQS; and what was asked beside it.
fn sorted(calls: Vec<Call>) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut cycle, mut queue, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for call in calls {
        assert_eq!(call.outcome, "ok", "{call:?}");
        let about = |prefix: &str| call.keys.iter().any(|key| key.pk().starts_with(prefix));
        match call.name {
            "announce" | "receive" | "delete" | "ensure" | "bury" => queue.push(call.name.into()),
            _ if about("instance#") || about("request#") || about("agent#") => cycle.push(word(&call)),
            _ => beside.push(word(&call)),
        }
    }
    (cycle, queue, beside)
}

/// What else goes on meanwhile: events in batches, the lease, and the class's counts. Nothing is read.
fn only_background_calls(beside: &[String]) {
    let others = ["append", "write lease", "write pool"];
    assert!(beside.iter().all(|call| others.contains(&call.as_str())), "{beside:?}");
}

/// One run on a warm yard, from the intent until its machines are pooled and announced.
async fn cycle(world: &World, run: &str, count: u32) -> Vec<Call> {
    world.sleep(3).await;
    world.calls.take();
    let key = world.provision(run, "linux", count, json!({"usageClass": "on-demand"})).await;
    world.until_phase(&key, "Ready", 30).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 30).await;
    world.sleep(1).await;
    world.calls.take()
}

/// A yard with a GitHub whose machines have all served twice: their keys are known, and the tokens, one an hour for any
/// number of runners, are at hand.
async fn warmed(store: MemoryStore, machines: u32) -> World {
    let world = World::on(store, true);
    world.pool(linux(0, 50)).await;
    world.start();
    cycle(&world, "1000", machines).await;
    cycle(&world, "1001", machines).await;
    assert_eq!(world.compute.orders().len(), 1);
    world
}

/// A machine that ended, and whose record is still there.
fn terminated(number: usize) -> Instance {
    let id = InstanceId::parse(&format!("i-{number:017x}")).unwrap();
    let at = "2026-01-05T11:00:00Z".parse().unwrap();
    let facts = InstanceFacts {
        instance_arn: InstanceArn::local(&id),
        instance_id: id,
        resource_class: ClassName::parse("linux").unwrap(),
        instance_type: "m7i.large".into(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mmem: 4096,
        availability_zone: "local".into(),
        launch_id: None,
        launch_digest: None,
        created_at: at,
    };
    Instance {
        uses: 1,
        trust_domain: "owner:acme".into(),
        expires_at: Some(at.as_second() + 24 * 3600),
        version: 9,
        ..Instance::born(facts, Life::Terminated { reason: Reason::Threshold, gone_at: Some(at) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_warm_cycle_costs_one_transaction_six_writes_no_read_and_three_calls_of_sqs() {
    let world = warmed(MemoryStore::new(), 1).await;
    for run in ["1", "2", "3"] {
        let (cycle, queue, beside) = sorted(cycle(&world, run, 1).await);
        assert_eq!(cycle, CYCLE);
        assert_eq!(queue, ["receive", "delete", "announce"]);
        only_background_calls(&beside);
    }
    assert_eq!(world.compute.orders().len(), 1, "no cycle launched anything");
}

#[tokio::test(start_paused = true)]
async fn a_warm_cycle_costs_the_same_among_ten_thousand_ended_machines() {
    let store = MemoryStore::new();
    (0..10_000).for_each(|number| store.put(terminated(number).to_item()));
    let world = warmed(store, 1).await;
    let (cycle, queue, beside) = sorted(cycle(&world, "1", 1).await);
    assert_eq!(cycle, CYCLE);
    assert_eq!(queue, ["receive", "delete", "announce"]);
    only_background_calls(&beside);
    assert_eq!(world.in_state(State::Terminated).len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn the_machines_of_one_request_share_its_writes() {
    let world = warmed(MemoryStore::new(), 5).await;
    let (mut cycle, queue, beside) = sorted(cycle(&world, "1", 5).await);
    assert_eq!(cycle.remove(0), "transact instance instance instance instance instance request");
    let count = |what: &str| cycle.iter().filter(|call| *call == what).count();
    assert_eq!((count("write instance"), count("write request"), cycle.len()), (3 * 5, 3, 18), "{cycle:?}");
    assert_eq!(queue, ["receive", "delete", "announce", "announce", "announce", "announce", "announce"]);
    only_background_calls(&beside);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_foreign_messages_ahead_cost_three_sqs_calls_and_no_cold_start() {
    let world = warmed(MemoryStore::new(), 1).await;
    let spot = world.provision("7", "linux", 10, json!({"usageClass": "spot"})).await;
    world.until_phase(&spot, "Ready", 60).await;
    world.release(&spot).await;
    world.until_phase(&spot, "Released", 60).await;
    world.sleep(1).await;
    let orders = world.compute.orders().len();
    let pooled = world.pooled();
    let (fitting, other): (Vec<_>, Vec<_>) =
        pooled.iter().partition(|instance| instance.facts.usage_class == UsageClass::OnDemand);
    assert_eq!((fitting.len(), other.len()), (1, 10));
    world.queue.lose_all();
    let linux = ClassName::parse("linux").unwrap();
    let post = |instance: &Instance| {
        let body = serde_json::to_string(&PoolMessage::announcing(instance)).unwrap();
        world.queue.post(&linux, &body);
    };
    (0..20).for_each(|_| other.iter().for_each(|instance| post(instance)));
    post(fitting[0]);
    assert_eq!(world.queue.bodies(&linux).len(), 201);

    let (cycle, queue, beside) = sorted(cycle(&world, "8", 1).await);
    assert_eq!(cycle, CYCLE);
    // One message for the one machine that is wanted: it names another, which is announced anew.
    assert_eq!(queue, ["receive", "delete", "announce"]);
    only_background_calls(&beside);
    assert_eq!(world.compute.orders().len(), orders, "what fits was found behind all the others");
    let served: Vec<RecordId> = fitting.iter().map(|instance| instance.key()).collect();
    let instance: Instance = world.get(&served[0]).await.unwrap();
    assert_eq!(instance.uses, 3);
}

#[tokio::test(start_paused = true)]
async fn an_idle_yard_reads_nothing_between_two_resyncs() {
    let world = warmed(MemoryStore::new(), 5).await;
    world.calls.take();
    while !world.calls.take().iter().any(|call| call.name == "list") {
        world.sleep(1).await;
    }
    world.sleep(20).await;
    world.calls.take();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (cycle, queue, beside) = sorted(world.calls.take());
    assert_eq!((cycle, queue), (Vec::new(), Vec::new()));
    assert!(beside.iter().all(|call| call == "write lease"), "{beside:?}");
}
