//! Arguments shared by several verbs, and their completion in a shell.

pub(crate) mod common;
pub(crate) mod completion;
pub(crate) mod look;
pub(crate) mod run;
pub(crate) mod selector;
pub(crate) mod unique;
pub(crate) mod usage;
pub(crate) mod what;
