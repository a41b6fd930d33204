//! The agent's reports on its machine: heartbeats, the console, logs, and interruption notices.

pub mod beat;
pub mod console;
pub mod doorbell;
pub mod logs;
pub mod notices;
