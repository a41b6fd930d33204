//! Command lines: each input is arguments, one a line, given to `provision` and `release` on a table in memory. They do
//! what they say, or say what is wrong with an exit code of the contract.

use std::sync::Arc;

use runyard::step;
use runyard::{StepFailed, StepPorts};
use runyard_fakes::{MemoryStore, SeededEntropy, TokioClock};

use crate::fuzz::{fuzz, seeds};

#[test]
fn a_command_line_of_any_shape_is_obeyed_or_refused_with_the_reason() {
    let words = [
        "--",
        "--wait",
        "--count=0",
        "--count=501",
        "-o",
        "yaml",
        "--help",
        "--version",
        "--name=",
        "=",
        "1e9h",
    ];
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    fuzz("commands", &seeds("commands", &[]), &words, |input| {
        let text = String::from_utf8_lossy(input);
        let arguments: Vec<&str> = text.split('\n').take(40).collect();
        let ended = runtime.block_on(async {
            let clock = TokioClock::starting("2026-01-05T12:00:00Z".parse().unwrap());
            let (store, entropy) = (Arc::new(MemoryStore::new()), Arc::new(SeededEntropy::new(1)));
            step(StepPorts { store, clock: Arc::new(clock), entropy }, &arguments).await
        });
        if let Err(StepFailed { code, message }) = ended {
            assert!((1..=4).contains(&code) && !message.is_empty(), "{code} {message:?}");
        }
    });
}
