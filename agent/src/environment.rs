//! The only place that reads the environment of this process, apart from AWS's own library.

use std::path::PathBuf;
use std::time::Duration;

use crate::metadata::{ENDPOINT, ENDPOINT_VARIABLE};

/// Where systemd listens, and how often it wants to hear something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its socket; an address that begins with `@` is an abstract one.
    pub socket: PathBuf,
    /// How long it goes without a word before it starts this process again; none where it does not watch.
    pub watchdog: Option<Duration>,
}

/// Where the metadata service is; AWS's programs are told so.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn metadata_endpoint() -> String {
    let told = std::env::var(ENDPOINT_VARIABLE).ok();
    told.filter(|value| !value.is_empty()).unwrap_or_else(|| ENDPOINT.to_owned())
}

/// What is to be logged (`RUST_LOG`); none when nothing is said.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn log_filter() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|value| !value.is_empty())
}

/// As systemd's protocol has it (`sd_notify(3)`); none where systemd did not start this process.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn listener() -> Option<Listener> {
    let socket = std::env::var_os("NOTIFY_SOCKET")?.into();
    let watchdog = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
    Some(Listener { socket, watchdog: watchdog.map(Duration::from_micros) })
}

/// Of which run and repository a job is, as GitHub's runner tells each of its steps and hooks; empty where it does not.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn job() -> (String, String) {
    let told = |name: &str| std::env::var(name).unwrap_or_default();
    (told("GITHUB_RUN_ID"), told("GITHUB_REPOSITORY"))
}
