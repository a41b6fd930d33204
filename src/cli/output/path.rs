//! Paths into a document for `-o jsonpath`, `-o custom-columns`, `--sort-by` and `--field-selector`: a subset of
//! kubectl's JSONPath. A path is a sequence of `.name`, `['name']`, `[0]`, `[-1]` and `[*]`.

use serde_json::Value;

use crate::output::format::visible;
use runyard_core::model::FieldError;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    /// The attribute with this name.
    Name(String),
    /// The element at this index, counted from the end if negative.
    At(i64),
    /// Every element of a list, or the value of every attribute.
    Every,
}

/// A path into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(Vec<PathStep>);

const FIX: &str = "write a path such as .items[*].resourceClass, .instances[0] or .counts['idle']";

impl Path {
    /// Parses a path; a leading dot or `$` is optional.
    pub(crate) fn parse(text: &str) -> Result<Self, FieldError> {
        let refused = |why: &str| FieldError::new("path", text, why, FIX);
        let mut rest = text.trim().trim_start_matches('$').trim_start_matches('@');
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (step, after) = inner.split_once(']').ok_or_else(|| refused("has a [ without its ]"))?;
                steps.push(
                    bracket(step).ok_or_else(|| refused("has something in [ ] that is no name or number"))?,
                );
                rest = after;
                continue;
            }
            let word = rest.strip_prefix('.').unwrap_or(rest);
            if word.is_empty() && steps.is_empty() {
                break;
            }
            let end = word.find(['.', '[']).unwrap_or(word.len());
            let (name, after) = word.split_at(end);
            match name {
                "*" => steps.push(PathStep::Every),
                "" if after.starts_with('[') => {}
                "" => return Err(refused("has a name that is empty")),
                _ if name
                    .chars()
                    .any(|c| c.is_whitespace() || matches!(c, ']' | '(' | ')' | '{' | '}' | '?')) =>
                {
                    return Err(refused("has a name that cannot be one"));
                }
                _ => steps.push(PathStep::Name(name.to_owned())),
            }
            rest = after;
        }
        Ok(Self(steps))
    }

    /// Returns the values at this path, in order; empty if there are none.
    pub(crate) fn find<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![document];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.within(value)).collect();
        }
        found
    }

    /// Returns the values at this path as text: strings unchanged, several joined with a space, anything else as JSON.
    pub(crate) fn text(&self, document: &Value) -> Option<String> {
        let found = self.find(document);
        if found.is_empty() {
            return None;
        }
        Some(found.into_iter().map(text_of).collect::<Vec<_>>().join(" "))
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|step| match step {
            PathStep::Name(name) => write!(f, ".{name}"),
            PathStep::At(at) => write!(f, "[{at}]"),
            PathStep::Every => write!(f, "[*]"),
        })
    }
}

/// Formats a value as text.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

fn bracket(text: &str) -> Option<PathStep> {
    let text = text.trim();
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    if text == "*" {
        return Some(PathStep::Every);
    }
    if let Some(name) = quoted('\'').or_else(|| quoted('"')) {
        return Some(PathStep::Name(name.to_owned()));
    }
    text.parse().ok().map(PathStep::At)
}

impl PathStep {
    fn within<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Name(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::At(at), Value::Array(list)) => {
                let at = usize::try_from(*at)
                    .ok()
                    .or_else(|| list.len().checked_sub(usize::try_from(at.unsigned_abs()).ok()?));
                at.and_then(|at| list.get(at)).into_iter().collect()
            }
            (Self::Every, Value::Array(list)) => list.iter().collect(),
            (Self::Every, Value::Object(map)) => map.values().collect(),
            (Self::Name(_) | Self::At(_) | Self::Every, _) => Vec::new(),
        }
    }
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Path(Path),
    Range(Path, Vec<Piece>),
}

/// `-o jsonpath=TEMPLATE`: text that contains `{PATH}`, `{"text"}` and `{range PATH}…{end}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

