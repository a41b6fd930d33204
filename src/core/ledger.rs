//! What did the machines cost, and who used them? The ledger turns the lines of the history into entries, each a part
//! of one machine's life that belongs to one request or to its pool, and the entries into sums of exact money.
//!
//! *Guarantees*: every second of a machine from its launch to its end is in exactly one entry, whatever the order of
//! the lines and however often each is read; a sum of parts is the whole, to the last unit.
//!
//! *Assumes*: EC2 bills Linux machines by the second, and at least 60 seconds for each launch
//! (<https://aws.amazon.com/ec2/pricing/on-demand/>). It bills neither `pending` nor `shutting-down`
//! (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html>); the records do not know when
//! those end and begin, so an entry counts them, and a ledger is a little above the bill.

mod account;
mod entries;
mod hours;
mod money;
mod prices;
mod stored;

pub use account::{Account, IdleShare, Row, Sum, account};
pub use entries::{Entry, MINIMUM_SECONDS, Machine, Period, entries};
pub use hours::{HourLine, HourPart, MOST_REPOSITORIES, OTHER, close, correction};
pub use money::{Money, Price};
pub use prices::{Priced, Prices, RegionPrices, SpotPrice, SpotPrices, Unpriced, region_of};
pub use stored::hour_lines;

#[cfg(test)]
mod tests;
