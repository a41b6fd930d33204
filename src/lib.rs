//! Runyard keeps a yard of reusable EC2 machines and lends them to GitHub Actions workflows as self-hosted runners.

pub mod decide;
pub mod model;
pub mod ports;
