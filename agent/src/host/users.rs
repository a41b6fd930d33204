//! The job user: its account, its ids, its processes, its keys, and its mounts.

pub(crate) mod account;
pub(crate) mod bounds;
pub(crate) mod child;
pub(crate) mod group;
pub(crate) mod ids;
pub(crate) mod keys;
pub(crate) mod processes;
pub(crate) mod user_mounts;
