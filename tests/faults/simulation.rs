//! Operators, agents and workflows of production on one thread, in simulated time, while everything that can go wrong
//! does: one seed decides it all. `SEED=7` lives one seed and tells every event; `SEEDS=10000` lives so many, and
//! `FIRST=7` begins with that one. `TRACES=DIRECTORY` writes there each seed's events, and where this program's code lies.

mod actor;
mod bugs;
mod chance;
mod fault_rates;
mod injection;
mod laws;
mod layout;
mod ledger;
mod life;
mod machines;
mod neighbours;
mod operators;
mod plans;
mod queued_jobs;
mod rings;
mod services;
mod set_jobs;
mod shares;
mod sim_host;
mod table;
mod trace;
mod unreadable;
mod users;
mod versions;
mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bugs::Bug;
use fault_rates::Fault;
use life::{
    Report, live, live_under, live_with_late_jobs, live_with_neighbours, live_with_queued_jobs,
    live_with_set_jobs,
};

/// Runs of workflows in the test of those.
const RUNS: u64 = 1000;

/// Seeds of every run of the tests.
const SEEDS: u64 = 200;

#[allow(clippy::disallowed_methods, reason = "what a person asks this test for")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn asked(name: &str) -> Option<u64> {
    let value = variable(name)?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value}: must be a whole number, such as {name}=200")),
    )
}

/// Where the events of this seed go, when somebody wants to compare traces.
fn trace_file(seed: u64) -> Option<PathBuf> {
    variable("TRACES").map(|directory| Path::new(&directory).join(seed.to_string()))
}

/// Lives these seeds on two threads, or as many of them as fit into `MINUTES=`.
#[allow(clippy::disallowed_methods, reason = "how long a person has for this")]
fn live_all(first: u64, seeds: u64) -> Vec<Report> {
    let (next, reports) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let (begun, minutes) = (std::time::Instant::now(), asked("MINUTES").unwrap_or(u64::MAX / 60));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= first + seeds || begun.elapsed() >= Duration::from_secs(60 * minutes) {
                        return;
                    }
                    let report = live(seed, false, None);
                    if let Some(failure) = &report.failure {
                        println!("{failure}");
                    }
                    reports.lock().unwrap().push(report);
                }
            });
        }
    });
    reports.into_inner().unwrap()
}

