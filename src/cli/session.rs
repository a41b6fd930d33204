//! The parts that a verb works with: its table, the chosen yard, and the operator's configuration.

pub(crate) mod configured;
pub(crate) mod connect;
pub(crate) mod context;
pub(crate) mod launch_templates;
pub(crate) mod names;
#[cfg(feature = "ec2")]
pub(crate) mod network;
pub(crate) mod polling;
mod ring;
pub(crate) mod setup_step;
pub(crate) mod stack;
pub(crate) mod verb;
pub(crate) mod yards;
