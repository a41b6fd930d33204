//! `runs-on: runyard-small`: GitHub assigns queued jobs to the scale set of a class, and each gets a machine whose runner
//! serves one job of the set, is cleaned and reused.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use runyard_core::model::{Asked, Request, SetPlace, SetRecord, SetState, State};
use runyard_core::ports::ScaleSetError;
use runyard_fakes::Fault;
use runyard_standin::github::{Completion, Routing, SetBehaviour};
use runyard_tests::slots::SlotRunners;
use runyard_tests::world::{World, linux};
use serde_json::json;

const LABEL: &str = "runyard-linux";

/// A yard whose class has a scale set at acme.
async fn yard(queue: serde_json::Value) -> (World, Arc<SlotRunners>) {
    let world = World::with_github();
    let mut settings = json!({"labels": [LABEL], "scope": "organization"});
    settings.as_object_mut().unwrap().extend(queue.as_object().unwrap().clone());
    world.pool(class(&settings)).await;
    let runners = Arc::new(SlotRunners::of(world.sets.clone()));
    world.agents.serve_sets(&runners);
    (world, runners)
}

fn class(queue: &serde_json::Value) -> serde_json::Value {
    let mut spec = linux(0, 20);
    let more = json!({
        "repositories": ["acme/*"], "registrationMode": "job", "reuseWithin": "owner", "queue": queue,
        "idleSeconds": 7200,
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn record(world: &World) -> Option<SetRecord> {
    world.all::<SetRecord>().into_iter().next()
}

fn slots(world: &World) -> Vec<Request> {
    world.all::<Request>().into_iter().filter(|request| request.intent.asked == Asked::Set).collect()
}

fn open(world: &World) -> usize {
    slots(world).iter().filter(|slot| slot.phase().wants_machines() && !slot.is_released()).count()
}

fn events(world: &World, reason: &str) -> usize {
    let named = |item: &&runyard_core::model::Item| format!("{:?}", item.get("reason")).contains(reason);
    world.store.records().iter().filter(named).count()
}

async fn listening(world: &World, within: u64) {
    let listens = async || record(world).is_some_and(|set| set.state == SetState::Listening);
    world.until("the set is listened to", Duration::from_secs(within), listens).await;
}

/// Waits until GitHub has no job and no slot is left.
async fn quiet(world: &World, within: u64) {
    let what = "every job ran";
    let quiet = async || world.sets.jobs().is_empty() && open(world) == 0;
    world.until(what, Duration::from_secs(within), quiet).await;
}

fn queue(world: &World, jobs: usize) {
    for number in 0..jobs {
        world.sets.queue_job("acme", "web", 41, &format!("job-{number}"), &[LABEL]);
    }
}

#[tokio::test(start_paused = true)]
async fn each_job_gets_a_machine_which_is_reused() {
    let (world, _) = yard(json!({})).await;
    world.start();
    listening(&world, 15).await;
    queue(&world, 3);
    world
        .until("three jobs run", Duration::from_secs(120), async || {
            world.sets.jobs().iter().filter(|job| job.place.running()).count() == 3
        })
        .await;
    assert_eq!(open(&world), 3);
    quiet(&world, 300).await;
    world.until("clean", Duration::from_secs(120), async || world.pooled().len() == 3).await;
    let machines = world.instances().len();
    // The machines that served it serve the next jobs, also of another repository of the same owner.
    world.sets.queue_job("acme", "api", 42, "build", &[LABEL]);
    world.sets.queue_job("other", "web", 43, "build", &[LABEL]);
    let ran = async || world.sets.jobs().len() == 1 && open(&world) == 0;
    world.until("the job of acme ran", Duration::from_secs(300), ran).await;
    assert_eq!((world.instances().len(), machines), (3, 3), "nothing was launched");
    let [set] = world.all::<SetRecord>().try_into().unwrap();
    assert_eq!((set.state, set.next_slot, set.scale_set_id.is_some()), (SetState::Listening, 5, true));
    assert!(world.sets.runners().is_empty(), "no runner is left over");
    assert!(slots(&world).iter().all(|slot| slot.status.released_by.is_some()));
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_standing_runner_takes_a_job_without_a_write_before_it() {
    let (world, _) = yard(json!({"standing": 1})).await;
    world.start();
    world
        .until("it stands", Duration::from_secs(300), async || world.in_state(State::Running).len() == 1)
        .await;
    world.sleep(60).await;
    let before = slots(&world);
    queue(&world, 1);
    let begins = async || world.sets.jobs().iter().any(|job| job.place.running());
    world.until("the job begins", Duration::from_secs(1), begins).await;
    let versions = |slots: &[Request]| slots.iter().map(|slot| slot.version).collect::<Vec<_>>();
    assert_eq!(versions(&before), versions(&slots(&world)[..before.len()]), "no record came before it");
    // Another one takes its place.
    world
        .until("another stands", Duration::from_secs(300), async || {
            world.sets.jobs().is_empty() && world.in_state(State::Running).len() == 1 && open(&world) == 1
        })
        .await;
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_no_job_needs_is_given_back_and_no_begun_job_is_ended() {
    let (world, runners) = yard(json!({"unusedSeconds": 120})).await;
    runners.take(Duration::from_secs(1200));
    world.start();
    listening(&world, 15).await;
    queue(&world, 4);
    // Two of them are cancelled before they begin.
    let cancelled: Vec<u64> = world.sets.jobs().iter().map(|job| job.facts.number).take(2).collect();
    world.until("they have slots", Duration::from_secs(60), async || open(&world) == 4).await;
    cancelled.iter().for_each(|job| world.sets.finish_job(*job, "cancelled"));
    world.until("two are left", Duration::from_secs(900), async || open(&world) == 2).await;
    assert_eq!(world.sets.jobs().iter().filter(|job| job.place.running()).count(), 2, "the others go on");
    quiet(&world, 1800).await;
    assert!(world.sets.runners().is_empty());
    world.check();
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_killed_leaves_no_job_without_a_slot() {
    let (world, _) = yard(json!({})).await;
    world.start_as("one");
    listening(&world, 15).await;
    queue(&world, 5);
    world.kill();
    world.start_as("two");
    queue(&world, 5);
    // The session of the killed one is held for a while.
    quiet(&world, 900).await;
    assert_eq!(slots(&world).len(), 10, "no message made two slots");
    assert!(events(&world, "SetWaiting") <= 1);
    world.check();
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_lets_the_next_one_listen_at_once() {
    let (world, _) = yard(json!({})).await;
    world.start_as("one");
    listening(&world, 15).await;
    world.stop().await;
    assert!(world.sets.sessions().is_empty(), "the session is closed");
    queue(&world, 1);
    world.start_as("two");
    quiet(&world, 200).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_goes_on_after_each_failure_of_githubs() {
    let (world, _) = yard(json!({})).await;
    world.start();
    listening(&world, 15).await;
    let set = record(&world).unwrap().scale_set_id.unwrap();
    type Fail = fn(&World, u64);
    let failures: [(&str, Fail); 5] = [
        ("no answer", |world, _| world.sets.outage(Some(ScaleSetError::Unreachable("503".into())))),
        ("expired", |world, _| world.sets.expire_tokens()),
        ("evicted", |world, set| world.sets.evict(set)),
        ("throttled", |world, _| {
            world.sets.outage(Some(ScaleSetError::Throttled { retry_after: Duration::from_secs(30) }))
        }),
        ("denied", |world, _| world.sets.outage(Some(ScaleSetError::Denied("a token was revoked".into())))),
    ];
    for (name, fail) in failures {
        fail(&world, set);
        world.sleep(240).await;
        world.sets.outage(None);
        queue(&world, 2);
        let what = format!("jobs run after: {name}");
        let ran = async || world.sets.jobs().is_empty() && open(&world) == 0;
        world.until(&what, Duration::from_secs(400), ran).await;
        assert_eq!(record(&world).unwrap().state, SetState::Listening, "{name}");
        assert!(record(&world).unwrap().conditions.is_empty(), "{name}");
    }
    assert!(events(&world, "SetTrouble") >= 2, "an outage of four minutes is told");
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_is_over_is_renewed_and_the_call_made_again() {
    let (world, _) = yard(json!({})).await;
    world.start();
    listening(&world, 15).await;
    let opened = world.sets.calls()["open"];
    for verb in ["message", "delete_message"] {
        world.sets.next_of(verb, Fault::Fail(ScaleSetError::Expired("401".into())));
        queue(&world, 2);
        quiet(&world, 400).await;
        assert_eq!(world.sets.calls()["open"], opened, "{verb}: the session is the same");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_credential_that_is_refused_leads_to_another_session_and_pauses() {
    let (world, _) = yard(json!({})).await;
    world.start();
    listening(&world, 15).await;
    for verb in ["message", "delete_message"] {
        world.sets.outage_of(verb, Some(ScaleSetError::Expired("401".into())));
        queue(&world, 2);
        let renewals = || world.sets.calls().get("renew").copied().unwrap_or(0);
        let before = renewals();
        world.sleep(300).await;
        let renewed = renewals() - before;
        assert!((2..=30).contains(&renewed), "{verb}: {renewed} renewals in five minutes");
        world.sets.outage_of(verb, None);
        quiet(&world, 400).await;
    }
    assert_eq!(slots(&world).len(), 4, "no message made two slots");
}

#[tokio::test(start_paused = true)]
async fn a_set_that_vanished_is_made_anew_and_its_slots_go() {
    let (world, _) = yard(json!({"standing": 1})).await;
    world.start();
    world
        .until("it stands", Duration::from_secs(300), async || world.in_state(State::Running).len() == 1)
        .await;
    let former = record(&world).unwrap().scale_set_id.unwrap();
    world.sets.vanish(former);
    queue(&world, 2);
    world.until("the jobs ran", Duration::from_secs(900), async || world.sets.jobs().is_empty()).await;
    let set = record(&world).unwrap();
    assert!(set.scale_set_id != Some(former) && set.state == SetState::Listening);
    let of_former = |slot: &&Request| slot.id.set() == Some(former) && !slot.is_released();
    world
        .until("the former slot is released", Duration::from_secs(600), async || {
            slots(&world).iter().filter(of_former).count() == 0
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_class_without_its_set_lets_jobs_end_and_deletes_the_set() {
    drained(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_class_lets_the_jobs_of_its_set_end_and_the_set_is_deleted() {
    drained(true).await;
}

/// Takes its set from a class while a job of it runs, or deletes the class.
async fn drained(deleted: bool) {
    let (world, runners) = yard(json!({"standing": 1})).await;
    runners.take(Duration::from_secs(600));
    world.start();
    listening(&world, 15).await;
    queue(&world, 1);
    world
        .until("it runs", Duration::from_secs(300), async || {
            world.sets.jobs().iter().any(|job| job.place.running())
                && world.in_state(State::Running).len() == 2
        })
        .await;
    let key = runyard_core::model::Pool::key_of(&"linux".parse().unwrap());
    if deleted {
        world.store.remove(&key);
    } else {
        let before: runyard_core::model::Pool = world.get(&key).await.unwrap();
        let mut after = before.clone();
        after.spec.queue = None;
        runyard_core::model::Versioned::advance(&mut after, world.at());
        let write = runyard_core::model::Versioned::replacing(&after, &before);
        runyard_core::ports::Store::write(&world.store, &write).await.unwrap();
    }
    world.until("the standing runner goes", Duration::from_secs(300), async || open(&world) == 1).await;
    assert_eq!(record(&world).unwrap().state, SetState::Draining);
    assert!(world.sets.jobs().iter().any(|job| job.place.running()), "its job goes on");
    let gone = async || record(&world).is_some_and(|set| set.state == SetState::Gone);
    world.until("the set is gone", Duration::from_secs(1200), gone).await;
    assert!(world.sets.sets().is_empty() && world.sets.sessions().is_empty());
    world.sleep(300).await;
    assert!(world.sets.sets().is_empty(), "nobody makes it again");
}

#[tokio::test(start_paused = true)]
async fn a_set_of_a_repository_serves_that_repository() {
    let world = World::with_github();
    let queue = json!({"labels": [LABEL], "scope": "repository"});
    let mut spec = class(&queue);
    spec["repositories"] = json!(["Acme/Web"]);
    spec["reuseWithin"] = json!("repository");
    world.pool(spec).await;
    let runners = Arc::new(SlotRunners::of(world.sets.clone()));
    world.agents.serve_sets(&runners);
    world.start();
    listening(&world, 15).await;
    let set = record(&world).unwrap();
    assert_eq!(set.key.unwrap().1, SetPlace::parse("acme/web").unwrap());
    world.sets.queue_job("acme", "web", 41, "build", &[LABEL]);
    quiet(&world, 300).await;
}

/// Something that goes wrong with a set for a while.
fn incident(world: &World, draw: &mut fastrand::Rng) {
    let unreachable = |why: &str| ScaleSetError::Unreachable(why.into());
    let set = record(world).and_then(|set| set.scale_set_id).unwrap_or(0);
    let behave = |change: fn(&mut SetBehaviour)| {
        let mut behaviour = SetBehaviour::default();
        change(&mut behaviour);
        world.sets.behave(behaviour);
    };
    match draw.u8(0..16) {
        0 => world.sets.outage(Some(unreachable("503"))),
        1 => world.sets.outage(Some(ScaleSetError::Throttled { retry_after: Duration::from_secs(20) })),
        2 => world.sets.outage(Some(ScaleSetError::Denied("the App was suspended".into()))),
        3 => world.sets.expire_tokens(),
        4 => world.sets.evict(set),
        5 => world.sets.vanish(set),
        6 => behave(|on| on.no_body = true),
        7 => behave(|on| on.no_queue_url = true),
        8 => behave(|on| (on.byte_order_mark, on.unknown_news) = (true, true)),
        9 => behave(|on| on.completion = Completion::Never),
        10 => behave(|on| on.completion = Completion::Early),
        11 => behave(|on| on.stale_assigned = 2),
        12 => behave(|on| (on.repeats_the_last, on.routing) = (true, Routing::Scattered)),
        13 => ["open", "message", "delete_message", "job_config"].iter().for_each(|verb| {
            world.sets.next_of(verb, Fault::LoseAnswer(unreachable("the answer was lost")));
        }),
        14 => world.sets.outage_of("job_config", Some(unreachable("502"))),
        _ => {
            world.kill();
            world.start_as(&format!("life-{}", draw.u32(..)));
        }
    }
}

fn well(world: &World) {
    world.sets.outage(None);
    world.sets.outage_of("job_config", None);
    world.sets.behave(SetBehaviour::default());
    world.sets.forget_faults();
}

#[tokio::test(start_paused = true)]
async fn two_hours_of_incidents_end_in_listening_within_a_minute() {
    for seed in 0..3 {
        let mut draw = fastrand::Rng::with_seed(seed);
        let (world, runners) = yard(json!({"maxSlots": 8, "unusedSeconds": 120, "standing": seed % 2})).await;
        runners.take(Duration::from_secs(30));
        world.start();
        listening(&world, 15).await;
        let end = world.at().saturating_add(SignedDuration::from_hours(2)).unwrap();
        while world.at() < end {
            queue(&world, draw.usize(0..3));
            incident(&world, &mut draw);
            world.sleep(draw.u64(1..400)).await;
            well(&world);
            // An operator that was killed is missed by GitHub for 50 s.
            let seen = world.sets.calls().get("message").copied();
            let again = async || world.sets.calls().get("message").copied() > seen;
            let what = format!("seed {seed}: messages are read again");
            world.until(&what, Duration::from_secs(60 + 60), again).await;
        }
        let ran = async || world.sets.jobs().is_empty();
        world.until(&format!("seed {seed}: every job ran"), Duration::from_secs(1800), ran).await;
        assert_eq!(record(&world).unwrap().state, SetState::Listening, "seed {seed}");
        assert!(world.sets.capacities().iter().all(|capacity| *capacity > 0));
        assert!(open(&world) <= 8);
        let standing = usize::try_from(seed % 2).unwrap();
        let rest = async || open(&world) == standing && world.sets.runners().len() == standing;
        world.until(&format!("seed {seed}: no runner is left over"), Duration::from_secs(1800), rest).await;
        world.stop().await;
    }
}

/// Each call of the table takes as long as DynamoDB's slower half, and a change is heard at once.
#[tokio::test(start_paused = true)]
async fn a_message_leads_to_a_claim_in_a_few_calls() {
    let (world, _) = yard(json!({})).await;
    let key = runyard_core::model::Pool::key_of(&"linux".parse().unwrap());
    world.start();
    listening(&world, 15).await;
    queue(&world, 5);
    quiet(&world, 600).await;
    world.until("clean", Duration::from_secs(120), async || world.pooled().len() == 5).await;
    assert!(world.get::<runyard_core::model::Pool>(&key).await.is_some());
    world.store.every_call_takes(Duration::from_millis(20));
    let mut took = Vec::new();
    for _ in 0..5 {
        world.sleep(70).await;
        let (claimed, begun) = (async || !world.in_state(State::Claimed).is_empty(), world.at());
        queue(&world, 1);
        world.until("a machine is claimed", Duration::from_secs(5), claimed).await;
        took.push(world.at().duration_since(begun).as_millis());
        quiet(&world, 300).await;
    }
    took.sort_unstable();
    assert!(took[2] <= 150, "{took:?} ms");
}

/// Since when the set is in trouble.
fn trouble(world: &World) -> Option<jiff::Timestamp> {
    record(world)?.conditions.iter().find(|one| !one.status).map(|one| one.at)
}

#[tokio::test(start_paused = true)]
async fn trouble_is_told_once_and_for_as_long_as_no_message_is_read() {
    let (world, _) = yard(json!({})).await;
    world.start();
    listening(&world, 15).await;
    // Sessions open, and nothing is read from them.
    world.sets.outage_of("message", Some(ScaleSetError::Unreachable("502".into())));
    world.sleep(400).await;
    let since = trouble(&world).expect("it is told");
    let told = |world: &World| (events(world, "SetTrouble"), events(world, "SetListening"));
    assert_eq!(told(&world), (1, 1));
    world.sleep(1800).await;
    assert_eq!((trouble(&world), told(&world)), (Some(since), (1, 1)), "since it began, and once");
    world.sets.outage_of("message", None);
    let over = async || trouble(&world).is_none();
    world.until("it is over", Duration::from_secs(180), over).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_another_listener_holds_is_told_once() {
    let (world, _) = yard(json!({})).await;
    world.sets.outage_of("open", Some(ScaleSetError::SessionHeld("ARC has it".into())));
    world.start();
    world.sleep(400).await;
    let (set, since) = (record(&world).unwrap(), trouble(&world).expect("it is told"));
    assert_eq!(set.state, SetState::Waiting);
    world.sleep(1800).await;
    assert_eq!((record(&world).unwrap().version, trouble(&world)), (set.version, Some(since)));
    world.sets.outage_of("open", None);
    listening(&world, 30).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_under_the_key_of_a_slot_costs_numbers_alone() {
    let (world, _) = yard(json!({})).await;
    world.start();
    listening(&world, 15).await;
    let taken = record(&world).unwrap().slot(1).unwrap();
    let item = json!({
        "pk": "request#acme/~#set-1", "sk": "request#s1#1", "kind": "request", "version": 1, "runId": "set-1",
        "attempt": 1, "repository": "acme/~", "name": "s1", "resourceClass": "linux", "count": 1,
        "desired": "provisioned", "generation": 1,
    });
    assert_eq!(runyard_core::model::RecordId::from(&taken).pk(), item["pk"].as_str().unwrap());
    world.store.put(runyard_tests::world::item(&item));
    queue(&world, 2);
    quiet(&world, 600).await;
    let names: Vec<String> = slots(&world).iter().map(|slot| slot.id.name.to_string()).collect();
    assert_eq!(names, ["s3", "s4"], "the numbers of that message are not used");
}
