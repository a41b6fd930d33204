//! Builds the `CreateFleet` call for a launch order and reads its response. Each launch is one fleet of type `instant`,
//! so that EC2 reports at once which machines it launched and which capacity it lacked. The order alone determines the
//! call, except for the choice of a zone's subnet with the most free addresses, and for zones and types that lacked
//! capacity lately. So a call repeated after a restart is usually the same, and its token returns the same machines; if
//! it differs, EC2 reports that the token was already used, and the machines are found by their tags.

use std::collections::BTreeSet;

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetInputBuilder;
use aws_sdk_ec2::types::{
    BareMetal, BurstablePerformance, CpuManufacturer, CreateFleetError, DefaultTargetCapacityType,
    FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
    FleetLaunchTemplateSpecificationRequest, FleetOnDemandAllocationStrategy, FleetType,
    InstanceRequirementsRequest, MemoryMiBRequest, OnDemandOptionsRequest, ResourceType,
    SpotAllocationStrategy, SpotInstanceInterruptionBehavior, SpotOptionsRequest, TagSpecification,
    TargetCapacitySpecificationRequest, VCpuCountRangeRequest,
};

use sha2::{Digest as _, Sha256};

use super::errors::{Meaning, meaning};
use super::machine::{ATTEMPT, CLASS, LAUNCH, TABLE, tag};
use super::shortages::Lack;
use super::template::Template;
use crate::model::{TableName, UsageClass};
use crate::ports::{ComputeError, LaunchOrder, Shortfall};

/// Maximum number of sets of instance requirements of one call (EC2: "more than the maximum allowed number of
/// InstanceRequirements (4)").
const SETS: usize = 4;
/// Maximum length of the description of a launch's shortfalls, in characters.
const SHOWN: usize = 500;

/// Builds the call for an order, with these of its types and in these subnets, each of another zone.
pub(super) fn request(
    table: &TableName,
    order: &LaunchOrder,
    template: &Template,
    types: &[String],
    subnets: &[String],
) -> CreateFleetInputBuilder {
    let launch = &order.launch;
    let count = i32::try_from(launch.count).unwrap_or(i32::MAX);
    let kind = match launch.usage_class {
        UsageClass::Spot => DefaultTargetCapacityType::Spot,
        UsageClass::OnDemand => DefaultTargetCapacityType::OnDemand,
    };
    let capacity = TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(count)
        .default_target_capacity_type(kind)
        .build();
    let call = CreateFleetInputBuilder::default()
        .r#type(FleetType::Instant)
        .client_token(&launch.client_token)
        .target_capacity_specification(capacity)
        .launch_template_configs(template_config(order, template, types, subnets))
        .set_tag_specifications(Some(tags(table, order)));
    match launch.usage_class {
        UsageClass::Spot => call.spot_options(
            SpotOptionsRequest::builder()
                .allocation_strategy(SpotAllocationStrategy::PriceCapacityOptimized)
                .instance_interruption_behavior(SpotInstanceInterruptionBehavior::Terminate)
                .build(),
        ),
        UsageClass::OnDemand => call.on_demand_options(
            OnDemandOptionsRequest::builder()
                .allocation_strategy(FleetOnDemandAllocationStrategy::LowestPrice)
                .build(),
        ),
    }
}

fn template_config(
    order: &LaunchOrder,
    template: &Template,
    types: &[String],
    subnets: &[String],
) -> FleetLaunchTemplateConfigRequest {
    // Always the default version: with a number, a repeated order would differ after a change of the template.
    let named = FleetLaunchTemplateSpecificationRequest::builder().version("$Default");
    let named = match template {
        Template::Managed { name } => named.launch_template_name(name),
        Template::Provided { id, .. } => named.launch_template_id(id),
    };
    let overrides = overrides(order, template, types, subnets);
    FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(named.build())
        .set_overrides((!overrides.is_empty()).then_some(overrides))
        .build()
}

/// Returns one override for each subnet, with the pinned image. A provided template that selects its own types keeps
/// them, unless the order selects some.
fn overrides(
    order: &LaunchOrder,
    template: &Template,
    types: &[String],
    subnets: &[String],
) -> Vec<FleetLaunchTemplateOverridesRequest> {
    let sized = match template {
        Template::Provided { sized, .. } => *sized && order.types.0.is_empty(),
        Template::Managed { .. } => false,
    };
    let one = FleetLaunchTemplateOverridesRequest::builder();
    let one = one.set_instance_requirements((!sized).then(|| requirements(order, types)));
    let one = one.set_image_id(order.image.clone());
    if subnets.is_empty() {
        return if sized { Vec::new() } else { vec![one.build()] };
    }
    // If there are too many subnets, each launch takes a share chosen by its token, so that all of them are used over
    // time.
    let first = if subnets.len() > SETS { by_token(&order.launch.client_token) % subnets.len() } else { 0 };
    let share = subnets.iter().cycle().skip(first).take(subnets.len().min(SETS));
    share.map(|subnet| one.clone().subnet_id(subnet).build()).collect()
}

