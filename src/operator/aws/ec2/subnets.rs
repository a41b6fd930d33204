//! Chooses the subnets of a launch: one per zone, because EC2 refuses a fleet that names a zone's instance pool twice
//! ("The fleet configuration contains duplicate instance pools").

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::Filter;
use tokio::time::Instant;

use super::errors::{CallError, Meaning};
use crate::model::PoolSpec;
use crate::ports::ComputeError;

/// How long a description of a subnet is cached: zones never change, free addresses do.
const KNOWN: Duration = Duration::from_secs(60);

/// A subnet, as described by EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// Its zone.
    pub zone: String,
    /// Its VPC.
    pub vpc: String,
    /// Number of free addresses.
    pub free: u32,
}

/// The network of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The subnets that it names, as far as they exist at EC2.
    pub subnets: Vec<Subnet>,
    /// The security groups that it names, as far as they exist at EC2, each with its VPC.
    pub groups: BTreeMap<String, String>,
}

/// The recent descriptions of subnets, with their times.
#[derive(Debug, Default)]
pub(super) struct Subnets(Mutex<BTreeMap<String, (Subnet, Instant)>>);

impl Subnets {
    /// Returns the subnets to launch in, with their zones as far as they are known. A class that names one, or none,
    /// needs no call. A role without the permission, as of an earlier release, launches in all of them as before.
    pub(super) async fn of(
        &self,
        client: &Client,
        spec: &PoolSpec,
    ) -> Result<Vec<(String, Option<String>)>, ComputeError> {
        let wanted = &spec.launch.subnet_ids;
        let unknown = || wanted.iter().map(|id| (id.clone(), None)).collect();
        if wanted.len() < 2 {
            return Ok(unknown());
        }
        match self.known(client, wanted).await {
            Ok(known) => {
                let zone = |id: &String| known.get(id).map(|subnet| subnet.zone.clone());
                Ok(one_a_zone(wanted, &known).into_iter().map(|id| (id.clone(), zone(&id))).collect())
            }
            Err(error) if error.meaning == Meaning::Refused => {
                tracing::warn!(class = %spec.resource_class, error = error.text, "the zones of subnets are not known");
                Ok(unknown())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the zone of a subnet, if it was described recently.
    pub(super) fn zone(&self, id: &str) -> Option<String> {
        self.kept().get(id).map(|(subnet, _)| subnet.zone.clone())
    }

    async fn known(&self, client: &Client, wanted: &[String]) -> Result<BTreeMap<String, Subnet>, CallError> {
        let now = Instant::now();
        let all_known = {
            let mut kept = self.kept();
            kept.retain(|_, (_, at)| now < *at + KNOWN);
            wanted.iter().all(|id| kept.contains_key(id))
        };
        if !all_known {
            let told = ask(client, wanted).await?;
            self.kept().extend(told.into_iter().map(|subnet| (subnet.id.clone(), (subnet, now))));
        }
        let kept = self.kept();
        let known =
            wanted.iter().filter_map(|id| kept.get(id).map(|(subnet, _)| (id.clone(), subnet.clone())));
        Ok(known.collect())
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, (Subnet, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes subnets with a filter, which omits unknown ones; a request by id would be refused as a whole.
async fn ask(client: &Client, ids: &[String]) -> Result<Vec<Subnet>, CallError> {
    let filter = Filter::builder().name("subnet-id").set_values(Some(ids.to_vec())).build();
    let told = client.describe_subnets().filters(filter).send().await.map_err(|e| CallError::of(&e))?;
    let subnet = |told: aws_sdk_ec2::types::Subnet| {
        Some(Subnet {
            id: told.subnet_id?,
            zone: told.availability_zone?,
            vpc: told.vpc_id.unwrap_or_default(),
            free: told.available_ip_address_count.and_then(|n| n.try_into().ok()).unwrap_or_default(),
        })
    };
    Ok(told.subnets.unwrap_or_default().into_iter().filter_map(subnet).collect())
}

/// Describes the network that a class names.
pub(super) async fn network(client: &Client, spec: &PoolSpec) -> Result<Network, ComputeError> {
    let launch = &spec.launch;
    let subnets =
        if launch.subnet_ids.is_empty() { Vec::new() } else { ask(client, &launch.subnet_ids).await? };
    let mut groups = BTreeMap::new();
    if !launch.security_group_ids.is_empty() {
        let ids = Some(launch.security_group_ids.clone());
        let filter = Filter::builder().name("group-id").set_values(ids).build();
        let told = client.describe_security_groups().filters(filter).send().await;
        let told = told.map_err(|error| CallError::of(&error))?.security_groups.unwrap_or_default();
        groups.extend(told.into_iter().filter_map(|group| Some((group.group_id?, group.vpc_id?))));
    }
    Ok(Network { subnets, groups })
}

/// Chooses one subnet of each zone, in the order in which the zones are first named: the one with the most free
/// addresses. Numbers are rounded down to powers of two, and ties go to the first: a launch that is repeated after some
/// addresses were taken is the same call. Unknown subnets are kept, and EC2 refuses them.
fn one_a_zone(wanted: &[String], known: &BTreeMap<String, Subnet>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut chosen = Vec::new();
    for id in wanted {
        let Some(subnet) = known.get(id) else {
            chosen.push(id.clone());
            continue;
        };
        if seen.insert(&subnet.zone) {
            let of_zone = wanted.iter().filter_map(|id| known.get(id)).filter(|one| one.zone == subnet.zone);
            // `max_by_key` returns the last of equal elements.
            let best = of_zone.rev().max_by_key(|one| one.free.checked_ilog2()).unwrap_or(subnet);
            chosen.push(best.id.clone());
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(subnets: &[(&str, &str, u32)], wanted: &[&str]) -> Vec<String> {
        let subnet = |(id, zone, free): &(&str, &str, u32)| {
            let subnet = Subnet { id: (*id).into(), zone: (*zone).into(), vpc: "vpc-1".into(), free: *free };
            (subnet.id.clone(), subnet)
        };
        let wanted: Vec<String> = wanted.iter().map(|id| (*id).to_owned()).collect();
        one_a_zone(&wanted, &subnets.iter().map(subnet).collect())
    }

    #[test]
    fn of_several_subnets_of_a_zone_the_one_with_most_free_addresses_is_launched_in() {
        let there = [("s-1", "a", 10), ("s-2", "b", 250), ("s-3", "a", 200), ("s-4", "a", 0)];
        assert_eq!(chosen(&there, &["s-1", "s-2", "s-3", "s-4"]), ["s-3", "s-2"]);
        assert_eq!(chosen(&there, &["s-4", "s-2", "s-1"]), ["s-1", "s-2"]);
        assert_eq!(chosen(&there, &["s-4"]), ["s-4"]);
    }

    #[test]
    fn a_few_addresses_more_or_less_make_no_other_call() {
        for free in [130, 200, 255] {
            let there = [("s-1", "a", free), ("s-2", "a", 200)];
            assert_eq!(chosen(&there, &["s-1", "s-2"]), ["s-1"], "{free}");
        }
    }

    #[test]
    fn a_subnet_that_is_not_known_is_asked_for_all_the_same() {
        assert_eq!(chosen(&[("s-2", "a", 9)], &["s-1", "s-2"]), ["s-1", "s-2"]);
    }
}
