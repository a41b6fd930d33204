//! How large may a record be that programs other than the operator write? A larger one is not parsed, and only its key
//! is kept: one workflow's credential must not fill the memory of the operator that serves all.

use super::item::{AttributeValue, Item, text_of};

/// Most machines that one request may ask for.
pub const MOST_MACHINES: u32 = 500;
/// Most bytes of a record that workflows or machines write, as DynamoDB counts them.
pub const MOST_RECORD_BYTES: usize = 64 * 1024;
/// The keys of these records.
const OF_OTHERS: [&str; 2] = [REQUEST, "agent#"];
const REQUEST: &str = "request#";
/// The attributes by which a request's record grows with its machines. The operator alone writes these.
const UNCOUNTED: [&str; 3] = ["claims", "instances", "served"];
/// The replacement for the attributes of a record that is too large: how many bytes they had.
const LEFT_OUT: &str = "\u{0}bytes";

/// Returns the item; for one that is too large only its key and its size.
pub fn bounded(item: Item) -> Item {
    let Some(bytes) = too_large(&item) else { return item };
    let mut key: Item = item.into_iter().filter(|(name, _)| matches!(name.as_str(), "pk" | "sk")).collect();
    key.insert(LEFT_OUT.into(), AttributeValue::N(bytes.to_string()));
    key
}

/// Returns how many bytes an item has, or had, that is too large to be read.
pub(crate) fn too_large(item: &Item) -> Option<usize> {
    let pk = text_of(item, "pk")?;
    if !OF_OTHERS.iter().any(|kind| pk.starts_with(kind)) {
        return None;
    }
    if let Some(AttributeValue::N(bytes)) = item.get(LEFT_OUT) {
        return Some(bytes.parse().unwrap_or(usize::MAX));
    }
    let grows = |name: &str| pk.starts_with(REQUEST) && UNCOUNTED.contains(&name);
    let counted = item.iter().filter(|(name, _)| !grows(name));
    let bytes = counted.map(|(name, value)| name.len() + size(value)).sum();
    (bytes > MOST_RECORD_BYTES).then_some(bytes)
}

/// Returns the size of a value, as DynamoDB counts it.
fn size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number.len() / 2 + 2,
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::Bool(_) | AttributeValue::Null(_) => 1,
        AttributeValue::L(list) => 3 + list.iter().map(|value| 1 + size(value)).sum::<usize>(),
        AttributeValue::M(map) => {
            3 + map.iter().map(|(name, value)| 1 + name.len() + size(value)).sum::<usize>()
        }
        AttributeValue::Ss(set) => set.iter().map(String::len).sum(),
        AttributeValue::Ns(set) => set.iter().map(|number| number.len() / 2 + 2).sum(),
        AttributeValue::Bs(set) => set.iter().map(Vec::len).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Agent, Reading, Record, Request, read};
    use crate::testing::{ask, holding, machine};
    use serde_json::json;

    fn text(bytes: usize) -> AttributeValue {
        AttributeValue::S("x".repeat(bytes))
    }

    fn request(more: &[(&str, AttributeValue)]) -> Item {
        let mut item = holding("7", 1, &[], json!({})).to_item();
        item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        item
    }

    #[test]
    fn of_a_request_that_is_too_large_nothing_but_its_key_is_kept() {
        let list = AttributeValue::L(vec![AttributeValue::Null(true); MOST_RECORD_BYTES / 2]);
        let map = AttributeValue::M((0..6000).map(|n| (format!("{n:010}"), text(0))).collect());
        for value in [text(MOST_RECORD_BYTES), list, map] {
            let large = request(&[("whatever", value)]);
            let kept = bounded(large.clone());
            assert_eq!(kept.keys().collect::<Vec<_>>(), [LEFT_OUT, "pk", "sk"]);
            // Whether or not the adapter of the table left them out.
            for item in [large, kept] {
                let Reading::Unreadable(why) = read::<Request>(&item) else { panic!("{:?}", item.keys()) };
                assert_eq!(why.key, ask("7"));
                assert!(why.problem.contains("at most 65536 bytes are read"), "{}", why.problem);
                assert!(why.problem.len() < 200, "{}", why.problem);
            }
        }
    }

    #[test]
    fn a_request_that_may_be_read_is_kept_as_it_is() {
        let fits = request(&[("whatever", text(MOST_RECORD_BYTES - 2000))]);
        assert_eq!(bounded(fits.clone()), fits);
        assert!(matches!(read::<Request>(&fits), Reading::Record(_)));
    }

    #[test]
    fn a_request_is_not_too_large_for_the_machines_it_had() {
        let ids: Vec<String> = (0..4000).map(|n| format!("i-{n:017x}")).collect();
        let list = AttributeValue::L(ids.iter().cloned().map(AttributeValue::S).collect());
        let item = request(&[("served", list)]);
        assert_eq!(bounded(item.clone()), item);
        assert!(matches!(read::<Request>(&item), Reading::Record(_)));
    }

    #[test]
    fn what_machines_write_is_bounded_and_what_operators_and_people_write_is_not() {
        let spoilt = |mut item: Item| {
            item.insert("whatever".into(), text(MOST_RECORD_BYTES));
            item
        };
        let scene = machine("i-1").pooled();
        let agent = bounded(spoilt(scene.agent.expect("it has an agent").to_item()));
        assert!(matches!(read::<Agent>(&agent), Reading::Unreadable(_)));
        let instance = spoilt(scene.instance.to_item());
        assert_eq!(bounded(instance.clone()), instance);
        // Attributes by which a request may grow are none of an agent's.
        let mut agent = machine("i-1").pooled().agent.unwrap().to_item();
        agent.insert("served".into(), text(MOST_RECORD_BYTES));
        assert!(matches!(read::<Agent>(&bounded(agent)), Reading::Unreadable(_)));
    }
}
