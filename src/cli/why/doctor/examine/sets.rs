//! Finds runner scale sets whose messages nobody reads, those that outlived their class, and labels of two classes.

use jiff::Timestamp;

use super::{Finding, warning};
use runyard_core::model::{ConditionType, Pool, Record as _, RecordId, SetRecord, SetState};

/// Returns the findings about scale sets.
pub(super) fn look(pools: &[Pool], sets: &[SetRecord], late: &dyn Fn(Timestamp) -> bool) -> Vec<Finding> {
    let mut findings: Vec<Finding> = sets.iter().filter_map(|set| one(set, pools, late)).collect();
    findings.extend(pools.iter().enumerate().flat_map(|(i, pool)| {
        pools[..i].iter().filter_map(|other| shared_label(other, pool)).collect::<Vec<_>>()
    }));
    findings
}

fn one(set: &SetRecord, pools: &[Pool], late: &dyn Fn(Timestamp) -> bool) -> Option<Finding> {
    let (class, place) = set.key.as_ref()?;
    let key = RecordId::Queue(class.clone(), place.clone());
    let served =
        pools.iter().any(|pool| pool.spec.resource_class == *class && pool.spec.set_places().contains(place));
    let long = set.updated_at.is_none_or(late);
    let name = &set.set_name;
    let (reason, problem, fix) = match set.state {
        SetState::Gone => return None,
        SetState::Ensuring | SetState::Waiting | SetState::Listening | SetState::Draining if !served => {
            if !long {
                return None;
            }
            let problem =
                format!("scale set {name} is {}, and class {class} does not serve it any more", set.state);
            let fix =
                "check that an operator runs and what it logs: it deletes the set at GitHub after its slots";
            ("SetLeftOver", problem, fix)
        }
        SetState::Ensuring | SetState::Waiting | SetState::Listening | SetState::Draining => {
            let mut conditions = set.conditions.iter();
            let trouble =
                conditions.find(|one| one.condition_type == ConditionType::Listening && !one.status);
            let stuck = match set.state {
                SetState::Ensuring | SetState::Waiting => long,
                SetState::Listening | SetState::Draining | SetState::Gone => false,
            };
            let (since, why) = match trouble {
                Some(trouble) if late(trouble.at) => (trouble.at, trouble.message.clone()),
                Some(_) | None if stuck => (set.updated_at.unwrap_or_default(), String::new()),
                Some(_) | None => return None,
            };
            let why = if why.is_empty() { why } else { format!(": {why}") };
            let problem =
                format!("scale set {name} is {}, and not listened to since {since}{why}", set.state);
            let fix = match set.state {
                SetState::Waiting => {
                    "end the other listener of the set; after a kill GitHub frees its session in minutes"
                }
                SetState::Ensuring | SetState::Listening | SetState::Draining | SetState::Gone => {
                    "check GitHub's status, the App's permissions for self-hosted runners, and what the operator logs"
                }
            };
            ("SetNotListening", problem, fix)
        }
    };
    Some(warning(reason, &key, problem, fix, Vec::new()))
}

/// Returns a finding about two classes whose sets share a label: only the first by name is served.
fn shared_label(first: &Pool, second: &Pool) -> Option<Finding> {
    let label = first.spec.shares_a_set_label(&second.spec)?;
    let (one, other) = (&first.spec.resource_class, &second.spec.resource_class);
    let (served, unserved) = if one < other { (first, second) } else { (second, first) };
    let problem = format!(
        "its scale sets share label {label} with those of class {}, so they are not listened to",
        served.spec.resource_class
    );
    let fix = "give one of the two classes another label in queue.labels, or repositories of other owners";
    Some(warning("SharedSetLabel", &unserved.key(), problem, fix, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_core::model::{Condition, SetPlace, Uid};
    use serde_json::json;

    fn pool(class: &str, label: &str) -> Pool {
        let item = json!({"pk": format!("pool#{class}"), "sk": "pool", "kind": "pool", "version": 1,
            "resourceClass": class, "repositories": ["acme/*"],
            "queue": {"labels": [label], "scope": "organization"}});
        let item: serde_dynamo::Item = serde_dynamo::to_item(item).unwrap();
        crate::session::context::readable(&item.into_inner().into_iter().collect()).unwrap()
    }

    fn set(state: SetState, trouble: Option<i64>) -> SetRecord {
        let (class, place) = ("small".parse().unwrap(), SetPlace::organization("acme").unwrap());
        let mut set = SetRecord::born(class, place, vec!["runyard-small".into()], Uid::parse("u").unwrap());
        (set.state, set.updated_at) = (state, Some(at(0)));
        let condition = |seconds: i64| {
            Condition::since(&[], ConditionType::Listening, false, "Trouble", "no answer".into(), at(seconds))
        };
        set.conditions = trouble.map(condition).into_iter().collect();
        set
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Looks ten minutes after `now`.
    fn reasons(pools: &[Pool], sets: &[SetRecord], now: i64) -> Vec<&'static str> {
        let late = |then: Timestamp| then < at(now - 600);
        look(pools, sets, &late).into_iter().map(|finding| finding.reason).collect()
    }

    #[test]
    fn a_set_that_is_not_listened_to_for_long_is_found_and_one_that_listens_is_not() {
        let small = [pool("small", "runyard-small")];
        for (state, trouble, now, found) in [
            (SetState::Listening, None, 9_000, None),
            (SetState::Draining, None, 9_000, None),
            (SetState::Waiting, None, 300, None),
            (SetState::Waiting, None, 700, Some("SetNotListening")),
            (SetState::Ensuring, None, 700, Some("SetNotListening")),
            (SetState::Listening, Some(0), 300, None),
            (SetState::Listening, Some(0), 700, Some("SetNotListening")),
            (SetState::Gone, Some(0), 700, None),
        ] {
            let reasons = reasons(&small, &[set(state, trouble)], now);
            assert_eq!(reasons, found.into_iter().collect::<Vec<_>>(), "{state} {trouble:?} {now}");
        }
    }

    #[test]
    fn a_set_whose_class_is_gone_and_that_never_went_is_found() {
        let sets = [set(SetState::Draining, None)];
        assert_eq!(reasons(&[], &sets, 700), ["SetLeftOver"]);
        assert_eq!(reasons(&[], &sets, 300), [""; 0]);
        assert_eq!(reasons(&[], &[set(SetState::Gone, None)], 700), [""; 0]);
    }

    #[test]
    fn labels_of_two_classes_are_a_finding_at_the_one_that_is_not_served() {
        let pools = [pool("small", "runyard"), pool("b", "builds"), pool("a", "builds")];
        let found = look(&pools, &[], &|_| false);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].reason, found[0].record.as_str()), ("SharedSetLabel", "pool#b / pool"));
        assert!(found[0].problem.contains("label builds with those of class a"), "{}", found[0].problem);
    }
}
