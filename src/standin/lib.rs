//! Everything that a whole yard on one machine needs: an embedded DynamoDB engine, machines as child processes, and a
//! local GitHub. Nothing here knows the operator; `runyard up` combines them.

pub mod change_notifier;
pub mod compute;
pub mod demo;
pub mod engine;
pub mod files;
pub mod github;
pub mod local_environment;
pub mod port;
pub mod process;

mod door;

use runyard_core::{model, ports};
use runyard_store as store;

/// Prints a line for people. A closed output is not an error.
pub fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{line}");
}
