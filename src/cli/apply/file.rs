//! What does the file hold? A list of specs, read by the file's suffix, before anything is judged.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use crate::model::FieldError;

/// The longest file that is read, in bytes.
const LONGEST: u64 = 4 << 20;

const FIX: &str = "write a list of pool specs, or {\"pools\": [...]}";

/// The entries of a file; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<Vec<Value>, FieldError> {
    let refused =
        |message: String, fix: &str| FieldError::new("--file", path.display().to_string(), message, fix);
    let json = match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("json") => true,
        Some("yaml" | "yml") => false,
        None if path == Path::new("-") => false,
        Some(_) | None => return Err(refused("has an unknown suffix".into(), "use .yaml, .yml or .json")),
    };
    let text =
        text(path).map_err(|error| refused(error.to_string(), "check the path and its permissions"))?;
    if text.len() as u64 > LONGEST {
        return Err(refused(format!("is longer than {LONGEST} bytes"), "split it"));
    }
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Err(refused("is empty".into(), FIX));
    }
    let parsed = if json {
        serde_json::from_str(text).map_err(|error| error.to_string())
    } else {
        serde_norway::from_str(text).map_err(|error| error.to_string())
    };
    entries(parsed.map_err(|error| refused(format!("cannot be read: {error}"), FIX))?)
        .map_err(|message| refused(message, FIX))
}

fn text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(LONGEST + 1).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    }
    Ok(text)
}

fn entries(document: Value) -> Result<Vec<Value>, String> {
    let list = match document {
        Value::Array(list) => list,
        Value::Object(mut map) => {
            let Some(pools) = map.remove("pools") else { return Err("has no list of pools".into()) };
            if let Some(key) = map.keys().next() {
                return Err(format!("has the unknown key {key:?} beside \"pools\""));
            }
            match pools {
                Value::Array(list) => list,
                _ => return Err("\"pools\" is not a list".into()),
            }
        }
        _ => return Err("is not a list of pools".into()),
    };
    if list.is_empty() { Err("has no pools in it".into()) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn reading(suffix: &str, text: &str) -> Result<Vec<Value>, FieldError> {
        let mut file = tempfile::Builder::new().suffix(suffix).tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        read(file.path())
    }

    #[test]
    fn a_list_and_a_list_under_pools_are_the_same_in_yaml_and_json() {
        for (suffix, text) in [
            (".json", r#"[{"resourceClass":"a"}]"#),
            (".json", r#"{"pools":[{"resourceClass":"a"}]}"#),
            (".yaml", "- resourceClass: a\n"),
            (".yml", "pools:\n- resourceClass: a\n"),
            (".yaml", "\u{feff}pools: [{resourceClass: a}]\n"),
        ] {
            assert_eq!(reading(suffix, text).unwrap(), [serde_json::json!({"resourceClass": "a"})], "{text}");
        }
    }

    #[test]
    fn what_is_no_list_of_pools_is_refused_with_the_way_out() {
        for (suffix, text) in [
            (".json", ""),
            (".json", "{"),
            (".json", "[]"),
            (".json", "3"),
            (".json", r#"{"pools":{}}"#),
            (".json", r#"{"pools":[{}],"pool":[]}"#),
            (".json", r#"{"resourceClass":"a"}"#),
            (".yaml", "a: [\n"),
            (".yaml", "pools: []\npools: []\n"),
            (".txt", "[]"),
        ] {
            let refused = reading(suffix, text).unwrap_err();
            assert_eq!(refused.field, "--file", "{text}");
            assert!(!refused.fix.is_empty());
        }
        assert!(read(Path::new("/nowhere/pools.yaml")).is_err());
    }
}
