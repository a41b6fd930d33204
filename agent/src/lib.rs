//! The agent of a machine. It registers the runner for the claim that the instance record names, cleans up afterwards,
//! sends heartbeats, and ends the machine at its deadline. The pure [`step`] decides the next task; everything else
//! reads, acts and reports.

pub mod agent;
pub mod config;
pub mod host;
pub mod install;
pub mod isolation_check;
mod pace;
pub mod records;
pub mod registration;
pub mod reports;
pub mod shutdown;
pub mod step;
pub mod system;
pub mod task;

#[cfg(test)]
mod testing;
