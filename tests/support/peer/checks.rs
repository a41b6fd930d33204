//! What of a launch does EC2 refuse, or the account's own policies? Tags by EC2's rules, volumes by those of gp3, and
//! what these demand of everything that is launched.

use std::collections::BTreeSet;

use super::answer::Refused;
use super::params::Params;
use super::rules::Rules;
use super::world::OWNER;

/// Most tags of a resource (EC2 user guide, "Tag restrictions").
const TAGS: usize = 50;

/// Whether the tags of a call can be set.
pub(super) fn tags(asked: &Params) -> Result<(), Refused> {
    for on in asked.list("TagSpecification") {
        let keys: Vec<&str> = on.list("Tag").into_iter().filter_map(|tag| tag.text("Key")).collect();
        if keys.len() > TAGS {
            return Err(Refused::new("TagLimitExceeded", "You may specify up to 50 tags on a resource"));
        }
        let mut seen = BTreeSet::new();
        for key in keys {
            if key.to_lowercase().starts_with("aws:") {
                let why = format!("Tag keys starting with 'aws:' are reserved for internal use ({key})");
                return Err(Refused::new("InvalidParameterValue", why));
            }
            if !seen.insert(key) {
                let why = format!("Duplicate tag key '{key}' specified.");
                return Err(Refused::new("InvalidParameterValue", why));
            }
        }
    }
    Ok(())
}

/// What a volume of a template cannot be: its speed by the rules of gp3, its key only with encryption.
pub(super) fn volumes(data: &Params) -> Result<(), Refused> {
    let refused = |why: String| Err(Refused::new("InvalidParameterCombination", why));
    for ebs in data.list("BlockDeviceMapping").into_iter().filter_map(|one| one.at("Ebs")) {
        let (gib, iops) = (ebs.number("VolumeSize"), ebs.number("Iops"));
        if iops.is_some_and(|iops| !(3_000..=80_000).contains(&iops)) {
            return refused("Volume iops of gp3 must be between 3000 and 80000.".into());
        }
        if let (Some(gib), Some(iops)) = (gib, iops)
            && iops > 3_000.max(gib * 500)
        {
            return refused(format!(
                "Iops to volume size ratio of {iops}:{gib} is too high; maximum is 500:1"
            ));
        }
        if ebs
            .number("Throughput")
            .is_some_and(|t| !(125..=2_000).contains(&t) || t * 4 > iops.unwrap_or(3_000))
        {
            return refused("Throughput (MiBps) to iops ratio is too high; maximum is 0.25".into());
        }
        if ebs.number("VolumeInitializationRate").is_some_and(|rate| !(100..=300).contains(&rate)) {
            return refused("The volume initialization rate must be between 100 and 300 MiB/s.".into());
        }
        if ebs.text("KmsKeyId").is_some() && ebs.text("Encrypted") != Some("true") {
            return refused("The parameter KmsKeyId requires the parameter Encrypted to be set.".into());
        }
    }
    Ok(())
}

/// The image and the instance profile that a template names must be there.
pub(super) fn names(rules: &Rules, data: &Params) -> Result<(), Refused> {
    if let Some(image) = data.text("ImageId").filter(|image| rules.no_images.contains(*image)) {
        let why = format!("The image id '[{image}]' does not exist");
        return Err(Refused::new("InvalidAMIID.NotFound", why));
    }
    let profile = data.text("IamInstanceProfile.Name").filter(|name| rules.no_profiles.contains(*name));
    if let Some(profile) = profile {
        let why = format!(
            "Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
        );
        return Err(Refused::new("InvalidParameterValue", why));
    }
    Ok(())
}

/// What the account's service control policies forbid of a launch.
pub(super) fn demands(rules: &Rules, data: &Params, asked: &Params) -> Result<(), Refused> {
    let denied = |kind: &str| {
        let why = format!(
            "You are not authorized to perform this operation. User: arn:aws:sts::{OWNER}:assumed-role/operator/1 is \
             not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:eu-central-1:{OWNER}:{kind}/* with an \
             explicit deny in a service control policy"
        );
        Err(Refused::new("UnauthorizedOperation", why))
    };
    for kind in ["instance", "volume"] {
        let (by_template, by_call) = (data.tags_for(kind), asked.tags_for(kind));
        let missing = |key: &&&str| !by_template.contains_key(**key) && !by_call.contains_key(**key);
        if rules.demanded_tags.iter().any(|key| missing(&key)) {
            return denied(kind);
        }
    }
    let volumes = data.list("BlockDeviceMapping");
    let encrypted = |one: &&Params| one.text("Ebs.Encrypted") == Some("true");
    if rules.demands_encryption && !volumes.iter().any(encrypted) {
        return denied("volume");
    }
    Ok(())
}
