//! Jobs of sets, from the queue to the end.

use jiff::Timestamp;

use super::ScaleSetService;
use super::types::{JobFacts, JobPlace, JobWish, NewsKind, Set, SetJob};
use crate::github::behaviour::{Completion, Routing};

/// The result of an assignment that ends without a runner (\[s\]).
const CANCELED: &str = "canceled";

impl ScaleSetService {
    /// Takes note of a queued job. One whose number is known is not queued again. A job that is queued while the only
    /// set for it has announced a capacity of 0 is never offered (\[live\]).
    pub fn queue_job(&mut self, number: u64, wish: JobWish, now: Timestamp) {
        self.tick(now);
        if self.jobs.contains_key(&number) {
            return;
        }
        let facts = JobFacts {
            number,
            job_id: job_id(number, 0),
            owner: wish.owner,
            repository: wish.repository,
            run_id: wish.run_id,
            name: wish.name,
            labels: wish.labels,
            queued_at: now,
            assigned_at: None,
            taken_at: None,
            finished_at: None,
        };
        let served: Vec<Option<u32>> = self.serving(&facts).map(|set| set.capacity).collect();
        let shut =
            served.contains(&Some(0)) && !served.iter().any(|capacity| capacity.is_some_and(|c| c > 0));
        let place = match shut && self.behaviour.zero_is_a_trap {
            true => JobPlace::Trapped,
            false => JobPlace::Waiting,
        };
        self.jobs.insert(number, SetJob { facts, place, assignments: 0 });
        self.changed();
        self.offer(now);
    }

    /// Returns the job of this number, if it is not over.
    #[must_use]
    pub fn job(&self, number: u64) -> Option<&SetJob> {
        self.jobs.get(&number)
    }

    /// Returns whether a set has this job, so that no runner without a set gets it.
    #[must_use]
    pub fn holds(&self, number: u64) -> bool {
        self.jobs.get(&number).is_some_and(|job| job.place.set().is_some())
    }

    /// Acquires the jobs that are available to a set, and returns the numbers of those that it has then.
    pub fn acquire(&mut self, set: u64, numbers: &[u64], now: Timestamp) -> Vec<u64> {
        self.tick(now);
        for number in numbers {
            let available = |job: &SetJob| job.place == JobPlace::Available { set };
            if self.jobs.get(number).is_some_and(available) {
                self.assign(*number, set, now);
            }
        }
        let has = |number: &u64| {
            self.jobs.get(number).is_some_and(|job| job.place.set() == Some(set) && job.place.assigned())
        };
        numbers.iter().copied().filter(has).collect()
    }

    /// Returns the job of a runner whose listener asks for one: the one it has, or any waiting one of its set (\[live\]).
    pub fn runner_connects(&mut self, runner: u64, now: Timestamp) -> Option<u64> {
        self.tick(now);
        let asking = self.runners.get(&runner)?;
        if asking.job.is_some() {
            return asking.job;
        }
        let set = asking.set;
        let free = |job: &&SetJob| match job.place {
            JobPlace::Assigned { set: of, free, .. } => free && of == set,
            JobPlace::Waiting
            | JobPlace::Trapped
            | JobPlace::Available { .. }
            | JobPlace::Taken { .. }
            | JobPlace::Running { .. } => false,
        };
        let waiting: Vec<u64> = self.jobs.values().filter(free).map(|job| job.facts.number).collect();
        let number = match self.behaviour.routing {
            Routing::Oldest => waiting.first(),
            Routing::Newest => waiting.last(),
            Routing::Scattered => waiting.get(runner as usize % waiting.len().max(1)),
        };
        let number = *number?;
        let job = self.jobs.get_mut(&number)?;
        job.place = JobPlace::Taken { set, runner };
        job.facts.taken_at = Some(now);
        self.runners.get_mut(&runner)?.job = Some(number);
        self.changed();
        Some(number)
    }

    /// Begins the job that is on its way to a runner. From here on it goes to no other.
    pub fn job_starts(&mut self, number: u64, now: Timestamp) {
        self.tick(now);
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let (set, runner) = match job.place {
            JobPlace::Taken { set, runner } => (set, runner),
            JobPlace::Waiting
            | JobPlace::Trapped
            | JobPlace::Available { .. }
            | JobPlace::Assigned { .. }
            | JobPlace::Running { .. } => return,
        };
        job.place = JobPlace::Running { set, runner };
        let facts = job.facts.clone();
        self.tell(set, NewsKind::Started, &facts, "", now, Some(runner));
        match self.behaviour.completion {
            Completion::Early => {
                let facts = JobFacts { finished_at: Some(now), ..facts };
                self.tell(set, NewsKind::Completed, &facts, "succeeded", now, Some(runner));
            }
            Completion::OnTime | Completion::Late(_) | Completion::Never => {}
        }
        self.changed();
    }

