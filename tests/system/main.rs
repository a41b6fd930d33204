//! Do the programs keep their word, as they are shipped? Real processes, real engines on loopback: one folder per
//! subject.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

mod cli;
mod e2e;
mod init;
mod lifecycle;
mod local;
mod seeded;
