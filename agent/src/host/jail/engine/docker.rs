//! Where Docker does something else than podman, and what has podman do as Docker does: pure, by what is asked and by
//! what is known of the image. The API of Docker is <https://docs.docker.com/reference/api/engine/>; podman's own, which
//! its command speaks, has the same paths below `/libpod`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// What Docker takes where a health check says nothing else, in nanoseconds, and how often.
const HEALTH: [(&str, u64); 3] = [("Interval", 30_000_000_000), ("Timeout", 30_000_000_000), ("Retries", 3)];

/// Whose words are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Docker,
    Podman,
}

/// What is asked, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A container is made.
    Create(Api),
    /// A container is removed whatever it does; it is asked of podman by this target.
    Remove(Api, String),
    /// A container's end is waited for, by this target.
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

/// The directories of the machine that a container to be made is to see, and that Docker makes where they are missing:
/// those of `--volume`, in all its forms, and not those of `--mount`, which it refuses.
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

/// Where `--mount` is to show something, by the words of podman's command, which tells them with what it made of them.
fn of_mounts(container: &Value) -> Vec<String> {
    let count = container["command"].as_array().map_or(0, Vec::len) + 1;
    let words = container["containerCreateCommand"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    // The image and what it runs come last.
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

/// The image whose own health check counts for a container to be made: none where it has one of its own, or is to have
/// none.
pub(super) fn image_to_ask(api: Api, container: &Value) -> Option<&str> {
    let (check, image) = match api {
        Api::Docker => (&container["Healthcheck"]["Test"], &container["Image"]),
        Api::Podman => (&container["healthconfig"]["Test"], &container["image"]),
    };
    let own = check.as_array().is_some_and(|test| !test.is_empty());
    if own { None } else { image.as_str().filter(|image| !image.is_empty()) }
}

/// Writes the health check of a container that is to be made: the image's where it has none, and Docker's numbers where
/// it has none of these. Podman takes 0 for the retries of an image's, and calls it unhealthy at its first failure.
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

/// The image's, with what the container says otherwise.
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
