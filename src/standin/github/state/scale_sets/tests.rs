//! Each rule of the service. \[live\] and \[s\] are as in `behaviour/scale_sets.rs`.

mod jobs;
mod sessions;

use std::time::Duration;

use jiff::Timestamp;
use runyard_core::ports::scale_sets::SetSpec;

use super::*;

const SCOPE: &str = "octo/app";
const SESSION: (&str, &str) = ("session", "token");

struct Bench {
    service: ScaleSetService,
    now: Timestamp,
    numbers: u64,
}

impl Bench {
    fn new() -> Self {
        Self::behaving(SetBehaviour::default())
    }

    fn behaving(behaviour: SetBehaviour) -> Self {
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        Self { service: ScaleSetService::new(behaviour), now, numbers: 100 }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.service.tick(self.now);
    }

    fn set(&mut self, labels: &[&str]) -> u64 {
        self.service.create_set(SCOPE, &spec(labels), self.now).unwrap().id
    }

    /// A set whose listener has announced this capacity.
    fn listening(&mut self, labels: &[&str], capacity: u32) -> u64 {
        let set = self.set(labels);
        self.service.open(set, "us", SESSION, self.now).unwrap();
        assert_eq!(self.poll(set, None, capacity), None);
        set
    }

    fn queue(&mut self, labels: &[&str]) -> u64 {
        self.numbers += 1;
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let wish = JobWish {
            owner: "octo".into(),
            repository: "app".into(),
            run_id: 7,
            name: "build".into(),
            labels,
        };
        self.service.queue_job(self.numbers, wish, self.now);
        self.numbers
    }

    fn runner(&mut self, set: u64) -> u64 {
        self.numbers += 1;
        self.service.add_runner(set, self.numbers, &format!("r{}", self.numbers)).unwrap().id
    }

    fn take(&mut self, runner: u64) -> Option<u64> {
        self.service.runner_connects(runner, self.now)
    }

    fn poll(&mut self, set: u64, last: Option<u64>, capacity: u32) -> Option<Batch> {
        self.service.message(set, SESSION, last, capacity, self.now).unwrap()
    }

    /// Polls, deletes what comes, and returns what it tells.
    fn told(&mut self, set: u64) -> Vec<(NewsKind, u64, String)> {
        let Some(batch) = self.poll(set, None, 10) else { return Vec::new() };
        self.service.delete_message(set, SESSION, batch.id, self.now).unwrap();
        batch.news.into_iter().map(|news| (news.kind, news.job.number, news.result)).collect()
    }

    fn kinds(&mut self, set: u64) -> Vec<NewsKind> {
        self.told(set).into_iter().map(|(kind, _, _)| kind).collect()
    }
}

fn spec(labels: &[&str]) -> SetSpec {
    let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    SetSpec { name: labels[0].clone(), labels, group_id: 1 }
}

/// [s] actions/scaleset, `CreateRunnerScaleSet`: names are unique within a group.
#[test]
fn a_set_has_its_name_alone_in_its_group_and_scope() {
    let mut bench = Bench::new();
    let first = bench.set(&["small"]);
    let again = bench.service.create_set(SCOPE, &spec(&["SMALL"]), bench.now);
    assert_eq!(again.unwrap_err(), SetRefusal::SetExists("SMALL".into()));
    assert!(bench.service.create_set("octo", &spec(&["small"]), bench.now).is_ok());
    let other = bench.set(&["big"]);
    let taken = bench.service.update_set(SCOPE, other, &spec(&["small"]));
    assert_eq!(taken.unwrap_err(), SetRefusal::SetExists("small".into()));
    let grouped = SetSpec { group_id: 5, ..spec(&["x"]) };
    assert_eq!(bench.service.create_set(SCOPE, &grouped, bench.now).unwrap_err(), SetRefusal::NoGroup(5));
    let unlabelled = SetSpec { labels: vec![], ..spec(&["named"]) };
    assert_eq!(bench.service.create_set(SCOPE, &unlabelled, bench.now).unwrap().labels, ["named"]);
    assert_eq!(bench.service.set_in("octo", first).unwrap_err(), SetRefusal::NoSet(first));
}

/// The table of failures, "404 set": a set that vanished is made again under another number, and its jobs come to it.
#[test]
fn the_jobs_of_a_vanished_set_come_to_the_next_one_of_its_labels() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 5);
    let (waits, runs) = (bench.queue(&["small"]), bench.queue(&["small"]));
    let (idle, busy) = (bench.runner(set), bench.runner(set));
    bench.service.behave(SetBehaviour {
        routing: crate::github::behaviour::Routing::Newest,
        ..SetBehaviour::default()
    });
    assert_eq!(bench.take(busy), Some(runs));
    bench.service.job_starts(runs, bench.now);
    bench.service.delete_set(SCOPE, set, bench.now).unwrap();
    let gone = bench.service.message(set, SESSION, None, 5, bench.now);
    assert_eq!(gone.unwrap_err(), SetRefusal::TokenExpired);
    assert_eq!(bench.service.renew(set, SESSION.0, "t", bench.now).unwrap_err(), SetRefusal::NoSet(set));
    let left: Vec<u64> = bench.service.runners().map(|runner| runner.id).collect();
    assert_eq!(left, [busy], "{idle} had no job");
    let next = bench.set(&["small"]);
    assert_ne!(next, set);
    bench.service.open(next, "us", SESSION, bench.now).unwrap();
    assert_eq!(bench.told(next), [(NewsKind::Assigned, waits, String::new())]);
}

/// [s] actions/scaleset, `errors.go`: the names of the exceptions that clients look for.
#[test]
fn a_runner_is_refused_as_its_clients_know_it() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 5);
    let runner = bench.runner(set);
    let name = bench.service.runner_in(SCOPE, runner).unwrap().name.clone();
    let exists = bench.service.add_runner(set, 999, &name).unwrap_err();
    assert_eq!(exists.wire(), (409, "AgentExistsException"));
    let job = bench.queue(&["small"]);
    assert_eq!(bench.take(runner), Some(job));
    bench.service.job_starts(job, bench.now);
    let busy = bench.service.remove_runner(SCOPE, runner, bench.now).unwrap_err();
    assert_eq!(busy.wire(), (400, "JobStillRunningException"));
    bench.service.job_ends(job, "succeeded", bench.now);
    let gone = bench.service.remove_runner(SCOPE, runner, bench.now).unwrap_err();
    assert_eq!(gone.wire(), (404, "AgentNotFoundException"));
}

/// A service that is stored and read again knows the same.
#[test]
fn a_stored_service_goes_on() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 5);
    bench.queue(&["small"]);
    let sent = bench.poll(set, None, 5).unwrap();
    let text = serde_json::to_string(&bench.service).unwrap();
    bench.service = serde_json::from_str(&text).unwrap();
    bench.service.behave(SetBehaviour::default());
    bench.now += Duration::from_secs(3600);
    bench.service.resume(bench.now);
    let again = bench.service.message(set, SESSION, None, 5, bench.now).map(|batch| batch.map(|b| b.id));
    assert_eq!(again, Err(SetRefusal::TokenExpired), "its credential is over");
    bench.service.renew(set, SESSION.0, SESSION.1, bench.now).unwrap();
    let again = bench.poll(set, None, 5).unwrap();
    assert_eq!((again.id, &again.news[0]), (sent.id, &sent.news[0]));
}
