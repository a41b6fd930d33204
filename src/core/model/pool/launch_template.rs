//! The launch configuration of a class's machines for EC2.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The prefix of the parameter of an image in a spec.
const PARAMETER: &str = "ssm:";

/// The launch configuration for EC2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchTemplate {
    /// The image: its id, or `ssm:` and the name of a parameter that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami: Option<String>,
    /// `x86_64` or `arm64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The instance profile's name or ARN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// The subnets to launch in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subnet_ids: Vec<String>,
    /// The security groups of the machines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_group_ids: Vec<String>,
    /// Size of the root volume in GiB; `volume.gib` is the same.
    #[serde(rename = "volumeGiB", skip_serializing_if = "Option::is_none")]
    pub volume_gib: Option<u32>,
    /// The root volume.
    #[serde(skip_serializing_if = "Volume::is_default")]
    pub volume: Volume,
    /// Tags of its machines, their volumes and fleets, in addition to ours.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// A shell script run once at first boot, before any runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_runner_script: Option<String>,
    /// How much more than the cheapest type that fits a machine may cost, in per cent; EC2's own bound where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_price_over: Option<u32>,
    /// A ready template, instead of all the above but `subnetIds`, `tags` and `maxPriceOver`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_template_id: Option<String>,
}

/// A root volume, of type gp3; an absent field is that of the image, or EC2's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Its size in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gib: Option<u32>,
    /// Its I/O operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// Its throughput in MiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<u32>,
    /// The rate in MiB/s at which EC2 reads the image's snapshot into it; EC2's own where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization_rate: Option<u32>,
    /// Whether it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// The key it is encrypted with: an id, an alias or an ARN of KMS; EC2's own where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
}

impl Volume {
    /// Returns whether all fields are absent.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The result of the last resolution of a parameter: the image that machines are launched from until it is resolved
/// again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImage {
    /// The parameter's name.
    pub parameter: String,
    /// The image's id.
    pub ami: String,
    /// When it was resolved, by the clock of the operator that did.
    pub resolved_at: Timestamp,
}

impl LaunchTemplate {
    /// Returns the parameter that names the image, if one does.
    pub fn parameter(&self) -> Option<&str> {
        self.ami.as_deref()?.strip_prefix(PARAMETER)
    }

    /// Returns the root volume, with the size from either of its two fields.
    pub fn root_volume(&self) -> Volume {
        Volume { gib: self.volume.gib.or(self.volume_gib), ..self.volume.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(value: serde_json::Value) -> LaunchTemplate {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_image_is_an_id_or_a_parameter() {
        assert_eq!(launch(serde_json::json!({"ami": "ami-0123456789abcdef0"})).parameter(), None);
        assert_eq!(launch(serde_json::json!({})).parameter(), None);
        let named = launch(serde_json::json!({"ami": "ssm:/aws/service/debian/release/13/latest/arm64"}));
        assert_eq!(named.parameter(), Some("/aws/service/debian/release/13/latest/arm64"));
    }

    #[test]
    fn the_size_of_the_root_volume_has_two_names() {
        for said in [
            serde_json::json!({"volumeGiB": 40, "volume": {"iops": 6000}}),
            serde_json::json!({"volume": {"gib": 40, "iops": 6000}}),
        ] {
            let volume = launch(said).root_volume();
            assert_eq!((volume.gib, volume.iops), (Some(40), Some(6000)));
        }
    }

    #[test]
    fn what_a_class_does_not_say_is_not_stored() {
        let stored = serde_json::to_value(launch(serde_json::json!({"volume": {}, "tags": {}}))).unwrap();
        assert_eq!(stored, serde_json::json!({}));
    }
}
