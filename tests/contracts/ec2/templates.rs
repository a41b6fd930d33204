//! A class's launch template, kept equal to its spec; and those of others, judged.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{
    LaunchTemplateHttpTokensState, LaunchTemplateInstanceMarketOptionsRequest,
    LaunchTemplateInstanceMetadataOptionsRequest, LaunchTemplateInstanceNetworkInterfaceSpecificationRequest,
    LaunchTemplateSpotMarketOptionsRequest, LaunchTemplateVersion, MarketType, RequestLaunchTemplateData,
    ResourceType, ShutdownBehavior, SpotInstanceType,
    builders::LaunchTemplateInstanceMetadataOptionsRequestBuilder,
};
use base64::Engine as _;
use runyard_core::model::{PoolSpec, TableName, UsageClass};
use runyard_core::ports::{Compute, ComputeError};
use runyard_operator::aws::Ec2Compute;
use runyard_operator::aws::ec2::{Ec2Options, TemplateChange};
use runyard_operator::config::Architectures;

use crate::ec2::benches::{compute, options, order, sdk_config, spec, table};
use runyard_support::engine::Engine;
use runyard_support::peer::{Peer, SUBNETS};

struct Yard {
    peer: Peer,
    compute: Ec2Compute,
    raw: Client,
    table: TableName,
}

async fn yard() -> Yard {
    let peer = Peer::start();
    let table = table();
    let compute = compute(peer.endpoint(), table.clone()).await;
    let raw = Client::new(&sdk_config(peer.endpoint()).await);
    Yard { peer, compute, raw, table }
}

fn linux() -> PoolSpec {
    spec(&[SUBNETS[0].0])
}

async fn default_version(client: &Client, table: &TableName) -> LaunchTemplateVersion {
    let asked = client.describe_launch_template_versions().launch_template_name(format!("{table}-linux"));
    let told = asked.versions("$Default").send().await.expect("the raw client reads");
    told.launch_template_versions.unwrap_or_default().remove(0)
}

#[tokio::test]
async fn a_class_gets_its_template_and_looking_at_it_changes_nothing() {
    let yard = yard().await;
    let (change, differences) = yard.compute.examine_template(&linux()).await.unwrap();
    assert_eq!(change, TemplateChange::Create);
    assert!(differences.iter().any(|one| one.what == "ImageId"), "{differences:?}");
    assert_eq!(yard.peer.world().templates.versions(&format!("{}-linux", yard.table)), None);
    assert_eq!(yard.compute.ensure_template(&linux()).await, Ok(TemplateChange::Create));
    assert_eq!(yard.compute.examine_template(&linux()).await, Ok((TemplateChange::None, Vec::new())));
    assert_eq!(yard.compute.ensure_template(&linux()).await, Ok(TemplateChange::None));
    assert_eq!(yard.peer.world().templates.versions(&format!("{}-linux", yard.table)), Some(1));
}

#[tokio::test]
async fn a_changed_class_gets_a_new_version_and_a_change_taken_back_its_old_one() {
    let yard = yard().await;
    yard.compute.ensure_template(&linux()).await.unwrap();
    let mut changed = linux();
    changed.launch.ami = Some("ami-0fedcba9876543210".into());
    assert_eq!(yard.compute.ensure_template(&changed).await, Ok(TemplateChange::Update));
    let version = default_version(&yard.raw, &yard.table).await;
    let data = version.launch_template_data.unwrap();
    assert_eq!((version.version_number, data.image_id()), (Some(2), Some("ami-0fedcba9876543210")));
    assert_eq!(yard.compute.ensure_template(&linux()).await, Ok(TemplateChange::Update));
    assert_eq!(default_version(&yard.raw, &yard.table).await.version_number, Some(1));
    assert_eq!(yard.peer.world().templates.versions(&format!("{}-linux", yard.table)), Some(2));
}

#[tokio::test]
async fn a_template_changed_by_hand_is_set_right_before_the_next_launch() {
    let yard = yard().await;
    yard.compute.ensure_template(&linux()).await.unwrap();
    let name = format!("{}-linux", yard.table);
    let data = RequestLaunchTemplateData::builder().image_id("ami-0000000000000beef").build();
    let made = yard.raw.create_launch_template_version().launch_template_name(&name);
    made.launch_template_data(data).send().await.unwrap();
    let set = yard.raw.modify_launch_template().launch_template_name(&name).default_version("2");
    set.send().await.unwrap();
    yard.compute.launch(&order(&linux(), "l-1", 1, UsageClass::OnDemand)).await.unwrap();
    assert_eq!(default_version(&yard.raw, &yard.table).await.version_number, Some(1));
}

#[tokio::test]
async fn a_template_of_this_name_that_is_somebody_elses_is_left_alone() {
    let yard = yard().await;
    let made = yard.raw.create_launch_template().launch_template_name(format!("{}-linux", yard.table));
    let data = RequestLaunchTemplateData::builder().image_id("ami-0000000000000beef").build();
    made.launch_template_data(data).send().await.unwrap();
    let outcome = yard.compute.ensure_template(&linux()).await;
    assert!(
        matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains("runyard:table")),
        "{outcome:?}"
    );
    assert_eq!(yard.peer.calls("CreateLaunchTemplateVersion"), 0);
}

