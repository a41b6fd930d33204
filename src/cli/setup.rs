//! Verbs that set up what a yard needs, and try it.

pub(crate) mod config;
pub(crate) mod github_app;
pub(crate) mod init;
pub(crate) mod trial;
