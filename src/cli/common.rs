//! What every part of the command line says: failures, durations, and the environment that it runs in.

pub(crate) mod duration;
pub(crate) mod environment;
pub(crate) mod failure;
