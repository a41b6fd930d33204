//! Looks at the workflow runs of each repository that matters at GitHub, and acts on what it sees: requests of runs that
//! are over are released, later attempts and queued jobs that name a class by their label get requests, and failed jobs
//! of a run that lost a spot machine are re-run where that is configured. What a fact means is judged in the core
//! ([`crate::decide`]); only a completed run or a later attempt is an end, and a run that GitHub does not find is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::model::{JobRing, RequestKey};
use crate::ports::github::{Listed, RunState, Waiting, WorkflowRun};
use crate::ports::{Clock, Entropy, GitHub, GitHubError, Store};

use crate::controller::github::credential_issuer::CredentialIssuer;
use crate::controller::ordered_watch;
use crate::controller::records::events::Events;

mod ended;
mod known;
mod lost;
mod past;
mod queued;
mod reruns;
mod schedule;
#[cfg(test)]
mod tests;
mod unfinished;

use known::{Repo, Requests, repo_of};
use queued::Seen;
use schedule::{Look, Schedule, TICK, interval, is_scarce};
use unfinished::{Held, Unfinished, held};

use known::Known;
pub(crate) use known::{Ask, News};

/// The minimum interval between two questions to the loop.
const KNOWN: Duration = Duration::from_secs(5);
/// How often an operator that does not lead checks whether it does.
const STANDBY: Duration = Duration::from_secs(1);
/// How often the repositories are listed that classes admit by a pattern.
const REPOSITORIES: Duration = Duration::from_secs(3600);
/// The same after a failure.
const REPOSITORIES_AGAIN: Duration = Duration::from_secs(600);
/// How many runs of a repository may fail in one lookup: each may take a call's whole deadline, and others wait.
const FAILURES: usize = 3;
/// The minimum interval between two rings about repositories that nobody knows.
const STRANGERS: Duration = Duration::from_secs(2);

/// What the operator does about runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duties {
    /// The usual interval of lookups in each repository.
    pub(crate) every: Duration,
    /// Whether later attempts get machines.
    pub(crate) reruns: bool,
    /// Whether failed jobs of runs that lost a spot machine are re-run.
    pub(crate) rerun_lost: bool,
}

/// Looks at workflow runs.
pub(crate) struct RunWatch {
    pub(crate) github: Arc<dyn GitHub>,
    pub(crate) store: Arc<dyn Store>,
    /// The history table, with the records of requests that left the table; none where there is no history.
    pub(crate) history: Option<Arc<dyn Store>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) events: Events,
    pub(crate) duties: Duties,
    pub(crate) lease: ordered_watch::Receiver<Option<u64>>,
    pub(crate) ask: mpsc::Sender<Ask>,
    /// The runs of which GitHub says that jobs were queued; none where nobody rings.
    pub(crate) rings: Option<mpsc::Receiver<JobRing>>,
    /// Learns which runs there are, so that no credential needs a call for it.
    pub(crate) issuer: Option<Arc<CredentialIssuer>>,
    pub(crate) memory: Memory,
}

/// What was seen and done; a new leader begins without it.
#[derive(Default)]
pub(crate) struct Memory {
    /// What was seen of the open runs of each repository.
    seen: BTreeMap<Repo, Seen>,
    /// Finished work: what was reported about an attempt, by its subject, and requests whose loss was handled.
    settled: BTreeSet<(RequestKey, String)>,
    /// The open runs that GitHub failed at, and the time of the last failure.
    failed_at: BTreeMap<u64, Duration>,
    /// The repositories that the credential sees, and when they are listed again.
    visible: BTreeSet<Repo>,
    visible_until: Duration,
    /// The repositories that rang.
    rung: BTreeSet<Repo>,
    /// Until when rings about unknown repositories are ignored.
    strangers_until: Duration,
    /// The requests of open runs that left the table.
    past: past::Past,
}

