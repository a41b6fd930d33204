use std::collections::BTreeMap;

use serde_json::json;

use super::yardlet::Yardlet;
use crate::decide::WaitReason;
use crate::model::{Pool, Priority};
use crate::testing::{ask, linux};

const HOUR: u64 = 3600;

/// Runs repositories that always have so many requests waiting, for an hour.
fn endless(yard: &mut Yardlet, depth: usize, repositories: &[(&str, u64)]) {
    for _ in 0..HOUR {
        yard.tick(|yard| {
            for (repository, lasts) in repositories {
                while yard.waiting(repository) < depth {
                    let spread = yard.number(21);
                    yard.ask(repository, *lasts + spread - 10, json!({}));
                }
            }
        });
    }
}

fn jain(shares: &BTreeMap<String, f64>) -> f64 {
    let (sum, squares): (f64, f64) = (shares.values().sum(), shares.values().map(|part| part * part).sum());
    sum * sum / (shares.len() as f64 * squares)
}

fn p95(waited: &[u64]) -> u64 {
    let mut waited = waited.to_vec();
    waited.sort_unstable();
    waited[(waited.len() * 95).div_ceil(100) - 1]
}

#[test]
fn endless_backlogs_with_weights_1_and_3_use_25_and_75_per_cent_of_an_hour() {
    for depth in [25, 200] {
        let mut yard = Yardlet::new(20, json!({"weights": {"acme/b": 3}}));
        endless(&mut yard, depth, &[("acme/a", 60), ("acme/b", 60)]);
        let shares = yard.shares();
        println!("{depth} waiting each: {shares:?}");
        assert!((shares["acme/a"] - 0.25).abs() < 0.02, "{depth}: {shares:?}");
        assert!((shares["acme/b"] - 0.75).abs() < 0.02, "{depth}: {shares:?}");
    }
}

#[test]
fn equal_weights_use_equal_time_however_long_their_jobs_are() {
    let mut yard = Yardlet::new(20, json!({}));
    let names: Vec<String> = (0..10).map(|n| format!("acme/r{n}")).collect();
    let asking: Vec<(&str, u64)> =
        names.iter().enumerate().map(|(n, name)| (name.as_str(), 20 + 15 * n as u64)).collect();
    endless(&mut yard, 25, &asking);
    let index = jain(&yard.shares());
    println!("Jain's index of ten repositories: {index:.4}");
    assert!(index >= 0.98, "{:?}", yard.shares());
}

#[test]
fn a_light_repository_beside_a_flood_of_500_waits_as_if_it_were_alone() {
    // From the claim until the runner listens.
    const REGISTERS: u64 = 5;
    let run = |sharing: serde_json::Value, flood: bool| {
        let mut yard = Yardlet::new(20, sharing);
        for second in 0..HOUR / 2 {
            yard.tick(|yard| {
                if second == 60 && flood {
                    (0..500).for_each(|n| drop(yard.ask("acme/flood", 40 + n % 41, json!({}))));
                }
                if second % 20 == 0 {
                    yard.ask("acme/light", 12, json!({}));
                }
            });
        }
        REGISTERS + p95(&yard.waited["acme/light"])
    };
    // The configuration of every shipped example.
    let shipped = include_str!("../../../../../config/pools.yaml");
    let of_pools: Vec<&str> =
        shipped.lines().filter_map(|line| line.trim().strip_prefix("sharing: ")).collect();
    assert_eq!(of_pools, ["{by: repository, reserve: 10}"; 2]);
    let fair = json!({"by": "repository", "reserve": 10});
    let alone = run(fair.clone(), false);
    let [beside, unreserved, oldest] =
        [fair, json!({}), json!(null)].map(|sharing| run(sharing, true) as f64 / alone as f64);
    println!(
        "p95 until ready: {alone} s alone; beside the flood {beside:.2} times that, {unreserved:.2} without a reserve, {oldest:.2} oldest first"
    );
    assert!(beside <= 1.2, "{beside}");
    assert!(unreserved < oldest / 4.0, "{unreserved} {oldest}");
}

fn priorities(yard: &mut Yardlet) {
    let everyone = || vec!["*".to_owned()];
    let of = |value| Priority { value, repositories: everyone() };
    yard.scene.policy.sharing.priorities =
        [("high".to_owned(), of(100)), ("bulk".to_owned(), of(-100))].into();
}

