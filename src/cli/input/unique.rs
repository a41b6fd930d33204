//! Any JSON or YAML value whose objects name each key once. Parsers into a map keep the last of two equal keys, so that a
//! merge gone wrong would open a class to everybody without a word.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value without a key that is named twice.
pub(crate) struct Unique(pub(crate) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value whose keys are named once")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number =
            Number::from_f64(value).ok_or_else(|| E::custom(format!("{value} is no number of JSON")));
        number.map(Value::Number)
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Unique(key)) = entries.next_key()? {
            let key = match key {
                Value::String(key) => key,
                Value::Bool(_) | Value::Number(_) => key.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    return Err(A::Error::custom(format!("{key} is no key")));
                }
            };
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} stands twice; name it once")));
            }
            let Unique(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_refused_and_all_else_is_as_it_was() {
        for twice in [
            "- {resourceClass: q, max: 2, max: 7}",
            "pools: []\npools: []",
            "- launch: {tags: {a: b, c: d, a: e}}",
            r#"[{"max": 1, "repositories": [], "max": 2}]"#,
        ] {
            let refused = serde_norway::from_str::<Unique>(twice).err().unwrap().to_string();
            assert!(refused.contains("stands twice"), "{refused}");
            // A place is told of everything below the document itself.
            assert!(refused.contains("line") || twice.starts_with("pools"), "{refused}");
        }
        let json = r#"[{"max": 1, "max": 2}]"#;
        let refused = serde_json::from_str::<Unique>(json).err().unwrap().to_string();
        assert!(refused.contains(r#""max" stands twice"#) && refused.contains("line 1"), "{refused}");
        let whole = "a: [1, -2, 2.5, true, null, x, '7']\nb: {c: &x {d: e}, f: *x}\n1: y\n";
        let plain: Value = serde_norway::from_str(whole).unwrap();
        assert_eq!(serde_norway::from_str::<Unique>(whole).unwrap().0, plain);
    }
}
