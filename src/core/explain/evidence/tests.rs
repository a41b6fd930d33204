use super::*;
use crate::model::history::{Activity, PastSpan};
use crate::model::{EventType, Signal};
use crate::testing::{arn, ask, launch, linux, machine, request, start};

use crate::explain::{picture, probable};

fn items(records: &[&dyn Fn() -> Item]) -> Vec<Item> {
    records.iter().map(|record| record()).collect()
}

fn names(items: &[Item], key: &RecordId, events: &[Event]) -> Vec<&'static str> {
    let (yard, now, _) = picture(items, start());
    let said = evidence(&yard, &now, items, &related(items, key), events);
    let signs = said.iter().filter(|one| one.sign).map(|one| one.words.as_str());
    probable(signs).iter().map(|one| one.cause.name).collect()
}

#[test]
fn a_request_has_its_machines_its_launches_and_its_class() {
    let (mine, other) = (ask("1"), ask("2"));
    let items = items(&[
        &|| request("1", 2, serde_json::json!({})).to_item(),
        &|| machine("i-1").running(&mine).instance.to_item(),
        &|| machine("i-2").running(&other).instance.to_item(),
        &|| launch("l-1", 2, Some(&mine)).to_item(),
    ]);
    let keys = related(&items, &Request::key_of(&mine));
    assert!(keys.contains(&Instance::key_of(&arn("i-1"))) && !keys.contains(&Instance::key_of(&arn("i-2"))));
    assert!(
        keys.iter().any(|key| matches!(key, RecordId::Launch(_))) && keys.contains(&Pool::key_of(&linux()))
    );
}

#[test]
fn what_the_agent_said_counts_before_what_followed_from_it() {
    let said = "its SHA-256 is 00, not 01; mend runner.sha256 or runner.url";
    let built = machine("i-1").ended(Reason::BootFailed);
    let built = built.says(Signal::Failed).agent(|agent| agent.signal_detail = Some(said.into()));
    let key = built.instance.key();
    let items = items(&[&|| built.instance.to_item(), &|| built.agent.clone().unwrap().to_item()]);
    assert_eq!(names(&items, &key, &[]).first(), Some(&"package-digest"));
}

#[test]
fn a_machine_that_never_reported_is_known_by_its_record() {
    let built = machine("i-1").ended(Reason::Threshold).with(|one| (one.uses, one.public_key) = (0, None));
    let items = items(&[&|| built.instance.to_item()]);
    assert_eq!(names(&items, &built.instance.key(), &[]), ["never-reported"]);
    let class = Pool::key_of(&built.instance.facts.resource_class);
    assert_eq!(names(&items, &class, &[]), ["never-reported"], "a class has its machines that ended badly");
}

#[test]
fn warnings_count_and_what_is_normal_does_not() {
    let built = machine("i-1").ended(Reason::Vanished);
    let key = built.instance.key();
    let there = [built.instance.to_item()];
    let event = |kind, message: &str| {
        let mut event = Event::new(&key, "1".into(), start(), "operator");
        (event.event_type, event.message) = (kind, message.to_owned());
        event
    };
    let of = |kind| names(&there, &key, &[event(kind, "VcpuLimitExceeded: more than your limit")]);
    assert_eq!(of(EventType::Warning), ["quota", "stopped-itself"]);
    assert_eq!(of(EventType::Normal), ["stopped-itself"]);
}

fn ready(run: &str) -> Item {
    request(run, 1, serde_json::json!({"phase": "Ready", "message": "1 of 1 machine is running"})).to_item()
}

fn paused() -> Item {
    crate::testing::item(serde_json::json!({
        "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 2, "resourceClass": "linux", "max": 5,
        "paused": true,
    }))
}

#[test]
fn a_machine_that_a_person_ended_is_not_explained_by_its_class_or_its_request() {
    let by = |i: &mut Instance| i.expired_by = Some("cli:ada".into());
    let built = machine("i-1").running(&ask("1")).ended(Reason::Expired).with(by);
    let said = "waiting for 1 of 1 machine, because class linux is paused";
    let waiting = request("1", 1, serde_json::json!({"message": said}));
    let items = [paused(), built.instance.to_item(), waiting.to_item()];
    assert_eq!(names(&items, &built.instance.key(), &[]), ["ended-by-a-person"]);
    assert_eq!(names(&items, &waiting.key(), &[]), ["class-paused", "ended-by-a-person"]);
    // Whatever its end was, the present wait of its request did not cause it.
    let built = machine("i-1").running(&ask("1")).ended(Reason::Vanished);
    let items = [paused(), built.instance.to_item(), waiting.to_item()];
    assert_eq!(names(&items, &built.instance.key(), &[]), ["stopped-itself"]);
}

