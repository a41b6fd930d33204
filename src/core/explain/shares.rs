//! Describes the use, the held machines and the waiting requests of each share of a class, and the place of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::decide::places;
use crate::model::{ClassName, Quota, Request, RequestKey};
use crate::yard::{Now, ShareName, Yard, decayed, overdue_at, share_of};

/// For how many requests of a class the place is computed when all are listed.
const PLACES: usize = 1000;

/// A share of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareReport {
    /// Its name.
    pub share: String,
    /// Its class.
    pub class: ClassName,
    /// Its weight.
    pub weight: u32,
    /// Its recent use, decayed until now, in machine-seconds.
    pub used: u64,
    /// The same as a part of the use of all shares of the class, in thousandths.
    pub part: u32,
    /// Machines that its requests hold.
    pub held: u32,
    /// Its accepted requests that lack machines.
    pub waiting: u32,
    /// Its bounds in the class.
    pub quota: Quota,
    /// Its requests that hold a part of their machines, which get the rest before all others: the oldest first.
    pub keeps: Vec<RequestKey>,
}

/// Lists the shares of a class that hold, wait for or used machines; none where it has no `sharing`.
pub fn shares(yard: &Yard, now: Now, name: &ClassName) -> Vec<ShareReport> {
    let Some(class) = yard.class(name) else { return Vec::new() };
    let Some(sharing) = class.shares.sharing() else { return Vec::new() };
    let usage = class.pool.as_ref().and_then(|pool| pool.status.usage.as_ref());
    let past = usage.map(|usage| Duration::try_from(now.wall.duration_since(usage.at)).unwrap_or_default());
    let used = |share: &str| {
        let sum = decayed(class.shares.used(share), past.unwrap_or_default(), sharing.half_life.get());
        sum / 1000
    };
    let other = usage.map_or(0, |usage| usage.other / 1000);
    let known = class.shares.shares().map(|(name, _)| ShareName::clone(name));
    let named = usage.into_iter().flat_map(|usage| usage.sums.keys().map(|name| name.as_str().into()));
    let names: BTreeSet<ShareName> = known.chain(named).collect();
    let all: u64 = names.iter().map(|name| used(name)).sum::<u64>().saturating_add(other).max(1);
    let mut keeps: BTreeMap<ShareName, Vec<RequestKey>> = BTreeMap::new();
    for (_, key) in class.waiting.served() {
        let Some(request) = yard.request(key) else { continue };
        keeps.entry(share_of(sharing, request)).or_default().push(key.clone());
    }
    let report = |share: ShareName| {
        let known = class.shares.share(&share);
        let spent = used(&share);
        ShareReport {
            class: name.clone(),
            weight: sharing.weight(&share),
            used: spent,
            part: u32::try_from(u128::from(spent) * 1000 / u128::from(all)).unwrap_or(1000),
            held: known.map_or(0, |known| known.held),
            waiting: known.map_or(0, |known| known.waiting),
            quota: sharing.quota(&share),
            keeps: keeps.get(&share).cloned().unwrap_or_default(),
            share: share.to_string(),
        }
    };
    names.into_iter().map(report).collect()
}

/// Describes the repositories after whose jobs clean-ups failed repeatedly.
pub fn braked(yard: &Yard, now: Now) -> Vec<String> {
    yard.brakes.set(now.wall).map(|(repository, brake)| brake.told(repository)).collect()
}

/// Describes a request's share and its place; empty where its class has no `sharing`.
pub(super) fn place(yard: &Yard, now: Now, request: &Request) -> Vec<String> {
    let Some(name) = Yard::class_of(request) else { return Vec::new() };
    let Some(class) = yard.class(&name).filter(|class| class.shares.sharing().is_some()) else {
        return Vec::new();
    };
    let Some(sharing) = class.shares.sharing() else { return Vec::new() };
    let mine = share_of(sharing, request);
    let reports = shares(yard, now, &name);
    let mut lines: Vec<String> = reports.iter().filter(|report| *report.share == *mine).map(told).collect();
    let order = places(class, now.wall, usize::MAX);
    if let Some(at) = order.iter().position(|key| *key == request.id) {
        let before = order[..at].iter().filter_map(|key| Some(share_of(sharing, yard.request(key)?)));
        let ahead: BTreeSet<ShareName> = before.filter(|share| *share != mine).collect();
        let mut ahead: Vec<&ShareReport> =
            reports.iter().filter(|report| ahead.contains(report.share.as_str())).collect();
        ahead.sort_by_key(|report| (report.used / u64::from(report.weight), report.share.clone()));
        let told: Vec<String> = ahead.iter().take(3).map(|report| used(report)).collect();
        let more = ahead.len().saturating_sub(3);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let by = if told.is_empty() {
            "no other share is before it".to_owned()
        } else {
            format!("before it, for what they used: {}{more}", told.join(", "))
        };
        lines.push(format!("place in the line of its class: {} of {} by shares; {by}", at + 1, order.len()));
        lines.extend(overdue(request, now.wall));
    }
    lines
}

