//! Named yards: the table, region and profile, or the directory of a local yard, that `--yard NAME` selects. A file of
//! the user's configuration stores the names; `runyard config` writes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::names;
use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use runyard_core::model::{FieldError, TableName};

/// The file: the yards by name, and the current one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Yards {
    /// The yard to use if no other is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    pub(crate) yards: BTreeMap<String, Yard>,
}

/// The location of a yard: in an account, or in a directory of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Yard {
    /// Its table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<String>,
    /// The region of its table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    /// The profile in AWS's own files that has its credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<String>,
    /// The directory of `runyard up`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dir: Option<PathBuf>,
}

/// The variables that locate a yard. If the shell sets one of them, the `current` yard is not used.
const OF_SHELL: [&str; 3] = ["RUNYARD_TABLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"];

/// The variables that locate the stand-in GitHub of a local yard.
const STAND_IN: [&str; 2] = ["RUNYARD_STAND_IN_URL", "RUNYARD_STAND_IN_TOKEN"];

/// Returns the environment with the chosen yard: `--yard`, else RUNYARD_YARD, else the current one of the file, unless
/// `--table` or the shell locates another.
pub(crate) fn environment_of(
    yard: Option<&str>,
    table: Option<&TableName>,
    environment: Environment,
) -> CliResult<Environment> {
    let named = yard.map(|name| ("--yard", name));
    let named = named.or_else(|| environment.get("RUNYARD_YARD").map(|name| ("RUNYARD_YARD", name)));
    let (field, name, yard) = match named {
        Some((field, name)) if is_path(name) => {
            (field, name.to_owned(), Yard { dir: Some(name.into()), ..Yard::default() })
        }
        Some((field, name)) => (field, name.to_owned(), Yards::read(&environment)?.get(field, name)?),
        None if table.is_some() || OF_SHELL.iter().any(|name| environment.get(name).is_some()) => {
            return Ok(environment);
        }
        None => {
            let yards = Yards::read(&environment)?;
            match &yards.current {
                Some(name) => ("current", name.clone(), yards.get("current", name)?),
                None => return Ok(environment),
            }
        }
    };
    yard.over(environment, field, &name)
}

/// Returns the chosen table: `--table`, else RUNYARD_TABLE, else `runyard`.
pub(crate) fn table_of(named: Option<&TableName>, environment: &Environment) -> CliResult<TableName> {
    match (named, environment.get("RUNYARD_TABLE")) {
        (Some(table), _) => Ok(table.clone()),
        (None, Some(name)) => {
            TableName::parse(name).map_err(|problem| CliFailure::usage(problem.named("RUNYARD_TABLE")))
        }
        (None, None) => Ok(TableName::parse("runyard").expect("the default is a valid name")),
    }
}

/// Returns whether the text is a path of a directory and not a name.
pub(crate) fn is_path(name: &str) -> bool {
    name.contains('/') || name == "." || name == ".."
}

/// Returns the names of the file, for completion.
pub(crate) fn known(environment: &Environment) -> Vec<String> {
    Yards::read(environment).map(|yards| yards.yards.into_keys().collect()).unwrap_or_default()
}

impl Yards {
    /// Returns the path of the file, if the user has a directory for it.
    pub(crate) fn path(environment: &Environment) -> Option<PathBuf> {
        let place = environment.file("XDG_CONFIG_HOME");
        let place = place.or_else(|| environment.file("HOME").map(|home| home.join(".config")))?;
        Some(place.join("runyard").join("yards.yaml"))
    }

