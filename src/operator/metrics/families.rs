//! The name and the help text of each metric. The contract, section 7, defines most names; the others serve alerts and
//! dashboards.

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use super::machines::{Machines, histogram};

/// From half a second (a pooled machine that responds at once) to the longest wait that is allowed.
const READY: &[f64] =
    &[0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0];

/// A pass takes milliseconds; one that takes seconds is a fault.
const PASS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// From a response on loopback to a call's deadline.
const CALL: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// All families of the registry.
pub(super) struct Families {
    pub(super) instances: IntGaugeVec,
    pub(super) pools: PoolGauges,
    pub(super) requests: IntGaugeVec,
    pub(super) backoffs: IntGaugeVec,
    pub(super) request_ready: HistogramVec,
    pub(super) request_failures: IntCounterVec,
    pub(super) jobs_not_served: IntCounterVec,
    pub(super) oldest_waiting: GaugeVec,
    pub(super) transitions: IntCounterVec,
    pub(super) terminations: IntCounterVec,
    pub(super) over_threshold: IntGauge,
    pub(super) reconcile_seconds: Histogram,
    pub(super) resync_age: Gauge,
    pub(super) stream_lag: Gauge,
    pub(super) backend_requests: IntCounterVec,
    pub(super) backend_seconds: HistogramVec,
    pub(super) queue_messages: IntCounterVec,
    pub(super) interruptions: IntCounterVec,
    pub(super) job_rings: IntCounterVec,
    pub(super) events_dropped: IntCounter,
    pub(super) history_failures: IntCounter,
    pub(super) scale_set_unknown: IntCounter,
    pub(super) history_waiting: IntGauge,
    pub(super) unreadable: IntGauge,
    pub(super) newer: IntGauge,
    pub(super) decision_panics: IntCounter,
    pub(super) leader: IntGauge,
    pub(super) github_rate_remaining: IntGaugeVec,
    pub(super) github_rate_limit: IntGaugeVec,
    pub(super) github_waits: IntCounterVec,
    pub(super) runner_deadline: GaugeVec,
    pub(super) runner_held_back: IntGauge,
    pub(super) machines: Machines,
}

/// The wanted and maximum numbers of a pool's spec.
pub(super) struct PoolGauges {
    pub(super) desired: IntGaugeVec,
    pub(super) max: IntGaugeVec,
    pub(super) paused: IntGaugeVec,
}

impl Families {
    pub(super) fn register(registry: &Registry) -> Self {
        let made = Self::made(Machines::register(registry)).expect("the names and labels below are valid");
        let all: Vec<Box<dyn Collector>> = vec![
            Box::new(made.instances.clone()),
            Box::new(made.pools.desired.clone()),
            Box::new(made.pools.max.clone()),
            Box::new(made.pools.paused.clone()),
            Box::new(made.requests.clone()),
            Box::new(made.backoffs.clone()),
            Box::new(made.request_ready.clone()),
            Box::new(made.request_failures.clone()),
            Box::new(made.jobs_not_served.clone()),
            Box::new(made.oldest_waiting.clone()),
            Box::new(made.transitions.clone()),
            Box::new(made.terminations.clone()),
            Box::new(made.over_threshold.clone()),
            Box::new(made.reconcile_seconds.clone()),
            Box::new(made.resync_age.clone()),
            Box::new(made.stream_lag.clone()),
            Box::new(made.backend_requests.clone()),
            Box::new(made.backend_seconds.clone()),
            Box::new(made.queue_messages.clone()),
            Box::new(made.interruptions.clone()),
            Box::new(made.job_rings.clone()),
            Box::new(made.events_dropped.clone()),
            Box::new(made.history_failures.clone()),
            Box::new(made.scale_set_unknown.clone()),
            Box::new(made.history_waiting.clone()),
            Box::new(made.unreadable.clone()),
            Box::new(made.newer.clone()),
            Box::new(made.decision_panics.clone()),
            Box::new(made.leader.clone()),
            Box::new(made.github_rate_remaining.clone()),
            Box::new(made.github_rate_limit.clone()),
            Box::new(made.github_waits.clone()),
            Box::new(made.runner_deadline.clone()),
            Box::new(made.runner_held_back.clone()),
        ];
        for family in all {
            registry.register(family).expect("each name is registered once");
        }
        #[cfg(target_os = "linux")]
        registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .expect("the names of process_ are not ours");
        made
    }

