//! The messages of a set: one batch at a time, which comes again until it is deleted, and the counts with it.

use jiff::Timestamp;
use runyard_core::ports::scale_sets::Statistics;

use super::ScaleSetService;
use super::types::{Batch, JobFacts, JobNews, JobPlace, NewsKind, Set, SetRefusal};

/// The most parts of a batch (\[s\]).
const BATCH: usize = 50;

impl ScaleSetService {
    /// Returns the next message after `last`, if there is one, and remembers the announced capacity.
    ///
    /// # Errors
    /// A credential that is over, which includes that of a session which was evicted.
    pub fn message(
        &mut self,
        set: u64,
        (session, token): (&str, &str),
        last: Option<u64>,
        capacity: u32,
        now: Timestamp,
    ) -> Result<Option<Batch>, SetRefusal> {
        self.tick(now);
        self.listens(set, session, token, now)?;
        let found = self.set_mut(set)?;
        if found.capacity.replace(capacity) != Some(capacity) {
            self.changed();
            self.offer(now);
        }
        if capacity == 0 && self.behaviour.zero_is_a_trap {
            return Ok(None);
        }
        let statistics = self.statistics(set);
        let after = if self.behaviour.repeats_the_last { 0 } else { last.unwrap_or(0) };
        let odd = self.behaviour.unknown_news;
        let found = self.set_mut(set)?;
        let batched = found.batches.range(after + 1..).next().is_none() && found.batch(now, odd);
        let next = found.batches.range(after + 1..).next();
        let next = next.map(|(id, news)| Batch { id: *id, news: news.clone(), statistics });
        if batched {
            self.changed();
        }
        Ok(next)
    }

    /// Deletes a message; one that does not exist is success.
    ///
    /// # Errors
    /// A credential that is over.
    pub fn delete_message(
        &mut self,
        set: u64,
        (session, token): (&str, &str),
        id: u64,
        now: Timestamp,
    ) -> Result<(), SetRefusal> {
        self.tick(now);
        self.listens(set, session, token, now)?;
        if self.set_mut(set)?.batches.remove(&id).is_some() {
            self.changed();
        }
        Ok(())
    }

    /// Notes that a listener is alive, and returns its session's error otherwise.
    ///
    /// # Errors
    /// A credential that is over.
    pub fn listens(
        &mut self,
        set: u64,
        session: &str,
        token: &str,
        now: Timestamp,
    ) -> Result<(), SetRefusal> {
        let found = self.sets.get_mut(&set).and_then(|set| set.session.as_mut());
        let found = found.filter(|open| open.id == session && open.accepts(token, now));
        found.ok_or(SetRefusal::TokenExpired)?.last_seen = now;
        Ok(())
    }

    /// Returns the set whose session has this credential.
    ///
    /// # Errors
    /// There is no such set, or the credential is over.
    pub fn session_of(&self, set: u64, token: &str, now: Timestamp) -> Result<(), SetRefusal> {
        let session = self.sets.get(&set).ok_or(SetRefusal::NoSet(set))?.session.as_ref();
        let accepted = session.is_some_and(|session| session.accepts(token, now));
        if accepted { Ok(()) } else { Err(SetRefusal::TokenExpired) }
    }

    /// Returns the counts of a set.
    #[must_use]
    pub fn statistics(&self, set: u64) -> Statistics {
        let jobs = |counts: &dyn Fn(JobPlace) -> bool| {
            count(self.jobs.values().filter(|job| job.place.set() == Some(set) && counts(job.place)).count())
        };
        let runners = |busy: bool| {
            let of = self.runners.values().filter(|runner| runner.set == set);
            count(of.filter(|runner| self.runs(runner.job) == busy).count())
        };
        let available = jobs(&|place| !place.assigned());
        let assigned = jobs(&JobPlace::assigned);
        Statistics {
            available,
            acquired: assigned,
            assigned: assigned.saturating_add(self.behaviour.stale_assigned),
            running: jobs(&JobPlace::running),
            registered: runners(true) + runners(false),
            busy: runners(true),
            idle: runners(false),
        }
    }

    /// Adds news of a job to the set that has it.
    pub(super) fn tell(
        &mut self,
        set: u64,
        kind: NewsKind,
        job: &JobFacts,
        result: &str,
        at: Timestamp,
        runner: Option<u64>,
    ) {
        let runner = runner
            .map(|id| (id, self.runners.get(&id).map(|runner| runner.name.clone()).unwrap_or_default()));
        let news = JobNews { kind, job: job.clone(), runner, result: result.to_owned() };
        if let Some(set) = self.sets.get_mut(&set) {
            set.news.push((at, news));
            self.changed();
        }
    }

    fn runs(&self, job: Option<u64>) -> bool {
        job.and_then(|job| self.jobs.get(&job)).is_some_and(|job| job.place.running())
    }
}

impl Set {
    /// Makes a batch of the news that may be told now, and returns whether there were any.
    fn batch(&mut self, now: Timestamp, odd: bool) -> bool {
        let mut news = self.due(now);
        let Some(last) = news.last().cloned() else { return false };
        if odd {
            news.push(JobNews { kind: NewsKind::Unknown, ..last });
        }
        self.last_batch += 1;
        self.batches.insert(self.last_batch, news);
        true
    }

    /// Takes the news that may be told now, as many as one batch holds.
    fn due(&mut self, now: Timestamp) -> Vec<JobNews> {
        let mut taken = 0;
        let due = |(at, _): &mut (Timestamp, JobNews)| {
            let due = *at <= now && taken < BATCH;
            taken += usize::from(due);
            due
        };
        self.news.extract_if(.., due).map(|(_, news)| news).collect()
    }
}

fn count(many: usize) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}