#[test]
fn of_three_priorities_the_higher_is_served_first_and_none_is_starved() {
    let mut yard = Yardlet::new(20, json!({}));
    priorities(&mut yard);
    for second in 0..HOUR {
        if second == 290 {
            // Nothing is overdue yet: bulk has had nothing, and high waited for no more than a job's end.
            assert!(!yard.shares().contains_key("acme/bulk"), "{:?}", yard.shares());
            assert!(p95(&yard.waited["acme/high"]) <= 70, "{:?}", yard.waited["acme/high"]);
        }
        yard.tick(|yard| {
            let lasts = 50 + yard.number(21);
            if second % 6 == 0 {
                yard.ask("acme/high", lasts, json!({"priority": "high"}));
            }
            while yard.waiting("acme/usual") < 25 {
                yard.ask("acme/usual", lasts, json!({}));
            }
            while yard.waiting("acme/bulk") < 25 {
                yard.ask("acme/bulk", lasts, json!({"priority": "bulk"}));
            }
        });
    }
    let shares = yard.shares();
    let waits: BTreeMap<_, _> =
        yard.waited.iter().map(|(name, waited)| (name.clone(), p95(waited))).collect();
    println!("{shares:?}; p95 {waits:?}");
    // Half of the machines serve the requests of high; the rest serves the usual ones, except for the overdue ones.
    assert!((shares["acme/high"] - 0.5).abs() < 0.02, "{shares:?}");
    assert!(shares["acme/usual"] >= shares["acme/bulk"], "{shares:?}");
    assert!(shares["acme/bulk"] > 0.05, "{shares:?}");
    assert!(waits["acme/high"] <= 70 && waits["acme/bulk"] >= 300, "{waits:?}");
}

/// Each priority has a level of its own, and 200 requests of each wait at any time. For five minutes the highest has
/// all machines; then the oldest of each are overdue, and their shares hold machines according to their weights.
#[test]
fn endless_backlogs_of_three_priorities_use_of_an_hour_what_the_rules_say() {
    let overdue = 300.0 / HOUR as f64;
    for (weights, parts) in [(json!({}), [1.0, 1.0, 1.0]), (json!({"acme/high": 2}), [2.0, 1.0, 1.0])] {
        let mut yard = Yardlet::new(20, json!({"weights": weights}));
        priorities(&mut yard);
        for second in 0..HOUR {
            if second == 300 {
                assert!(yard.shares()["acme/high"] > 0.98, "{:?}", yard.shares());
            }
            yard.tick(|yard| {
                for name in ["high", "usual", "bulk"] {
                    let named = json!({"priority": (name != "usual").then_some(name)});
                    while yard.waiting(&format!("acme/{name}")) < 200 {
                        let lasts = 50 + yard.number(21);
                        yard.ask(&format!("acme/{name}"), lasts, named.clone());
                    }
                }
            });
        }
        let (shares, all) = (yard.shares(), parts.iter().sum::<f64>());
        println!("three priorities with endless backlogs, weights {weights}: {shares:?}");
        for (n, name) in ["acme/high", "acme/usual", "acme/bulk"].into_iter().enumerate() {
            let first = if n == 0 { overdue } else { 0.0 };
            let due = first + (1.0 - overdue) * parts[n] / all;
            assert!((shares[name] - due).abs() < 0.02, "{name} {due}: {shares:?}");
        }
    }
}

/// Levels whose requests do not wait for as long as five minutes get all the machines that they request, the highest
/// first.
#[test]
fn of_three_priorities_each_gets_what_it_asks_for_before_the_next() {
    let mut yard = Yardlet::new(20, json!({}));
    priorities(&mut yard);
    for second in 0..HOUR {
        yard.tick(|yard| {
            // Twelve, six and six machines' worth of jobs for twenty machines; the last level gets the rest.
            for (name, each) in [("high", 5), ("usual", 10), ("bulk", 10)] {
                if second % each == 0 && yard.waiting(&format!("acme/{name}")) < 8 {
                    let (lasts, named) = (50 + yard.number(21), (name != "usual").then_some(name));
                    yard.ask(&format!("acme/{name}"), lasts, json!({"priority": named}));
                }
            }
        });
    }
    let shares = yard.shares();
    println!("three priorities that ask for 60, 30 and 30 %: {shares:?}");
    for (name, due) in [("acme/high", 0.6), ("acme/usual", 0.3), ("acme/bulk", 0.1)] {
        assert!((shares[name] - due).abs() < 0.02, "{name} {due}: {shares:?}");
    }
}

