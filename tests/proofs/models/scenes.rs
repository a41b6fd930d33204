//! Tables to begin with: a class, requests that were accepted, machines in the pool or at work.

use runyard_core::model::{Agent, InstanceArn, InstanceId, Item, RecordId, Signal};
use runyard_core::ports::{Machine, MachineState};
use serde_json::json;

use crate::models::stored::Stored;
use crate::models::world::{Hand, World};

pub(crate) fn store(world: &mut World, value: &serde_json::Value) -> RecordId {
    let item: serde_dynamo::Item = serde_dynamo::to_item(value).unwrap();
    let item: Item = item.into_inner().into_iter().collect();
    let stored = Stored::of(item);
    let key = stored.key.clone();
    world.table.put(stored);
    key
}

/// A class with room for so many machines.
pub(crate) fn pool(world: &mut World, max: u32) {
    let class = json!({
        "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 1, "resourceClass": "linux",
        "cpu": 2, "mmem": 4096, "max": max, "idleSeconds": 36_000, "maxAgeSeconds": 360_000,
    });
    store(world, &class);
}

/// A request that the operator accepted, for so many machines.
pub(crate) fn request(world: &mut World, run: &str, count: u32) -> RecordId {
    let now = world.now().wall;
    let deadline = now.saturating_add(jiff::SignedDuration::from_hours(10)).unwrap();
    let fields = json!({
        "pk": format!("request#acme/web#{run}"), "sk": "request#default#1", "kind": "request", "version": 2,
        "runId": run, "attempt": 1, "repository": "acme/web", "name": "default", "resourceClass": "linux",
        "count": count, "desired": "provisioned", "generation": 1, "phase": "Pending",
        "acceptedAt": now, "deadline": deadline, "observedGeneration": 1,
    });
    store(world, &fields)
}

/// The key of the request that a run of a repository writes.
pub(crate) fn key_of(repository: &str, run: &str) -> RecordId {
    RecordId::new(format!("request#{repository}#{run}"), "request#default#1")
}

/// A request as a workflow writes it, for one machine.
pub(crate) fn arrives(world: &mut World, repository: &str, run: &str) {
    let key = key_of(repository, run);
    let fields = json!({
        "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 1, "runId": run, "attempt": 1,
        "repository": repository, "name": "default", "resourceClass": "linux", "count": 1,
        "desired": "provisioned", "generation": 1, "timeoutSeconds": 604_800, "createdAt": world.now().wall,
    });
    store(world, &fields);
}

/// A request for one machine that was accepted and is over.
pub(crate) fn over(world: &mut World, repository: &str, run: &str) {
    let (now, key) = (world.now().wall, key_of(repository, run));
    let later = |hours| now.saturating_add(jiff::SignedDuration::from_hours(hours)).unwrap();
    let fields = json!({
        "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 5, "runId": run, "attempt": 1,
        "repository": repository, "name": "default", "resourceClass": "linux", "count": 1,
        "desired": "released", "generation": 2, "observedGeneration": 2, "phase": "Released",
        "acceptedAt": now, "deadline": later(1), "releasedAt": now, "endedAt": now,
        "expiresAt": later(48).as_second(),
    });
    store(world, &fields);
}

/// A machine in the pool, an hour old.
pub(crate) fn pooled(world: &mut World, name: &str) {
    let now = world.now().wall;
    let id = InstanceId::parse(name).unwrap();
    let arn = InstanceArn::local(&id);
    let threshold = now.saturating_add(jiff::SignedDuration::from_hours(10)).unwrap();
    let born = now.saturating_sub(jiff::SignedDuration::from_hours(1)).unwrap();
    let record = json!({
        "pk": format!("instance#{arn}"), "sk": "instance", "kind": "instance", "version": 5,
        "instanceId": name, "instanceArn": arn.to_string(), "resourceClass": "linux",
        "instanceType": "m7i.large", "usageClass": "on-demand", "cpu": 2, "mmem": 4096,
        "availabilityZone": "", "createdAt": born, "state": "idle", "runId": "", "claimId": "",
        "threshold": threshold, "thresholdSetAt": now, "stateSince": now, "pooledAt": now, "uses": 0,
        "registrationSeq": u8::from(world.setting.policy.github), "trustDomain": "", "updatedAt": now,
    });
    store(world, &record);
    let mut agent = Agent::born(&arn, now);
    agent.heartbeat_seq = 1;
    agent.signal = Some(Signal::Ok);
    agent.signal_claim_id = Some(String::new());
    world.put(&agent);
    let sight = world.sight(&arn);
    world.hands.push(Hand { sight, ..Hand::of(&arn) });
    world.machines.push(std::sync::Arc::new(Machine {
        id,
        arn,
        class: Some("linux".parse().unwrap()),
        launch: None,
        attempt: 1,
        instance_type: "m7i.large".into(),
        usage_class: runyard_core::model::UsageClass::OnDemand,
        cpu: 2,
        mmem: 4096,
        zone: String::new(),
        state: MachineState::Running,
        launched_at: born,
    }));
}
