//! Machines: the record, the agent that speaks for it, and what a claim gives to it.

pub(crate) mod agent;
pub(crate) mod ahead;
pub(crate) mod console;
pub(crate) mod hold;
pub(crate) mod instance;
pub(crate) mod jobs;
pub(crate) mod keep;
pub(crate) mod life;
pub(crate) mod message;
pub(crate) mod notice;
pub(crate) mod registration;
pub(crate) mod runner_package;
pub(crate) mod span;
pub(crate) mod transition;
pub(crate) mod variable;
