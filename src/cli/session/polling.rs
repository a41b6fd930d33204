//! Waits for a condition by polling, quickly at first, until it holds, the time limit passes, or a person interrupts.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::common::failure::{Caught, CliFailure, CliResult, Exit};
use runyard_core::ports::StoreError;
use runyard_operator::wire::ignores_hangup;

/// Maximum number of attempts of a refused or contended write.
const TRIES: usize = 8;

/// Longest pause between reads at first: a quarter of a second is little compared with the two or three that a warm
/// machine takes to register, and a poll is one read of one record.
const PAUSE: Duration = Duration::from_millis(250);
/// After this time the wait is no longer for a warm machine.
const QUICK: Duration = Duration::from_secs(120);
/// Longest pause from then on: in a full yard thousands may wait at the same time, and their reads must not take the
/// table's capacity from the operator.
const PAUSE_LATER: Duration = Duration::from_secs(1);

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited<T> {
    /// The condition holds.
    Done(T),
    /// The time limit passed first.
    TimedOut,
    /// A signal came first.
    Interrupted(Caught),
}

/// Listens for SIGINT, SIGTERM and SIGHUP (unless `nohup` has it ignored) from its creation on.
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
    hangup: Option<Signal>,
}

impl Interrupts {
    /// Starts to listen; from now on these signals no longer end the process.
    pub(crate) fn listen() -> CliResult<Self> {
        let on = |kind| {
            signal(kind).map_err(|error| {
                CliFailure::error(
                    "signals",
                    "",
                    format!("cannot be listened to: {error}"),
                    "run the command again",
                )
            })
        };
        let hangup = if ignores_hangup() { None } else { Some(on(SignalKind::hangup())?) };
        Ok(Self { int: on(SignalKind::interrupt())?, term: on(SignalKind::terminate())?, hangup })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Caught {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.int.recv() => Caught::Interrupt,
            _ = self.term.recv() => Caught::Terminate,
            _ = hung_up => Caught::Hangup,
        }
    }
}

/// Polls until `look` finds something. `look` may be cancelled, so it must not change anything. An error of the table
/// does not end the wait; the limit does.
pub(crate) async fn until<T>(
    limit: Duration,
    interrupts: &mut Interrupts,
    mut look: impl AsyncFnMut() -> CliResult<Option<T>>,
) -> CliResult<Waited<T>> {
    let begun = tokio::time::Instant::now();
    let looking = async {
        for pause in pauses(PAUSE) {
            match look().await {
                Ok(Some(found)) => return Ok(Waited::Done(found)),
                Ok(None) => {}
                Err(error) if error.exit == Exit::Unanswered => {
                    tracing::warn!(%error, "no answer to this look, looking again");
                }
                Err(error) => return Err(error),
            }
            let pause = if begun.elapsed() < QUICK { pause } else { PAUSE_LATER };
            tokio::time::sleep(pause).await;
        }
        Ok(Waited::TimedOut)
    };
    tokio::select! {
        biased;
        found = looking => found,
        caught = interrupts.next() => Ok(Waited::Interrupted(caught)),
        () = tokio::time::sleep(limit) => Ok(Waited::TimedOut),
    }
}

/// Returns the pauses between reads: 50 ms at first, then longer, never longer than `most`.
pub(crate) fn pauses(most: Duration) -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(most)
        .with_factor(1.3)
        .without_max_times()
        .build()
}

/// Retries an update that another writer may have contended; `attempt` reads, decides and writes afresh each time.
pub(crate) async fn again<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_millis(500))
        .with_jitter()
        .with_max_times(TRIES)
        .build();
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let passes = match error {
            StoreError::Refused { .. } | StoreError::Contended | StoreError::Throttled => true,
            StoreError::Unknown(_)
            | StoreError::Denied(_)
            | StoreError::NoTable(_)
            | StoreError::Invalid(_) => false,
        };
        match pauses.next() {
            Some(pause) if passes => tokio::time::sleep(pause).await,
            Some(_) | None => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::environment::Environment;
    use runyard_core::model::TableName;

    #[tokio::test(start_paused = true)]
    async fn a_wait_looks_every_quarter_of_a_second_for_two_minutes_then_each_second() {
        let mut interrupts = Interrupts::listen().unwrap();
        let begun = tokio::time::Instant::now();
        let mut looks = Vec::new();
        let ended = until(Duration::from_secs(130), &mut interrupts, async || {
            looks.push(begun.elapsed());
            Ok(None::<()>)
        })
        .await
        .unwrap();
        assert_eq!((ended, begun.elapsed().as_secs()), (Waited::TimedOut, 130));
        let pauses: Vec<Duration> = looks.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(pauses[0] <= Duration::from_millis(51), "quickly at first: {pauses:?}");
        for (look, pause) in looks.iter().zip(&pauses) {
            // Tokio's timers are accurate to a millisecond.
            let most = if *look < QUICK { PAUSE } else { PAUSE_LATER } + Duration::from_millis(1);
            assert!(*pause <= most, "{pause:?} after {look:?}");
        }
        assert!(pauses.last() >= Some(&PAUSE_LATER), "{:?}", pauses.last());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_outlives_looks_that_the_table_does_not_answer_and_no_other_failure() {
        let table = TableName::parse("yard").unwrap();
        let failed = |error| CliFailure::of_store(&table, &Environment::of(&[]), &error);
        let mut interrupts = Interrupts::listen().unwrap();
        let mut answers = [
            Err(failed(StoreError::Unknown("request has timed out".into()))),
            Err(failed(StoreError::Throttled)),
            Err(failed(StoreError::Contended)),
            Ok(Some("found")),
            Err(failed(StoreError::Denied("no".into()))),
        ]
        .into_iter();
        let limit = Duration::from_secs(60);
        let mut wait = async || until(limit, &mut interrupts, async || answers.next().unwrap()).await;
        assert_eq!(wait().await, Ok(Waited::Done("found")));
        assert_eq!(wait().await.unwrap_err().exit, Exit::Error, "a person must mend it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_contended_write_is_tried_again_and_a_denied_one_is_not() {
        let mut tries = 0;
        let done = again(async || {
            tries += 1;
            if tries < 3 { Err(StoreError::Contended) } else { Ok(tries) }
        });
        assert_eq!(done.await, Ok(3));
        let mut tries = 0;
        let denied = again(async || {
            tries += 1;
            Err::<(), _>(StoreError::Denied("no".into()))
        });
        assert!(denied.await.is_err());
        assert_eq!(tries, 1);
    }
}
