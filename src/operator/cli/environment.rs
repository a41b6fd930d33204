//! The only place of the command line that reads the process's environment: the defaults that GitHub Actions sets, the
//! files it wants written, and the actor.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The variables the command line looks at; an empty one counts as not set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(BTreeMap<&'static str, String>);

const READ: &[&str] = &[
    "GITHUB_RUN_ID",
    "GITHUB_RUN_ATTEMPT",
    "GITHUB_REPOSITORY",
    "GITHUB_ACTIONS",
    "GITHUB_OUTPUT",
    "GITHUB_STEP_SUMMARY",
    "GITHUB_ACTOR",
    "RUNYARD_TABLE",
    "RUNYARD_DIR",
    "RUNYARD_LOG",
    "RUNYARD_QUEUE__KIND",
    "USER",
    "LOGNAME",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_DYNAMODB",
    "AWS_ENDPOINT_URL_SQS",
];

impl Environment {
    /// The environment of this process.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads it for the command line")]
    pub(crate) fn of_process() -> Self {
        let set = READ.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?)));
        Self(set.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// An environment made of these variables alone.
    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&'static str, &str)]) -> Self {
        Self(pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
    }

    /// A variable's value, unless it is not set or empty.
    pub(crate) fn get(&self, name: &'static str) -> Option<&str> {
        debug_assert!(READ.contains(&name), "{name} is not among the variables that are read");
        self.0.get(name).map(String::as_str)
    }

    /// A variable that names a file.
    pub(crate) fn file(&self, name: &'static str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// Where DynamoDB is, if not at AWS.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.get("AWS_ENDPOINT_URL_DYNAMODB").or_else(|| self.get("AWS_ENDPOINT_URL"))
    }

    /// Who is asking, as events name them.
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
