//! Is what is deployed around the programs right? Permissions, stacks and configuration.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

mod policies;
