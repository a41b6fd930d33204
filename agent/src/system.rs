//! Access to the machine: clocks, files, the environment, systemd, and EC2's metadata.

pub mod backoff;
pub mod clock;
pub mod disk;
pub mod environment;
pub mod lock;
pub mod metadata;
pub mod notify;
