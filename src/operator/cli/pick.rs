//! The forms of an answer: tables, documents, and what is picked out of a document (`-o name`, `-o jsonpath=…`,
//! `-o custom-columns=…`).

use serde_json::Value;

use super::path::{Path, Template};
use super::screen::Format;
use super::table::lined_up;
use crate::model::FieldError;

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
}

/// The forms, as help and errors name them.
pub(crate) const FORMS: &str = "text, wide, json, yaml, name, jsonpath=TEMPLATE, custom-columns=HEAD:PATH,…";

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
            Self::Name => items.into_iter().filter_map(name).map(|name| format!("{name}\n")).collect(),
            Self::Template(template) => template.fill(document),
            Self::Columns(columns) => {
                let heads: Vec<String> = columns.iter().map(|(head, _)| head.clone()).collect();
                let cell = |item: &Value, path: &Path| path.text(item).unwrap_or_else(|| "<none>".into());
                let row = |item: &Value| columns.iter().map(|(_, path)| cell(item, path)).collect();
                let rows = headed.then(|| heads.clone()).into_iter().chain(items.into_iter().map(row));
                lined_up(None, &heads, rows.collect())
            }
        }
    }
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
