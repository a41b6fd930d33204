//! The requests of open runs whose records left the table: a run may be re-run, or go on, days after its first request
//! ended, and what it asked for then counts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::controller::records::archive;
use crate::decide::Policy;
use crate::model::{Item, Reading, RecordId, Request, RequestKey, RequestName, RunId, read};
use crate::ports::StoreError;
use crate::ports::github::WorkflowRun;

use super::known::{Held, News, Repo, Requests, number, repo, repository};
use super::{Memory, RunWatch};

/// How long an answer of the history table about a run is believed: more of its requests may have ended meanwhile.
const BELIEVED: Duration = Duration::from_secs(3600);

/// The requests of each run that left the table, and when the history table was asked.
pub(super) type Past = BTreeMap<(Repo, u64), (Duration, Requests)>;

impl RunWatch {
    /// Adds the requests that left the table to those of an open run that are in it. Only a later attempt and a run
    /// that is as old as an ended request becomes in the table can have any.
    pub(super) async fn with_past<'a>(
        &mut self,
        repo: &Repo,
        run: &WorkflowRun,
        requests: &'a Requests,
    ) -> Result<Cow<'a, Requests>, StoreError> {
        let mut all = Cow::Borrowed(requests);
        let now = self.clock.now();
        let is_old = |at| now.duration_since(at) >= Policy::ENDED_STAYS;
        if (run.attempt > 1 || run.started_at.is_none_or(is_old))
            && let Some(repository) = repository(repo)
            && let Ok(run_id) = RunId::parse(&run.id.to_string())
        {
            let name = RequestName::default_name();
            let past = self.past_of(&RequestKey { repository, run_id, name, attempt: 1 }).await?;
            for (key, held) in past {
                all.to_mut().entry(key).or_insert(held);
            }
        }
        Ok(all)
    }

    /// Returns the requests of the same run as this one that left the table.
    pub(super) async fn past_of(&mut self, one: &RequestKey) -> Result<Requests, StoreError> {
        let (Some(history), Some(run)) = (&self.history, number(one)) else { return Ok(Requests::new()) };
        let (of, now) = ((repo(one), run), self.clock.elapsed());
        if let Some((at, past)) = self.memory.past.get(&of)
            && now.saturating_sub(*at) < BELIEVED
        {
            return Ok(past.clone());
        }
        let items = match archive::of_run(&**history, one).await {
            Err(StoreError::NoTable(_) | StoreError::Denied(_)) => Vec::new(),
            items => items?,
        };
        let past: Requests = items.iter().filter_map(held).collect();
        self.memory.past.insert(of, (now, past.clone()));
        Ok(past)
    }

    /// Reads the record of a request that is known to have left the table.
    pub(super) async fn past_record(&self, key: &RequestKey) -> Result<Option<Item>, StoreError> {
        let known = number(key).and_then(|run| self.memory.past.get(&(repo(key), run)));
        match (&self.history, known) {
            (Some(history), Some((_, past))) if past.contains_key(key) => {
                archive::record(&**history, key).await
            }
            (Some(_) | None, _) => Ok(None),
        }
    }
}

impl Memory {
    /// Forgets the past of runs of which a request changed: one may have left the table.
    pub(super) fn past_changed(&mut self, news: &News) {
        self.past.retain(|(repo, run), _| !news.tells_of(repo, *run));
    }

    /// Forgets the past of runs that were not asked about lately.
    pub(super) fn forget_past(&mut self, now: Duration) {
        self.past.retain(|_, (at, _)| now.saturating_sub(*at) < BELIEVED);
    }
}

/// Returns a request that is over, with what counts of it; none for trials and for what cannot be read.
fn held(item: &Item) -> Option<(RequestKey, Held)> {
    let key = RecordId::of(item)?.request()?.clone();
    match read::<Request>(item) {
        Reading::Record(request) if !request.intent.trial => {
            Some((key, Held { live: false, unnamed: false, asked: request.intent.asked }))
        }
        Reading::Record(_) | Reading::Newer { .. } | Reading::Unreadable(_) => None,
    }
}
