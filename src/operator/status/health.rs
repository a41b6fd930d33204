//! Is this operator ready? It has listed the whole table once, the table responded lately, and the loop keeps up with
//! its observations.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::ports::Clock;
use crate::status::{ANSWER_TIMEOUT, SnapshotChannel};

/// How long the table may fail to respond before the operator is not ready.
pub const SILENCE: Duration = Duration::from_secs(60);

/// The state that determines readiness, shared by the operator's tasks and the admin port. The lease does not matter: a
/// standby is ready.
pub struct Health {
    clock: Arc<dyn Clock>,
    listed: AtomicBool,
    /// Milliseconds on the monotonic clock, plus one; 0 if the table never responded.
    answered: AtomicU64,
    /// When the loop last finished a pass, in the same form.
    turned: AtomicU64,
    snapshots: SnapshotChannel,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("verdict", &self.verdict()).finish_non_exhaustive()
    }
}

/// The reason why an operator is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// The table has not been listed completely yet.
    #[error("the first list of the table is not done")]
    NotListed,
    /// The table has not responded for too long; `None` if it never did.
    #[error("{}", silent(*.0))]
    Silent(Option<Duration>),
    /// The loop has not finished a pass for too long: later observations have not been acted on yet.
    #[error("the loop is behind: it has not finished a pass for {} s", .0.as_secs())]
    Behind(Duration),
}

fn silent(since: Option<Duration>) -> String {
    match since {
        Some(since) => format!("the table has not answered for {} s", since.as_secs()),
        None => "the table has never answered".to_owned(),
    }
}

impl Health {
    /// Creates the health of an operator that has just started.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let [answered, turned] = [AtomicU64::new(0), AtomicU64::new(0)];
        Self {
            clock,
            listed: AtomicBool::new(false),
            answered,
            turned,
            snapshots: SnapshotChannel::default(),
        }
    }

    /// Returns the channel for snapshots.
    pub fn snapshots(&self) -> &SnapshotChannel {
        &self.snapshots
    }

    /// Returns the time on the monotonic clock.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Records that the first list is complete.
    pub fn listed(&self) {
        self.listed.store(true, Ordering::Relaxed);
    }

    /// Records a response of the table at this time of the monotonic clock (`Clock::elapsed`).
    pub fn table_answered(&self, at: Duration) {
        note(&self.answered, at);
    }

    /// Records that the loop finished a pass over all its observations at this time of the monotonic clock.
    pub fn turned(&self, at: Duration) {
        note(&self.turned, at);
    }

    /// Returns the time since the last record; `None` if there was none.
    fn since(&self, noted: &AtomicU64) -> Option<Duration> {
        let millis = noted.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.clock.elapsed().saturating_sub(Duration::from_millis(millis)))
    }

    /// Returns whether the operator is ready.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn verdict(&self) -> Result<(), Unready> {
        if !self.listed.load(Ordering::Relaxed) {
            return Err(Unready::NotListed);
        }
        let Some(silence) = self.since(&self.answered) else { return Err(Unready::Silent(None)) };
        if silence > SILENCE {
            return Err(Unready::Silent(Some(silence)));
        }
        // The same timeout as the status page's, so that the two do not contradict each other.
        match self.since(&self.turned).filter(|behind| *behind > ANSWER_TIMEOUT) {
            Some(behind) => Err(Unready::Behind(behind)),
            None => Ok(()),
        }
    }
}

/// Records a time of the monotonic clock; an earlier one is ignored.
fn note(noted: &AtomicU64, at: Duration) {
    let millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    noted.fetch_max(millis, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::clock::SystemClock;

    #[tokio::test(start_paused = true)]
    async fn it_is_ready_once_listed_and_while_the_table_answers() {
        let clock = Arc::new(SystemClock::new());
        let health = Health::new(clock.clone());
        assert_eq!(health.verdict(), Err(Unready::NotListed));

        health.table_answered(clock.elapsed());
        assert_eq!(health.verdict(), Err(Unready::NotListed));

        health.listed();
        assert_eq!(health.verdict(), Ok(()));

        tokio::time::advance(SILENCE).await;
        assert_eq!(health.verdict(), Ok(()));

        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(health.verdict(), Err(Unready::Silent(Some(Duration::from_secs(61)))));

        health.table_answered(clock.elapsed());
        assert_eq!(health.verdict(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_word_of_an_early_answer_does_not_count_back() {
        let clock = Arc::new(SystemClock::new());
        let health = Health::new(clock.clone());
        health.listed();
        assert_eq!(health.verdict(), Err(Unready::Silent(None)));
        tokio::time::advance(Duration::from_secs(100)).await;
        health.table_answered(clock.elapsed());
        health.table_answered(Duration::ZERO);
        assert_eq!(health.verdict(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_whose_loop_is_behind_is_not_ready_until_it_has_caught_up() {
        let clock = Arc::new(SystemClock::new());
        let health = Health::new(clock.clone());
        health.listed();
        health.table_answered(clock.elapsed());
        health.turned(clock.elapsed());
        tokio::time::advance(ANSWER_TIMEOUT).await;
        assert_eq!(health.verdict(), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(health.verdict(), Err(Unready::Behind(Duration::from_secs(6))));
        health.turned(clock.elapsed());
        assert_eq!(health.verdict(), Ok(()));
    }
}
