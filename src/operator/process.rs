//! What belongs to the process: its clock, its log, and how a panic ends.

pub mod clock;
pub mod panics;
