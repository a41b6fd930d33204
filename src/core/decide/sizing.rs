//! How many idle machines a class needs at which hours: what past requests would have needed, and the counts that keep
//! a promised wait with the fewest idle hours. Pure: the operator, `recommend` and the replay use the same.

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

/// The share of requests that may be late where 95 of 100 must not.
pub const LATE: f64 = 0.05;
/// Less than this many requests tell nothing about an hour of the week.
pub const FEWEST: f64 = 40.0;
/// Fewer days than this tell nothing about a week.
pub const FEWEST_DAYS: i64 = 14;
