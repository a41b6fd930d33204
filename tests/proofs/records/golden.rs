//! The stored form, as files that anybody can read beside the contract (`tests/golden`, DynamoDB's JSON). Attributes
//! whose names begin with `future` are none of ours and must survive us.

use std::path::Path;

use jiff::Timestamp;
use runyard_core::model::{
    AttributeValue, Instance, Item, Kind, Launch, Lease, Operation, Pool, Reading, Request, SetRecord,
    Versioned, Write, read,
};

use crate::records::{Verdict, verdict};

/// Every golden record with its file's name.
pub(crate) fn records() -> Vec<(String, Kind, Item)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden");
    let mut records: Vec<_> = std::fs::read_dir(folder)
        .expect("the golden records are in the checkout")
        .map(|entry| entry.expect("a readable folder").path())
        // Beside the records stand the events of others.
        .filter(|path| path.is_file())
        .map(|path| {
            let json = std::fs::read_to_string(&path).expect("a readable file");
            let item: Item = serde_json::from_str(&json).expect("DynamoDB's JSON");
            let name = path.file_stem().expect("a file's name").to_string_lossy().into_owned();
            let kind = name.split('-').next().unwrap_or_default().parse().expect("a kind begins the name");
            (name, kind, item)
        })
        .collect();
    records.sort_by(|a, b| a.0.cmp(&b.0));
    records
}

fn known(item: &Item) -> Item {
    item.iter().filter(|(name, _)| !name.starts_with("future")).map(|(k, v)| (k.clone(), v.clone())).collect()
}

#[test]
fn every_kind_has_a_golden_record() {
    let records = records();
    for kind in Kind::ALL {
        assert!(records.iter().any(|(_, of, _)| of == kind), "{kind}");
    }
}

#[test]
fn golden_records_are_read_and_would_be_stored_just_so() {
    for (name, kind, item) in records() {
        assert_eq!(verdict(kind, &item), Verdict::Record(known(&item)), "{name}");
    }
}

/// What is stored after the next write of a record.
fn rewritten<T: Versioned>(item: &Item) -> Item {
    let Reading::Record(before) = read::<T>(item) else { panic!("a golden record is readable") };
    let mut after = before.clone();
    after.advance("2026-02-03T04:05:06Z".parse::<Timestamp>().expect("a time"));
    let Write { operation: Operation::Update { set, remove, .. }, .. } = after.replacing(&before) else {
        panic!("a replacement is an update")
    };
    let mut stored = item.clone();
    stored.extend(set);
    stored.retain(|name, _| !remove.contains(name));
    stored
}

#[test]
fn attributes_from_the_future_survive_a_write_that_does_not_know_them() {
    let mut seen = 0;
    for (name, kind, item) in records() {
        let stored = match kind {
            Kind::Instance => rewritten::<Instance>(&item),
            Kind::Request => rewritten::<Request>(&item),
            Kind::Pool => rewritten::<Pool>(&item),
            Kind::Launch => rewritten::<Launch>(&item),
            Kind::Lease => rewritten::<Lease>(&item),
            Kind::Queue => rewritten::<SetRecord>(&item),
            // Written by others in other ways: an agent names what it changes, an event never changes.
            Kind::Agent | Kind::Event => continue,
        };
        let changed: Vec<_> =
            stored.iter().filter(|(k, v)| item.get(*k) != Some(v)).map(|(k, _)| k).collect();
        assert_eq!(changed, ["updatedAt", "version"], "{name}");
        let version = |item: &Item| match &item["version"] {
            AttributeValue::N(number) => number.parse::<u64>().expect("a whole number"),
            other => panic!("{other:?}"),
        };
        assert_eq!(version(&stored), version(&item) + 1, "{name}");
        assert_eq!(stored.get("futureNote"), item.get("futureNote"), "{name}");
        seen += usize::from(item.contains_key("futureNote"));
        assert!(item.keys().all(|attribute| stored.contains_key(attribute)), "{name}");
    }
    assert!(seen >= 5, "each kind that is rewritten has a record from the future");
}
