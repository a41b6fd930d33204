//! What do rings lead to? Anybody may forge them, so many cost no more looks than a few.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_ring_makes_a_request_at_once_and_one_from_outside_makes_no_look() {
    let bench = watching(vec![class(json!({}))], vec![]);
    tokio::time::sleep(EVERY).await;
    bench.queue(41, &["41-small"]);
    bench.ring("Acme/Web", 41).await;
    bench.ring("evil/web", 41).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.requests().len(), 1);
    assert_eq!(bench.looks("evil/web"), 0, "no class admits it");
    let before = bench.looks("acme/web");
    for _ in 0..40 {
        bench.ring("acme/web", 41).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!((4..=6).contains(&(bench.looks("acme/web") - before)), "one look in two seconds");
}

#[tokio::test(start_paused = true)]
async fn rings_about_strangers_are_one_look_in_two_seconds() {
    let bench = watching(vec![class(json!({}))], vec![]);
    tokio::time::sleep(EVERY).await;
    for number in 0..100 {
        bench.ring(&format!("acme/r{number}"), 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let looked = (0..100).filter(|number| bench.looks(&format!("acme/r{number}")) > 0).count();
    assert!((4..=6).contains(&looked), "{looked} in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn rings_about_many_known_repositories_are_five_looks_a_second() {
    let names: Vec<String> = (0..50).map(|number| format!("acme/r{number}")).collect();
    let bench = watching(vec![class(json!({"repositories": names}))], vec![]);
    tokio::time::sleep(EVERY + KNOWN).await;
    let looks = || names.iter().map(|name| bench.looks(name)).collect::<Vec<_>>();
    let before = looks();
    for name in &names {
        bench.ring(name, 1).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let looked = looks().iter().sum::<u64>() - before.iter().sum::<u64>();
    assert!((9..=12).contains(&looked), "{looked} in two seconds");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(looks().iter().zip(&before).all(|(now, before)| now > before), "each has its turn");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_forged_rings_cost_few_looks_and_hold_up_no_true_one() {
    let bench = watching(vec![class(json!({}))], vec![]);
    bench.github.set_run("acme", "web", 7, RunState::Active { attempt: 1 });
    tokio::time::sleep(EVERY + KNOWN).await;
    bench.queue(41, &["41-small"]);
    for number in 0..10_000 {
        let forged = if number % 2 == 0 { format!("acme/x{number}") } else { format!("evil/x{number}") };
        bench.ring(&forged, number).await;
        if number == 5_000 {
            bench.ring("acme/web", 41).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.requests().len(), 1);
    let looked: u64 = (0..10_000).map(|number| bench.looks(&format!("acme/x{number}"))).sum();
    assert!(looked <= 2, "{looked} looks in a second");
}

#[tokio::test(start_paused = true)]
async fn rings_about_strangers_make_no_look_once_half_of_the_budget_is_used() {
    let bench = watching(vec![class(json!({}))], vec![]);
    tokio::time::sleep(EVERY).await;
    bench.github.set_budget_used(0.5);
    bench.ring("acme/r1", 1).await;
    tokio::time::sleep(EVERY).await;
    assert_eq!(bench.looks("acme/r1"), 0);
    bench.github.set_budget_used(0.4);
    bench.ring("acme/r1", 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.looks("acme/r1"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_run_that_rings_are_read_although_its_entry_did_not_change() {
    let bench = watching(vec![class(json!({}))], vec![]);
    for run in [41, 43] {
        bench.github.set_run("acme", "web", run, RunState::Active { attempt: 1 });
    }
    tokio::time::sleep(EVERY + KNOWN).await;
    let read = || bench.github.calls_in("acme/web").get("run_jobs").copied().unwrap_or(0);
    let before = read();
    bench.github.add_job_late("acme", "web", 41, queued_job("build", &["41-small"]));
    bench.ring("acme/web", 41).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((bench.requests().len(), read() - before), (1, 1), "and of no other run");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_github_lists_five_seconds_after_its_ring_is_found_by_a_second_look() {
    let bench = watching(vec![class(json!({}))], vec![]);
    bench.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    tokio::time::sleep(EVERY + KNOWN).await;
    let before = bench.looks("acme/web");
    bench.ring("acme/web", 41).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.requests().len(), 0);
    bench.github.add_job_late("acme", "web", 41, queued_job("build", &["41-small"]));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((bench.requests().len(), bench.looks("acme/web") - before), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_forged_ring_costs_two_looks_and_no_more() {
    let bench = watching(vec![class(json!({}))], vec![]);
    bench.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    tokio::time::sleep(EVERY + KNOWN).await;
    let before = bench.github.calls_in("acme/web");
    bench.ring("acme/web", 4711).await;
    tokio::time::sleep(EVERY / 2).await;
    let after = bench.github.calls_in("acme/web");
    assert_eq!(after["open_runs"] - before["open_runs"], 2, "{after:?}");
    assert_eq!(after.get("run_jobs"), before.get("run_jobs"));
}
