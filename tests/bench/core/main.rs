//! What does the pure core cost? `cargo bench -p runyard-core --bench core`: single operations first,
//! then how time and memory grow from a thousand records to a million, with the exponents of that growth.
//! `-- --day` plays a simulated day instead (`-- --day 1000000 20000`: so many jobs on so many machines).

#![allow(clippy::unwrap_used, reason = "what a benchmark needs and does not get ends it")]

mod day;
mod growth;
mod single;
mod world;
mod yards;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    if arguments.iter().any(|argument| argument == "--day") {
        let number = |at: usize, usual: u64| numbers.get(at).copied().unwrap_or(usual);
        return day::print(number(0, 1_000_000), number(1, 20_000), growth::on_cpu);
    }
    if !arguments.iter().any(|argument| argument == "--growth") {
        divan::main();
    }
    growth::print(numbers.first().map_or(1_000_000, |most| *most as usize));
}
