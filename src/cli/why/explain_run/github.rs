//! The way to GitHub of a person who asks about a run: the operator's file, the stand-in of a local yard, or a token in
//! the environment.

use std::path::Path;
use std::sync::Arc;

use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::session::configured;
use crate::session::context::CliContext;
use runyard_core::model::FieldError;
use runyard_operator::github::{ApiUrl, Credential, DEFAULT_DEADLINE, RestGitHub};
use runyard_operator::wire;

/// How a person lets GitHub be asked.
pub(super) const HOW: &str = "set GITHUB_TOKEN to a token with `Actions: read` of the repository (such as that of `gh \
                              auth token`), or give the operator's file by --config";

/// The API of github.com.
const GITHUB_COM: &str = "https://api.github.com";

/// An address with the credential for it.
#[derive(Debug)]
struct Access {
    /// The variable that has the address.
    field: &'static str,
    url: String,
    credential: Credential,
}

/// Returns the adapter for the GitHub of this yard; none where no credential is at hand.
///
/// # Errors
/// The operator's file or an address cannot be used.
pub(super) fn reach(context: &CliContext, config: Option<&Path>) -> CliResult<Option<RestGitHub>> {
    let clock = context.clock.clone();
    if let Some(file) = config {
        let config = configured::load(&context.table, file)?;
        let github = config.github.as_ref().map(|github| wire::rest_github(github, clock)).transpose();
        return github.map_err(|error| {
            let fix = "mend the configuration";
            CliFailure::error("config", file.display().to_string(), error.to_string(), fix)
        });
    }
    let Some(access) = access(&context.environment) else { return Ok(None) };
    let refused = |why: String| {
        let fix = "write it as https://api.github.com or https://HOST/api/v3, or unset it";
        CliFailure::usage(FieldError::new(access.field, &access.url, why, fix))
    };
    let url = ApiUrl::parse(&access.url).map_err(|error| refused(error.to_string()))?;
    let github = RestGitHub::new(url, access.credential, DEFAULT_DEADLINE, Arc::new(move || clock.now()));
    github
        .map(Some)
        .map_err(|error| CliFailure::error("GitHub", "", error.to_string(), "run the command again"))
}

fn access(environment: &Environment) -> Option<Access> {
    let stand_in = environment.get("RUNYARD_STAND_IN_URL").zip(environment.get("RUNYARD_STAND_IN_TOKEN"));
    if let Some((url, token)) = stand_in {
        let credential = Credential::Token(token.to_owned());
        return Some(Access { field: "RUNYARD_STAND_IN_URL", url: url.to_owned(), credential });
    }
    // In the order of GitHub's own command line.
    let token = environment.get("GH_TOKEN").or_else(|| environment.get("GITHUB_TOKEN"))?;
    let url = environment.get("GITHUB_API_URL").unwrap_or(GITHUB_COM).to_owned();
    Some(Access { field: "GITHUB_API_URL", url, credential: Credential::Token(token.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pairs: &[(&'static str, &str)]) -> Option<String> {
        let access = access(&Environment::of(pairs))?;
        Some(format!("{} {:?}", access.url, access.credential))
    }

    #[test]
    fn a_token_of_the_environment_or_the_stand_in_of_a_local_yard_reaches_github() {
        let token = ("GITHUB_TOKEN", "ghp_secret");
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[token]).unwrap(), "https://api.github.com Token");
        assert_eq!(told(&[("GH_TOKEN", "ghp_secret")]).unwrap(), "https://api.github.com Token");
        let server = ("GITHUB_API_URL", "https://ghe.example/api/v3");
        assert_eq!(
            told(&[token, server]).unwrap(),
            "https://ghe.example/api/v3 Token",
            "the token is not shown"
        );
        assert_eq!(told(&[server]), None);
        let local =
            [token, ("RUNYARD_STAND_IN_URL", "http://127.0.0.1:7"), ("RUNYARD_STAND_IN_TOKEN", "local")];
        assert_eq!(told(&local).unwrap(), "http://127.0.0.1:7 Token");
    }
}
