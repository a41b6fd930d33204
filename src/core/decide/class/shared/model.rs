//! A model of the order: every small state of a class with `sharing`, as seen by operators that reached it in different
//! ways. The same records give the same order and the same claims, regardless of the counts in an operator's memory,
//! the order in which it read, and whether it has just started.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::places;
use crate::decide::Effect;
use crate::model::{Request, RequestKey};
use crate::testing::{Scene, at, linux, machine, request};
use crate::yard::Observation;

/// The second at which the order is computed.
const NOW: u64 = 400;

/// The state of one share.
#[derive(Clone, Copy, Debug, PartialEq)]
struct One {
    /// Machine-milliseconds used, as stored in the pool's record.
    used: u64,
    held: u32,
    /// How many seconds ago its request was accepted, with which priority and for how many machines; none when no
    /// request waits.
    waits: Option<(i64, i32, u32)>,
}

/// Lists every state of one share that these values give.
fn every(used: &[u64], held: &[u32], waits: &[Option<(i64, i32, u32)>]) -> Vec<One> {
    let mut all = Vec::new();
    for &used in used {
        for &held in held {
            all.extend(waits.iter().map(|&waits| One { used, held, waits }));
        }
    }
    all
}

fn of_share(n: usize, run: String, more: Value) -> Request {
    let mut fields =
        json!({"repository": format!("acme/r{n}"), "timeoutSeconds": 7200, "deadline": at(90_000)});
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    request(&run, fields["count"].as_u64().unwrap_or(1) as u32, fields)
}

/// Builds the records of a state: requests that hold machines, and those that wait.
fn records(shares: &[One]) -> Vec<Request> {
    let mut all = Vec::new();
    for (n, one) in shares.iter().enumerate() {
        let held: Vec<String> = (0..one.held).map(|i| format!("i-{n}{i}")).collect();
        if !held.is_empty() {
            let more = json!({"phase": "Ready", "count": held.len(), "instances": held, "readyAt": at(100),
                "acceptedAt": at(0), "version": 9});
            all.push(of_share(n, format!("1{n}"), more));
        }
        if let Some((ago, priority, count)) = one.waits {
            let accepted = at(NOW as i64 - ago);
            let more =
                json!({"acceptedAt": accepted, "priorityValue": priority, "count": count, "version": 9});
            all.push(of_share(n, format!("2{n}"), more));
        }
    }
    all
}

fn pool(sharing: &Value, shares: &[One], at_second: i64) -> Value {
    let sums: serde_json::Map<String, Value> =
        shares.iter().enumerate().map(|(n, one)| (format!("acme/r{n}"), one.used.into())).collect();
    let usage = json!({"at": at(at_second), "sums": sums, "other": 0});
    json!({"max": 9, "sharing": sharing, "usage": usage, "maxAgeSeconds": 100_000_000, "idleSeconds": 100_000_000})
}

/// How an operator learned of the records.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    /// It has just started, and read them in sorted order.
    Anew,
    /// The same in reverse order, and with another reading of its monotonic clock.
    Backwards,
    /// It saw the shares hold and wait for other machines before, for minutes, and counted their use; then it read the
    /// pool's record, written by another operator.
    WentOn,
    /// It has counted for a minute since that record was written.
    Counted,
}

const ALL: [Came; 4] = [Came::Anew, Came::Backwards, Came::WentOn, Came::Counted];

