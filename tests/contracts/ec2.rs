//! Are EC2's machines what the compute port promises? One suite on the stand-in, on a peer of our own that has all of
//! EC2's bad days, and on two emulators; then the bad days one by one.

mod bad_days;
pub(crate) mod benches;
mod foreign;
mod images;
mod preflight;
mod suite;
mod templates;
