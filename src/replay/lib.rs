//! What would have happened? Replays a trace of demand, recorded or generated, on the operator's decisions in simulated
//! time. Requests arrive when they arrived and hold machines as long as they did; boots, claims and clean-ups take
//! times drawn from the recorded ones, by a seed. No I/O, no clock, nothing unordered: the same input gives the same
//! outcome, bit for bit.
//!
//! *Assumes* an open loop: no workflow cancels, retries or requests more because the yard is faster or slower.

mod chance;
mod compare;
mod load;
mod outcome;
mod picture;
mod recommend;
mod trace;
mod world;

pub use chance::Chance;
pub use compare::{Comparison, Row, Spread, compare};
pub use load::load;
pub use outcome::{CallCounts, Hours, Outcome, Served, Verdict, percentile};
pub use picture::picture;
pub use recommend::{Evidence, Recommendation, by_hour_of, learn, recommend, schedules_of};
pub use trace::{Arrival, Failure, Samples, Times, Trace, Truth};
pub use world::{Scenario, play};
