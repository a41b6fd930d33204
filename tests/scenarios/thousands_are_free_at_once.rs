//! An operator starts in a yard of a thousand pooled machines, and each is to be announced: not in a thousand calls at
//! the same time, each once, and no request waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use runyard_core::model::{ClassName, PoolMessage};
use runyard_core::ports::{Clock as _, PoolQueue, QueueDepth, QueueError, Received};
use runyard_fakes::MemoryQueue;
use runyard_operator::controller::Ports;
use serde_json::json;

use runyard_tests::world::{World, item, linux};

/// What one announcement takes.
const SLOW: Duration = Duration::from_secs(1);

/// A queue whose announcements take a while.
struct Slow {
    inner: MemoryQueue,
    in_flight: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl PoolQueue for Slow {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        self.inner.ensure(class).await
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(SLOW).await;
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.inner.announce(message).await
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        self.inner.receive(class, most).await
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        self.inner.delete(class, receipts).await
    }

    async fn depth(&self, class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        self.inner.depth(class).await
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        self.inner.bury(class, receipt, raw).await
    }
}

/// A pooled machine and its agent, as they stand in the table.
fn put(world: &World, number: usize) {
    let id = format!("i-{number:017x}");
    let arn = format!("arn:aws:ec2:local:000000000000:instance/{id}");
    let later = world.clock.now() + SignedDuration::from_hours(1);
    let now = world.clock.now().to_string();
    world.store.put(item(&json!({
        "pk": format!("instance#{arn}"), "sk": "instance", "kind": "instance", "version": 2, "instanceId": id,
        "instanceArn": arn, "state": "idle", "pooledAt": now, "runId": "", "claimId": "",
        "threshold": later.to_string(), "thresholdSetAt": now, "resourceClass": "linux",
        "instanceType": "m7i.large", "usageClass": "on-demand", "cpu": 2, "mmem": 4096,
        "availabilityZone": "local", "stateSince": now, "createdAt": now, "updatedAt": now, "uses": 0,
    })));
    world.store.put(item(&json!({
        "pk": format!("agent#{arn}"), "sk": "agent", "kind": "agent", "signal": "UD_OK", "signalClaimId": "",
        "heartbeatSeq": 1, "agentVersion": "0.1.0", "updatedAt": now,
    })));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_machines_are_announced_in_batches_that_delay_no_request() {
    let world = World::new();
    world.compute.inventory(false);
    world.pool(linux(1000, 1000)).await;
    (0..1000).for_each(|number| put(&world, number));
    let queue = MemoryQueue::new(Arc::new(world.clock));
    let slow =
        Arc::new(Slow { inner: queue.clone(), in_flight: AtomicUsize::new(0), most: AtomicUsize::new(0) });
    let over = slow.clone();
    world.start_over("one", |ports| Ports { queue: over, ..ports });
    let class = ClassName::parse("linux").unwrap();

    tokio::time::sleep(SLOW / 2).await;
    assert_eq!(slow.in_flight.load(Ordering::Relaxed), 256, "some at a time");
    let request = world.provision("1", "linux", 3, json!({"usageClass": "on-demand"})).await;
    let held = async || world.request(&request).await.status.instances.len() == 3;
    world.until("the request has its machines", SLOW / 4, held).await;
    assert!(queue.bodies(&class).is_empty(), "nothing was announced yet");

    tokio::time::sleep(5 * SLOW).await;
    assert_eq!(slow.most.load(Ordering::Relaxed), 256);
    let mut told: Vec<PoolMessage> =
        queue.bodies(&class).iter().map(|body| PoolMessage::read(body).unwrap()).collect();
    told.sort_by(|one, other| one.instance_id.cmp(&other.instance_id));
    told.dedup_by(|one, other| one.instance_id == other.instance_id);
    assert_eq!((queue.bodies(&class).len(), told.len()), (997, 997), "each that is still free, once");
}
