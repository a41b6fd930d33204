//! How long until the command line says its first byte, and how large are the programs?

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::floors::Figures;

fn first_byte() -> Duration {
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_runyard"))
        .arg("--help")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut byte = [0];
    child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
    let took = begun.elapsed();
    child.wait().unwrap();
    took
}

/// Measures and prints.
pub(crate) fn measure(figures: &mut Figures) {
    let mut times: Vec<Duration> = (0..50).map(|_| first_byte()).collect();
    times.sort();
    let (median, most) = (times[25].as_secs_f64() * 1000.0, times[49].as_secs_f64() * 1000.0);
    println!("\nrunyard --help to its first byte: p50 {median:.1} ms, max {most:.1} ms");
    figures.add("command line to its first byte, ms", median);
}
