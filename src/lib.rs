//! Runyard keeps a yard of reusable EC2 machines and lends them to GitHub Actions workflows as self-hosted runners.

#[cfg(feature = "operator")]
pub mod aws;
#[cfg(feature = "operator")]
pub mod compute_none;
#[cfg(feature = "operator")]
pub mod controller;
pub mod decide;
#[cfg(feature = "operator")]
pub mod fakes;
#[cfg(feature = "operator")]
pub mod github;
#[cfg(feature = "local")]
pub mod local;
pub mod model;
pub mod ports;
#[cfg(feature = "store")]
pub mod store;
