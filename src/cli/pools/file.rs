//! Reads the list of specs from a file, by the file's suffix, before anything is checked.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use crate::input::unique::Unique;
use runyard_core::model::FieldError;

/// Maximum size of the file, in bytes.
const LONGEST: u64 = 4 << 20;

const FIX: &str = "write a list of pool specs, or {\"pools\": [...]}";

/// Reads the entries of a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, FieldError> {
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
    let parsed = parsed.map(|Unique(document)| document);
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

/// Returns the spec of a pool in the output of `runyard get pools`, without the attributes that the operator and
/// `scale` wrote.
fn spec_of(pool: Value) -> Result<Value, String> {
    let Value::Object(mut pool) = pool else { return Err("has an item that is no record".into()) };
    if pool.remove("kind") != Some(Value::from("pool")) {
        return Err("has an item that is no pool; `runyard get pools -o yaml` writes such a list".into());
    }
    for status in [
        "counts",
        "idle",
        "idleForAnybody",
        "warmFor",
        "ahead",
        "message",
        "conditions",
        "image",
        "usage",
        "runner",
        "sizedDesired",
        "demand",
        "override",
        "uid",
        "version",
        "updatedAt",
    ] {
        pool.remove(status);
    }
    Ok(Value::Object(pool))
}

fn entries(document: Value) -> Result<Vec<Value>, String> {
    let list = match document {
        Value::Array(list) => list,
        Value::Object(mut map) => {
            let named = ["pools", "items"].into_iter().find_map(|name| Some((name, map.remove(name)?)));
            let Some((name, pools)) = named else { return Err("has no list of pools".into()) };
            if let Some(key) = map.keys().next() {
                return Err(format!("has the unknown key {key:?} beside {name:?}"));
            }
            match pools {
                Value::Array(list) if name == "items" => {
                    list.into_iter().map(spec_of).collect::<Result<Vec<_>, _>>()?
                }
                Value::Array(list) => list,
                _ => return Err(format!("{name:?} is not a list")),
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
    fn what_get_pools_writes_can_be_applied_again() {
        let text = r#"{"items":[{"kind":"pool","resourceClass":"a","max":3,"launch":{},"counts":{"idle":1},
            "message":"1 idle","conditions":[],"override":{"desired":1},"version":9,"uid":"0f5a3c9be1d24711",
            "image":{"parameter":"/golden","ami":"ami-0123456789abcdef0","resolvedAt":"2026-01-01T00:00:00Z"},"updatedAt":"2026-01-01T00:00:00Z"}]}"#;
        let expected = serde_json::json!({"resourceClass": "a", "max": 3, "launch": {}});
        assert_eq!(reading(".json", text).unwrap(), [expected]);
        let told = reading(".json", r#"{"items":[{"kind":"instance","resourceClass":"a"}]}"#).unwrap_err();
        assert!(told.message.contains("no pool"), "{told:?}");
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
