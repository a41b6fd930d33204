//! How do we talk to a GitHub? [`RestGitHub`] answers for one of them (github.com, a GitHub Enterprise Server, the
//! local stand-in) over its REST API: one request at a time, each with its own deadline, every answer judged in one
//! place.

mod auth;
mod budget;
mod client;
mod errors;
mod etags;
mod origin;
mod paging;
mod preflight;
mod registration;
mod retry_after;
#[cfg(test)]
mod tests;
mod verbs;
mod wire;

pub use crate::github::client::Clock;
pub use crate::github::errors::SetupError;
pub use auth::{AppKey, Credential};
pub use origin::{ApiUrl, ApiUrlError};
pub use registration::{AppRegistration, AppWish, Installed, NewApp, lacking, permissions};
pub use verbs::RestGitHub;

/// How long one call may take unless the caller says otherwise.
pub const DEFAULT_DEADLINE: std::time::Duration = std::time::Duration::from_secs(10);
