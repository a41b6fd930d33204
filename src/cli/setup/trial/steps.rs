//! The steps of a trial, and when each was reached.

use std::time::Duration;

use jiff::Timestamp;

use runyard_core::model::Instance;

/// A step, in the order of a successful trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// The operator accepted the request.
    Accepted,
    /// The machine has a record.
    Launched,
    /// Its agent wrote to its record for the first time.
    AgentSpeaks,
    /// Its first boot has finished.
    Booted,
    /// Its runner is registered and listens.
    Listens,
    /// The request was released.
    GivenBack,
    /// The machine is clean.
    Cleaned,
    /// The machine is gone.
    Ended,
}

impl Step {
    /// Returns the step's name for programs.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Launched => "launched",
            Self::AgentSpeaks => "agent",
            Self::Booted => "booted",
            Self::Listens => "listens",
            Self::GivenBack => "given-back",
            Self::Cleaned => "cleaned",
            Self::Ended => "ended",
        }
    }

    /// Returns the step's description for people.
    pub(super) const fn said(self) -> &'static str {
        match self {
            Self::Accepted => "the operator accepted the request",
            Self::Launched => "a machine is there",
            Self::AgentSpeaks => "its agent wrote for the first time",
            Self::Booted => "its first boot is over",
            Self::Listens => "its runner is registered and listens",
            Self::GivenBack => "given back",
            Self::Cleaned => "cleaned",
            Self::Ended => "ended",
        }
    }
}

/// The steps reached so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    reached: Vec<(Step, Duration)>,
    told: usize,
    /// The machine, once there is one.
    machine: String,
    /// Whether it was in the pool before the request.
    warm: bool,
}

impl Steps {
    /// Records a step the first time it is seen. A warm machine booted before the trial.
    pub(super) fn reached(&mut self, step: Step, at: Duration) {
        let booted_before = self.warm && matches!(step, Step::AgentSpeaks | Step::Booted);
        if !booted_before && !self.reached.iter().any(|(before, _)| *before == step) {
            self.reached.push((step, at));
        }
    }

    /// Records that the machine's record exists. A machine that is older than the request's acceptance, by the
    /// operator's clock, did not boot for it.
    pub(super) fn launched(&mut self, machine: &Instance, accepted_at: Option<Timestamp>, at: Duration) {
        let facts = &machine.facts;
        if self.machine.is_empty() {
            self.warm = accepted_at.is_some_and(|accepted| facts.created_at < accepted);
            let whence = if self.warm { "free in the pool: nothing boots" } else { "launched for this" };
            self.machine = format!(
                "{} {} {} ({whence})",
                facts.instance_id, facts.instance_type, facts.availability_zone
            );
        }
        self.reached(Step::Launched, at);
    }

    /// Returns whether the machine was in the pool before the request.
    pub(super) const fn warm(&self) -> bool {
        self.warm
    }

    /// Returns a line for each step reached since the last call.
    pub(super) fn news(&mut self) -> Vec<String> {
        let new = &self.reached[self.told..];
        let line = |(step, at): &(Step, Duration)| {
            let machine = if *step == Step::Launched { format!(": {}", self.machine) } else { String::new() };
            format!("{:.1}s: {}{machine}", at.as_secs_f64(), step.said())
        };
        let lines = new.iter().map(line).collect();
        self.told = self.reached.len();
        lines
    }

    /// Returns all steps in the order in which they were reached.
    pub(super) fn table(&self) -> Vec<(Step, Duration)> {
        let mut all = self.reached.clone();
        all.sort_by_key(|(step, at)| (*at, *step));
        all
    }

    /// Returns how long the machine existed.
    pub(super) fn lived(&self) -> Duration {
        let at = |wanted| self.reached.iter().find(|(step, _)| *step == wanted).map(|(_, at)| *at);
        let last = self.reached.iter().map(|(_, at)| *at).max().unwrap_or_default();
        at(Step::Ended).unwrap_or(last).saturating_sub(at(Step::Launched).unwrap_or(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_when_it_is_first_seen_and_is_told_once() {
        let mut steps = Steps::default();
        steps.reached(Step::Accepted, Duration::from_millis(300));
        steps.reached(Step::Launched, Duration::from_secs(2));
        steps.reached(Step::Accepted, Duration::from_secs(9));
        assert_eq!(steps.news().len(), 2);
        assert_eq!(steps.news(), [""; 0]);
        steps.reached(Step::Ended, Duration::from_secs(62));
        assert_eq!(steps.news(), ["62.0s: ended"]);
        assert_eq!(steps.table()[0], (Step::Accepted, Duration::from_millis(300)));
        assert_eq!(steps.lived(), Duration::from_secs(60));
    }

    #[test]
    fn a_warm_machine_boots_in_no_trial() {
        let mut steps = Steps { warm: true, ..Steps::default() };
        for step in [Step::AgentSpeaks, Step::Booted, Step::Listens] {
            steps.reached(step, Duration::from_millis(100));
        }
        assert_eq!(steps.table(), [(Step::Listens, Duration::from_millis(100))]);
    }
}
