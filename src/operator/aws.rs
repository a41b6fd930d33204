//! Adapters to AWS other than the table.

#[cfg(feature = "ec2")]
pub mod ec2;
mod errors;
pub mod notices;
pub mod queues;
pub mod sqs;

#[cfg(feature = "ec2")]
pub use ec2::Ec2Compute;
pub use notices::SqsNotices;
pub use sqs::SqsQueue;
