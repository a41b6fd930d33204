//! Words for people: what would be done, why a record is where it is, and when it can be expected to go on. Nothing is
//! decided here, and no decision looks here.

mod forecast;
mod plan;
mod record;

pub use forecast::{Forecast, Pace, forecast};
pub use plan::{judge, picture};
pub use record::{explain, machine, pool, remark};
