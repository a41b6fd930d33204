//! Checks that the names are the contract's, that every series exists from the start, and that labels are bounded.

use super::*;
use crate::process::clock::SystemClock;

/// Name, type and labels of all our families.
const GOLDEN: &str = "\
runyard_backend_request_seconds histogram operation,service
runyard_backend_requests_total counter operation,outcome,service
runyard_boot_seconds histogram resource_class,usage_class
runyard_breaker_open gauge kind,resource_class
runyard_claim_seconds histogram resource_class
runyard_cost_dollars_total counter part,resource_class
runyard_decision_panics_total counter
runyard_events_dropped_total counter
runyard_history_failures_total counter
runyard_history_waiting_lines gauge
runyard_instances gauge resource_class,state
runyard_interruptions_total counter action
runyard_job_rings_total counter outcome
runyard_jobs_not_served_total counter reason,resource_class
runyard_kept_claims_total counter found,resource_class
runyard_leader gauge
runyard_lease_age_seconds gauge
runyard_lease_changes_total counter
runyard_machine_seconds_total counter activity,resource_class,usage_class
runyard_machine_uses histogram resource_class
runyard_newer_records gauge
runyard_oldest_waiting_request_seconds gauge resource_class
runyard_orphan_instances gauge
runyard_over_threshold_instances gauge
runyard_pool_desired gauge resource_class
runyard_pool_max gauge resource_class
runyard_pool_paused gauge resource_class
runyard_queue_depth gauge queue,resource_class
runyard_queue_messages_total counter outcome
runyard_reconcile_seconds histogram
runyard_repository_failed_cleanups gauge repository
runyard_request_failures_total counter reason,resource_class
runyard_request_ready_seconds histogram resource_class,source
runyard_requests gauge phase,resource_class
runyard_resync_age_seconds gauge
runyard_runner_held_back gauge
runyard_scale_set_jobs gauge place,resource_class,state
runyard_scale_set_listening gauge place,resource_class
runyard_scale_set_slots gauge place,resource_class,state
runyard_scale_set_unknown_total counter
runyard_share_machines gauge resource_class,share
runyard_share_used_seconds gauge resource_class,share
runyard_share_waiting_requests gauge resource_class,share
runyard_stream_lag_seconds gauge
runyard_terminations_total counter reason
runyard_transitions_total counter from,to
runyard_unpriced_machine_seconds_total counter resource_class
runyard_unreadable_records gauge
";

pub(super) fn metrics() -> Metrics {
    Metrics::new(Arc::new(SystemClock::new()))
}

pub(super) fn class(name: &str) -> ClassName {
    ClassName::parse(name).unwrap()
}

/// Returns the value of the only series that begins with this text.
pub(super) fn value(text: &str, series: &str) -> f64 {
    let prefix = format!("{series} ");
    let mut found = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let value = found.next().unwrap_or_else(|| panic!("no {series} in\n{text}"));
    value.parse().unwrap()
}

#[tokio::test]
async fn the_names_types_and_labels_are_the_contracts() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    metrics.shares(&class("linux"), vec![share("acme/web".into(), 1)]);
    metrics.sets(&class("linux"), &[set("acme".into(), true)]);
    metrics.failed_cleanups([("acme/web", 1)].into_iter());
    let text = metrics.render();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE runyard_")).map(|family| {
        let (name, kind) = family.split_once(' ').unwrap();
        let series = text.lines().find(|line| {
            line.strip_prefix("runyard_")
                .and_then(|rest| rest.strip_prefix(name))
                .and_then(|rest| rest.strip_prefix(if kind == "histogram" { "_count" } else { "" }))
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let series = series.unwrap_or_else(|| panic!("{name} has no series"));
        let labels = series.split_once('{').map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
        let mut labels: Vec<_> = labels.split(',').map(|label| label.split('=').next().unwrap()).collect();
        labels.sort_unstable();
        format!("runyard_{name} {kind} {}", labels.join(",")).trim_end().to_owned()
    });
    assert_eq!(families.collect::<Vec<_>>().join("\n") + "\n", GOLDEN);
}

