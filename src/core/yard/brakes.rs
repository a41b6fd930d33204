//! Repositories after whose jobs machines could not be cleaned. After three such ends in a row each claim of the
//! repository ends its machine for an hour, and its requests wait behind others: one repository must not cost a yard
//! one machine after another. All of it follows from the records of machines, so an operator that starts knows it too.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::model::history::Activity;
use crate::model::{Instance, InstanceId, Life, Reason, Repository};

/// This many failed clean-ups in a row set the brake.
const IN_A_ROW: usize = 3;
/// The time within which they must happen, and for which the brake lasts.
const LASTS: SignedDuration = SignedDuration::from_hours(1);

/// The brake of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Brake {
    /// When it ends.
    pub(crate) until: Timestamp,
    /// The machines that could not be cleaned.
    machines: Vec<InstanceId>,
}

impl Brake {
    /// Describes the brake for people.
    pub(crate) fn told(&self, repository: &str) -> String {
        let machines: Vec<&str> = self.machines.iter().map(InstanceId::as_str).collect();
        format!(
            "clean-ups after jobs of {repository} failed {} times in a row ({}): until {} its machines serve nobody \
             else, and its requests wait behind others",
            machines.len(),
            machines.join(", "),
            self.until
        )
    }
}

/// The results of the clean-ups after a repository's jobs.
#[derive(Clone, Debug, Default)]
struct CleanUps {
    /// The last failures since a clean-up succeeded: the time and the machine.
    failed: BTreeSet<(Timestamp, InstanceId)>,
    /// When a clean-up last succeeded.
    succeeded: Option<Timestamp>,
}

impl CleanUps {
    fn brake(&self, now: Timestamp) -> Option<Brake> {
        let (first, _) = self.failed.first().filter(|_| self.failed.len() >= IN_A_ROW)?;
        let (last, _) = self.failed.last()?;
        let until = last.saturating_add(LASTS).unwrap_or(Timestamp::MAX);
        let machines = || self.failed.iter().map(|(_, machine)| machine.clone()).collect();
        (last.duration_since(*first) <= LASTS && now < until).then(|| Brake { until, machines: machines() })
    }

    fn succeeds(&mut self, at: Timestamp) {
        // A brake that is set lasts, even if another claim of the repository is cleaned meanwhile.
        if self.brake(at).is_none() {
            self.failed.retain(|(failed, _)| *failed > at);
            self.succeeded = self.succeeded.max(Some(at));
        }
    }

    fn fails(&mut self, at: Timestamp, machine: InstanceId) {
        if self.succeeded.is_none_or(|succeeded| succeeded < at) {
            self.failed.insert((at, machine));
            if self.failed.len() > IN_A_ROW {
                self.failed.pop_first();
            }
        }
    }

    /// Returns whether the entry is out of date: a list may still show a clean-up that followed within an hour.
    fn is_over(&self, now: Timestamp) -> bool {
        let last = self.failed.last().map(|(at, _)| *at).max(self.succeeded);
        last.is_none_or(|last| now.duration_since(last) > LASTS * 2)
    }
}

/// The clean-ups of the last two hours, by repository in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brakes(BTreeMap<String, CleanUps>);

impl Brakes {
    /// Processes a change of a machine's record, or its first image.
    pub(super) fn sees(&mut self, old: Option<&Instance>, new: &Instance, now: Timestamp) {
        let Some(request) = new.claim.as_ref().and_then(|claim| claim.request.request()) else { return };
        let ended = |machine: &Instance| !machine.state().live();
        if failed(new) && !old.is_some_and(ended) {
            self.0.retain(|_, known| !known.is_over(now));
            self.of(&request.repository).fails(new.state_since, new.facts.instance_id.clone());
        } else if let Some(at) = new.pooled_at().filter(|_| old.is_none_or(|old| old.pooled_at().is_none())) {
            self.of(&request.repository).succeeds(at);
        }
    }

    fn of(&mut self, repository: &Repository) -> &mut CleanUps {
        self.0.entry(repository.as_str().to_ascii_lowercase()).or_default()
    }