fn operator(came: Came, sharing: &Value, shares: &[One]) -> Scene {
    let mut scene = Scene::empty();
    let spec = pool(sharing, shares, NOW as i64 - 60);
    let mut now = records(shares);
    match came {
        Came::Anew | Came::Backwards => {
            if came == Came::Backwards {
                scene.now.mono += Duration::from_secs(7777);
                now.reverse();
            }
            scene.wait(NOW);
            scene.pool(2, spec);
        }
        Came::WentOn | Came::Counted => {
            let others: Vec<One> =
                shares.iter().map(|one| One { used: 900_000 - one.used, ..*one }).collect();
            scene.pool(1, pool(sharing, &others, 0));
            for (n, one) in shares.iter().enumerate() {
                // The share that held most in the past holds least now.
                let held: Vec<String> = (0..3 - one.held).map(|i| format!("i-9{n}{i}")).collect();
                let more = json!({"phase": "Ready", "count": 3, "instances": held, "version": 4});
                scene.put(&of_share(n, format!("1{n}"), more));
                scene.put(&of_share(n, format!("2{n}"), json!({"priorityValue": 5, "version": 4})));
            }
            let first = if came == Came::WentOn { NOW } else { NOW - 60 };
            scene.wait(first);
            scene.pool(2, spec);
            for (n, one) in shares.iter().enumerate() {
                // Ended requests are released in their records, as they are for an operator that reads them now for the
                // first time.
                for (run, there) in [(format!("1{n}"), one.held > 0), (format!("2{n}"), one.waits.is_some())]
                {
                    if !there {
                        let over = json!({"phase": "Released", "desired": "released", "version": 9});
                        scene.put(&of_share(n, run, over));
                    }
                }
            }
            now.iter().for_each(|request| drop(scene.put(request)));
            scene.wait(NOW - first);
        }
    }
    if came != Came::WentOn && came != Came::Counted {
        now.iter().for_each(|request| drop(scene.put(request)));
    }
    scene
}

/// Returns the order of the waiting requests, and the requests that the free machines are assigned to.
fn judged(scene: &mut Scene, free: u32) -> (Vec<RequestKey>, BTreeSet<(RequestKey, u32)>) {
    let order = places(scene.yard.class(&linux()).unwrap(), scene.now.wall, usize::MAX);
    for n in 0..free {
        scene.add(machine(&format!("i-{n:04}")).pooled().until(10_000_000));
    }
    scene.see(Observation::Hints(linux(), Vec::new()));
    let claims = scene.of_class().actions.into_iter().filter_map(|action| {
        let Effect::Claim { request, .. } = action.effect else { return None };
        Some((request.after.id.clone(), request.after.status.instances.len() as u32))
    });
    (order, claims.collect())
}

/// Checks a state; returns whether the counts in the operators' memory alone would have given another order.
fn alike(sharing: &Value, shares: &[One], free: u32) -> bool {
    let mut first = None;
    let mut counted = BTreeSet::new();
    for came in ALL {
        let mut scene = operator(came, sharing, shares);
        assert_eq!(scene.now.wall, at(NOW as i64));
        let class = scene.yard.class(&linux()).unwrap();
        let sums = class.shares.usage(scene.now.wall, scene.now.mono).unwrap().sums;
        let mut by_memory: Vec<(u64, String)> = sums.into_iter().map(|(name, sum)| (sum, name)).collect();
        by_memory.sort_unstable();
        counted.insert(by_memory.into_iter().map(|(_, name)| name).collect::<Vec<_>>());
        let judged = judged(&mut scene, free);
        let known = first.get_or_insert_with(|| judged.clone());
        assert_eq!(*known, judged, "{came:?} {shares:?} {sharing}");
    }
    counted.len() > 1
}

#[test]
fn in_every_small_state_operators_order_alike_whatever_they_counted() {
    let waits = [None, Some((10, 0, 1)), Some((350, 0, 1)), Some((20, 5, 1)), Some((340, 5, 2))];
    let (mut states, mut differ) = (0, 0);
    let sharings = [
        json!({}),
        json!({"weights": {"acme/r1": 3}, "reserve": 20}),
        json!({"quotas": {"acme/r0": {"guaranteed": 2}, "acme/r1": {"maxMachines": 2}}}),
    ];
    let (two, three) = (
        every(&[0, 700_000], &[0, 1, 2], &waits),
        every(&[0, 400_000], &[0, 1], &[Some((10, 0, 1)), Some((350, 0, 1))]),
    );
    for sharing in &sharings {
        for a in &two {
            for b in &two {
                states += 1;
                differ += u32::from(alike(sharing, &[*a, *b], 1));
            }
        }
        for a in &three {
            for b in &three {
                for c in &three {
                    states += 1;
                    differ += u32::from(alike(sharing, &[*a, *b, *c], 2));
                }
            }
        }
    }
    println!("{states} states; in {differ} of them what operators counted themselves differs in its order");
    assert_eq!(states, 3 * (30 * 30 + 8 * 8 * 8));
    assert!(differ > states / 4, "their memories differ: {differ}");
}
