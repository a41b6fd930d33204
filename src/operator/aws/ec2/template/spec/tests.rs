use super::*;
use crate::aws::ec2::testing::{options, spec};

fn volume(gib: u32) -> Volume {
    Volume { gib: Some(gib), ..Volume::default() }
}

fn changed(change: impl FnOnce(&mut TemplateSpec)) -> TemplateSpec {
    let mut changed = TemplateSpec {
        revision: REVISION,
        table: "yard".into(),
        class: "linux".into(),
        ami: "ami-1".into(),
        instance_type: usual_type(&spec()),
        instance_profile: Some("runner".into()),
        security_groups: vec!["sg-1".into()],
        root: Some(("/dev/xvda".into(), volume(40))),
        user_data: user_data(&options(), &spec()).expect("a script that fits"),
        tags: BTreeMap::new(),
    };
    change(&mut changed);
    changed
}

#[test]
fn a_template_ends_its_machines_at_shutdown_and_keeps_their_role_from_containers() {
    let data = changed(|_| {}).data();
    assert_eq!(data.instance_initiated_shutdown_behavior(), Some(&ShutdownBehavior::Terminate));
    let metadata = data.metadata_options().unwrap();
    assert_eq!(metadata.http_tokens(), Some(&LaunchTemplateHttpTokensState::Required));
    assert_eq!(metadata.http_put_response_hop_limit(), Some(1));
    assert_eq!(data.instance_market_options(), None, "the fleet asks for spot, once");
    let kinds: Vec<_> = data.tag_specifications().iter().filter_map(|tags| tags.resource_type()).collect();
    assert_eq!(kinds, [&ResourceType::Instance, &ResourceType::Volume]);
}

#[test]
fn a_template_says_what_its_class_says() {
    let data = changed(|_| {}).data();
    assert_eq!(data.image_id(), Some("ami-1"));
    assert_eq!(data.iam_instance_profile().and_then(|profile| profile.name()), Some("runner"));
    assert_eq!(data.security_group_ids(), ["sg-1"]);
    let volume = data.block_device_mappings()[0].ebs().unwrap();
    assert_eq!((volume.volume_size(), volume.delete_on_termination()), (Some(40), Some(true)));
    let script = STANDARD.decode(data.user_data().unwrap()).unwrap();
    assert!(script.starts_with(b"#!/bin/sh\n"));
    let arn =
        changed(|changed| changed.instance_profile = Some("arn:aws:iam::1:instance-profile/r".into())).data();
    let profile = arn.iam_instance_profile().unwrap();
    assert_eq!((profile.name(), profile.arn()), (None, Some("arn:aws:iam::1:instance-profile/r")));
}

#[test]
fn a_root_volume_is_as_fast_and_as_encrypted_as_its_class_says() {
    let said = Volume {
        gib: Some(60),
        iops: Some(6000),
        throughput: Some(500),
        initialization_rate: Some(200),
        encrypted: Some(true),
        kms_key_id: Some("alias/yard".into()),
    };
    let data = changed(|changed| changed.root = Some(("/dev/xvda".into(), said))).data();
    let volume = data.block_device_mappings()[0].ebs().unwrap();
    assert_eq!((volume.volume_size(), volume.iops(), volume.throughput()), (Some(60), Some(6000), Some(500)));
    assert_eq!(volume.volume_initialization_rate(), Some(200));
    assert_eq!((volume.encrypted(), volume.kms_key_id()), (Some(true), Some("alias/yard")));
    assert_eq!(volume.volume_type(), Some(&VolumeType::Gp3));
    let encrypted = Volume { encrypted: Some(true), ..Volume::default() };
    let data = changed(|changed| changed.root = Some(("/dev/xvda".into(), encrypted))).data();
    let volume = data.block_device_mappings()[0].ebs().unwrap();
    assert_eq!(volume.volume_size(), None, "the image's own size");
    assert_eq!(volume.volume_initialization_rate(), None, "EC2's own rate");
}

#[test]
fn a_classs_tags_are_on_all_that_its_template_makes() {
    let tagged = changed(|changed| changed.tags = BTreeMap::from([("team".into(), "web".into())]));
    for tags in tagged.data().tag_specifications() {
        assert!(tags.tags().contains(&tag("team", "web")), "{tags:?}");
    }
    assert!(tagged.class_tags().contains(&tag("team", "web")), "and on the template itself");
}

#[test]
fn every_part_of_a_wish_counts_in_its_description() {
    let same = changed(|_| {}).description();
    assert_eq!(same, changed(|_| {}).description());
    assert_eq!(same.len(), MARK.len() + 32);
    for other in [
        changed(|changed| changed.ami = "ami-2".into()),
        changed(|changed| changed.instance_type = "c7i.large".into()),
        changed(|changed| changed.instance_profile = None),
        changed(|changed| changed.security_groups.clear()),
        changed(|changed| changed.root = Some(("/dev/xvda".into(), volume(41)))),
        changed(|changed| changed.tags = BTreeMap::from([("team".into(), "web".into())])),
        changed(|changed| changed.user_data.push('\n')),
        changed(|changed| changed.table = "other".into()),
        changed(|changed| changed.class = "other".into()),
    ] {
        assert_ne!(same, other.description(), "{other:?}");
    }
}

#[test]
fn a_person_who_launches_by_hand_gets_a_type_that_fits() {
    for (architecture, types, wanted) in [
        (None, vec![], "m7i.large"),
        (Some("arm64"), vec!["c7g.*"], "m7g.large"),
        (Some("x86_64"), vec!["m*", "c7i.xlarge"], "c7i.xlarge"),
    ] {
        let mut spec = spec();
        spec.launch.architecture = architecture.map(str::to_owned);
        spec.allowed_instance_types.0 = types.into_iter().map(str::to_owned).collect();
        assert_eq!(usual_type(&spec), wanted);
    }
}
