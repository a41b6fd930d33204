//! The records that one change makes the rules look at are as many in a small yard as in a large one.

use std::collections::BTreeMap;

use super::visits;

#[path = "../../tests/bench/core/world.rs"]
#[allow(dead_code, reason = "the benchmarks take the rest")]
mod world;
#[path = "../../tests/bench/core/yards.rs"]
#[allow(dead_code, reason = "the benchmarks take the rest")]
mod yards;

/// Records visited by each change of a cycle, the same every time.
fn visited(records: usize) -> BTreeMap<String, u64> {
    let mut world = yards::yard(records);
    let mut counted = BTreeMap::new();
    for number in 0..3 {
        yards::cycle(&mut world, yards::fresh(records) + number, &mut |what, world, change| {
            visits::take();
            change(world);
            let visits = visits::take();
            let before = counted.insert(what.to_owned(), visits);
            assert!(before.is_none_or(|before| before == visits), "{what}: {before:?}, then {visits}");
        });
    }
    counted
}

#[test]
fn one_change_visits_as_many_records_among_a_thousand_as_among_a_hundred_thousand() {
    let (few, many) = (visited(1_000), visited(100_000));
    println!("{few:#?}");
    assert_eq!(few, many);
}
