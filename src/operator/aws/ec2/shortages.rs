//! Remembers EC2's recent shortages. For some minutes a launch avoids them if the call permits it: a zone by its
//! subnet, a type if the order lists its types one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::UsageClass;

/// How long a shortage is avoided.
const LEFT_OUT: Duration = Duration::from_secs(180);

/// A shortage in a response: the zone, and the type if the response names one.
pub(super) type Lack = (String, Option<String>);

/// The recent shortages, and until when they are avoided.
#[derive(Debug, Default)]
pub(super) struct Shortages(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Zones that had no capacity for an order of these types.
    zones: BTreeMap<(UsageClass, Vec<String>, String), Instant>,
    /// Types that were not available in a zone.
    types: BTreeMap<(UsageClass, String, String), Instant>,
}

impl Shortages {
    /// Records the response to an order of these types: the shortages, and the launched types with their zones.
    pub(super) fn note(
        &self,
        usage: UsageClass,
        types: &[String],
        lacks: &[Lack],
        came: &[(String, String)],
    ) {
        let (now, mut kept) = (Instant::now(), self.kept());
        kept.zones.retain(|_, until| now < *until);
        kept.types.retain(|_, until| now < *until);
        let until = now + LEFT_OUT;
        for (zone, kind) in lacks {
            kept.zones.insert((usage, types.to_vec(), zone.clone()), until);
            kept.types.extend(kind.clone().map(|kind| ((usage, kind, zone.clone()), until)));
        }
        for (kind, zone) in came {
            kept.zones.remove(&(usage, types.to_vec(), zone.clone()));
            kept.types.remove(&(usage, kind.clone(), zone.clone()));
        }
    }

    /// Returns the subnets to launch in: all, if each would be avoided.
    pub(super) fn subnets(
        &self,
        usage: UsageClass,
        types: &[String],
        subnets: Vec<(String, Option<String>)>,
    ) -> Vec<(String, Option<String>)> {
        let (now, kept) = (Instant::now(), self.kept());
        let lacks = |zone: &String| {
            let until = kept.zones.get(&(usage, types.to_vec(), zone.clone()));
            until.is_some_and(|until| now < *until)
        };
        let has = |(_, zone): &&(String, Option<String>)| !zone.as_ref().is_some_and(lacks);
        let left: Vec<_> = subnets.iter().filter(has).cloned().collect();
        if left.is_empty() { subnets } else { left }
    }

    /// Returns the types to request in these zones: all, if they are globs or each would be avoided.
    pub(super) fn types(&self, usage: UsageClass, types: &[String], zones: &BTreeSet<String>) -> Vec<String> {
        let (now, kept) = (Instant::now(), self.kept());
        let lacks = |kind: &String| {
            let until = |zone: &String| kept.types.get(&(usage, kind.clone(), zone.clone())).copied();
            !zones.is_empty() && zones.iter().all(|zone| until(zone).is_some_and(|until| now < until))
        };
        if types.iter().any(|kind| kind.contains('*')) {
            return types.to_vec();
        }
        let left: Vec<_> = types.iter().filter(|kind| !lacks(kind)).cloned().collect();
        if left.is_empty() { types.to_vec() } else { left }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: UsageClass = UsageClass::OnDemand;

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    fn lack(zone: &str, kind: &str) -> Lack {
        (zone.to_owned(), Some(kind.to_owned()))
    }

    fn subnets() -> Vec<(String, Option<String>)> {
        [("s-1", "a"), ("s-2", "b")].map(|(id, zone)| (id.to_owned(), Some(zone.to_owned()))).into()
    }

    fn ids(shortages: &Shortages, usage: UsageClass, types: &[&str]) -> Vec<String> {
        let left = shortages.subnets(usage, &texts(types), subnets());
        left.into_iter().map(|(id, _)| id).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_zone_that_had_nothing_is_left_out_for_three_minutes_by_that_order_alone() {
        let shortages = Shortages::default();
        shortages.note(USAGE, &texts(&["m7i.*"]), &[lack("a", "m7i.large")], &[]);
        assert_eq!(ids(&shortages, USAGE, &["m7i.*"]), ["s-2"]);
        assert_eq!(ids(&shortages, UsageClass::Spot, &["m7i.*"]), ["s-1", "s-2"]);
        assert_eq!(ids(&shortages, USAGE, &["c7i.*"]), ["s-1", "s-2"]);
        shortages.note(USAGE, &texts(&["m7i.*"]), &[lack("b", "m7i.large")], &[]);
        assert_eq!(ids(&shortages, USAGE, &["m7i.*"]), ["s-1", "s-2"], "never all of them");
        tokio::time::advance(LEFT_OUT).await;
        shortages.note(USAGE, &texts(&["m7i.*"]), &[lack("a", "m7i.large")], &[]);
        assert_eq!(ids(&shortages, USAGE, &["m7i.*"]), ["s-2"]);
        shortages.note(USAGE, &texts(&["m7i.*"]), &[], &[("m7i.large".into(), "a".into())]);
        assert_eq!(ids(&shortages, USAGE, &["m7i.*"]), ["s-1", "s-2"], "it has some again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_type_of_a_literal_list_is_left_out_where_each_zone_lacks_it() {
        let (shortages, zones) = (Shortages::default(), texts(&["a", "b"]).into_iter().collect());
        let types = texts(&["m7i.large", "c7i.large"]);
        shortages.note(USAGE, &types, &[lack("a", "m7i.large")], &[("c7i.large".into(), "a".into())]);
        assert_eq!(shortages.types(USAGE, &types, &zones), types, "zone b may have it");
        shortages.note(USAGE, &types, &[lack("b", "m7i.large")], &[("c7i.large".into(), "b".into())]);
        assert_eq!(shortages.types(USAGE, &types, &zones), ["c7i.large"]);
        assert_eq!(
            shortages.types(USAGE, &texts(&["m7i.large"]), &zones),
            ["m7i.large"],
            "never all of them"
        );
        assert_eq!(shortages.types(USAGE, &texts(&["m7i.large", "c*"]), &zones).len(), 2, "globs stay");
        tokio::time::advance(LEFT_OUT).await;
        assert_eq!(shortages.types(USAGE, &types, &zones), types);
    }
}
