//! Classes whose image a parameter of Systems Manager names, and classes that an account's policies demand more of.

use std::collections::BTreeMap;

use aws_sdk_ec2::Client;
use runyard_core::model::{PoolSpec, TableName, UsageClass};
use runyard_core::ports::{Compute, ComputeError};
use runyard_operator::aws::Ec2Compute;
use runyard_operator::aws::ec2::TemplateChange;

use crate::ec2::benches::{compute, order, sdk_config, spec, table};
use runyard_support::peer::{Peer, Refused, SUBNETS};

const PARAMETER: &str = "/aws/service/debian/release/13/latest/amd64";
const FIRST: &str = "ami-00000000000000001";
const SECOND: &str = "ami-00000000000000002";

struct Yard {
    peer: Peer,
    compute: Ec2Compute,
    table: TableName,
}

/// With a class of the parameter, which names the first image.
async fn yard() -> (Yard, PoolSpec) {
    let (peer, table) = (Peer::start(), table());
    let compute = compute(peer.endpoint(), table.clone()).await;
    let yard = Yard { peer, compute, table };
    yard.names(FIRST);
    let mut spec = spec(&[SUBNETS[0].0]);
    spec.launch.ami = Some(format!("ssm:{PARAMETER}"));
    (yard, spec)
}

impl Yard {
    fn names(&self, image: &str) {
        self.peer.rules(|rules| drop(rules.parameters.insert(PARAMETER.into(), image.into())));
    }

    fn versions(&self) -> Option<usize> {
        self.peer.world().templates.versions(&format!("{}-linux", self.table))
    }

    /// What the machines were launched from.
    fn images(&self) -> Vec<String> {
        self.peer.world().instances.values().map(|one| one.image.clone()).collect()
    }

    async fn launched(
        &self,
        spec: &PoolSpec,
        name: &str,
        image: Option<&str>,
    ) -> Result<usize, ComputeError> {
        let mut order = order(spec, name, 1, UsageClass::OnDemand);
        order.image = image.map(str::to_owned);
        self.compute.launch(&order).await.map(|launched| launched.machines.len())
    }
}

#[tokio::test]
async fn a_parameter_is_resolved_by_its_classs_template_and_costs_no_version_again() {
    let (yard, spec) = yard().await;
    assert_eq!(yard.compute.resolve(&spec).await.as_deref(), Ok(FIRST));
    assert_eq!(yard.versions(), Some(1));
    yard.names(SECOND);
    assert_eq!(yard.compute.resolve(&spec).await.as_deref(), Ok(SECOND));
    assert_eq!(yard.compute.ensure_template(&spec).await, Ok(TemplateChange::None));
    assert_eq!(yard.versions(), Some(1));
}

#[tokio::test]
async fn machines_are_launched_from_the_image_that_is_pinned_and_from_no_newer_one() {
    let (yard, spec) = yard().await;
    yard.names(SECOND);
    assert_eq!(yard.launched(&spec, "l-1", Some(FIRST)).await, Ok(1));
    assert_eq!(yard.images(), [FIRST]);
    assert_eq!(yard.launched(&spec, "l-2", Some(SECOND)).await, Ok(1));
    assert_eq!((yard.images(), yard.versions()), (vec![FIRST.into(), SECOND.into()], Some(1)));
}

#[tokio::test]
async fn the_root_volume_of_a_class_with_a_parameter_is_its_images_root_device() {
    let (yard, mut spec) = yard().await;
    spec.launch.volume.gib = Some(60);
    yard.compute.ensure_template(&spec).await.unwrap();
    assert_eq!(yard.compute.examine_template(&spec).await, Ok((TemplateChange::None, Vec::new())));
    assert_eq!(yard.launched(&spec, "l-1", Some(FIRST)).await, Ok(1));
    let client = Client::new(&sdk_config(yard.peer.endpoint()).await);
    let asked =
        client.describe_launch_template_versions().launch_template_name(format!("{}-linux", yard.table));
    let told = asked.versions("$Default").send().await.unwrap().launch_template_versions.unwrap().remove(0);
    let data = told.launch_template_data.unwrap();
    assert_eq!(
        data.image_id(),
        Some(format!("resolve:ssm:{PARAMETER}").as_str()),
        "and it goes on naming it"
    );
    let disk = &data.block_device_mappings()[0];
    assert_eq!((disk.device_name(), disk.ebs().unwrap().volume_size()), (Some("/dev/xvda"), Some(60)));
}

