//! When does GitHub's support of the runner version that machines get end? The leader looks it up once a day, with the
//! least weight of all calls. A server without such dates (GitHub Enterprise Server) ends no version.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::ports::github::{RunnerSupport, Scope};
use crate::ports::{Clock, GitHubError};

use super::credential_issuer::CredentialIssuer;
use super::runner_gc;

/// The interval of looks.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The pause before the first look, and where no scope is known yet or GitHub gave no answer.
const SOON: Duration = Duration::from_secs(60);
/// The pause after a refusal, which a person must mend.
const REFUSED: Duration = Duration::from_secs(3600);
/// The most scopes that are tried until one is visible.
const SCOPES: usize = 5;
/// The deadline is logged when it is as near as this.
const NEAR: i64 = 21 * 24 * 3600;

/// Looks a version up.
pub(super) struct VersionClock {
    pub(super) issuer: Arc<CredentialIssuer>,
    pub(super) version: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lease: watch::Receiver<Option<u64>>,
    /// The loop, which knows the repositories.
    pub(super) ask: mpsc::Sender<runner_gc::Ask>,
    /// What GitHub said; none while it is not known, or by an operator that does not lead.
    pub(super) support: watch::Sender<Option<RunnerSupport>>,
}

impl VersionClock {
    /// Looks until stopped.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        let stopped = shutdown.clone();
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = self.watch() => {}
        }
    }

    async fn watch(&mut self) {
        loop {
            if self.lease.borrow_and_update().is_none() {
                self.support.send_if_modified(|support| support.take().is_some());
                if self.lease.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let Some(pause) = self.look().await else { return };
            tokio::select! {
                changed = self.lease.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Looks once; answers when to look again, and none when the loop has ended.
    async fn look(&self) -> Option<Duration> {
        let (ask, answer) = oneshot::channel();
        self.ask.send(ask).await.ok()?;
        let scopes = answer.await.ok()?.scopes(&self.issuer);
        for scope in scopes.iter().take(SCOPES) {
            match self.issuer.github.end_of_life(scope, &self.version).await {
                Ok(end) => {
                    self.found(RunnerSupport { version: self.version.clone(), end });
                    return Some(DAY);
                }
                // Not visible, or no such dates: another scope may say more.
                Err(GitHubError::NotFound(_) | GitHubError::Denied(_)) => {}
                Err(error) => return Some(self.failed(scope, &error)),
            }
        }
        Some(if scopes.is_empty() { SOON } else { REFUSED })
    }

    fn found(&self, support: RunnerSupport) {
        let now = self.clock.now();
        if let Some(at) = support.end.first().filter(|at| at.duration_since(now).as_secs() < NEAR) {
            let version = &support.version;
            tracing::warn!(%version, %at, "GitHub's support of the runner version ends; set a newer package in [agent]");
        }
        self.support.send_if_modified(|before| {
            let differs = before.as_ref() != Some(&support);
            *before = Some(support);
            differs
        });
    }

    fn failed(&self, scope: &Scope, error: &GitHubError) -> Duration {
        tracing::debug!(?scope, %error, "the end of the runner version's support could not be looked up");
        match error {
            GitHubError::Throttled { retry_after } | GitHubError::Deferred { retry_after } => {
                (*retry_after).max(SOON)
            }
            GitHubError::Unreachable(_) => SOON,
            GitHubError::Denied(_)
            | GitHubError::NotFound(_)
            | GitHubError::NameTaken(_)
            | GitHubError::Busy(_)
            | GitHubError::Invalid(_) => REFUSED,
        }
    }
}
