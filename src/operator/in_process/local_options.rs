//! The settings of local mode: the operator's own configuration with short times, a queue in memory and loopback
//! addresses. The environment (`RUNYARD_<SECTION>__<KEY>`) still overrides them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_config::SdkConfig;

use crate::config::{Config, ConfigErrors};
use crate::model::FieldError;
use runyard_standin::compute::{AgentOptions, LocalOptions, RunnerPackage};
use runyard_standin::github::{PACKAGE_VERSION, PackageBehaviour, StandIn};
use runyard_standin::local_environment::LocalEnvironment;

/// The default data directory.
pub const DIRECTORY: &str = ".runyard";

/// The variable that sets the address of the status page.
pub const LISTEN: &str = "RUNYARD_ADMIN__LISTEN";

/// The architecture of this machine, as in the spec of a class.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" };

/// How long an agent may take to end on SIGTERM.
const PATIENCE: Duration = Duration::from_secs(3);

/// Short enough to watch; long enough for a busy laptop.
const DEFAULTS: [(&str, &str); 15] = [
    ("RUNYARD_COMPUTE__KIND", "local"),
    ("RUNYARD_QUEUE__KIND", "memory"),
    ("RUNYARD_GITHUB__KIND", "real"),
    (LISTEN, "127.0.0.1:0"),
    ("RUNYARD_TIMING__CREATED", "2m"),
    ("RUNYARD_TIMING__CLAIMED", "1m"),
    // Longer than a runner may take to end.
    ("RUNYARD_TIMING__CLEANUP", "2m"),
    ("RUNYARD_TIMING__GRACE", "1m"),
    ("RUNYARD_TIMING__HEARTBEAT", "2s"),
    ("RUNYARD_TIMING__STALE", "20s"),
    ("RUNYARD_TIMING__AGENT_POLL", "100ms"),
    ("RUNYARD_TIMING__RESYNC", "30s"),
    ("RUNYARD_TIMING__REANNOUNCE", "30s"),
    ("RUNYARD_TIMING__LEASE", "6s"),
    ("RUNYARD_TIMING__ORPHAN", "30s"),
];

/// Environment variables that a machine inherits, besides all that begin with `AWS_`.
const PASSED_ON: [&str; 11] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "RUST_BACKTRACE",
    "RUNYARD_LOG",
];

/// Returns the configuration of an operator on a local environment.
///
/// # Errors
/// Invalid values in the environment.
pub fn config(
    local: &LocalEnvironment,
    environment: &BTreeMap<String, String>,
) -> Result<Config, ConfigErrors> {
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let served = local.standin.as_ref().map(served).into_iter().flatten();
    let given = environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    Config::load(None, DEFAULTS.into_iter().map(own).chain(served).chain(given))
}

/// Returns the settings for the stand-in's address, credential and runner package.
fn served(standin: &StandIn) -> [(String, String); 6] {
    let token_file = standin.token_file().expect("a stand-in with a directory keeps its token there");
    let settings = [
        ("GITHUB__API_URL", standin.url()),
        // The person at the terminal plays the workflow, and the stand-in only has runs with jobs.
        ("GITHUB__VERIFY_RUN", "false".to_owned()),
        ("GITHUB__TOKEN_FILE", token_file.to_string_lossy().into_owned()),
        ("AGENT__RUNNER_URL", standin.package_url()),
        ("AGENT__RUNNER_SHA256", standin.package_sha256().to_owned()),
        ("AGENT__RUNNER_VERSION", PACKAGE_VERSION.to_owned()),
    ];
    settings.map(|(name, value)| (format!("RUNYARD_{name}"), value))
}

/// The variable that configures the stand-in's runner package.
const PACKAGE: &str = "RUNYARD_STAND_IN_PACKAGE";

