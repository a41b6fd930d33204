//! How is something waited for? By looking again until it is so, and giving up at last with the name of what was awaited.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// When something that hangs is given up. It judges nothing: however busy the machine is, everything takes less.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Held by a test for as long as it runs: these tests load the machine, and measure.
static TURN: Mutex<()> = Mutex::const_new(());

/// Waits for this test's turn.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// Looks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "in vain for {} s: {what}", PATIENCE.as_secs());
        sleep(LOOK).await;
    }
}

/// Looks until nothing is left; what is left when it gives up is told.
pub(crate) async fn until_none(what: &str, mut look: impl AsyncFnMut() -> Option<Vec<String>>) {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = look().await;
        if left.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        assert!(Instant::now() < end, "after {} s still {what}: {left:#?}", PATIENCE.as_secs());
        sleep(LOOK).await;
    }
}