#[tokio::test]
async fn failures_are_counted_by_the_reasons_there_are() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    let counted = |name: &str, reason: &str| {
        let series =
            format!("runyard_request_failures_total{{reason=\"{reason}\",resource_class=\"{name}\"}}");
        value(&metrics.render(), &series)
    };
    assert_eq!(counted("linux", "DeadlinePassed"), 0.0, "there from the start");
    for (name, reason) in [("linux", "DeadlinePassed"), ("linux", "fromTheFuture"), ("typo", "UnknownClass")]
    {
        metrics.request_failed(name, reason);
    }
    assert_eq!((counted("linux", "DeadlinePassed"), counted("linux", "Other")), (1.0, 1.0));
    assert_eq!(counted("_other", "UnknownClass"), 1.0);
    let refused =
        ["NotAllowed", "Invalid", "OverMax", "TooMany", "Quota", "LabelTaken", "KeyTaken", "FailedByPerson"];
    for reason in refused {
        metrics.request_failed("linux", reason);
        assert_eq!(counted("linux", reason), 1.0, "{reason}");
    }
}

#[tokio::test]
async fn jobs_that_get_no_machine_are_counted_by_class_and_reason() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    let counted = |name: &str, reason: &str| {
        let series =
            format!("runyard_jobs_not_served_total{{reason=\"{reason}\",resource_class=\"{name}\"}}");
        value(&metrics.render(), &series)
    };
    assert_eq!((counted("linux", "Fork"), counted("_other", "NoClass")), (0.0, 0.0), "there from the start");
    metrics.jobs_not_served(&Unserved::Fork(class("linux")), 3);
    metrics.jobs_not_served(&Unserved::Fork(class("linux")), 1);
    metrics.jobs_not_served(&Unserved::NoLabels(class("gone")), 1);
    metrics.jobs_not_served(&Unserved::NoClass, 2);
    assert_eq!((counted("linux", "Fork"), counted("linux", "NoLabels")), (4.0, 0.0));
    assert_eq!((counted("_other", "NoLabels"), counted("_other", "NoClass")), (1.0, 2.0));
}

#[tokio::test]
async fn every_series_a_rule_needs_is_at_zero_from_the_start() {
    let text = metrics().render();
    for (from, to) in [("none", "created"), ("idle", "claimed"), ("idle", "idle"), ("running", "terminated")]
    {
        assert_eq!(value(&text, &format!("runyard_transitions_total{{from=\"{from}\",to=\"{to}\"}}")), 0.0);
    }
    assert!(!text.contains("from=\"terminated\""), "nothing leaves terminated");
    for reason in Reason::ALL {
        assert_eq!(value(&text, &format!("runyard_terminations_total{{reason=\"{reason}\"}}")), 0.0);
    }
    for outcome in QueueOutcome::ALL {
        assert_eq!(value(&text, &format!("runyard_queue_messages_total{{outcome=\"{outcome}\"}}")), 0.0);
    }
    for (service, operation, outcome) in [
        ("store", "transact", "refused"),
        ("queue", "receive", "ok"),
        ("compute", "launch", "no-capacity"),
        ("github", "registration_token", "unreachable"),
    ] {
        let labels = format!("operation=\"{operation}\",outcome=\"{outcome}\",service=\"{service}\"");
        assert_eq!(value(&text, &format!("runyard_backend_requests_total{{{labels}}}")), 0.0);
    }
    assert_eq!(value(&text, "runyard_reconcile_seconds_count"), 0.0);
}

#[tokio::test]
async fn a_class_that_is_declared_has_all_its_series_at_zero() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    let text = metrics.render();
    for state in State::ALL {
        let series = format!("runyard_instances{{resource_class=\"linux\",state=\"{state}\"}}");
        assert_eq!(value(&text, &series), 0.0);
    }
    for phase in Phase::ALL {
        assert_eq!(
            value(&text, &format!("runyard_requests{{phase=\"{phase}\",resource_class=\"linux\"}}")),
            0.0
        );
    }
    for source in ReadySource::ALL {
        let series =
            format!("runyard_request_ready_seconds_count{{resource_class=\"linux\",source=\"{source}\"}}");
        assert_eq!(value(&text, &series), 0.0);
    }
    assert_eq!(value(&text, "runyard_pool_desired{resource_class=\"linux\"}"), 0.0);
    assert_eq!(value(&text, "runyard_oldest_waiting_request_seconds{resource_class=\"linux\"}"), 0.0);
}

