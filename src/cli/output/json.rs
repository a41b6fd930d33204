//! Shows a stored record to another program: all attributes, unknown ones included, under the contract's names, without
//! the key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Number, Value};

use runyard_core::model::{AttributeValue, Item};

/// Converts a record to a JSON object.
pub(crate) fn record(item: &Item) -> Value {
    let shown = item.iter().filter(|(name, _)| !matches!(name.as_str(), "pk" | "sk"));
    Value::Object(shown.map(|(name, value)| (name.clone(), named(name, value))).collect())
}

/// Converts records to the contract's list.
pub(crate) fn list<'a>(items: impl IntoIterator<Item = &'a Item>) -> Value {
    let items: Vec<Value> = items.into_iter().map(record).collect();
    Value::Object(Map::from_iter([("items".to_owned(), Value::Array(items))]))
}

/// Converts an attribute. The secret part of a label is masked: readers of records must not see it.
fn named(name: &str, value: &AttributeValue) -> Value {
    if name == "labelSuffix" { Value::String("********".to_owned()) } else { attribute(value) }
}

fn attribute(value: &AttributeValue) -> Value {
    let texts = |texts: &[String]| texts.iter().cloned().map(Value::String).collect();
    match value {
        AttributeValue::S(text) => Value::String(text.clone()),
        AttributeValue::N(digits) => number(digits),
        AttributeValue::Bool(flag) => Value::Bool(*flag),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(list) => list.iter().map(attribute).collect(),
        AttributeValue::M(map) => {
            let mut pairs: Vec<_> = map.iter().collect();
            pairs.sort_by_key(|(name, _)| name.as_str());
            Value::Object(pairs.into_iter().map(|(name, value)| (name.clone(), named(name, value))).collect())
        }
        AttributeValue::B(bytes) => Value::String(BASE64.encode(bytes)),
        AttributeValue::Ss(set) => texts(set),
        AttributeValue::Ns(set) => set.iter().map(|digits| number(digits)).collect(),
        AttributeValue::Bs(set) => set.iter().map(|bytes| Value::String(BASE64.encode(bytes))).collect(),
    }
}

/// Converts a number; it becomes text where readers of JSON would lose digits.
fn number(digits: &str) -> Value {
    if let Ok(whole) = digits.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.into();
    }
    let fraction = digits.parse::<f64>().ok().filter(|f| f.abs() < 1e15);
    fraction.and_then(Number::from_f64).map_or_else(|| Value::String(digits.to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item() -> Item {
        let n = |digits: &str| AttributeValue::N(digits.into());
        let s = |text: &str| AttributeValue::S(text.into());
        let request = [("pk".to_owned(), s("p")), ("sk".to_owned(), s("s"))].into_iter().collect();
        Item::from([
            ("pk".into(), s("instance#x")),
            ("sk".into(), s("instance")),
            ("kind".into(), s("instance")),
            ("version".into(), n("7")),
            ("termSeconds".into(), n("1.5")),
            ("huge".into(), n("1e126")),
            ("fromTheFuture".into(), AttributeValue::L(vec![n("1"), AttributeValue::Bool(true)])),
            ("request".into(), AttributeValue::M(request)),
            ("gone".into(), AttributeValue::Null(true)),
        ])
    }

    #[test]
    fn the_secret_part_of_a_label_is_shown_nowhere() {
        let secret = || ("labelSuffix".to_owned(), AttributeValue::S("abcd1234".into()));
        let accepted = AttributeValue::M([secret()].into_iter().collect());
        let shown = record(&Item::from([secret(), ("accepted".to_owned(), accepted)]));
        assert_eq!(shown, json!({"labelSuffix": "********", "accepted": {"labelSuffix": "********"}}));
    }

    #[test]
    fn a_record_is_an_object_of_all_its_attributes_without_its_key() {
        let expected = json!({
            "kind": "instance", "version": 7, "termSeconds": 1.5, "huge": "1e126", "gone": null,
            "fromTheFuture": [1, true], "request": {"pk": "p", "sk": "s"},
        });
        assert_eq!(record(&item()), expected);
        assert_eq!(list(&[item()]), json!({"items": [expected]}));
        assert_eq!(list(&[]), json!({"items": []}));
    }
}
