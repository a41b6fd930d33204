//! Makes the requests of queued jobs whose label is that of their run and of a class ([`crate::decide::run_labels`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::decide::{ForLabel, Needed, RunLabel, Unserved, Wanted, for_label, key_of, run_labels};
use crate::model::{Asked, EventType, Repository, Request, RequestKey, RequestName, Uid, Versioned};
use crate::ports::StoreError;
use crate::ports::github::{Listed, WorkflowRun};

use super::known::{Held, Known, Repo, Requests, number, repo_of, repository};
use super::{Memory, RunWatch, Unfinished};

/// How long the list of a run's jobs may lack one that was queued: GitHub listed jobs up to 5 s late.
const LAG: Duration = Duration::from_secs(10);
/// When a repository that rang is looked at once more: the first lookup was too early for a job that is listed late.
const LATE: Duration = Duration::from_secs(6);
/// After how many lookups of a repository the jobs of a run are read although its entry did not change.
const ROUND: u32 = 5;
/// How many runs of a repository may have rung at a time: rings may be forged.
const MOST_RUNG: usize = 64;

/// What was seen of the open runs of a repository.
#[derive(Default)]
pub(super) struct Seen {
    /// How often the repository was looked at.
    looks: u32,
    runs: BTreeMap<u64, SeenRun>,
    /// When each run rang last, on the monotonic clock. It may be none of ours.
    rung: BTreeMap<u64, Duration>,
}

/// What was seen of an open run.
struct SeenRun {
    entry: WorkflowRun,
    /// When the entry changed, on the monotonic clock.
    changed: Duration,
    /// At which lookup of the repository its jobs were read.
    read: Option<u32>,
    /// What the jobs of its requests needed lately.
    needed: BTreeMap<RequestName, Needed>,
}

impl Seen {
    /// Counts a lookup, and returns whether all kinds of open runs are to be listed in it.
    pub(super) fn look(&mut self) -> bool {
        self.looks += 1;
        self.looks % ROUND == 1
    }

    /// Notes the open runs, and forgets those that are not open any more.
    pub(super) fn note(&mut self, open: &[WorkflowRun], listed: Listed, now: Duration) {
        if listed == Listed::Open {
            let listed: BTreeSet<u64> = open.iter().map(|run| run.id).collect();
            self.runs.retain(|id, _| listed.contains(id));
        }
        for run in open {
            let new = || SeenRun { entry: run.clone(), changed: now, read: None, needed: BTreeMap::new() };
            let seen = self.runs.entry(run.id).or_insert_with(new);
            if seen.entry != *run {
                (seen.entry, seen.changed) = (run.clone(), now);
            }
        }
    }

    /// Notes that GitHub, or somebody in its place, said that jobs of a run were queued.
    pub(super) fn ring(&mut self, run: u64, now: Duration) {
        self.rung.retain(|_, at| now.saturating_sub(*at) < LAG);
        if self.rung.len() < MOST_RUNG {
            self.rung.insert(run, now);
        }
    }

    /// Returns how long after this time the repository is looked at once more because it rang.
    pub(super) fn again(&self, now: Duration) -> Option<Duration> {
        let last = self.rung.values().max()?;
        (*last + LATE).checked_sub(now).filter(|wait| !wait.is_zero())
    }

    /// Returns whether the jobs of a run are to be read: it rang, its entry changed, or they were not read for a while.
    fn due(&self, run: u64, now: Duration) -> bool {
        let looks = self.looks;
        if self.rung.get(&run).is_some_and(|at| now.saturating_sub(*at) < LAG) {
            return true;
        }
        self.runs.get(&run).is_none_or(|seen| {
            let late = seen.read.is_none_or(|read| looks - read >= ROUND);
            late || now.saturating_sub(seen.changed) < LAG
        })
    }

    /// Notes that the jobs of a run were read.
    fn read(&mut self, run: u64) {
        if let Some(seen) = self.runs.get_mut(&run) {
            seen.read = Some(self.looks);
        }
    }
}

impl RunWatch {
    /// Makes the requests of the queued jobs of an open run, where a class serves the repository by labels.
    pub(super) async fn queued(
        &mut self,
        repo: &Repo,
        run: &WorkflowRun,
        requests: &Requests,
        known: &Known,
    ) -> Result<(), Unfinished> {
        let Some(repository) = repository(repo).filter(|of| known.serves_labels_of(of)) else {
            return Ok(());
        };
        let now = self.clock.elapsed();
        if self.memory.seen.get(repo).is_some_and(|seen| !seen.due(run.id, now)) {
            return Ok(());
        }
        let jobs = self.github.run_jobs(&repo.0, &repo.1, run.id, run.attempt).await?;
        let labels = run_labels(run, &repository, &jobs, known.classes.iter());
        let asks_itself = requests.values().any(|held| held.asked == Asked::Verb);
        let made = |(key, held): &(&RequestKey, &Held)| {
            held.live && held.asked == Asked::Job && key.attempt == run.attempt
        };
        for (key, _) in requests.iter().filter(made) {
            if !labels.iter().any(|label| label.name == key.name.as_str())
                && let Some(request) = self.request(key).await?
            {
                self.lower(run, &request, 0).await?;
            }
        }
        for label in labels {
            self.label(run, &repository, &label, asks_itself).await?;
            if let Some((waiting, why)) = &label.misfits {
                self.not_served(run, &repository, &label.name, *waiting, why);
            }
        }
        if let Some(seen) = self.memory.seen.get_mut(repo) {
            seen.read(run.id);
        }
        Ok(())
    }

