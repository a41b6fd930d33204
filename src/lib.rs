//! Runyard keeps a yard of reusable EC2 machines and lends them to GitHub Actions workflows as self-hosted runners.

#[cfg(feature = "operator")]
pub mod admin;
#[cfg(feature = "operator")]
pub mod clock;
#[cfg(feature = "operator")]
pub mod config;
#[cfg(feature = "operator")]
pub mod metrics;
pub mod model;
pub mod ports;
#[cfg(feature = "operator")]
pub mod telemetry;
