//! Every choice that the operator makes. `decide` looks at one unit of the yard as observed and returns the actions to
//! carry out now, when to look again, and why it does nothing more. It does no I/O, reads no clock, logs nothing and
//! cannot fail; its plans are carried out elsewhere, one port call per action, each conditional on the records that
//! were read here.

mod ahead;
mod capacity;
mod class;
mod context;
#[cfg(test)]
mod growth_tests;
pub(crate) mod health;
mod instance;
mod launch;
mod matching;
mod packages;
mod plan;
mod request;
mod runs;
mod schedule;
pub mod sizing;
mod statement;

pub use crate::decide::plan::effect::{Change, Effect, Step};
pub use crate::decide::plan::planned::{Note, Planned, PlannedEvent};
pub use crate::decide::plan::runner::{AtGitHub, Credential, KeepQuestion, RunnerConfig, StaleRunners};
pub use context::{Context, Followed, Following, Policy, Role};
pub use packages::{first_end, runner_support};
pub use plan::{Plan, Wait, WaitReason};
pub use runs::is_over;
pub use runs::queued::{ForLabel, Limit, Needed, RunLabel, Unserved, Wanted, for_label, key_of, run_labels};
pub(crate) use runs::queued::{base, ended, lacking};
pub use runs::rerun::{Rerun, failed_with, rerun};
pub use runs::sets::{Missed, SetClass, SetSlot, SetStep, SetView, Slots};
pub use schedule::{Ahead, Effective, ahead, effective, effective_in};

pub(crate) use capacity::idle_lack;
pub(crate) use class::{is_telling, places, too_little};

use crate::yard::Unit;

/// Plans the actions for one unit now.
///
/// # Guarantees
/// - The same context gives the same plan, in the same order; there is a plan for any contents of the records.
/// - No two actions of a plan hold the same slot, except intents of one class, which have no name yet.
/// - Each write names the version it replaces; a machine moves along [`TRANSITIONS`](crate::model::TRANSITIONS) only.
/// - Everything that is not done has its reason in `waits`, and the time to look again in `wake`.
///
/// # Assumes
/// - The yard was listed completely once; a record that is missing before that is not known to be absent.
/// - Actions in progress are in `Yard::busy`: nothing is planned for their slots.
pub fn decide(cx: &Context<'_>, unit: &Unit) -> Plan {
    match unit {
        Unit::Instance(arn) => instance::decide(cx, arn),
        Unit::Request(key) => request::decide(cx, key),
        Unit::Class(class) => class::decide(cx, class),
        Unit::Launch(id) => launch::decide(cx, id),
    }
}
