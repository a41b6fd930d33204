//! The option `-o`: tables, documents, and values selected from a document (`-o name`, `-o jsonpath=…`, `-o
//! custom-columns=…`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::path::{Path, Template};
use crate::output::columns::lined_up;
use crate::output::format::{Format, plain, visible};
use runyard_core::model::FieldError;

/// The parsed value of `-o`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// The format.
    pub(crate) format: Format,
    /// What is selected, if the format is `Picked`.
    pub(crate) pick: Option<Pick>,
}

/// A selection of values from a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// `KIND/NAME` of each record.
    Name,
    /// The text of a filled template.
    Template(Template),
    /// A table of paths with their headings.
    Columns(Vec<(String, Path)>),
    /// One line of CSV for each item, with its scalar attributes.
    Csv,
    /// CSV with the columns of FOCUS; only `runyard cost` supports it.
    Focus,
}

/// The values of `-o`, as help and errors list them.
pub(crate) const FORMS: &str =
    "text, wide, json, yaml, name, csv, jsonpath=TEMPLATE, custom-columns=HEAD:PATH,…";

impl Output {
    /// Parses the value of `-o`.
    pub(crate) fn parse(text: &str) -> Result<Self, FieldError> {
        let picked = |pick| Self { format: Format::Picked, pick: Some(pick) };
        let plain = |format| Self { format, pick: None };
        Ok(match text.split_once('=').map_or((text, None), |(form, rest)| (form, Some(rest))) {
            ("text", None) => plain(Format::Text),
            ("wide", None) => plain(Format::Wide),
            ("json", None) => plain(Format::Json),
            ("yaml", None) => plain(Format::Yaml),
            ("name", None) => picked(Pick::Name),
            ("csv", None) => picked(Pick::Csv),
            ("focus", None) => picked(Pick::Focus),
            ("jsonpath", Some(template)) => picked(Pick::Template(Template::parse(template)?)),
            ("custom-columns", Some(columns)) => picked(Pick::Columns(heads(columns)?)),
            (_, _) => {
                let fix = format!("use one of {FORMS}");
                return Err(FieldError::new("--output", text, "is no form of output", fix));
            }
        })
    }
}

fn heads(text: &str) -> Result<Vec<(String, Path)>, FieldError> {
    let one = |column: &str| match column.split_once(':') {
        Some((head, path)) if !head.is_empty() => Ok((head.to_owned(), Path::parse(path)?)),
        Some(_) | None => {
            let fix = "write HEAD:PATH,HEAD:PATH such as CLASS:.resourceClass,MAX:.max";
            Err(FieldError::new("custom-columns", text, "has a column without head and path", fix))
        }
    };
    text.split(',').map(one).collect()
}

impl Pick {
    /// Formats the selection from a document, or from each of its items if it is a list.
    pub(crate) fn of(&self, document: &Value, headed: bool) -> String {
        let items: Vec<&Value> = match document.get("items").and_then(Value::as_array) {
            Some(items) => items.iter().collect(),
            None => vec![document],
        };
        match self {
            Self::Name => {
                items.into_iter().filter_map(name).map(|name| format!("{}\n", plain(&name))).collect()
            }
            Self::Template(template) => template.fill(document),
            Self::Csv | Self::Focus => csv(&items, headed),
            Self::Columns(columns) => {
                let heads: Vec<String> = columns.iter().map(|(head, _)| head.clone()).collect();
                let cell = |item: &Value, path: &Path| {
                    path.text(item).map_or_else(|| "<none>".into(), |text| plain(&text))
                };
                let row = |item: &Value| columns.iter().map(|(_, path)| cell(item, path)).collect();
                let rows = headed.then(|| heads.clone()).into_iter().chain(items.into_iter().map(row));
                lined_up(None, &heads, rows.collect())
            }
        }
    }
}

