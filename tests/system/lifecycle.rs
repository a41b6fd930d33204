//! Does the yard work on AWS's own services? The operator, the command line and the agents as programs, with records in
//! a DynamoDB, hints in an SQS and machines in an EC2 of the tests' engines; and what two operators cost each other.

mod cloud;
mod contention;
mod machines;
mod trial;
mod whole_life;
mod yard;