    /// Takes a job that has not begun away from its runner: it lapses first, and then goes to another one.
    pub fn job_returns(&mut self, number: u64, now: Timestamp) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        match job.place {
            JobPlace::Taken { set, runner } => {
                job.place = JobPlace::Assigned { set, since: now, free: false };
                job.facts.taken_at = None;
                if let Some(runner) = self.runners.get_mut(&runner) {
                    runner.job = None;
                }
                self.changed();
            }
            JobPlace::Waiting
            | JobPlace::Trapped
            | JobPlace::Available { .. }
            | JobPlace::Assigned { .. }
            | JobPlace::Running { .. } => {}
        }
    }

    /// Ends a job, begun or not, with a result such as `succeeded`; its runner, which is a single-use one, is gone.
    pub fn job_ends(&mut self, number: u64, result: &str, now: Timestamp) {
        self.tick(now);
        let Some(job) = self.jobs.remove(&number) else { return };
        self.changed();
        let begun = job.place.running();
        let at = match self.behaviour.completion {
            Completion::OnTime => Some(now),
            Completion::Late(by) => Some(now + by),
            Completion::Never => None,
            Completion::Early => (!begun).then_some(now),
        };
        let facts = JobFacts { finished_at: Some(now), ..job.facts };
        if let (Some(at), Some(set)) = (at, job.place.set()) {
            self.tell(set, NewsKind::Completed, &facts, result, at, job.place.runner());
        }
        if let Some(runner) = job.place.runner() {
            self.runners.remove(&runner);
        }
        self.offer(now);
    }

    /// Offers waiting jobs to the sets that serve them, each to the first that may hold one more.
    pub(super) fn offer(&mut self, now: Timestamp) {
        let waiting = self.jobs.values().filter(|job| job.place == JobPlace::Waiting);
        let waiting: Vec<u64> = waiting.map(|job| job.facts.number).collect();
        for number in waiting {
            let Some(job) = self.jobs.get(&number) else { continue };
            let room = |set: &&Set| set.capacity.is_some_and(|most| self.held(set.id) < most);
            let Some(set) = self.serving(&job.facts).find(room).map(|set| set.id) else { continue };
            match self.behaviour.acquires {
                true => self.make_available(number, set, now),
                false => self.assign(number, set, now),
            }
        }
    }

    /// Lets assignments lapse that no runner took in time: the job is assigned again under another name.
    pub(super) fn lapse(&mut self, now: Timestamp) {
        let (after, reassigned) = (self.behaviour.lapse, self.behaviour.reassigned);
        let late = |job: &&SetJob| match job.place {
            JobPlace::Assigned { since, .. } => since + after <= now && job.assignments <= reassigned,
            JobPlace::Waiting
            | JobPlace::Trapped
            | JobPlace::Available { .. }
            | JobPlace::Taken { .. }
            | JobPlace::Running { .. } => false,
        };
        while let Some(job) = self.jobs.values().find(late).cloned() {
            let JobPlace::Assigned { set, since, .. } = job.place else { return };
            let at = since + after;
            let over = JobFacts { finished_at: Some(at), ..job.facts.clone() };
            self.tell(set, NewsKind::Completed, &over, CANCELED, at, None);
            self.assign(job.facts.number, set, at);
        }
    }

    /// Gives up jobs that were queued for too long.
    pub(super) fn give_up(&mut self, now: Timestamp) {
        let queued = self.behaviour.queued;
        let old = |job: &&SetJob| job.place.runner().is_none() && job.facts.queued_at + queued <= now;
        let old: Vec<SetJob> = self.jobs.values().filter(old).cloned().collect();
        for job in old {
            self.jobs.remove(&job.facts.number);
            self.changed();
            if let Some(set) = job.place.set() {
                let facts = JobFacts { finished_at: Some(now), ..job.facts };
                self.tell(set, NewsKind::Completed, &facts, CANCELED, now, None);
            }
        }
    }

    /// Lists the sets that serve a job, the oldest first.
    fn serving<'a>(&'a self, facts: &'a JobFacts) -> impl Iterator<Item = &'a Set> {
        self.sets.values().filter(move |set| set.serves(facts))
    }

    fn held(&self, set: u64) -> u32 {
        let held = self.jobs.values().filter(|job| job.place.set() == Some(set)).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    fn make_available(&mut self, number: u64, set: u64, now: Timestamp) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.place = JobPlace::Available { set };
        let facts = job.facts.clone();
        self.tell(set, NewsKind::Available, &facts, "", now, None);
    }

    fn assign(&mut self, number: u64, set: u64, now: Timestamp) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.facts.job_id = job_id(number, job.assignments);
        job.facts.assigned_at = Some(now);
        job.assignments += 1;
        job.place = JobPlace::Assigned { set, since: now, free: true };
        let facts = job.facts.clone();
        self.tell(set, NewsKind::Assigned, &facts, "", now, None);
    }
}

/// Returns the name of an assignment, in the form of GitHub's.
fn job_id(number: u64, assignment: u32) -> String {
    format!("{assignment:08x}-0000-4000-8000-{number:012x}")
}
