//! Verbs that create a yard's resources and try them.

pub(crate) mod config;
pub(crate) mod github_app;
pub(crate) mod init;
pub(crate) mod trial;
