//! Yards of any size, at rest: of ten machines six run, two are pooled, two are long gone; every one that served has
//! its request. And one whole cycle on such a yard, change by change.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use runyard_core::model::{
    Agent, Claim, ClaimId, ClassName, Instance, InstanceArn, InstanceFacts, InstanceId, Item, Life, Pool,
    Reason, Record as _, RecordId, Request, RunId, Signal, Threshold, UsageClass, launch_digest,
};
use runyard_core::yard::{Observation, Written};
use serde_json::json;

use super::world::{Delays, World, record, start};

/// Classes of every yard, whatever its size.
pub(crate) const CLASSES: usize = 4;

/// Nothing answers by itself.
const NEVER: Delays = Delays { boot: Duration::MAX, register: Duration::MAX, clean: Duration::MAX };

pub(crate) fn class(number: usize) -> ClassName {
    ClassName::parse(&format!("class-{}", number % CLASSES)).expect("a class name")
}

pub(crate) fn item(value: serde_json::Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(value).expect("JSON fits into an item");
    item.into_inner().into_iter().collect()
}

/// The number of a run, always as long.
fn run(number: usize) -> RunId {
    RunId::parse(&(9_000_000_000_usize + number).to_string()).expect("digits")
}

fn request_key(number: usize) -> RecordId {
    RecordId::new(format!("request#acme/web#{}", run(number)), "request#default#1")
}

fn id(number: usize) -> InstanceId {
    InstanceId::parse(&format!("i-{number:017x}")).expect("an id")
}

/// How a machine of a yard stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    Running,
    Pooled,
    Gone,
}

fn stands(number: usize) -> Stands {
    match number % 10 {
        0..6 => Stands::Running,
        6 | 7 => Stands::Pooled,
        _ => Stands::Gone,
    }
}

fn at(seconds: i64) -> jiff::Timestamp {
    start().saturating_add(SignedDuration::from_secs(seconds)).expect("within the calendar")
}

