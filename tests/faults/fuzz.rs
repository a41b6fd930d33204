//! What comes from outside, bent out of shape: whatever the bytes, the answer is a value or an error that can be shown,
//! never a panic, never a wait. A mutational fuzzer on the stable toolchain, without feedback from coverage: seeds that
//! reach far (records of every kind, real events, the reference configuration) are changed as bytes, as JSON and as
//! lines, the same way on every run. Seeds are tests; with `RUNYARD_FUZZ=10000000` each target is run so many times.

mod commands;
mod config;
mod github;
mod mutate;
mod records;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use mutate::{Bytes, Chance};

/// Executions of each target when nobody says how many.
const USUAL: u64 = 3_000;

/// A target's seeds: each file of its folder, and of others by their path.
pub(crate) fn seeds(folder: &str, others: &[&str]) -> Vec<Bytes> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folders =
        [format!("tests/faults/fuzz/seeds/{folder}")].into_iter().chain(others.iter().map(|&o| o.into()));
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let path = root.join(folder);
        if path.is_file() {
            files.push(path);
            continue;
        }
        let entries = std::fs::read_dir(&path).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()));
    }
    files.sort();
    assert!(!files.is_empty(), "{folder} has seeds");
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[allow(clippy::disallowed_methods, reason = "how long the tests fuzz is said in the environment")]
pub(crate) fn executions() -> u64 {
    let told = std::env::var("RUNYARD_FUZZ").ok();
    told.map_or(USUAL, |text| text.parse().expect("RUNYARD_FUZZ is a number of executions"))
}

/// Runs a target on every seed, and on so many inputs made of them. An input that it cannot bear is shown as it is.
pub(crate) fn fuzz(name: &str, seeds: &[Bytes], words: &[&str], target: impl Fn(&[u8])) {
    fuzz_times(name, seeds, words, executions(), target);
}

/// The same for a target that is dear, so many times.
pub(crate) fn fuzz_times(name: &str, seeds: &[Bytes], words: &[&str], times: u64, target: impl Fn(&[u8])) {
    let bear = |input: &[u8]| {
        let borne = catch_unwind(AssertUnwindSafe(|| target(input)));
        assert!(borne.is_ok(), "{name} cannot bear b\"{}\"", input.escape_ascii());
    };
    seeds.iter().for_each(|seed| bear(seed));
    let mut chance = Chance::new(name);
    for _ in 0..times {
        bear(&mutate::mutated(seeds, words, &mut chance));
    }
}
