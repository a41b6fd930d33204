//! Verbs that answer why something is as it is, and what would be otherwise.

mod bundle;
pub(crate) mod debug;
pub(crate) mod doctor;
pub(crate) mod plan_explain;
pub(crate) mod whatif;
