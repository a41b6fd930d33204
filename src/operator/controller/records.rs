//! The loop's records beside its decisions: events, the history, and the hours of the ledger.

pub(crate) mod archive;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod ledger;
