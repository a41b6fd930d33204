//! Which settings suit one machine? The operator's own configuration with short times, a queue in memory and loopback
//! addresses in front of it; the environment (`RUNYARD_<SECTION>__<KEY>`) still has the last word.

use crate::config::{Config, ConfigErrors};

use super::site::Site;
use super::standin::{PACKAGE_VERSION, StandIn};

/// Short enough to watch; long enough for a busy laptop.
const DEFAULTS: [(&str, &str); 15] = [
    ("RUNYARD_COMPUTE__KIND", "local"),
    ("RUNYARD_QUEUE__KIND", "memory"),
    ("RUNYARD_GITHUB__KIND", "real"),
    ("RUNYARD_ADMIN__LISTEN", "127.0.0.1:0"),
    ("RUNYARD_TIMING__CREATED", "2m"),
    ("RUNYARD_TIMING__CLAIMED", "1m"),
    ("RUNYARD_TIMING__CLEANUP", "1m"),
    ("RUNYARD_TIMING__GRACE", "1m"),
    ("RUNYARD_TIMING__HEARTBEAT", "2s"),
    ("RUNYARD_TIMING__STALE", "20s"),
    ("RUNYARD_TIMING__AGENT_POLL", "100ms"),
    ("RUNYARD_TIMING__RESYNC", "30s"),
    ("RUNYARD_TIMING__REANNOUNCE", "30s"),
    ("RUNYARD_TIMING__LEASE", "6s"),
    ("RUNYARD_TIMING__ORPHAN", "30s"),
];

/// The configuration of an operator over a site.
///
/// # Errors
/// What the environment says and cannot be used.
pub(crate) fn config(
    site: &Site,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Config, ConfigErrors> {
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let served = site.standin.as_ref().map(served).into_iter().flatten();
    Config::load(None, DEFAULTS.into_iter().map(own).chain(served).chain(environment))
}

/// The stand-in's address, credential and runner package.
fn served(standin: &StandIn) -> [(String, String); 5] {
    let token_file = standin.token_file().expect("a stand-in with a directory keeps its token there");
    let settings = [
        ("GITHUB__API_URL", standin.url()),
        ("GITHUB__TOKEN_FILE", token_file.to_string_lossy().into_owned()),
        ("AGENT__RUNNER_URL", standin.package_url()),
        ("AGENT__RUNNER_SHA256", standin.package_sha256().to_owned()),
        ("AGENT__RUNNER_VERSION", PACKAGE_VERSION.to_owned()),
    ];
    settings.map(|(name, value)| (format!("RUNYARD_{name}"), value))
}

/// Whether the environment names a credential for a real GitHub.
pub(crate) fn names_github<'a>(mut environment: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    environment.any(|(name, value)| {
        ["RUNYARD_GITHUB__TOKEN_FILE", "RUNYARD_GITHUB__APP_ID"].contains(&name) && !value.is_empty()
    })
}
