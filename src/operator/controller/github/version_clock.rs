//! When does GitHub's support of the machines' runner versions end, and which packages does it offer to machines that
//! follow its list? The leader looks it up once a day, with the lowest priority of all calls. A server without such
//! dates (GitHub Enterprise Server) ends no version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::decide::Following;
use crate::model::RunnerPackage;
use crate::ports::github::{RunnerApplication, RunnerNews, RunnerSupport, Scope};
use crate::ports::{Clock, GitHubError};

use super::credential_issuer::CredentialIssuer;
use super::runner_gc;
use crate::controller::ordered_watch;

/// The interval of lookups.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The pause before the first lookup, and after one without a known scope or without a response of GitHub.
const SOON: Duration = Duration::from_secs(60);
/// The pause after a refusal, which a person must resolve.
const REFUSED: Duration = Duration::from_secs(3600);
/// Maximum number of scopes that are tried until one is visible.
const SCOPES: usize = 5;
/// The deadline is logged when it is at most this near.
const NEAR: i64 = 21 * 24 * 3600;

/// Looks up a version.
pub(crate) struct VersionClock {
    pub(crate) issuer: Arc<CredentialIssuer>,
    pub(crate) version: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lease: ordered_watch::Receiver<Option<u64>>,
    /// The channel to the loop, which has the repositories.
    pub(crate) ask: mpsc::Sender<runner_gc::Ask>,
    /// The machines that follow GitHub's list.
    pub(crate) following: Following,
    /// GitHub's response; empty while it is unknown, or a day after this operator led.
    pub(crate) news: watch::Sender<RunnerNews>,
}

