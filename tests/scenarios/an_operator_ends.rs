//! What of an operator goes on when it was stopped or has died? Nothing: another may be there already. And what it does
//! beside its loop, it does once at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{AttributeValue, InstanceId, PoolSpec, RecordId};
use runyard_core::ports::{Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState, Store as _};
use runyard_fakes::FakeCompute;
use runyard_operator::controller::{Ports, run};
use runyard_operator::status::Health;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use runyard_tests::world::{World, linux, settings};

/// A compute provider that does not say whether a class can be launched: it is asked for a quarter of an hour.
struct Vague(FakeCompute);

#[async_trait]
impl Compute for Vague {
    fn keeps_inventory(&self) -> bool {
        self.0.keeps_inventory()
    }
    async fn check(&self, _: &PoolSpec) -> Result<(), ComputeError> {
        Err(ComputeError::Unknown("simulated".into()))
    }
    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        self.0.launch(order).await
    }
    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.0.terminate(ids).await
    }
    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        self.0.describe(ids).await
    }
    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        self.0.list().await
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_of_an_operator_outlives_it_whether_it_is_stopped_or_dies() {
    for dies in [false, true] {
        let world = World::new();
        world.pool(linux(0, 2)).await;
        let before = Handle::current().metrics().num_alive_tasks();
        let compute = Arc::new(Vague(world.compute.clone()));
        let ports = world.ports("one", |ports| Ports { compute, ..ports });
        let (stop, health) = (CancellationToken::new(), Arc::new(Health::new(Arc::new(world.clock))));
        let mut running = Box::pin(run(ports, settings("one"), health, stop.clone()));
        let works = tokio::time::timeout(Duration::from_secs(5), &mut running).await;
        assert!(works.is_err(), "it goes on until it is stopped");
        assert!(Handle::current().metrics().num_alive_tasks() > before);
        if dies {
            drop(running);
        } else {
            stop.cancel();
            running.await.unwrap();
        }
        tokio::task::yield_now().await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), before, "dies: {dies}");
    }
}

#[tokio::test(start_paused = true)]
async fn old_events_are_removed_by_one_at_a_time_however_long_that_takes() {
    let world = World::new();
    let old = |number: u32| {
        let text = |text: String| AttributeValue::S(text);
        let attributes = [
            ("pk", text(format!("pool#linux#{number}"))),
            ("sk", text("event#2025-12-01T00:00:00Z#1".into())),
            ("expiresAt", AttributeValue::N("1764547200".into())),
        ];
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    let events: Vec<_> = (0..200).map(old).collect();
    assert_eq!(world.store.append(&events).await.unwrap(), 0, "all are kept");
    // One after the other takes 400 s, in which the table is listed twice.
    world.store.every_call_takes(Duration::from_secs(2));
    world.start();
    world.sleep(1200).await;
    world.store.every_call_takes(Duration::ZERO);
    let removed = world.calls.take().into_iter().filter(|call| call.name == "write");
    let removed: Vec<_> = removed.flat_map(|call| call.keys).filter(RecordId::is_event).collect();
    assert_eq!(removed.len(), 200, "each once");
    assert_eq!(removed.into_iter().collect::<BTreeSet<_>>().len(), 200);
    world.stop().await;
}
