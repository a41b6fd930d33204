//! Describes the network of a class for `init` and `doctor`; it asks EC2.

use std::collections::BTreeSet;

use runyard_core::model::PoolSpec;
use runyard_operator::aws::ec2::{Network, Subnet};

/// Fewer free addresses than this are reported as a problem: a launch may start as many machines.
const FEW: u32 = runyard_core::model::LAUNCH_LIMIT;

/// The description of a class's network, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// One line per subnet.
    pub(crate) subnets: Vec<String>,
    /// Problems that will keep machines from starting or working, each with its fix.
    pub(crate) problems: Vec<(String, &'static str)>,
}

/// Compares the network that a class names with EC2's description of it.
pub(crate) fn told(spec: &PoolSpec, network: &Network) -> Delivery {
    let mut told = Delivery::default();
    let vpcs: BTreeSet<&str> = network.groups.values().map(String::as_str).collect();
    let mut zones: BTreeSet<&str> = BTreeSet::new();
    for id in &spec.launch.subnet_ids {
        let Some(subnet) = network.subnets.iter().find(|one| one.id == *id) else {
            let fix = "name subnets of this account and region in launch.subnetIds";
            told.problems.push((format!("subnet {id} is not there"), fix));
            continue;
        };
        told.subnets.push(line(subnet, &vpcs, zones.insert(&subnet.zone)));
        if subnet.free < FEW {
            let problem = format!("subnet {id} has {} free addresses", subnet.free);
            told.problems.push((problem, "name a larger subnet, or one more of the same zone"));
        }
        if vpcs.iter().any(|vpc| *vpc != subnet.vpc) {
            let problem = format!("subnet {id} is of {}, and security groups are not", subnet.vpc);
            told.problems
                .push((problem, "name security groups of the subnets' VPC in launch.securityGroupIds"));
        }
    }
    for id in spec.launch.security_group_ids.iter().filter(|id| !network.groups.contains_key(*id)) {
        let fix = "name security groups of this account and region in launch.securityGroupIds";
        told.problems.push((format!("security group {id} is not there"), fix));
    }
    told
}

fn line(subnet: &Subnet, vpcs: &BTreeSet<&str>, first: bool) -> String {
    let groups = match vpcs.iter().all(|vpc| *vpc == subnet.vpc) {
        _ if vpcs.is_empty() => "no security group named",
        true => "as its security groups",
        false => "unlike its security groups",
    };
    let again =
        if first { "" } else { "; a launch takes one subnet of a zone, the one with most free addresses" };
    format!(
        "{} in {}, {} free addresses, {} ({groups}){again}",
        subnet.id, subnet.zone, subnet.free, subnet.vpc
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> PoolSpec {
        let spec = json!({
            "resourceClass": "linux", "cpu": 2, "mmem": 4096,
            "launch": {"ami": "ami-1", "subnetIds": ["s-1", "s-2", "s-3"], "securityGroupIds": ["sg-1", "sg-2"]},
        });
        serde_json::from_value(spec).unwrap()
    }

    fn subnet(id: &str, zone: &str, vpc: &str, free: u32) -> Subnet {
        Subnet { id: id.into(), zone: zone.into(), vpc: vpc.into(), free }
    }

    #[test]
    fn a_network_is_told_with_zones_addresses_and_whether_the_groups_are_its_own() {
        let groups = [("sg-1".to_owned(), "vpc-1".to_owned()), ("sg-2".into(), "vpc-1".into())].into();
        let subnets = vec![
            subnet("s-1", "a", "vpc-1", 250),
            subnet("s-2", "a", "vpc-1", 90),
            subnet("s-3", "b", "vpc-1", 40),
        ];
        let told = told(&spec(), &Network { subnets, groups });
        assert_eq!(told.problems, []);
        assert_eq!(told.subnets[0], "s-1 in a, 250 free addresses, vpc-1 (as its security groups)");
        assert!(
            told.subnets[1].ends_with("one subnet of a zone, the one with most free addresses"),
            "{told:?}"
        );
        assert!(told.subnets[2].ends_with("(as its security groups)"), "{told:?}");
    }

    #[test]
    fn what_a_network_lacks_is_told_with_the_setting_that_mends_it() {
        let groups = [("sg-1".to_owned(), "vpc-2".to_owned())].into();
        let subnets = vec![subnet("s-1", "a", "vpc-1", 39), subnet("s-2", "b", "vpc-2", 250)];
        let problems = told(&spec(), &Network { subnets, groups }).problems;
        let wanted = [
            "subnet s-1 has 39 free addresses",
            "subnet s-1 is of vpc-1, and security groups are not",
            "subnet s-3 is not there",
            "security group sg-2 is not there",
        ];
        assert_eq!(problems.iter().map(|(problem, _)| problem.as_str()).collect::<Vec<_>>(), wanted);
        assert!(
            problems[2].1.contains("launch.subnetIds") && problems[3].1.contains("launch.securityGroupIds")
        );
    }
}