/// Formats items as CSV (RFC 4180). The columns are the scalar attributes that any item has, ordered by name.
fn csv(items: &[&Value], headed: bool) -> String {
    let single = |value: &Value| !value.is_array() && !value.is_object();
    let fields = |item: &&Value| {
        item.as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), single(value)))
            .collect::<Vec<_>>()
    };
    let columns: BTreeSet<String> =
        items.iter().flat_map(fields).filter_map(|(name, single)| single.then_some(name)).collect();
    // A spreadsheet would interpret such a text as a formula and run it.
    let inert = |text: &str| {
        let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        if formula { format!("'{text}") } else { text.to_owned() }
    };
    let cell = |text: &str| {
        let text = visible(&inert(text));
        let quoted = text.contains(['"', ',', '\n', '\r']);
        if quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    };
    let line = |cells: Vec<String>| format!("{}\n", cells.join(","));
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null | Value::Array(_) | Value::Object(_)) => String::new(),
        Some(Value::String(text)) => cell(text),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
    };
    let mut out = if headed && !columns.is_empty() {
        line(columns.iter().map(|name| cell(name)).collect())
    } else {
        String::new()
    };
    for item in items {
        out.push_str(&line(columns.iter().map(|name| text(item.get(name))).collect()));
    }
    out
}

/// Returns the name of a record on the command line, with its kind.
fn name(item: &Value) -> Option<String> {
    let word = |name: &str| item.get(name).and_then(Value::as_str);
    match word("kind")? {
        "instance" => Some(format!("instance/{}", word("instanceId")?)),
        "request" => {
            Some(format!("request/{}/{}/{}", word("runId")?, word("name")?, item.get("attempt")?.as_u64()?))
        }
        "pool" => Some(format!("pool/{}", word("resourceClass")?)),
        "launch" => Some(format!("launch/{}", word("launchId")?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_csv_has_every_single_value_quoted_where_it_must_be() {
        let list =
            json!({"items": [{"b": 1, "a": "x,y", "list": [1]}, {"a": "say \"no\"", "c": null, "d": 0.5}]});
        let picked = |headed| Output::parse("csv").unwrap().pick.unwrap().of(&list, headed);
        assert_eq!(picked(true), "a,b,c,d\n\"x,y\",1,,\n\"say \"\"no\"\"\",,,0.5\n");
        assert_eq!(picked(false).lines().count(), 2);
        assert_eq!(Output::parse("csv").unwrap().pick.unwrap().of(&json!({"items": []}), true), "");
    }

    #[test]
    fn a_cell_that_a_spreadsheet_would_run_is_text_and_a_number_stays_one() {
        let of = |value: Value| Output::parse("csv").unwrap().pick.unwrap().of(&json!({"a": value}), false);
        assert_eq!(
            of(json!("=HYPERLINK(\"http://e\",\"x\")")),
            "\"'=HYPERLINK(\"\"http://e\"\",\"\"x\"\")\"\n"
        );
        for text in ["+1", "-1", "@a", "\tx"] {
            assert!(of(json!(text)).starts_with('\''), "{text:?}");
        }
        assert_eq!((of(json!(-1)), of(json!("a=b"))), ("-1\n".to_owned(), "a=b\n".to_owned()));
    }

    #[test]
    fn a_form_picks_names_paths_or_columns_out_of_a_list() {
        let list = json!({"items": [
            {"kind": "pool", "resourceClass": "small", "max": 3},
            {"kind": "request", "runId": "42", "name": "gpu", "attempt": 2, "max": null},
            {"kind": "note"},
        ]});
        let picked = |form: &str, headed| Output::parse(form).unwrap().pick.unwrap().of(&list, headed);
        assert_eq!(picked("name", true), "pool/small\nrequest/42/gpu/2\n");
        assert_eq!(picked("jsonpath={.items[*].max}", true), "3 null\n");
        let columns = "custom-columns=KIND:.kind,MAX:.max";
        assert_eq!(picked(columns, true), "KIND     MAX\npool     3\nrequest  null\nnote     <none>\n");
        assert_eq!(picked(columns, false), "pool     3\nrequest  null\nnote     <none>\n");
        for bad in ["xml", "name=x", "jsonpath", "jsonpath={.a", "custom-columns=a", "custom-columns=:.a"] {
            assert!(Output::parse(bad).is_err(), "{bad}");
        }
    }
}