#[test]
fn every_promise_holds_under_every_seed() {
    if let Some(directory) = variable("TRACES") {
        std::fs::write(Path::new(&directory).join("layout"), layout::layout()).unwrap();
    }
    if let Some(seed) = asked("SEED") {
        let report = live(seed, true, variable("BUG").map(|name| named(&name)));
        table(std::slice::from_ref(&report));
        assert!(report.failure.is_none(), "{}", report.failure.unwrap_or_default());
        return;
    }
    let seeds = asked("SEEDS").unwrap_or(SEEDS);
    let reports = live_all(asked("FIRST").unwrap_or(1), seeds);
    table(&reports);
    let failed: Vec<u64> = reports.iter().filter(|r| r.failure.is_some()).map(|report| report.seed).collect();
    assert!(failed.is_empty(), "{} of {} seeds failed: {failed:?}", failed.len(), reports.len());
    if reports.len() as u64 >= SEEDS {
        let fired = fired(&reports);
        let never: Vec<&Fault> = Fault::ALL.iter().filter(|fault| !fired.contains_key(fault)).collect();
        assert!(never.is_empty(), "never fired: {never:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_twice() {
    for seed in [3, 11] {
        let (first, second) = (live(seed, false, None), live(seed, false, None));
        assert_eq!((first.hash, first.calls), (second.hash, second.calls), "seed {seed}");
    }
}

/// A process of this program that lives two seeds: its traces, and where its code, its stack and its heap lie.
fn elsewhere(prepare: impl FnOnce(&mut Command)) -> (Vec<String>, String) {
    let traces = tempfile::tempdir().unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["simulation::every_promise_holds_under_every_seed", "--exact"]);
    prepare(&mut process);
    process
        .env_remove("SEED")
        .env_remove("MINUTES")
        .envs([("FIRST", "5"), ("SEEDS", "2")])
        .env("TRACES", traces.path());
    let ended = process.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    let read = |name: &str| std::fs::read_to_string(traces.path().join(name)).unwrap();
    (vec![read("5"), read("6")], read("layout"))
}

/// The traces of two builds are compared by tests/system/layout/run.
#[test]
fn the_same_seed_gives_the_same_trace_wherever_its_process_lies() {
    let place = tempfile::tempdir().unwrap();
    let (traces, layout) = elsewhere(|_| {});
    let (others, other) = elsewhere(|process| {
        let long = "x".repeat(100_000);
        process.env_clear().current_dir(place.path()).arg("--test-threads=1");
        process.envs([("COLUMNS", "20"), ("TZ", "Asia/Tokyo"), ("LANG", "C"), ("LONG", &long)]);
        process.env("TMPDIR", place.path()).env("RUST_MIN_STACK", "16777216");
        process.envs([("MALLOC_ARENA_MAX", "1"), ("MALLOC_PERTURB_", "165"), ("MALLOC_TOP_PAD_", "1234567")]);
    });
    assert_ne!(layout, other, "both processes lie at the same addresses: their traces say nothing");
    for (trace, other) in traces.iter().zip(&others) {
        let differs = trace.lines().zip(other.lines()).position(|(one, two)| one != two);
        let line = differs.unwrap_or_else(|| trace.lines().count().min(other.lines().count()));
        let from = line.saturating_sub(5);
        let shown = |of: &str| of.lines().skip(from).take(8).collect::<Vec<_>>().join("\n");
        assert!(trace == other, "line {}:\n{}\n-- and\n{}", line + 1, shown(trace), shown(other));
    }
}

/// A stand-by that held back from something overdue judged it again and again without a pause: time stood still.
#[test]
fn without_faults_nothing_loops() {
    for seed in 1..=2 {
        let report = live_under(seed, false, None, Some(&[]));
        assert!(report.failure.is_none(), "{}", report.failure.unwrap_or_default());
    }
}

/// An operator's clock was an hour ahead: the others took the deadlines that it wrote for far away, did not renew them,
/// and the agents, who count how long a deadline was set for, ended machine after machine.
#[test]
fn idle_machines_outlive_an_operator_whose_clock_was_ahead() {
    // The first of three hundred seeds under which this defect ends machines when only clocks are wrong.
    let report = live_under(315, false, None, Some(&[Fault::ClocksDiffer, Fault::ClockSteps]));
    assert!(report.failure.is_none(), "{}", report.failure.unwrap_or_default());
}

/// The leader did not know of an intent whose answer was lost, wrote another at once, and both together were over the
/// class's `max`. Now the same intent is written until the table says what became of it.
#[test]
fn no_launch_is_asked_for_beside_one_that_may_be_on_its_way() {
    for seed in 1..=3 {
        let faults = [Fault::StoreAppliesLate, Fault::StoreLosesAnswer, Fault::LaunchRefused];
        let report = live_under(seed, false, None, Some(&faults));
        assert!(report.failure.is_none(), "{}", report.failure.unwrap_or_default());
    }
}

/// Records that others depend on cannot be read for a while, and nothing else goes wrong: no machine is lost for it,
/// and no request says that it gave back what still serves.
#[test]
fn records_that_cannot_be_read_for_a_while_cost_no_machine() {
    for seed in 1..=4 {
        let report = live_under(seed, false, None, Some(&[Fault::RecordUnreadable]));
        assert!(report.failure.is_none(), "{}", report.failure.unwrap_or_default());
        assert!(report.fired.contains_key(&Fault::RecordUnreadable), "seed {seed}");
    }
}

/// Whatever runs do (jobs fail and are run again, runs are cancelled, machines are lost, runner versions appear and
/// break): every queued job with a label of ours gets a machine or a reason.
#[test]
#[ignore = "takes two minutes: on demand, see docs/reliability.md"]
fn each_of_a_thousand_runs_gets_its_machines_or_a_reason() {
    let faults = [
        Fault::JobsRunAgain,
        Fault::ReleasedEarly,
        Fault::RunEndsUnreleased,
        Fault::MachineDies,
        Fault::SpotNotice,
        Fault::RunnerDies,
        Fault::BootFails,
        Fault::LaunchRefused,
        Fault::VersionsAppear,
    ];
    let (next, told) = (AtomicU64::new(1), Mutex::new((0, 0, BTreeMap::<String, u64>::new())));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while told.lock().unwrap().0 < RUNS {
                    let report = live_under(next.fetch_add(1, Ordering::SeqCst), false, None, Some(&faults));
                    assert!(report.failure.is_none(), "{}", report.failure.unwrap_or_default());
                    let mut told = told.lock().unwrap();
                    told.0 += report.outcomes.values().sum::<u64>() - report.derived;
                    told.1 += report.derived;
                    report.outcomes.into_iter().for_each(|(what, n)| *told.2.entry(what).or_default() += n);
                }
            });
        }
    });
    let (runs, derived, outcomes) = told.into_inner().unwrap();
    println!("{runs} runs, {derived} requests for re-runs of failed jobs: {outcomes:?}");
    assert!(runs >= RUNS && derived > 0, "{runs} {derived}");
    assert!(outcomes.keys().all(|what| !what.starts_with("no reason")), "{outcomes:?}");
    assert!(outcomes["served"] * 5 > runs, "machines are had nevertheless: {outcomes:?}");
}

