//! The rules of the stand-in, without a server and without a clock.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

mod runs;
mod sets;

const REPO: &str = "octo/app";

struct Bench {
    state: State,
    now: Timestamp,
    minted: u32,
}

impl Bench {
    fn new() -> Self {
        Self { state: State::default(), now: "2026-03-01T12:00:00Z".parse().unwrap(), minted: 0 }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn unique(&mut self) -> String {
        self.minted += 1;
        format!("secret-{}", self.minted)
    }

    fn token(&mut self, kind: TokenKind, scope: &str) -> String {
        let value = self.unique();
        self.state.mint_token(kind, scope, value, self.now).value().to_owned()
    }

    fn try_register(&mut self, registration: Registration) -> Result<(RunnerId, String), Refusal> {
        let token = self.token(TokenKind::Registration, &registration.scope);
        let credential = self.unique();
        self.state.register(&token, registration, credential.clone(), self.now).map(|r| (r.id, credential))
    }

    fn register(&mut self, name: &str, labels: &[&str]) -> (RunnerId, String) {
        self.try_register(registration(name, labels)).unwrap()
    }

    fn online(&mut self, name: &str, labels: &[&str]) -> (String, u64) {
        let (_, credential) = self.register(name, labels);
        let session = self.state.open_session(&credential, "1", self.now).unwrap();
        (credential, session)
    }

    fn queue(&mut self, label: &str) -> RunId {
        self.state.start_run(REPO, None, "w", vec![job(&[label])], false, self.now).unwrap().id
    }

    fn acquire(&mut self, (credential, session): &(String, u64)) -> Option<JobId> {
        self.state.acquire(credential, *session, self.now).unwrap().map(|job| job.id)
    }

    fn begin(&mut self, (credential, session): &(String, u64), job: JobId) -> Result<(), Refusal> {
        self.state.begin(credential, *session, job, self.now)
    }

    fn finish(&mut self, (credential, session): &(String, u64), job: JobId) -> Result<(), Refusal> {
        self.state.finish(credential, *session, (job, Conclusion::Success, Some(0)), "log", self.now)
    }

    fn status(&mut self, run: RunId) -> JobStatus {
        self.state.tick(self.now);
        self.state.jobs_of(run).last().unwrap().status
    }
}

fn registration(name: &str, labels: &[&str]) -> Registration {
    Registration {
        scope: REPO.to_owned(),
        name: name.to_owned(),
        labels: labels.iter().map(|l| (*l).to_owned()).collect(),
        no_default_labels: true,
        group_id: 1,
        ..Registration::default()
    }
}

fn job(labels: &[&str]) -> JobSpec {
    JobSpec {
        name: "build".to_owned(),
        runs_on: labels.iter().map(|l| (*l).to_owned()).collect(),
        steps: vec!["true".to_owned()],
        ..JobSpec::default()
    }
}

const SILENCE: Duration = Duration::from_secs(15);
const SILENT: Duration = SILENCE.saturating_add(Duration::from_secs(1));

#[test]
fn a_job_goes_only_to_a_runner_with_all_its_labels() {
    let mut bench = Bench::new();
    let runner = bench.online("r", &["run-1"]);
    bench.queue("run-2");
    assert_eq!(bench.acquire(&runner), None);
    bench.state.start_run(REPO, None, "w", vec![job(&["run-1", "gpu"])], false, bench.now).unwrap();
    assert_eq!(bench.acquire(&runner), None);
    bench.queue("RUN-1");
    assert!(bench.acquire(&runner).is_some(), "labels are compared without case");
}

#[test]
fn a_job_goes_only_to_a_runner_of_its_repository_or_organisation() {
    let mut bench = Bench::new();
    let other = Registration { scope: "octo/other".to_owned(), ..registration("a", &["x"]) };
    let organisation = Registration { scope: "octo".to_owned(), ..registration("b", &["x"]) };
    bench.queue("x");
    for (registration, gets) in [(other, false), (organisation, true)] {
        let (_, credential) = bench.try_register(registration).unwrap();
        let session = bench.state.open_session(&credential, "1", bench.now).unwrap();
        assert_eq!(bench.acquire(&(credential, session)).is_some(), gets);
    }
}

#[test]
fn default_labels_are_added_unless_refused() {
    let mut bench = Bench::new();
    let (id, _) =
        bench.try_register(Registration { no_default_labels: false, ..registration("r", &["x"]) }).unwrap();
    let names = |bench: &Bench, id| -> Vec<String> {
        bench
            .state
            .all_runners()
            .find(|r| r.id == id)
            .unwrap()
            .labels
            .iter()
            .map(|l| l.name.clone())
            .collect()
    };
    assert_eq!(names(&bench, id), ["self-hosted", "Linux", "X64", "x"]);
    let (id, _) = bench.register("s", &["x"]);
    assert_eq!(names(&bench, id), ["x"]);
}

#[test]
fn a_runner_has_one_job_at_a_time_and_a_job_one_runner() {
    let mut bench = Bench::new();
    let (first, second) = (bench.online("a", &["x"]), bench.online("b", &["x"]));
    bench.queue("x");
    bench.queue("x");
    let one = bench.acquire(&first).unwrap();
    assert_eq!(bench.acquire(&first), Some(one), "the same answer again, for the first may be lost");
    let two = bench.acquire(&second).unwrap();
    assert_ne!(one, two);
    assert_eq!(bench.begin(&second, one), Err(Refusal::NotYours));
    bench.begin(&first, one).unwrap();
    bench.begin(&first, one).unwrap();
    bench.finish(&first, one).unwrap();
    bench.finish(&first, one).unwrap();
    assert_eq!(bench.acquire(&first), None);
}

#[test]
fn a_job_that_was_not_begun_goes_to_another_runner_and_a_begun_one_is_lost() {
    let mut bench = Bench::new();
    let first = bench.online("a", &["x"]);
    let run = bench.queue("x");
    let job = bench.acquire(&first).unwrap();
    bench.pass(SILENT);
    assert_eq!(bench.status(run), JobStatus::Queued);
    let second = bench.online("b", &["x"]);
    assert_eq!(bench.acquire(&second), Some(job));
    bench.begin(&second, job).unwrap();
    bench.pass(SILENT);
    assert_eq!(bench.status(run), JobStatus::Completed(Conclusion::Lost));
    let third = bench.online("c", &["x"]);
    assert_eq!(bench.acquire(&third), None);
    assert_eq!(bench.finish(&second, job), Err(Refusal::NotFound));
    assert_eq!(bench.status(run), JobStatus::Completed(Conclusion::Lost));
}

#[test]
fn a_runner_that_forgot_its_job_loses_it() {
    let mut bench = Bench::new();
    let runner = bench.online("a", &["x"]);
    let run = bench.queue("x");
    let job = bench.acquire(&runner).unwrap();
    bench.begin(&runner, job).unwrap();
    assert_eq!(bench.acquire(&runner), None);
    assert_eq!(bench.status(run), JobStatus::Completed(Conclusion::Lost));
    assert_eq!(bench.finish(&runner, job), Err(Refusal::NotYours));
}

#[test]
fn a_runner_is_online_while_it_speaks() {
    let mut bench = Bench::new();
    let (credential, session) = bench.online("a", &["x"]);
    let online = |bench: &mut Bench| {
        bench.state.tick(bench.now);
        bench.state.all_runners().next().unwrap().online()
    };
    for _ in 0..5 {
        bench.pass(SILENCE);
        assert!(online(&mut bench));
        bench.state.heartbeat(&credential, session, bench.now).unwrap();
    }
    bench.pass(SILENT);
    assert!(!online(&mut bench));
    assert_eq!(bench.state.heartbeat(&credential, session, bench.now), Err(Refusal::NotFound));
}

#[test]
fn a_second_session_waits_for_the_end_of_the_first() {
    let mut bench = Bench::new();
    let (credential, session) = bench.online("a", &["x"]);
    assert_eq!(bench.state.open_session(&credential, "1", bench.now), Err(Refusal::SessionConflict));
    bench.state.close_session(&credential, session, bench.now).unwrap();
    bench.state.open_session(&credential, "1", bench.now).unwrap();
    bench.pass(SILENT);
    bench.state.open_session(&credential, "1", bench.now).unwrap();
}

#[test]
fn a_token_is_good_for_its_kind_its_scope_and_one_hour() {
    let mut bench = Bench::new();
    let token = bench.token(TokenKind::Registration, REPO);
    let removal = bench.token(TokenKind::Removal, REPO);
    let try_with = |bench: &mut Bench, token: &str, scope: &str, name: &str| {
        let registration = Registration { scope: scope.to_owned(), ..registration(name, &["x"]) };
        bench.state.register(token, registration, name.to_owned(), bench.now).map(|r| r.id)
    };
    let id = try_with(&mut bench, &token, REPO, "a").unwrap();
    assert!(try_with(&mut bench, &token, REPO, "b").is_ok(), "it serves any number of runners");
    assert_eq!(try_with(&mut bench, &token, "octo/other", "c"), Err(Refusal::Unauthorized));
    assert_eq!(try_with(&mut bench, &removal, REPO, "c"), Err(Refusal::Unauthorized));
    assert_eq!(bench.state.deregister(&token, REPO, id, bench.now), Err(Refusal::Unauthorized));
    assert_eq!(bench.state.deregister(&removal, REPO, id, bench.now), Ok(()));
    bench.pass(TOKEN_LIFETIME);
    assert_eq!(try_with(&mut bench, &token, REPO, "d"), Err(Refusal::Unauthorized));
}

#[test]
fn a_name_is_taken_until_it_is_replaced() {
    let mut bench = Bench::new();
    let (id, old) = bench.register("a", &["x"]);
    assert_eq!(bench.try_register(registration("A", &["x"])), Err(Refusal::NameTaken("A".to_owned())));
    let (same, _) = bench.try_register(Registration { replace: true, ..registration("a", &["y"]) }).unwrap();
    assert_eq!(same, id);
    assert_eq!(bench.state.open_session(&old, "1", bench.now), Err(Refusal::Unauthorized));
}

#[test]
fn a_busy_runner_is_not_removed() {
    let mut bench = Bench::new();
    let runner = bench.online("a", &["x"]);
    let id = bench.state.by_credential(&runner.0).unwrap().id;
    bench.queue("x");
    let job = bench.acquire(&runner).unwrap();
    assert_eq!(bench.state.remove_runner(REPO, id, bench.now), Err(Refusal::Busy("a".to_owned())));
    bench.begin(&runner, job).unwrap();
    bench.finish(&runner, job).unwrap();
    assert_eq!(bench.state.remove_runner("octo/other", id, bench.now), Err(Refusal::NotFound));
    assert_eq!(bench.state.remove_runner(REPO, id, bench.now), Ok(()));
    assert_eq!(bench.state.remove_runner(REPO, id, bench.now), Err(Refusal::NotFound));
}

#[test]
fn a_single_use_runner_serves_one_job_and_is_gone() {
    let mut bench = Bench::new();
    let registration = Registration { no_default_labels: false, ..registration("once", &["x"]) };
    let runner = bench.state.create_single_use(registration.clone(), "cred".to_owned(), bench.now).unwrap();
    assert_eq!(runner.labels.len(), 1, "exactly the labels asked for");
    assert!(bench.state.create_single_use(registration, "other".to_owned(), bench.now).is_err());
    let session = bench.state.open_session("cred", "1", bench.now).unwrap();
    bench.queue("x");
    bench.queue("x");
    let runner = ("cred".to_owned(), session);
    let job = bench.acquire(&runner).unwrap();
    bench.begin(&runner, job).unwrap();
    bench.finish(&runner, job).unwrap();
    assert_eq!(bench.state.acquire("cred", session, bench.now), Err(Refusal::Unauthorized));
    assert_eq!(bench.state.open_session("cred", "1", bench.now), Err(Refusal::Unauthorized));
    assert_eq!(bench.state.all_runners().count(), 0);
}

#[test]
fn a_run_is_over_when_it_is_closed_and_its_jobs_are() {
    let mut bench = Bench::new();
    let run = bench.state.start_run(REPO, Some(7), "w", vec![], true, bench.now).unwrap();
    let over = |bench: &Bench| bench.state.run_over(bench.state.run(REPO, 7).unwrap());
    assert!(!over(&bench), "an open run is not over even without jobs");
    bench.state.add_jobs(run.id, vec![job(&["x"])], false, bench.now).unwrap();
    assert!(!over(&bench));
    assert!(bench.state.add_jobs(run.id, vec![], false, bench.now).is_err(), "it is closed");
    assert!(bench.state.start_run(REPO, Some(7), "w", vec![], false, bench.now).is_err(), "it is not over");
    let runner = bench.online("a", &["x"]);
    let job = bench.acquire(&runner).unwrap();
    bench.begin(&runner, job).unwrap();
    bench.finish(&runner, job).unwrap();
    assert!(over(&bench));
    let again = bench.state.start_run(REPO, Some(7), "w", vec![], false, bench.now).unwrap();
    assert_eq!(again.attempt, 2);
}

#[test]
fn a_cancelled_run_drops_what_waits_and_asks_what_runs_to_stop() {
    let mut bench = Bench::new();
    let runner = bench.online("a", &["x"]);
    let jobs = vec![job(&["x"]), job(&["x"])];
    let run = bench.state.start_run(REPO, None, "w", jobs, false, bench.now).unwrap().id;
    let first = bench.acquire(&runner).unwrap();
    bench.begin(&runner, first).unwrap();
    assert_eq!(bench.state.heartbeat(&runner.0, runner.1, bench.now), Ok(false));
    bench.state.cancel_run(run, bench.now).unwrap();
    assert_eq!(bench.status(run), JobStatus::Completed(Conclusion::Cancelled));
    assert_eq!(bench.state.heartbeat(&runner.0, runner.1, bench.now), Ok(true));
}

#[test]
fn a_job_nobody_could_ever_take_is_refused_by_name() {
    let mut bench = Bench::new();
    for labels in [vec![], vec![" "]] {
        let refused =
            bench.state.start_run(REPO, None, "w", vec![job(&labels)], false, bench.now).unwrap_err();
        assert!(
            refused.to_string().contains("runs_on") && refused.to_string().contains("build"),
            "{refused}"
        );
    }
    assert!(bench.state.start_run("octo", None, "w", vec![], false, bench.now).is_err());
}

#[test]
fn a_restart_forgives_the_silence_it_caused() {
    let mut bench = Bench::new();
    let runner = bench.online("a", &["x"]);
    let run = bench.queue("x");
    let job = bench.acquire(&runner).unwrap();
    bench.begin(&runner, job).unwrap();
    let stored = serde_json::to_string(&bench.state).unwrap();
    bench.pass(Duration::from_secs(3600));
    bench.state = serde_json::from_str(&stored).unwrap();
    bench.state.resume(bench.now);
    assert_eq!(bench.status(run), JobStatus::InProgress);
    bench.finish(&runner, job).unwrap();
    assert_eq!(bench.status(run), JobStatus::Completed(Conclusion::Success));
}

#[test]
fn old_runs_and_unused_labels_are_forgotten_and_open_runs_are_not() {
    let mut bench = Bench::new();
    let open = bench.state.start_run(REPO, Some(1), "w", vec![], true, bench.now).unwrap().id;
    for id in 2..=KEPT_RUNS as u64 + 5 {
        bench.state.start_run(REPO, Some(id), "w", vec![], false, bench.now).unwrap();
        let (runner, _) = bench.register("r", &[&format!("run-{id}")]);
        bench.state.remove_runner(REPO, runner, bench.now).unwrap();
    }
    bench.state.tick(bench.now);
    let kept: Vec<RunId> = bench.state.all_runs().map(|run| run.id).collect();
    assert_eq!((kept[0], kept[1], kept.len()), (open, 6, KEPT_RUNS + 1));
    assert!(bench.state.labels.len() <= 1, "{:?}", bench.state.labels);
}

#[test]
fn secrets_do_not_show_when_printed() {
    let mut bench = Bench::new();
    bench.register("a", &["x"]);
    assert!(!format!("{:?}", bench.state).contains("secret-"));
}

proptest! {
    /// Whatever runners do and whenever they vanish, no job is begun twice and none on a runner without its label.
    #[test]
    fn no_job_is_ever_begun_twice(moves in proptest::collection::vec((0_usize..3, 0_u8..7), 1..200)) {
        let mut bench = Bench::new();
        let labels = ["x", "x", "y"];
        let mut runners = Vec::new();
        for (index, label) in labels.iter().enumerate() {
            runners.push(bench.online(&format!("r{index}"), &[label]));
        }
        let mut held = [None; 3];
        let mut begun = std::collections::BTreeMap::new();
        for (who, what) in moves {
            let (credential, session) = runners[who].clone();
            match what {
                0 => { bench.queue("x"); }
                1 => { bench.queue("y"); }
                2 => held[who] = bench.state.acquire(&credential, session, bench.now).ok().flatten().map(|j| j.id),
                3 => if let Some(job) = held[who]
                    && bench.begin(&runners[who], job).is_ok() {
                        prop_assert_eq!(*begun.entry(job).or_insert((who, session)), (who, session));
                        let wanted = bench.state.jobs.get(&job).unwrap().spec.runs_on[0].clone();
                        prop_assert_eq!(wanted.as_str(), labels[who]);
                    },
                4 => if let Some(job) = held[who] { let _ = bench.finish(&runners[who], job); },
                5 => bench.pass(Duration::from_secs(6)),
                _ => if let Ok(session) = bench.state.open_session(&credential, "1", bench.now) {
                    runners[who].1 = session;
                    held[who] = None;
                },
            }
        }
    }
}

#[test]
fn labels_set_later_replace_the_custom_ones_and_jobs_go_by_them() {
    let mut bench = Bench::new();
    let runner = bench.online("r", &["at-rest"]);
    let id = bench.state.by_credential(&runner.0).unwrap().id;
    bench.queue("run-1");
    assert_eq!(bench.acquire(&runner), None);
    let set = |bench: &mut Bench, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        bench.state.set_labels(REPO, id, &names, bench.now)
    };
    let names =
        |runner: RegisteredRunner| runner.labels.into_iter().map(|label| label.name).collect::<Vec<_>>();
    assert_eq!(names(set(&mut bench, &["run-1", "RUN-1", "gpu"]).unwrap()), ["run-1", "gpu"]);
    let job = bench.acquire(&runner).expect("it listens already");
    bench.begin(&runner, job).unwrap();
    assert_eq!(names(set(&mut bench, &[]).unwrap()), [""; 0]);
    assert_eq!(bench.finish(&runner, job), Ok(()), "a job that it has goes on");
    bench.queue("at-rest");
    bench.queue("run-1");
    assert_eq!(bench.acquire(&runner), None);
}

