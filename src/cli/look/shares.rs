//! `runyard get shares`: the usage, the machines and the waiting demand of each share of the classes that are shared.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::output::screen::Screen;
use crate::output::table::columns;
use runyard_core::explain;
use runyard_core::model::{ClassName, Item};

/// Returns the shares of all classes, or of one, for programs; those with the highest use for their weight come last.
pub(crate) fn document(everything: &[Item], class: Option<&ClassName>, now: Timestamp) -> Value {
    let (yard, now, _) = explain::picture(everything, now);
    let classes = yard.classes().map(|(name, _)| name).filter(|name| class.is_none_or(|only| only == *name));
    let mut items = Vec::new();
    for name in classes {
        let mut shares = explain::shares(&yard, now, name);
        shares.sort_by_key(|share| (share.used / u64::from(share.weight), share.share.clone()));
        items.extend(shares.into_iter().map(|share| {
            json!({
                "resourceClass": share.class,
                "share": share.share,
                "weight": share.weight,
                "usedSeconds": share.used,
                "usedPermille": share.part,
                "machines": share.held,
                "waiting": share.waiting,
                "maxMachines": share.quota.max_machines,
                "maxWaiting": share.quota.max_waiting,
                "guaranteed": share.quota.guaranteed,
                "machinesKeptFor": share.keeps.first().map(ToString::to_string),
                "partsHeldBy": share.keeps.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        }));
    }
    json!({"items": items, "braked": explain::braked(&yard, now)})
}

/// Returns whether the document has no shares.
pub(crate) fn is_empty(document: &Value) -> bool {
    ["items", "braked"].iter().all(|part| document[part].as_array().is_none_or(Vec::is_empty))
}

/// Returns the oldest of the requests that hold a part, and the number of the others.
fn kept_for(holders: &Value) -> String {
    let all: Vec<&str> = holders.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match all.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, more @ ..] => format!("{first} and {} more", more.len()),
    }
}

/// Formats the shares for people.
pub(crate) fn table(screen: &Screen, document: &Value) -> String {
    const HEADS: &[&str] = &[
        "CLASS",
        "SHARE",
        "WEIGHT",
        "USED",
        "PART",
        "MACHINES",
        "WAITING",
        "QUOTA",
        "GUARANTEED",
        "KEEPS FOR",
    ];
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    let row = |share: &Value| {
        let (used, part) =
            (share["usedSeconds"].as_u64().unwrap_or(0), share["usedPermille"].as_u64().unwrap_or(0));
        vec![
            text(&share["resourceClass"]),
            text(&share["share"]),
            text(&share["weight"]),
            crate::common::duration::show(std::time::Duration::from_secs(used)),
            format!("{}.{} %", part / 10, part % 10),
            text(&share["machines"]),
            text(&share["waiting"]),
            text(&share["maxMachines"]),
            text(&share["guaranteed"]),
            kept_for(&share["partsHeldBy"]),
        ]
    };
    let rows = document["items"].as_array().map(|items| items.iter().map(row).collect()).unwrap_or_default();
    let braked = document["braked"].as_array().into_iter().flatten().filter_map(Value::as_str);
    braked.fold(columns(screen, HEADS, rows), |text, line| format!("{text}\n{line}\n"))
}
