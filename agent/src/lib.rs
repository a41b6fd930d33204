//! The agent of a machine. It registers the runner for the claim that the instance record names, cleans up afterwards,
//! sends heartbeats, and ends the machine at its deadline. The pure [`step`] decides what to do; everything else reads,
//! acts and reports.

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
pub mod logs;
pub mod metadata;
pub mod notices;
pub mod notify;
pub mod orders;
mod pace;
pub mod power;
pub mod records;
pub mod registration;
pub mod step;
pub mod task;
pub mod watchdog_timer;

#[cfg(test)]
mod testing;
