use super::*;
use crate::model::{EventType, Signal};
use crate::testing::{arn, ask, launch, linux, machine, request, start};

use crate::explain::probable;

fn items(records: &[&dyn Fn() -> Item]) -> Vec<Item> {
    records.iter().map(|record| record()).collect()
}

fn names(items: &[Item], key: &RecordId, events: &[Event]) -> Vec<&'static str> {
    let said = evidence(items, &related(items, key), events);
    probable(said.iter().map(|one| one.words.as_str())).iter().map(|one| one.cause.name).collect()
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
    let key = machine("i-1").instance.key();
    let event = |kind, message: &str| {
        let mut event = Event::new(&key, "1".into(), start(), "operator");
        (event.event_type, event.message) = (kind, message.to_owned());
        event
    };
    let of = |kind| names(&[], &key, &[event(kind, "VcpuLimitExceeded: more than your limit")]);
    assert_eq!((of(EventType::Warning), of(EventType::Normal)), (vec!["quota"], vec![]));
}
