//! Handles the differences between Docker and podman: the changes to a request that make podman behave like Docker.
//! Pure functions of the request and of the known facts about the image. Docker's API is
//! <https://docs.docker.com/reference/api/engine/>; podman's own API, which its command uses, has the same paths below
//! `/libpod`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// Docker's defaults for a health check that sets no values: durations in nanoseconds, and the number of retries.
const HEALTH: [(&str, u64); 3] = [("Interval", 30_000_000_000), ("Timeout", 30_000_000_000), ("Retries", 3)];

/// The API that a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Docker,
    Podman,
}

/// A request, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Creates a container.
    Create(Api),
    /// Removes a container by force; podman is called with this target.
    Remove(Api, String),
    /// Waits for the end of a container; podman is called with this target.
    Wait(String),
    Other,
}

impl Call {
    pub(super) fn of(method: &str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if parts.first().is_some_and(|part| is_version(part)) {
            parts.remove(0);
        }
        let api = if parts.first() == Some(&"libpod") { Api::Podman } else { Api::Docker };
        if api == Api::Podman {
            parts.remove(0);
        }
        let asked: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let says = |name: &str| asked.iter().find(|(is, _)| *is == name).map(|(_, value)| *value);
        match (method, parts.as_slice()) {
            ("POST", ["containers", "create"]) => Self::Create(api),
            ("DELETE", ["containers", name])
                if says("force").is_some_and(is_true) && says("timeout").is_none() =>
            {
                let volumes = says("v").or(says("volumes")).is_some_and(is_true);
                let depend = says("depend").is_some_and(is_true);
                let ignore = says("ignore").is_some_and(is_true);
                let target = format!(
                    "/v4.0.0/libpod/containers/{name}?force=true&timeout=0&volumes={volumes}&depend={depend}&ignore={ignore}"
                );
                Self::Remove(api, target)
            }
            ("POST", ["containers", _, "wait"])
                if api == Api::Docker && says("condition") == Some("removed") =>
            {
                Self::Wait(target.replace("condition=removed", "condition=next-exit"))
            }
            _ => Self::Other,
        }
    }
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn is_true(value: &str) -> bool {
    ["1", "true", "True"].contains(&value)
}

/// Returns the directories of the machine that a new container mounts and that Docker creates if they are missing:
/// those of `--volume`, in all its forms, and not those of `--mount`, which Docker refuses.
pub(super) fn sources(api: Api, container: &Value) -> Vec<PathBuf> {
    let entries = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let found: Vec<String> = match api {
        Api::Docker => {
            let host = &container["HostConfig"];
            let binds = entries(&host["Binds"]);
            let binds = binds.iter().filter_map(|bind| bind.as_str()?.split(':').next().map(str::to_owned));
            let mounts = entries(&host["Mounts"]);
            let made = mounts.iter().filter(|mount| mount["BindOptions"]["CreateMountpoint"] == json!(true));
            binds.chain(made.filter_map(|mount| mount["Source"].as_str().map(str::to_owned))).collect()
        }
        Api::Podman => {
            let refused = of_mounts(container);
            let mounts = entries(&container["mounts"]);
            let bound = mounts.iter().filter(|mount| mount["type"] == json!("bind"));
            let bound = bound.filter(|mount| {
                mount["destination"].as_str().is_none_or(|place| !refused.iter().any(|to| to == place))
            });
            bound.filter_map(|mount| mount["source"].as_str().map(str::to_owned)).collect()
        }
    };
    found.into_iter().map(PathBuf::from).filter(|path| path.is_absolute()).collect()
}

/// Returns the destinations of `--mount` options, from the command line that podman's command sends with its request.
fn of_mounts(container: &Value) -> Vec<String> {
    let count = container["command"].as_array().map_or(0, Vec::len) + 1;
    let words = container["containerCreateCommand"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    // The image and its command come last.
    let options = &words[..words.len().saturating_sub(count)];
    let mut found = Vec::new();
    for (at, word) in options.iter().enumerate() {
        let mount = word.strip_prefix("--mount=").or_else(|| match *word {
            "--mount" => options.get(at + 1).copied(),
            _ => None,
        });
        for (name, value) in
            mount.into_iter().flat_map(|mount| mount.split(',')).filter_map(|part| part.split_once('='))
        {
            if ["destination", "dst", "target"].contains(&name) {
                found.push(clean(value));
            }
        }
    }
    found
}

fn clean(path: &str) -> String {
    Path::new(path).components().collect::<PathBuf>().to_string_lossy().into_owned()
}

/// Returns the image that provides the health check of a new container; `None` if the container has its own check, or
/// is to have none.
pub(super) fn image_to_ask(api: Api, container: &Value) -> Option<&str> {
    let (check, image) = match api {
        Api::Docker => (&container["Healthcheck"]["Test"], &container["Image"]),
        Api::Podman => (&container["healthconfig"]["Test"], &container["image"]),
    };
    let own = check.as_array().is_some_and(|test| !test.is_empty());
    if own { None } else { image.as_str().filter(|image| !image.is_empty()) }
}

/// Sets the health check of a new container: the image's if the container has none, and Docker's defaults for missing
/// values. Returns whether anything changed. Podman reads 0 retries from an image's check, and reports the container as
/// unhealthy after the first failure.
pub(super) fn set_health(api: Api, container: &mut Value, image: Option<&Value>) -> bool {
    let place = match api {
        Api::Docker => "Healthcheck",
        Api::Podman => "healthconfig",
    };
    let test = |value: &Value| {
        value["Test"].as_array().is_some_and(|test| !test.is_empty() && test[0] != json!("NONE"))
    };
    let own = &container[place];
    let mut check = match image.filter(|_| own["Test"].as_array().is_none_or(|test| test.is_empty())) {
        Some(image) if test(image) => overlaid(image, own),
        Some(_) => return false,
        None if test(own) => own.clone(),
        None => return false,
    };
    for (name, usual) in HEALTH {
        if check[name].as_u64().unwrap_or(0) == 0 {
            check[name] = json!(usual);
        }
    }
    let changed = container[place] != check;
    container[place] = check;
    changed
}

/// Returns the image's health check, with the values that the container overrides.
fn overlaid(image: &Value, own: &Value) -> Value {
    let mut check: Map<String, Value> = image.as_object().cloned().unwrap_or_default();
    for (name, value) in own.as_object().into_iter().flatten() {
        if value.as_u64().is_some_and(|number| number > 0) {
            check.insert(name.clone(), value.clone());
        }
    }
    Value::Object(check)
}

#[cfg(test)]
mod tests;