    /// Writes or raises the request of a label, or reports why its jobs get no machine.
    async fn label(
        &mut self,
        run: &WorkflowRun,
        repository: &Repository,
        label: &RunLabel,
        asks_itself: bool,
    ) -> Result<(), StoreError> {
        let wanted = label.verdict.as_ref().ok();
        let key = wanted.map(|wanted| key_of(run, repository, &wanted.name));
        let record = match &key {
            Some(key) => self.request(key).await?,
            None => None,
        };
        match (for_label(label, record.as_ref(), asks_itself), key, &record) {
            (ForLabel::Create(wanted), Some(key), _) => self.create(run, &key, label, wanted).await,
            (ForLabel::Raise(count), _, Some(request)) => {
                self.change(request, |next, now| next.raise_to(count, count, now)).await
            }
            (ForLabel::NotServed(why), ..) => {
                self.not_served(run, repository, &label.name, label.queued, &why);
                Ok(())
            }
            (ForLabel::Nothing, _, Some(request)) => {
                self.lower(run, request, label.needed(record.as_ref())).await
            }
            (ForLabel::Create(_), None, _) | (ForLabel::Raise(_) | ForLabel::Nothing, _, None) => Ok(()),
        }
    }

    /// Lowers what the request of a label wants, where its jobs have needed fewer machines for a while.
    async fn lower(&mut self, run: &WorkflowRun, request: &Request, jobs: u32) -> Result<(), StoreError> {
        let now = self.clock.elapsed();
        let seen = self.memory.seen.get_mut(&repo_of(&request.id.repository));
        let Some(seen) = seen.and_then(|seen| seen.runs.get_mut(&run.id)) else { return Ok(()) };
        let needed = seen.needed.entry(request.id.name.clone()).or_default();
        match needed.lowered(request, jobs, now) {
            Some(wanted) => self.change(request, |next, now| next.want(wanted, now)).await,
            None => Ok(()),
        }
    }

    /// Changes the request of a label, on the version that was read.
    async fn change(
        &self,
        request: &Request,
        change: impl FnOnce(&mut Request, Timestamp),
    ) -> Result<(), StoreError> {
        let (mut next, now) = (request.clone(), self.clock.now());
        change(&mut next, now);
        next.advance(now);
        match self.store.write(&next.replacing(request)).await {
            // Another writer changed it meanwhile; a later lookup tries again.
            Ok(_) | Err(StoreError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn create(
        &self,
        run: &WorkflowRun,
        key: &RequestKey,
        label: &RunLabel,
        wanted: &Wanted,
    ) -> Result<(), StoreError> {
        let uid = Uid::parse(&self.entropy.hex()).expect("hexadecimal digits make a uid");
        let (now, count) = (self.clock.now(), label.needed(None));
        let mut request = Request::asked_by_job(key, &wanted.class, count, uid, now);
        request.status.workflow = Some(run.workflow.clone()).filter(|workflow| !workflow.is_empty());
        match self.store.write(&request.creating()).await {
            Ok(_) => {
                let message = format!(
                    "{key}: {} queued jobs have the label {}: asked for {count} of {}",
                    label.queued,
                    request.label(),
                    wanted.class
                );
                self.report(key, EventType::Normal, "JobAsked", message);
                Ok(())
            }
            // The workflow or another operator wrote it first.
            Err(StoreError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reports once per attempt, label and reason that queued jobs get no machines.
    fn not_served(
        &mut self,
        run: &WorkflowRun,
        repository: &Repository,
        label: &str,
        queued: u32,
        why: &Unserved,
    ) {
        let name = RequestName::parse(label).unwrap_or_else(|_| RequestName::default_name());
        let key = key_of(run, repository, &name);
        if self.memory.settled.insert((key.clone(), format!("{label} {}", why.reason()))) {
            let message = format!("{queued} queued jobs wait for the label {}-{label}: {why}", run.id);
            self.report(&key, EventType::Warning, "JobNotServed", message);
            self.events.metrics().jobs_not_served(why, queued);
        }
    }
}

impl Memory {
    /// Forgets what was seen of repositories that are not looked at any more, and of runs that are neither open nor
    /// have requests.
    pub(super) fn forget(&mut self, known: &Known, repositories: &BTreeSet<Repo>) {
        self.seen.retain(|repo, _| repositories.contains(repo));
        let seen = &self.seen;
        let open = |key: &RequestKey| {
            let run = number(key);
            seen.get(&repo_of(&key.repository)).zip(run).is_some_and(|(of, run)| of.runs.contains_key(&run))
        };
        self.settled.retain(|(key, _)| known.of_run(key).is_some() || open(key));
        self.failed_at.retain(|run, _| known.runs.values().any(|runs| runs.contains_key(run)));
    }
}
