//! What tests of several packages stand on: real engines, an EC2 of our own with its bad days, a store and queues that
//! count their calls, and the laws every history of a table must keep.
#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]
#![allow(missing_docs, reason = "each test reads what it takes")]

pub mod counting;
pub mod engine;
pub mod laws;
pub mod peer;
