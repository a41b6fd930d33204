//! The wanted content of a class's launch template. A digest identifies it and is stored in the description of the
//! template version that has this content.

use std::collections::BTreeMap;
use std::fmt::Display;

use aws_sdk_ec2::types::{
    InstanceType, LaunchTemplateBlockDeviceMappingRequest, LaunchTemplateEbsBlockDeviceRequest,
    LaunchTemplateHttpTokensState, LaunchTemplateIamInstanceProfileSpecificationRequest,
    LaunchTemplateInstanceMetadataEndpointState, LaunchTemplateInstanceMetadataOptionsRequest,
    LaunchTemplateTagSpecificationRequest, RequestLaunchTemplateData, ResourceType, ShutdownBehavior, Tag,
    VolumeType,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::user_data::user_data;
use crate::aws::ec2::Ec2Options;
use crate::aws::ec2::machine::{CLASS, TABLE, tag};
use crate::model::{FieldError, PoolSpec, Volume};

/// The prefix of version descriptions; a digest of the version's content follows.
const MARK: &str = "runyard ";
/// Incremented when the same spec comes to mean another template.
const REVISION: u32 = 1;

/// The wanted content of a template; the digest is computed from it, field by field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TemplateSpec {
    revision: u32,
    table: String,
    class: String,
    ami: String,
    /// The type for a call that names none; our own calls always name some.
    instance_type: String,
    instance_profile: Option<String>,
    security_groups: Vec<String>,
    /// The root device's name, and its volume.
    root: Option<(String, Volume)>,
    user_data: String,
    /// The class's own tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
}

impl TemplateSpec {
    /// Builds the wanted template of a class, with its image, which is an id or a parameter that EC2 resolves to one,
    /// and the root device of the image.
    pub(crate) fn of(
        options: &Ec2Options,
        spec: &PoolSpec,
        ami: &str,
        root: Option<(String, Volume)>,
    ) -> Result<Self, FieldError> {
        Ok(Self {
            revision: REVISION,
            table: options.table.to_string(),
            class: spec.resource_class.to_string(),
            ami: ami.to_owned(),
            instance_type: usual_type(spec),
            instance_profile: spec.launch.instance_profile.clone(),
            security_groups: spec.launch.security_group_ids.clone(),
            root,
            user_data: user_data(options, spec)?,
            tags: spec.launch.tags.clone(),
        })
    }

    pub(crate) fn name(&self) -> String {
        template_name(&self.table, &self.class)
    }

    fn digest(&self) -> String {
        let json = serde_json::to_vec(self).expect("text and numbers are JSON");
        Sha256::digest(json).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn description(&self) -> String {
        format!("{MARK}{}", self.digest())
    }

    pub(crate) fn data(&self) -> RequestLaunchTemplateData {
        let metadata = LaunchTemplateInstanceMetadataOptionsRequest::builder()
            .http_endpoint(LaunchTemplateInstanceMetadataEndpointState::Enabled)
            .http_tokens(LaunchTemplateHttpTokensState::Required)
            // A container on a bridge network is one hop further.
            .http_put_response_hop_limit(1);
        let groups = &self.security_groups;
        RequestLaunchTemplateData::builder()
            .image_id(&self.ami)
            .instance_type(InstanceType::from(self.instance_type.as_str()))
            .instance_initiated_shutdown_behavior(ShutdownBehavior::Terminate)
            .metadata_options(metadata.build())
            .set_iam_instance_profile(self.instance_profile.as_deref().map(profile))
            .set_security_group_ids((!groups.is_empty()).then(|| groups.clone()))
            .set_block_device_mappings(self.root.as_ref().map(|(name, volume)| vec![root(name, volume)]))
            .user_data(STANDARD.encode(&self.user_data))
            .set_tag_specifications(Some(self.tags()))
            .build()
    }

    /// Returns the tags that mark a template, or a machine, as this class's, and the class's own tags.
    pub(crate) fn class_tags(&self) -> Vec<Tag> {
        let ours = [tag(TABLE, &self.table), tag(CLASS, &self.class)];
        ours.into_iter().chain(self.tags.iter().map(|(key, value)| tag(key, value))).collect()
    }

    /// Returns the tags for machines that people launch from the template by hand. Spot requests get none: EC2 refuses
    /// such a template on demand ("You cannot specify tags for Spot instances requests if there are no …").
    fn tags(&self) -> Vec<LaunchTemplateTagSpecificationRequest> {
        let tags = self.class_tags();
        [ResourceType::Instance, ResourceType::Volume]
            .map(|kind| {
                let on = LaunchTemplateTagSpecificationRequest::builder().resource_type(kind);
                on.set_tags(Some(tags.clone())).build()
            })
            .to_vec()
    }
}

/// Returns the name of a class's template.
pub(crate) fn template_name(table: impl Display, class: impl Display) -> String {
    format!("{table}-{class}")
}

/// Returns the type for people who launch from the template by hand: the first that the class names, else a common one.
pub(crate) fn usual_type(spec: &PoolSpec) -> String {
    let named = spec.allowed_instance_types.0.iter().find(|glob| !glob.contains('*'));
    let common = if spec.launch.architecture.as_deref() == Some("arm64") { "m7g.large" } else { "m7i.large" };
    named.map_or(common, String::as_str).to_owned()
}

fn profile(name_or_arn: &str) -> LaunchTemplateIamInstanceProfileSpecificationRequest {
    let profile = LaunchTemplateIamInstanceProfileSpecificationRequest::builder();
    let profile =
        if name_or_arn.starts_with("arn:") { profile.arn(name_or_arn) } else { profile.name(name_or_arn) };
    profile.build()
}

fn root(device: &str, volume: &Volume) -> LaunchTemplateBlockDeviceMappingRequest {
    let whole = |n: Option<u32>| n.map(|n| i32::try_from(n).unwrap_or(i32::MAX));
    let volume = LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_volume_size(whole(volume.gib))
        .set_iops(whole(volume.iops))
        .set_throughput(whole(volume.throughput))
        .set_volume_initialization_rate(whole(volume.initialization_rate))
        .set_encrypted(volume.encrypted)
        .set_kms_key_id(volume.kms_key_id.clone())
        .volume_type(VolumeType::Gp3)
        .delete_on_termination(true);
    LaunchTemplateBlockDeviceMappingRequest::builder().device_name(device).ebs(volume.build()).build()
}

#[cfg(test)]
mod tests;
