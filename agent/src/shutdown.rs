//! The end of a machine: by its guard, by the timer that survives the agent, and by a shutdown.

pub mod guard;
pub mod power;
pub mod watchdog_timer;
