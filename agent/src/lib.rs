//! The agent of a machine: it registers the runner for the claim its instance record names, cleans up after it, beats,
//! and ends the machine when its time is over. What to do is decided by a pure [`step`]; everything else reads, does
//! and reports.

pub mod agent;
pub mod backoff;
pub mod beat;
pub mod clock;
pub mod config;
pub mod console;
pub mod disk;
pub mod environment;
pub mod guard;
pub mod host;
pub mod install;
pub mod isolation_check;
pub mod local;
pub mod lock;
pub mod metadata;
pub mod notices;
pub mod notify;
pub mod orders;
pub mod power;
pub mod records;
pub mod registration;
pub mod step;
pub mod task;
pub mod watchdog_timer;

#[cfg(test)]
mod testing;
