//! Recognises a refused write that was applied: its response was lost, the SDK repeated it, and the repetition met its
//! own result. The image in the refusal decides.

use crate::model::{AttributeValue, Guard, Item, Operation, Write};

/// Returns whether `current` is the result of this write. Two writers of exactly the same result are not distinguished:
/// each may believe that it wrote it, and both are right about the record.
pub fn already_done(write: &Write, current: Option<&Item>) -> bool {
    match (&write.operation, current) {
        (Operation::Create(item), Some(current)) => holds(current, item),
        (Operation::Update { guard, set, remove, .. }, Some(current)) => {
            let shown = holds(current, set) && remove.iter().all(|name| !current.contains_key(name));
            match guard {
                Guard::Version(version) => shown && follows(current, *version),
                Guard::Image(uid, version) => {
                    let uid = AttributeValue::S(uid.to_string());
                    shown && follows(current, *version) && current.get("uid") == Some(&uid)
                }
                Guard::StillProvisioned | Guard::Absent => shown && !set.is_empty(),
                // These guards do not fail on their own result, or leave nothing that identifies it.
                Guard::Exists | Guard::Beat(_) | Guard::Lease(_) | Guard::Anything | Guard::ExpiresAt(_) => {
                    false
                }
            }
        }
        (Operation::Delete(_), None) => true,
        (Operation::Create(_) | Operation::Update { .. }, None)
        | (Operation::Delete(_), Some(_))
        | (Operation::Check(_), _) => false,
    }
}

/// Returns whether a record has the version after this one.
fn follows(current: &Item, version: u64) -> bool {
    let next = AttributeValue::N(version.saturating_add(1).to_string());
    current.get("version").is_some_and(|stored| same(stored, &next))
}

fn holds(current: &Item, wanted: &Item) -> bool {
    wanted.iter().all(|(name, value)| current.get(name).is_some_and(|stored| same(stored, value)))
}

/// Returns whether two values are equal for DynamoDB, which normalises numbers (`15.0` is returned as `15`) and does
/// not order sets.
pub fn same(a: &AttributeValue, b: &AttributeValue) -> bool {
    use AttributeValue::{L, M, N, Ns, Ss};
    match (a, b) {
        (N(a), N(b)) => same_number(a, b),
        (L(a), L(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (M(a), M(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (Ss(a), Ss(b)) => a.len() == b.len() && a.iter().all(|a| b.contains(a)),
        (Ns(a), Ns(b)) => a.len() == b.len() && a.iter().all(|a| b.iter().any(|b| same_number(a, b))),
        (a, b) => a == b,
    }
}

/// Compares whole numbers exactly, others as floats.
fn same_number(a: &str, b: &str) -> bool {
    match (a.parse::<i128>(), b.parse::<i128>()) {
        (Ok(a), Ok(b)) => a == b,
        (Ok(_), Err(_)) | (Err(_), Ok(_) | Err(_)) => {
            a == b || matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a == b)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RecordId;

    fn item(version: u64, state: &str) -> Item {
        [
            ("version".to_owned(), AttributeValue::N(version.to_string())),
            ("state".to_owned(), AttributeValue::S(state.to_owned())),
        ]
        .into()
    }

    fn update(guard: Guard) -> Write {
        let mut write = Write::update(RecordId::new("p", "s"), guard, item(4, "idle"), [].into());
        if let Operation::Update { remove, .. } = &mut write.operation {
            remove.insert("pooledAt".into());
        }
        write
    }

    #[test]
    fn a_write_knows_its_own_result() {
        assert!(already_done(&update(Guard::Version(3)), Some(&item(4, "idle"))));
        assert!(already_done(&Write::create(RecordId::new("p", "s"), item(1, "x")), Some(&item(1, "x"))));
        assert!(already_done(&Write::delete(RecordId::new("p", "s"), Guard::Version(3)), None));
        assert!(already_done(&update(Guard::StillProvisioned), Some(&item(4, "idle"))));
    }

    #[test]
    fn another_writers_result_is_not_ours() {
        let mut pooled = item(4, "idle");
        pooled.insert("pooledAt".into(), AttributeValue::S("now".into()));
        for other in [Some(item(4, "claimed")), Some(item(5, "idle")), Some(pooled), None] {
            assert!(!already_done(&update(Guard::Version(3)), other.as_ref()), "{other:?}");
        }
        let later = update(Guard::Version(2));
        assert!(
            !already_done(&later, Some(&item(4, "idle"))),
            "the version is two ahead of what was replaced"
        );
        assert!(!already_done(&Write::create(RecordId::new("p", "s"), item(1, "x")), Some(&item(2, "x"))));
        assert!(!already_done(
            &Write::delete(RecordId::new("p", "s"), Guard::Version(3)),
            Some(&item(4, "x"))
        ));
        assert!(!already_done(&Write::check(RecordId::new("p", "s"), Guard::Exists), None));
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        let n = |n: &str| AttributeValue::N(n.to_owned());
        assert!(same(&n("15"), &n("15.0")));
        assert!(same(&n("1E2"), &n("100")));
        assert!(!same(&n("9007199254740993"), &n("9007199254740992")));
        assert!(!same(&n("1"), &AttributeValue::S("1".into())));
    }
}