#[test]
fn a_burst_is_charged_when_it_is_served_and_not_once_its_use_is_written() {
    let mut yard = Yardlet::new(10, json!({}));
    yard.change(|pool| pool.spec.paused = true);
    yard.tick(|yard| (0..30).for_each(|_| drop(yard.ask("acme/a", 60, json!({})))));
    yard.tick(|yard| (0..30).for_each(|_| drop(yard.ask("acme/b", 60, json!({})))));
    yard.change(|pool| pool.spec.paused = false);
    yard.tick(|_| {});
    let held = |name: &str| {
        let class = yard.scene.yard.class(&linux()).unwrap();
        class.shares.share(name).map_or(0, |share| share.held)
    };
    assert_eq!((held("acme/a"), held("acme/b")), (5, 5), "the older would have all");
}

#[test]
fn an_operator_that_begins_anew_orders_as_the_one_that_went_on() {
    let mut yard = Yardlet::new(10, json!({"weights": {"acme/b": 2}}));
    endless(&mut yard, 8, &[("acme/a", 50), ("acme/b", 70), ("acme/c", 30)]);
    yard.tick(|yard| drop(yard.ask("acme/d", 10, json!({}))));
    let order = Yardlet::order(&yard.scene);
    assert!(order.len() > 20);
    let restarted = yard.restarted();
    assert_eq!(Yardlet::order(&restarted), order);
    // The use is in the record, within the amount that one interval may add.
    let usage = yard.scene.yard.pool(&linux()).unwrap().status.usage.clone().unwrap();
    let written = usage.sums["acme/a"] as f64 / 1000.0;
    let used = yard.used["acme/a"] as f64;
    assert!((written / used - 1.0).abs() < 0.05, "{written} {used}");
    assert!(restarted.yard.pool(&linux()).unwrap().status.usage.is_some());
}

#[test]
fn a_share_over_its_quota_waits_with_what_frees_it_and_others_go_on() {
    let mut yard = Yardlet::new(10, json!({"quotas": {"acme/a": {"maxMachines": 3}}}));
    yard.tick(|yard| (0..5).for_each(|_| drop(yard.ask("acme/a", 60, json!({})))));
    assert_eq!(yard.waiting("acme/a"), 2);
    let plan = yard.scene.of_class();
    let wait = plan.waits.iter().find(|wait| wait.reason == WaitReason::Quota).expect("it is told");
    assert!(
        wait.message
            .starts_with("share acme/a has 3 of at most 3 machines in class linux, and it wants 1: it gets"),
        "{}",
        wait.message
    );
    yard.tick(|yard| drop(yard.ask("acme/b", 60, json!({"count": 7}))));
    assert_eq!((yard.waiting("acme/a"), yard.waiting("acme/b")), (2, 0));
    for _ in 0..60 {
        yard.tick(|_| {});
    }
    assert_eq!(yard.waiting("acme/a"), 0, "what was given back is had by the next");
    yard.tick(|yard| drop(yard.ask("acme/a", 60, json!({"count": 4}))));
}

/// A request for two machines stopped all others of its share while one machine of the quota and of the class was free.
#[test]
fn a_small_request_may_have_what_is_left_of_a_quota_until_a_large_one_is_overdue() {
    for waits in [10, 400] {
        let mut yard = Yardlet::new(10, json!({"quotas": {"acme/a": {"maxMachines": 3}}}));
        yard.tick(|yard| drop(yard.ask("acme/a", 6000, json!({"count": 2}))));
        yard.tick(|yard| drop(yard.ask("acme/a", 6000, json!({"count": 2}))));
        for _ in 0..waits {
            yard.tick(|_| {});
        }
        yard.tick(|yard| drop(yard.ask("acme/a", 6000, json!({}))));
        yard.tick(|_| {});
        let held = yard.scene.yard.class(&linux()).unwrap().shares.share("acme/a").unwrap().held;
        assert_eq!(
            held,
            if waits == 10 { 3 } else { 2 },
            "after {waits} s the large one has the rest kept for it"
        );
    }
}

