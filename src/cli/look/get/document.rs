//! The document of a list.

use serde_json::{Map, Value};

use crate::input::selector::Noun;
use crate::output::json;
use runyard_core::model::{Instance, Item, Launch, Pool, Reading, Record, RecordId, Request, read};

/// Returns the contract's list; an unreadable item is included unchanged, and its problem is listed separately.
pub(super) fn listed(items: &[(Noun, Item)]) -> Value {
    let odd: Vec<Value> = items.iter().filter_map(|(noun, item)| problem(*noun, item)).collect();
    let mut document = json::list(items.iter().map(|(_, item)| item));
    if let (Value::Object(map), false) = (&mut document, odd.is_empty()) {
        map.extend(Map::from_iter([("unreadable".to_owned(), Value::Array(odd))]));
    }
    document
}

fn problem(noun: Noun, item: &Item) -> Option<Value> {
    let key = RecordId::of(item).map(|key| key.to_string()).unwrap_or_default();
    let problem = match noun {
        Noun::Instances => unreadable::<Instance>(item),
        Noun::Requests => unreadable::<Request>(item),
        Noun::Pools | Noun::Shares => unreadable::<Pool>(item),
        Noun::Launches => unreadable::<Launch>(item),
    }?;
    Some(serde_json::json!({"key": key, "problem": problem}))
}

fn unreadable<T: Record>(item: &Item) -> Option<String> {
    match read::<T>(item) {
        Reading::Record(_) => None,
        Reading::Newer { schema } => Some(format!("written by a newer runyard (schema {schema})")),
        Reading::Unreadable(unreadable) => Some(unreadable.problem),
    }
}
