//! Metrics of the runner scale sets of each class: the first places have series of their own, the others share one, so
//! that thousands of repositories cannot flood the scraper.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::{IntGaugeVec, Opts, Registry};

use super::OTHER;
use crate::explain::SetReport;

/// Number of places of a class with series of their own.
const LIMIT: usize = 20;

/// The families of scale sets, with their existing series.
pub(super) struct Sets {
    jobs: IntGaugeVec,
    slots: IntGaugeVec,
    listening: IntGaugeVec,
    /// The places with series, by class.
    series: BTreeMap<String, BTreeSet<String>>,
}

/// The values of one place.
#[derive(Default)]
struct Values {
    assigned: u64,
    running: u64,
    free: u64,
    with_job: u64,
    /// Whether a set is not listened to.
    deaf: bool,
}

impl Values {
    fn add(&mut self, set: &SetReport) {
        self.assigned += u64::from(set.statistics.assigned);
        self.running += u64::from(set.statistics.running);
        self.free += u64::from(set.slots.open.saturating_sub(set.slots.job));
        self.with_job += u64::from(set.slots.job);
        self.deaf |= !set.listening;
    }
}

impl Sets {
    pub(super) fn register(registry: &Registry) -> Self {
        let made = Self::made().expect("the names and labels below are valid");
        for family in [&made.jobs, &made.slots, &made.listening] {
            registry.register(Box::new(family.clone())).expect("each name is registered once");
        }
        made
    }

    fn made() -> prometheus::Result<Self> {
        Ok(Self {
            jobs: IntGaugeVec::new(
                Opts::new(
                    "runyard_scale_set_jobs",
                    "Jobs of a scale set as GitHub last counted them; assigned ones wait for a runner or run.",
                ),
                &["resource_class", "place", "state"],
            )?,
            slots: IntGaugeVec::new(
                Opts::new(
                    "runyard_scale_set_slots",
                    "Slots of a scale set that are not over: open ones have no job.",
                ),
                &["resource_class", "place", "state"],
            )?,
            listening: IntGaugeVec::new(
                Opts::new(
                    "runyard_scale_set_listening",
                    "1 while the messages of a scale set are read, else 0.",
                ),
                &["resource_class", "place"],
            )?,
            series: BTreeMap::new(),
        })
    }

    /// Sets the present scale sets of a class; empty if it has none.
    pub(super) fn set(&mut self, class: &str, sets: &[SetReport]) {
        let mut values: BTreeMap<&str, Values> = BTreeMap::new();
        for (i, set) in sets.iter().enumerate() {
            values.entry(if i < LIMIT { set.place.as_str() } else { OTHER }).or_default().add(set);
        }
        let gone = self.series.remove(class).unwrap_or_default();
        for place in gone.iter().filter(|place| !values.contains_key(place.as_str())) {
            // A missing series is equivalent to a removed one.
            for state in ["assigned", "running"] {
                let _ = self.jobs.remove_label_values(&[class, place, state]);
            }
            for state in ["open", "job"] {
                let _ = self.slots.remove_label_values(&[class, place, state]);
            }
            let _ = self.listening.remove_label_values(&[class, place]);
        }
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        for (place, values) in &values {
            self.jobs.with_label_values(&[class, place, "assigned"]).set(number(values.assigned));
            self.jobs.with_label_values(&[class, place, "running"]).set(number(values.running));
            self.slots.with_label_values(&[class, place, "open"]).set(number(values.free));
            self.slots.with_label_values(&[class, place, "job"]).set(number(values.with_job));
            self.listening.with_label_values(&[class, place]).set(i64::from(!values.deaf));
        }
        if !values.is_empty() {
            self.series.insert(class.to_owned(), values.into_keys().map(str::to_owned).collect());
        }
    }
}
