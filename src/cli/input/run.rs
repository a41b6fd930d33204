//! The options that select a run and one of its requests. `provision` and `release` share them; GitHub Actions sets the
//! defaults.

use clap::Args;

use crate::common::environment::Environment;
use crate::common::failure::Problems;
use runyard_core::model::{FieldError, Repository, RequestName, RunId};

/// The options that name a run's request.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Workflow run ID [default: $GITHUB_RUN_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<RunId>,
    /// Repository of the workflow [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github)]
    pub(crate) repository: Option<Repository>,
    /// Name of the request; a run may have several requests
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) name: RequestName,
}

impl RunArgs {
    /// Resolves the repository, run and name; missing and invalid ones are added to the problems.
    pub(crate) fn resolve(
        &self,
        environment: &Environment,
        problems: &mut Problems,
    ) -> Option<(Repository, RunId, RequestName)> {
        let run_id = self.run_id.clone();
        let run_id = default_from(run_id, environment, "GITHUB_RUN_ID", "--run-id", RunId::parse);
        let run_id = problems.keep(run_id);
        let repository = problems.keep(repository_of(self.repository.as_ref(), environment));
        Some((repository?, run_id?, self.name.clone()))
    }
}

/// Returns the repository that is given, else the one that the environment names, else an error that names both.
pub(crate) fn repository_of(
    given: Option<&Repository>,
    environment: &Environment,
) -> Result<Repository, FieldError> {
    let parse = Repository::parse_at_github;
    default_from(given.cloned(), environment, "GITHUB_REPOSITORY", "--repository", parse)
}

/// Returns the option's value, else the variable's, else an error that names both.
fn default_from<T>(
    given: Option<T>,
    environment: &Environment,
    variable: &'static str,
    option: &str,
    parse: fn(&str) -> Result<T, FieldError>,
) -> Result<T, FieldError> {
    match (given, environment.get(variable)) {
        (Some(value), _) => Ok(value),
        (None, Some(text)) => in_field(variable, parse(text)),
        (None, None) => {
            Err(FieldError::new(option, "", "is required", format!("give {option}, or set {variable}")))
        }
    }
}

/// Returns the repository to search, if one is given or the environment names one.
pub(crate) fn repository_hint(
    given: Option<&Repository>,
    environment: &Environment,
) -> Result<Option<Repository>, FieldError> {
    match (given, environment.get("GITHUB_REPOSITORY")) {
        (Some(repository), _) => Ok(Some(repository.clone())),
        (None, Some(text)) => in_field("GITHUB_REPOSITORY", Repository::parse_at_github(text)).map(Some),
        (None, None) => Ok(None),
    }
}

/// Renames the field of an error to the source of the value.
pub(crate) fn in_field<T>(field: &str, result: Result<T, FieldError>) -> Result<T, FieldError> {
    result.map_err(|problem| problem.named(field))
}