impl RunWatch {
    /// Looks until stopped. Only the leader does, because GitHub limits calls.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let _ = shutdown.run_until_cancelled(self.watch()).await;
    }

    async fn watch(&mut self) {
        let mut schedule = Schedule::default();
        let mut known = Known::default();
        let mut fresh_until = Duration::ZERO;
        let mut pause = TICK;
        loop {
            let ring = self.ring_within(pause).await;
            if self.lease.get().is_none() {
                schedule.clear();
                (fresh_until, pause) = (Duration::ZERO, STANDBY);
                continue;
            }
            let now = self.clock.elapsed();
            if now >= fresh_until {
                let Some(news) = self.ask_loop().await else { return };
                self.memory.past_changed(&news);
                known.learn(news);
                fresh_until = now + KNOWN.min(self.duties.every);
                self.list_repositories(&known).await;
                schedule.follow(self.looks(&known), self.duties.every, now);
            }
            if let Some(ring) = ring {
                self.rung(&ring, &known, &mut schedule, now);
            }
            if let Some(look) = schedule.next(now) {
                self.look(look, &known, &mut schedule).await;
            }
            let now = self.clock.elapsed();
            pause = schedule.wake(now).min(fresh_until.saturating_sub(now)).max(TICK);
        }
    }

    /// Waits this long, or until GitHub says that jobs were queued.
    async fn ring_within(&mut self, pause: Duration) -> Option<JobRing> {
        let Some(rings) = &mut self.rings else {
            tokio::time::sleep(pause).await;
            return None;
        };
        match tokio::time::timeout(pause, rings.recv()).await {
            Ok(Some(ring)) => Some(ring),
            Ok(None) => {
                self.rings = None;
                None
            }
            Err(_) => None,
        }
    }

    async fn ask_loop(&self) -> Option<News> {
        let (ask, answer) = oneshot::channel();
        self.ask.send(ask).await.ok()?;
        answer.await.ok()
    }

    /// Lists the repositories that the credential sees where a class that serves labels admits some by a pattern.
    async fn list_repositories(&mut self, known: &Known) {
        let now = self.clock.elapsed();
        if !known.has_patterns() || now < self.memory.visible_until {
            return;
        }
        let wait = match self.github.repositories().await {
            Ok(listed) => {
                self.memory.visible = listed.iter().map(repo_of).collect();
                REPOSITORIES
            }
            Err(error) => {
                tracing::warn!(%error, "the repositories could not be listed whose jobs may be queued");
                REPOSITORIES_AGAIN
            }
        };
        self.memory.visible_until = now + wait;
    }

    /// Returns the lookups to make from now on.
    fn looks(&mut self, known: &Known) -> BTreeSet<Look> {
        let mut repositories: BTreeSet<Repo> = known.named();
        let memory = &self.memory;
        let admitted = memory.visible.iter().chain(&memory.rung).filter(|repo| serves(known, repo));
        repositories.extend(admitted.cloned());
        let requested = known.runs.keys().filter(|repo| self.duties.reruns || known.is_live(repo));
        repositories.extend(requested.cloned());
        self.memory.forget(known, &repositories);
        self.memory.forget_past(self.clock.elapsed());
        let mut looks: BTreeSet<Look> = repositories.into_iter().map(Look::Repository).collect();
        if self.duties.rerun_lost {
            let settled = |key: &&RequestKey| !self.memory.settled.contains(&((*key).clone(), String::new()));
            looks.extend(known.lost.keys().filter(settled).cloned().map(Look::Lost));
        }
        looks
    }

    /// Takes in that jobs of a run were queued. A ring proves nothing: it leads to a lookup now and one a little later.
    /// Rings about repositories that nobody knows lead to one in two seconds, and to none once half of the hourly
    /// budget is used.
    fn rung(&mut self, ring: &JobRing, known: &Known, schedule: &mut Schedule, now: Duration) {
        let repo = repo_of(&ring.repository);
        if !serves(known, &repo) {
            return;
        }
        if !schedule.has(&repo) {
            let scarce = is_scarce(self.github.budget_used(&repo.0, &repo.1));
            if scarce || now < self.memory.strangers_until {
                return;
            }
            self.memory.strangers_until = now + STRANGERS;
            self.memory.rung.insert(repo.clone());
        }
        self.memory.seen.entry(repo.clone()).or_default().ring(ring.run, now);
        schedule.ring(repo, now);
    }

    async fn look(&mut self, look: Look, known: &Known, schedule: &mut Schedule) {
        let looked = match &look {
            Look::Repository(repo) => self.repository(repo, known).await,
            Look::Lost(key) => self.lost(key, known).await,
        };
        let now = self.clock.elapsed();
        let wait = match looked.map_err(|error| held(&look, error)) {
            Ok(()) => self.interval(&look, known, now),
            Err(Held::Look) => self.duties.every,
            Err(Held::Account(pause)) => {
                schedule.rest_account(look.owner(), now + pause);
                pause
            }
            Err(Held::All(pause)) => {
                schedule.rest_all(now + pause);
                pause
            }
        };
        schedule.again(look, now, wait);
    }

    fn interval(&self, look: &Look, known: &Known, now: Duration) -> Duration {
        match look {
            Look::Repository(repo) => {
                let used = self.github.budget_used(&repo.0, &repo.1);
                let usual = interval(self.duties.every, known.is_live(repo), used);
                let seen = self.memory.seen.get(repo).filter(|_| !is_scarce(used));
                seen.and_then(|seen| seen.again(now)).map_or(usual, |again| usual.min(again))
            }
            Look::Lost(_) => self.duties.every,
        }
    }

    /// Looks at the runs of a repository: one list, and each run that is listed or has open requests. Runs that failed
    /// come after the others, the most recent failure last: each may take a call's whole deadline.
    async fn repository(&mut self, repo: &Repo, known: &Known) -> Result<(), Unfinished> {
        let seen = self.memory.seen.entry(repo.clone()).or_default();
        let listed = if seen.look() { Listed::Open } else { Listed::Running };
        let open = match self.github.open_runs(&repo.0, &repo.1, listed).await {
            Ok(open) => open,
            Err(error) => {
                // A repository that rang and is not there is forgotten.
                if let GitHubError::NotFound(_) = &error {
                    self.memory.rung.remove(repo);
                }
                return Err(error.into());
            }
        };
        let now = self.clock.elapsed();
        self.memory.seen.entry(repo.clone()).or_default().note(&open, listed, now);
        if let Some(issuer) = &self.issuer {
            issuer.runs_listed(repo, open.iter());
        }
        let open: BTreeMap<u64, WorkflowRun> = open.into_iter().map(|run| (run.id, run)).collect();
        let live = known.runs_of(repo).filter(|(_, requests)| requests.values().any(|held| held.live));
        let numbers: BTreeSet<u64> = open.keys().copied().chain(live.map(|(number, _)| number)).collect();
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        numbers.sort_by_key(|number| self.memory.failed_at.get(number).copied());
        let mut failed = Vec::new();
        for number in numbers {
            match self.one(repo, number, open.get(&number), known).await {
                Ok(()) => drop(self.memory.failed_at.remove(&number)),
                Err(error) if error.is_of_one_run() => {
                    tracing::warn!(run = number, %error, "a run could not be looked at");
                    self.memory.failed_at.insert(number, self.clock.elapsed());
                    failed.push(error);
                }
                Err(error) => return Err(error),
            }
            if failed.len() == FAILURES {
                break;
            }
        }
        failed.pop().map_or(Ok(()), Err)
    }

    /// Releases the requests of a run that is over; of another, writes its workflow into its requests, and makes the
    /// requests of a later attempt and of queued jobs.
    async fn one(
        &mut self,
        repo: &Repo,
        number: u64,
        listed: Option<&WorkflowRun>,
        known: &Known,
    ) -> Result<(), Unfinished> {
        let none = Requests::new();
        let requests = known.runs.get(repo).and_then(|runs| runs.get(&number)).unwrap_or(&none);
        let Some(run) = listed else {
            return match self.github.run(&repo.0, &repo.1, number, Waiting::Nobody).await {
                Ok(state) => Ok(self.end(requests, state).await?),
                // This does not end its requests.
                Err(GitHubError::NotFound(_)) => Ok(()),
                Err(error) => Err(error.into()),
            };
        };
        self.end(requests, RunState::Active { attempt: run.attempt }).await?;
        self.note_workflow(run, requests).await?;
        let requests = &self.with_past(repo, run, requests).await?;
        if self.duties.reruns {
            self.attempts(repo, run, requests).await?;
        }
        self.queued(repo, run, requests, known).await
    }
}

/// Returns whether a class serves the jobs of this repository by their labels.
fn serves(known: &Known, repo: &Repo) -> bool {
    known::repository(repo).is_some_and(|repository| known.serves_labels_of(&repository))
}
