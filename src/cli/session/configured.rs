//! Loads the operator's configuration for verbs that decide or act as the operator would.

use std::path::{Path, PathBuf};

use crate::common::failure::{CliFailure, CliResult};
use runyard_core::decide::Policy;
use runyard_core::model::TableName;
use runyard_operator::config;
use runyard_operator::config::{Config, ScopeKind};

/// Loads the operator's configuration from a file, for the table given on the command line.
pub(crate) fn load(table: &TableName, file: &Path) -> CliResult<Config> {
    let given = config::environment().filter(|(name, _)| name != "RUNYARD_TABLE");
    let given = given.chain([("RUNYARD_TABLE".to_owned(), table.to_string())]);
    Config::load(Some(file), given).map_err(|errors| CliFailure::all_usage(errors.problems().to_vec()))
}

/// Returns the part of the operator's settings that decisions use.
pub(crate) fn policy(file: Option<&PathBuf>, table: &TableName) -> CliResult<Policy> {
    let wanted = ["RUNYARD_TIMING__", "RUNYARD_SHARING__"];
    let timing = |(name, _): &(String, String)| wanted.iter().any(|prefix| name.starts_with(prefix));
    let mut given: Vec<(String, String)> = config::environment().filter(timing).collect();
    given.push(("RUNYARD_TABLE".into(), table.to_string()));
    if file.is_none() {
        // Only the deadlines matter here, so the operator's connections are switched off.
        given.extend([("RUNYARD_GITHUB__KIND", "none"), ("RUNYARD_COMPUTE__KIND", "none")].map(owned));
    }
    let config = Config::load(file.map(PathBuf::as_path), given.into_iter());
    let config = config.map_err(|errors| CliFailure::all_usage(errors.problems().to_vec()))?;
    Ok(Policy {
        timing: config.timing,
        requests_per_repository: config.requests_per_repository,
        following: config.agent.following(),
        prices: std::sync::Arc::new(config.prices),
        sharing: config.sharing,
        github: config.github.is_some(),
        organization: config.github.as_ref().is_some_and(|github| github.scope == ScopeKind::Organization),
        // Without the operator's file, a default operator is assumed, which watches runs at GitHub.
        watches_runs: file.is_none()
            || config.github.as_ref().is_some_and(|github| github.watch.run_poll.is_some()),
        inventory: false,
        rebalance: config.rebalance,
        statements: false,
        ended_stays: Policy::ENDED_STAYS,
    })
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}
