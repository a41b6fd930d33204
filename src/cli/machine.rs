//! Programs that run on this machine until they are stopped: the operator, and local mode.

pub(crate) mod daemon;
#[cfg(feature = "local")]
mod demo;
#[cfg(feature = "local")]
pub(crate) mod local_mode;
#[cfg(feature = "local")]
mod opened_environment;
#[cfg(feature = "local")]
mod up;
