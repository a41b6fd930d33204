//! GitHub's answers, of a fake that follows a script.

pub(crate) mod app;
mod faults;
mod matrix;
pub(crate) mod scripted_fake;
