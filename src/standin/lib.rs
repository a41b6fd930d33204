//! What one machine needs to be a whole yard: an embedded DynamoDB engine, machines as child processes, and a GitHub of
//! its own. Nothing here knows the operator; `runyard up` puts them together.

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

/// A line for whoever looks on. A reader that left ends nothing.
pub fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{line}");
}
