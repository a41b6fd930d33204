//! Calls with `DryRun`: judged by policies and by what they name, and answered with an error in any case. Neither
//! quotas nor capacity are looked at, as at EC2 (API reference, "RunInstances").

use super::answer::{Refused, Xml};
use super::checks;
use super::fleets::forbidden;
use super::params::Params;
use super::types::{GROUPS, zone};
use super::world::{OWNER, World};

/// What a call that would succeed is answered.
pub(super) fn would_succeed() -> Refused {
    Refused::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

/// A fleet's own right; what its machines may is a machine's call to say.
pub(super) fn fleet(world: &World) -> Refused {
    if world.rules.forbidden.contains("fleet") {
        unauthorized("CreateFleet", "fleet")
    } else {
        would_succeed()
    }
}

/// One machine, from a template.
pub(super) fn machine(world: &World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    if asked.text("DryRun") != Some("true") {
        return Err(Refused::new("InvalidAction", "The peer launches by fleets alone"));
    }
    // Policies come first: who may not launch is told of nothing else.
    let spot = asked.text("InstanceMarketOptions.MarketType") == Some("spot");
    if let Some(kind) = forbidden(world, if spot { "spot" } else { "on-demand" }) {
        return Err(unauthorized("RunInstances", kind));
    }
    let template = asked.at("LaunchTemplate").cloned().unwrap_or_default();
    let data = &world.templates.resolve(&template)?.data;
    if let Some(subnet) = asked.text("SubnetId").filter(|subnet| zone(subnet).is_none()) {
        let why = format!("The subnet ID '{subnet}' does not exist");
        return Err(Refused::new("InvalidSubnetID.NotFound", why));
    }
    let unknown =
        data.texts("SecurityGroupId").into_iter().find(|id| GROUPS.iter().all(|(known, _)| known != id));
    if let Some(group) = unknown {
        let why = format!("The security group '{group}' does not exist");
        return Err(Refused::new("InvalidGroup.NotFound", why));
    }
    checks::names(&world.rules, data)?;
    for kind in ["instance", "volume"] {
        if asked.tags_for(kind).is_empty() {
            return Err(unauthorized("RunInstances", kind));
        }
    }
    Err(would_succeed())
}

fn unauthorized(action: &str, kind: &str) -> Refused {
    let why = format!(
        "You are not authorized to perform this operation. User: arn:aws:sts::{OWNER}:assumed-role/operator/1 is not \
         authorized to perform: ec2:{action} on resource: arn:aws:ec2:eu-central-1:{OWNER}:{kind}/* because no \
         identity-based policy allows the ec2:{action} action. Encoded authorization failure message: {}",
        "c2VhbGVk".repeat(100)
    );
    Refused::new("UnauthorizedOperation", why)
}
