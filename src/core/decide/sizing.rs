//! How many idle machines does a class need at which hours? The counts that keep a promised wait with the fewest idle
//! hours, computed from what past requests would have needed. Pure: the operator, `recommend` and the replay use the
//! same code.

mod hours;
mod learn;
mod levels;
mod needs;
mod pace;

pub use hours::hour_of_week;
pub use learn::{learned, zone_of};
pub use levels::{Levels, Promise, levels};
pub use needs::{Use, needs};
pub use pace::{ByLevel, QUARTER, Recent, by_level, expected, foreseen, level_of};

/// The share of requests that may be late where 95 of 100 must not be.
pub const LATE: f64 = 0.05;
/// The fewest requests from which an hour of the week can be judged.
pub const FEWEST: f64 = 40.0;
/// The fewest days from which a week can be judged.
pub const FEWEST_DAYS: i64 = 14;
