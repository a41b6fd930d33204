//! Which rows of a list are shown, in which order, and how many: `--field-selector`, `--sort-by`, `--limit`.

use std::cmp::Ordering;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use crate::output::json;
use crate::output::path::Path;
use runyard_core::model::{FieldError, Item};

/// How a list is arranged.
#[derive(Debug, Args)]
pub(super) struct Order {
    /// Filter by values: PATH=VALUE or PATH!=VALUE, comma-separated
    #[arg(long, value_name = "SELECTOR", value_delimiter = ',', value_parser = Field::parse, conflicts_with = "names")]
    field_selector: Vec<Field>,
    /// Sort by this path, such as .createdAt [default: requests by age, others by name]
    #[arg(long, value_name = "PATH", value_parser = Path::parse, conflicts_with = "names")]
    sort_by: Option<Path>,
    /// Maximum number per kind: the first, or without --sort-by the newest requests
    #[arg(long, value_name = "N", conflicts_with = "names")]
    limit: Option<usize>,
}

/// A condition on a field: it must equal the value, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    path: Path,
    value: String,
    wanted: bool,
}

impl Field {
    fn parse(text: &str) -> Result<Self, FieldError> {
        let (path, value, wanted) = match (text.split_once("!="), text.split_once('=')) {
            (Some((path, value)), _) => (path, value, false),
            (None, Some((path, value))) => (path, value.strip_prefix('=').unwrap_or(value), true),
            (None, None) => {
                let fix = "write PATH=VALUE or PATH!=VALUE, such as state=running,usageClass!=spot";
                return Err(FieldError::new("--field-selector", text, "has no =", fix));
            }
        };
        Ok(Self { path: Path::parse(path)?, value: value.to_owned(), wanted })
    }

    fn holds(&self, document: &Value) -> bool {
        (self.path.text(document).unwrap_or_default() == self.value) == self.wanted
    }
}

impl Order {
    /// Returns whether an item meets all conditions.
    pub(super) fn accepts(&self, item: &Item) -> bool {
        if self.field_selector.is_empty() {
            return true;
        }
        let document = json::record(item);
        self.field_selector.iter().all(|field| field.holds(&document))
    }

    /// Returns whether a condition is about this top-level field.
    pub(super) fn selects(&self, name: &str) -> bool {
        self.field_selector.iter().any(|field| field.path.to_string() == format!(".{name}"))
    }

    /// Returns the problem of the requested order: no item has a value at that path.
    pub(super) fn refused(&self, items: &[Item]) -> Option<FieldError> {
        let path = self.sort_by.as_ref()?;
        let nothing = !items.is_empty() && items.iter().all(|item| path.find(&json::record(item)).is_empty());
        let known = || {
            let names = items.iter().flat_map(|item| match json::record(item) {
                Value::Object(map) => {
                    map.into_iter().filter(|(_, value)| !value.is_object()).map(|(name, _)| name).collect()
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Vec::new()
                }
            });
            names.collect::<std::collections::BTreeSet<String>>().into_iter().collect::<Vec<_>>().join(", ")
        };
        nothing.then(|| {
            let fix = format!("use one of {}", known());
            FieldError::new("--sort-by", path.to_string(), "none of the records has it", fix)
        })
    }

    /// Sorts and limits the items; `aged` lists them oldest first.
    pub(super) fn arranged(&self, mut items: Vec<Item>, aged: bool) -> Vec<Item> {
        if let Some(path) = &self.sort_by {
            let value = |item: &Item| path.find(&json::record(item)).first().map(|value| (*value).clone());
            items.sort_by_cached_key(|item| Placed(value(item)));
        }
        if let Some(limit) = self.limit {
            if aged && self.sort_by.is_none() {
                items.drain(..items.len().saturating_sub(limit));
            }
            items.truncate(limit);
        }
        items
    }
}

/// The sort key of a row: numbers by size, then times, then other texts alphabetically, and missing values last.
struct Placed(Option<Value>);

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |value: &Value| value.as_f64();
        match (&self.0, &other.0) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(Value::String(a)), Some(Value::String(b))) => of_text(a).cmp(&of_text(b)),
            (Some(a), Some(b)) => match (number(a), number(b)) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => a.to_string().cmp(&b.to_string()),
            },
        }
    }
}

/// Returns the sort key of a text: times come first and are compared as times, because alphabetically `05.12Z` comes
/// after `05.123Z`.
fn of_text(text: &str) -> (bool, Option<Timestamp>, &str) {
    let at = text.parse().ok();
    (at.is_none(), at, text)
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Placed {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::context::{attributes, number, text};

    fn items() -> Vec<Item> {
        let one = |name: &str, count: u64| attributes([("name", text(name)), ("count", number(count))]);
        vec![one("b", 10), one("a", 9), attributes([("name", text("c"))])]
    }

    fn names(order: &Order) -> Vec<String> {
        let items = items().into_iter().filter(|item| order.accepts(item)).collect();
        let items = order.arranged(items, true);
        items.iter().map(|item| json::record(item)["name"].as_str().unwrap().to_owned()).collect()
    }

    fn order(selector: &[&str], sort_by: Option<&str>, limit: Option<usize>) -> Order {
        Order {
            field_selector: selector.iter().map(|one| Field::parse(one).unwrap()).collect(),
            sort_by: sort_by.map(|path| Path::parse(path).unwrap()),
            limit,
        }
    }

    #[test]
    fn rows_are_ordered_by_numbers_as_numbers_and_what_has_none_comes_last() {
        assert_eq!(names(&order(&[], Some(".count"), None)), ["a", "b", "c"]);
        assert_eq!(names(&order(&[], Some(".name"), Some(2))), ["a", "b"], "the first of the order");
        assert_eq!(names(&order(&[], None, Some(2))), ["a", "c"], "the youngest");
        assert_eq!(names(&order(&[], None, Some(0))), [""; 0]);
    }

    #[test]
    fn times_are_ordered_as_times_however_many_digits_their_seconds_have() {
        let ordered =
            ["2026-01-01T00:00:05Z", "2026-01-01T00:00:05.12Z", "2026-01-01T00:00:05.123Z", "1", "never"];
        let items = ordered.iter().rev().map(|at| attributes([("name", text(at)), ("at", text(at))]));
        let items = order(&[], Some(".at"), None).arranged(items.collect(), false);
        let names: Vec<_> = items.iter().map(|item| item["name"].clone()).collect();
        assert_eq!(names, ordered.map(text));
    }

    #[test]
    fn rows_are_chosen_by_what_they_have_and_have_not() {
        assert_eq!(names(&order(&["count=9"], None, None)), ["a"]);
        assert_eq!(names(&order(&["count!=9", "name!=c"], None, None)), ["b"]);
        assert!(Field::parse("count").is_err());
    }
}
