//! How is something waited for? By looking again until it is so, with a deadline that says what was awaited in vain.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Held by a test for as long as it runs: these tests load the machine, and measure.
static TURN: Mutex<()> = Mutex::const_new(());

/// Waits for this test's turn.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// Looks until there is an answer.
pub(crate) async fn until<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "in vain for {} s: {what}", within.as_secs());
        sleep(LOOK).await;
    }
}

/// Looks until nothing is left; what is left at the deadline is told.
pub(crate) async fn until_none(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Option<Vec<String>>,
) {
    let end = Instant::now() + within;
    loop {
        let left = look().await;
        if left.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        assert!(Instant::now() < end, "after {} s still {what}: {left:#?}", within.as_secs());
        sleep(LOOK).await;
    }
}
