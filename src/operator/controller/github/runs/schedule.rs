//! When is which lookup at GitHub due? At most five a second in all; those of a repository with open requests come four
//! times as often as others, and all of them more rarely the more of the hourly budget is used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::RequestKey;

use super::known::Repo;
use crate::controller::github::rests::Rests;

/// The minimum interval between two lookups at GitHub, however many repositories there are.
pub(super) const TICK: Duration = Duration::from_millis(200);
/// How much more often a repository with open requests is looked at.
const OPEN: u32 = 4;
/// The part of the hourly budget from which on lookups become rarer.
const HALF: f64 = 0.5;
/// The least remaining part of the budget that counts, so that no interval is endless.
const LEAST_LEFT: f64 = 0.05;
/// The minimum interval between two lookups of a repository of which GitHub says that a job was queued.
const RUNG: Duration = Duration::from_secs(2);

/// The object of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// The runs of a repository.
    Repository(Repo),
    /// The run of a request that lost a spot machine.
    Lost(RequestKey),
}

impl Look {
    /// Returns the account of the lookup.
    pub(super) fn owner(&self) -> &str {
        match self {
            Self::Repository((owner, _)) => owner,
            Self::Lost(key) => key.repository.owner(),
        }
    }
}

/// Returns the interval of a lookup, from the configured one.
pub(super) fn interval(every: Duration, open: bool, used: f64) -> Duration {
    let usual = if open { every / OPEN } else { every };
    if is_scarce(used) { usual.mul_f64(1.0 / (1.0 - used).clamp(LEAST_LEFT, 1.0)) } else { usual }
}

/// Returns whether so much of the hourly budget is used that the rest is saved.
pub(super) fn is_scarce(used: f64) -> bool {
    used >= HALF
}

/// The time of each next lookup.
#[derive(Default)]
pub(super) struct Schedule {
    due: BTreeMap<Look, Duration>,
    /// When each repository was looked at last.
    last: BTreeMap<Repo, Duration>,
    /// The repositories that rang since they were looked at.
    rung: BTreeSet<Repo>,
    /// Whether the next turn is that of the longest overdue, because the last one was that of a repository that rang.
    overdue_next: bool,
    /// The accounts that are paused after a lookup failed.
    rests: Rests,
    /// Until when nothing is looked up: the table did not respond.
    rest: Duration,
    /// Until when nothing is looked up after the last lookup, however many repositories ring.
    paced: Duration,
}

impl Schedule {
    /// Drops everything, because this operator no longer leads.
    pub(super) fn clear(&mut self) {
        (self.due, self.last, self.rung) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    }

    /// Schedules new lookups, spread over the interval, and drops all others.
    pub(super) fn follow(&mut self, looks: BTreeSet<Look>, every: Duration, now: Duration) {
        self.rests.forget(now);
        self.due.retain(|look, _| looks.contains(look));
        self.last.retain(|repo, _| self.due.contains_key(&Look::Repository(repo.clone())));
        self.rung.retain(|repo| self.due.contains_key(&Look::Repository(repo.clone())));
        let count = u32::try_from(looks.len()).unwrap_or(u32::MAX).max(1);
        for (place, look) in (0..).zip(looks) {
            self.due.entry(look).or_insert_with(|| now + every / count * place);
        }
    }

    /// Returns the lookup that is the longest overdue; one that fails again and again queues behind the others. Every
    /// second turn is that of a repository that rang: its jobs wait, and no flood of rings keeps the others waiting.
    pub(super) fn next(&self, now: Duration) -> Option<Look> {
        if now < self.rest.max(self.paced) {
            return None;
        }
        let ready = || self.due.iter().filter(|(look, at)| **at <= now && !self.rests.has(look.owner(), now));
        let rung = ready().filter(|(look, _)| self.rang(look) && !self.overdue_next);
        let first = rung.min_by_key(|(_, at)| **at).or_else(|| ready().min_by_key(|(_, at)| **at));
        first.map(|(look, _)| look.clone())
    }

    /// Sets when a lookup is made again.
    pub(super) fn again(&mut self, look: Look, now: Duration, wait: Duration) {
        self.paced = now + TICK;
        self.overdue_next = self.rang(&look) && !self.overdue_next;
        if let Look::Repository(repo) = &look {
            self.rung.remove(repo);
            self.last.insert(repo.clone(), now);
        }
        self.due.insert(look, now + wait);
    }