    fn known(&self, repository: &Repository) -> Option<&CleanUps> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&repository.as_str().to_ascii_lowercase())
    }

    /// Returns the brake of a repository, if it is set.
    pub(crate) fn of_repository(&self, repository: &Repository, now: Timestamp) -> Option<Brake> {
        self.known(repository)?.brake(now)
    }

    /// Lists the brakes that are set, by repository in lower case.
    pub(crate) fn set(&self, now: Timestamp) -> impl Iterator<Item = (&str, Brake)> {
        self.0.iter().filter_map(move |(name, known)| Some((name.as_str(), known.brake(now)?)))
    }

    /// Counts the clean-ups that failed in a row in the last hour, by repository in lower case; omits repositories
    /// without any.
    pub(crate) fn failed(&self, now: Timestamp) -> impl Iterator<Item = (&str, usize)> {
        let recent = move |known: &CleanUps| {
            known.failed.iter().filter(|(at, _)| now.duration_since(*at) <= LASTS).count()
        };
        self.0.iter().map(move |(name, known)| (name.as_str(), recent(known))).filter(|(_, count)| *count > 0)
    }
}

/// Returns whether a machine ended because it was not clean in time, or could not be proved clean.
fn failed(machine: &Instance) -> bool {
    match machine.life {
        Life::Terminated { reason: Reason::CleanupFailed, .. } => true,
        Life::Terminated { reason: Reason::Threshold, .. } => {
            machine.spans.last().is_some_and(|span| span.activity == Activity::Cleaning)
        }
        Life::Terminated { .. }
        | Life::Created { .. }
        | Life::Claimed { .. }
        | Life::Running { .. }
        | Life::Idle { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::constant(1_767_614_400, 0);

    fn minute(minute: i64) -> Timestamp {
        NOON + SignedDuration::from_mins(minute)
    }

    fn machine(number: usize) -> InstanceId {
        InstanceId::parse(&format!("i-{number}")).unwrap()
    }

    fn failing(at: &[i64]) -> CleanUps {
        let mut known = CleanUps::default();
        for (number, at) in at.iter().enumerate() {
            known.fails(minute(*at), machine(number));
        }
        known
    }

    #[test]
    fn three_failures_in_a_row_within_an_hour_set_the_brake_for_an_hour() {
        for (at, until) in [
            (&[0, 1][..], None),
            (&[0, 10, 20], Some(80)),
            // In the order in which a list shows them.
            (&[20, 0, 10], Some(80)),
            (&[0, 10, 60], Some(120)),
            (&[0, 10, 61], None),
            (&[0, 30, 61, 80], Some(140)),
        ] {
            let brake = failing(at).brake(minute(*at.iter().max().unwrap()));
            assert_eq!(brake.map(|brake| brake.until), until.map(minute), "{at:?}");
        }
        let known = failing(&[0, 10, 20]);
        assert!(known.brake(minute(79)).is_some());
        assert_eq!(known.brake(minute(80)), None);
    }

    #[test]
    fn a_clean_up_that_succeeds_begins_the_row_anew_but_ends_no_brake() {
        let mut known = failing(&[0, 10]);
        known.succeeds(minute(15));
        known.fails(minute(20), machine(7));
        assert_eq!(known.brake(minute(20)), None);
        // A failure before that is shown late.
        known.fails(minute(12), machine(8));
        known.fails(minute(21), machine(9));
        assert_eq!(known.brake(minute(21)), None);
        known.fails(minute(22), machine(10));
        known.succeeds(minute(23));
        let brake = known.brake(minute(23)).unwrap();
        assert_eq!(
            brake.told("acme/web"),
            "clean-ups after jobs of acme/web failed 3 times in a row (i-7, i-9, i-10): until 2026-01-05T13:22:00Z its \
             machines serve nobody else, and its requests wait behind others"
        );
    }

    #[test]
    fn what_is_older_than_two_hours_is_forgotten() {
        assert!(!failing(&[0]).is_over(minute(120)));
        assert!(failing(&[0]).is_over(minute(121)));
        assert!(CleanUps::default().is_over(NOON));
        let mut brakes = Brakes::default();
        brakes.of(&Repository::parse("Acme/Web").unwrap()).fails(NOON, machine(1));
        assert_eq!(brakes.failed(minute(60)).collect::<Vec<_>>(), [("acme/web", 1)]);
        assert_eq!(brakes.failed(minute(61)).count(), 0);
    }
}
