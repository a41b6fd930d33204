//! Two mishaps in one run, drawn at random: `PAIRS` of them (300) from `SEED` (1).

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::crash_plans::drive::{Ran, run};
use crate::crash_plans::plan::{Plan, Single};
use crate::crash_plans::singles::{reference, switch, wrongs};
use crate::crash_plans::workloads::ALL;

fn number(name: &str, default: u64) -> u64 {
    switch(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
#[ignore = "on demand: half a minute for every few hundred pairs"]
fn two_calls_that_go_wrong_end_the_same() {
    let (count, seed) = (number("PAIRS", 300), number("SEED", 1));
    let references: Vec<Ran> = ALL.iter().map(reference).collect();
    let mut random = StdRng::seed_from_u64(seed);
    let (mut failed, mut needed, mut both) = (Vec::new(), BTreeMap::new(), 0);
    for _ in 0..count {
        let at = random.random_range(0..ALL.len());
        let (workload, reference) = (&ALL[at], &references[at]);
        let singles = Single::all(&reference.trace);
        let mut draw = || *singles.choose(&mut random).expect("there are calls");
        let (one, two) = (draw(), draw());
        if one.number == two.number {
            continue;
        }
        let plan: Vec<_> = [one, two].map(|single| single.on(&reference.trace)).into();
        let ran = run(workload, Plan(plan.clone()), Some(&reference.end));
        both += u64::from(ran.as_ref().is_ok_and(|ran| ran.hits == 2));
        let wrongs = wrongs(&ran, reference, &plan, &mut needed);
        if !wrongs.is_empty() {
            let what =
                format!("{}:{}:{} and {}:{}", workload.name, one.number, one.kind, two.number, two.kind);
            failed.push(format!("{what}\n  {} and {}\n    {}", plan[0].0, plan[1].0, wrongs.join("\n    ")));
        }
    }
    println!("{count} pairs from seed {seed}, both met in {both}; allowed: {needed:?}");
    assert!(failed.is_empty(), "{} of {count} pairs:\n{}", failed.len(), failed.join("\n"));
}