    /// Looks at a repository at once, because a job of it was queued, and at most once in two seconds.
    pub(super) fn ring(&mut self, repo: Repo, now: Duration) {
        let soonest = self.last.get(&repo).map_or(now, |last| now.max(*last + RUNG));
        self.rung.insert(repo.clone());
        let due = self.due.entry(Look::Repository(repo)).or_insert(soonest);
        *due = soonest.min(*due);
    }

    fn rang(&self, look: &Look) -> bool {
        match look {
            Look::Repository(repo) => self.rung.contains(repo),
            Look::Lost(_) => false,
        }
    }

    /// Returns whether a repository is looked at anyway.
    pub(super) fn has(&self, repo: &Repo) -> bool {
        self.due.contains_key(&Look::Repository(repo.clone()))
    }

    /// Returns how long nothing is due.
    pub(super) fn wake(&self, now: Duration) -> Duration {
        let soonest = self.due.values().min().copied().unwrap_or(Duration::MAX);
        soonest.max(self.rest).max(self.paced).saturating_sub(now)
    }

    /// Pauses an account.
    pub(super) fn rest_account(&mut self, owner: &str, until: Duration) {
        self.rests.begin(owner, until);
    }

    /// Pauses everything.
    pub(super) fn rest_all(&mut self, until: Duration) {
        self.rest = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(60);

    fn look(name: &str) -> Look {
        Look::Repository(("acme".into(), name.into()))
    }

    #[test]
    fn lookups_become_rarer_the_more_of_the_budget_is_used() {
        for (open, used, seconds) in [
            (false, 0.0, 60),
            (true, 0.0, 15),
            (false, 0.49, 60),
            (false, 0.5, 120),
            (true, 0.75, 60),
            (false, 0.9, 600),
            (false, 1.0, 1200),
        ] {
            let found = interval(EVERY, open, used);
            assert_eq!(found.as_secs_f64().round() as u64, seconds, "{open} {used}");
        }
    }

    #[test]
    fn first_lookups_are_spread_over_the_interval() {
        let mut schedule = Schedule::default();
        let looks: BTreeSet<Look> = (0..60).map(|number| look(&format!("r{number:02}"))).collect();
        schedule.follow(looks, EVERY, Duration::ZERO);
        let due: BTreeSet<u64> = schedule.due.values().map(Duration::as_secs).collect();
        assert_eq!(due, (0..60).collect());
    }

    #[test]
    fn a_ring_is_a_lookup_at_once_and_many_are_one_in_two_seconds() {
        let mut schedule = Schedule::default();
        schedule.follow(BTreeSet::from([look("web")]), EVERY, Duration::ZERO);
        schedule.again(look("web"), Duration::ZERO, EVERY);
        for now in [Duration::from_millis(500), Duration::from_secs(1)] {
            schedule.ring(("acme".into(), "web".into()), now);
            assert_eq!(schedule.next(now), None);
        }
        assert_eq!(schedule.next(RUNG), Some(look("web")));
        schedule.ring(("acme".into(), "new".into()), RUNG);
        schedule.again(look("web"), RUNG, EVERY);
        assert_eq!(schedule.next(RUNG), None, "not two at once");
        assert_eq!(schedule.next(RUNG + TICK), Some(look("new")), "one that was not known is looked at, too");
    }

    /// Repositories that ring again and again and one that never does, all of them overdue.
    #[test]
    fn every_second_turn_is_that_of_a_repository_that_rang() {
        let (mut schedule, names) = (Schedule::default(), ["a", "b", "c", "d", "e", "f"]);
        schedule.follow(names.map(look).into(), EVERY, Duration::ZERO);
        let mut now = 2 * EVERY;
        let mut seen = Vec::new();
        for _ in 0..6 {
            for name in ["e", "f"] {
                schedule.ring(("acme".into(), name.into()), now);
            }
            now += RUNG;
            let next = schedule.next(now).unwrap();
            schedule.again(next.clone(), now, EVERY);
            seen.push(next);
        }
        assert_eq!(seen, ["e", "a", "f", "b", "e", "c"].map(look));
    }
}
