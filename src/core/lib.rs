//! The rules of a yard of reusable machines: its records, the ports to the outside, the index of what was observed, and
//! the decisions. Pure: no clock, no network, no file, no C compiler.

// A new state must be considered in every place that matches on states.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

// Files under tests/ that are also compiled into this crate's tests use its name.
#[cfg(test)]
extern crate self as runyard_core;

pub mod decide;
pub mod explain;
pub mod host;
pub mod ledger;
pub mod memory_queue;
pub mod model;
pub mod ports;
pub mod redact;
pub mod statement;
#[cfg(test)]
pub(crate) mod testing;
pub mod yard;
