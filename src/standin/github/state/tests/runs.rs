//! The rules of runs that wait, jobs that are listed late, and jobs that ring.

use super::*;

fn rung(bench: &mut Bench) -> Vec<(String, RunId)> {
    bench.state.take_queued().into_iter().map(|queued| (queued.repository, queued.run_id)).collect()
}

fn listed(bench: &mut Bench, run: RunId) -> usize {
    bench.state.tick(bench.now);
    bench.state.jobs_of(run).filter(|job| bench.state.lists(job)).count()
}

fn failed(name: &str) -> JobSpec {
    JobSpec { name: name.to_owned(), hosted: Some(Conclusion::Failure), ..job(&["x"]) }
}

#[test]
fn jobs_ring_once_for_each_change_that_queues_some_and_for_nothing_else() {
    let mut bench = Bench::new();
    let runner = bench.online("r", &["x"]);
    assert_eq!(rung(&mut bench), []);
    let run =
        bench.state.start_run(REPO, None, "w", vec![job(&["x"]), job(&["x"])], true, bench.now).unwrap().id;
    assert_eq!(rung(&mut bench), [(REPO.to_owned(), run)]);
    for _ in 0..2 {
        let taken = bench.acquire(&runner).unwrap();
        bench.begin(&runner, taken).unwrap();
        bench.finish(&runner, taken).unwrap();
    }
    bench.state.wait_for_approval(run, bench.now).unwrap();
    bench.state.add_jobs(run, vec![], true, bench.now).unwrap();
    assert_eq!(rung(&mut bench), [], "no job was queued");
    bench.state.add_jobs(run, vec![failed("last")], false, bench.now).unwrap();
    assert_eq!(rung(&mut bench), [(REPO.to_owned(), run)]);
    bench.state.rerun(REPO, run, Which::Failed, bench.now).unwrap();
    assert_eq!(rung(&mut bench), [(REPO.to_owned(), run)]);
    assert!(bench.state.start_run("octo", None, "w", vec![job(&["x"])], false, bench.now).is_err());
    assert_eq!(rung(&mut bench), [], "what is refused does not ring");
}

#[test]
fn a_job_that_goes_back_to_the_queue_does_not_ring_again() {
    let mut bench = Bench::new();
    let runner = bench.online("r", &["x"]);
    let run = bench.queue("x");
    rung(&mut bench);
    bench.acquire(&runner).unwrap();
    bench.pass(SILENT);
    assert_eq!(bench.status(run), JobStatus::Queued);
    assert_eq!(rung(&mut bench), []);
}

#[test]
fn a_queued_job_is_listed_once_the_delay_is_over_even_if_it_has_ended_before() {
    let mut bench = Bench::new();
    let delay = Duration::from_secs(5);
    bench.state.behave(Behaviour { job_list_delay: delay, ..Behaviour::default() });
    let run = bench.state.start_run(REPO, None, "w", vec![failed("a")], true, bench.now).unwrap().id;
    assert_eq!(listed(&mut bench, run), 0);
    bench.pass(Duration::from_secs(4));
    bench.state.add_jobs(run, vec![job(&["x"])], false, bench.now).unwrap();
    assert_eq!(listed(&mut bench, run), 0);
    bench.pass(Duration::from_secs(1));
    assert_eq!(listed(&mut bench, run), 1, "each job has its own delay");
    bench.pass(Duration::from_secs(4));
    assert_eq!(listed(&mut bench, run), 2);
}

#[test]
fn a_run_that_waits_is_not_over_and_a_cancelled_one_waits_for_nothing() {
    let mut bench = Bench::new();
    let run = bench.state.start_run(REPO, None, "w", vec![], true, bench.now).unwrap().id;
    assert!(bench.state.wait_for_approval(run, bench.now).unwrap().waits);
    let over = |bench: &Bench| bench.state.run_over(bench.state.run(REPO, run).unwrap());
    assert!(!over(&bench));
    bench.state.cancel_run(run, bench.now).unwrap();
    assert!(over(&bench) && !bench.state.run(REPO, run).unwrap().waits);
    let closed = bench.state.wait_for_approval(run, bench.now);
    assert!(matches!(closed, Err(Refusal::Invalid(_))), "{closed:?}");
    assert_eq!(bench.state.wait_for_approval(run + 1, bench.now), Err(Refusal::NotFound));
}