#[test]
fn a_request_that_no_quota_can_hold_and_one_too_many_are_refused() {
    let quota = json!({"quotas": {"acme/*": {"maxMachines": 2, "maxWaiting": 3}}});
    let mut yard = Yardlet::new(4, quota);
    yard.tick(|yard| (0..2).for_each(|_| drop(yard.ask("acme/a", 600, json!({})))));
    yard.tick(|yard| (0..3).for_each(|_| drop(yard.ask("acme/a", 600, json!({})))));
    assert_eq!((yard.waiting("acme/a"), yard.failed.len()), (3, 0));
    yard.tick(|yard| drop(yard.ask("acme/a", 600, json!({}))));
    assert_eq!(yard.failed.len(), 1);
    assert!(
        yard.failed[0].starts_with("Quota: 3 requests of share acme/a wait already"),
        "{:?}",
        yard.failed
    );
    let large = yard.ask("acme/b", 600, json!({"count": 3}));
    let mut key = ask(&large);
    key.repository = "acme/b".parse().unwrap();
    let plan = yard.scene.judge(&crate::yard::Unit::Request(key));
    let (step, note) = crate::testing::answer(&plan);
    assert_eq!(note.reason, "Quota");
    assert_eq!(
        step.after.status.message,
        "Quota: count 3 is over what share acme/b may have at the same time (2)"
    );
}

#[test]
fn a_quota_of_the_yard_counts_the_machines_of_all_classes() {
    let mut yard = Yardlet::new(6, json!({}));
    let quota = crate::model::Quota { max_machines: Some(3), ..Default::default() };
    yard.scene.policy.sharing.quotas = [("acme/a".to_owned(), quota)].into();
    let mut other: Pool = yard.scene.yard.pool(&linux()).unwrap().clone();
    other.spec.resource_class = "mac".parse().unwrap();
    yard.scene.put(&other);
    let held = json!({
        "resourceClass": "mac", "repository": "acme/a", "phase": "Fulfilling", "instances": ["i-9000", "i-9001"],
    });
    yard.scene.put(&crate::testing::request("900000", 2, held));
    yard.tick(|yard| (0..3).for_each(|_| drop(yard.ask("acme/a", 60, json!({})))));
    assert_eq!(yard.waiting("acme/a"), 2, "two of three are in the other class");
}

#[test]
fn guaranteed_machines_are_borrowed_and_go_back_first() {
    let mut yard = Yardlet::new(4, json!({"quotas": {"acme/own": {"guaranteed": 2}}}));
    yard.tick(|yard| (0..40).for_each(|_| drop(yard.ask("acme/a", 60, json!({})))));
    assert_eq!(yard.waiting("acme/a"), 36, "while the owner asks for nothing others have all");
    // The owner used much, and asks for more than its two.
    for _ in 0..61 {
        yard.tick(|yard| {
            while yard.waiting("acme/own") < 4 {
                yard.ask("acme/own", 6000, json!({}));
            }
        });
    }
    let held = |name: &str| yard.scene.yard.class(&linux()).unwrap().shares.share(name).map_or(0, |s| s.held);
    assert!(held("acme/own") >= 2, "{}", held("acme/own"));
}

#[test]
fn a_gang_gets_what_comes_back_and_small_ones_what_it_cannot_use() {
    let mut yard = Yardlet::new(8, json!({}));
    yard.tick(|yard| (0..8).for_each(|n| drop(yard.ask("acme/a", 20 + 10 * n, json!({})))));
    yard.tick(|yard| drop(yard.ask("acme/gang", 60, json!({"count": 6}))));
    for _ in 0..HOUR / 4 {
        yard.tick(|yard| {
            while yard.waiting("acme/a") < 8 {
                yard.ask("acme/a", 60, json!({}));
            }
        });
    }
    let waited = &yard.waited["acme/gang"];
    assert!(waited.len() == 1 && waited[0] <= 90, "six machines come back one by one: {waited:?}");
}

