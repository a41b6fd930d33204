//! Backs off failed actions, longer each time. Each kind of action of a unit backs off by itself, and in a class each
//! request and each machine does: one claim that can never be written must not block the others.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::decide::Planned;
use crate::model::RecordId;
use crate::yard::{Unit, Yard};

use super::units::unit_of;

/// First pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MOST: Duration = Duration::from_secs(30);
/// How long after its backoff another failure still lengthens it.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The minimum time between two wake-ups of actions that wait for GitHub: a GitHub that fails every other call has not
/// recovered.
const WAKE_EVERY: Duration = Duration::from_secs(5);

/// The consecutive failures of an action.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    times: u32,
    /// The end of the pause, on the monotonic clock.
    until: Duration,
    /// Whether it failed because GitHub was unreachable.
    for_github: bool,
}

/// The failed actions.
#[derive(Debug, Default)]
pub(super) struct Backoffs {
    of: BTreeMap<(Unit, &'static str), Backoff>,
    woken: Duration,
}

/// Returns the units that back off when an action fails: its subjects, if a class acts for many.
pub(super) fn subjects(unit: &Unit, action: &Planned) -> Vec<Unit> {
    if action.rests_records { action.slots.iter().filter_map(unit_of).collect() } else { vec![unit.clone()] }
}

/// Returns the records that are neither claimed nor served meanwhile.
fn records(subjects: &[Unit], action: &Planned) -> Vec<RecordId> {
    let key = |unit: &Unit| match unit {
        Unit::Instance(arn) => Some(RecordId::Instance(arn.clone())),
        Unit::Request(id) => Some(id.into()),
        Unit::Class(_) | Unit::Launch(_) => None,
    };
    subjects.iter().filter(|_| action.rests_records).filter_map(key).collect()
}

impl Backoffs {
    /// Returns the end of an action's pause, if it backs off.
    pub(super) fn until(&self, unit: &Unit, action: &Planned, now: Duration) -> Option<Duration> {
        if self.of.is_empty() {
            return None;
        }
        let rest = |subject| self.of.get(&(subject, action.kind)).map(|backoff| backoff.until);
        subjects(unit, action).into_iter().filter_map(rest).max().filter(|until| now < *until)
    }

    /// Returns whether the last action of this kind failed too.
    pub(super) fn failed_before(&self, unit: &Unit, action: &Planned) -> bool {
        subjects(unit, action).into_iter().any(|subject| self.of.contains_key(&(subject, action.kind)))
    }

    /// Records the success of an action.
    pub(super) fn succeeded(&mut self, unit: &Unit, action: &Planned, yard: &mut Yard) {
        if self.of.is_empty() {
            return;
        }
        let subjects = subjects(unit, action);
        for key in records(&subjects, action) {
            yard.backoffs.remove(&key);
        }
        for subject in subjects {
            self.of.remove(&(subject, action.kind));
        }
    }