#[tokio::test]
async fn what_is_told_is_shown() {
    let metrics = metrics();
    metrics.instances(&class("linux"), State::Idle, 3);
    metrics.pool_desired(&class("linux"), 5);
    metrics.pool_bounds(&class("linux"), 8, true);
    metrics.requests("linux", Phase::Pending, 2);
    metrics.request_ready("linux", ReadySource::Warm, Duration::from_millis(1500));
    metrics.transition(None, State::Created);
    metrics.transition(Some(State::Idle), State::Claimed);
    metrics.termination(Reason::Surplus);
    metrics.reconcile(Duration::from_millis(2));
    metrics.unreadable(4);
    metrics.newer(6);
    metrics.decision_panicked();
    metrics.over_threshold(1);
    metrics.events_dropped(7);
    metrics.scale_set_unknown(3);
    metrics.queue_message(QueueOutcome::Stale);
    metrics.clone().leader(true);
    let text = metrics.render();
    for (series, expected) in [
        ("runyard_instances{resource_class=\"linux\",state=\"idle\"}", 3.0),
        ("runyard_pool_desired{resource_class=\"linux\"}", 5.0),
        ("runyard_pool_max{resource_class=\"linux\"}", 8.0),
        ("runyard_pool_paused{resource_class=\"linux\"}", 1.0),
        ("runyard_requests{phase=\"Pending\",resource_class=\"linux\"}", 2.0),
        ("runyard_request_ready_seconds_sum{resource_class=\"linux\",source=\"warm\"}", 1.5),
        ("runyard_transitions_total{from=\"none\",to=\"created\"}", 1.0),
        ("runyard_transitions_total{from=\"idle\",to=\"claimed\"}", 1.0),
        ("runyard_terminations_total{reason=\"surplus\"}", 1.0),
        ("runyard_reconcile_seconds_sum", 0.002),
        ("runyard_unreadable_records", 4.0),
        ("runyard_newer_records", 6.0),
        ("runyard_decision_panics_total", 1.0),
        ("runyard_over_threshold_instances", 1.0),
        ("runyard_events_dropped_total", 7.0),
        ("runyard_scale_set_unknown_total", 3.0),
        ("runyard_queue_messages_total{outcome=\"stale\"}", 1.0),
        ("runyard_leader", 1.0),
    ] {
        assert_eq!(value(&text, series), expected, "{series}");
    }
    metrics.leader(false);
    assert_eq!(value(&metrics.render(), "runyard_leader"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn machines_are_measured_by_class_and_never_by_name() {
    let metrics = metrics();
    let linux = class("linux");
    metrics.class(&linux);
    metrics.machine_time(&linux, UsageClass::Spot, Activity::Busy, Duration::from_millis(2500));
    metrics.machine_time(&linux, UsageClass::Spot, Activity::Busy, Duration::from_millis(2500));
    metrics.machine_time(&class("typo"), UsageClass::Spot, Activity::Idle, Duration::from_secs(1));
    metrics.booted(&linux, UsageClass::OnDemand, Duration::from_secs(40));
    metrics.claim_served(&linux, Duration::from_millis(800));
    metrics.machine_used(&linux, 7);
    metrics.claim_found(&linux, Found::Warm);
    metrics.orphans(2);
    metrics.queue_depth(&linux, QueueDepth { waiting: 9, dead: 1 });
    let text = metrics.render();
    let time = |class: &str, usage: &str, activity: &str| {
        let labels = format!("activity=\"{activity}\",resource_class=\"{class}\",usage_class=\"{usage}\"");
        value(&text, &format!("runyard_machine_seconds_total{{{labels}}}"))
    };
    assert_eq!(time("linux", "spot", "busy"), 5.0);
    assert_eq!(time("linux", "on-demand", "idle"), 0.0);
    assert_eq!(time("_other", "spot", "idle"), 1.0);
    for (series, expected) in [
        ("runyard_boot_seconds_sum{resource_class=\"linux\",usage_class=\"on-demand\"}", 40.0),
        ("runyard_claim_seconds_sum{resource_class=\"linux\"}", 0.8),
        ("runyard_machine_uses_sum{resource_class=\"linux\"}", 7.0),
        ("runyard_kept_claims_total{found=\"warm\",resource_class=\"linux\"}", 1.0),
        ("runyard_kept_claims_total{found=\"cold\",resource_class=\"linux\"}", 0.0),
        ("runyard_orphan_instances", 2.0),
        ("runyard_queue_depth{queue=\"pool\",resource_class=\"linux\"}", 9.0),
        ("runyard_queue_depth{queue=\"dead\",resource_class=\"linux\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), expected, "{series}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_ages_until_it_is_renewed_and_its_changes_are_counted() {
    let metrics = metrics();
    let told = |metrics: &Metrics| {
        let text = metrics.render();
        (value(&text, "runyard_lease_age_seconds"), value(&text, "runyard_lease_changes_total"))
    };
    metrics.lease_seen(3, 8);
    tokio::time::advance(Duration::from_secs(5)).await;
    // An older image is ignored.
    metrics.lease_seen(3, 7);
    assert_eq!(told(&metrics), (5.0, 0.0));
    metrics.lease_seen(3, 9);
    assert_eq!(told(&metrics), (0.0, 0.0));
    tokio::time::advance(Duration::from_secs(20)).await;
    metrics.lease_seen(4, 0);
    assert_eq!(told(&metrics), (0.0, 1.0));
}

#[tokio::test]
async fn unknown_classes_are_summed_up_under_one_label() {
    let metrics = metrics();
    for n in 0..1000 {
        metrics.requests(&format!("typo-{n}"), Phase::Failed, 1);
        metrics.request_ready(&format!("typo-{n}"), ReadySource::Cold, Duration::from_secs(1));
    }
    let failed = "runyard_requests{phase=\"Failed\",resource_class=\"_other\"}";
    let text = metrics.render();
    assert_eq!(value(&text, failed), 1000.0);
    assert!(!text.contains("typo"), "{text}");

    metrics.requests("typo-1", Phase::Failed, 0);
    metrics.requests("typo-2", Phase::Failed, 5);
    assert_eq!(value(&metrics.render(), failed), 1003.0);
}

#[tokio::test]
async fn a_class_declared_late_takes_what_was_said_of_it() {
    let metrics = metrics();
    metrics.requests("linux", Phase::Pending, 2);
    metrics.requests("typo", Phase::Pending, 1);
    metrics.class(&class("linux"));
    let text = metrics.render();
    assert_eq!(value(&text, "runyard_requests{phase=\"Pending\",resource_class=\"linux\"}"), 2.0);
    assert_eq!(value(&text, "runyard_requests{phase=\"Pending\",resource_class=\"_other\"}"), 1.0);
}

#[tokio::test]
async fn more_classes_than_the_limit_share_a_label_and_lose_no_machine() {
    let metrics = metrics();
    for n in 0..250 {
        metrics.instances(&class(&format!("c{n}")), State::Running, 2);
    }
    let text = metrics.render();
    let own = text.lines().filter(|l| l.starts_with("runyard_instances{") && l.contains("running")).count();
    assert_eq!(own, 201);
    assert_eq!(value(&text, "runyard_instances{resource_class=\"_other\",state=\"running\"}"), 100.0);
}

#[tokio::test]
async fn a_forgotten_class_leaves_no_series() {
    let metrics = metrics();
    metrics.instances(&class("linux"), State::Running, 2);
    metrics.oldest_waiting("linux", Some(SystemClock::new().now()));
    metrics.render();
    metrics.forget(&class("linux"));
    assert!(!metrics.render().contains("linux"));
}

#[tokio::test(start_paused = true)]
async fn ages_grow_while_nobody_says_anything() {
    let metrics = metrics();
    metrics.stream_read();
    tokio::time::advance(Duration::from_secs(30)).await;
    metrics.resynced();
    tokio::time::advance(Duration::from_secs(12)).await;
    let text = metrics.render();
    assert_eq!(value(&text, "runyard_resync_age_seconds"), 12.0);
    assert_eq!(value(&text, "runyard_stream_lag_seconds"), 42.0);
}

#[tokio::test]
async fn the_oldest_waiting_request_ages_by_the_wall_clock_and_never_below_zero() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    let now = SystemClock::new().now();
    let before = |seconds| Some(now - jiff::SignedDuration::from_secs(seconds));
    metrics.oldest_waiting("linux", before(100));
    metrics.oldest_waiting("typo-a", before(500));
    metrics.oldest_waiting("typo-b", before(-500));
    let text = metrics.render();
    let age = |class: &str| {
        value(&text, &format!("runyard_oldest_waiting_request_seconds{{resource_class=\"{class}\"}}"))
    };
    assert!((100.0..130.0).contains(&age("linux")), "{}", age("linux"));
    assert!((500.0..530.0).contains(&age("_other")), "{}", age("_other"));

    metrics.oldest_waiting("typo-a", None);
    metrics.oldest_waiting("linux", None);
    let text = metrics.render();
    for class in ["linux", "_other"] {
        let series = format!("runyard_oldest_waiting_request_seconds{{resource_class=\"{class}\"}}");
        assert_eq!(value(&text, &series), 0.0);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_process_is_measured_too() {
    assert!(value(&metrics().render(), "process_resident_memory_bytes") > 0.0);
}

fn set(place: String, listening: bool) -> SetReport {
    SetReport {
        resource_class: class("linux"),
        place,
        set_name: "runyard-small".into(),
        state: Some(crate::model::SetState::Listening),
        listening,
        condition: None,
        statistics: crate::model::SetCounts { assigned: 5, running: 2, ..Default::default() },
        statistics_at: None,
        slots: crate::explain::SlotCounts { open: 4, job: 1, waiting: 2 },
        announced: 8,
        lacks: Vec::new(),
    }
}

#[test]
fn a_scale_set_has_series_while_it_is_there_and_many_share_one() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    let series = |text: &str| {
        text.lines().filter(|line| line.starts_with("runyard_scale_set_") && line.contains("place=")).count()
    };
    metrics.sets(&class("typo"), &[set("acme".into(), true)]);
    assert_eq!(series(&metrics.render()), 0, "its class is not declared");
    let all: Vec<SetReport> = (0..30).map(|n| set(format!("acme/r{n:02}"), n != 25)).collect();
    metrics.sets(&class("linux"), &all);
    let text = metrics.render();
    assert_eq!(series(&text), 21 * 5);
    let of = |family: &str, place: &str, state: &str| {
        let state = if state.is_empty() { String::new() } else { format!(",state=\"{state}\"") };
        value(
            &text,
            &format!("runyard_scale_set_{family}{{place=\"{place}\",resource_class=\"linux\"{state}}}"),
        )
    };
    assert_eq!((of("jobs", "acme/r00", "assigned"), of("jobs", "acme/r00", "running")), (5.0, 2.0));
    assert_eq!((of("slots", "acme/r00", "open"), of("slots", "acme/r00", "job")), (3.0, 1.0));
    assert_eq!((of("listening", "acme/r00", ""), of("listening", "_other", "")), (1.0, 0.0));
    assert_eq!(of("jobs", "_other", "assigned"), 50.0);
    metrics.sets(&class("linux"), &all[..1]);
    assert_eq!(series(&metrics.render()), 5);
    metrics.forget(&class("linux"));
    assert_eq!(series(&metrics.render()), 0);
}

fn share(name: String, used: u64) -> ShareReport {
    ShareReport {
        share: name,
        class: class("linux"),
        weight: 1,
        used,
        part: 0,
        held: 1,
        waiting: 2,
        quota: crate::model::Quota::default(),
        keeps: Vec::new(),
    }
}

#[test]
fn twenty_shares_of_a_class_have_series_and_the_others_one_together() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    metrics.shares(&class("typo"), vec![share("acme/web".into(), 1)]);
    metrics.shares(&class("linux"), (0..300).map(|n| share(format!("acme/r{n:03}"), 1000 - n)).collect());
    let text = metrics.render();
    let series = |text: &str| text.lines().filter(|line| line.starts_with("runyard_share_")).count();
    assert_eq!(series(&text), 3 * 21, "{text}");
    let of = |family: &str, share: &str| {
        value(&text, &format!("{family}{{resource_class=\"linux\",share=\"{share}\"}}"))
    };
    assert_eq!(of("runyard_share_used_seconds", "acme/r019"), 981.0);
    assert_eq!(of("runyard_share_machines", "_other"), 280.0);
    assert_eq!(of("runyard_share_waiting_requests", "_other"), 560.0);
    metrics.shares(&class("linux"), vec![share("acme/new".into(), 5)]);
    assert_eq!(series(&metrics.render()), 3, "who is gone has none");
    metrics.forget(&class("linux"));
    assert_eq!(series(&metrics.render()), 0);
}

#[test]
fn twenty_repositories_whose_clean_ups_fail_have_series_and_the_others_one_together() {
    let metrics = metrics();
    let names: Vec<String> = (0..30).map(|n| format!("acme/r{n:02}")).collect();
    metrics.failed_cleanups(names.iter().map(String::as_str).zip([3, 1].into_iter().cycle()));
    let text = metrics.render();
    let of =
        |name: &str| value(&text, &format!("runyard_repository_failed_cleanups{{repository=\"{name}\"}}"));
    assert_eq!((of("acme/r00"), of("acme/r01"), of("_other")), (3.0, 1.0, 10.0));
    metrics.failed_cleanups([("acme/web", 2)].into_iter());
    let series = |text: &str| text.lines().filter(|line| line.starts_with("runyard_repository_")).count();
    assert_eq!(series(&metrics.render()), 1, "who is gone has none");
}
