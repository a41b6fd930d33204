//! Which classes have series of their own? Declared ones, up to a limit; the values of others are summed up under one
//! label, so that neither typing errors in requests nor thousands of pools can flood the scraper.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::IntGaugeVec;

use super::count;
use super::families::Families;
use crate::decide::Unserved;
use crate::model::{Phase, ReadySource, State};
use crate::yard::BackoffKind;

/// The label of all classes without series of their own; no class can have this name.
pub const OTHER: &str = "_other";

/// Reasons of failed requests, as in their condition; the last one stands for the reasons of newer versions.
pub(super) const FAILURES: [&str; 11] = [
    "UnknownClass",
    "NotAllowed",
    "Invalid",
    "OverMax",
    "TooMany",
    "Quota",
    "LabelTaken",
    "KeyTaken",
    "DeadlinePassed",
    "FailedByPerson",
    "Other",
];

/// Number of classes with series of their own; each has about 60.
const LIMIT: usize = 200;

/// The declared classes, and the values of the others.
#[derive(Default)]
pub(super) struct Classes {
    declared: BTreeSet<String>,
    pub(super) instances: ByClass,
    pub(super) desired: ByClass,
    pub(super) max: ByClass,
    pub(super) paused: ByClass,
    pub(super) requests: ByClass,
    pub(super) backoffs: ByClass,
}

/// A gauge by class and possibly one more label, with the values that are summed up under [`OTHER`].
#[derive(Default)]
pub(super) struct ByClass {
    own: BTreeSet<String>,
    /// By the other label, then the class.
    others: BTreeMap<(&'static str, String), usize>,
}

impl Classes {
    pub(super) fn declared(&self) -> impl Iterator<Item = &str> {
        self.declared.iter().map(String::as_str)
    }

    pub(super) fn label<'a>(&self, class: &'a str) -> &'a str {
        if self.declared.contains(class) { class } else { OTHER }
    }

    pub(super) fn declare(&mut self, class: &str, families: &Families) {
        if self.declared.contains(class) || self.declared.len() >= LIMIT {
            return;
        }
        self.declared.insert(class.to_owned());
        families.machines.declare(class);
        for source in ReadySource::ALL {
            families.request_ready.with_label_values(&[class, source.as_str()]);
        }
        for reason in FAILURES {
            families.request_failures.with_label_values(&[class, reason]);
        }
        for reason in Unserved::REASONS {
            families.jobs_not_served.with_label_values(&[class, reason]);
        }
        let states: Vec<_> = State::ALL.iter().map(|state| state.as_str()).collect();
        let phases: Vec<_> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
        self.instances.adopt(&families.instances, class, &states);
        self.desired.adopt(&families.pools.desired, class, &[""]);
        self.max.adopt(&families.pools.max, class, &[""]);
        self.paused.adopt(&families.pools.paused, class, &[""]);
        self.requests.adopt(&families.requests, class, &phases);
        let kinds: Vec<_> = BackoffKind::ALL.iter().map(|kind| kind.as_str()).collect();
        self.backoffs.adopt(&families.backoffs, class, &kinds);
    }

    /// Drops the values of a class. A missing series is equivalent to a removed one.
    pub(super) fn forget(&mut self, class: &str, families: &Families) {
        self.declared.remove(class);
        families.machines.forget(class);
        for source in ReadySource::ALL {
            let _ = families.request_ready.remove_label_values(&[class, source.as_str()]);
        }
        for reason in FAILURES {
            let _ = families.request_failures.remove_label_values(&[class, reason]);
        }
        for reason in Unserved::REASONS {
            let _ = families.jobs_not_served.remove_label_values(&[class, reason]);
        }
        let _ = families.oldest_waiting.remove_label_values(&[class]);
        for state in State::ALL {
            self.instances.set(&families.instances, class, state.as_str(), 0);
            let _ = families.instances.remove_label_values(&[class, state.as_str()]);
        }
        for phase in Phase::ALL {
            self.requests.set(&families.requests, class, phase.as_str(), 0);
            let _ = families.requests.remove_label_values(&[class, phase.as_str()]);
        }
        for kind in BackoffKind::ALL {
            self.backoffs.set(&families.backoffs, class, kind.as_str(), 0);
            let _ = families.backoffs.remove_label_values(&[class, kind.as_str()]);
        }
        for (by_class, gauge) in [
            (&mut self.desired, &families.pools.desired),
            (&mut self.max, &families.pools.max),
            (&mut self.paused, &families.pools.paused),
        ] {
            by_class.set(gauge, class, "", 0);
            let _ = gauge.remove_label_values(&[class]);
            by_class.own.remove(class);
        }
        for by_class in [&mut self.instances, &mut self.requests, &mut self.backoffs] {
            by_class.own.remove(class);
        }
    }
}

impl ByClass {
    pub(super) fn set(&mut self, gauge: &IntGaugeVec, class: &str, label: &'static str, n: usize) {
        if self.own.contains(class) {
            series(gauge, class, label).set(count(n));
            return;
        }
        let key = (label, class.to_owned());
        if n == 0 {
            self.others.remove(&key)
        } else {
            self.others.insert(key, n)
        };
        self.sum(gauge, label);
    }

    /// Gives a class its own series, with its earlier values.
    fn adopt(&mut self, gauge: &IntGaugeVec, class: &str, labels: &[&'static str]) {
        self.own.insert(class.to_owned());
        for label in labels {
            let said = self.others.remove(&(*label, class.to_owned()));
            series(gauge, class, label).set(count(said.unwrap_or(0)));
            if said.is_some() {
                self.sum(gauge, label);
            }
        }
    }

    fn sum(&self, gauge: &IntGaugeVec, label: &'static str) {
        let of_label = self.others.range((label, String::new())..).take_while(|((l, _), _)| *l == label);
        series(gauge, OTHER, label).set(count(of_label.map(|(_, n)| n).sum()));
    }
}

fn series(gauge: &IntGaugeVec, class: &str, label: &str) -> prometheus::IntGauge {
    if label.is_empty() {
        gauge.with_label_values(&[class])
    } else {
        gauge.with_label_values(&[class, label])
    }
}
