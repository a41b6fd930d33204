//! Verbs that change records: of pools, of machines and of requests.

pub(crate) mod apply;
pub(crate) mod delete;
pub(crate) mod drain;
pub(crate) mod expire;
pub(crate) mod fail;
pub(crate) mod hold;
pub(crate) mod refresh;
pub(crate) mod scale;
pub(crate) mod ssh;
