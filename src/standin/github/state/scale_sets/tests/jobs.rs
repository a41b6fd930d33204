//! Jobs of sets: who gets them, how assignments lapse, and when their end is told.

use super::*;
use crate::github::behaviour::{Completion, Routing};

const DAY: u64 = 24 * 60 * 60;

/// [live]: a set serves a job if its labels are a superset.
#[test]
fn a_set_serves_the_jobs_that_want_no_other_labels() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small", "Linux"], 9);
    let served = [bench.queue(&["SMALL"]), bench.queue(&["linux", "small"])];
    bench.queue(&["small", "gpu"]);
    let other = JobWish {
        owner: "octo".into(),
        repository: "web".into(),
        run_id: 8,
        name: "b".into(),
        labels: vec!["small".into()],
    };
    bench.service.queue_job(5000, other.clone(), bench.now);
    let told: Vec<u64> = bench.told(set).into_iter().map(|(_, job, _)| job).collect();
    assert_eq!(told, served);
    let whole = bench.service.create_set("Octo", &spec(&["small"]), bench.now).unwrap().id;
    bench.service.open(whole, "us", SESSION, bench.now).unwrap();
    assert_eq!(bench.told(whole), [(NewsKind::Assigned, 5000, String::new())], "an organisation's set");
    bench.service.queue_job(5000, other, bench.now);
    assert_eq!(bench.service.jobs().count(), 4, "a known job is not queued again");
}

/// [live]: github.com assigns at once; a runner takes any job of its set, not the one it was made for.
#[test]
fn a_runner_takes_any_job_of_its_set() {
    for (routing, taken) in [(Routing::Oldest, 0), (Routing::Newest, 2), (Routing::Scattered, 1)] {
        let mut bench = Bench::behaving(SetBehaviour { routing, ..SetBehaviour::default() });
        let set = bench.listening(&["small"], 9);
        let jobs: Vec<u64> = (0..3).map(|_| bench.queue(&["small"])).collect();
        let runner = bench.runner(set);
        let taken = if routing == Routing::Scattered { (runner % 3) as usize } else { taken };
        assert_eq!(bench.take(runner), Some(jobs[taken]));
        assert_eq!(bench.take(runner), Some(jobs[taken]), "asked again it has the same");
        assert_eq!(bench.kinds(set), [NewsKind::Assigned; 3]);
        bench.service.job_starts(jobs[taken], bench.now);
        bench.service.job_ends(jobs[taken], "failed", bench.now);
        let told = bench.told(set);
        let job = jobs[taken];
        assert_eq!(told, [(NewsKind::Started, job, "".into()), (NewsKind::Completed, job, "failed".into())]);
        assert_eq!(bench.service.runners().count(), 0, "it is a single-use runner");
    }
}

/// [live]: without a runner within 5 min an assignment lapses, three times, each time under another name; 24 h in all.
#[test]
fn an_assignment_lapses_three_times_and_the_job_is_given_up_after_a_day() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 9);
    let job = bench.queue(&["small"]);
    let name = |bench: &Bench| bench.service.job(job).unwrap().facts.job_id.clone();
    let mut names = vec![name(&bench)];
    assert_eq!(bench.kinds(set), [NewsKind::Assigned]);
    for _ in 0..3 {
        for _ in 0..10 {
            bench.pass(30);
            bench.service.listens(set, SESSION.0, SESSION.1, bench.now).unwrap();
        }
        let told = bench.told(set);
        assert_eq!(told[0], (NewsKind::Completed, job, "canceled".into()));
        assert_eq!(told[1], (NewsKind::Assigned, job, String::new()));
        names.push(name(&bench));
    }
    bench.pass(DAY / 2);
    assert_eq!(name(&bench), names[3], "it lapses no more");
    names.dedup();
    assert_eq!(names.len(), 4);
    bench.pass(DAY / 2);
    assert_eq!(bench.service.job(job), None);
}

/// queue.md 3.6: a job on its way to a runner that is removed lapses, and goes to another runner within 5 min.
#[test]
fn a_job_on_its_way_to_a_removed_runner_lapses_and_goes_to_another() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 9);
    let job = bench.queue(&["small"]);
    let (first, second) = (bench.runner(set), bench.runner(set));
    assert_eq!(bench.take(first), Some(job));
    bench.service.remove_runner(SCOPE, first, bench.now).unwrap();
    assert_eq!(bench.take(second), None);
    bench.pass(299);
    assert_eq!(bench.take(second), None);
    bench.pass(1);
    assert_eq!(bench.take(second), Some(job));
}

/// [live]: `JobCompleted` comes minutes late or never; actions/runner#4492: or early.
#[test]
fn the_end_of_a_job_is_told_late_never_or_early() {
    use NewsKind::{Assigned, Completed, Started};
    let late = Completion::Late(Duration::from_secs(30));
    let cases = [
        (Completion::OnTime, vec![Assigned, Started], vec![Completed], vec![]),
        (late, vec![Assigned, Started], vec![], vec![Completed]),
        (Completion::Never, vec![Assigned, Started], vec![], vec![]),
        (Completion::Early, vec![Assigned, Started, Completed], vec![], vec![]),
    ];
    for (completion, before, at_end, later) in cases {
        let mut bench = Bench::behaving(SetBehaviour { completion, ..SetBehaviour::default() });
        let set = bench.listening(&["small"], 9);
        let job = bench.queue(&["small"]);
        let runner = bench.runner(set);
        assert_eq!(bench.take(runner), Some(job));
        bench.service.job_starts(job, bench.now);
        bench.service.job_starts(job, bench.now);
        assert_eq!(bench.kinds(set), before, "{completion:?}");
        bench.service.job_ends(job, "succeeded", bench.now);
        assert_eq!(bench.kinds(set), at_end, "{completion:?}");
        bench.pass(30);
        assert_eq!(bench.kinds(set), later, "{completion:?}");
        assert_eq!(bench.service.statistics(set).assigned, 0);
    }
}

/// A job that is cancelled before a runner begins it ends as its assignment does.
#[test]
fn a_cancelled_job_s_assignment_is_canceled() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 9);
    let job = bench.queue(&["small"]);
    bench.service.job_ends(job, "canceled", bench.now);
    let told = bench.told(set);
    assert_eq!(told, [(NewsKind::Assigned, job, "".into()), (NewsKind::Completed, job, "canceled".into())]);
}

/// [s]: at a GitHub Enterprise Server a job is available first, and assigned once it is acquired.
#[test]
fn where_jobs_must_be_acquired_they_are_available_first() {
    let mut bench = Bench::behaving(SetBehaviour { acquires: true, ..SetBehaviour::default() });
    let set = bench.listening(&["small"], 9);
    let job = bench.queue(&["small"]);
    let runner = bench.runner(set);
    assert_eq!(bench.told(set), [(NewsKind::Available, job, String::new())]);
    assert_eq!(bench.take(runner), None);
    assert_eq!(bench.service.statistics(set).available, 1);
    assert_eq!(bench.service.acquire(set, &[job, 4242], bench.now), [job]);
    assert_eq!(bench.told(set), [(NewsKind::Assigned, job, String::new())]);
    assert_eq!(bench.service.acquire(set, &[job], bench.now), [job], "acquiring again is harmless");
    assert_eq!(bench.take(runner), Some(job));
}
