//! `CreateFleet`: instant fleets, replayed by their token, partial where there is no more to be had.

use std::collections::BTreeMap;

use super::answer::{Refused, Xml};
use super::params::Params;
use super::types::{SUBNETS, choose, zone};
use super::world::{Instance, OWNER, World};
use super::{checks, dry_runs};

/// A fleet and the call that made it.
#[derive(Clone, Debug)]
pub struct Fleet {
    asked: Params,
    answer: Vec<Xml>,
}

/// One place and size a fleet may use.
struct Pool {
    subnet: Option<String>,
    zone: String,
    kind: String,
    image: String,
    exhausted: bool,
}

pub(super) fn create(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    if asked.text("Type") != Some("instant") {
        return Err(Refused::new("InvalidParameterValue", "The peer makes fleets of type instant only"));
    }
    if asked.text("DryRun") == Some("true") {
        return Err(dry_runs::fleet(world));
    }
    let token = asked.text("ClientToken").unwrap_or_default().to_owned();
    if let Some(fleet) = world.fleets.get(&token).filter(|_| !token.is_empty()) {
        if fleet.asked != *asked {
            let why = "The client token was used with other parameters";
            return Err(Refused::new("IdempotentParameterMismatch", why));
        }
        let told = if world.rules.silent_replays { 1 } else { fleet.answer.len() };
        return Ok(fleet.answer[..told].to_vec());
    }
    let answer = made(world, asked)?;
    world.fleets.insert(token, Fleet { asked: asked.clone(), answer: answer.clone() });
    Ok(answer)
}

fn made(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let count = asked.needed("TargetCapacitySpecification.TotalTargetCapacity")?.parse().unwrap_or(0);
    let usage =
        asked.text("TargetCapacitySpecification.DefaultTargetCapacityType").unwrap_or("on-demand").to_owned();
    let config = asked.list("LaunchTemplateConfigs").into_iter().next().cloned().unwrap_or_default();
    let sets = config.list("Overrides").into_iter().filter(|one| one.at("InstanceRequirements").is_some());
    if sets.count() > 4 {
        let why = "Your request contains more than the maximum allowed number of InstanceRequirements (4)";
        return Err(Refused::new("InvalidParameterValue", why));
    }
    no_pool_twice(&config)?;
    checks::tags(asked)?;
    let template = config.at("LaunchTemplateSpecification").cloned().unwrap_or_default();
    let data = world.templates.resolve(&template)?.data.clone();
    let mut errors: Vec<Vec<Xml>> = Vec::new();
    let mut pools = pools(world, &config, &data, &usage, &mut errors);
    if let Err(refused) = checks::volumes(&data).and_then(|()| checks::demands(&world.rules, &data, asked)) {
        errors.extend(pools.iter().map(|pool| error(&refused.code, &refused.message, &usage, Some(pool))));
        pools.clear();
    }
    if usage != "spot" && !data.tags_for("spot-instances-request").is_empty() {
        let why = "You cannot specify tags for Spot instances requests if there are no Spot instances requests being \
                   created by the request.";
        errors.extend(pools.iter().map(|pool| error("InvalidParameterCombination", why, &usage, Some(pool))));
        pools.clear();
    }
    let class = asked
        .tags_for("instance")
        .get("runyard:class")
        .or(data.tags_for("instance").get("runyard:class"))
        .cloned();
    if let Some((code, why)) = class.and_then(|class| world.rules.no_launch.get(&class).copied()) {
        errors.extend(pools.iter().map(|pool| error(code, why, &usage, Some(pool))));
        pools.clear();
    }
    if let Err(refused) = checks::names(&world.rules, &data) {
        errors.extend(pools.iter().map(|pool| error(&refused.code, &refused.message, &usage, Some(pool))));
        pools.clear();
    }
    if let Some(kind) = forbidden(world, &usage) {
        let why = format!(
            "You are not authorized to perform this operation. User: arn:aws:sts::{OWNER}:assumed-role/operator/1 is \
             not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:eu-central-1:{OWNER}:{kind}/* because \
             no identity-based policy allows the ec2:RunInstances action"
        );
        errors.extend(pools.iter().map(|pool| error("UnauthorizedOperation", &why, &usage, Some(pool))));
        pools.clear();
    }
    let mut launched: Vec<(String, String, String)> = Vec::new();
    let tags: BTreeMap<String, String> =
        data.tags_for("instance").into_iter().chain(asked.tags_for("instance")).collect();
    for _ in 0..count {
        let alive = world.instances.values().filter(|one| one.alive() && one.usage == "spot").count();
        if usage == "spot" && world.rules.spot_limit.is_some_and(|limit| alive >= limit) {
            errors.push(error(
                "MaxSpotInstanceCountExceeded",
                "Max spot instance count exceeded",
                &usage,
                None,
            ));
            break;
        }
        let Some(pool) = next(world, &mut pools, &usage, &mut errors) else { break };
        let id = world.born(Instance::new(&pool.kind, &pool.zone, &usage, &pool.image, tags.clone()));
        launched.push((id, pool.kind.clone(), pool.zone.clone()));
    }
    let fleet_id = Xml::text("fleetId", format!("fleet-{:036}", world.fleets.len()));
    let instances = launched.into_iter().map(|(id, kind, zone)| {
        let at = Xml::node("overrides", vec![Xml::text("availabilityZone", zone)]);
        vec![
            Xml::node("launchTemplateAndOverrides", vec![at]),
            Xml::text("lifecycle", &usage),
            Xml::node("instanceIds", vec![Xml::text("item", id)]),
            Xml::text("instanceType", kind),
        ]
    });
    Ok(vec![fleet_id, Xml::set("errorSet", errors), Xml::set("fleetInstanceSet", instances)])
}

