//! Adapters to AWS other than the table.

mod errors;
pub mod sqs;

pub use sqs::SqsQueue;
