//! Makes the requests of queued jobs whose label is that of their run and of a class ([`crate::decide::run_labels`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::decide::{ForLabel, RunLabel, Unserved, Wanted, for_label, key_of, run_id, run_labels};
use crate::model::{Event, EventType, Repository, Request, RequestKey, RequestName, Uid, Versioned};
use crate::ports::StoreError;
use crate::ports::github::WorkflowRun;

use super::known::{Known, Repo, Requests, number, repo_of, repository};
use super::{Memory, RunWatch, Unfinished};

/// How long the list of a run's jobs may lack one that was queued: GitHub listed jobs up to 5 s late.
const LAG: Duration = Duration::from_secs(10);
/// After how many lookups of a repository the jobs of a run are read although its entry did not change.
const ROUND: u32 = 5;

/// What was seen of the open runs of a repository.
#[derive(Default)]
pub(super) struct Seen {
    /// How often the repository was looked at.
    looks: u32,
    runs: BTreeMap<u64, SeenRun>,
}

/// What was seen of an open run.
struct SeenRun {
    entry: WorkflowRun,
    /// When the entry changed, on the monotonic clock.
    changed: Duration,
    /// At which lookup of the repository its jobs were read.
    read: u32,
}

impl Seen {
    /// Counts a lookup, and returns whether all kinds of open runs are to be listed in it.
    pub(super) fn look(&mut self) -> bool {
        self.looks += 1;
        self.looks % ROUND == 1
    }

    /// Returns the runs whose jobs are to be read, and forgets those that are not open any more.
    fn due(&mut self, open: &[WorkflowRun], complete: bool, now: Duration) -> BTreeSet<u64> {
        if complete {
            let listed: BTreeSet<u64> = open.iter().map(|run| run.id).collect();
            self.runs.retain(|id, _| listed.contains(id));
        }
        let looks = self.looks;
        let due = |run: &&WorkflowRun| {
            let Some(seen) = self.runs.get_mut(&run.id) else {
                let seen = SeenRun { entry: (*run).clone(), changed: now, read: looks };
                self.runs.insert(run.id, seen);
                return true;
            };
            if seen.entry != **run {
                (seen.entry, seen.changed) = ((*run).clone(), now);
            }
            let due = now.saturating_sub(seen.changed) < LAG || looks - seen.read >= ROUND;
            if due {
                seen.read = looks;
            }
            due
        };
        open.iter().filter(due).map(|run| run.id).collect()
    }

    /// Reads the jobs of a run again at the next lookup.
    fn again(&mut self, run: u64) {
        self.runs.remove(&run);
    }
}

impl RunWatch {
    /// Makes the requests of the queued jobs of these open runs, where a class serves the repository by labels.
    pub(super) async fn queued(
        &mut self,
        repo: &Repo,
        open: &[WorkflowRun],
        complete: bool,
        known: &Known,
    ) -> Result<(), Unfinished> {
        let Some(repository) = repository(repo).filter(|of| known.serves_labels_of(of)) else {
            return Ok(());
        };
        let now = self.clock.elapsed();
        let due = self.memory.seen.entry(repo.clone()).or_default().due(open, complete, now);
        let mut failed = Ok(());
        for run in open.iter().filter(|run| due.contains(&run.id)) {
            match self.jobs_of(repo, &repository, run, known).await {
                Ok(()) => {}
                Err(error) => {
                    self.memory.seen.entry(repo.clone()).or_default().again(run.id);
                    if !error.is_of_one_run() {
                        return Err(error);
                    }
                    failed = Err(error);
                }
            }
        }
        failed
    }

