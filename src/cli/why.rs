//! Verbs that explain the state of records, and what other settings would change.

mod bundle;
pub(crate) mod debug;
pub(crate) mod doctor;
mod explain_run;
pub(crate) mod plan_explain;
pub(crate) mod whatif;
