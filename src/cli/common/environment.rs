//! The only place of the command line that reads the process's environment: the defaults set by GitHub Actions, the
//! files for its outputs, and the actor.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The variables that the command line reads; an empty one counts as not set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<&'static str, String>,
    /// Whether a local yard's own variables are chosen; AWS's chains are not used then.
    pub(crate) local: bool,
    /// The profile of the chosen yard, which takes precedence over the shell's credentials.
    pub(crate) profile: Option<String>,
}

const READ: &[&str] = &[
    "GITHUB_RUN_ID",
    "GITHUB_RUN_ATTEMPT",
    "GITHUB_REPOSITORY",
    "GITHUB_ACTIONS",
    "GITHUB_OUTPUT",
    "GITHUB_STEP_SUMMARY",
    "GITHUB_ACTOR",
    "GITHUB_API_URL",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "RUNYARD_STAND_IN_URL",
    "RUNYARD_STAND_IN_TOKEN",
    "RUNYARD_TABLE",
    "RUNYARD_PAGE",
    "RUNYARD_DIR",
    "RUNYARD_LOG",
    "RUNYARD_QUEUE__KIND",
    "USER",
    "LOGNAME",
    "VISUAL",
    "EDITOR",
    "HOME",
    "XDG_CONFIG_HOME",
    "RUNYARD_YARD",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_DYNAMODB",
    "AWS_ENDPOINT_URL_SQS",
];

impl Environment {
    /// Returns the environment of this process.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads it for the command line")]
    pub(crate) fn of_process() -> Self {
        let set = READ.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?)));
        Self { variables: set.filter(|(_, value)| !value.is_empty()).collect(), ..Self::default() }
    }

    /// Returns an environment with only these variables.
    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&'static str, &str)]) -> Self {
        let variables = pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { variables, ..Self::default() }
    }

    /// Returns a variable's value, unless it is not set or empty.
    pub(crate) fn get(&self, name: &'static str) -> Option<&str> {
        debug_assert!(READ.contains(&name), "{name} is not among the variables that are read");
        self.variables.get(name).map(String::as_str)
    }

    /// Overrides a variable of the shell; variables that are never read are ignored. A chosen endpoint replaces all
    /// others.
    pub(crate) fn choose(&mut self, name: &str, value: &str) {
        if name == "AWS_ENDPOINT_URL" {
            self.variables.retain(|name, _| !name.starts_with("AWS_ENDPOINT_URL"));
        }
        if let Some(name) = READ.iter().find(|read| **read == name) {
            self.variables.insert(name, value.to_owned());
        }
    }

    /// Removes a variable.
    pub(crate) fn forget(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// Returns a variable as a path.
    pub(crate) fn file(&self, name: &'static str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// Returns the endpoint of DynamoDB, if it is not AWS's.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.get("AWS_ENDPOINT_URL_DYNAMODB").or_else(|| self.get("AWS_ENDPOINT_URL"))
    }

    /// Returns the name of the user for events.
    pub(crate) fn actor(&self) -> String {
        let user = ["GITHUB_ACTOR", "USER", "LOGNAME"].into_iter().find_map(|name| self.get(name));
        format!("cli:{}", user.unwrap_or("unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_workflow_the_actor_is_who_started_it() {
        let environment = Environment::of(&[("USER", "runner"), ("GITHUB_ACTOR", "octocat")]);
        assert_eq!(environment.actor(), "cli:octocat");
        assert_eq!(Environment::default().actor(), "cli:unknown");
    }
}
