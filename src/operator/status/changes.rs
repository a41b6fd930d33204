//! Computes the changes of the status since a previous response, so that an open page receives no more than that.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::Snapshot;

/// The lists that are sent by row, each with the field that identifies a row.
const LISTS: [(&str, &str); 4] =
    [("pools", "class"), ("machines", "id"), ("requests", "request"), ("events", "id")];
/// Number of snapshots for which a removed row is remembered. A client with an older mark receives everything.
const KNOWN: u64 = 300;

/// The last snapshot, and for each row the snapshot that changed it.
///
/// # Guarantees
/// A client that applies each response to its state, in any order of requests, has the last snapshot: the response to
/// an unknown mark, or to one of another process, is complete.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Identifies this process; another one counts anew.
    series: String,
    mark: u64,
    head: Map<String, Value>,
    lists: BTreeMap<&'static str, Vec<Value>>,
    rows: BTreeMap<(&'static str, String), Row>,
}

/// A row, `None` once it is removed, and the snapshot that changed it.
#[derive(Debug)]
struct Row {
    value: Option<Value>,
    mark: u64,
}

impl Changes {
    /// Takes the next snapshot.
    pub(super) fn take(&mut self, status: &Snapshot) {
        self.mark += 1;
        self.series = status.remembers_since.as_nanosecond().to_string();
        let Ok(Value::Object(mut head)) = serde_json::to_value(status) else { return };
        let mut there = BTreeSet::new();
        for (list, name) in LISTS {
            let Some(Value::Array(rows)) = head.remove(list) else { continue };
            for value in &rows {
                let key = (list, value[name].as_str().unwrap_or_default().to_owned());
                if self.rows.get(&key).is_none_or(|row| row.value.as_ref() != Some(value)) {
                    self.rows.insert(key.clone(), Row { value: Some(value.clone()), mark: self.mark });
                }
                there.insert(key);
            }
            self.lists.insert(list, rows);
        }
        for (_, row) in self.rows.iter_mut().filter(|(key, row)| row.value.is_some() && !there.contains(key))
        {
            *row = Row { value: None, mark: self.mark };
        }
        let oldest = self.oldest();
        self.rows.retain(|_, row| row.value.is_some() || row.mark > oldest);
        self.head = head;
    }

    /// Returns the oldest mark for which removed rows are still remembered.
    fn oldest(&self) -> u64 {
        self.mark.saturating_sub(KNOWN)
    }

    /// Returns the status as JSON: everything, or the changes since the snapshot with that mark, with `gone` and
    /// without unchanged rows.
    pub(super) fn answer(&self, since: Option<&str>) -> Value {
        let mut answer = self.head.clone();
        answer.insert("mark".to_owned(), format!("{}-{}", self.series, self.mark).into());
        let Some(since) = since.and_then(|mark| self.known(mark)) else {
            answer.extend(self.lists.iter().map(|(list, rows)| ((*list).to_owned(), json!(rows))));
            return answer.into();
        };
        let mut gone = Map::new();
        for (list, _) in LISTS {
            let changed = self.rows.iter().filter(|((of, _), row)| *of == list && row.mark > since);
            let (there, left): (Vec<_>, Vec<_>) = changed.partition(|(_, row)| row.value.is_some());
            let there: Vec<_> = there.into_iter().map(|(_, row)| &row.value).collect();
            let left: Vec<_> = left.into_iter().map(|((_, name), _)| name).collect();
            answer.insert(list.to_owned(), json!(there));
            gone.insert(list.to_owned(), json!(left));
        }
        answer.insert("gone".to_owned(), gone.into());
        answer.into()
    }

    fn known(&self, mark: &str) -> Option<u64> {
        let (series, mark) = mark.rsplit_once('-')?;
        let mark = mark.parse().ok()?;
        (series == self.series && (self.oldest()..=self.mark).contains(&mark)).then_some(mark)
    }
}
