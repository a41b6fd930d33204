//! `[sharing]`: teams, priorities and yard-wide quotas, each a table, or the same as JSON in one text.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::layers::scalar;
use super::reader::Reader;
use crate::model::{FieldError, MOST_GLOBS, Priority, Quota, YardSharing};

/// The largest number of requests or machines in a quota.
const MOST: u32 = 100_000;
/// The largest absolute value of a priority.
const WORTH: i32 = 1_000_000;

pub(super) fn read(reader: &mut Reader) -> Option<YardSharing> {
    let teams = table(reader, "sharing.teams", "{\"acme/web*\" = \"web\"}", |glob, team: &String| {
        if !glob_is_good(glob) {
            return Err("is no glob OWNER/REPO with * for any characters");
        }
        name_is_good(team).then_some(()).ok_or("is not the name of a team: use 1 to 40 of a-z, 0-9 and -")
    });
    let form = "{high = {value = 100, repositories = [\"acme/release\"]}}";
    let priorities = table(reader, "sharing.priorities", form, |name, priority: &Priority| {
        if !name_is_good(name) {
            return Err("is not the name of a priority: use 1 to 40 of a-z, 0-9 and -");
        }
        let globs = &priority.repositories;
        if globs.is_empty() || globs.len() > MOST_GLOBS || !globs.iter().all(|glob| glob_is_good(glob)) {
            return Err("has repositories that are no globs OWNER/REPO with * for any characters");
        }
        let within = (-WORTH..=WORTH).contains(&priority.value);
        within.then_some(()).ok_or("has a value that is not within -1000000 to 1000000")
    });
    let form = "{\"acme/*\" = {maxMachines = 40, maxWaiting = 200}}";
    let quotas = table(reader, "sharing.quotas", form, |_, quota: &Quota| {
        if quota.guaranteed.is_some() {
            return Err("guarantees machines: write guaranteed in the `sharing` of a pool");
        }
        if quota.max_machines == Some(0) || quota.max_waiting == Some(0) {
            return Err("can never be met: it is 0; close pools by their repositories instead");
        }
        let most = quota.max_machines.max(quota.max_waiting);
        most.is_none_or(|most| most <= MOST).then_some(()).ok_or("is over 100000")
    });
    Some(YardSharing { teams: teams?, priorities: priorities?, quotas: quotas? })
}

fn glob_is_good(glob: &str) -> bool {
    (1..=200).contains(&glob.len())
        && glob.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"*_.-/".contains(&byte))
}

fn name_is_good(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&name.len()) && name.bytes().all(good)
}

/// Reads the table at a path and checks each entry; problems are recorded with their paths.
fn table<T: DeserializeOwned>(
    reader: &mut Reader,
    path: &str,
    form: &str,
    check: impl Fn(&str, &T) -> Result<(), &'static str>,
) -> Option<BTreeMap<String, T>> {
    let value = reader.value(path);
    let given: Result<BTreeMap<String, T>, String> = match scalar(&value) {
        Some(text) if text.trim().is_empty() => Ok(BTreeMap::new()),
        Some(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
        None => value.deserialize().map_err(|error| error.to_string()),
    };
    let fix = format!("write a table such as {form}, or by the environment the same as JSON");
    let given = match given {
        Ok(given) if given.len() <= MOST_GLOBS => given,
        Ok(given) => {
            let message = format!("has more than {MOST_GLOBS} entries");
            reader.note(path, FieldError::new(path, given.len().to_string(), message, fix));
            return None;
        }
        Err(error) => {
            reader.note(path, FieldError::new(path, "…", format!("cannot be read: {error}"), fix));
            return None;
        }
    };
    let mut good = true;
    for (name, entry) in &given {
        if let Err(why) = check(name, entry) {
            good = false;
            reader.refuse(&format!("{path}.{name}"), name.clone(), why, &fix);
        }
    }
    good.then_some(given)
}
