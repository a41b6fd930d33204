//! The adapter against a scripted fake of GitHub.

pub(crate) mod app;
mod faults;
mod matrix;
pub(crate) mod scripted_fake;
