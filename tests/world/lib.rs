//! The operator of production in paused time, on fakes of every port, and agents that follow the contract.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]
#![allow(missing_docs, reason = "each test reads what it takes")]

pub mod agents;
pub mod world;
