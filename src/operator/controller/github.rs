//! The loop's calls to GitHub: credentials, the state of runs, runner scale sets, and leftover
//! runners.

mod ahead;
mod answers;
pub(crate) mod credential_issuer;
mod groups;
mod memory;
mod provenance;
mod removal;
mod rests;
pub(crate) mod run_check;
pub(crate) mod runner_gc;
pub(crate) mod runs;
pub(crate) mod sets;
mod site;
mod tokens;
pub(crate) mod version_clock;