    async fn jobs_of(
        &mut self,
        repo: &Repo,
        repository: &Repository,
        run: &WorkflowRun,
        known: &Known,
    ) -> Result<(), Unfinished> {
        let jobs = self.github.run_jobs(&repo.0, &repo.1, run.id, run.attempt).await?;
        let requests = known.runs.get(repo).and_then(|runs| runs.get(&run.id));
        for label in run_labels(run, repository, &jobs, known.classes.iter()) {
            match &label.verdict {
                Ok(wanted) => self.serve_label(run, repository, &label, wanted).await?,
                // A label of a request that its workflow made itself, or of one of the class's extra labels.
                Err(Unserved::NoClass) if requests.is_some_and(by_workflow) => {}
                Err(why) => self.not_served(run, repository, &label, &why.to_string()),
            }
        }
        Ok(())
    }

    /// Writes or raises the request of a label.
    async fn serve_label(
        &mut self,
        run: &WorkflowRun,
        repository: &Repository,
        label: &RunLabel,
        wanted: &Wanted,
    ) -> Result<(), StoreError> {
        let key = key_of(run, repository, &wanted.name);
        let record = self.request(&key).await?;
        match (for_label(label, wanted, record.as_ref()), record) {
            (ForLabel::Create, _) => self.create(run, repository, &key, label, wanted).await,
            (ForLabel::Raise(count), Some(request)) => {
                let mut next = request.clone();
                next.raise_to(count);
                next.advance(self.clock.now());
                match self.store.write(&next.replacing(&request)).await {
                    // Another writer changed it meanwhile; the next lookup tries again.
                    Ok(_) | Err(StoreError::Refused { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            (ForLabel::Over, Some(request)) => {
                let why = format!("its request is over ({})", said(&request));
                self.not_served(run, repository, label, &why);
                Ok(())
            }
            (ForLabel::Raise(_) | ForLabel::Over, None) | (ForLabel::Nothing, _) => Ok(()),
        }
    }

    async fn create(
        &self,
        run: &WorkflowRun,
        repository: &Repository,
        key: &RequestKey,
        label: &RunLabel,
        wanted: &Wanted,
    ) -> Result<(), StoreError> {
        let uid = Uid::parse(&self.entropy.hex()).expect("hexadecimal digits make a uid");
        let now = self.clock.now();
        let mut request = Request::asked_by_job(key, repository, &wanted.class, wanted.count, uid, now);
        request.status.workflow = Some(run.workflow.clone()).filter(|workflow| !workflow.is_empty());
        match self.store.write(&request.creating()).await {
            Ok(_) => {
                let message = format!(
                    "{key}: {} queued jobs have the label {}: asked for {} of {}",
                    label.queued, label.label, wanted.count, wanted.class
                );
                self.report(key, EventType::Normal, "JobAsked", message);
                Ok(())
            }
            // The workflow or another operator wrote it first.
            Err(StoreError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reports once per attempt and label that its jobs get no machines.
    fn not_served(&mut self, run: &WorkflowRun, repository: &Repository, label: &RunLabel, why: &str) {
        if label.queued == 0 {
            return;
        }
        let rest = label.label.strip_prefix(run_id(run).as_str()).and_then(|rest| rest.strip_prefix('-'));
        let name = rest.and_then(|rest| RequestName::parse(rest).ok());
        let key = key_of(run, repository, &name.unwrap_or_else(RequestName::default_name));
        if self.memory.settled.insert((key.clone(), label.label.clone())) {
            let message = format!("{} queued jobs wait for the label {}: {why}", label.queued, label.label);
            self.report(&key, EventType::Warning, "JobNotServed", message);
        }
    }

    pub(super) fn report(&self, about: &RequestKey, event_type: EventType, reason: &str, message: String) {
        let mut event = Event::new(&Request::key_of(about), self.entropy.hex(), self.clock.now(), "operator");
        event.event_type = event_type;
        event.reason = reason.to_owned();
        event.message = message;
        tracing::info!(request = %about, reason, message = %event.message, "a run at GitHub");
        self.events.send(&event);
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

fn by_workflow(requests: &Requests) -> bool {
    requests.values().any(|held| held.by_workflow)
}

fn said(request: &Request) -> String {
    let phase = request.phase();
    match request.status.message.as_str() {
        "" => phase.to_string(),
        message => format!("{phase}: {message}"),
    }
}
