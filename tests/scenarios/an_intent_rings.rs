//! How long does a warm claim wait with AWS's latencies, and what does the doorbell save? The stream is looked at every
//! 200 ms and shows a write some time after it was made; calls take as long as docs/performance.md has them. Workflows
//! ring, and so do machines that signal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{AttributeValue, Item, RecordId, Write, ring_body, rung_about};
use runyard_core::ports::{Change, Doorbell, Page, QueueError, Ring, Ringer, Store, StoreError, Watch};
use runyard_fakes::MemoryStore;
use runyard_operator::controller::Bell;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use runyard_tests::world::{World, linux};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A table that is as far away as DynamoDB.
pub(crate) struct LikeAws {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) looks: watch::Receiver<()>,
    /// How long after a write the stream shows it.
    pub(crate) lag: Duration,
}

#[async_trait]
impl Store for LikeAws {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        sleep(millis(5)).await;
        self.inner.get(key).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.inner.list(after).await
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.inner.query(pk, sk_prefix, after).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        sleep(millis(5)).await;
        self.inner.write(write).await
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        sleep(millis(8)).await;
        self.inner.transact(writes).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.inner.append(items).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        let (mut inner, shown) = (self.inner.watch().await?, Arc::<Mutex<VecDeque<_>>>::default());
        let (lag, into) = (self.lag, shown.clone());
        // Ends with the watch.
        let mut pump = JoinSet::new();
        pump.spawn(async move {
            while let Ok(changes) = inner.next().await {
                let at = Instant::now() + lag;
                into.lock().unwrap().extend(changes.into_iter().map(|change| (at, change)));
            }
        });
        Ok(Box::new(Stream { shown, looks: self.looks.clone(), due: Instant::now(), _pump: pump }))
    }
}

struct Stream {
    shown: Arc<Mutex<VecDeque<(Instant, Change)>>>,
    looks: watch::Receiver<()>,
    due: Instant,
    _pump: JoinSet<()>,
}

#[async_trait]
impl Watch for Stream {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        tokio::select! {
            () = sleep_until(self.due) => {}
            _ = self.looks.changed() => {}
        }
        self.due = Instant::now() + millis(200);
        sleep(millis(10)).await;
        let mut shown = self.shown.lock().unwrap();
        let ready = shown.iter().take_while(|(at, _)| *at <= Instant::now()).count();
        Ok(shown.drain(..ready).map(|(_, change)| change).collect())
    }
}

/// A doorbell that is as far away as SQS.
#[derive(Default)]
pub(crate) struct LikeSqs {
    /// The bodies of the rings that were not heard yet.
    bodies: Mutex<Vec<String>>,
    sent: Notify,
}

impl LikeSqs {
    async fn send(&self, body: String) {
        sleep(millis(16)).await;
        self.bodies.lock().unwrap().push(body);
        self.sent.notify_one();
    }
}

#[async_trait]
impl Ringer for LikeSqs {
    async fn find(&self) -> Result<(), QueueError> {
        Ok(())
    }

    async fn ring(&self, key: &RecordId) -> Result<(), QueueError> {
        self.send(ring_body(key)).await;
        Ok(())
    }
}

#[async_trait]
impl Doorbell for LikeSqs {
    async fn rung(&self) -> Result<Vec<Ring>, QueueError> {
        let sent = async {
            while self.bodies.lock().unwrap().is_empty() {
                self.sent.notified().await;
            }
        };
        let _ = timeout(Duration::from_secs(20), sent).await;
        sleep(millis(16)).await;
        let bodies = std::mem::take(&mut *self.bodies.lock().unwrap());
        Ok(bodies.iter().map(|body| Ring { key: rung_about(body), sender: None }).collect())
    }
}

