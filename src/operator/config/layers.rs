//! Merges the defaults, the file and the environment; each value keeps its source. A key that the defaults do not have
//! is refused here.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::secret::{HIDDEN, looks_secret, names_secret};
use crate::model::FieldError;

/// The reference, and the defaults.
pub(super) const DEFAULTS: &str = include_str!("../../../config/default.toml");

/// Maximum size of a configuration file, in bytes: a hundred times the size of any handwritten one.
const LARGEST: u64 = 256 * 1024;

/// The field of a file that cannot be read as a whole.
pub(super) const FILE: &str = "--config";

/// The prefix of all our environment variables.
const PREFIX: &str = "RUNYARD_";

/// Variables that people expect beside `RUNYARD_<SECTION>__<KEY>`, with the keys they set.
const SHORT: [(&str, Option<&str>, &str); 2] = [("TABLE", None, "table"), ("LOG", Some("log"), "filter")];

/// Values from one source.
struct Layer {
    from: String,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.from.clone())
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// Overrides the defaults with the file and the environment; unusable values are left out and reported.
pub(super) fn lay(
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
) -> (Figment, Vec<FieldError>) {
    let known: Dict = Toml::from_str(DEFAULTS).expect("the defaults are TOML");
    let mut problems = Vec::new();
    let mut layers = vec![Layer { from: "the defaults".to_owned(), values: known.clone() }];
    if let Some(path) = file {
        match read(path) {
            Ok(values) => layers.push(Layer { from: path.display().to_string(), values }),
            Err(problem) => problems.push(problem),
        }
    }
    layers.extend(variables(environment));
    let figment = layers.into_iter().fold(Figment::new(), |figment, mut layer| {
        layer.values = screened(&layer, &known, &mut problems);
        figment.merge(layer)
    });
    (figment, problems)
}

/// Reads the file's values.
fn read(path: &Path) -> Result<Dict, FieldError> {
    let refused =
        |message: String, fix: &str| FieldError::new(FILE, path.display().to_string(), message, fix);
    let unreadable =
        |error: std::io::Error| refused(format!("cannot be read: {error}"), "name a readable file");
    let mut bytes = Vec::new();
    File::open(path).map_err(unreadable)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST {
        let message = format!("is larger than {} KiB", LARGEST / 1024);
        return Err(refused(message, "name the configuration file, see config/default.toml"));
    }
    let text =
        String::from_utf8(bytes).map_err(|_| refused("is not UTF-8 text".to_owned(), "save it as UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // Only the position and the reason: the line itself may contain text that must not be logged.
    Toml::from_str(text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let reason = error.message().replace('\n', ", ");
        refused(format!("is not TOML, line {line}: {reason}"), "see config/default.toml for the form")
    })
}

/// Returns our variables, each as its own layer; short names come first, so that full ones take precedence.
fn variables(environment: impl Iterator<Item = (String, String)>) -> Vec<Layer> {
    let (mut short, mut full) = (Vec::new(), Vec::new());
    for (name, value) in environment {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if let Some((_, section, key)) = SHORT.iter().find(|(short, ..)| *short == rest) {
            short.push(variable(&name, *section, key, value));
        } else if let Some((section, key)) = rest.split_once("__") {
            let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
            full.push(variable(&name, Some(&section), &key, value));
        }
        // Other variables, such as RUNYARD_SERVICE_HOST in Kubernetes, are ignored.
    }
    short.append(&mut full);
    short
}

fn variable(name: &str, section: Option<&str>, key: &str, value: String) -> Layer {
    let inner = Dict::from([(key.to_owned(), Value::from(value))]);
    let values = match section {
        Some(section) => Dict::from([(section.to_owned(), Value::from(inner))]),
        None => inner,
    };
    Layer { from: name.to_owned(), values }
}

/// Returns the layer's values whose keys the defaults have; the others, and pasted secrets, become problems.
fn screened(layer: &Layer, known: &Dict, problems: &mut Vec<FieldError>) -> Dict {
    let mut kept = Dict::new();
    for (name, value) in &layer.values {
        match (known.get(name), value) {
            (Some(Value::Dict(_, keys)), Value::Dict(tag, given)) => {
                let mut good = Dict::new();
                for (key, value) in given {
                    let path = format!("{name}.{key}");
                    if !keys.contains_key(key) {
                        problems.push(unknown(layer, &path, value, &format!("the keys of [{name}]"), keys));
                    } else if let Some(problem) = pasted(layer, &path, value) {
                        problems.push(problem);
                    } else {
                        good.insert(key.clone(), value.clone());
                    }
                }
                kept.insert(name.clone(), Value::Dict(*tag, good));
            }
            (Some(Value::Dict(_, keys)), other) => {
                let fix = format!("write a section [{name}] with keys of {}", names(keys));
                problems.push(FieldError::new(name, shown(name, other), from("is a section", layer), fix));
            }
            (Some(_), Value::Dict(..)) => {
                let fix = format!("write {name} = \"…\" above the first section");
                problems.push(FieldError::new(name, "[section]", from("is not a section", layer), fix));
            }
            (Some(_), single) => match pasted(layer, name, single) {
                Some(problem) => problems.push(problem),
                None => drop(kept.insert(name.clone(), single.clone())),
            },
            (None, other) => problems.push(unknown(layer, name, other, "what there is", known)),
        }
    }
    kept
}

/// Returns the problem of a secret in place of a file name, even if another layer overrides it: it is stored there in
/// clear.
fn pasted(layer: &Layer, path: &str, value: &Value) -> Option<FieldError> {
    let fix = "put the secret into a file and write the file's name";
    let secret = scalar(value).is_some_and(|text| looks_secret(&text));
    secret.then(|| FieldError::new(path, HIDDEN, from("looks like a secret", layer), fix))
}

fn unknown(layer: &Layer, path: &str, value: &Value, what: &str, known: &Dict) -> FieldError {
    let fix = format!("remove it, or use one of {what}: {}", names(known));
    FieldError::new(path, shown(path, value), from("is not a key of the configuration", layer), fix)
}

fn from(message: &str, layer: &Layer) -> String {
    format!("{message} (from {})", layer.from)
}

fn names(keys: &Dict) -> String {
    keys.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Formats a value for people; secrets are hidden.
fn shown(path: &str, value: &Value) -> String {
    match scalar(value) {
        Some(text) if names_secret(path) || looks_secret(&text) => HIDDEN.to_owned(),
        Some(text) => text,
        None => "…".to_owned(),
    }
}

/// Returns a scalar value as text.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(_, text) => Some(text.clone()),
        Value::Char(_, char) => Some(char.to_string()),
        Value::Bool(_, bool) => Some(bool.to_string()),
        Value::Num(_, number) => {
            number.to_i128().map(|n| n.to_string()).or_else(|| number.to_f64().map(|n| n.to_string()))
        }
        Value::Empty(..) | Value::Dict(..) | Value::Array(..) => None,
    }
}
