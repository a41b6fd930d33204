//! The forms of an answer: tables, documents, and what is picked out of a document (`-o name`, `-o jsonpath=…`,
//! `-o custom-columns=…`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::path::{Path, Template};
use crate::output::columns::lined_up;
use crate::output::format::{Format, plain, visible};
use runyard_core::model::FieldError;

/// What `-o` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// The form.
    pub(crate) format: Format,
    /// What is picked, where the form is `Picked`.
    pub(crate) pick: Option<Pick>,
}

/// What is picked out of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// `KIND/NAME` of each record.
    Name,
    /// The text that a template makes.
    Template(Template),
    /// A table of paths, with their heads.
    Columns(Vec<(String, Path)>),
    /// A line of CSV for each item, of what it has that is a single value.
    Csv,
    /// The same with the columns of FOCUS; only `runyard cost` has it.
    Focus,
}

/// The forms, as help and errors name them.
pub(crate) const FORMS: &str =
    "text, wide, json, yaml, name, csv, jsonpath=TEMPLATE, custom-columns=HEAD:PATH,…";

impl Output {
    /// Reads what stands after `-o`.
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
    /// What it makes of a document: of each of its items where it is a list.
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

/// Items as CSV (RFC 4180): the columns are what any of them has that is a single value, in the order of their names.
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
    // A spreadsheet would take such a text for a formula, and run it.
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

/// What a record is called on the command line, with its kind.
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
