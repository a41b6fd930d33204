//! The GitHub adapter. [`RestGitHub`] calls the REST API of one GitHub (github.com, a GitHub Enterprise Server, or the
//! local stand-in): one request at a time, each with its own deadline, and every response is interpreted in one place.

mod auth;
mod budget;
mod client;
mod errors;
mod etags;
mod one_run;
mod origin;
mod paging;
mod preflight;
mod registration;
mod repositories;
mod retry_after;
mod scale_sets;
#[cfg(test)]
mod tests;
mod verbs;
mod wire;

pub use crate::github::client::Clock;
pub use crate::github::errors::SetupError;
pub use auth::{AppKey, Credential};
pub use one_run::WholeRun;
pub use origin::{ApiUrl, ApiUrlError};
pub use registration::{AppRegistration, AppWish, Installed, NewApp, lacking, permissions};
pub use scale_sets::RestScaleSets;
pub use verbs::RestGitHub;

/// The default timeout of one call.
pub const DEFAULT_DEADLINE: std::time::Duration = std::time::Duration::from_secs(10);
