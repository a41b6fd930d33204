//! Does the replay say what would happen, and does sizing save what it promises? On the core alone, in simulated time.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

mod arrivals;
mod domains;
mod held_out;
mod replays;
