//! What does each adapter make of each fault of the wire? A peer on loopback stands before a service that answers, and
//! spoils one call or all; the outcome of every cell stands in one table (`matrix.rs`).

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

#[path = "../ec2/benches.rs"]
#[allow(dead_code, reason = "each test crate takes the parts it needs")]
mod benches;
mod dynamodb;
mod ec2;
mod github;
mod judge;
mod matrix;
#[path = "../ec2/peer/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test crate takes the parts it needs")]
mod peer;
mod proxy;
mod sqs;
#[path = "../support/mod.rs"]
mod support;
