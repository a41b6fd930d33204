//! Records, the pool queue's messages and EC2's notices: read, shown, written back, and judged.

use std::time::Duration;

use jiff::Timestamp;
use runyard_core::decide::{Context, Policy, Role, decide};
use runyard_core::model::{
    Agent, Event, Instance, Item, Launch, Lease, Pool, PoolMessage, Reading, Record, RecordId, Request,
    Unreadable, read, read_job_ring, read_notices,
};
use runyard_core::yard::{Now, Observation, Yard};
use runyard_fakes::as_shipped;

use crate::fuzz::{fuzz, seeds};

/// Longest complaint about a record.
const SHOWN: usize = 500;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whatever is read as a record is stored in a form that is read as the same record.
fn keeps<T: Record + std::fmt::Debug>(item: &Item) {
    match read::<T>(item) {
        Reading::Record(record) => {
            let stored = record.to_item();
            let again = match read::<T>(&stored) {
                Reading::Record(again) => again.to_item(),
                other => panic!("what was read is not read again: {other:?}"),
            };
            assert_eq!(again, stored);
        }
        Reading::Newer { schema } => assert!(schema > 1),
        Reading::Unreadable(Unreadable { problem, .. }) => {
            assert!(!problem.is_empty() && problem.chars().count() <= SHOWN, "{problem}");
        }
    }
}

/// One record in an empty yard, and beside records of every kind: it is judged at any moment.
fn judged(item: &Item, beside: &[Item]) {
    let wall: Timestamp = "2026-01-05T12:00:00Z".parse().unwrap();
    let mono = Duration::from_secs(100_000);
    let now = Now { wall, mono, seen: mono };
    let policy = Policy {
        timing: as_shipped(),
        requests_per_repository: 2000,
        prices: Default::default(),
        sharing: Default::default(),
        following: Default::default(),
        github: true,
        organization: false,
        watches_runs: false,
        inventory: true,
        rebalance: runyard_core::model::Rebalance::Last,
        statements: true,
        ended_stays: Policy::ENDED_STAYS,
    };
    let mut yard = Yard::default();
    for item in beside.iter().chain([item]) {
        if let Some(key) = RecordId::of(item) {
            yard.observe(Observation::Record(key, Some(item.clone())), &now);
        }
    }
    let cx = Context { yard: &yard, policy: &policy, now, role: Role { lease: Some(1) } };
    for unit in yard.units() {
        for action in decide(&cx, &unit).actions {
            assert!(!action.describe().is_empty());
        }
    }
}

#[test]
fn a_record_of_any_shape_is_read_or_refused_and_stops_no_decision() {
    let seeds = seeds("records", &["tests/golden"]);
    let beside: Vec<Item> = seeds.iter().filter_map(|seed| serde_json::from_slice(seed).ok()).collect();
    let words =
        ["instance#", "request#", "pool#linux", "launch#", "S", "N", "M", "L", "BOOL", "NULL", "schema"];
    let words =
        [&words[..], &["claimed", "idle", "Ready", "Failed", "spot", "version", "runId", "linux"]].concat();
    let turn = std::cell::Cell::new(0_u32);
    fuzz("records", &seeds, &words, |input| {
        let Ok(item) = serde_json::from_slice::<Item>(input) else { return };
        keeps::<Instance>(&item);
        keeps::<Agent>(&item);
        keeps::<Request>(&item);
        keeps::<Pool>(&item);
        keeps::<Launch>(&item);
        keeps::<Lease>(&item);
        keeps::<Event>(&item);
        // The whole yard costs a hundred times as much as the record alone.
        turn.set(turn.get() + 1);
        judged(&item, if turn.get() % 32 == 1 { &beside } else { &[] });
    });
}

#[test]
fn a_message_of_any_shape_is_a_hint_or_is_shown_cut_short() {
    let words = ["instanceId", "resourceClass", "usageClass", "spot", "claimId", "on-demand"];
    fuzz("messages", &seeds("messages", &[]), &words, |input| match PoolMessage::read(&text(input)) {
        Ok(message) => {
            let body = serde_json::to_string(&message).unwrap();
            assert_eq!(PoolMessage::read(&body), Ok(message));
        }
        Err(shown) => assert!(shown.chars().count() <= 4096),
    });
}

#[test]
fn an_event_of_any_shape_says_something_of_machines_or_nothing() {
    let words =
        ["aws.ec2", "aws.health", "detail-type", "detail", "stopping", "hibernate", "instance-id", "time"];
    let seeds = seeds("notices", &["tests/golden/events"]);
    fuzz("notices", &seeds, &words, |input| match read_notices(&text(input)) {
        Ok(notices) => assert!(notices.iter().all(|notice| !notice.instance.as_str().is_empty())),
        Err(why) => assert!(!why.is_empty()),
    });
}

/// Whoever knows a webhook's address may send any body to it.
#[test]
fn a_body_of_any_shape_is_about_a_repository_that_github_could_have_or_about_none() {
    let words =
        ["payload=", "%22", "detail", "repository", "full_name", "workflow_job", "run_id", "acme/web"];
    let seeds = seeds("webhooks", &["tests/golden/webhooks"]);
    fuzz("webhooks", &seeds, &words, |input| {
        let body = text(input);
        match read_job_ring(&body) {
            Ok(ring) => {
                let name = ring.repository.as_str();
                assert!(name.len() <= 201 && name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
            }
            Err(why) => assert!(why.to_string().len() < 100),
        }
    });
}
