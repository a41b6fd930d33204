//! Does the yard work on AWS's own services? The operator, the command line and the agents as programs, with records in
//! a DynamoDB, hints in an SQS and machines in an EC2 of the tests' engines; and what two operators cost each other.

pub(crate) mod cloud;
mod contention;
mod deleted;
mod machines;
mod recorded;
mod rings;
mod trial;
mod whole_life;
pub(crate) mod yard;
