use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::model::{Desired, Phase, Record as _};
use crate::testing::{Scene, at, holding, linux, request, secs};

/// Returns pseudo-random numbers, the same every time.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

fn picture(shares: &Shares) -> Vec<String> {
    let share = |(name, share): (&ShareName, &Share)| {
        (share.held + share.waiting > 0).then(|| format!("{name} {} {}", share.held, share.waiting))
    };
    let lanes = shares.all.ranked.iter().map(|(rank, lane)| format!("{rank:?} {}", lane.share));
    let mut late: Vec<_> = shares.all.late.keys().map(|late| format!("{late:?}")).collect();
    late.sort_unstable();
    shares.shares.iter().filter_map(share).chain(lanes).chain(late).collect()
}

#[test]
fn what_is_kept_up_change_by_change_is_what_the_records_make_of_it() {
    for seed in 0..20 {
        let mut number = numbers(seed);
        let sharing = json!({"weights": {"acme/r1": 3}, "quotas": {"acme/r2": {"guaranteed": 2}}});
        let spec =
            |version: u64| json!({"sharing": sharing, "version": version, "reuseWithin": "repository"});
        let mut scene = Scene::with(spec(1));
        let mut versions: BTreeMap<u64, u64> = BTreeMap::new();
        for step in 0..300 {
            scene.wait(number(20));
            let n = number(25);
            let version = versions.entry(n).or_insert(3);
            *version += 1;
            let held: Vec<String> = (0..number(3)).map(|i| format!("i-{n}-{i}")).collect();
            let more = json!({
                "instances": held, "phase": "Fulfilling",
                "repository": format!("acme/r{}", n % 5), "version": *version, "acceptedAt": at(n as i64),
                "timeoutSeconds": 60 + 100 * n, "priorityValue": n as i64 % 3, "deadline": at(100_000),
            });
            let mut asked = request(&format!("{n}"), 1 + number(3) as u32, more);
            if number(4) == 0 {
                (asked.status.phase, asked.intent.desired) = (Some(Phase::Released), Desired::Released);
                asked.status.instances.clear();
            }
            scene.put(&asked);
            if step % 50 == 49 {
                let mut pool = scene.yard.pool(&linux()).unwrap().clone();
                pool.version += 1;
                let class = scene.yard.class(&linux()).unwrap();
                pool.status.usage = class.shares.usage(scene.now.wall, scene.now.mono);
                scene.put(&pool);
            }
        }
        let mut anew = Scene::empty();
        anew.now = scene.now;
        anew.put(scene.yard.pool(&linux()).unwrap());
        scene.yard.requests().for_each(|(_, request)| drop(anew.put(request)));
        let shares = |scene: &mut Scene| {
            let now = scene.now.wall;
            let class = scene.yard.classes.get_mut(&linux()).unwrap();
            class.shares.mature(now);
            picture(&class.shares)
        };
        let (kept, made) = (shares(&mut scene), shares(&mut anew));
        assert!(kept.len() > 5, "{kept:?}");
        assert_eq!(kept, made, "seed {seed}");
    }
}

#[test]
fn use_is_counted_by_the_millisecond_and_by_who_begins_anew_from_the_record() {
    let mut scene = Scene::with(json!({"sharing": {}}));
    scene.put(&holding("1", 2, &["i-1", "i-2"], json!({})));
    scene.wait(30);
    scene.put(&holding("1", 2, &["i-1"], json!({"version": 4})));
    scene.wait(10);
    let usage = |scene: &Scene| {
        let class = scene.yard.class(&linux()).unwrap();
        class.shares.usage(scene.now.wall, scene.now.mono).unwrap()
    };
    assert_eq!(usage(&scene).sums["acme/web"], 70_000);
    let mut pool = scene.yard.pool(&linux()).unwrap().clone();
    (pool.status.usage, pool.version) = (Some(usage(&scene)), 2);
    scene.put(&pool);
    scene.wait(5);
    // Half a part in ten thousand is forgotten in five seconds of a day.
    assert!(usage(&scene).sums["acme/web"].abs_diff(75_000) <= 5, "{:?}", usage(&scene));
    let mut anew = Scene::empty();
    anew.now = scene.now;
    anew.put(&pool);
    anew.put(scene.yard.request(&crate::testing::ask("1")).unwrap());
    anew.wait(5);
    assert!(usage(&anew).sums["acme/web"].abs_diff(80_000) <= 10, "{:?}", usage(&anew));
}

#[test]
fn the_status_names_the_greatest_shares_and_the_rest_together() {
    let mut scene = Scene::with(json!({"sharing": {"by": "repository"}}));
    for n in 0..100 {
        let held = [format!("i-{n}")];
        let more = json!({"repository": format!("acme/r{n:03}"), "phase": "Fulfilling", "instances": held});
        scene.put(&request(&format!("{n}"), 2, more));
    }
    scene.wait(10);
    let class = scene.yard.class(&linux()).unwrap();
    let usage = class.shares.usage(scene.now.wall, scene.now.mono).unwrap();
    assert_eq!((usage.sums.len(), usage.other), (64, 36 * 10_000));
    assert_eq!(
        usage.sums.keys().next().map(String::as_str),
        Some("acme/r000"),
        "of equals the first by name"
    );
}

#[test]
fn a_class_without_sharing_keeps_nothing_of_shares() {
    let mut scene = Scene::with(json!({}));
    scene.put(&holding("1", 2, &["i-1"], json!({})));
    scene.put(&request("2", 2, json!({})));
    scene.wait(100);
    let shares = &scene.yard.class(&linux()).unwrap().shares;
    assert!(shares.shares.is_empty() && shares.lanes.is_empty() && shares.unwritten().is_none());
    assert_eq!(shares.usage(scene.now.wall, scene.now.mono), None);
    scene.pool(2, json!({"sharing": {}}));
    let shares = &scene.yard.class(&linux()).unwrap().shares;
    assert_eq!((shares.held(), shares.lanes.len()), (1, 1), "it begins with what is there");
    scene.wait(secs(1).as_secs());
    scene.pool(3, json!({}));
    let shares = &scene.yard.class(&linux()).unwrap().shares;
    assert!(shares.lanes.is_empty() && shares.unwritten().is_none());
    assert!(!scene.yard.pool(&linux()).unwrap().to_item().contains_key("usage"));
}
