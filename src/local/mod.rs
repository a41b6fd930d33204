//! One machine as the whole yard: the pieces that stand in for AWS and GitHub on it.

pub mod standin;
