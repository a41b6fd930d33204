//! Verbs that show records and change nothing.

pub(crate) mod cost;
pub(crate) mod describe;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod logs;
mod shares;
pub(crate) mod top;
pub(crate) mod verify;
pub(crate) mod version;
