use super::*;
use crate::aws::ec2::testing::{options, spec};

fn changed(change: impl FnOnce(&mut TemplateSpec)) -> TemplateSpec {
    let mut changed = TemplateSpec {
        revision: REVISION,
        table: "yard".into(),
        class: "linux".into(),
        ami: "ami-1".into(),
        instance_type: usual_type(&spec()),
        instance_profile: Some("runner".into()),
        security_groups: vec!["sg-1".into()],
        root: Some(("/dev/xvda".into(), 40)),
        user_data: user_data(&options(), &spec()).expect("a script that fits"),
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
fn every_part_of_a_wish_counts_in_its_description() {
    let same = changed(|_| {}).description();
    assert_eq!(same, changed(|_| {}).description());
    assert_eq!(same.len(), MARK.len() + 32);
    for other in [
        changed(|changed| changed.ami = "ami-2".into()),
        changed(|changed| changed.instance_type = "c7i.large".into()),
        changed(|changed| changed.instance_profile = None),
        changed(|changed| changed.security_groups.clear()),
        changed(|changed| changed.root = Some(("/dev/xvda".into(), 41))),
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
