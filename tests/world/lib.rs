//! The operator of production in paused time, on fakes of every port, and agents that follow the contract.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]
#![allow(clippy::new_without_default, reason = "a world is made on purpose")]
#![allow(missing_docs, reason = "each test reads what it takes")]

pub mod agents;
pub mod slots;
pub mod world;