#[test]
fn what_a_gang_kept_is_free_for_others_when_its_time_is_over() {
    let mut yard = Yardlet::new(4, json!({}));
    yard.tick(|yard| (0..2).for_each(|_| drop(yard.ask("acme/a", 6000, json!({})))));
    let run = yard.ask("acme/gang", 60, json!({"count": 4, "timeoutSeconds": 30}));
    yard.tick(|_| {});
    let mut key = ask(&run);
    key.repository = "acme/gang".parse().unwrap();
    assert_eq!(yard.scene.yard.request(&key).unwrap().status.instances.len(), 2);
    yard.tick(|yard| drop(yard.ask("acme/b", 60, json!({}))));
    assert_eq!(yard.waiting("acme/b"), 1, "two are kept for the gang");
    for _ in 0..30 {
        yard.tick(|_| {});
    }
    // Its deadline has come: its own decision fails it and returns its machines.
    let plan = yard.scene.judge(&crate::yard::Unit::Request(key.clone()));
    yard.scene.apply(&plan.actions);
    let class = yard.scene.yard.class(&linux()).unwrap();
    assert!(!class.waiting.all().iter().any(|(_, waiting)| *waiting == key));
    let mut request = yard.scene.yard.request(&key).unwrap().clone();
    let machines = std::mem::take(&mut request.status.instances);
    request.version += 1;
    yard.scene.put(&request);
    for id in machines {
        let mut instance = yard.scene.yard.by_id(&id).unwrap().instance.clone();
        instance.life = crate::model::Life::Idle { pooled_at: Some(yard.scene.now.wall) };
        instance.threshold =
            instance.threshold.map(|t| crate::model::Threshold { at: crate::testing::at(90_000), ..t });
        instance.version += 1;
        yard.scene.put(&instance);
    }
    yard.tick(|_| {});
    assert_eq!(yard.waiting("acme/b"), 0, "nobody keeps anything any more");
}

#[test]
fn a_request_says_whose_share_it_has_and_what_its_priority_was_worth() {
    let mut yard = Yardlet::new(1, json!({"by": "team"}));
    priorities(&mut yard);
    yard.scene.policy.sharing.teams = [("acme/web*".to_owned(), "web".to_owned())].into();
    let run = yard.ask("acme/web-1", 60, json!({"priority": "high"}));
    yard.tick(|_| {});
    let mut key = ask(&run);
    key.repository = "acme/web-1".parse().unwrap();
    let request = yard.scene.yard.request(&key).unwrap();
    assert_eq!((request.status.share.as_deref(), request.status.priority_value), (Some("web"), 100));
    // Afterwards neither table changes it: the record decides.
    yard.scene.policy.sharing = Default::default();
    assert_eq!(yard.scene.yard.class(&linux()).unwrap().shares.share("web").unwrap().held, 1);
    let refused = yard.ask("acme/web-1", 60, json!({"priority": "high"}));
    key.run_id = refused.parse().unwrap();
    let plan = yard.scene.judge(&crate::yard::Unit::Request(key.clone()));
    assert_eq!(crate::testing::note(&plan.actions).reason, "NotAllowed");
}

/// Returns a request that could be served now and is not: a free machine exists that it may use within its share's
/// quota.
fn idle_for_nothing(yard: &Yardlet) -> Option<String> {
    let class = yard.scene.yard.class(&linux())?;
    let pool = class.pool.as_ref()?;
    let sharing = pool.spec.sharing.as_ref()?;
    let held = |share: &str| -> u32 {
        let requests = yard.scene.yard.requests().map(|(_, request)| request);
        let own = requests.filter(|request| request.id.repository.as_str() == share);
        own.map(|request| request.status.instances.len() as u32).sum()
    };
    let free: Vec<&str> = yard
        .scene
        .yard
        .instances()
        .filter(|tracked| tracked.instance.pooled_at().is_some())
        .map(|tracked| tracked.instance.trust_domain.as_str())
        .collect();
    class.waiting.all().iter().find_map(|(_, key)| {
        let request = yard.scene.yard.request(key)?;
        let share = key.repository.as_str();
        let domain = pool.spec.trust_domain(&key.repository);
        let others = held(share) - request.status.instances.len() as u32;
        let fits = sharing.quota(share).max_machines.is_none_or(|most| others + request.intent.count <= most);
        let usable = free.iter().any(|of| of.is_empty() || **of == domain);
        (fits && usable).then(|| format!("{key} could have one of {free:?}"))
    })
}

