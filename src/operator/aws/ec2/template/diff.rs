//! Compares a launch template with the spec of its class, field by field, to show a person what would change. The
//! digest of the whole, not this comparison, decides whether the template is changed.

use aws_sdk_ec2::types::{
    LaunchTemplateEbsBlockDevice as Ebs, LaunchTemplateEbsBlockDeviceRequest as EbsRequest,
    RequestLaunchTemplateData, ResponseLaunchTemplateData, Tag,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::aws::ec2::template::observed;
use crate::store::Difference;

/// A field's value for display; `None` if it is not set.
type FieldValue = Option<String>;

/// Returns the fields in which an existing template differs, or all fields of a new one.
pub(crate) fn differences(
    wanted: &RequestLaunchTemplateData,
    found: Option<&ResponseLaunchTemplateData>,
) -> Vec<Difference> {
    let empty = ResponseLaunchTemplateData::builder().build();
    let found = found.unwrap_or(&empty);
    let said = |said: FieldValue| said.unwrap_or_else(|| "nothing".to_owned());
    let pairs = wanted_fields(wanted).into_iter().zip(found_fields(found));
    let differing = pairs.filter(|((_, wanted), found)| wanted != found);
    let mut all: Vec<Difference> = differing
        .map(|((what, wanted), found)| Difference { what, wanted: said(wanted), found: said(found) })
        .collect();
    // A setting that somebody added and that our spec does not contain; a field reported already is not repeated.
    if let Some(problem) = observed::problem(found).filter(|problem| !has_setting(&all, problem.setting)) {
        let wanted = problem.fix.to_owned();
        all.push(Difference { what: problem.setting, wanted, found: problem.value });
    }
    all
}

fn has_setting(all: &[Difference], setting: &str) -> bool {
    all.iter().any(|difference| difference.what == setting)
}

/// Returns the fields in the order of [`found_fields`].
fn wanted_fields(data: &RequestLaunchTemplateData) -> [(&'static str, FieldValue); 10] {
    let metadata = data.metadata_options();
    let profile = data.iam_instance_profile();
    let tags = data.tag_specifications().iter().map(|on| (on.resource_type(), on.tags()));
    let disk = |volume: &aws_sdk_ec2::types::LaunchTemplateBlockDeviceMappingRequest| {
        let ebs = volume.ebs().cloned().unwrap_or_else(|| EbsRequest::builder().build());
        let speed = (ebs.iops(), ebs.throughput(), ebs.volume_initialization_rate());
        disk(volume.device_name(), ebs.volume_size(), speed, ebs.encrypted(), ebs.kms_key_id())
    };
    [
        ("ImageId", data.image_id().map(str::to_owned)),
        ("InstanceType", data.instance_type().map(|one| one.as_str().to_owned())),
        (
            "InstanceInitiatedShutdownBehavior",
            data.instance_initiated_shutdown_behavior().map(|one| one.as_str().to_owned()),
        ),
        (
            "MetadataOptions.HttpTokens",
            metadata.and_then(|one| one.http_tokens()).map(|one| one.as_str().to_owned()),
        ),
        (
            "MetadataOptions.HttpPutResponseHopLimit",
            metadata.and_then(|one| one.http_put_response_hop_limit()).map(|one| one.to_string()),
        ),
        ("IamInstanceProfile", profile.and_then(|one| one.arn().or(one.name())).map(str::to_owned)),
        ("SecurityGroupIds", list(data.security_group_ids().iter().cloned())),
        ("BlockDeviceMappings", list(data.block_device_mappings().iter().map(disk))),
        ("UserData", data.user_data().map(script)),
        (
            "TagSpecifications",
            list(tags.flat_map(|(kind, tags)| tag_list(kind.map(|one| one.as_str()), tags))),
        ),
    ]
}

fn found_fields(data: &ResponseLaunchTemplateData) -> [FieldValue; 10] {
    let metadata = data.metadata_options();
    let profile = data.iam_instance_profile();
    let tags = data.tag_specifications().iter().map(|on| (on.resource_type(), on.tags()));
    let disk = |volume: &aws_sdk_ec2::types::LaunchTemplateBlockDeviceMapping| {
        let ebs = volume.ebs().cloned().unwrap_or_else(|| Ebs::builder().build());
        let speed = (ebs.iops(), ebs.throughput(), ebs.volume_initialization_rate());
        disk(volume.device_name(), ebs.volume_size(), speed, ebs.encrypted(), ebs.kms_key_id())
    };
    [
        data.image_id().map(str::to_owned),
        data.instance_type().map(|one| one.as_str().to_owned()),
        data.instance_initiated_shutdown_behavior().map(|one| one.as_str().to_owned()),
        metadata.and_then(|one| one.http_tokens()).map(|one| one.as_str().to_owned()),
        metadata.and_then(|one| one.http_put_response_hop_limit()).map(|one| one.to_string()),
        profile.and_then(|one| one.arn().or(one.name())).map(str::to_owned),
        list(data.security_group_ids().iter().cloned()),
        list(data.block_device_mappings().iter().map(disk)),
        data.user_data().map(script),
        list(tags.flat_map(|(kind, tags)| tag_list(kind.map(|one| one.as_str()), tags))),
    ]
}

fn list(all: impl Iterator<Item = String>) -> FieldValue {
    let mut all: Vec<String> = all.collect();
    all.sort_unstable();
    (!all.is_empty()).then(|| all.join(", "))
}

fn disk(
    device: Option<&str>,
    gib: Option<i32>,
    (iops, throughput, initialization): (Option<i32>, Option<i32>, Option<i32>),
    encrypted: Option<bool>,
    key: Option<&str>,
) -> String {
    let parts = [
        gib.map(|gib| format!("{gib} GiB")),
        iops.map(|iops| format!("{iops} IOPS")),
        throughput.map(|throughput| format!("{throughput} MiB/s")),
        initialization.map(|rate| format!("initialized at {rate} MiB/s")),
        encrypted
            .map(|encrypted| if encrypted { "encrypted".to_owned() } else { "not encrypted".to_owned() }),
        key.map(|key| format!("by {key}")),
    ];
    let said: Vec<String> = parts.into_iter().flatten().collect();
    format!("{} of {}", device.unwrap_or("a volume"), said.join(" "))
}

/// Shortens a script, which may be long; its owner can recognise it by its digest.
fn script(base64: &str) -> String {
    let bytes = STANDARD.decode(base64).unwrap_or_else(|_| base64.as_bytes().to_vec());
    let digest: String = Sha256::digest(&bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{} bytes, SHA-256 {digest}…", bytes.len())
}

fn tag_list(kind: Option<&str>, tags: &[Tag]) -> Vec<String> {
    let kind = kind.unwrap_or_default();
    let mark =
        |tag: &Tag| format!("{kind} {}={}", tag.key().unwrap_or_default(), tag.value().unwrap_or_default());
    tags.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::ShutdownBehavior;

    use super::*;
    use crate::aws::ec2::template::spec::TemplateSpec;
    use crate::aws::ec2::testing::{options, spec};

    fn wanted() -> RequestLaunchTemplateData {
        TemplateSpec::of(&options(), &spec(), "ami-0123456789abcdef0", None).unwrap().data()
    }

    #[test]
    fn a_new_template_differs_in_everything_it_says() {
        let all = differences(&wanted(), None);
        assert!(all.iter().all(|one| one.found == "nothing"), "{all:?}");
        for what in ["ImageId", "UserData", "MetadataOptions.HttpTokens", "InstanceInitiatedShutdownBehavior"]
        {
            assert!(has_setting(&all, what), "{what}: {all:?}");
        }
    }

    #[test]
    fn what_somebody_changed_is_told_by_its_field_with_both_values() {
        let found = ResponseLaunchTemplateData::builder()
            .image_id("ami-0000000000000beef")
            .instance_initiated_shutdown_behavior(ShutdownBehavior::Stop)
            .build();
        let all = differences(&wanted(), Some(&found));
        let of = |what: &str| all.iter().find(|one| one.what == what).map(ToString::to_string);
        assert_eq!(
            of("ImageId").as_deref(),
            Some("ImageId: wanted ami-0123456789abcdef0, found ami-0000000000000beef")
        );
        assert_eq!(
            of("InstanceInitiatedShutdownBehavior").as_deref(),
            Some("InstanceInitiatedShutdownBehavior: wanted terminate, found stop")
        );
    }

    #[test]
    fn user_data_is_told_by_its_digest_and_never_whole() {
        assert!(script(&STANDARD.encode("echo secret")).starts_with("11 bytes, SHA-256 "));
    }
}
