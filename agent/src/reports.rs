//! What the agent tells about its machine: heartbeats, the console, logs, and interruption notices.

pub mod beat;
pub mod console;
pub mod logs;
pub mod notices;
