//! Scale sets as the rest of the state sees them: jobs of runs, and registered runners.

use runyard_core::ports::scale_sets::SetSpec;

use super::*;
use crate::github::state::scale_sets::NewsKind;

const SESSION: (&str, &str) = ("session", "token");

struct Listening {
    bench: Bench,
    set: u64,
}

impl Listening {
    fn new() -> Self {
        let mut bench = Bench::new();
        let spec = SetSpec { name: "small".into(), labels: vec!["small".into()], group_id: 1 };
        let now = bench.now;
        let made = bench.state.change_scale_sets(now, |service| service.create_set(REPO, &spec, now));
        let set = made.unwrap().id;
        bench.state.change_scale_sets(now, |service| service.open(set, "us", SESSION, now)).unwrap();
        let mut listening = Self { bench, set };
        assert_eq!(listening.told(), []);
        listening
    }

    fn told(&mut self) -> Vec<(NewsKind, String)> {
        let (set, now) = (self.set, self.bench.now);
        let told = self.bench.state.change_scale_sets(now, |service| {
            service.renew(set, SESSION.0, SESSION.1, now).unwrap();
            let batch = service.message(set, SESSION, None, 9, now).unwrap();
            let id = batch.as_ref().map_or(0, |batch| batch.id);
            service.delete_message(set, SESSION, id, now).unwrap();
            batch
        });
        told.into_iter().flat_map(|batch| batch.news).map(|news| (news.kind, news.result)).collect()
    }

    fn runner(&mut self, name: &str) -> (String, u64) {
        let credential = self.bench.unique();
        let (set, now) = (self.set, self.bench.now);
        self.bench.state.create_set_runner(REPO, set, name, credential.clone(), now).unwrap();
        let session = self.bench.state.open_session(&credential, "1", now).unwrap();
        (credential, session)
    }
}

fn news(kind: NewsKind, result: &str) -> (NewsKind, String) {
    (kind, result.to_owned())
}

#[test]
fn a_job_that_a_set_has_goes_to_no_other_runner() {
    let mut world = Listening::new();
    let other = world.bench.online("other", &["small"]);
    let run = world.bench.queue("small");
    assert_eq!(world.told(), [news(NewsKind::Assigned, "")]);
    assert_eq!(world.bench.acquire(&other), None);
    let ours = world.runner("ours");
    let job = world.bench.acquire(&ours).unwrap();
    assert_eq!(world.bench.state.jobs_of(run).next().unwrap().id, job);
    world.bench.begin(&ours, job).unwrap();
    world.bench.finish(&ours, job).unwrap();
    assert_eq!(world.told(), [news(NewsKind::Started, ""), news(NewsKind::Completed, "succeeded")]);
    assert_eq!(world.bench.state.all_runners().count(), 1, "its runner is gone");
}

#[test]
fn a_runner_of_a_set_gets_no_job_of_another() {
    let mut world = Listening::new();
    let ours = world.runner("ours");
    world.bench.queue("large");
    assert_eq!(world.bench.acquire(&ours), None);
    let other = world.bench.online("other", &["large"]);
    assert!(world.bench.acquire(&other).is_some());
}

#[test]
fn a_job_that_another_runner_took_first_is_no_set_s() {
    let mut world = Listening::new();
    let (set, now) = (world.set, world.bench.now);
    world.bench.state.change_scale_sets(now, |service| service.close(set, SESSION.0, now)).unwrap();
    let other = world.bench.online("other", &["small"]);
    world.bench.queue("small");
    assert!(world.bench.acquire(&other).is_some());
    world.bench.state.change_scale_sets(now, |service| service.open(set, "us", SESSION, now)).unwrap();
    assert_eq!(world.told(), []);
}

#[test]
fn a_cancelled_run_cancels_the_assignments_of_its_jobs() {
    let mut world = Listening::new();
    let run = world.bench.queue("small");
    assert_eq!(world.told(), [news(NewsKind::Assigned, "")]);
    world.bench.state.cancel_run(run, world.bench.now).unwrap();
    assert_eq!(world.told(), [news(NewsKind::Completed, "canceled")]);
}

#[test]
fn the_job_of_a_runner_that_falls_silent_lapses_or_is_lost() {
    for begun in [false, true] {
        let mut world = Listening::new();
        let run = world.bench.queue("small");
        assert_eq!(world.told(), [news(NewsKind::Assigned, "")]);
        let silent = world.runner("silent");
        let job = world.bench.acquire(&silent).unwrap();
        if begun {
            world.bench.begin(&silent, job).unwrap();
            assert_eq!(world.told(), [news(NewsKind::Started, "")]);
        }
        world.bench.pass(Duration::from_secs(20));
        let told = world.told();
        let next = world.runner("next");
        if begun {
            assert_eq!(told, [news(NewsKind::Completed, "abandoned")]);
            assert_eq!(world.bench.status(run), JobStatus::Completed(Conclusion::Lost));
            continue;
        }
        assert_eq!((told, world.bench.acquire(&next)), (vec![], None));
        let mut told = Vec::new();
        for _ in 0..30 {
            world.bench.pass(Duration::from_secs(10));
            told.extend(world.told());
            assert!(!world.bench.state.heartbeat(&next.0, next.1, world.bench.now).unwrap());
        }
        assert_eq!(told, [news(NewsKind::Completed, "canceled"), news(NewsKind::Assigned, "")]);
        assert_eq!(world.bench.acquire(&next), Some(job));
    }
}

#[test]
fn a_removed_runner_is_forgotten_whichever_way_it_was_removed() {
    let mut world = Listening::new();
    world.runner("one");
    world.runner("two");
    let ids: Vec<RunnerId> = world.bench.state.all_runners().map(|runner| runner.id).collect();
    let now = world.bench.now;
    world.bench.state.remove_runner(REPO, ids[0], now).unwrap();
    world.bench.state.tick(now);
    assert_eq!(world.bench.state.scale_sets().runners().count(), 1);
    world.bench.state.remove_set_runner(REPO, ids[1], now).unwrap();
    assert_eq!(world.bench.state.all_runners().count(), 0);
    assert_eq!(world.bench.state.scale_sets().runners().count(), 0);
}

#[test]
fn a_stored_state_keeps_its_sets_and_an_older_one_has_none() {
    let mut world = Listening::new();
    world.bench.queue("small");
    world.bench.state.tick(world.bench.now);
    let mut text: serde_json::Value = serde_json::to_value(&world.bench.state).unwrap();
    let read: State = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(read.scale_sets().sets().count(), 1);
    text.as_object_mut().unwrap().remove("scale_sets");
    let older: State = serde_json::from_value(text).unwrap();
    assert!(older.scale_sets().is_empty());
}
