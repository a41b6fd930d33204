//! `DescribeInstances` and `TerminateInstances`, with the delays EC2 has in telling of a new machine.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::answer::{Refused, Xml};
use super::params::Params;
use super::world::{Instance, OWNER, World};

pub(super) fn describe(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let ids = asked.texts("InstanceId");
    let rules = (world.rules.unseen_for, world.rules.untagged_for, world.rules.pending_for);
    let missing: Vec<_> = ids
        .iter()
        .filter(|id| world.instances.get(*id).is_none_or(|one| !one.seen(rules)))
        .cloned()
        .collect();
    let filters: Vec<(String, Vec<String>)> = asked
        .list("Filter")
        .into_iter()
        .map(|filter| (filter.text("Name").unwrap_or_default().to_owned(), filter.texts("Value")))
        .collect();
    for (name, _) in &filters {
        if !name.starts_with("tag:") && name != "instance-id" && name != "instance-state-name" {
            return Err(Refused::new("InvalidParameterValue", format!("The filter '{name}' is invalid")));
        }
    }
    let found: Vec<(String, Instance)> = world
        .instances
        .iter()
        .filter(|(id, one)| one.seen(rules) && (ids.is_empty() || ids.contains(id)))
        .map(|(id, one)| (id.clone(), one.as_told(rules)))
        .filter(|(id, one)| filters.iter().all(|filter| passes(id, one, filter)))
        .collect();
    for one in world.instances.values_mut() {
        one.told += 1;
    }
    if !missing.is_empty() {
        return Err(not_found(&missing));
    }
    let (page, next) = world.page(found, asked)?;
    let reservations = page.into_iter().map(|(id, one)| {
        let instance = one.xml(&id);
        vec![
            Xml::text("reservationId", "r-0123456789abcdef0"),
            Xml::text("ownerId", OWNER),
            Xml::set("instancesSet", [instance]),
        ]
    });
    Ok([Xml::set("reservationSet", reservations)].into_iter().chain(next).collect())
}

fn passes(id: &str, one: &Instance, (name, values): &(String, Vec<String>)) -> bool {
    let is = match name.strip_prefix("tag:") {
        Some(tag) => one.tags.get(tag).map(String::as_str),
        None if name == "instance-id" => Some(id),
        None => Some(one.state.as_str()),
    };
    is.is_some_and(|is| values.iter().any(|value| value == is))
}

fn not_found(ids: &[String]) -> Refused {
    let message = match ids {
        [one] => format!("The instance ID '{one}' does not exist"),
        many => format!("The instance IDs '{}' do not exist", many.join(", ")),
    };
    Refused::new("InvalidInstanceID.NotFound", message)
}

/// What was posted, which for minutes after a machine's begin or end is nothing; with `Latest` what is on the screen of
/// a machine that runs on Nitro.
pub(super) fn console(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let id = asked.needed("InstanceId")?.to_owned();
    let one = world.instances.get(&id).ok_or_else(|| not_found(std::slice::from_ref(&id)))?;
    let latest = asked.text("Latest") == Some("true");
    if latest && world.rules.no_screens {
        let why = "This instance type does not support retrieving the latest console logs.";
        return Err(Refused::new("UnsupportedOperation", why));
    }
    // The most recent 64 KiB, folded as the service folds its base64.
    let tail = &one.console[one.console.len().saturating_sub(64 << 10)..];
    let told = if one.posted || (latest && one.alive()) { tail } else { &[] };
    let encoded = BASE64_STANDARD.encode(told);
    let folded: Vec<&str> =
        encoded.as_bytes().chunks(76).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    let output = (!told.is_empty()).then(|| Xml::text("output", folded.join("\n")));
    let timestamp = Xml::text("timestamp", "2026-01-01T00:00:00.000Z");
    Ok([Xml::text("instanceId", id), timestamp].into_iter().chain(output).collect())
}

/// All or nothing, as EC2 does within a zone.
pub(super) fn terminate(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let ids = asked.texts("InstanceId");
    if ids.is_empty() {
        asked.needed("InstanceId")?;
    }
    if let Some(id) = ids.iter().find(|id| !id.starts_with("i-")) {
        return Err(Refused::new("InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\"")));
    }
    let missing: Vec<_> = ids.iter().filter(|id| !world.instances.contains_key(*id)).cloned().collect();
    if !missing.is_empty() {
        return Err(not_found(&missing));
    }
    if let Some(id) = ids.iter().find(|id| world.rules.protected.contains(*id)) {
        let why = format!("The instance '{id}' may not be terminated. Modify its 'disableApiTermination'");
        return Err(Refused::new("OperationNotPermitted", why));
    }
    let changes = ids.iter().map(|id| {
        let one = world.instances.get_mut(id).expect("every id was looked up");
        let before = std::mem::replace(&mut one.state, "terminated".into());
        let state = |name: &str, state: &str| {
            Xml::node(name, vec![Xml::text("code", code(state)), Xml::text("name", state)])
        };
        vec![
            Xml::text("instanceId", id),
            state("currentState", "shutting-down"),
            state("previousState", &before),
        ]
    });
    Ok(vec![Xml::set("instancesSet", changes)])
}

/// EC2's number of a state.
pub(super) fn code(state: &str) -> u32 {
    match state {
        "pending" => 0,
        "running" => 16,
        "shutting-down" => 32,
        "terminated" => 48,
        "stopping" => 64,
        _ => 80,
    }
}
