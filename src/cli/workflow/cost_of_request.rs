//! The cost of a request's machines, as `release` prints it.

use std::time::Duration;

use jiff::Timestamp;
use runyard_core::ledger::{Money, Price};
use runyard_core::model::Request;

use crate::common::duration;

/// The cost of a request's machines since it was ready.
pub(crate) struct Cost {
    pub(crate) money: Money,
    class: String,
    machines: usize,
    lasted: Duration,
}

impl Cost {
    /// Returns the cost; `None` if the operator wrote no price, or the request never was ready.
    pub(crate) fn of(request: &Request, now: Timestamp) -> Option<Self> {
        let status = &request.status;
        let price = Price::of_nanos(status.hourly_cost_nanos?);
        let lasted = Duration::try_from(now.duration_since(status.ready_at?)).unwrap_or_default();
        let lasted = Duration::from_secs(lasted.as_secs());
        let (money, machines) = (Money::hourly(price, lasted.as_secs()), status.instances.len());
        Some(Self { money, class: request.intent.resource_class.clone(), machines, lasted })
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let machines = if self.machines == 1 { "machine" } else { "machines" };
        let lasted = duration::show(self.lasted);
        write!(f, "{} for {} {machines} of {} for {lasted}", self.money, self.machines, self.class)?;
        f.write_str(", at list prices and without boots, clean-up and idle machines")
    }
}
