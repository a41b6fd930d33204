//! GitHub's answers, of a fake that follows a script.

mod app;
mod faults;
mod matrix;
mod scripted_fake;
