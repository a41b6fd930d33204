//! `DescribeInstances` and `TerminateInstances`, with the delays EC2 has in telling of a new machine.

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
