//! Process-wide parts: the clock, the log, and the handling of panics.

pub mod clock;
pub mod panics;
