//! All tasks of an operator. None outlives it: actions and short calls are finished when it stops, long calls are
//! cancelled, and dropping the operator aborts all of them.

use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Done;

/// Longest wait for short tasks when the operator stops.
const FINISH: Duration = Duration::from_secs(5);

/// The tasks of one operator.
pub(super) struct Tasks {
    /// Actions in progress; the loop takes in their results.
    pub(super) actions: JoinSet<Done>,
    /// Calls beside the loop whose results are not awaited.
    calls: JoinSet<()>,
    /// Tasks that last as long as the operator: lease, table watch and pollers.
    lasting: JoinSet<()>,
    /// The removal of old events, which is slow: one at a time.
    pub(super) removing: Option<AbortHandle>,
    stop: CancellationToken,
}

impl Tasks {
    /// Creates an empty set; long calls end with `stop`.
    pub(super) fn new(stop: CancellationToken) -> Self {
        let (actions, calls, lasting) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        Self { actions, calls, lasting, removing: None, stop }
    }

    /// Starts a task that lasts as long as the operator. It ends when the operator stops, or when the loop drops its
    /// ends of the task's channels.
    pub(super) fn spawn_lasting(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.lasting.spawn(task);
    }

    /// Starts a short call, which a stopping operator waits for.
    pub(super) fn spawn(&mut self, call: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // Drops ended tasks, so that the set holds only running ones.
        while self.calls.try_join_next().is_some() {}
        self.calls.spawn(call)
    }

    /// Starts a long call, which a stopping operator cancels.
    pub(super) fn spawn_long(&mut self, call: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let stop = self.stop.clone();
        self.spawn(async move {
            stop.run_until_cancelled(call).await;
        })
    }

    /// Waits for the calls in progress, for a while. Call it after the stop.
    pub(super) async fn finish_calls(&mut self) {
        let ended = async { while self.calls.join_next().await.is_some() {} };
        if tokio::time::timeout(FINISH, ended).await.is_err() {
            tracing::debug!(calls = self.calls.len(), "aborted background tasks that did not end in time");
            self.calls.abort_all();
        }
    }

    /// Waits for the tasks that last as long as the operator. Call it after the stop and after the loop's channels are
    /// dropped.
    pub(super) async fn finish_lasting(mut self) {
        while self.lasting.join_next().await.is_some() {}
    }
}
