//! What several test crates stand on.
#![allow(dead_code, reason = "each test crate takes the parts it needs")]

pub(crate) mod engine;
