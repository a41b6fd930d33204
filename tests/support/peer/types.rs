//! Which types and subnets are there, and which type do requirements choose? A handful of each, enough to tell
//! architecture, size, price and EC2's defaults apart.

use super::answer::Refused;
use super::params::Params;

/// Subnets and their zones.
pub const SUBNETS: [(&str, &str); 3] = [
    ("subnet-0000000000000000a", "eu-central-1a"),
    ("subnet-0000000000000000b", "eu-central-1b"),
    ("subnet-0000000000000000c", "eu-central-1c"),
];

/// A second one in the first zone.
pub const TWIN: (&str, &str) = ("subnet-0000000000000000d", SUBNETS[0].1);

/// The network of all subnets.
pub const VPC: &str = "vpc-0000000000000000a";

/// Security groups and their networks: the second is of another one.
pub const GROUPS: [(&str, &str); 2] =
    [("sg-0000000000000000a", VPC), ("sg-0000000000000000b", "vpc-0000000000000000b")];

struct Kind {
    name: &'static str,
    cpu: u32,
    mmem: u32,
    manufacturer: &'static str,
    burstable: bool,
}

const fn kind(name: &'static str, cpu: u32, mmem: u32, manufacturer: &'static str) -> Kind {
    Kind { name, cpu, mmem, manufacturer, burstable: false }
}

/// Cheapest first.
const KINDS: [Kind; 8] = [
    Kind { burstable: true, ..kind("t3.large", 2, 8192, "intel") },
    kind("c7g.large", 2, 4096, "amazon-web-services"),
    kind("m7i.large", 2, 8192, "intel"),
    kind("c7g.xlarge", 4, 8192, "amazon-web-services"),
    kind("c7i.xlarge", 4, 8192, "intel"),
    kind("m7a.xlarge", 4, 16_384, "amd"),
    kind("m7i.2xlarge", 8, 32_768, "intel"),
    kind("m7i.metal-24xl", 96, 393_216, "intel"),
];

/// The zone of a subnet.
pub(super) fn zone(subnet: &str) -> Option<&'static str> {
    SUBNETS.iter().chain([&TWIN]).find(|(id, _)| *id == subnet).map(|(_, zone)| *zone)
}

/// The cheapest type that an override allows.
pub(super) fn choose(wanted: &Params) -> Result<String, Refused> {
    if let Some(named) = wanted.text("InstanceType") {
        return Ok(named.to_owned());
    }
    let Some(wanted) = wanted.at("InstanceRequirements") else { return Ok("m5.large".into()) };
    for needed in ["VCpuCount.Min", "MemoryMiB.Min"] {
        wanted.needed(needed)?;
    }
    let fits = KINDS.iter().find(|kind| fits(kind, wanted)).map(|kind| kind.name.to_owned());
    fits.ok_or_else(|| {
        Refused::new("InvalidFleetConfiguration", "No instance type satisfies the requirements")
    })
}

fn fits(kind: &Kind, wanted: &Params) -> bool {
    let within = |value: u32, range: &str| {
        let bound = |end: &str| wanted.number(&format!("{range}.{end}"));
        bound("Min").is_none_or(|min| value >= min) && bound("Max").is_none_or(|max| value <= max)
    };
    let included = |option: &str, is: bool| match wanted.text(option).unwrap_or("excluded") {
        "included" => true,
        "required" => is,
        _ => !is,
    };
    let (allowed, manufacturers) = (wanted.texts("AllowedInstanceType"), wanted.texts("CpuManufacturer"));
    let metal = kind.name.contains("metal");
    within(kind.cpu, "VCpuCount")
        && within(kind.mmem, "MemoryMiB")
        && included("BareMetal", metal)
        && included("BurstablePerformance", kind.burstable)
        && (manufacturers.is_empty()
            || manufacturers.iter().any(|manufacturer| manufacturer == kind.manufacturer))
        && (allowed.is_empty()
            || allowed.iter().any(|glob| wildmatch::WildMatch::new(glob).matches(kind.name)))
}