/// Returns a number that depends only on the token.
fn by_token(token: &str) -> usize {
    Sha256::digest(token).iter().take(2).fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Requires at least the class's size. EC2's price protection, or the bound of the order, excludes types that cost far
/// more than the cheapest suitable one.
fn requirements(order: &LaunchOrder, types: &[String]) -> InstanceRequirementsRequest {
    let spec = &order.spec;
    let whole = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let (most_cpu, most_mmem) = order.largest();
    let cpu = VCpuCountRangeRequest::builder().min(whole(spec.cpu)).set_max(most_cpu.map(whole));
    let mmem = MemoryMiBRequest::builder().min(whole(spec.mmem)).set_max(most_mmem.map(whole));
    let over = spec.launch.max_price_over.map(whole);
    let wanted = InstanceRequirementsRequest::builder().v_cpu_count(cpu.build()).memory_mib(mmem.build());
    let wanted = match order.launch.usage_class {
        UsageClass::Spot => wanted.set_spot_max_price_percentage_over_lowest_price(over),
        UsageClass::OnDemand => wanted.set_on_demand_max_price_percentage_over_lowest_price(over),
    };
    // EC2 excludes bare metal and burstable types by default; a class that names such a family wants it.
    let metal = types.iter().any(|glob| glob.contains("metal"));
    let wanted = wanted.bare_metal(if metal { BareMetal::Included } else { BareMetal::Excluded });
    let wanted = if types.is_empty() {
        wanted
    } else {
        let wanted = wanted.burstable_performance(BurstablePerformance::Included);
        wanted.set_allowed_instance_types(Some(types.to_vec()))
    };
    let manufacturers = match spec.launch.architecture.as_deref() {
        Some("arm64") => Some(vec![CpuManufacturer::AmazonWebServices]),
        Some("x86_64") => Some(vec![CpuManufacturer::Intel, CpuManufacturer::Amd]),
        // The image decides.
        Some(_) | None => None,
    };
    wanted.set_cpu_manufacturers(manufacturers).build()
}

pub(super) fn tags(table: &TableName, order: &LaunchOrder) -> Vec<TagSpecification> {
    let (launch, theirs) = (&order.launch, &order.spec.launch.tags);
    let mut tags = vec![
        tag(TABLE, table.as_str()),
        tag(CLASS, launch.resource_class.as_str()),
        tag(LAUNCH, launch.launch_id.as_str()),
        tag(ATTEMPT, launch.attempt.to_string()),
    ];
    if !theirs.contains_key("Name") {
        tags.push(tag("Name", format!("{table}-{}", launch.resource_class)));
    }
    tags.extend(theirs.iter().map(|(key, value)| tag(key, value)));
    let on = |kind| TagSpecification::builder().resource_type(kind).set_tags(Some(tags.clone())).build();
    [ResourceType::Instance, ResourceType::Volume, ResourceType::Fleet].map(on).to_vec()
}

/// A machine in the fleet's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) id: String,
    pub(super) instance_type: String,
    pub(super) zone: String,
}

/// Returns the machines of a response.
pub(super) fn named(answer: &CreateFleetOutput) -> Vec<Named> {
    let groups = answer.instances().iter().flat_map(|group| {
        let overridden = group.launch_template_and_overrides().and_then(|used| used.overrides());
        let zone = group.availability_zone().or(overridden.and_then(|o| o.availability_zone()));
        let kind = group.instance_type().or(overridden.and_then(|o| o.instance_type()));
        group.instance_ids().iter().map(move |id| Named {
            id: id.clone(),
            instance_type: kind.map(|kind| kind.as_str().to_owned()).unwrap_or_default(),
            zone: zone.unwrap_or_default().to_owned(),
        })
    });
    let mut seen = BTreeSet::new();
    groups.filter(|machine| seen.insert(machine.id.clone())).collect()
}

/// Returns the zones without capacity in a response, each with its type if the response names one.
pub(super) fn lacks(errors: &[CreateFleetError], zone_of: impl Fn(&str) -> Option<String>) -> Vec<Lack> {
    let lack = |error: &CreateFleetError| {
        let used = error.launch_template_and_overrides()?.overrides()?;
        let zone = used.availability_zone().map(str::to_owned);
        let zone = zone.or_else(|| used.subnet_id().and_then(&zone_of))?;
        let lacks = meaning(error.error_code()?, 400) == Meaning::NoCapacity;
        lacks.then(|| (zone, used.instance_type().map(|kind| kind.as_str().to_owned())))
    };
    errors.iter().filter_map(lack).collect()
}

/// Returns the shortfalls of a response, each reason once.
pub(super) fn shortfalls(errors: &[CreateFleetError]) -> Vec<Shortfall> {
    let mut seen = BTreeSet::new();
    let told = errors.iter().map(|error| {
        let overridden = error.launch_template_and_overrides().and_then(|used| used.overrides());
        let zone = overridden.and_then(|o| o.availability_zone().or(o.subnet_id()));
        let kind = overridden.and_then(|o| o.instance_type()).map(|kind| kind.as_str());
        let at: Vec<&str> = kind.into_iter().chain(zone).collect();
        let message = error.error_message().unwrap_or("no message");
        let message =
            if at.is_empty() { message.to_owned() } else { format!("{message} ({})", at.join(" in ")) };
        Shortfall { code: error.error_code().unwrap_or("NoCode").to_owned(), message: cut(&message) }
    });
    told.filter(|short| seen.insert((short.code.clone(), short.message.clone()))).collect()
}

/// Returns the error for a response without any machine. The fleet exists and its token is used up, so that a retry
/// with it is pointless: a lack of capacity is temporary, and everything else is a refusal.
pub(super) fn nothing(shortfalls: &[Shortfall]) -> ComputeError {
    let told: Vec<_> = shortfalls.iter().map(|short| format!("{}: {}", short.code, short.message)).collect();
    let told = cut(&told.join("; "));
    let passes = |short: &Shortfall| match meaning(&short.code, 400) {
        Meaning::NoCapacity | Meaning::Throttled | Meaning::Unknown => true,
        Meaning::Refused
        | Meaning::TokenSpent
        | Meaning::NoSuchInstance
        | Meaning::Protected
        | Meaning::NoSuchTemplate
        | Meaning::TemplateExists => false,
    };
    if shortfalls.iter().any(passes) { ComputeError::NoCapacity(told) } else { ComputeError::Refused(told) }
}

fn cut(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests;