    /// Reads the file; the result is empty if there is none.
    pub(crate) fn read(environment: &Environment) -> CliResult<Self> {
        let Some(path) = Self::path(environment) else { return Ok(Self::default()) };
        let refused = |message: String| {
            let fix = "mend the file, or write it anew by `runyard config set`";
            CliFailure::usage(FieldError::new("yards.yaml", path.display().to_string(), message, fix))
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                serde_norway::from_str(&text).map_err(|error| refused(format!("cannot be read: {error}")))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    /// Returns the yard with this name.
    pub(crate) fn get(&self, field: &str, name: &str) -> CliResult<Yard> {
        self.yards.get(name).cloned().ok_or_else(|| {
            let near = names::meant(name, self.yards.keys().map(String::as_str));
            let fix = format!(
                "{near}see `runyard config list`; `runyard config set NAME` adds one; a directory is written ./DIR"
            );
            CliFailure::usage(FieldError::new(field, name, "there is no such yard", fix))
        })
    }
}

impl Yard {
    /// Returns the environment with this yard chosen. The shell supplies what the yard leaves out; a local yard takes
    /// nothing from the shell.
    fn over(&self, mut environment: Environment, field: &str, name: &str) -> CliResult<Environment> {
        // The shell's stand-in GitHub belongs to the shell's local yard.
        STAND_IN.iter().for_each(|name| environment.forget(name));
        if let Some(dir) = &self.dir {
            for (key, value) in local(dir, field, name)? {
                environment.choose(&key, &value);
            }
            // There are the logs of its machines.
            environment.choose("RUNYARD_DIR", &dir.to_string_lossy());
            environment.local = true;
        }
        if self.profile.is_some() {
            // The region is the yard's, else the profile's; not the shell's.
            environment.forget("AWS_REGION");
        }
        let chosen =
            [("RUNYARD_TABLE", &self.table), ("AWS_REGION", &self.region), ("AWS_PROFILE", &self.profile)];
        for (key, value) in chosen {
            if let Some(value) = value {
                environment.choose(key, value);
            }
        }
        environment.profile.clone_from(&self.profile);
        Ok(environment)
    }
}

/// Reads the variables that `runyard up` wrote for its clients.
fn local(dir: &Path, field: &str, name: &str) -> CliResult<Vec<(String, String)>> {
    let path = dir.join("env");
    let text = std::fs::read_to_string(&path).map_err(|_| {
        let message = format!("no local yard is kept there: there is no {}", path.display());
        let fix =
            format!("name the directory of `runyard up`, or start one: runyard up --dir {}", dir.display());
        CliFailure::error(field, name, message, fix)
    })?;
    let pair = |line: &str| {
        let (key, value) = line.strip_prefix("export ")?.split_once('=')?;
        Some((key.to_owned(), value.to_owned()))
    };
    Ok(text.lines().filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(text: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("runyard")).unwrap();
        std::fs::write(home.path().join("runyard/yards.yaml"), text).unwrap();
        home
    }

    fn chosen(home: &Path, arguments: &[&str], shell: &[(&'static str, &str)]) -> Result<String, String> {
        let place = home.to_str().unwrap();
        let shell = Environment::of(&[&[("XDG_CONFIG_HOME", place)], shell].concat());
        let after = |option| arguments.iter().position(|word| *word == option).map(|at| arguments[at + 1]);
        let table = after("--table").map(|name| TableName::parse(name).unwrap());
        let environment = environment_of(after("--yard"), table.as_ref(), shell)
            .map_err(|failure| format!("{}: {}", failure.problems[0].field, failure.problems[0].fix))?;
        let word = |name| environment.get(name).unwrap_or("-").to_owned();
        Ok(format!("{} {} {}", word("RUNYARD_TABLE"), word("AWS_REGION"), word("AWS_ENDPOINT_URL")))
    }

    #[test]
    fn a_yard_is_named_by_the_option_the_variable_or_the_file_in_this_order() {
        let home = home(
            "current: prod\nyards:\n  prod: {table: ci, region: eu-west-1}\n  test: {table: ci-test, region: us-east-1}\n",
        );
        let chosen = |arguments: &[&str], shell: &[_]| chosen(home.path(), arguments, shell);
        assert_eq!(chosen(&[], &[]).unwrap(), "ci eu-west-1 -");
        assert_eq!(chosen(&[], &[("RUNYARD_YARD", "test")]).unwrap(), "ci-test us-east-1 -");
        assert_eq!(chosen(&["--yard", "prod"], &[("RUNYARD_YARD", "test")]).unwrap(), "ci eu-west-1 -");
        assert_eq!(
            chosen(&[], &[("RUNYARD_TABLE", "mine")]).unwrap(),
            "mine - -",
            "the shell says otherwise"
        );
        assert_eq!(chosen(&["--table", "mine"], &[]).unwrap(), "- - -");
        let refused = chosen(&["--yard", "prd"], &[]).unwrap_err();
        assert!(refused.starts_with("--yard: did you mean prod?"), "{refused}");
    }

    #[test]
    fn a_local_yard_is_reached_by_its_directory_and_the_shell_keeps_its_own() {
        let home = home("{}");
        let dir = home.path().join("yard");
        let named = dir.to_str().unwrap();
        let refused = chosen(home.path(), &["--yard", named], &[]).unwrap_err();
        assert!(refused.contains("runyard up --dir"), "{refused}");
        std::fs::create_dir(&dir).unwrap();
        let env =
            "# Read this\nunset X\nexport AWS_ENDPOINT_URL=http://127.0.0.1:1\nexport RUNYARD_TABLE=local\n";
        std::fs::write(dir.join("env"), format!("{env}export AWS_REGION=us-east-1\n")).unwrap();
        let shell = [("RUNYARD_TABLE", "mine"), ("AWS_ENDPOINT_URL_DYNAMODB", "http://elsewhere")];
        let reached = chosen(home.path(), &["--yard", named], &shell).unwrap();
        assert_eq!(reached, "local us-east-1 http://127.0.0.1:1");
        let environment = environment_of(Some(named), None, Environment::default()).ok().unwrap();
        assert_eq!(environment.get("RUNYARD_DIR"), Some(named));
    }

    #[test]
    fn the_stand_in_of_the_shells_yard_is_not_that_of_another() {
        let home = home("yards:\n  prod: {table: ci, region: eu-west-1}\n");
        let shell = Environment::of(&[
            ("XDG_CONFIG_HOME", home.path().to_str().unwrap()),
            ("RUNYARD_STAND_IN_URL", "http://127.0.0.1:1"),
            ("RUNYARD_STAND_IN_TOKEN", "/token"),
        ]);
        assert!(environment_of(None, None, shell.clone()).unwrap().get("RUNYARD_STAND_IN_URL").is_some());
        let chosen = environment_of(Some("prod"), None, shell).unwrap();
        assert!(STAND_IN.iter().all(|name| chosen.get(name).is_none()));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_by_its_name() {
        let home = home("yards: [\n");
        let refused = chosen(home.path(), &["--yard", "x"], &[]).unwrap_err();
        assert!(refused.starts_with("yards.yaml: "), "{refused}");
    }
}
