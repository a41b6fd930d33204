//! Common parts of the command line: failures, durations, and the environment.

pub(crate) mod duration;
pub(crate) mod environment;
pub(crate) mod failure;
