//! Verbs that explain the state of records, and what other settings would change.

mod bundle;
pub(crate) mod debug;
pub(crate) mod doctor;
pub(crate) mod plan_explain;
pub(crate) mod whatif;