/// Two overrides of one zone that ask for the same types come to the same pools.
fn no_pool_twice(config: &Params) -> Result<(), Refused> {
    let mut seen = Vec::new();
    for one in config.list("Overrides") {
        let place = one.text("SubnetId").map(|subnet| zone(subnet).unwrap_or(subnet));
        let pool = (place, one.text("InstanceType"), one.at("InstanceRequirements"));
        if seen.contains(&pool) {
            let why = "The fleet configuration contains duplicate instance pools. Specify a unique instance pool for \
                       each override and try again.";
            return Err(Refused::new("InvalidFleetConfig", why));
        }
        seen.push(pool);
    }
    Ok(())
}

/// What a launch of this kind touches and the caller may not launch: a fleet is asked for with success all the same.
pub(super) fn forbidden(world: &World, usage: &str) -> Option<&'static str> {
    let spot = (usage == "spot").then_some("spot-instances-request");
    let touched = ["instance", "volume", "network-interface", "subnet", "image"].into_iter().chain(spot);
    touched.into_iter().find(|kind| world.rules.forbidden.contains(kind))
}

/// The first pool that still has something; each that has not is told of once.
fn next<'a>(
    world: &mut World,
    pools: &'a mut [Pool],
    usage: &str,
    errors: &mut Vec<Vec<Xml>>,
) -> Option<&'a Pool> {
    for pool in pools.iter_mut() {
        if pool.exhausted {
            continue;
        }
        if world.rules.take(&(pool.zone.clone(), usage.to_owned())) {
            return Some(pool);
        }
        pool.exhausted = true;
        let why = format!("We currently do not have sufficient {} capacity", pool.kind);
        errors.push(error("InsufficientInstanceCapacity", &why, usage, Some(pool)));
    }
    None
}

fn pools(
    world: &World,
    config: &Params,
    data: &Params,
    usage: &str,
    errors: &mut Vec<Vec<Xml>>,
) -> Vec<Pool> {
    let overrides = config.list("Overrides");
    let overrides = if overrides.is_empty() { vec![data] } else { overrides };
    let mut pools = Vec::new();
    for one in overrides {
        let subnet = one.text("SubnetId");
        let Some(zone) = subnet.map_or(Some(SUBNETS[0].1), zone) else {
            let why = format!("The subnet ID '{}' does not exist", subnet.unwrap_or_default());
            errors.push(error("InvalidSubnetID.NotFound", &why, usage, None));
            continue;
        };
        // What an override leaves out, its template says.
        let sized = ["InstanceType", "InstanceRequirements"].iter().any(|name| one.at(name).is_some());
        let image = one.text("ImageId").map_or_else(|| data.needed("ImageId"), Ok);
        let found = image.and_then(|image| world.rules.image(image));
        match found.and_then(|image| Ok((choose(if sized { one } else { data })?, image))) {
            Ok((kind, image)) => pools.push(Pool {
                subnet: subnet.map(str::to_owned),
                zone: zone.to_owned(),
                kind,
                image,
                exhausted: false,
            }),
            Err(refused) => errors.push(error(&refused.code, &refused.message, usage, None)),
        }
    }
    pools
}

fn error(code: &str, message: &str, usage: &str, pool: Option<&Pool>) -> Vec<Xml> {
    let at = pool.map(|pool| {
        let subnet = pool.subnet.iter().map(|subnet| Xml::text("subnetId", subnet));
        let zone = Xml::text("availabilityZone", &pool.zone);
        let at = subnet.chain([zone, Xml::text("instanceType", &pool.kind)]).collect();
        Xml::node("launchTemplateAndOverrides", vec![Xml::node("overrides", at)])
    });
    let rest =
        [Xml::text("lifecycle", usage), Xml::text("errorCode", code), Xml::text("errorMessage", message)];
    at.into_iter().chain(rest).collect()
}
