//! Does a preflight find what would keep a class's machines from coming, and launch nothing?

use runyard_core::model::{PoolSpec, UsageClass};
use runyard_operator::aws::Ec2Compute;
use runyard_operator::preflight::{Check, Outcome};

use crate::ec2::benches::{compute, spec, table};
use runyard_support::peer::{Peer, Rules, SUBNETS, TWIN};

fn wanted() -> PoolSpec {
    let mut spec = spec(&[SUBNETS[0].0, SUBNETS[1].0]);
    spec.launch.instance_profile = Some("yard-machine".into());
    spec.usage_class = UsageClass::Spot;
    spec
}

/// A class with its template, where these rules hold.
async fn with(rules: impl FnOnce(&mut Rules)) -> (Peer, Ec2Compute) {
    let peer = Peer::start();
    let compute = compute(peer.endpoint(), table()).await;
    compute.ensure_template(&wanted()).await.unwrap();
    peer.rules(rules);
    (peer, compute)
}

fn wrong(checks: &[Check]) -> Vec<(String, String, String)> {
    checks
        .iter()
        .filter_map(|check| match &check.outcome {
            Outcome::Wrong { problem, fix } => Some((check.what.clone(), problem.clone(), fix.clone())),
            Outcome::Good(_) | Outcome::Unchecked { .. } => None,
        })
        .collect()
}

fn unchecked(checks: &[Check]) -> Vec<&str> {
    let unchecked = |check: &&Check| matches!(check.outcome, Outcome::Unchecked { .. });
    checks.iter().filter(unchecked).map(|check| check.what.as_str()).collect()
}

#[tokio::test]
async fn a_class_that_can_be_launched_is_good_in_every_zone_and_nothing_is_launched() {
    let (peer, compute) = with(|_| {}).await;
    let checks = compute.preflight(&wanted()).await;
    assert_eq!(wrong(&checks), []);
    assert_eq!(unchecked(&checks), Vec::<&str>::new());
    let dry = checks.iter().filter(|check| check.what.starts_with("dry run of a machine")).count();
    assert_eq!(
        (dry, peer.calls("RunInstances"), peer.calls("CreateFleet")),
        (4, 4, 2),
        "two zones, two ways to pay"
    );
    assert!(peer.world().instances.is_empty() && peer.world().fleets.is_empty());
}

#[tokio::test]
async fn a_second_subnet_of_a_zone_is_not_asked_for_again() {
    let (peer, compute) = with(|_| {}).await;
    let mut spec = wanted();
    spec.launch.subnet_ids.push(TWIN.0.into());
    compute.preflight(&spec).await;
    assert_eq!(peer.calls("RunInstances"), 4);
}

#[tokio::test]
async fn a_policy_without_spot_requests_is_found_for_spot_alone() {
    let (_peer, compute) = with(|rules| rules.forbidden.extend(["spot-instances-request"])).await;
    let found = wrong(&compute.preflight(&wanted()).await);
    assert_eq!(found.len(), 2, "{found:?}");
    for (what, problem, fix) in &found {
        assert!(what.contains("spot, subnet-") && problem.contains("spot-instances-request"), "{found:?}");
        assert!(fix.contains("operator.json") && !problem.contains("c2VhbGVk"), "{found:?}");
    }
    // A class of on-demand machines does without.
    let spec = PoolSpec { usage_class: UsageClass::OnDemand, ..wanted() };
    let checks = compute.preflight(&spec).await;
    assert_eq!(wrong(&checks), []);
    assert_eq!(unchecked(&checks).iter().filter(|what| what.contains("spot")).count(), 2, "{checks:?}");
}

#[tokio::test]
async fn a_right_to_make_fleets_that_is_lacking_is_found() {
    let (_peer, compute) = with(|rules| rules.forbidden.extend(["fleet"])).await;
    let found = wrong(&compute.preflight(&wanted()).await);
    let whats: Vec<&str> = found.iter().map(|(what, _, _)| what.as_str()).collect();
    assert_eq!(whats, ["dry run of a fleet, on-demand", "dry run of a fleet, spot"]);
}

#[tokio::test]
async fn a_profile_that_is_not_there_and_one_that_is_not_named_are_found() {
    let (_peer, compute) = with(|rules| rules.no_profiles.extend(["yard-machine"])).await;
    let found = wrong(&compute.preflight(&wanted()).await);
    assert!(
        !found.is_empty() && found.iter().all(|(_, problem, _)| problem.contains("iamInstanceProfile")),
        "{found:?}"
    );
    let mut spec = wanted();
    spec.launch.instance_profile = None;
    let found = wrong(&compute.preflight(&spec).await);
    assert!(
        found
            .iter()
            .any(|(what, _, fix)| what == "instance profile" && fix.contains("launch.instanceProfile"))
    );
}

#[tokio::test]
async fn an_image_that_is_gone_or_of_another_architecture_is_found() {
    let (peer, compute) = with(|rules| rules.image_architecture = Some("arm64")).await;
    let found = wrong(&compute.preflight(&wanted()).await);
    assert!(found[0].1.contains("is of arm64, and the class of x86_64"), "{found:?}");
    peer.rules(|rules| rules.no_images.extend(["ami-0123456789abcdef0"]));
    let found = wrong(&compute.preflight(&wanted()).await);
    assert!(
        found.iter().any(|(what, problem, _)| what == "image" && problem.contains("InvalidAMIID.NotFound"))
    );
    assert!(
        found.iter().any(|(what, _, fix)| what.starts_with("dry run") && fix.contains("launch.ami")),
        "{found:?}"
    );
}

#[tokio::test]
async fn volumes_that_a_key_of_ones_own_encrypts_are_told_of() {
    let (peer, compute) = with(|rules| rules.volumes_key = Some("alias/aws/ebs".into())).await;
    assert!(!unchecked(&compute.preflight(&wanted()).await).contains(&"encryption of volumes"));
    peer.rules(|rules| rules.volumes_key = Some("arn:aws:kms:eu-central-1:111122223333:key/1".into()));
    assert!(unchecked(&compute.preflight(&wanted()).await).contains(&"encryption of volumes"));
}

#[tokio::test]
async fn without_a_template_there_is_no_dry_run_and_none_is_made() {
    let peer = Peer::start();
    let compute = compute(peer.endpoint(), table()).await;
    let checks = compute.preflight(&wanted()).await;
    assert!(unchecked(&checks).contains(&"dry run of a launch"), "{checks:?}");
    assert_eq!((peer.calls("RunInstances"), peer.calls("CreateLaunchTemplate")), (0, 0));
}
