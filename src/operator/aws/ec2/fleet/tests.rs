use aws_sdk_ec2::operation::create_fleet::CreateFleetInput;
use aws_sdk_ec2::types::{
    CreateFleetInstance, FleetLaunchTemplateOverrides, InstanceType, LaunchTemplateAndOverridesResponse,
};

use super::*;
use crate::aws::ec2::testing::{options, order};

fn kept() -> Template {
    Template::Managed { name: "yard-linux".into() }
}

fn provided(sized: bool) -> Template {
    Template::Provided { id: "lt-1".into(), sized }
}

fn asked(order: &LaunchOrder, template: &Template) -> CreateFleetInput {
    request(&options().table, order, template, &order.types.0, &order.spec.launch.subnet_ids)
        .build()
        .expect("a call without gaps")
}

fn asked_overrides(input: &CreateFleetInput) -> Vec<FleetLaunchTemplateOverridesRequest> {
    input.launch_template_configs()[0].overrides().to_vec()
}

fn error(code: &str, zone: &str) -> CreateFleetError {
    let at = FleetLaunchTemplateOverrides::builder().availability_zone(zone).build();
    let used = LaunchTemplateAndOverridesResponse::builder().overrides(at).build();
    let error = CreateFleetError::builder().error_code(code).error_message("why");
    error.launch_template_and_overrides(used).build()
}

#[test]
fn a_lack_of_capacity_is_read_with_its_zone_and_the_other_errors_are_not() {
    let by_subnet = {
        let at =
            FleetLaunchTemplateOverrides::builder().subnet_id("s-1").instance_type(InstanceType::M7iLarge);
        let used = LaunchTemplateAndOverridesResponse::builder().overrides(at.build()).build();
        CreateFleetError::builder()
            .error_code("InsufficientInstanceCapacity")
            .launch_template_and_overrides(used)
    };
    let errors = [
        error("InsufficientInstanceCapacity", "a"),
        error("UnauthorizedOperation", "b"),
        by_subnet.build(),
        CreateFleetError::builder().error_code("InsufficientInstanceCapacity").build(),
    ];
    let lacks = lacks(&errors, |subnet| (subnet == "s-1").then(|| "c".to_owned()));
    assert_eq!(lacks, [("a".to_owned(), None), ("c".to_owned(), Some("m7i.large".to_owned()))]);
}

