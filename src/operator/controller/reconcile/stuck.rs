//! Which actions can never succeed? An action that fails ten times in a row for the same reason (three times if GitHub
//! refuses) is reported in the status of its class, with its records and the fix, until it succeeds or is no longer
//! planned. The actions of a class for many subjects are counted for each request and each machine, so that successes
//! in between do not hide a failure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::controller::execute::Failure;
use crate::decide::{Plan, Planned, WaitReason};
use crate::model::ClassName;
use crate::yard::Unit;

use super::Loop;
use super::backoffs::subjects;

/// How long a failure counts as the previous one, if others are tried in between.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The failed action: the unit that planned it, its kind, and its subject.
type Of = (Unit, &'static str, Unit);

/// The number of consecutive failures for the same reason, and the time of the last one.
#[derive(Debug)]
pub(super) struct Failed {
    reason: &'static str,
    times: u32,
    at: Duration,
}

/// The failing actions, by the unit that plans them.
pub(super) type Failing = BTreeMap<Unit, BTreeMap<(&'static str, Unit), Failed>>;

impl Loop {
    /// Records that an action failed.
    pub(super) fn failed(&mut self, unit: &Unit, action: &Planned, failure: &Failure) {
        if failure.passes() {
            return;
        }
        let (reason, at) = (failure.label(), self.ports.clock.elapsed());
        for subject in subjects(unit, action) {
            let of = (unit.clone(), action.kind, subject.clone());
            let failing = self.postponed.failing.entry(unit.clone()).or_default();
            let failed = failing.entry((action.kind, subject)).or_insert(Failed { reason, times: 0, at });
            let times = if failed.reason == reason { failed.times.saturating_add(1) } else { 1 };
            *failed = Failed { reason, times, at };
            if times < failure.persists_after(&action.effect) {
                self.unstick(&of);
            } else {
                self.stick(of, times, action, failure);
            }
        }
    }

    fn stick(&mut self, of: Of, times: u32, action: &Planned, failure: &Failure) {
        let Some(class) = self.class_of_unit(&of.0) else { return };
        let most = failure.persists_after(&action.effect);
        let reported =
            format!("{}: {failure}, {most} times or more in a row; {}", action.describe(), failure.fix());
        if times == most {
            tracing::error!(%class, what = %action.describe(), error = %failure, fix = failure.fix(), "stuck");
        }
        if self.yard.stuck.insert(of, (class.clone(), reported.clone())) != Some((class.clone(), reported)) {
            self.dirty.insert(Unit::Class(class));
        }
    }

    /// Records that an action of this kind succeeded.
    pub(super) fn succeeded(&mut self, unit: &Unit, action: &Planned) {
        if self.postponed.failing.is_empty() {
            return;
        }
        for subject in subjects(unit, action) {
            self.recovers(&(unit.clone(), action.kind, subject));
        }
    }

    /// Drops failures of actions that a unit no longer plans. A class that acts for many serves others first while one
    /// backs off: that one remains stuck until it cannot be planned any more.
    pub(super) fn planned(&mut self, unit: &Unit, plan: &Plan) {
        let Some(failing) = self.postponed.failing.get(unit) else { return };
        let busy = plan.waits.iter().any(|wait| wait.reason == WaitReason::Busy);
        let now = self.ports.clock.elapsed();
        let over = failing.iter().filter(|((kind, subject), failed)| {
            if subject == unit {
                !busy && !plan.actions.iter().any(|action| action.kind == *kind)
            } else {
                failed.at.saturating_add(FORGOTTEN) <= now || !self.may_be_planned(subject)
            }
        });
        for (kind, subject) in over.map(|(of, _)| of.clone()).collect::<Vec<_>>() {
            self.recovers(&(unit.clone(), kind, subject));
        }
    }

    /// Returns whether a class may still act for a request, or with a machine.
    fn may_be_planned(&self, subject: &Unit) -> bool {
        match subject {
            Unit::Request(key) => self.yard.request(key).is_some_and(|request| !request.phase().is_final()),
            Unit::Instance(arn) => {
                self.yard.instance(arn).is_some_and(|tracked| tracked.instance.pooled_at().is_some())
            }
            Unit::Class(_) | Unit::Launch(_) => true,
        }
    }

    fn recovers(&mut self, of: &Of) {
        let (unit, kind, subject) = of;
        if let Some(failing) = self.postponed.failing.get_mut(unit) {
            failing.remove(&(*kind, subject.clone()));
            if failing.is_empty() {
                self.postponed.failing.remove(unit);
            }
        }
        self.unstick(of);
    }

    fn unstick(&mut self, of: &Of) {
        if let Some((class, _)) = self.yard.stuck.remove(of) {
            self.dirty.insert(Unit::Class(class));
        }
    }

    /// Returns the class whose status reports on a unit.
    fn class_of_unit(&self, unit: &Unit) -> Option<ClassName> {
        match unit {
            Unit::Class(class) => Some(class.clone()),
            Unit::Instance(arn) => self.yard.class_of_machine(arn).cloned(),
            Unit::Request(key) => {
                let request = self.yard.request(key)?;
                ClassName::parse(&request.intent.resource_class).ok()
            }
            Unit::Launch(id) => self.yard.launch(id).map(|tracked| tracked.launch.resource_class.clone()),
        }
    }
}
