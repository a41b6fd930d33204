//! Rings the doorbell after each write of a verb, so that the operator reads the record at once. A verb neither fails nor waits
//! noticeably because of it: the queue is looked up during the write, and a ring that does not succeed in time is
//! skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use runyard_core::model::{Item, RecordId, Write};
use runyard_core::ports::{Page, QueueError, Ringer, Store, StoreError, Watch};

/// Longest time that a verb waits for a ring.
const PATIENCE: Duration = Duration::from_millis(500);

/// A store whose writes ring the doorbell.
pub(crate) struct Ringing {
    store: Arc<dyn Store>,
    bell: Arc<dyn Ringer>,
    /// Whether a ring failed: the next would fail too, and the failure has been logged.
    silent: AtomicBool,
}

impl Ringing {
    pub(crate) fn new(store: Arc<dyn Store>, bell: Arc<dyn Ringer>) -> Self {
        Self { store, bell, silent: AtomicBool::new(false) }
    }

    /// Makes a write of this record, perhaps with others, and rings if it succeeded.
    async fn then_ring<T>(
        &self,
        key: Option<&RecordId>,
        write: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(key) = key.filter(|_| !self.silent.load(Ordering::Relaxed)) else { return write.await };
        let bell = self.bell.clone();
        // The lookup runs beside the write, and ends by itself if its result is not needed.
        let found = tokio::spawn(async move { bell.find().await });
        let written = write.await?;
        let ring = async {
            found.await.unwrap_or(Ok(()))?;
            self.bell.ring(key).await
        };
        match tokio::time::timeout(PATIENCE, ring).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.left(&error),
            Err(_) => self.left(&QueueError::Unreachable(format!("nothing within {PATIENCE:?}"))),
        }
        Ok(written)
    }

    /// Logs once why the bell was not rung.
    fn left(&self, error: &QueueError) {
        if !self.silent.swap(true, Ordering::Relaxed) {
            tracing::info!(%error, "the doorbell was not rung; the operator sees this at its next look");
        }
    }
}

#[async_trait]
impl Store for Ringing {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.store.get(key).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.store.list(after).await
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.store.query(pk, sk_prefix, after).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.then_ring(Some(&write.key), self.store.write(write)).await
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.then_ring(writes.first().map(|write| &write.key), self.store.transact(writes)).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.store.append(items).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.store.watch().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use runyard_fakes::MemoryStore;
    use tokio::time::Instant;

    use super::*;
    use runyard_core::model::AttributeValue;

    /// A bell with a delay for each lookup and ring, and an optional failure.
    struct Bell {
        takes: Duration,
        fails: Option<QueueError>,
        asked: Mutex<Vec<&'static str>>,
        rung_about: Mutex<Vec<RecordId>>,
    }

    impl Bell {
        fn new(takes: Duration, fails: Option<QueueError>) -> Arc<Self> {
            Arc::new(Self { takes, fails, asked: Mutex::default(), rung_about: Mutex::default() })
        }

        async fn answer(&self, what: &'static str) -> Result<(), QueueError> {
            self.asked.lock().unwrap().push(what);
            tokio::time::sleep(self.takes).await;
            self.fails.clone().map_or(Ok(()), Err)
        }
    }

    #[async_trait]
    impl Ringer for Bell {
        async fn find(&self) -> Result<(), QueueError> {
            self.answer("find").await
        }

        async fn ring(&self, key: &RecordId) -> Result<(), QueueError> {
            self.rung_about.lock().unwrap().push(key.clone());
            self.answer("ring").await
        }
    }

    fn write(pk: &str, number: usize) -> Write {
        let key = RecordId::new(pk, "test");
        let text = |text: String| AttributeValue::S(text);
        let item = [("pk", text(key.pk())), ("sk", text(key.sk())), ("number", text(number.to_string()))];
        Write::create(key, item.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// Makes these writes and returns how long they took, and the calls of the bell.
    async fn written(bell: &Arc<Bell>, keys: &[&str]) -> (Duration, Vec<&'static str>, Vec<bool>) {
        let store = MemoryStore::new();
        store.every_call_takes(Duration::from_millis(5));
        let ringing = Ringing::new(Arc::new(store), bell.clone());
        let (begun, mut outcomes) = (Instant::now(), Vec::new());
        for (number, key) in keys.iter().enumerate() {
            outcomes.push(ringing.write(&write(key, number)).await.is_ok());
        }
        (begun.elapsed(), bell.asked.lock().unwrap().clone(), outcomes)
    }

    #[tokio::test(start_paused = true)]
    async fn each_write_rings_and_one_that_was_refused_does_not() {
        let bell = Bell::new(Duration::ZERO, None);
        let (_, asked, outcomes) = written(&bell, &["a", "a", "b"]).await;
        assert_eq!(outcomes, [true, false, true]);
        assert_eq!(asked.iter().filter(|what| **what == "ring").count(), 2, "{asked:?}");
        let about = ["a", "b"].map(|pk| RecordId::new(pk, "test"));
        assert_eq!(*bell.rung_about.lock().unwrap(), about, "a ring names the record that was written");
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_looked_up_beside_the_write() {
        let bell = Bell::new(Duration::from_millis(4), None);
        let (took, ..) = written(&bell, &["a"]).await;
        assert_eq!(took, Duration::from_millis(9));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bell_that_denies_or_hangs_costs_a_verb_half_a_second_at_most() {
        let denied = || Some(QueueError::Denied("no right".into()));
        for (takes, fails) in [(Duration::ZERO, denied()), (Duration::from_secs(3600), None)] {
            let bell = Bell::new(takes, fails);
            let (took, asked, outcomes) = written(&bell, &["a", "b", "c", "d"]).await;
            assert_eq!(outcomes, [true; 4], "no write fails for it");
            assert!(took <= PATIENCE + Duration::from_millis(100), "{took:?}");
            assert_eq!(asked, ["find"], "and it is not tried again");
        }
    }
}
