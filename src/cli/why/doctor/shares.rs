//! Finds shares of classes that match nobody in the operator's file, and entries of that file that match no class.

use super::examine::Finding;
use crate::pools::sharing;
use runyard_core::model::kind_of;
use runyard_core::model::{EventType, FieldError, Item, Kind, Pool, Reading, Record, YardSharing, read};

/// Returns the finding about one record or table.
fn finding(record: String, error: &FieldError) -> Finding {
    let problem = format!("{}: {} {}", error.field, error.value, error.message);
    let (severity, fix) = (EventType::Warning, error.fix.clone());
    Finding { severity, reason: "UnusableShare", record, problem, fix, mend: Vec::new() }
}

/// Compares the tables of the operator's file with the existing classes.
pub(super) fn look(items: &[Item], yard: &YardSharing) -> Vec<Finding> {
    let pools: Vec<Pool> = items
        .iter()
        .filter(|item| kind_of(item) == Some(Kind::Pool))
        .filter_map(|item| match read::<Pool>(item) {
            Reading::Record(pool) => Some(pool),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        })
        .collect();
    let mut findings = Vec::new();
    for pool in &pools {
        let problems = sharing::beside_the_yard("pool", &pool.spec, yard);
        findings.extend(problems.iter().map(|error| finding(pool.key().to_string(), error)));
    }
    let specs: Vec<_> = pools.iter().map(|pool| &pool.spec).collect();
    findings.extend(sharing::of_no_class(yard, &specs).iter().map(|error| finding("sharing".into(), error)));
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use runyard_core::model::PoolStatus;

    #[test]
    fn doctor_finds_a_weight_of_no_team_and_a_quota_of_no_class() {
        let spec =
            json!({"resourceClass": "small", "max": 4, "sharing": {"by": "team", "weights": {"wbe": 3}}});
        let spec = serde_json::from_value(spec).unwrap();
        let status = PoolStatus::default();
        let pool = Pool { spec, scale: None, status, uid: None, version: 1, updated_at: None };
        let quota = runyard_core::model::Quota { max_machines: Some(3), ..Default::default() };
        let yard = YardSharing {
            teams: [("acme/*".to_owned(), "web".to_owned())].into(),
            quotas: [("ops".to_owned(), quota)].into(),
            ..YardSharing::default()
        };
        let found = look(&[pool.to_item()], &yard);
        let told: Vec<_> = found.iter().map(|one| (one.record.as_str(), one.problem.as_str())).collect();
        let weight = "pool.sharing.weights.wbe: wbe is no team of `[sharing] teams`, nor an owner of a repository that may \
                      use the class";
        let quota = "sharing.quotas.ops: ops is the share of nobody in any class with `sharing`";
        assert_eq!(told, [("pool#small / pool", weight), ("sharing", quota)]);
        assert!(look(&[pool.to_item()], &YardSharing::default()).len() == 1, "by team without a table");
    }
}
