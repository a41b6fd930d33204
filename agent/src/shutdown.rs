//! How a machine ends: by its guard, by the timer that survives the agent, and by a shutdown.

pub mod guard;
pub mod power;
pub mod watchdog_timer;
