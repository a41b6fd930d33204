//! What holds of the rules whatever happens? Every state of small yards, any records, and the cost of one change.
//! Nothing but the core is needed.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

mod growth;
mod memory;
mod models;
mod properties;
mod records;
