//! The guard ends the machine when its deadline has passed, even if the operator is dead, the table is out of reach and
//! a job is running. It counts the length of the last known deadline on the boot clock, adds the grace, reads the
//! record once more, and then powers the machine off.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::ports::Clock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::records::Records;
use crate::step::orders::{Deadline, Sight};
use crate::system::disk;

/// Longest sleep: the boot clock continues while a machine is suspended, a sleep does not.
const LOOK: Duration = Duration::from_secs(5);
/// Time limit for the last read of the record.
const LAST_LOOK: Duration = Duration::from_secs(10);

/// The time limits of the guard.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// How long a machine without any record waits for one.
    pub created: Duration,
    /// The time that is added to a threshold.
    pub grace: Duration,
}

/// The state of the guard, in its root-only file. Times are milliseconds of the boot clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// The boot that these times belong to.
    boot_id: String,
    /// The time at which the first agent of this boot began.
    began_ms: u64,
    /// The last threshold that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<SeenDeadline>,
    /// The time at which the machine has to end; the only field that the watchdog timer reads.
    power_off_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenDeadline {
    threshold: Timestamp,
    threshold_set_at: Option<Timestamp>,
    first_seen_ms: u64,
}

impl Memory {
    /// Creates the state of a machine that has read no record yet.
    fn begin(boot_id: &str, now: Duration, lengths: Lengths) -> Self {
        let mut memory =
            Self { boot_id: boot_id.to_owned(), began_ms: ms(now), seen: None, power_off_at_ms: 0 };
        memory.count(lengths);
        memory
    }

    /// Restores the state that an earlier agent of this boot left, or creates a new one.
    fn resume(kept: Option<Self>, boot_id: &str, now: Duration, lengths: Lengths) -> Self {
        let kept = kept.filter(|kept| kept.boot_id == boot_id && kept.began_ms <= ms(now));
        let mut memory = kept.unwrap_or_else(|| Self::begin(boot_id, now, lengths));
        memory.count(lengths);
        memory
    }

    /// Stores a deadline and returns whether it is new.
    fn see(&mut self, deadline: Deadline, now: Duration, lengths: Lengths) -> bool {
        let known = self.seen.as_ref().map(|seen| (seen.threshold, seen.threshold_set_at));
        if known == Some((deadline.at, deadline.set_at)) {
            return false;
        }
        self.seen = Some(SeenDeadline {
            threshold: deadline.at,
            threshold_set_at: deadline.set_at,
            first_seen_ms: ms(now),
        });
        self.count(lengths);
        true
    }

    fn count(&mut self, lengths: Lengths) {
        self.power_off_at_ms = match &self.seen {
            None => self.began_ms.saturating_add(ms(lengths.created)),
            Some(seen) => {
                // Without the time at which it was set, its length cannot be determined without comparing clocks.
                let length = seen.threshold_set_at.map_or(lengths.created, |set_at| {
                    Duration::try_from(seen.threshold.duration_since(set_at)).unwrap_or_default()
                });
                seen.first_seen_ms.saturating_add(ms(length)).saturating_add(ms(lengths.grace))
            }
        };
    }

    fn left(&self, now: Duration) -> Duration {
        Duration::from_millis(self.power_off_at_ms).saturating_sub(now)
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The guard task.
pub struct Guard {
    /// The records, for the last read.
    pub records: Arc<dyn Records>,
    /// The boot clock.
    pub clock: Arc<dyn Clock>,
    /// The time limits.
    pub lengths: Lengths,
    /// The id of the current boot.
    pub boot_id: String,
    /// The file of the guard's state.
    pub file: PathBuf,
    /// The instance record, as the registration loop reads it.
    pub seen: watch::Receiver<Sight>,
}

impl Guard {
    /// Waits until the machine has to end and returns the reason; `None` if it is stopped.
    pub async fn run(mut self, stop: CancellationToken) -> Option<&'static str> {
        let kept = disk::load(&self.file).unwrap_or_else(|error| {
            tracing::warn!(%error, "the threshold file of an earlier agent cannot be read");
            None
        });
        let mut memory = Memory::resume(kept, &self.boot_id, self.clock.elapsed(), self.lengths);
        self.keep(&memory);
        let (mut news, mut read_ended) = (true, false);
        loop {
            // Only a newly published deadline counts: the guard's own last read may be newer than one published before
            // it.
            if std::mem::take(&mut news) {
                let sight = self.seen.borrow_and_update().clone();
                self.take_note(&mut memory, &sight);
            }
            let left = memory.left(self.clock.elapsed());
            if left.is_zero() && self.over(&mut memory).await {
                return Some(if memory.seen.is_some() {
                    "its threshold and the grace have passed"
                } else {
                    "no record within the boot deadline"
                });
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(left.clamp(Duration::from_millis(10), LOOK)) => {}
                changed = self.seen.changed(), if !read_ended => {
                    read_ended = changed.is_err();
                    news = !read_ended;
                }
                () = stop.cancelled() => return None,
            }
        }
    }

    fn take_note(&self, memory: &mut Memory, sight: &Sight) {
        let Some(deadline) = sight.orders().and_then(|orders| orders.deadline) else { return };
        if memory.see(deadline, self.clock.elapsed(), self.lengths) {
            self.keep(memory);
        }
    }

    /// Reads the record a last time, and returns whether the deadline has still passed. A failed read, or a missing
    /// record, changes nothing.
    async fn over(&self, memory: &mut Memory) -> bool {
        if let Ok(Ok(sight)) = tokio::time::timeout(LAST_LOOK, self.records.instance()).await {
            self.take_note(memory, &sight);
        }
        memory.left(self.clock.elapsed()).is_zero()
    }

    /// Writes the state. A guard that cannot write its state continues from memory.
    fn keep(&self, memory: &Memory) {
        if let Err(error) = disk::save(&self.file, memory) {
            tracing::error!(%error, "cannot write the threshold file");
        }
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
