//! The rules of a yard of reusable machines: the records and what they may say, what the outside must do for us, and what
//! is to be done next. Pure: no clock, no network, no file, no C compiler.

// A new state must be judged wherever states are.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

// What stands under tests/ and is taken into a test of this crate calls it by its name.
#[cfg(test)]
extern crate self as runyard_core;

pub mod decide;
pub mod explain;
pub mod host;
pub mod memory_queue;
pub mod model;
pub mod ports;
#[cfg(test)]
pub(crate) mod testing;
pub mod yard;
