//! Runyard keeps a yard of reusable EC2 machines and lends them to GitHub Actions workflows as self-hosted runners.

// What stands under tests/ and is taken into a test of the library calls it by its name.
#[cfg(test)]
extern crate self as runyard;

#[cfg(feature = "operator")]
pub mod admin;
#[cfg(feature = "operator")]
pub mod aws;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "operator")]
pub mod clock;
#[cfg(feature = "operator")]
pub mod compute_none;
#[cfg(feature = "operator")]
pub mod config;
#[cfg(feature = "operator")]
pub mod controller;
pub mod decide;
#[cfg(feature = "operator")]
pub mod fakes;
#[cfg(feature = "operator")]
pub mod github;
#[cfg(feature = "operator")]
pub mod limits;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "operator")]
pub mod metrics;
pub mod model;
pub mod ports;
#[cfg(feature = "operator")]
pub mod queue_memory;
#[cfg(feature = "operator")]
pub mod status;
#[cfg(feature = "store")]
pub mod store;
#[cfg(feature = "operator")]
pub mod telemetry;
#[cfg(feature = "operator")]
pub mod wire;
