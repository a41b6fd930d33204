//! Verbs for the steps of a workflow: they request machines, keep them, and release them.

pub(crate) mod check_workflow;
mod cost_of_request;
pub(crate) mod extend;
mod fallback;
mod follow;
mod github_output;
pub(crate) mod provision;
pub(crate) mod release;
pub(crate) mod wait;
