//! Does a run of ten get its machines, its jobs and nothing more? From an empty account to an empty account, on three
//! clouds.

use std::collections::BTreeSet;

use runyard_core::model::{
    Agent, AttributeValue, Instance, Item, Launch, Phase, Record as _, Request, State,
};
use runyard_standin::github::JobSpec;

use crate::e2e::history;
use crate::e2e::waiting::{PATIENCE, turn, until_none};
use crate::lifecycle::cloud::Cloud;
use crate::lifecycle::yard::{CLASS, REPOSITORY, TABLE, Yard};
use runyard_support::laws;

/// Machines ahead of need.
const WARM: u32 = 4;
/// What a run asks for.
const ASKED: u32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_machines_live_their_whole_life_on_dynoxide_and_moto() {
    whole_life(Cloud::dynoxide_and_moto).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_machines_live_their_whole_life_on_ministack() {
    whole_life(Cloud::ministack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_machines_live_their_whole_life_where_ec2_has_its_bad_days() {
    whole_life(Cloud::with_bad_days).await;
}

async fn whole_life(cloud: impl FnOnce() -> Cloud) {
    let _turn = turn().await;
    let mut yard = Yard::on(cloud(), WARM, ASKED).await;
    let warm = yard.pools(WARM as usize).await;
    yard.cloud.announces(&format!("{TABLE}-{CLASS}"), &warm).await;
    assert_eq!(yard.alive().await.len(), WARM as usize);
    // What is idle stays claimable; what is claimed is not made up for.
    yard.runs(&["scale", CLASS, "--desired", "0"]).await;

    served(&mut yard, 1).await;
    let launches = yard.launches().await;
    assert_eq!(counts(&launches), (WARM, ASKED - WARM), "{launches:#?}\n{}", yard.last_words());
    let alive = yard.alive().await;
    assert_eq!(alive.len(), ASKED as usize);
    given_back(&mut yard, 1, &alive).await;

    served(&mut yard, 2).await;
    assert_eq!(yard.launches().await.len(), launches.len(), "the pool was enough");
    assert_eq!(yard.alive().await, alive);
    given_back(&mut yard, 2, &alive).await;

    ended(&yard).await;
    yard.stop().await;
    assert_eq!(yard.machines.started(), ASKED as usize);
    judged(&yard).await;
}

/// Machines launched ahead of need, and for requests.
fn counts(launches: &[Launch]) -> (u32, u32) {
    let of = |asked: bool| {
        launches.iter().filter(|launch| launch.request.is_some() == asked).map(|l| l.count).sum()
    };
    (of(false), of(true))
}

/// A run asks, gets all it asked for, and its jobs run.
async fn served(yard: &mut Yard, run: u64) {
    yard.github.enqueue_run(REPOSITORY, Some(run), "build", Vec::new(), true).unwrap();
    let (id, count) = (run.to_string(), ASKED.to_string());
    let asked =
        ["provision", "--run-id", &id, "--repository", REPOSITORY, "--class", CLASS, "--count", &count];
    yard.runs(&[&asked[..], &["--timeout", "10m", "--wait"]].concat()).await;
    let seen = yard.look().await;
    let requests = seen.all::<Request>();
    let request = requests.iter().find(|request| request.id.run_id.to_string() == id).unwrap();
    assert_eq!((request.phase(), request.status.instances.len()), (Phase::Ready, ASKED as usize));
    let running = seen.all::<Instance>().into_iter().filter(|instance| instance.state() == State::Running);
    let held: BTreeSet<_> = running.map(|instance| instance.facts.instance_id).collect();
    assert_eq!(held, request.status.instances.iter().cloned().collect());
    let job = |number: u32| JobSpec {
        name: format!("{run}-{number}"),
        runs_on: vec![id.clone()],
        steps: vec!["true".into()],
        ..JobSpec::default()
    };
    yard.github.add_jobs(run, (0..ASKED).map(job).collect(), true).unwrap();
    let jobs = tokio::time::timeout(PATIENCE, yard.github.finished_jobs(run)).await;
    let jobs = jobs.unwrap_or_else(|_| panic!("the jobs of run {run} do not end")).unwrap();
    assert!(jobs.iter().all(|job| job.status.over()), "{jobs:?}");
}

/// The run gives back: everything is in the pool again, announced, cleaned, and nobody is left at GitHub.
async fn given_back(yard: &mut Yard, run: u64, alive: &BTreeSet<String>) {
    let id = run.to_string();
    yard.runs(&["release", "--run-id", &id, "--repository", REPOSITORY, "--wait", "--timeout", "10m"]).await;
    yard.github.cancel_run(run).unwrap();
    let pooled = yard.pools(ASKED as usize).await;
    assert_eq!(pooled.iter().map(|(id, _)| id.clone()).collect::<BTreeSet<_>>(), *alive);
    assert!(pooled.iter().all(|(_, claim)| !claim.is_empty()), "{pooled:?}");
    yard.cloud.announces(&format!("{TABLE}-{CLASS}"), &pooled).await;
    assert_eq!(yard.github.runners().unwrap().len(), 0, "a clean machine has no runner");
}

/// A person ends what is idle; nothing of ours is left anywhere.
async fn ended(yard: &Yard) {
    yard.runs(&["expire", CLASS, "--idle"]).await;
    until_none("there", async || {
        let mut left: Vec<String> = yard.alive().await.into_iter().collect();
        let seen = history::snapshot(&yard.store).await?;
        left.extend(seen.all::<Agent>().iter().map(|agent| agent.key().to_string()));
        let live = seen.all::<Instance>().into_iter().filter(|instance| instance.state().live());
        left.extend(live.map(|instance| format!("{} is {}", instance.key(), instance.state())));
        left.extend(yard.machines.processes());
        Some(left)
    })
    .await;
}

/// The whole history: every law of the records, and who was claimed or launched for whom.
async fn judged(yard: &Yard) {
    let steps = history::all(&yard.cloud.dynamodb).await;
    let verdict = laws::judge(&steps);
    assert_eq!(verdict.broken, Vec::<String>::new());
    let text = |item: Option<&Item>, name: &str| match item.and_then(|item| item.get(name)) {
        Some(AttributeValue::S(text)) => text.clone(),
        Some(_) | None => String::new(),
    };
    let became = |from: &str, to: &str, run: &str| {
        let instances =
            steps.iter().filter(|step| step.key.pk().starts_with("instance#") && step.old != step.new);
        let those = instances.filter(|step| {
            let new = step.new.as_ref();
            text(step.old.as_ref(), "state") == from && text(new, "state") == to && text(new, "runId") == run
        });
        those.count()
    };
    assert_eq!(became("", "created", ""), 4, "launched ahead of need");
    assert_eq!((became("idle", "claimed", "1"), became("", "created", "1")), (4, 6), "the first run");
    assert_eq!((became("idle", "claimed", "2"), became("", "created", "2")), (10, 0), "the second run");
    println!("{} writes, {} claims, ended: {:?}", verdict.steps, verdict.claims, verdict.ended);
}
