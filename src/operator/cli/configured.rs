//! Loads the operator's configuration for verbs that decide or act as the operator would.

use std::path::Path;

use super::failure::{CliFailure, CliResult};
use crate::config::{self, Config};
use crate::model::TableName;

/// The operator's configuration in a file, about the table that was named to us.
pub(super) fn load(table: &TableName, file: &Path) -> CliResult<Config> {
    let given = config::environment().filter(|(name, _)| name != "RUNYARD_TABLE");
    let given = given.chain([("RUNYARD_TABLE".to_owned(), table.to_string())]);
    Config::load(Some(file), given).map_err(|errors| CliFailure::all_usage(errors.problems().to_vec()))
}