/// Parses the configuration of the stand-in's runner package from the environment.
///
/// # Errors
/// An unknown word.
pub fn package(environment: &BTreeMap<String, String>) -> Result<PackageBehaviour, FieldError> {
    let words = environment.get(PACKAGE).map(String::as_str).unwrap_or_default();
    PackageBehaviour::told(words).map_err(|wrong| {
        let fix = "write small, or real (192 MB, 8 200 files), and after a comma unpaced (its runner takes none of the \
                   time that GitHub's takes) or libicu (it asks its machine for libicu, as GitHub's does)";
        FieldError::new(PACKAGE, wrong, "says nothing about the package", fix)
    })
}

/// Returns whether the environment names a credential for a real GitHub.
pub fn names_github(environment: &BTreeMap<String, String>) -> bool {
    let names = ["RUNYARD_GITHUB__TOKEN_FILE", "RUNYARD_GITHUB__APP_ID"];
    names.iter().any(|name| environment.get(*name).is_some_and(|value| !value.is_empty()))
}

/// Returns the options of machines as child processes.
///
/// # Errors
/// There is no agent, or no runner package.
pub fn machines(
    config: &Config,
    sdk: &SdkConfig,
    environment: &BTreeMap<String, String>,
) -> Result<LocalOptions, FieldError> {
    let runner = config.agent.runner.of(Some(ARCHITECTURE)).ok_or_else(|| {
        let fix = "set agent.runner_url, agent.runner_sha256 and agent.runner_version: a local machine brings none along";
        FieldError::new("agent.runner_url", "", "is missing", fix)
    })?;
    let agent = AgentOptions {
        program: agent(environment)?,
        endpoint: sdk.endpoint_url().unwrap_or("aws").to_owned(),
        environment: passed_on(environment),
        timing: config.timing,
        runner: RunnerPackage {
            url: runner.url.clone(),
            sha256: runner.sha256.clone(),
            version: runner.version.clone(),
        },
        pre_runner_script: config.agent.pre_runner_script.as_deref().map(script).transpose()?,
        pre_runner_timeout: config.agent.pre_runner_timeout,
        stop: config.agent.stop,
        spare: config.agent.spare.clone(),
    };
    Ok(LocalOptions { dir: directory(environment)?, table: config.table.clone(), agent, patience: PATIENCE })
}

/// Returns the data directory as an absolute path.
pub fn directory(environment: &BTreeMap<String, String>) -> Result<PathBuf, FieldError> {
    let dir = environment.get("RUNYARD_DIR").map_or(DIRECTORY, String::as_str);
    std::path::absolute(dir).map_err(|error| {
        FieldError::new("RUNYARD_DIR", dir, format!("cannot be made absolute: {error}"), "name a directory")
    })
}

/// Returns the agent's executable: `RUNYARD_AGENT`, else the one beside our own.
fn agent(environment: &BTreeMap<String, String>) -> Result<PathBuf, FieldError> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("runyard-agent"));
    let path = environment.get("RUNYARD_AGENT").map(PathBuf::from).or_else(beside).unwrap_or_default();
    let path = std::path::absolute(&path).unwrap_or(path);
    if path.is_file() {
        return Ok(path);
    }
    let fix = "build it (`cargo build --release -p runyard-agent`) and keep it beside `runyard`, or name it in RUNYARD_AGENT";
    Err(FieldError::new("RUNYARD_AGENT", path.display().to_string(), "there is no agent", fix))
}

fn passed_on(environment: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let passed = |name: &str| name.starts_with("AWS_") || PASSED_ON.contains(&name);
    let chosen = environment.iter().filter(|(name, _)| passed(name));
    chosen.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn script(path: &Path) -> Result<String, FieldError> {
    std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot be read: {error}");
        FieldError::new(
            "agent.pre_runner_script",
            path.display().to_string(),
            message,
            "name a readable script",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a runner that does not end costs its machine instead of being killed.
    #[test]
    fn a_clean_up_takes_longer_than_a_runner_may_take_to_end() {
        let settings = DEFAULTS.into_iter().chain([("RUNYARD_GITHUB__TOKEN_FILE", "/token")]);
        let own = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::load(None, own).unwrap();
        assert!(
            config.agent.stop < config.timing.cleanup,
            "{:?} {:?}",
            config.agent.stop,
            config.timing.cleanup
        );
    }
}