/// Rings for each signal of a machine, as the agent does, until what it returns is dropped.
pub(crate) async fn agents_ring(store: &MemoryStore, bell: &Arc<LikeSqs>) -> JoinSet<()> {
    let (mut changes, bell) = (store.watch().await.unwrap(), bell.clone());
    let mut ringing = JoinSet::new();
    ringing.spawn(async move {
        let mut signals = BTreeMap::new();
        while let Ok(changes) = changes.next().await {
            for Change { key, item } in changes {
                let Some(item) = item.filter(|_| key.agent().is_some()) else { continue };
                let signal = ["signal", "signalClaimId"].map(|name| item.get(name).cloned());
                if signals.insert(key.clone(), signal.clone()).as_ref() != Some(&signal)
                    && let Some(AttributeValue::S(_)) = signal[0]
                {
                    let bell = bell.clone();
                    tokio::spawn(async move { bell.ring(&key).await });
                }
            }
        }
    });
    ringing
}

/// What rings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rings {
    /// Nobody rings.
    Never,
    /// Only that something was written, as programs of former versions do; and machines do not ring.
    Look,
    /// Which record was written.
    Named,
}

/// The median time from intent to `Ready` of 60 warm claims at any moment between two looks.
async fn median(rings: Rings, lag: Duration) -> Duration {
    let world = World::new();
    world.pool(linux(0, 50)).await;
    // As the real agent looks in the first seconds after its machine is free.
    world.agents.pace(millis(50));
    let (look, looks) = watch::channel(());
    let bell = Arc::new(LikeSqs::default());
    // Without a doorbell nobody ever sends.
    let doorbell = (rings != Rings::Never).then(|| Bell { port: bell.clone(), look: look.clone() });
    let _agents = match rings {
        Rings::Named => Some(agents_ring(&world.store, &bell).await),
        Rings::Never | Rings::Look => None,
    };
    world.start_over("one", |ports| runyard_operator::controller::Ports {
        store: Arc::new(LikeAws { inner: ports.store.clone(), looks, lag }),
        doorbell,
        ..ports
    });
    let mut took = Vec::new();
    for run in 0..61 {
        sleep(millis(5_000 + run * 37)).await;
        let begun = Instant::now();
        let key = world.provision(&run.to_string(), "linux", 1, json!({"usageClass": "on-demand"})).await;
        match rings {
            Rings::Named => bell.ring(&key).await.unwrap(),
            Rings::Never | Rings::Look => bell.send("ring".into()).await,
        }
        while world.phase(&key).await != "Ready" {
            sleep(millis(1)).await;
        }
        took.push(begun.elapsed());
        world.release(&key).await;
        world.until_phase(&key, "Released", 30).await;
    }
    drop(look);
    assert_eq!(world.compute.orders().len(), 1, "all but the first were warm");
    let mut warm = took.split_off(1);
    warm.sort();
    // For docs/performance.md: shown with `-- --nocapture`.
    println!("rings: {rings:?}, the stream is {lag:?} late: p50 {:?}, most {:?}", warm[30], warm[59]);
    warm[warm.len() / 2]
}

#[tokio::test(start_paused = true)]
async fn a_warm_claim_that_rings_waits_at_most_150_ms_before_registration() {
    let (rung, without) =
        (median(Rings::Named, Duration::ZERO).await, median(Rings::Never, Duration::ZERO).await);
    assert!(rung <= millis(150), "{rung:?}, without a ring {without:?}");
    assert!(without >= rung * 2, "{without:?}, with a ring {rung:?}");
}

#[tokio::test(start_paused = true)]
async fn a_warm_claim_waits_no_longer_where_the_stream_shows_a_write_200_ms_late() {
    let (in_time, late) =
        (median(Rings::Named, Duration::ZERO).await, median(Rings::Named, millis(200)).await);
    assert!(late <= millis(150) && late <= in_time + millis(30), "{late:?}, in time {in_time:?}");
    // Programs of former versions ring without a name: what they wrote is seen as soon as the stream shows it.
    let (look, without) = (median(Rings::Look, millis(200)).await, median(Rings::Never, millis(200)).await);
    assert!(look + millis(50) <= without, "{look:?}, without a ring {without:?}");
}
