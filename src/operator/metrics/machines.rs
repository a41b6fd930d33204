//! Metrics of the cost, the boot times and the reuse of machines, and of the queues, in addition to the states
//! themselves; every series of a class exists from its declaration on.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    CounterVec, Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::model::{ClassName, UsageClass, words};

words! {
    /// The use of a machine's time.
    Activity {
        /// Launched and not usable yet.
        Starting = "starting",
        /// Claimed by a request, with its runner listening or about to listen.
        Busy = "busy",
        /// Released and being cleaned.
        Cleaning = "cleaning",
        /// Held for a person.
        Held = "held",
        /// Free.
        Idle = "idle",
        /// Ordered to end and not gone.
        Ending = "ending",
    }
}

words! {
    /// The purpose of a machine's cost.
    Part {
        /// A request: the machine starts for one, serves it, or is cleaned after it.
        Requests = "requests",
        /// The pool: the machine starts for it, waits in it, or ends.
        Idle = "idle",
    }
}

words! {
    /// Whether a claim in a class that keeps directories found one on its machine.
    Found {
        /// A kept directory of the request's repository.
        Warm = "warm",
        /// No such directory.
        Cold = "cold",
    }
}

/// From a local process to an image that installs many packages.
const BOOT: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 900.0];
/// An agent reads its record every second.
const CLAIM: &[f64] = &[0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0];
/// Number of claims of one machine.
const USES: &[f64] = &[0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0];
/// The queues of a class.
const QUEUES: [&str; 2] = ["pool", "dead"];

/// The families of this module.
pub(super) struct Machines {
    pub(super) seconds: CounterVec,
    pub(super) cost: CounterVec,
    pub(super) unpriced: CounterVec,
    pub(super) boot: HistogramVec,
    pub(super) claim: HistogramVec,
    pub(super) uses: HistogramVec,
    pub(super) kept_claims: IntCounterVec,
    pub(super) orphans: IntGauge,
    pub(super) queue_depth: IntGaugeVec,
    pub(super) lease_age: Gauge,
    pub(super) lease_changes: IntCounter,
}

impl Machines {
    pub(super) fn register(registry: &Registry) -> Self {
        let made = Self::made().expect("the names and labels below are valid");
        let all: [Box<dyn Collector>; 11] = [
            Box::new(made.seconds.clone()),
            Box::new(made.cost.clone()),
            Box::new(made.unpriced.clone()),
            Box::new(made.boot.clone()),
            Box::new(made.claim.clone()),
            Box::new(made.uses.clone()),
            Box::new(made.kept_claims.clone()),
            Box::new(made.orphans.clone()),
            Box::new(made.queue_depth.clone()),
            Box::new(made.lease_age.clone()),
            Box::new(made.lease_changes.clone()),
        ];
        for family in all {
            registry.register(family).expect("each name is registered once");
        }
        made
    }

    fn made() -> prometheus::Result<Self> {
        let of_class = &["resource_class"];
        Ok(Self {
            seconds: CounterVec::new(
                Opts::new(
                    "runyard_machine_seconds_total",
                    "Time of machines by what it was spent on, counted by the holder of the lease.",
                ),
                &["resource_class", "usage_class", "activity"],
            )?,
            cost: CounterVec::new(
                Opts::new(
                    "runyard_cost_dollars_total",
                    "What machines cost at the operator's prices, for requests or idle, counted by the holder of the lease.",
                ),
                &["resource_class", "part"],
            )?,
            unpriced: CounterVec::new(
                Opts::new(
                    "runyard_unpriced_machine_seconds_total",
                    "Time of machines whose type has no price, counted by the holder of the lease.",
                ),
                of_class,
            )?,
            boot: HistogramVec::new(
                histogram("runyard_boot_seconds", "From a machine's record to its first use.", BOOT),
                &["resource_class", "usage_class"],
            )?,
            claim: HistogramVec::new(
                histogram(
                    "runyard_claim_seconds",
                    "From the claim of a pooled machine to its listening runner.",
                    CLAIM,
                ),
                of_class,
            )?,
            uses: HistogramVec::new(
                histogram("runyard_machine_uses", "Claims that a machine had run when it was ended.", USES),
                of_class,
            )?,
            kept_claims: kept_claims()?,
            orphans: IntGauge::new(
                "runyard_orphan_instances",
                "Machines of this table that have no record, as last listed.",
            )?,
            queue_depth: IntGaugeVec::new(
                Opts::new("runyard_queue_depth", "About how many messages a class's queues hold."),
                &["resource_class", "queue"],
            )?,
            lease_age: Gauge::new(
                "runyard_lease_age_seconds",
                "Since the lease was last seen to be renewed by whoever holds it.",
            )?,
            lease_changes: IntCounter::new(
                "runyard_lease_changes_total",
                "Changes of the lease's holder that this process saw.",
            )?,
        })
    }