#[tokio::test]
async fn a_template_removed_meanwhile_is_made_again_with_the_next_try() {
    let yard = yard().await;
    let first = order(&linux(), "l-1", 1, UsageClass::OnDemand);
    yard.compute.launch(&first).await.unwrap();
    yard.peer.world().templates.forget(&format!("{}-linux", yard.table));
    let second = order(&linux(), "l-2", 1, UsageClass::OnDemand);
    let outcome = yard.compute.launch(&second).await;
    assert!(matches!(outcome, Err(ComputeError::Unknown(_))), "{outcome:?}");
    assert_eq!(yard.compute.launch(&second).await.unwrap().machines.len(), 1);
}

#[tokio::test]
async fn a_template_that_was_good_a_moment_ago_is_not_looked_at_again() {
    let yard = yard().await;
    for name in ["l-1", "l-2", "l-3"] {
        yard.compute.launch(&order(&linux(), name, 1, UsageClass::OnDemand)).await.unwrap();
    }
    assert_eq!(yard.peer.calls("DescribeLaunchTemplates"), 1);
}

#[tokio::test]
async fn a_class_without_image_is_refused_by_the_fields_name() {
    let yard = yard().await;
    let mut spec = linux();
    spec.launch.ami = None;
    let outcome = yard.compute.launch(&order(&spec, "l-1", 1, UsageClass::OnDemand)).await;
    assert!(matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains("launch.ami")), "{outcome:?}");
    assert!(yard.peer.world().calls.is_empty());
}

#[tokio::test]
async fn a_class_without_a_runner_package_is_reported_by_key_and_launched_all_the_same() {
    let mut yard = yard().await;
    let bare = Ec2Options { runner: Architectures::default(), ..options(yard.table.clone()) };
    yard.compute = Ec2Compute::connect(bare, &sdk_config(yard.peer.endpoint()).await);
    let outcome = yard.compute.check(&linux()).await;
    let Err(ComputeError::Refused(why)) = &outcome else { panic!("{outcome:?}") };
    for said in ["agent.runner_url", "class linux", "launchTemplateId"] {
        assert!(why.contains(said), "{said}: {why}");
    }
    assert!(yard.peer.world().calls.is_empty());
    let ordered = order(&linux(), "l-1", 1, UsageClass::OnDemand);
    assert_eq!(yard.compute.launch(&ordered).await.unwrap().machines.len(), 1, "another agent may need none");
    let spec = given(&yard, good().build()).await;
    assert_eq!(yard.compute.check(&spec).await, Ok(()));
    let machines = yard.compute.launch(&order(&spec, "l-2", 1, UsageClass::OnDemand)).await.unwrap().machines;
    assert_eq!(machines.len(), 1);
}

/// A template that somebody else made; none is what they said it should be.
async fn given(yard: &Yard, data: RequestLaunchTemplateData) -> PoolSpec {
    let made = yard.raw.create_launch_template().launch_template_name(format!("given-{}", yard.table));
    let made = made.launch_template_data(data).send().await.unwrap();
    let mut spec = spec(&[]);
    spec.launch = Default::default();
    spec.launch.launch_template_id = made.launch_template.unwrap().launch_template_id;
    spec
}

fn good() -> aws_sdk_ec2::types::builders::RequestLaunchTemplateDataBuilder {
    let tokens = LaunchTemplateHttpTokensState::Required;
    RequestLaunchTemplateData::builder()
        .image_id("ami-0123456789abcdef0")
        .instance_type("m7i.2xlarge".into())
        .instance_initiated_shutdown_behavior(ShutdownBehavior::Terminate)
        .metadata_options(metadata().http_tokens(tokens).build())
}

fn metadata() -> LaunchTemplateInstanceMetadataOptionsRequestBuilder {
    LaunchTemplateInstanceMetadataOptionsRequest::builder().http_put_response_hop_limit(1)
}

#[tokio::test]
async fn a_good_given_template_is_launched_from_and_never_changed() {
    let yard = yard().await;
    let spec = given(&yard, good().build()).await;
    assert_eq!(yard.compute.ensure_template(&spec).await, Ok(TemplateChange::Provided));
    let order = order(&spec, "l-1", 1, UsageClass::OnDemand);
    let machines = yard.compute.launch(&order).await.unwrap().machines;
    assert_eq!(machines[0].instance_type, "m7i.2xlarge", "the template's own type");
    assert_eq!(machines[0].class.as_ref().map(|class| class.as_str()), Some("linux"), "tagged all the same");
    assert_eq!(yard.peer.calls("CreateLaunchTemplate"), 1, "the other client's");
}