    /// Ends the pauses of actions that failed because GitHub was unreachable, once it responds again. Returns their
    /// units.
    pub(super) fn github_is_back(&mut self, now: Duration) -> Vec<Unit> {
        if now < self.woken.saturating_add(WAKE_EVERY) {
            return Vec::new();
        }
        let waits = |backoff: &Backoff| backoff.for_github && backoff.until > now;
        let waiting: Vec<_> = self.of.iter_mut().filter(|(_, backoff)| waits(backoff)).collect();
        if !waiting.is_empty() {
            self.woken = now;
        }
        let wake = |((unit, _), backoff): (&(Unit, &'static str), &mut Backoff)| {
            backoff.until = now;
            unit.clone()
        };
        waiting.into_iter().map(wake).collect()
    }

    /// Records a failure and returns the backoff; `None` for the first `free` failures, which are retried at once. Each
    /// subject backs off by its own failures, and a machine twice as long as its request, which another machine can
    /// serve meanwhile. Whether GitHub was unreachable is stored with it.
    pub(super) fn failed(
        &mut self,
        unit: &Unit,
        action: &Planned,
        (free, for_github): (u32, bool),
        now: Duration,
        yard: &mut Yard,
    ) -> Option<Duration> {
        let subjects = subjects(unit, action);
        let counted = |subject| {
            let first = Backoff { times: 0, until: now, for_github };
            let backoff = self.of.entry((subject, action.kind)).or_insert(first);
            *backoff = Backoff { times: backoff.times.saturating_add(1), for_github, ..*backoff };
            backoff.times
        };
        let times: Vec<u32> = subjects.iter().cloned().map(counted).collect();
        if times.iter().all(|times| *times <= free) {
            return None;
        }
        let mut longest = Duration::ZERO;
        for (subject, times) in subjects.into_iter().zip(times) {
            let doubled = times.saturating_sub(free.saturating_add(1)).min(10);
            let others = matches!((unit, &subject), (Unit::Class(_), Unit::Instance(_)));
            let pause = (PAUSE * 2_u32.pow(doubled)).min(PAUSE_MOST) * if others { 2 } else { 1 };
            // Jitter from the low digits of the clock, so that actions that failed together are not retried together.
            let until = now + pause + pause.mul_f64(f64::from(now.subsec_nanos() % 1000) / 4000.0);
            let keys = records(std::slice::from_ref(&subject), action);
            yard.backoffs.extend(keys.into_iter().map(|key| (key, until)));
            self.of.entry((subject, action.kind)).and_modify(|backoff| backoff.until = until);
            longest = longest.max(pause);
        }
        Some(longest)
    }

    /// Drops old failures.
    pub(super) fn forget(&mut self, now: Duration, yard: &mut Yard) {
        self.of.retain(|_, backoff| backoff.until.saturating_add(FORGOTTEN) > now);
        yard.backoffs.retain(|_, until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ClassName;

    fn class() -> Unit {
        Unit::Class(ClassName::parse("linux").unwrap())
    }

    fn look(name: &str) -> Planned {
        Planned::look(RecordId::new(format!("pool#{name}"), "pool"))
    }

    #[test]
    fn what_failed_rests_longer_each_time_and_is_forgotten_with_a_success() {
        let (mut backoffs, mut yard) = (Backoffs::default(), Yard::default());
        let mut now = Duration::from_secs(100);
        for millis in [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            assert_eq!(backoffs.until(&class(), &look("a"), now), None);
            let pause = backoffs.failed(&class(), &look("a"), (0, false), now, &mut yard);
            assert_eq!(pause, Some(Duration::from_millis(millis)));
            let until = backoffs.until(&class(), &look("a"), now).unwrap();
            assert!(until >= now + Duration::from_millis(millis), "{until:?}");
            assert!(backoffs.failed_before(&class(), &look("a")));
            now = until;
        }
        let expire = Planned::expire(RecordId::new("event#1", "event"), 0);
        assert!(!backoffs.failed_before(&class(), &expire), "kinds rest apart");
        backoffs.succeeded(&class(), &look("a"), &mut yard);
        assert!(!backoffs.failed_before(&class(), &look("a")));
    }

    #[test]
    fn what_waits_for_github_is_tried_when_it_is_back_and_not_more_often_than_it_is() {
        let (mut backoffs, mut yard) = (Backoffs::default(), Yard::default());
        let mut now = Duration::from_secs(100);
        for _ in 0..9 {
            backoffs.failed(&class(), &look("a"), (0, true), now, &mut yard);
        }
        let other = Unit::Class(ClassName::parse("other").unwrap());
        backoffs.failed(&other, &look("a"), (0, false), now, &mut yard);
        assert!(backoffs.until(&class(), &look("a"), now).unwrap() > now + Duration::from_secs(20));
        assert_eq!(backoffs.github_is_back(now), [class()]);
        assert_eq!(backoffs.until(&class(), &look("a"), now), None);
        assert!(backoffs.until(&other, &look("a"), now).is_some(), "it failed for another reason");
        // It fails again, and backs off longer than before.
        let pause = backoffs.failed(&class(), &look("a"), (0, true), now, &mut yard);
        assert_eq!(pause, Some(Duration::from_millis(30_000)));
        now += Duration::from_secs(4);
        assert_eq!(backoffs.github_is_back(now), [], "every other call fails");
        now += Duration::from_secs(1);
        assert_eq!(backoffs.github_is_back(now), [class()]);
    }

    #[test]
    fn what_only_lost_a_race_is_tried_again_at_once_twice() {
        let (mut backoffs, mut yard) = (Backoffs::default(), Yard::default());
        let now = Duration::from_secs(100);
        let mut lose = || backoffs.failed(&class(), &look("a"), (2, false), now, &mut yard);
        assert_eq!([lose(), lose(), lose()], [None, None, Some(PAUSE)]);
    }
}
