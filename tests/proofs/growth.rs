//! Does the work for one change depend on how many records there are? Counted in allocations, exactly; how many records
//! are visited is counted beside the rules (`src/core/decide/growth_tests.rs`).

#[path = "../bench/core/day.rs"]
#[allow(dead_code, reason = "the benchmarks take the rest")]
mod day;
#[path = "../bench/core/world.rs"]
#[allow(dead_code, reason = "the benchmarks take the rest")]
mod world;
#[path = "../bench/core/yards.rs"]
#[allow(dead_code, reason = "the benchmarks take the rest")]
mod yards;

use std::collections::BTreeMap;

/// Cycles that are counted; of each change the least counts, since now and then a node of an index is split.
const CYCLES: usize = 20;

/// Allocations of each change of a cycle.
fn allocations(records: usize) -> BTreeMap<String, u64> {
    let mut world = yards::yard(records);
    world.metered = true;
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for number in 0..CYCLES {
        yards::cycle(&mut world, yards::fresh(records) + number, &mut |what, world, change| {
            world.allocations = 0;
            change(world);
            let least = counted.entry(what.to_owned()).or_insert(u64::MAX);
            *least = world.allocations.min(*least);
        });
    }
    counted
}

#[test]
fn one_change_allocates_the_same_among_a_thousand_and_a_hundred_thousand_records() {
    let (few, many) = (allocations(1_000), allocations(100_000));
    println!("{few:#?}");
    assert_eq!(few, many);
}

#[test]
fn a_day_on_the_real_core_serves_its_jobs_and_is_the_same_bit_for_bit_the_second_time() {
    let first = day::play(400, 20);
    assert_eq!(first, day::play(400, 20));
    println!("{first:?}");
    // Some are still at work, or wait for a machine of their class, when the day ends.
    assert!(first.served > 300 && first.machines <= 20, "{first:?}");
}