impl VersionClock {
    /// Looks up until stopped.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let stopped = shutdown.clone();
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = self.watch() => {}
        }
    }

    async fn watch(&mut self) {
        loop {
            if self.lease.see().is_none() {
                // An operator that leads again soon must not launch with a version whose end it has learned.
                match tokio::time::timeout(DAY, self.lease.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        self.news.send_if_modified(|news| std::mem::take(news) != RunnerNews::default());
                    }
                }
                continue;
            }
            let Some(pause) = self.look().await else { return };
            let issuer = self.issuer.clone();
            // A machine's report is only a hint; the lookup that follows decides. Reports before the end of the pause
            // are covered by the next lookup, so no other follows for them.
            let doubted = async {
                tokio::time::sleep(SOON.min(pause)).await;
                issuer.doubted.notified().await;
            };
            tokio::select! {
                biased;
                changed = self.lease.changed() => if changed.is_err() { return },
                () = doubted => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Looks up once; returns the pause until the next lookup, or `None` if the loop has ended.
    async fn look(&self) -> Option<Duration> {
        let (ask, answer) = oneshot::channel();
        self.ask.send(ask).await.ok()?;
        let known = answer.await.ok()?;
        let scopes = known.scopes(&self.issuer);
        for scope in scopes.iter().take(SCOPES) {
            match self.look_in(scope, &known.versions).await {
                Ok(Some(news)) => {
                    self.found(news);
                    return Some(DAY);
                }
                // Not visible, or without such data: another scope may have more.
                Ok(None) => {}
                Err(error) => return Some(self.failed(scope, &error)),
            }
        }
        Some(if scopes.is_empty() { SOON } else { REFUSED })
    }

    /// Looks up in one scope; `None` if it has no data.
    async fn look_in(
        &self,
        scope: &Scope,
        adopted: &BTreeSet<String>,
    ) -> Result<Option<RunnerNews>, GitHubError> {
        let github = &self.issuer.github;
        let end = said(github.end_of_life(scope, &self.version).await)?;
        let listed =
            if self.following.is_empty() { None } else { said(github.runner_applications(scope).await)? };
        if end.is_none() && listed.is_none() {
            return Ok(None);
        }
        let latest = self.newest(&listed.unwrap_or_default());
        let offered = latest.values().map(|package| &package.version);
        let versions: BTreeSet<&String> =
            adopted.iter().chain(offered).filter(|version| **version != self.version).collect();
        let mut ends = BTreeMap::new();
        for version in versions {
            if let Some(end) = said(github.end_of_life(scope, version).await)? {
                ends.insert(version.clone(), end);
            }
        }
        let pinned = end.map(|end| RunnerSupport { version: self.version.clone(), end });
        Ok(Some(RunnerNews { pinned, latest, ends }))
    }

    /// Returns the newest packages for Linux that may be adopted, by architecture.
    fn newest(&self, listed: &[RunnerApplication]) -> BTreeMap<String, RunnerPackage> {
        let mut newest = BTreeMap::<String, RunnerPackage>::new();
        let followed = [&self.following.usual, &self.following.arm64].into_iter().flatten();
        let wanted: BTreeSet<&str> = followed.map(|one| one.architecture.as_str()).collect();
        let linux =
            listed.iter().filter(|one| one.os == "linux" && wanted.contains(one.architecture.as_str()));
        for application in linux {
            match application.package(&self.following.origins) {
                Ok(package) => {
                    let best = newest.get(&application.architecture);
                    if best.is_none_or(|best| package.newer_than(best)) {
                        newest.insert(application.architecture.clone(), package);
                    }
                }
                Err(why) => {
                    let file = &application.filename;
                    tracing::warn!(file, %why, "a runner package of GitHub's list is not adopted");
                }
            }
        }
        newest
    }

    fn found(&self, news: RunnerNews) {
        let now = self.clock.now();
        let support = news.pinned.as_ref().filter(|_| self.following.is_empty());
        let near = support.and_then(|support| support.end.first());
        if let Some(at) = near.filter(|at| at.duration_since(now).as_secs() < NEAR) {
            let version = &self.version;
            tracing::warn!(%version, %at, "GitHub's support of the runner version ends; set a newer package in [agent]");
        }
        self.news.send_if_modified(|before| {
            let differs = *before != news;
            *before = news;
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

/// Returns a response; `None` if the scope is not visible, or has no such data.
fn said<T>(answer: Result<T, GitHubError>) -> Result<Option<T>, GitHubError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(GitHubError::NotFound(_) | GitHubError::Denied(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use runyard_fakes::{FakeGitHub, SeededEntropy, TokioClock};

    use super::*;

    /// A machine's report before a lookup is covered by this lookup. The order was random before, and in two of three
    /// cases another lookup followed needlessly.
    #[tokio::test(start_paused = true)]
    async fn a_word_of_a_machine_and_the_end_of_the_pause_are_one_look() {
        for _ in 0..20 {
            let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting(Timestamp::UNIX_EPOCH));
            let entropy = Arc::new(SeededEntropy::new(1));
            let github = Arc::new(FakeGitHub::new(clock.clone()));
            let issuer = Arc::new(CredentialIssuer::new(github, clock.clone(), entropy, false, false, None));
            let (ask, mut asks) = mpsc::channel::<runner_gc::Ask>(1);
            let ((_leads, lease), (news, _)) =
                (ordered_watch::channel(Some(1)), watch::channel(RunnerNews::default()));
            let (version, following) = ("2.330.0".to_owned(), Following::default());
            let of = VersionClock { issuer: issuer.clone(), version, clock, lease, ask, following, news };
            let stop = CancellationToken::new();
            tokio::spawn(of.run(stop.clone()));
            // It has no repository, so it looks again soon.
            let look = asks.recv().await.unwrap();
            assert!(look.send(runner_gc::Known::default()).is_ok());
            tokio::time::sleep(SOON / 2).await;
            issuer.doubted.notify_one();
            let look = tokio::time::timeout(SOON, asks.recv()).await;
            assert!(look.is_ok_and(|look| look.is_some()));
            let left = tokio::time::timeout(Duration::ZERO, issuer.doubted.notified()).await;
            assert!(left.is_err(), "the word was heard");
            stop.cancel();
        }
    }
}
