//! Starts the scripts of the owner and of the runner package, and selects their processes.

mod boot;
pub(crate) mod scope;
pub(crate) mod shell;
