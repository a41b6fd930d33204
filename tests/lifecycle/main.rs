//! Does the yard work on AWS's own services? The operator, the command line and the agents as programs, with records in
//! a DynamoDB, hints in an SQS and machines in an EC2 of the tests' engines; and what two operators cost each other.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

#[path = "../support/counting.rs"]
#[allow(dead_code, reason = "each test crate takes the parts it needs")]
mod counting;
#[path = "../e2e/history.rs"]
#[allow(dead_code, reason = "each test crate takes the parts it needs")]
mod history;
#[path = "../e2e/laws.rs"]
#[allow(dead_code, reason = "each test crate takes the parts it needs")]
mod laws;
#[path = "../ec2/peer/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test crate takes the parts it needs")]
mod peer;
#[path = "../e2e/program.rs"]
#[allow(dead_code, reason = "each test crate takes the parts it needs")]
mod program;
#[path = "../support/mod.rs"]
mod support;
#[path = "../e2e/waiting.rs"]
#[allow(dead_code, reason = "each test crate takes the parts it needs")]
mod waiting;

mod cloud;
mod contention;
mod machines;
mod whole_life;
mod yard;