/// Seeds of neighbours in every run of the tests.
const NEIGHBOURS: u64 = 12;

/// L15: a typo, a wrong run, a wrong credential and idle machines of other trust domains cost nobody else his machines.
#[test]
fn no_request_fails_or_waits_for_what_its_neighbours_do() {
    let seeds = asked("SEED").map_or(1..=NEIGHBOURS, |seed| seed..=seed);
    let told = asked("SEED").is_some();
    let mut served = 0;
    for seed in seeds {
        served += live_with_neighbours(seed, told, None).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{served} requests served");
    assert!(told || served > 5 * NEIGHBOURS, "{served} served: the law was hardly asked");
}

/// Seeds of queued jobs in every run of the tests.
const QUEUED_JOBS: u64 = 12;

/// L16, S39, S40: jobs that name a class by their label get machines whatever is lost or late, none that has begun is
/// ended, and nobody else's label makes a request.
#[test]
fn queued_jobs_get_machines_and_no_begun_job_is_ended() {
    let seeds = asked("SEED").map_or(1..=QUEUED_JOBS, |seed| seed..=seed);
    let told = asked("SEED").is_some();
    let mut begun = 0;
    for seed in seeds {
        begun += live_with_queued_jobs(seed, told, None).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{begun} jobs began");
    assert!(told || begun > 10 * QUEUED_JOBS, "{begun} began: the laws were hardly asked");
}

/// Seeds of runner scale sets in every run of the tests.
const SET_JOBS: u64 = 12;

/// L18, S39, S41, S42: jobs that name the label of a scale set get runners whatever is lost, late or told twice, and none
/// that has begun is ended.
#[test]
fn jobs_of_a_scale_set_get_runners_and_no_begun_job_is_ended() {
    let seeds = asked("SEED").map_or(1..=SET_JOBS, |seed| seed..=seed);
    let told = asked("SEED").is_some();
    let bug = variable("BUG").map(|name| named(&name));
    let mut served = 0;
    for seed in seeds {
        served += live_with_set_jobs(seed, told, bug).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{served} jobs served");
    assert!(told || served > 10 * SET_JOBS, "{served} served: the laws were hardly asked");
}

/// How many moments are tried in every run of the tests.
const TIMINGS: u64 = 100;

/// S39: no begun job is ended, whenever it comes while its runner is given back. `TIMINGS=10000` tries so many moments.
#[test]
fn a_job_that_comes_while_its_runner_is_given_back_is_not_ended() {
    let timings = asked("TIMINGS").unwrap_or(TIMINGS);
    let bug = variable("BUG").map(|name| named(&name));
    let (given_back, taken) = live_with_late_jobs(1, timings, bug).unwrap_or_else(|why| panic!("{why}"));
    println!("{given_back} runners were given back, {taken} got the late job");
    assert!(given_back > timings / 10 && taken > timings / 10, "{given_back}, {taken}: not what is meant");
}

#[test]
fn a_busy_runner_that_is_given_back_is_seen() {
    let seen = live_with_late_jobs(1, TIMINGS, Some(Bug::BusyGivenBack)).expect_err("a job is ended");
    assert!(seen.starts_with("S39"), "{seen}");
}

/// Most seeds until a defect must be seen.
const PATIENCE: u64 = 200;

#[test]
#[ignore = "takes minutes: on demand, see docs/reliability.md"]
fn every_seeded_bug_is_seen() {
    let bugs = variable("BUG").map_or(Bug::ALL.to_vec(), |name| vec![named(&name)]);
    let (next, missed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::SeqCst) as usize).copied() {
                    let mut calls = 0;
                    let found = (1..=PATIENCE).find_map(|seed| {
                        if bug.harms_neighbours() {
                            return live_with_neighbours(seed, false, Some(bug)).err();
                        }
                        if bug.harms_queued_jobs() {
                            return live_with_queued_jobs(seed, false, Some(bug)).err();
                        }
                        if bug == Bug::BusyGivenBack {
                            return live_with_late_jobs(seed, TIMINGS, Some(bug)).err();
                        }
                        if bug.harms_set_jobs() {
                            return live_with_set_jobs(seed, false, Some(bug)).err();
                        }
                        let report = live(seed, false, Some(bug));
                        calls += report.calls;
                        report.failure
                    });
                    match found {
                        Some(failure) => {
                            let seen = failure.lines().next().unwrap_or_default();
                            println!("{bug:?}, {}: {seen} ({calls} calls)", bug.story());
                        }
                        None => missed.lock().unwrap().push(bug),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not seen under {PATIENCE} seeds: {missed:?}");
}

/// The seeded bug of this name.
fn named(name: &str) -> Bug {
    let found = Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name);
    found.unwrap_or_else(|| panic!("BUG={name}: must be one of {:?}", Bug::ALL))
}

fn fired(reports: &[Report]) -> BTreeMap<Fault, u64> {
    let mut fired = BTreeMap::new();
    for (fault, times) in reports.iter().flat_map(|report| &report.fired) {
        *fired.entry(*fault).or_default() += times;
    }
    fired
}

/// Prints what was lived through.
fn table(reports: &[Report]) {
    let calls: u64 = reports.iter().map(|report| report.calls).sum();
    let simulated: Duration = reports.iter().map(|report| report.simulated).sum();
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    println!(
        "{} seeds, traces {:016x}, {calls} port calls, at most {} of one, {:.1} simulated hours, {} requests ready, {} claims, {} of them of pooled machines, {} compared by share, nobody passed over more than {} times",
        reports.len(),
        reports.iter().fold(0, |all, report| all ^ report.hash),
        reports.iter().map(|report| report.calls).max().unwrap_or(0),
        simulated.as_secs_f64() / 3600.0,
        sum(|r| r.ready),
        sum(|r| r.claims),
        sum(|r| r.reused),
        sum(|r| r.compared),
        reports.iter().map(|report| report.passed_over).max().unwrap_or(0)
    );
    for (fault, times) in fired(reports) {
        println!("{:<20} {:<8} {times}", format!("{fault:?}"), fault.code());
    }
}