#[tokio::test]
async fn a_given_template_is_launched_in_every_zone_of_its_class() {
    let yard = yard().await;
    let mut spec = given(&yard, good().build()).await;
    spec.launch.subnet_ids = SUBNETS.iter().map(|(id, _)| (*id).to_owned()).collect();
    yard.peer.rules(|rules| {
        rules.capacity.insert((SUBNETS[0].1.to_owned(), "on-demand".into()), 0);
    });
    let machines = yard.compute.launch(&order(&spec, "l-1", 1, UsageClass::OnDemand)).await.unwrap().machines;
    assert_eq!(
        (machines[0].zone.as_str(), machines[0].instance_type.as_str()),
        (SUBNETS[1].1, "m7i.2xlarge")
    );
}

#[tokio::test]
async fn a_given_template_that_says_otherwise_is_refused_by_the_settings_name() {
    let optional = metadata().http_tokens(LaunchTemplateHttpTokensState::Optional);
    let far = metadata().http_tokens(LaunchTemplateHttpTokensState::Required).http_put_response_hop_limit(2);
    let public = LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .device_index(0)
        .associate_public_ip_address(true);
    let again =
        LaunchTemplateInstanceMarketOptionsRequest::builder().market_type(MarketType::Spot).spot_options(
            LaunchTemplateSpotMarketOptionsRequest::builder()
                .spot_instance_type(SpotInstanceType::Persistent)
                .build(),
        );
    for (setting, data) in [
        (
            "InstanceInitiatedShutdownBehavior",
            good().instance_initiated_shutdown_behavior(ShutdownBehavior::Stop),
        ),
        ("InstanceInitiatedShutdownBehavior", good().set_instance_initiated_shutdown_behavior(None)),
        ("HttpTokens", good().metadata_options(optional.build())),
        ("HttpTokens", good().set_metadata_options(None)),
        ("HttpPutResponseHopLimit", good().metadata_options(far.build())),
        ("AssociatePublicIpAddress", good().network_interfaces(public.build())),
        ("SpotInstanceType", good().instance_market_options(again.build())),
    ] {
        let yard = yard().await;
        let spec = given(&yard, data.build()).await;
        let id = spec.launch.launch_template_id.clone().unwrap();
        let outcome = yard.compute.launch(&order(&spec, "l-1", 1, UsageClass::OnDemand)).await;
        let Err(ComputeError::Refused(why)) = &outcome else { panic!("{setting}: {outcome:?}") };
        assert!(why.contains(setting) && why.contains(&id), "{setting}: {why}");
        assert!(why.contains("launch.launchTemplateId"), "{why}");
        assert_eq!(yard.peer.calls("CreateFleet"), 0);
    }
}

#[tokio::test]
async fn a_given_template_that_is_not_there_is_refused() {
    let yard = yard().await;
    let mut spec = spec(&[]);
    spec.launch = Default::default();
    spec.launch.launch_template_id = Some("lt-0123456789abcdef0".into());
    let outcome = yard.compute.ensure_template(&spec).await;
    assert!(
        matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains("is not there")),
        "{outcome:?}"
    );
}

/// What a template says after it went over the wire and back, by somebody else's idea of EC2.
async fn a_template_says_what_its_class_says(endpoint: &str) {
    let table = table();
    let config = sdk_config(endpoint).await;
    let client = Client::new(&config);
    let compute = compute(endpoint, table.clone()).await;
    let mut spec = linux();
    spec.launch.security_group_ids = vec!["sg-0123456789abcdef0".into()];
    spec.launch.instance_profile = Some("runner".into());
    compute.ensure_template(&spec).await.unwrap();
    let data = default_version(&client, &table).await.launch_template_data.unwrap();
    assert_eq!(data.image_id(), Some("ami-0123456789abcdef0"));
    assert_eq!(data.instance_initiated_shutdown_behavior(), Some(&ShutdownBehavior::Terminate));
    let metadata = data.metadata_options().unwrap();
    assert_eq!(metadata.http_tokens(), Some(&LaunchTemplateHttpTokensState::Required));
    assert_eq!(metadata.http_put_response_hop_limit(), Some(1));
    assert_eq!(data.iam_instance_profile().and_then(|profile| profile.name()), Some("runner"));
    assert_eq!(data.security_group_ids(), ["sg-0123456789abcdef0"]);
    let script = base64::engine::general_purpose::STANDARD.decode(data.user_data().unwrap()).unwrap();
    assert!(String::from_utf8(script).unwrap().contains(&format!("\ntable = \"{table}\"\n")));
    let kinds: Vec<_> = data.tag_specifications().iter().filter_map(|tags| tags.resource_type()).collect();
    for kind in [ResourceType::Instance, ResourceType::Volume] {
        assert!(kinds.contains(&&kind), "{kinds:?}");
    }
    assert_eq!(compute.ensure_template(&spec).await, Ok(TemplateChange::None), "seen as equal again");
}

#[tokio::test]
async fn a_template_says_what_its_class_says_on_the_peer() {
    a_template_says_what_its_class_says(Peer::start().endpoint()).await;
}

#[tokio::test]
async fn a_template_says_what_its_class_says_on_moto() {
    a_template_says_what_its_class_says(Engine::moto().endpoint()).await;
}

#[tokio::test]
async fn a_template_says_what_its_class_says_on_ministack() {
    a_template_says_what_its_class_says(Engine::ministack().endpoint()).await;
}