    /// Creates a class's series.
    pub(super) fn declare(&self, class: &str) {
        self.claim.with_label_values(&[class]);
        self.unpriced.with_label_values(&[class]);
        for part in Part::ALL {
            self.cost.with_label_values(&[class, part.as_str()]);
        }
        self.uses.with_label_values(&[class]);
        for found in Found::ALL {
            self.kept_claims.with_label_values(&[class, found.as_str()]);
        }
        for queue in QUEUES {
            self.queue_depth.with_label_values(&[class, queue]);
        }
        for usage in UsageClass::ALL {
            self.boot.with_label_values(&[class, usage.as_str()]);
            for activity in Activity::ALL {
                self.seconds.with_label_values(&[class, usage.as_str(), activity.as_str()]);
            }
        }
    }

    /// Drops a class's series. A missing series is equivalent to a removed one.
    pub(super) fn forget(&self, class: &str) {
        let _ = self.claim.remove_label_values(&[class]);
        let _ = self.unpriced.remove_label_values(&[class]);
        for part in Part::ALL {
            let _ = self.cost.remove_label_values(&[class, part.as_str()]);
        }
        let _ = self.uses.remove_label_values(&[class]);
        for found in Found::ALL {
            let _ = self.kept_claims.remove_label_values(&[class, found.as_str()]);
        }
        for queue in QUEUES {
            let _ = self.queue_depth.remove_label_values(&[class, queue]);
        }
        for usage in UsageClass::ALL {
            let _ = self.boot.remove_label_values(&[class, usage.as_str()]);
            for activity in Activity::ALL {
                let _ = self.seconds.remove_label_values(&[class, usage.as_str(), activity.as_str()]);
            }
        }
    }
}

fn kept_claims() -> prometheus::Result<IntCounterVec> {
    IntCounterVec::new(
        Opts::new(
            "runyard_kept_claims_total",
            "Claims of classes that keep directories, by whether the machine had one of the repository.",
        ),
        &["resource_class", "found"],
    )
}

impl super::Metrics {
    /// Adds to the cost of a class's machines.
    pub fn cost(&self, class: &ClassName, part: Part, dollars: f64) {
        let labels = [self.label(class.as_str()), part.as_str()];
        self.families().machines.cost.with_label_values(&labels).inc_by(dollars);
    }

    /// Counts a claim in a class that keeps directories, by whether the machine had one of the request's repository.
    pub fn claim_found(&self, class: &ClassName, found: Found) {
        let labels = [self.label(class.as_str()), found.as_str()];
        self.families().machines.kept_claims.with_label_values(&labels).inc();
    }

    /// Adds the total time of a class's machines without a price.
    pub fn unpriced(&self, class: &ClassName, time: Duration) {
        let families = self.families();
        families
            .machines
            .unpriced
            .with_label_values(&[self.label(class.as_str())])
            .inc_by(time.as_secs_f64());
    }
}

/// When the lease last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseSeen {
    pub(super) token: u64,
    pub(super) renewals: u64,
    pub(super) at: Duration,
}

pub(super) fn histogram(name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(buckets.to_vec())
}