impl Template {
    /// Parses a template; one without braces is a single path.
    pub(crate) fn parse(text: &str) -> Result<Self, FieldError> {
        if !text.contains('{') {
            return Path::parse(text).map(|path| Self(vec![Piece::Path(path)]));
        }
        let mut rest = text;
        let pieces = pieces(text, &mut rest, false)?;
        Ok(Self(pieces))
    }

    /// Fills the template from a document; the result ends with a line break.
    pub(crate) fn fill(&self, document: &Value) -> String {
        let mut text = String::new();
        fill(&self.0, document, &mut text);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }
}

fn pieces(whole: &str, rest: &mut &str, within: bool) -> Result<Vec<Piece>, FieldError> {
    let refused = |why: &str| {
        let fix = r#"write it such as {.items[*].runId} or {range .items[*]}{.runId}{"\n"}{end}"#;
        FieldError::new("jsonpath", whole, why, fix)
    };
    let mut pieces = Vec::new();
    loop {
        let Some((before, after)) = rest.split_once('{') else {
            if within {
                return Err(refused("has a {range} without its {end}"));
            }
            pieces.push(Piece::Text(std::mem::take(rest).to_owned()));
            return Ok(pieces);
        };
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let (inside, after) = after.split_once('}').ok_or_else(|| refused("has a { without its }"))?;
        *rest = after;
        let inside = inside.trim();
        if inside == "end" {
            return if within { Ok(pieces) } else { Err(refused("has an {end} without its {range}")) };
        }
        pieces.push(match (inside.strip_prefix("range "), inside.strip_prefix('"')) {
            (Some(path), _) => Piece::Range(Path::parse(path)?, self::pieces(whole, rest, true)?),
            (None, Some(text)) => {
                let text = text.strip_suffix('"').ok_or_else(|| refused("has a text without its end"))?;
                Piece::Text(text.replace("\\n", "\n").replace("\\t", "\t"))
            }
            (None, None) => Piece::Path(Path::parse(inside)?),
        });
    }
}

fn fill(pieces: &[Piece], document: &Value, text: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Text(literal) => text.push_str(literal),
            Piece::Path(path) => text.push_str(&visible(&path.text(document).unwrap_or_default())),
            Piece::Range(path, inner) => {
                path.find(document).into_iter().for_each(|one| fill(inner, one, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({"items": [
            {"runId": "1", "count": 3, "instances": ["i-1", "i-2"], "a.b": true},
            {"runId": "2", "count": 1, "instances": []},
        ]})
    }

    #[test]
    fn a_path_finds_names_numbers_and_every_one() {
        let text = |path: &str| Path::parse(path).unwrap().text(&document());
        assert_eq!(text(".items[*].runId").as_deref(), Some("1 2"));
        assert_eq!(text("$.items[-1].count").as_deref(), Some("1"));
        assert_eq!(text("items[0].instances").as_deref(), Some(r#"["i-1","i-2"]"#));
        assert_eq!(text(".items[0]['a.b']").as_deref(), Some("true"));
        assert_eq!(text(".items[7].count"), None);
        assert_eq!(text(".items[-9].count"), None);
        assert_eq!(text(".nothing.here"), None);
        for bad in [".items[", ".items[x]", ".a..b", ".items[?(@.a)]", ".a b"] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_template_has_text_paths_and_ranges() {
        let filled = |template: &str| Template::parse(template).unwrap().fill(&document());
        assert_eq!(filled(".items[*].runId"), "1 2\n");
        assert_eq!(filled("runs: {.items[*].runId}"), "runs: 1 2\n");
        assert_eq!(filled(r#"{range .items[*]}{.runId}{"\t"}{.count}{"\n"}{end}"#), "1\t3\n2\t1\n");
        for bad in ["{.a", "{range .a}x", "{end}", r#"{"x}"#] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
