//! The content of the status, on records as the operator reads them, and its bounded size.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::changes::Changes;
use super::*;
use crate::decide::{Context, Policy, Role};
use crate::explain::picture;
use crate::ledger::{Price, Prices, RegionPrices};
use crate::model::{Item, RecordId};
use crate::yard::{Now, Observation, Yard};
use runyard_fakes::a_minute_each;

fn at(seconds: i64) -> Timestamp {
    "2026-01-05T12:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds)
}

fn item(value: Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(value).unwrap();
    item.into_inner().into_iter().collect()
}

fn pool(class: &str, max: u32) -> Item {
    item(json!({
        "pk": format!("pool#{class}"), "sk": "pool", "kind": "pool", "version": 1, "resourceClass": class,
        "max": max, "desired": 1,
    }))
}

fn arn(n: usize) -> String {
    format!("arn:aws:ec2:local:000000000000:instance/i-{n:017x}")
}

fn machine(n: usize, version: u64, state: &str, since: i64, more: Value) -> Item {
    let mut record = json!({
        "pk": format!("instance#{}", arn(n)), "sk": "instance", "kind": "instance", "version": version,
        "instanceId": format!("i-{n:017x}"), "instanceArn": arn(n), "resourceClass": "linux", "state": state,
        "instanceType": "m7i.large", "usageClass": "spot", "cpu": 2, "mmem": 8192, "availabilityZone": "local",
        "runId": "", "claimId": "", "threshold": at(3600), "thresholdSetAt": at(since), "stateSince": at(since),
        "createdAt": at(0), "uses": 0, "trustDomain": "", "updatedAt": at(since),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        record[name] = value.clone();
    }
    item(record)
}

fn held(n: usize, run: &str) -> Value {
    let request = json!({"pk": format!("request#a/b#{run}"), "sk": "request#default#1"});
    json!({"runId": run, "claimId": format!("i-{n:017x}.2"), "request": request, "registration": "c2VjcmV0"})
}

fn request(run: &str, phase: &str, more: Value) -> Item {
    let mut record = json!({
        "pk": format!("request#a/b#{run}"), "sk": "request#default#1", "kind": "request", "version": 2,
        "runId": run, "attempt": 1, "repository": "a/b", "name": "default", "resourceClass": "linux", "count": 1,
        "desired": "provisioned", "generation": 1, "phase": phase, "acceptedAt": at(0), "deadline": at(600),
        "updatedAt": at(0), "message": "",
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        record[name] = value.clone();
    }
    item(record)
}

fn shown(yard: &Yard, now: Now, history: &History) -> Snapshot {
    priced(yard, now, history, Prices::default())
}

fn priced(yard: &Yard, now: Now, history: &History, prices: Prices) -> Snapshot {
    let policy = Policy { prices: prices.into(), ..a_minute_each() };
    let cx = Context { yard, policy: &policy, now, role: Role { lease: Some(1) } };
    snapshot(&SnapshotInput { cx, history, table: "runyard" })
}

/// Returns the status of these records, all seen at once.
fn at_once(items: &[Item], now: Timestamp) -> Snapshot {
    let (yard, now, _) = picture(items, now);
    let mut history = History::new(at(0));
    yard.instances().for_each(|tracked| history.record(&tracked.instance));
    shown(&yard, now, &history)
}

#[test]
fn a_pool_says_what_it_has_and_what_it_should_have() {
    let cleaning = held(2, "7");
    let mut cleaning = cleaning.as_object().unwrap().clone();
    cleaning.insert("runId".into(), json!(""));
    let items = [
        pool("linux", 4),
        machine(1, 2, "running", 5, held(1, "7")),
        machine(2, 3, "idle", 6, Value::Object(cleaning)),
        machine(3, 2, "idle", 6, json!({"pooledAt": at(6)})),
    ];
    let status = at_once(&items, at(60));
    let pool = &status.pools[0];
    assert_eq!((pool.desired, pool.min, pool.max, pool.live), (Some(1), Some(0), Some(4), 3));
    assert_eq!(pool.have[&MachinePhase::Running], 1);
    assert_eq!(pool.have[&MachinePhase::Cleaning], 1);
    assert_eq!(pool.have[&MachinePhase::Pooled], 1);
    assert_eq!(status.machines.len(), 3);
    assert_eq!(status.machines[0].request.as_deref(), Some("a/b run 7/default/1"));
}

#[test]
fn a_pool_says_what_an_hour_of_its_machines_costs() {
    let on_demand = [("m7i.large".to_owned(), Price::parse("0.125").unwrap())].into();
    let regions = [("us-east-1".to_owned(), RegionPrices { on_demand, ..RegionPrices::default() })].into();
    let prices = Prices { regions, ..Prices::default() };
    let there = |mut more: Value| {
        more["availabilityZone"] = json!("us-east-1a");
        more
    };
    let items = [
        pool("linux", 4),
        pool("empty", 4),
        machine(1, 2, "running", 5, there(held(1, "7"))),
        machine(2, 2, "idle", 6, there(json!({"pooledAt": at(6)}))),
        machine(3, 2, "idle", 6, json!({"pooledAt": at(6)})),
        machine(4, 2, "terminated", 6, there(json!({"threshold": "", "reason": "threshold"}))),
    ];
    let (yard, now, _) = picture(&items, at(60));
    let history = History::new(at(0));
    let cost = |prices, class: &str| {
        let pools = priced(&yard, now, &history, prices).pools;
        pools.into_iter().find(|pool| pool.class == class).unwrap().cost
    };
    let told = CostStatus { hour: "0.25".into(), idle_hour: "0.13".into(), unpriced: 1 };
    assert_eq!(cost(prices.clone(), "linux"), Some(told));
    assert_eq!(cost(prices, "empty"), None);
    assert_eq!(cost(Prices::default(), "linux"), None, "no price is known");
}

#[test]
fn a_pool_with_sharing_tells_the_shares_that_used_most_and_counts_the_others() {
    let mut shared = pool("linux", 4);
    let sums: Value = (0..12)
        .map(|n| (format!("acme/r{n:02}"), json!(1000 * (n + 1))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let more = item(json!({"sharing": {"weights": {"acme/r11": 3}}, "usage": {"at": at(60), "sums": sums}}));
    shared.extend(more);
    let status = at_once(&[shared], at(60));
    let told = &status.pools[0];
    assert_eq!((told.shares.len(), told.shares_left_out), (MOST_SHARES, 4));
    let first = &told.shares[0];
    assert_eq!((first.share.as_str(), first.weight, first.used_permille), ("acme/r11", 3, 153));
    let plain = serde_json::to_value(&at_once(&[pool("linux", 4)], at(60)).pools[0]).unwrap();
    assert!(plain.get("shares").is_none() && plain.get("sharesLeftOut").is_none(), "{plain}");
}

#[test]
fn a_waiting_request_says_why_and_when_it_can_be_ready() {
    let ready = json!({"readyAt": at(-60), "acceptedAt": at(-90)});
    let items = [
        pool("linux", 1),
        machine(1, 2, "running", 5, held(1, "7")),
        request("7", "Ready", json!({"instances": [format!("i-{:017x}", 1)], "readyAt": at(5)})),
        request("8", "Pending", json!({"acceptedAt": at(10)})),
        request("9", "Released", ready),
    ];
    let status = at_once(&items, at(60));
    let phases: Vec<_> = status.requests.iter().map(|r| (r.request.as_str(), r.phase)).collect();
    let run = ["a/b run 7/default/1", "a/b run 8/default/1", "a/b run 9/default/1"];
    assert_eq!(phases, [(run[0], "Ready"), (run[1], "Pending"), (run[2], "Released")]);
    let waiting = &status.requests[1];
    assert!(
        waiting.waits.iter().any(|why| why.contains("as many machines as max allows (1)")),
        "{waiting:?}"
    );
    let expected = waiting.expected.as_deref().unwrap();
    assert!(expected.contains("i-00000000000000001") && expected.contains("max (1)"), "{expected}");
    assert_eq!(status.requests[0].expected, None);
}

#[test]
fn a_yard_that_nobody_leads_says_so() {
    let lease = |holder: &str, renewed: i64| {
        item(json!({
            "pk": "lease#operator", "sk": "lease", "kind": "lease", "version": 1, "holder": holder, "token": 1,
            "termSeconds": 15.0, "updatedAt": at(renewed),
        }))
    };
    let standby = |lease: Item| {
        let (yard, now, _) = picture(&[pool("linux", 3), lease], at(100));
        let policy = a_minute_each();
        let cx = Context { yard: &yard, policy: &policy, now, role: Role { lease: None } };
        let history = History::new(at(0));
        snapshot(&SnapshotInput { cx, history: &history, table: "runyard" }).leaderless
    };
    assert_eq!(standby(lease("a", 90)), None, "another operator leads");
    assert!(standby(lease("a", 0)).unwrap().contains("a has not renewed the lease since"));
    assert!(standby(lease("", 90)).unwrap().contains("handed the lease back"));
}

#[test]
fn a_machine_is_remembered_through_its_life_and_after_it() {
    let mut yard = Yard::default();
    let mut history = History::new(at(0));
    let now = |seconds| Now { wall: at(seconds), mono: Duration::from_secs(1), seen: Duration::from_secs(1) };
    let key = RecordId::new(format!("instance#{}", arn(1)), "instance");
    let mut see = |yard: &mut Yard, record: Item, seconds| {
        yard.observe(Observation::Record(key.clone(), Some(record)), &now(seconds));
        yard.instances().for_each(|tracked| history.record(&tracked.instance));
    };
    see(&mut yard, machine(1, 1, "created", 0, json!({})), 1);
    see(&mut yard, machine(1, 2, "idle", 10, json!({"pooledAt": at(10)})), 11);
    // A renewal and an older image change nothing.
    see(&mut yard, machine(1, 3, "idle", 10, json!({"pooledAt": at(10), "threshold": at(7200)})), 12);
    see(&mut yard, machine(1, 1, "created", 0, json!({})), 13);
    see(&mut yard, machine(1, 4, "claimed", 20, held(1, "7")), 20);
    see(&mut yard, machine(1, 5, "running", 21, held(1, "7")), 21);
    let ended = json!({"threshold": "", "reason": "expired", "goneAt": at(40), "runId": ""});
    see(&mut yard, machine(1, 6, "terminated", 30, ended), 40);
    yard.observe(Observation::Record(key.clone(), None), &now(50));
    assert_eq!(yard.instances().count(), 0);

    let status = shown(&yard, now(60), &history);
    let [machine] = status.machines.as_slice() else { panic!("{status:?}") };
    let phase: Vec<_> = machine.spans.iter().map(|span| (span.phase.unwrap(), span.from)).collect();
    let expected = [
        (MachinePhase::Created, at(0)),
        (MachinePhase::Pooled, at(10)),
        (MachinePhase::Claimed, at(20)),
        (MachinePhase::Running, at(21)),
        (MachinePhase::Gone, at(40)),
    ];
    assert_eq!(phase, expected);
    assert_eq!((machine.is, machine.reason), (MachinePhase::Gone, Some("expired")));

    history.forget(at(40 + 29 * 60));
    assert_eq!(shown(&yard, now(60), &history).machines.len(), 1);
    history.forget(at(40 + 30 * 60));
    assert_eq!(shown(&yard, now(60), &history).machines.len(), 0);
}

#[test]
fn what_was_before_the_operator_looked_is_not_made_up() {
    let items = [machine(1, 9, "running", 500, held(1, "7"))];
    let status = at_once(&items, at(600));
    let spans: Vec<_> = status.machines[0].spans.iter().map(|span| (span.phase, span.from)).collect();
    assert_eq!(spans, [(None, at(0)), (Some(MachinePhase::Running), at(500))]);
}

#[test]
fn a_large_yard_is_told_in_part_and_nothing_secret_is_told() {
    let mut items = vec![pool("linux", 5000)];
    items.extend((0..2000).map(|n| machine(n, 2, "running", 5, held(n, "7"))));
    items
        .extend((0..1000).map(|n| request(&format!("{n}"), "Pending", json!({"message": "x".repeat(2000)}))));
    let status = at_once(&items, at(60));
    assert_eq!((status.machines.len(), status.machines_left_out), (MOST_MACHINES, 1500));
    assert_eq!((status.requests.len(), status.requests_left_out), (MOST_REQUESTS, 700));
    let text = serde_json::to_string(&status).unwrap();
    assert!(!text.contains("c2VjcmV0") && !text.contains("registration"), "a sealed box is told");
}

/// Returns the state of a page after a response.
fn applied(mut page: Value, answer: Value) -> Value {
    let Some(gone) = answer.get("gone").cloned() else { return answer };
    for (list, name) in [("pools", "class"), ("machines", "id"), ("requests", "request"), ("events", "id")] {
        let changed = answer[list].as_array().unwrap();
        let named = |row: &Value, other: &Value| row[name] == *other;
        let rows = page[list].as_array_mut().unwrap();
        rows.retain(|row| !gone[list].as_array().unwrap().iter().any(|key| named(row, key)));
        rows.retain(|row| !changed.iter().any(|other| named(row, &other[name])));
        rows.extend(changed.iter().cloned());
    }
    let lists = ["pools", "machines", "requests", "events"].map(|list| (list.to_owned(), page[list].clone()));
    let mut whole = answer;
    whole.as_object_mut().unwrap().remove("gone");
    whole.as_object_mut().unwrap().extend(lists);
    whole
}

fn sorted(mut page: Value) -> Value {
    for list in ["pools", "machines", "requests", "events"] {
        page[list].as_array_mut().unwrap().sort_by_key(ToString::to_string);
    }
    page
}

#[test]
fn an_open_page_that_is_sent_only_changes_has_the_whole_status() {
    let mut items = vec![pool("linux", 5000)];
    items.extend((0..500).map(|n| machine(n, 2, "running", 5, held(n, "7"))));
    items.extend((0..300).map(|n| request(&format!("{n}"), "Pending", json!({}))));
    let mut changes = Changes::default();
    changes.take(&at_once(&items, at(60)));
    let first = changes.answer(None);
    assert_eq!(first["machines"].as_array().unwrap().len(), 500);

    items[3] = machine(2, 3, "running", 61, held(2, "7"));
    items.remove(1);
    changes.take(&at_once(&items, at(62)));
    let next = changes.answer(first["mark"].as_str());
    assert_eq!(next["gone"]["machines"], json!(["i-00000000000000000"]));
    assert_eq!(next["machines"].as_array().unwrap().len(), 1, "{next}");
    assert_eq!(next["requests"], json!([]), "a request that waits is sent with every refresh");
    let size = next.to_string().len();
    assert!(size < 4096, "{size} B for one machine");
    assert_eq!(sorted(applied(first, next)), sorted(changes.answer(None)));
}

#[test]
fn a_mark_of_another_process_or_of_long_ago_is_answered_with_everything() {
    let status = at_once(&[pool("linux", 5)], at(60));
    let mut changes = Changes::default();
    changes.take(&status);
    let first = changes.answer(None);
    let mark = first["mark"].as_str().unwrap();
    assert_eq!(changes.answer(Some(mark))["pools"], json!([]));
    for foreign in ["1-1", "", "-", "x", &format!("{mark}0")] {
        assert_eq!(changes.answer(Some(foreign)), first, "{foreign}");
    }
    (0..400).for_each(|_| changes.take(&status));
    assert!(changes.answer(Some(mark)).get("gone").is_none());
}

#[test]
fn the_last_events_are_kept_the_newest_first() {
    let mut history = History::new(at(0));
    let key = RecordId::new("pool#linux", "pool");
    for n in 0..200 {
        let mut event = crate::model::Event::new(&key, format!("{n}"), at(n), "cli:ann");
        event.reason = format!("Reason{n}");
        // Both a list and the stream deliver it.
        history.event(&crate::model::Record::to_item(&event));
        history.event(&crate::model::Record::to_item(&event));
    }
    let (yard, now, _) = picture(&[], at(300));
    let events = shown(&yard, now, &history).events;
    assert_eq!(events.len(), MOST_EVENTS);
    let told: Vec<_> = events.iter().take(2).map(|e| (e.reason.as_str(), e.actor.as_str())).collect();
    assert_eq!(told, [("Reason199", "cli:ann"), ("Reason198", "cli:ann")]);
    assert_eq!(events[0].subject, "pool#linux");
}

#[test]
fn the_trend_counts_requests_by_their_records_and_machines_by_the_minute() {
    let waited = |run, accepted: i64, ready: i64| {
        request(
            run,
            "Released",
            json!({"acceptedAt": at(accepted), "readyAt": at(ready), "updatedAt": at(ready)}),
        )
    };
    // Twelve o'clock begins a step of five minutes.
    let items = [
        pool("linux", 4),
        machine(1, 2, "running", 5, held(1, "7")),
        waited("1", -30_000, -29_000),
        waited("2", -30_000, -600),
        waited("3", -900, -300),
        request("4", "Pending", json!({"acceptedAt": at(-1)})),
    ];
    let (yard, now, _) = picture(&items, at(60));
    let mut history = History::new(at(0));
    yard.instances().for_each(|tracked| history.record(&tracked.instance));
    (0..120).for_each(|seconds| history.forget(at(seconds - 60)));
    let trend = shown(&yard, now, &history).trend;
    assert_eq!(trend.last, at(0));
    assert_eq!(trend.waiting[..68], [1; 68]);
    assert_eq!(trend.waiting[68..], [2, 2, 2, 1]);
    assert_eq!(trend.running[69..], [None, Some(1), Some(1)]);
}

#[test]
fn a_machine_of_ec2_has_its_region_and_a_local_one_has_none() {
    let mut far = machine(1, 2, "running", 5, held(1, "7"));
    let arn = "arn:aws-us-gov:ec2:us-gov-west-1:123456789012:instance/i-00000000000000001";
    let text = |text: &str| crate::model::AttributeValue::S(text.to_owned());
    far.insert("pk".to_owned(), text(&format!("instance#{arn}")));
    far.insert("instanceArn".to_owned(), text(arn));
    let status = at_once(&[pool("linux", 4), far, machine(2, 2, "running", 5, held(2, "7"))], at(60));
    let regions: Vec<_> = status.machines.iter().map(|machine| machine.region.as_deref()).collect();
    assert_eq!(regions, [Some("us-gov-west-1"), None]);
}

#[test]
fn a_pool_with_scale_sets_tells_each_in_a_line() {
    let mut serving = pool("linux", 4);
    let queue = json!({"labels": ["runyard-small"], "scope": "organization"});
    let more = json!({"queue": queue, "repositories": ["acme/*"], "reuseWithin": "owner", "registrationMode": "job"});
    serving.extend(item(more));
    let set = item(json!({
        "pk": "queue#linux", "sk": "queue#acme", "kind": "queue", "version": 2, "setName": "runyard-small",
        "scaleSetId": 7, "state": "Waiting", "statistics": {"assigned": 3},
    }));
    let status = at_once(&[serving, set], at(60));
    let expected =
        "scale set runyard-small at acme: Waiting, not listened to; jobs: 3; slots: 0, 0 with a job";
    assert_eq!(status.pools[0].sets, [expected]);
    let plain = serde_json::to_value(&at_once(&[pool("linux", 4)], at(60)).pools[0]).unwrap();
    assert!(plain.get("sets").is_none(), "{plain}");
}
