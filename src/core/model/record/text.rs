//! Texts of records: those that the contract writes as `""` when there is none, and those that are cut.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Returns a text; a text with more than `most` bytes is cut to a beginning that is still too long.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let end = if text.len() > most { text.ceil_char_boundary(most + 1) } else { text.len() };
    text[..end].to_owned()
}

pub(crate) fn serialize<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_str(""),
    }
}

pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(from)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(de::Error::custom) }
}
