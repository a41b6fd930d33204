//! The suite of the queue port, and what it is run on.

mod benches;
mod suite;

pub(crate) use benches::{Bench, Benches};
