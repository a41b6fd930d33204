//! What DynamoDB does with one write, as pure functions: whether its guard holds, what the record becomes, and what
//! is refused whatever the record is.

use std::collections::BTreeSet;

use runyard_core::model::{AttributeValue, Guard, Item, Operation, Write};
use runyard_core::ports::StoreError;
use runyard_store::outcome::same;

/// Most writes of a transaction (`TransactWriteItems`).
const TRANSACTION: usize = 100;
/// Largest item in bytes (DynamoDB's limits).
const ITEM: usize = 400 * 1024;

/// Whether the guard of an operation holds for the record as it is.
pub(super) fn held(operation: &Operation, current: Option<&Item>) -> bool {
    match operation {
        Operation::Create(_) => holds(&Guard::Absent, current),
        Operation::Update { guard, .. } | Operation::Delete(guard) | Operation::Check(guard) => {
            holds(guard, current)
        }
    }
}

fn holds(guard: &Guard, current: Option<&Item>) -> bool {
    let equal = |name: &str, value: AttributeValue| {
        current.and_then(|item| item.get(name)).is_some_and(|stored| same(stored, &value))
    };
    match guard {
        Guard::Absent => current.is_none(),
        Guard::Version(version) => equal("version", AttributeValue::N(version.to_string())),
        Guard::Image(uid, version) => {
            equal("uid", AttributeValue::S(uid.to_string()))
                && equal("version", AttributeValue::N(version.to_string()))
        }
        Guard::Exists => current.is_some(),
        Guard::Beat(seq) => equal("heartbeatSeq", AttributeValue::N(seq.to_string())),
        Guard::Lease(token) => equal("token", AttributeValue::N(token.to_string())),
        Guard::StillProvisioned => equal("desired", AttributeValue::S("provisioned".into())),
        Guard::Anything => true,
        Guard::ExpiresAt(seconds) => equal("expiresAt", AttributeValue::N(seconds.to_string())),
    }
}

/// What is refused before any record is looked at.
pub(super) fn check(writes: &[Write]) -> Result<(), StoreError> {
    let invalid = |text: String| Err(StoreError::Invalid(text));
    let mut keys = BTreeSet::new();
    if writes.len() > TRANSACTION {
        return invalid(format!("{} writes in one transaction, at most {TRANSACTION}", writes.len()));
    }
    for write in writes {
        if write.key.pk().is_empty() || write.key.sk().is_empty() {
            return invalid(format!("{}: a key's parts must not be empty", write.key));
        }
        if !keys.insert(&write.key) {
            return invalid(format!("{}: two writes of one record in one transaction", write.key));
        }
        if let Operation::Update { set, remove, add, .. } = &write.operation {
            let named = set.keys().chain(remove).chain(add.keys());
            if named.clone().collect::<BTreeSet<_>>().len() != named.count() {
                return invalid(format!("{}: one attribute is changed in two ways", write.key));
            }
        }
    }
    Ok(())
}

/// What the record becomes; none when it is removed. The guard is taken to hold.
pub(super) fn applied(write: &Write, current: Option<&Item>) -> Result<Option<Item>, StoreError> {
    let item = match &write.operation {
        Operation::Create(item) => item.iter().map(|(name, value)| (name.clone(), normal(value))).collect(),
        Operation::Update { set, remove, add, .. } => {
            let mut item = current.cloned().unwrap_or_default();
            item.extend(set.iter().map(|(name, value)| (name.clone(), normal(value))));
            item.retain(|name, _| !remove.contains(name));
            for (name, by) in add {
                let sum = raised(item.get(name), *by)
                    .ok_or_else(|| StoreError::Invalid(format!("{}: {name} is not a number", write.key)))?;
                item.insert(name.clone(), sum);
            }
            item
        }
        Operation::Delete(_) => return Ok(None),
        Operation::Check(_) => return Ok(current.cloned()),
    };
    if size(&item) > ITEM {
        return Err(StoreError::Invalid(format!("{}: the item is larger than 400 KB", write.key)));
    }
    Ok(Some(keyed(item, write)))
}

fn keyed(mut item: Item, write: &Write) -> Item {
    item.insert("pk".into(), AttributeValue::S(write.key.pk()));
    item.insert("sk".into(), AttributeValue::S(write.key.sk()));
    item
}

fn raised(current: Option<&AttributeValue>, by: i64) -> Option<AttributeValue> {
    let from = match current {
        None => 0,
        Some(AttributeValue::N(n)) => n.parse::<i128>().ok()?,
        Some(_) => return None,
    };
    Some(AttributeValue::N((from + i128::from(by)).to_string()))
}

/// Numbers as DynamoDB gives them back: without trailing zeros.
fn normal(value: &AttributeValue) -> AttributeValue {
    match value {
        AttributeValue::N(n) if n.contains('.') && !n.contains(['e', 'E']) => {
            AttributeValue::N(n.trim_end_matches('0').trim_end_matches('.').to_owned())
        }
        AttributeValue::L(list) => AttributeValue::L(list.iter().map(normal).collect()),
        AttributeValue::M(map) => {
            AttributeValue::M(map.iter().map(|(name, value)| (name.clone(), normal(value))).collect())
        }
        other => other.clone(),
    }
}

/// About what an item takes, by DynamoDB's rules for sizes.
fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + size_of_value(value)).sum()
}

fn size_of_value(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::N(n) => n.len() / 2 + 1,
        AttributeValue::S(s) => s.len(),
        AttributeValue::Bool(_) | AttributeValue::Null(_) => 1,
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::M(map) => 3 + map.iter().map(|(k, v)| 1 + k.len() + size_of_value(v)).sum::<usize>(),
        AttributeValue::L(list) => 3 + list.iter().map(|v| 1 + size_of_value(v)).sum::<usize>(),
        AttributeValue::Ss(set) => set.iter().map(String::len).sum(),
        AttributeValue::Ns(set) => set.iter().map(|n| n.len() / 2 + 1).sum(),
        AttributeValue::Bs(set) => set.iter().map(Vec::len).sum(),
    }
}
