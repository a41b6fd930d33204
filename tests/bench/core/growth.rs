//! How do time and memory grow with the number of records?

use runyard_core::decide::decide;
use runyard_core::model::{InstanceArn, Versioned as _};
use runyard_core::yard::{Observation, Unit, Written};

use super::yards;

/// Times one thing is done for one figure; of five figures the least counts.
const REPEATS: usize = 200_000;

/// What is measured at one size.
struct Row {
    records: usize,
    /// Nanoseconds of each measure.
    times: Vec<(&'static str, f64)>,
    /// Bytes a record.
    bytes: f64,
}

/// This thread's time on a processor, in nanoseconds: others who use the machine meanwhile do not count.
pub(crate) fn on_cpu() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells a thread's time");
    told.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number comes first")
}

/// The least of five means, in nanoseconds.
fn nanos(repeats: usize, mut once: impl FnMut(usize)) -> f64 {
    let mean = |_| {
        let begun = on_cpu();
        (0..repeats).for_each(&mut once);
        (on_cpu() - begun) / repeats as f64
    };
    (0..5).map(mean).fold(f64::INFINITY, f64::min)
}

fn row(records: usize) -> Row {
    let mut world = None;
    let info = allocation_counter::measure(|| world = Some(yards::yard_of_items(records)));
    let mut world = world.expect("it was just made");
    let bytes = info.bytes_current as f64 / records as f64;
    let machines: Vec<InstanceArn> =
        world.yard.instances().map(|tracked| tracked.instance.facts.instance_arn.clone()).collect();
    // All over the yard, so that nothing is in a cache that would not be there.
    let spread = |n: usize| &machines[n.wrapping_mul(7919) % machines.len()];
    let beats = nanos(REPEATS, |n| {
        let mut agent = world.yard.instance(spread(n)).unwrap().agent.clone().unwrap();
        agent.heartbeat_seq += 1;
        world.yard.observe(Observation::Written(Box::new(Written::Agent(agent))), &world.now);
    });
    let updates = nanos(REPEATS, |n| {
        let mut instance = world.yard.instance(spread(n)).unwrap().instance.clone();
        instance.advance(world.now.wall);
        world.yard.observe(Observation::Written(Box::new(Written::Instance(instance))), &world.now);
    });
    let cx = world.context();
    let machine = nanos(REPEATS, |n| {
        std::hint::black_box(decide(&cx, &Unit::Instance(spread(n).clone())));
    });
    let class = nanos(REPEATS, |n| {
        std::hint::black_box(decide(&cx, &Unit::Class(yards::class(n))));
    });
    let units = cx.yard.units();
    let all = nanos(1 + 100_000 / units.len(), |_| {
        units.iter().for_each(|unit| drop(std::hint::black_box(decide(&cx, unit))));
    }) / units.len() as f64;
    let mut number = yards::fresh(records);
    let cycles = nanos(1_000, |_| {
        number += 1;
        yards::cycle(&mut world, number, &mut |_, world, change| change(world));
    });
    let times = vec![
        ("a beat, indexed", beats),
        ("a machine's change, indexed", updates),
        ("decide on a machine", machine),
        ("decide on a class", class),
        ("decide on everything, each", all),
        ("a warm cycle, all of it", cycles),
    ];
    Row { records, times, bytes }
}

/// The exponent of growth between two sizes.
fn exponent(small: (usize, f64), large: (usize, f64)) -> f64 {
    (large.1 / small.1).ln() / (large.0 as f64 / small.0 as f64).ln()
}

/// Prints the table.
pub(crate) fn print(most: usize) {
    let sizes = [1_000, 10_000, 100_000, 1_000_000];
    let rows: Vec<Row> = sizes.into_iter().filter(|size| *size <= most).map(row).collect();
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    print!("\n{:<32}", "records");
    rows.iter().for_each(|row| print!("{:>12}", row.records));
    println!("{:>10}", "exponent");
    for (at, (what, small)) in first.times.iter().enumerate() {
        print!("{:<32}", format!("{what} (ns)"));
        rows.iter().for_each(|row| print!("{:>12.0}", row.times[at].1));
        println!("{:>10.2}", exponent((first.records, *small), (last.records, last.times[at].1)));
    }
    print!("{:<32}", "memory a record (bytes)");
    rows.iter().for_each(|row| print!("{:>12.0}", row.bytes));
    let total = |row: &Row| row.bytes * row.records as f64;
    println!("{:>10.2}", exponent((first.records, total(first)), (last.records, total(last))));
}
