//! Rings the operator's doorbell when a signal was written, so that the operator reads it at once. Neither the write nor
//! anything else of the agent waits for the ring, or depends on it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{Item, RecordId};
use runyard_core::ports::{Ringer, StoreError};
use tokio::time::Instant;

use crate::records::{Change, Records};
use crate::step::Stored;
use crate::step::orders::Sight;

/// How long no ring is tried after one that failed: the queue, or the right to it, is missing.
const QUIET: Duration = Duration::from_secs(600);
/// Longest duration of a ring. A later one tells nothing that the stream has not told.
const PATIENCE: Duration = Duration::from_secs(2);

/// Records whose signals ring the doorbell.
pub struct RingsOperator {
    records: Arc<dyn Records>,
    ringer: Arc<dyn Ringer>,
    /// The agent's own record, which rings name.
    own: RecordId,
    /// No ring is tried before this moment.
    quiet_until: Arc<Mutex<Option<Instant>>>,
}

impl RingsOperator {
    /// Wraps the records of a machine, of which `own` is the agent's.
    #[must_use]
    pub fn new(records: Arc<dyn Records>, ringer: Arc<dyn Ringer>, own: RecordId) -> Self {
        Self { records, ringer, own, quiet_until: Arc::default() }
    }

    /// Rings in a task of its own.
    fn ring(&self) {
        let known = |quiet: &Mutex<Option<Instant>>| *quiet.lock().unwrap_or_else(PoisonError::into_inner);
        if known(&self.quiet_until).is_some_and(|until| Instant::now() < until) {
            return;
        }
        let (ringer, own, quiet_until) = (self.ringer.clone(), self.own.clone(), self.quiet_until.clone());
        tokio::spawn(async move {
            let failure = match tokio::time::timeout(PATIENCE, ringer.ring(&own)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("it took longer than {PATIENCE:?}"),
            };
            *quiet_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + QUIET);
            tracing::info!(
                failure,
                "the doorbell was not rung; the operator sees the signal at its next look"
            );
        });
    }
}

#[async_trait]
impl Records for RingsOperator {
    async fn instance(&self) -> Result<Sight, StoreError> {
        self.records.instance().await
    }

    async fn glance(&self) -> Result<Sight, StoreError> {
        self.records.glance().await
    }

    async fn own(&self) -> Result<Stored, StoreError> {
        self.records.own().await
    }

    async fn write(&self, change: &Change) -> Result<Stored, StoreError> {
        let stored = self.records.write(change).await?;
        if change.set.contains_key("signal") && stored != Stored::Absent {
            self.ring();
        }
        Ok(stored)
    }

    async fn log(&self, item: &Item) -> Result<(), StoreError> {
        self.records.log(item).await
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::model::{Agent, AttributeValue};
    use runyard_core::ports::QueueError;

    use super::*;
    use crate::testing::{FakeRecords, arn, instance};

    /// A bell whose rings have the scripted outcome, after some time.
    struct Bell {
        takes: Duration,
        fails: Option<QueueError>,
        rung: Mutex<Vec<RecordId>>,
    }

    #[async_trait]
    impl Ringer for Bell {
        async fn find(&self) -> Result<(), QueueError> {
            Ok(())
        }

        async fn ring(&self, key: &RecordId) -> Result<(), QueueError> {
            self.rung.lock().unwrap().push(key.clone());
            tokio::time::sleep(self.takes).await;
            self.fails.clone().map_or(Ok(()), Err)
        }
    }

    fn ringing(takes: Duration, fails: Option<QueueError>) -> (RingsOperator, Arc<Bell>, Arc<FakeRecords>) {
        let bell = Arc::new(Bell { takes, fails, rung: Mutex::default() });
        let records = FakeRecords::new(instance("claimed", "1", "c"));
        let of = RingsOperator::new(records.clone(), bell.clone(), Agent::key_of(&arn()));
        (of, bell, records)
    }

    fn change(name: &str) -> Change {
        let set = [(name.to_owned(), AttributeValue::S("UD_REG_OK".into()))].into();
        Change { set, ..Change::default() }
    }

    async fn rings(bell: &Bell) -> usize {
        tokio::time::sleep(PATIENCE * 2).await;
        bell.rung.lock().unwrap().len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_rings_about_the_agents_own_record_and_a_heartbeat_does_not() {
        let (of, bell, records) = ringing(Duration::ZERO, None);
        of.write(&change("heartbeatAt")).await.unwrap();
        assert_eq!(rings(&bell).await, 0);
        of.write(&change("signal")).await.unwrap();
        assert_eq!(rings(&bell).await, 1);
        assert_eq!(*bell.rung.lock().unwrap(), [Agent::key_of(&arn())]);
        *records.away.lock().unwrap() = true;
        of.write(&change("signal")).await.unwrap_err();
        *records.away.lock().unwrap() = false;
        *records.agent.lock().unwrap() = None;
        of.write(&change("signal")).await.unwrap();
        assert_eq!(rings(&bell).await, 1, "what was not written rings nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn no_write_waits_for_a_ring_and_one_that_fails_is_not_tried_again_for_ten_minutes() {
        let denied = || Some(QueueError::Denied("no right".into()));
        for (takes, fails) in [(Duration::ZERO, denied()), (Duration::from_secs(3600), None)] {
            let (of, bell, _) = ringing(takes, fails);
            let begun = Instant::now();
            of.write(&change("signal")).await.unwrap();
            assert_eq!(begun.elapsed(), Duration::ZERO);
            assert_eq!(rings(&bell).await, 1);
            of.write(&change("signal")).await.unwrap();
            assert_eq!(rings(&bell).await, 1);
            tokio::time::sleep(QUIET).await;
            of.write(&change("signal")).await.unwrap();
            assert_eq!(rings(&bell).await, 2);
        }
    }
}
