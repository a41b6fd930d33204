//! Adapters to AWS other than the table.

pub mod doorbell;
#[cfg(feature = "ec2")]
pub mod ec2;
pub mod job_bell;
mod listened;
pub mod notices;
pub mod queues;
pub mod sqs;

pub use doorbell::SqsDoorbell;
#[cfg(feature = "ec2")]
pub use ec2::Ec2Compute;
pub use job_bell::SqsJobBell;
pub use notices::SqsNotices;
pub use sqs::SqsQueue;

#[cfg(test)]
mod endpoints_tests;
