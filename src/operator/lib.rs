//! Runyard keeps a yard of reusable EC2 machines and lends them to GitHub Actions workflows as self-hosted runners.

pub mod admin;
pub mod aws;
pub mod config;
pub mod controller;
pub mod github;
pub mod in_process;
pub mod limits;
pub mod metrics;
pub mod preflight;
pub mod prices;
pub mod process;
pub mod signing;
pub mod status;
pub mod telemetry;
pub mod wire;

pub use runyard_core::{decide, explain, ledger, model, ports, redact, statement, yard};
pub use runyard_store as store;
