//! Every plan of one call, workload by workload.

use std::collections::BTreeMap;

use crate::crash_plans::drive::{Ran, run};
use crate::crash_plans::oracle::allowed;
use crate::crash_plans::plan::{Call, Kind, Plan, Role, Single, parse};
use crate::crash_plans::workloads::{Workload, named};

/// A switch of these tests.
#[expect(clippy::disallowed_methods, reason = "a test's own switch; the product never reads it")]
pub(crate) fn switch(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The run in which nothing goes wrong.
pub(crate) fn reference(workload: &Workload) -> Ran {
    let ran =
        run(workload, Plan::default(), None).unwrap_or_else(|panic| panic!("{}: {panic}", workload.name));
    assert_eq!(ran.broken, Vec::<String>::new(), "{}\n{}", workload.name, ran.shown);
    ran
}

/// What is wrong with a run, as lines; which allowances it needed are counted.
pub(crate) fn wrongs(
    ran: &Result<Ran, String>,
    reference: &Ran,
    plan: &[(Call, Kind)],
    needed: &mut BTreeMap<&'static str, usize>,
) -> Vec<String> {
    let ran = match ran {
        Ok(ran) => ran,
        Err(panic) => return vec![panic.clone()],
    };
    let mut wrongs = ran.broken.clone();
    // The second of a pair may be a call that the first has made needless.
    if ran.hits == 0 || ran.hits > plan.len() {
        wrongs.push(format!("{} of {} planned faults happened", ran.hits, plan.len()));
    }
    for difference in ran.end.differs(&reference.end) {
        match allowed(&difference, plan) {
            Some(why) => *needed.entry(why).or_default() += 1,
            None => wrongs.push(format!(
                "{} is {:?} instead of {:?}",
                difference.what, difference.here, difference.reference
            )),
        }
    }
    wrongs
}

/// Runs every plan of a workload, or the one that `PLAN` names.
fn all_plans_of(name: &str) {
    let workload = named(name);
    let reference = reference(workload);
    if let Some(text) = switch("PLAN") {
        let (of, single) = parse(&text).unwrap();
        if of == name {
            replay(workload, &reference, single);
        }
        return;
    }
    let effects = reference.trace.iter().filter(|call| call.role == Role::Effect).count();
    let singles = Single::all(&reference.trace);
    let (mut failed, mut needed) = (Vec::new(), BTreeMap::new());
    for single in &singles {
        let plan = vec![single.on(&reference.trace)];
        let ran = run(workload, Plan(plan.clone()), Some(&reference.end));
        let wrongs = wrongs(&ran, &reference, &plan, &mut needed);
        if !wrongs.is_empty() {
            let at = format!("PLAN={name}:{}:{} ({})", single.number, single.kind, plan[0].0);
            failed.push(format!("{at}\n    {}", wrongs.join("\n    ")));
        }
    }
    println!(
        "{name}: {} plans of {effects} effects and {} reads ({} reads would have said the same); allowed: {needed:?}",
        singles.len(),
        reference.trace.len() - effects,
        reference.same
    );
    assert!(failed.is_empty(), "{} of {} plans:\n{}", failed.len(), singles.len(), failed.join("\n"));
}

/// One plan, with all there is to know about it.
fn replay(workload: &Workload, reference: &Ran, single: Single) {
    let planned = single.on(&reference.trace);
    for (number, call) in reference.trace.iter().enumerate() {
        let mark = if number == single.number { ">>>" } else { "   " };
        println!("{mark} {number:4} {call}");
    }
    println!("{planned:?}\nthe reference ends so:\n{}\n", reference.shown);
    let plan = vec![planned];
    let ran = run(workload, Plan(plan.clone()), Some(&reference.end));
    if let Ok(ran) = &ran {
        println!("and this:\n{}", ran.shown);
        ran.trace.iter().enumerate().for_each(|(number, call)| println!("    {number:4} {call}"));
    }
    let wrongs = wrongs(&ran, reference, &plan, &mut BTreeMap::new());
    assert!(wrongs.is_empty(), "{wrongs:#?}");
}

macro_rules! singles {
    ($($test:ident => $workload:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            all_plans_of($workload);
        })+
    };
}

singles! {
    a_cold_provision_ends_the_same_whatever_call_goes_wrong => "cold_provision",
    a_warm_claim_ends_the_same_whatever_call_goes_wrong => "warm_claim",
    a_claim_with_a_launch_ends_the_same_whatever_call_goes_wrong => "claim_and_launch",
    release_and_reuse_end_the_same_whatever_call_goes_wrong => "release_and_reuse",
    single_use_runners_end_the_same_whatever_call_goes_wrong => "single_use_runners",
    a_machine_that_never_registers_ends_the_same_whatever_call_goes_wrong => "machine_never_registers",
    a_lost_machine_ends_the_same_whatever_call_goes_wrong => "machine_lost_while_running",
    a_machine_that_cannot_be_cleaned_ends_the_same_whatever_call_goes_wrong => "machine_that_cannot_be_cleaned",
    an_interruption_ends_the_same_whatever_call_goes_wrong => "spot_interruption",
    scaling_ends_the_same_whatever_call_goes_wrong => "scale_up_and_down",
    a_cancelled_request_ends_the_same_whatever_call_goes_wrong => "request_cancelled_while_it_boots",
    two_requests_end_the_same_whatever_call_goes_wrong => "two_requests_for_two_machines",
    a_run_without_release_ends_the_same_whatever_call_goes_wrong => "run_ends_without_release",
    jobs_of_a_scale_set_end_the_same_whatever_call_goes_wrong => "scale_set_serves_jobs",
}