    #[expect(clippy::too_many_lines, reason = "a table: one entry for each metric")]
    fn made(machines: Machines) -> prometheus::Result<Self> {
        Ok(Self {
            machines,
            instances: IntGaugeVec::new(
                Opts::new("runyard_instances", "Machines by class and state."),
                &["resource_class", "state"],
            )?,
            pools: PoolGauges {
                desired: IntGaugeVec::new(
                    Opts::new("runyard_pool_desired", "Idle machines wanted now."),
                    &["resource_class"],
                )?,
                max: IntGaugeVec::new(
                    Opts::new("runyard_pool_max", "Most live machines that the class may have."),
                    &["resource_class"],
                )?,
                paused: IntGaugeVec::new(
                    Opts::new("runyard_pool_paused", "1 while the class is paused, else 0."),
                    &["resource_class"],
                )?,
            },
            requests: IntGaugeVec::new(
                Opts::new("runyard_requests", "Requests by class and phase."),
                &["resource_class", "phase"],
            )?,
            backoffs: IntGaugeVec::new(
                Opts::new("runyard_breaker_open", "1 while a class does without spot, or without launches."),
                &["resource_class", "kind"],
            )?,
            request_ready: HistogramVec::new(
                histogram("runyard_request_ready_seconds", "From a request's acceptance to ready.", READY),
                &["resource_class", "source"],
            )?,
            request_failures: IntCounterVec::new(
                Opts::new("runyard_request_failures_total", "Requests that failed, by reason."),
                &["resource_class", "reason"],
            )?,
            jobs_not_served: IntCounterVec::new(
                Opts::new(
                    "runyard_jobs_not_served_total",
                    "Queued jobs that get no machine by their run's label, by reason; each label counts once.",
                ),
                &["resource_class", "reason"],
            )?,
            oldest_waiting: GaugeVec::new(
                Opts::new(
                    "runyard_oldest_waiting_request_seconds",
                    "How long the oldest waiting request waits.",
                ),
                &["resource_class"],
            )?,
            transitions: IntCounterVec::new(
                Opts::new("runyard_transitions_total", "Changes of machines' states that were written."),
                &["from", "to"],
            )?,
            terminations: IntCounterVec::new(
                Opts::new("runyard_terminations_total", "Machines ended, by reason."),
                &["reason"],
            )?,
            over_threshold: IntGauge::new(
                "runyard_over_threshold_instances",
                "Machines alive past their threshold and grace.",
            )?,
            reconcile_seconds: Histogram::with_opts(histogram(
                "runyard_reconcile_seconds",
                "How long a pass takes.",
                PASS,
            ))?,
            resync_age: Gauge::new(
                "runyard_resync_age_seconds",
                "Since the table was last read as a whole.",
            )?,
            stream_lag: Gauge::new(
                "runyard_stream_lag_seconds",
                "Since the table's stream last told a change; renewals of the lease make some.",
            )?,
            backend_requests: IntCounterVec::new(
                Opts::new("runyard_backend_requests_total", "Calls of what the operator depends on."),
                &["service", "operation", "outcome"],
            )?,
            backend_seconds: HistogramVec::new(
                histogram("runyard_backend_request_seconds", "How long those calls take.", CALL),
                &["service", "operation"],
            )?,
            queue_messages: IntCounterVec::new(
                Opts::new("runyard_queue_messages_total", "What became of the pool queues' messages."),
                &["outcome"],
            )?,
            interruptions: IntCounterVec::new(
                Opts::new("runyard_interruptions_total", "Machines that EC2 said it takes back, by how."),
                &["action"],
            )?,
            job_rings: IntCounterVec::new(
                Opts::new(
                    "runyard_job_rings_total",
                    "What GitHub's webhook said of jobs, or others in its place.",
                ),
                &["outcome"],
            )?,
            scale_set_unknown: IntCounter::new(
                "runyard_scale_set_unknown_total",
                "Parts of messages of scale sets that this program does not know.",
            )?,
            events_dropped: IntCounter::new(
                "runyard_events_dropped_total",
                "Events that were not written because the table limits the rate.",
            )?,
            history_failures: IntCounter::new(
                "runyard_history_failures_total",
                "Writes to the history table that failed; they are repeated.",
            )?,
            history_waiting: IntGauge::new(
                "runyard_history_waiting_lines",
                "Lines that the history table does not have yet.",
            )?,
            unreadable: IntGauge::new("runyard_unreadable_records", "Records that cannot be read.")?,
            newer: IntGauge::new("runyard_newer_records", "Records of a newer version, left alone.")?,
            decision_panics: IntCounter::new(
                "runyard_decision_panics_total",
                "Judgements that panicked; the record concerned counts as unreadable.",
            )?,
            leader: IntGauge::new("runyard_leader", "1 while this process holds the lease.")?,
            github_rate_remaining: IntGaugeVec::new(
                Opts::new("runyard_github_rate_remaining", "Calls left this hour, as GitHub last said."),
                &["resource"],
            )?,
            github_rate_limit: IntGaugeVec::new(
                Opts::new("runyard_github_rate_limit", "Calls allowed an hour, as GitHub last said."),
                &["resource"],
            )?,
            github_waits: IntCounterVec::new(
                Opts::new("runyard_github_waits_total", "Calls put off to keep within GitHub's limits."),
                &["priority"],
            )?,
            runner_held_back: IntGauge::new(
                "runyard_runner_held_back",
                "Classes in which a new runner version failed and is held back.",
            )?,
            runner_deadline: GaugeVec::new(
                Opts::new(
                    "runyard_runner_version_deadline_seconds",
                    "How long GitHub supports the runner version; +Inf where no date is known.",
                ),
                &["kind"],
            )?,
        })
    }
}
