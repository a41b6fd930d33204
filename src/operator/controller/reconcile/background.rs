//! Calls beside the loop that nobody waits for. None of them outlives it: what is short is finished when the operator
//! stops, what may last is broken off, and an operator that is dropped takes all of them with it.

use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Longest time an operator that stops waits for short calls.
const FINISH: Duration = Duration::from_secs(5);

/// The background tasks of one loop.
pub(super) struct Background {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Background {
    /// No tasks yet; those that last end with `stop`.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { tasks: JoinSet::new(), stop }
    }

    /// Starts a short task, which an operator that stops waits for.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // Those that ended are forgotten, so that the set holds what is under way.
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task)
    }

    /// Starts a task that may last, which an operator that stops breaks off.
    pub(super) fn spawn_long(&mut self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let stop = self.stop.clone();
        self.spawn(async move {
            stop.run_until_cancelled(task).await;
        })
    }

    /// Waits for what is under way, for a while. Stop comes first.
    pub(super) async fn finish(&mut self) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(FINISH, ended).await.is_err() {
            tracing::debug!(tasks = self.tasks.len(), "broken off, they did not end in time");
        }
    }
}
