//! Which actions can never succeed? One that fails ten times in a row for the same reason is said in the status of its
//! class, with the records it is about and what a person can do, until it succeeds or is not planned any more.

use std::collections::BTreeMap;

use crate::controller::execute::Failure;
use crate::decide::{Action, Plan, Unit};
use crate::model::ClassName;

use super::Loop;

/// So many failures in a row are no bad luck.
const TIMES: u32 = 10;

/// How often each action failed in a row for the same reason, by unit and kind.
pub(super) type Failing = BTreeMap<(Unit, &'static str), (&'static str, u32)>;

impl Loop {
    /// Notes that an action failed.
    pub(super) fn failed(&mut self, unit: &Unit, action: &Action, failure: &Failure) {
        let of = (unit.clone(), action.kind());
        let (reason, times) = self.failing.entry(of.clone()).or_insert((failure.label(), 0));
        if *reason != failure.label() {
            (*reason, *times) = (failure.label(), 0);
        }
        *times = times.saturating_add(1);
        let times = *times;
        if times < TIMES {
            self.unstick(&of);
            return;
        }
        let Some(class) = self.class_of_unit(unit) else { return };
        let told =
            format!("{}: {failure}, {TIMES} times or more in a row; {}", action.describe(), failure.fix());
        if times == TIMES {
            tracing::error!(%class, what = %action.describe(), error = %failure, fix = failure.fix(), "stuck");
        }
        if self.yard.stuck.insert(of, (class.clone(), told.clone())) != Some((class.clone(), told)) {
            self.dirty.insert(Unit::Class(class));
        }
    }

    /// Notes that an action of this kind was carried out.
    pub(super) fn succeeded(&mut self, unit: &Unit, action: &Action) {
        if !self.failing.is_empty() {
            let of = (unit.clone(), action.kind());
            self.failing.remove(&of);
            self.unstick(&of);
        }
    }

    /// What a unit does not plan any more is not stuck.
    pub(super) fn planned(&mut self, unit: &Unit, plan: &Plan) {
        if self.failing.is_empty() {
            return;
        }
        let kinds: Vec<&'static str> = self
            .failing
            .range((unit.clone(), "")..)
            .map_while(|((of, kind), _)| (of == unit).then_some(*kind))
            .collect();
        let written = plan.waits.iter().any(|wait| wait.reason == crate::decide::WaitReason::Busy);
        for kind in kinds.into_iter().filter(|_| !written) {
            if !plan.actions.iter().any(|action| action.kind() == kind) {
                self.failing.remove(&(unit.clone(), kind));
                self.unstick(&(unit.clone(), kind));
            }
        }
    }

    fn unstick(&mut self, of: &(Unit, &'static str)) {
        if let Some((class, _)) = self.yard.stuck.remove(of) {
            self.dirty.insert(Unit::Class(class));
        }
    }

    /// The class whose status speaks of a unit.
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