#[test]
fn a_released_request_has_the_cause_that_kept_its_machine_from_the_pool() {
    let released = request("1", 1, serde_json::json!({"phase": "Released", "message": "its run is over"}));
    let of = |reason, spans: Vec<PastSpan>| {
        let built = machine("i-1").running(&ask("1")).ended(reason).with(|i| i.spans = spans);
        names(&[released.to_item(), built.instance.to_item()], &released.key(), &[])
    };
    assert_eq!(of(Reason::CleanupFailed, Vec::new()), ["left-behind"]);
    let under = PastSpan::new(Activity::Running, start(), Some(released.key()));
    assert!(of(Reason::Vanished, vec![under]).is_empty(), "it was lost under the run, which went on");
}

#[test]
fn nothing_is_blamed_where_nothing_is_wrong() {
    let lost = machine("i-1").running(&ask("1")).ended(Reason::Vanished);
    let warned = {
        let mut event = Event::new(&Request::key_of(&ask("1")), "1".into(), start(), "operator");
        (event.event_type, event.reason) = (EventType::Warning, "Degraded".into());
        event.message = "lost i-1 (vanished); UnauthorizedOperation; to be replaced".to_owned();
        event
    };
    let key = Request::key_of(&ask("1"));
    let items = [ready("1"), lost.instance.to_item(), machine("i-2").running(&ask("1")).instance.to_item()];
    assert!(names(&items, &key, std::slice::from_ref(&warned)).is_empty(), "it is ready again");
    for healthy in [machine("i-3").pooled(), machine("i-4").running(&ask("1")), machine("i-5")] {
        let detail = Some("the server answers 403, once".to_owned());
        let healthy = healthy.agent(|agent| agent.signal_detail = detail);
        let items =
            [paused(), ready("1"), healthy.instance.to_item(), healthy.agent.clone().unwrap().to_item()];
        assert!(names(&items, &healthy.instance.key(), &[]).is_empty(), "{}", healthy.instance.state());
    }
    for ordinary in [Reason::Surplus, Reason::MaxAge, Reason::Drifted, Reason::MaxUses] {
        let ended = machine("i-6").ended(ordinary).instance;
        assert!(names(&[ended.to_item()], &ended.key(), &[]).is_empty(), "{ordinary}");
    }
}

#[test]
fn every_way_to_fail_has_a_cause_even_without_a_word() {
    for reason in Reason::ALL.iter().filter(|reason| reason.is_failure()) {
        let ended = machine("i-1").running(&ask("1")).ended(*reason).instance;
        assert!(!names(&[ended.to_item()], &ended.key(), &[]).is_empty(), "{reason}");
    }
    let refused = [
        "Invalid",
        "UnknownClass",
        "OverMax",
        "NotAllowed",
        "LabelTaken",
        "KeyTaken",
        "Quota",
        "TooMany",
        "DeadlinePassed",
        "FailedByPerson",
    ];
    for reason in refused {
        let message = format!("{reason}: as it is");
        let failed = request("1", 1, serde_json::json!({"phase": "Failed", "message": message}));
        assert!(!names(&[failed.to_item()], &failed.key(), &[]).is_empty(), "{reason}");
    }
}

#[test]
fn that_nobody_leads_explains_what_waits() {
    let lease = crate::testing::item(serde_json::json!({
        "pk": "lease#operator", "sk": "lease", "kind": "lease", "version": 1, "holder": "a", "token": 1,
        "termSeconds": 15.0, "updatedAt": crate::testing::at(-300),
    }));
    let waiting = request("1", 1, serde_json::json!({}));
    assert_eq!(names(&[lease.clone(), waiting.to_item()], &waiting.key(), &[]), ["no-leader"]);
    let failed = request("1", 1, serde_json::json!({"phase": "Failed", "message": "NotAllowed: no"}));
    assert_eq!(names(&[lease, failed.to_item()], &failed.key(), &[]), ["not-allowed"]);
}