fn instance(number: usize, digest: &str) -> Instance {
    let id = id(number);
    let life = match stands(number) {
        Stands::Running => Life::Running { run: run(number) },
        Stands::Pooled => Life::Idle { pooled_at: Some(at(-60)) },
        Stands::Gone => Life::Terminated { reason: Reason::Threshold, gone_at: Some(at(-60)) },
    };
    let live = stands(number) != Stands::Gone;
    let facts = InstanceFacts {
        instance_arn: InstanceArn::local(&id),
        instance_id: id.clone(),
        resource_class: class(number / 10),
        instance_type: "m7i.large".into(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mmem: 4096,
        availability_zone: "eu-west-1a".into(),
        launch_id: None,
        launch_digest: Some(digest.to_owned()),
        created_at: at(-300),
    };
    Instance {
        claim: Some(Claim { id: ClaimId::of(&id, 5), request: request_key(number) }),
        threshold: live.then(|| Threshold { at: at(1740), set_at: at(-60) }),
        state_since: at(-60),
        uses: 1,
        trust_domain: "owner:acme".into(),
        expires_at: (!live).then(|| at(86_400).as_second()),
        version: 6,
        updated_at: at(-60),
        ..Instance::born(facts, life)
    }
}

fn agent(number: usize) -> Agent {
    let id = id(number);
    let signal = if stands(number) == Stands::Running { Signal::RegOk } else { Signal::RemoveRegOk };
    Agent {
        heartbeat_seq: 3,
        signal: Some(signal),
        signal_claim_id: Some(ClaimId::of(&id, 5).to_string()),
        ..Agent::born(&InstanceArn::local(&id), at(-60))
    }
}

fn request(number: usize) -> Request {
    let holds = stands(number) == Stands::Running;
    let (machine, claim) = (id(number), ClaimId::of(&id(number), 5));
    let mut fields = json!({
        "kind": "request", "version": 5, "runId": run(number).as_str(), "attempt": 1,
        "repository": "acme/web", "name": "default", "resourceClass": class(number / 10).as_str(), "count": 1,
        "desired": if holds { "provisioned" } else { "released" }, "generation": if holds { 1 } else { 2 },
        "phase": if holds { "Ready" } else { "Released" }, "served": [machine.as_str()],
        "acceptedAt": at(-100), "deadline": at(500), "readyAt": at(-90), "observedGeneration": 1,
        "message": "1 of 1 machines are running",
    });
    let key = request_key(number);
    (fields["pk"], fields["sk"]) = (key.pk().into(), key.sk().into());
    if holds {
        fields["instances"] = json!([machine.as_str()]);
        fields["claims"] = json!({ machine.as_str(): claim.as_str() });
    } else {
        fields["expiresAt"] = at(7 * 86_400).as_second().into();
    }
    record(&item(fields))
}

/// The pools of a yard of so many records. Every class wants about as many idle machines as it has.
fn pools(records: usize) -> impl Iterator<Item = Pool> {
    let machines = records / 3;
    let idle = machines / 5 / CLASSES;
    (0..CLASSES).map(move |number| {
        let class = class(number);
        record(&item(json!({
            "pk": format!("pool#{class}"), "sk": "pool", "kind": "pool", "version": 1,
            "resourceClass": class.as_str(), "desired": idle.saturating_sub(2), "max": 2 * machines,
            "cpu": 2, "mmem": 4096, "maxUses": 1000,
        })))
    })
}

/// The records of a yard of so many, machine by machine, with the pools first.
fn records(records: usize) -> impl Iterator<Item = Written> {
    let digest = pools(records).next().map(|pool| launch_digest(&pool.spec)).unwrap_or_default();
    // The first ten requests as the model reads them; the others are those under other names, which is quicker.
    let first: Vec<Request> = (0..10).map(request).collect();
    let machines = (0..records / 3).flat_map(move |number| {
        let request = Written::Request(renamed(&first[number % 10], number));
        [Written::Agent(agent(number)), Written::Instance(instance(number, &digest)), request]
    });
    pools(records).map(Written::Pool).chain(machines)
}

/// The request of one machine as the request of another.
fn renamed(request: &Request, number: usize) -> Request {
    let mut request = request.clone();
    request.id.run_id = run(number);
    request.intent.resource_class = class(number / 10).to_string();
    for held in request.status.instances.iter_mut().chain(&mut request.status.served) {
        *held = id(number);
    }
    request.status.claims =
        request.status.claims.keys().map(|_| (id(number), ClaimId::of(&id(number), 5))).collect();
    request
}

/// The stored form of a yard of so many records.
pub(crate) fn items(number: usize) -> impl Iterator<Item = Item> {
    records(number).map(|record| match record {
        Written::Instance(record) => record.to_item(),
        Written::Agent(record) => record.to_item(),
        Written::Request(record) => record.to_item(),
        Written::Launch(record) => record.to_item(),
        Written::Pool(record) => record.to_item(),
    })
}

/// A yard of so many records, at rest.
#[allow(dead_code, reason = "the tests of growth take it")]
pub(crate) fn yard(number: usize) -> World {
    let mut world = World::empty(NEVER);
    let mut keys = BTreeSet::new();
    for record in records(number) {
        keys.insert(record.key());
        world.see(Observation::Written(Box::new(record)));
    }
    world.list(keys);
    // What a pass over everything does once: announcements, and the pools' status.
    world.settle();
    world
}

/// The same, read from its stored form as an operator does that begins.
pub(crate) fn yard_of_items(number: usize) -> World {
    let mut world = World::empty(NEVER);
    let mut keys = BTreeSet::new();
    for item in items(number) {
        keys.extend(RecordId::of(&item));
        world.store(item);
    }
    world.list(keys);
    world.settle();
    world.forget_timers();
    world
}

/// Who is told of every change of a cycle, and makes it.
pub(crate) type Around<'a> = dyn FnMut(&str, &mut World, &mut dyn FnMut(&mut World)) + 'a;

/// One warm cycle, change by change: each is seen, judged and carried out. `around` is told of every change and does
/// it.
pub(crate) fn cycle(world: &mut World, number: usize, around: &mut Around<'_>) {
    let key = request_key(number);
    let class = class(number);
    let intent = item(json!({
        "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 1, "runId": run(number).as_str(), "attempt": 1,
        "repository": "acme/web", "name": "default", "resourceClass": class.as_str(), "count": 1,
        "desired": "provisioned", "generation": 1, "maxRuntimeMinutes": 30,
    }));
    let settled =
        |what: &str, world: &mut World, around: &mut Around<'_>, change: &mut dyn FnMut(&mut World)| {
            around(what, world, &mut |world| {
                change(world);
                world.settle();
            });
        };
    settled("intent and claim", world, around, &mut |world| world.store(intent.clone()));
    let machine =
        world.yard.request_named(&key).and_then(|request| request.status.instances.first().cloned());
    let arn = InstanceArn::local(&machine.expect("a warm machine was claimed"));
    settled("beat", world, around, &mut |world| beat(world, &arn));
    settled("registered, running, ready", world, around, &mut |world| world.speak(&arn));
    settled("release", world, around, &mut |world| world.release(&key));
    settled("clean, pooled, released", world, around, &mut |world| world.speak(&arn));
    let phase = world.yard.request_named(&key).map(Request::phase);
    assert_eq!(phase, Some(runyard_core::model::Phase::Released), "the cycle came to its end");
}

/// An agent says that it is alive, and nothing else.
pub(crate) fn beat(world: &mut World, arn: &InstanceArn) {
    let tracked = world.yard.instance(arn).expect("a machine");
    let mut agent = tracked.agent.clone().expect("an agent");
    agent.heartbeat_seq += 1;
    world.store(agent.to_item());
}

/// The number of the first run that no yard of this many records has.
pub(crate) fn fresh(records: usize) -> usize {
    records.max(500_000_000)
}
