//! Are EC2's machines what the compute port promises? One suite on the stand-in, on a peer of our own that has all of
//! EC2's bad days, and on two emulators; then the bad days one by one.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

#[path = "../support/mod.rs"]
mod support;

mod bad_days;
mod benches;
mod foreign;
mod peer;
mod suite;
mod templates;
