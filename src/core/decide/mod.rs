//! Every choice the operator makes. `decide` looks at one unit of the yard as observed and says what to do about it
//! now, when to look again, and why it does nothing more. It does no I/O, reads no clock, logs nothing and cannot
//! fail; what it plans is carried out elsewhere, one port call per action, each conditional on what was read here.

mod action;
mod beats;
mod capacity;
mod class;
mod context;
mod demand;
mod explain;
mod forecast;
#[cfg(test)]
mod growth_tests;
mod instance;
mod launch;
mod matching;
mod observe;
mod offerings;
mod reason;
mod request;
mod schedule;
#[cfg(test)]
pub(crate) mod testing;
mod under_way;
mod unread;
mod visits;
mod yard;

pub use action::{Action, Credential, Note, Plan, Step, Wait, WaitReason};
pub use context::{Context, Now, Policy, Role};
pub use explain::{explain, judge, machine, picture, pool, remark};
pub use forecast::{Forecast, Pace, forecast};
pub use observe::{Observation, Written};
pub use offerings::{Breaker, Offering, Rest};
pub use schedule::{Effective, check as check_schedule, effective};
pub use under_way::UnderWay;
pub use yard::{Class, Tracked, Unit, Yard};

/// What to do about one unit now.
pub fn decide(cx: &Context<'_>, unit: &Unit) -> Plan {
    match unit {
        Unit::Instance(arn) => instance::decide(cx, arn),
        Unit::Request(key) => request::decide(cx, key),
        Unit::Class(class) => class::decide(cx, class),
        Unit::Launch(id) => launch::decide(cx, id),
    }
}
