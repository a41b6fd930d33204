//! Does `runyard init` make what a yard on EC2 stands on, once, and nothing twice? The real program on real engines:
//! records in one, queues in another, launch templates at a third.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

#[path = "../ec2/peer/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test crate takes the parts it needs")]
mod peer;
#[path = "../support/mod.rs"]
mod support;

mod makes;
mod refuses;
mod site;
