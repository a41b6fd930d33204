//! The loop's sources of observations: the table, the provider's list of machines, EC2's notices, and the doorbell.

pub(crate) mod doorbell;
pub(crate) mod follow;
pub(crate) mod job_bell;
mod listen;
pub(crate) mod notices;
pub(crate) mod sweep;