#[test]
fn in_200_seeds_no_machine_idles_that_somebody_may_have_and_nobody_waits_for_ever() {
    for seed in 0..200 {
        let quotas = json!({"acme/r1": {"maxMachines": 4}, "acme/r2": {"guaranteed": 2}});
        let mut yard = Yardlet::new(8, json!({"weights": {"acme/r3": 4}, "quotas": quotas})).seeded(seed);
        priorities(&mut yard);
        if seed % 2 == 0 {
            yard.change(|pool| pool.spec.reuse_within = crate::model::ReuseWithin::Repository);
            // A machine of one repository is of no use to the others.
            let domain = |n: usize| format!("repository:acme/r{}", n % 4);
            for n in 0..8 {
                let tracked = yard.scene.yard.by_id(&crate::testing::id(&format!("i-{n:04}"))).unwrap();
                let mut instance = tracked.instance.clone();
                (instance.trust_domain, instance.version) = (domain(n), instance.version + 1);
                yard.scene.put(&instance);
            }
        }
        for _ in 0..60 {
            yard.tick(|yard| {
                for _ in 0..yard.number(3) {
                    let count = if yard.number(8) == 0 { 2 } else { 1 };
                    let priority = ["high", "bulk"].get(yard.number(6) as usize).copied();
                    let repository = format!("acme/r{}", yard.number(4));
                    let lasts = 5 + yard.number(30);
                    yard.ask(&repository, lasts, json!({"count": count, "priority": priority}));
                }
            });
            if let Some(idle) = idle_for_nothing(&yard) {
                panic!("seed {seed}, second {}: {idle}", yard.second);
            }
        }
        let mut left = 3000;
        while (0..4).any(|n| yard.waiting(&format!("acme/r{n}")) > 0) {
            yard.tick(|_| {});
            left -= 1;
            assert!(left > 0, "seed {seed}: somebody waits for ever");
        }
        assert!(yard.failed.is_empty(), "seed {seed}: {:?}", yard.failed);
    }
}

/// A request behind an older one of its share, which may wait for longer, never counted as overdue.
#[test]
fn an_overdue_request_need_not_wait_for_an_older_one_that_has_more_time() {
    let mut yard = Yardlet::new(1, json!({}));
    yard.tick(|yard| drop(yard.ask("acme/busy", 6000, json!({}))));
    let patient = yard.ask("acme/a", 60, json!({}));
    yard.tick(|_| {});
    let hasty = yard.ask("acme/a", 60, json!({"timeoutSeconds": 200}));
    yard.tick(|_| {});
    let other = yard.ask("acme/b", 60, json!({}));
    // The first share used much.
    let used = |pool: &mut Pool| {
        let sums = [("acme/a".to_owned(), 9_000_000_000)].into();
        pool.status.usage = Some(crate::model::Usage { at: crate::testing::start(), sums, other: 0 });
    };
    yard.tick(|_| {});
    yard.change(used);
    assert_eq!(Yardlet::order(&yard.scene), [&*other, &patient, &hasty]);
    for _ in 0..110 {
        yard.tick(|_| {});
    }
    yard.change(used);
    assert_eq!(Yardlet::order(&yard.scene), [&*hasty, &other, &patient]);
}

#[test]
fn what_a_share_used_before_delays_nobody_longer_than_until_it_is_overdue() {
    let mut yard = Yardlet::new(10, json!({}));
    // Days of work, by this share alone.
    yard.change(|pool| {
        let sums = [("acme/old".to_owned(), 900_000_000_000)].into();
        pool.status.usage = Some(crate::model::Usage { at: crate::testing::start(), sums, other: 0 });
    });
    for second in 0..1200 {
        yard.tick(|yard| {
            while yard.waiting("acme/new") < 25 {
                let lasts = 50 + yard.number(21);
                yard.ask("acme/new", lasts, json!({}));
            }
            if second % 30 == 0 {
                yard.ask("acme/old", 60, json!({}));
            }
        });
    }
    let longest = yard.waited["acme/old"].iter().max().unwrap();
    assert!((300..330).contains(longest), "{longest}");
}
