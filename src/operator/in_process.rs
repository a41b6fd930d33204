//! Adapters that need no service: a queue in memory, no machines at all, and the settings of local mode.

pub mod compute_none;
#[cfg(feature = "local")]
pub mod local_options;
pub mod queue_memory;
