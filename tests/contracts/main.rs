//! Is each thing we built on what its port promises, and what if the wire between fails? The same suites on the fakes,
//! on the stand-in and on real engines.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

mod ec2;
mod engines;
mod ports;
mod standin;
mod wire;