#[test]
fn read_only_labels_stay_when_labels_are_set_and_a_listener_need_not_be_there() {
    let mut bench = Bench::new();
    let default = Registration { no_default_labels: false, ..registration("r", &["x"]) };
    let (id, _) = bench.try_register(default).unwrap();
    let set = bench.state.set_labels(REPO, id, &["y".to_owned(), "linux".to_owned()], bench.now).unwrap();
    let shown: Vec<_> = set.labels.iter().map(|label| (label.name.as_str(), label.custom)).collect();
    assert_eq!(shown, [("self-hosted", false), ("Linux", false), ("X64", false), ("y", true)]);
}

#[test]
fn labels_of_an_unknown_runner_or_that_github_does_not_take_are_refused() {
    let mut bench = Bench::new();
    let (id, _) = bench.register("r", &["x"]);
    let many = vec!["x".to_owned(); 101];
    for (scope, id, names, refusal) in [
        (REPO, id + 1, vec!["y".to_owned()], "not found"),
        ("octo/other", id, vec!["y".to_owned()], "not found"),
        (REPO, id, vec![" ".to_owned()], "invalid"),
        (REPO, id, vec!["a,b".to_owned()], "invalid"),
        (REPO, id, many, "invalid"),
    ] {
        let told = match bench.state.set_labels(scope, id, &names, bench.now) {
            Err(Refusal::NotFound) => "not found",
            Err(Refusal::Invalid(_)) => "invalid",
            other => panic!("{other:?}"),
        };
        assert_eq!(told, refusal, "{scope} {id} {names:?}");
    }
}

#[test]
fn jobs_go_by_the_former_labels_for_a_while_after_labels_were_set() {
    let mut bench = Bench::new();
    bench.state.behave(Behaviour { labels_late: Duration::from_secs(2), ..Behaviour::default() });
    let runner = bench.online("r", &["at-rest"]);
    let id = bench.state.by_credential(&runner.0).unwrap().id;
    bench.state.set_labels(REPO, id, &["run-1".to_owned()], bench.now).unwrap();
    bench.queue("run-1");
    assert_eq!(bench.acquire(&runner), None);
    let late = bench.queue("at-rest");
    bench.pass(Duration::from_secs(1));
    let job = bench.acquire(&runner).expect("by the label it had");
    bench.begin(&runner, job).unwrap();
    bench.finish(&runner, job).unwrap();
    assert!(bench.status(late).over());
    bench.queue("at-rest");
    bench.pass(Duration::from_secs(1));
    let job = bench.acquire(&runner).expect("by the new one");
    assert!(bench.state.jobs.get(&job).is_some_and(|job| job.spec.runs_on == ["run-1"]));
}
