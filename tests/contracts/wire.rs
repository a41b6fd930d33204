//! What does each adapter make of each fault of the wire? A peer on loopback stands before a service that answers, and
//! spoils one call or all; the outcome of every cell stands in one table (`matrix.rs`).

mod dynamodb;
mod ec2;
mod github;
mod judge;
mod matrix;
mod proxy;
mod scale_sets;
mod sqs;
