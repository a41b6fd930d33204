//! Is this operator fit to be relied on? It has seen the whole table once, and the table answered lately.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::ports::Clock;
use crate::status::Window;

/// How long the table may be silent before the operator is not ready.
pub const SILENCE: Duration = Duration::from_secs(60);

/// What readiness is judged by; shared by those who work and the port that tells. Whether this process holds the
/// lease does not matter: a stand-by is ready.
pub struct Health {
    clock: Arc<dyn Clock>,
    listed: AtomicBool,
    /// Milliseconds on the monotonic clock, plus one; 0 when the table never answered.
    answered: AtomicU64,
    window: Window,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("verdict", &self.verdict()).finish_non_exhaustive()
    }
}

/// Why an operator is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// The table was not read as a whole yet.
    #[error("the first list of the table is not done")]
    NotListed,
    /// The table has not answered for too long; none when it never did.
    #[error("{}", silent(*.0))]
    Silent(Option<Duration>),
}

fn silent(since: Option<Duration>) -> String {
    match since {
        Some(since) => format!("the table has not answered for {} s", since.as_secs()),
        None => "the table has never answered".to_owned(),
    }
}

impl Health {
    /// The health of an operator that just began.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, listed: AtomicBool::new(false), answered: AtomicU64::new(0), window: Window::default() }
    }

    /// The way to what the loop knows.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Now, on the monotonic clock.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// The first list is done.
    pub fn listed(&self) {
        self.listed.store(true, Ordering::Relaxed);
    }

    /// The table answered, at this moment of the monotonic clock (`Clock::elapsed`).
    pub fn table_answered(&self, at: Duration) {
        let millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        self.answered.fetch_max(millis, Ordering::Relaxed);
    }

    /// Whether the operator is ready.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verdict(&self) -> Result<(), Unready> {
        if !self.listed.load(Ordering::Relaxed) {
            return Err(Unready::NotListed);
        }
        let Some(answered) = self.answered.load(Ordering::Relaxed).checked_sub(1) else {
            return Err(Unready::Silent(None));
        };
        let silence = self.clock.elapsed().saturating_sub(Duration::from_millis(answered));
        if silence <= SILENCE { Ok(()) } else { Err(Unready::Silent(Some(silence))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

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
}
