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
    #[arg(long, value_name = "OWNER/REPO")]
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
        let run_id = default_from(self.run_id.clone(), environment, "GITHUB_RUN_ID", "--run-id");
        let run_id = problems.keep(run_id);
        let repository =
            default_from(self.repository.clone(), environment, "GITHUB_REPOSITORY", "--repository");
        let repository = problems.keep(repository);
        Some((repository?, run_id?, self.name.clone()))
    }
}

/// Returns the option's value, else the variable's, else an error that names both.
pub(crate) fn default_from<T>(
    given: Option<T>,
    environment: &Environment,
    variable: &'static str,
    option: &str,
) -> Result<T, FieldError>
where
    T: std::str::FromStr<Err = FieldError>,
{
    match (given, environment.get(variable)) {
        (Some(value), _) => Ok(value),
        (None, Some(text)) => in_field(variable, text.parse()),
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
        (None, Some(text)) => in_field("GITHUB_REPOSITORY", text.parse()).map(Some),
        (None, None) => Ok(None),
    }
}

/// Renames the field of an error to the source of the value.
pub(crate) fn in_field<T>(field: &str, result: Result<T, FieldError>) -> Result<T, FieldError> {
    result.map_err(|problem| problem.named(field))
}