#[tokio::test]
async fn a_parameter_that_is_not_there_or_may_not_be_read_is_a_refusal() {
    let (yard, spec) = yard().await;
    yard.peer.rules(|rules| rules.parameters.clear());
    let outcome = yard.compute.resolve(&spec).await;
    assert!(matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains(PARAMETER)), "{outcome:?}");
    yard.names("snap-0123456789abcdef0");
    let outcome = yard.compute.resolve(&spec).await;
    assert!(matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains("launch.ami")), "{outcome:?}");
    let denied = Refused::new("UnauthorizedOperation", "not authorized to perform: ssm:GetParameters");
    // Only the second look resolves.
    yard.peer.rules(|rules| {
        rules.refused.push_back(("DescribeLaunchTemplateVersions", denied));
    });
    let outcome = yard.compute.resolve(&spec).await;
    assert!(matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains("ssm:")), "{outcome:?}");
}

#[tokio::test]
async fn a_class_that_names_another_parameter_is_resolved_by_that_one() {
    let (yard, mut spec) = yard().await;
    yard.compute.resolve(&spec).await.unwrap();
    yard.peer.rules(|rules| drop(rules.parameters.insert("/golden".into(), SECOND.into())));
    spec.launch.ami = Some("ssm:/golden".into());
    assert_eq!(yard.compute.resolve(&spec).await.as_deref(), Ok(SECOND));
    spec.launch.ami = Some(format!("ssm:{PARAMETER}"));
    assert_eq!(yard.compute.resolve(&spec).await.as_deref(), Ok(FIRST));
    assert_eq!(yard.versions(), Some(2));
}

#[tokio::test]
async fn a_launch_carries_the_tags_and_the_encryption_that_policies_demand() {
    let (yard, mut spec) = yard().await;
    yard.peer.rules(|rules| {
        rules.demanded_tags.insert("CostCenter");
        rules.demands_encryption = true;
    });
    let outcome = yard.launched(&spec, "l-1", Some(FIRST)).await;
    assert!(
        matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains("explicit deny")),
        "{outcome:?}"
    );
    spec.launch.tags = BTreeMap::from([("CostCenter".into(), "4711".into())]);
    spec.launch.volume.encrypted = Some(true);
    spec.launch.volume.kms_key_id = Some("alias/yard".into());
    spec.launch.volume.iops = Some(6000);
    spec.launch.volume.throughput = Some(1000);
    spec.launch.volume.initialization_rate = Some(300);
    assert_eq!(yard.launched(&spec, "l-2", Some(FIRST)).await, Ok(1));
    let tags: Vec<_> = yard.peer.world().instances.values().map(|one| one.tags.clone()).collect();
    assert_eq!(tags[0].get("CostCenter").map(String::as_str), Some("4711"));
    assert_eq!(tags[0].get("runyard:table").map(String::as_str), Some(yard.table.as_str()));
}

#[tokio::test]
async fn as_many_tags_as_apply_takes_ec2_takes_too() {
    let (yard, mut spec) = yard().await;
    spec.launch.tags = (0..45).map(|i| (format!("k{i}"), "v".to_owned())).collect();
    assert_eq!(yard.launched(&spec, "l-1", Some(FIRST)).await, Ok(1));
    spec.launch.tags.insert("k45".into(), "v".into());
    let outcome = yard.launched(&spec, "l-2", Some(FIRST)).await;
    assert!(matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains("50 tags")), "{outcome:?}");
}