/// Returns for the waiting requests of classes with `sharing` how many are served before each; only for the first of
/// each class.
pub fn before(yard: &Yard, now: Now) -> BTreeMap<RequestKey, usize> {
    let shared = yard.classes().filter(|(_, class)| class.shares.sharing().is_some());
    shared.flat_map(|(_, class)| places(class, now.wall, PLACES).into_iter().zip(0..)).collect()
}

fn overdue(request: &Request, now: Timestamp) -> Option<String> {
    request.status.accepted_at?;
    let at = overdue_at(request);
    Some(if at <= now {
        format!("overdue since {at}: what its share used before does not count any more")
    } else {
        format!("overdue from {at} on: then what its share used before does not count any more")
    })
}

fn used(report: &ShareReport) -> String {
    format!("{} (used {}, holds {})", report.share, time(report.used), report.held)
}

/// Describes a share for people.
fn told(report: &ShareReport) -> String {
    let most = report.quota.max_machines.map_or(String::new(), |most| format!(" of at most {most}"));
    let guaranteed = report.quota.guaranteed.map_or(String::new(), |some| format!(", {some} guaranteed"));
    format!(
        "share {}: weight {}, used {} of machines lately ({}.{} % of the class), holds {}{most}{guaranteed}, {} waiting",
        report.share,
        report.weight,
        time(report.used),
        report.part / 10,
        report.part % 10,
        report.held,
        report.waiting
    )
}

/// Formats machine-seconds for people.
fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Scene, ask, at, linux, machine, request};

    fn scene() -> Scene {
        let sharing = json!({"weights": {"acme/web": 3}, "quotas": {"acme/web": {"maxMachines": 5}}});
        let sums = json!({"acme/web": 7_200_000, "acme/api": 21_600_000});
        let usage = json!({"at": at(0), "sums": sums, "other": 0});
        let mut scene = Scene::with(json!({"max": 2, "sharing": sharing, "usage": usage}));
        let other = |run: &str, more: serde_json::Value| {
            let mut fields = json!({"repository": "acme/api"});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            request(run, 1, fields)
        };
        scene.put(&other("1", json!({"phase": "Fulfilling", "instances": ["i-1"]})));
        scene.put(&other("2", json!({"phase": "Fulfilling", "instances": ["i-2"]})));
        scene.add(machine("i-1").running(&ask("1")));
        scene.add(machine("i-2").running(&ask("2")));
        scene.put(&other("3", json!({"acceptedAt": at(-50)})));
        scene.put(&request("4", 1, json!({"acceptedAt": at(-10)})));
        scene.put(&request("5", 1, json!({"acceptedAt": at(-5)})));
        scene
    }

    #[test]
    fn the_shares_of_a_class_are_told_with_what_they_used_hold_and_wait_for() {
        let scene = scene();
        let told: Vec<_> = shares(&scene.yard, scene.now, &linux())
            .into_iter()
            .map(|one| (one.share, one.weight, one.used, one.part, one.held, one.waiting))
            .collect();
        assert_eq!(
            told,
            [("acme/api".into(), 1, 21_600, 750, 2, 1), ("acme/web".into(), 3, 7200, 250, 0, 2)]
        );
        let mut plain = scene.clone();
        plain.pool(2, json!({"max": 2}));
        assert!(shares(&plain.yard, plain.now, &linux()).is_empty());
    }

    #[test]
    fn every_request_with_a_part_of_its_machines_is_named_at_its_share() {
        let mut scene = Scene::with(json!({"max": 2, "sharing": {}}));
        for run in ["1", "2"] {
            let held = format!("i-{run}");
            let more = json!({
                "phase": "Fulfilling", "instances": [held], "served": [held], "acceptedAt": at(-9),
                "repository": "acme/web", "deadline": at(600),
            });
            scene.put(&request(run, 3, more));
            scene.add(machine(&held).running(&ask(run)));
        }
        let kept: Vec<_> =
            shares(&scene.yard, scene.now, &linux()).into_iter().map(|one| one.keeps).collect();
        assert_eq!(kept, [[ask("1"), ask("2")]]);
    }

    #[test]
    fn a_request_is_told_its_place_whose_use_is_before_it_and_its_share() {
        let scene = scene();
        let mut third = ask("3");
        third.repository = "acme/api".parse().unwrap();
        let told = |key: &RequestKey| place(&scene.yard, scene.now, scene.yard.request(key).unwrap());
        assert_eq!(
            told(&ask("4")),
            [
                "share acme/web: weight 3, used 2 h 0 min of machines lately (25.0 % of the class), holds 0 of at most 5, 2 waiting",
                "place in the line of its class: 1 of 3 by shares; no other share is before it",
                "overdue from 2026-01-05T12:04:50Z on: then what its share used before does not count any more",
            ]
        );
        let lines = told(&third);
        assert_eq!(
            lines[1],
            "place in the line of its class: 3 of 3 by shares; before it, for what they used: acme/web (used 2 h 0 min, holds 0)"
        );
    }
}
