//! Files on the disk: directories, logs, kept registrations, and file systems.

pub(crate) mod filesystems;
pub(crate) mod kept;
pub(crate) mod layout;
pub(crate) mod output;
pub(crate) mod remove;
