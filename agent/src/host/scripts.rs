//! Starts the scripts of the owner and of the runner package, and selects their processes.

mod boot;
mod scope;
pub(crate) mod shell;