#[test]
fn an_order_is_one_instant_fleet_with_its_token_and_its_tags() {
    let input = asked(&order(UsageClass::OnDemand, &[]), &kept());
    assert_eq!(input.r#type(), Some(&FleetType::Instant));
    assert_eq!(input.client_token(), Some("l-1-2"));
    let capacity = input.target_capacity_specification().unwrap();
    assert_eq!(capacity.total_target_capacity(), Some(3));
    assert_eq!(capacity.default_target_capacity_type(), Some(&DefaultTargetCapacityType::OnDemand));
    let kinds: Vec<_> = input.tag_specifications().iter().filter_map(|tags| tags.resource_type()).collect();
    assert_eq!(kinds, [&ResourceType::Instance, &ResourceType::Volume, &ResourceType::Fleet]);
    for tags in input.tag_specifications() {
        let said: Vec<_> = tags.tags().iter().map(|tag| (tag.key().unwrap(), tag.value().unwrap())).collect();
        for wanted in [(TABLE, "yard"), (CLASS, "linux"), (LAUNCH, "l-1"), (ATTEMPT, "2")] {
            assert!(said.contains(&wanted), "{wanted:?}");
        }
    }
    let used = input.launch_template_configs()[0].launch_template_specification().unwrap();
    assert_eq!((used.launch_template_name(), used.version()), (Some("yard-linux"), Some("$Default")));
}

#[test]
fn a_classs_own_tags_are_on_all_that_a_launch_makes() {
    let mut order = order(UsageClass::OnDemand, &[]);
    order.spec.launch.tags =
        [("CostCenter", "4711"), ("Name", "mine")].map(|(k, v)| (k.into(), v.into())).into();
    let input = asked(&order, &kept());
    assert_eq!(input.tag_specifications().len(), 3);
    for tags in input.tag_specifications() {
        let said: Vec<_> = tags.tags().iter().map(|tag| (tag.key().unwrap(), tag.value().unwrap())).collect();
        assert!(said.contains(&("CostCenter", "4711")) && said.contains(&(TABLE, "yard")), "{said:?}");
        let names = said.iter().filter(|(key, _)| *key == "Name").collect::<Vec<_>>();
        assert_eq!(names, [&("Name", "mine")], "EC2 refuses a key twice");
    }
}

#[test]
fn a_launch_is_of_the_image_that_is_pinned_whatever_its_template_names() {
    let mut order = order(UsageClass::OnDemand, &[]);
    for image in [None, Some("ami-0123456789abcdef0".to_owned())] {
        order.image.clone_from(&image);
        for one in asked_overrides(&asked(&order, &kept())) {
            assert_eq!(one.image_id().map(str::to_owned), image);
        }
    }
}

#[test]
fn spot_is_asked_for_once_and_ended_when_interrupted() {
    let input = asked(&order(UsageClass::Spot, &[]), &kept());
    let capacity = input.target_capacity_specification().unwrap();
    assert_eq!(capacity.default_target_capacity_type(), Some(&DefaultTargetCapacityType::Spot));
    let spot = input.spot_options().unwrap();
    assert_eq!(spot.instance_interruption_behavior(), Some(&SpotInstanceInterruptionBehavior::Terminate));
    assert_eq!(input.on_demand_options(), None);
}

#[test]
fn every_subnet_is_an_override_with_at_least_the_classs_size() {
    let overrides = asked_overrides(&asked(&order(UsageClass::Spot, &["m7i.*", "t3.large"]), &kept()));
    let subnets: Vec<_> = overrides.iter().filter_map(|one| one.subnet_id()).collect();
    assert_eq!(subnets, ["subnet-1", "subnet-2"]);
    for one in &overrides {
        let wanted = one.instance_requirements().unwrap();
        assert_eq!(wanted.v_cpu_count().and_then(|range| range.min()), Some(4));
        assert_eq!(wanted.memory_mib().and_then(|range| range.min()), Some(8192));
        assert_eq!(wanted.allowed_instance_types(), ["m7i.*", "t3.large"]);
        assert_eq!(wanted.burstable_performance(), Some(&BurstablePerformance::Included));
        assert_eq!(wanted.bare_metal(), Some(&BareMetal::Excluded));
    }
}

#[test]
fn types_of_a_requests_own_are_bounded_where_its_class_names_none() {
    let largest = |order: &LaunchOrder| {
        let wanted = asked_overrides(&asked(order, &kept()))[0].instance_requirements().unwrap().clone();
        (wanted.v_cpu_count().and_then(|of| of.max()), wanted.memory_mib().and_then(|of| of.max()))
    };
    let mut chosen = order(UsageClass::OnDemand, &["p5.48xlarge"]);
    for (own, requestable, most) in [
        (&[][..], &[][..], (Some(16), Some(32_768))),
        (&[], &["*"], (None, None)),
        (&["p5.48xlarge"], &[], (None, None)),
    ] {
        let types = |globs: &[&str]| {
            crate::model::InstanceTypes(globs.iter().map(|glob| (*glob).to_owned()).collect())
        };
        (chosen.spec.allowed_instance_types, chosen.spec.request_types) = (types(own), types(requestable));
        assert_eq!(largest(&chosen), most, "{own:?} {requestable:?}");
    }
    let mut by_spec = order(UsageClass::OnDemand, &[]);
    by_spec.spec.allowed_instance_types = crate::model::InstanceTypes::default();
    assert_eq!(largest(&by_spec), (None, None), "the class chooses itself");
}

#[test]
fn how_much_more_a_machine_may_cost_is_told_for_the_way_it_is_paid_for() {
    for (usage, over, spot, on_demand) in [
        (UsageClass::Spot, Some(20), Some(20), None),
        (UsageClass::OnDemand, Some(20), None, Some(20)),
        (UsageClass::Spot, None, None, None),
        (UsageClass::OnDemand, None, None, None),
    ] {
        let mut order = order(usage, &["m7i.*"]);
        order.spec.launch.max_price_over = over;
        for one in asked_overrides(&asked(&order, &kept())) {
            let wanted = one.instance_requirements().unwrap();
            assert_eq!(wanted.spot_max_price_percentage_over_lowest_price(), spot);
            assert_eq!(wanted.on_demand_max_price_percentage_over_lowest_price(), on_demand);
        }
    }
}

#[test]
fn of_more_subnets_than_a_call_may_name_every_launch_takes_its_share() {
    let all: Vec<String> = (0..7).map(|number| format!("subnet-{number}")).collect();
    let mut seen = BTreeSet::new();
    for attempt in 1..40 {
        let mut order = order(UsageClass::Spot, &[]);
        order.spec.launch.subnet_ids.clone_from(&all);
        order.launch.client_token = format!("l-1-{attempt}");
        let share = |order: &LaunchOrder| {
            let overrides = asked_overrides(&asked(order, &kept()));
            overrides.iter().filter_map(|one| one.subnet_id().map(str::to_owned)).collect::<BTreeSet<_>>()
        };
        assert_eq!(share(&order).len(), SETS);
        assert_eq!(share(&order), share(&order.clone()));
        seen.extend(share(&order));
    }
    assert_eq!(seen, all.into_iter().collect());
}

#[test]
fn without_subnets_ec2_chooses_and_the_architecture_narrows_the_manufacturers() {
    let mut order = order(UsageClass::OnDemand, &[]);
    order.spec.launch.subnet_ids.clear();
    order.spec.launch.architecture = Some("arm64".into());
    let overrides = asked_overrides(&asked(&order, &kept()));
    assert_eq!((overrides.len(), overrides[0].subnet_id()), (1, None));
    let wanted = overrides[0].instance_requirements().unwrap();
    assert_eq!(wanted.cpu_manufacturers(), [CpuManufacturer::AmazonWebServices]);
    assert_eq!(wanted.allowed_instance_types(), [""; 0]);
}

#[test]
fn a_given_template_keeps_its_own_types_unless_the_order_names_some() {
    let mut plain = order(UsageClass::OnDemand, &[]);
    plain.spec.launch.subnet_ids.clear();
    assert!(asked_overrides(&asked(&plain, &provided(true))).is_empty());
    assert!(!asked_overrides(&asked(&plain, &provided(false))).is_empty());
    let choosy = order(UsageClass::OnDemand, &["c7i.*"]);
    assert!(!asked_overrides(&asked(&choosy, &provided(true))).is_empty());
}

#[test]
fn a_given_template_is_launched_in_the_subnets_that_its_class_names() {
    let overrides = asked_overrides(&asked(&order(UsageClass::OnDemand, &[]), &provided(true)));
    let subnets: Vec<_> = overrides.iter().filter_map(|one| one.subnet_id()).collect();
    assert_eq!(subnets, ["subnet-1", "subnet-2"]);
    assert!(
        overrides.iter().all(|one| one.instance_requirements().is_none()),
        "its types are the template's"
    );
}

#[test]
fn an_order_asked_again_is_the_same_call() {
    let order = order(UsageClass::Spot, &["m7i.*"]);
    let first = format!("{:?}", asked(&order, &kept()));
    assert_eq!(first, format!("{:?}", asked(&order.clone(), &kept())));
}

#[test]
fn each_machine_is_named_once_with_its_type_and_zone() {
    let at = FleetLaunchTemplateOverrides::builder().availability_zone("eu-central-1a").build();
    let used = LaunchTemplateAndOverridesResponse::builder().overrides(at).build();
    let group = CreateFleetInstance::builder().launch_template_and_overrides(used);
    let group = group.instance_type(InstanceType::from("m7i.large")).instance_ids("i-1").instance_ids("i-2");
    let answer = CreateFleetOutput::builder().instances(group.clone().build()).instances(group.build());
    let machines = named(&answer.build());
    let told: Vec<_> =
        machines.iter().map(|m| (m.id.as_str(), m.instance_type.as_str(), m.zone.as_str())).collect();
    assert_eq!(told, [("i-1", "m7i.large", "eu-central-1a"), ("i-2", "m7i.large", "eu-central-1a")]);
}

#[test]
fn the_same_reason_at_the_same_place_is_told_once() {
    let ice = "InsufficientInstanceCapacity";
    let told = shortfalls(&[error(ice, "a"), error(ice, "a"), error(ice, "b")]);
    let messages: Vec<_> = told.iter().map(|short| short.message.as_str()).collect();
    assert_eq!(messages, ["why (a)", "why (b)"]);
}

#[test]
fn a_fleet_without_machines_is_a_lack_unless_every_reason_needs_a_person() {
    for (codes, lack) in [
        (vec!["InsufficientInstanceCapacity"], true),
        (vec!["UnauthorizedOperation", "InsufficientInstanceCapacity"], true),
        (vec!["RequestLimitExceeded"], true),
        (vec!["InternalError"], true),
        (vec!["UnauthorizedOperation"], false),
        (vec!["VcpuLimitExceeded"], true),
        (vec!["MaxSpotInstanceCountExceeded"], true),
        (vec!["InvalidBlockDeviceMapping", "InvalidAMIID.NotFound"], false),
    ] {
        let errors: Vec<_> = codes.iter().map(|code| error(code, "a")).collect();
        let error = nothing(&shortfalls(&errors));
        assert_eq!(matches!(error, ComputeError::NoCapacity(_)), lack, "{codes:?}: {error}");
        assert!(error.to_string().contains(codes[0]));
    }
}
