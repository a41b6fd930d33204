//! `runyard config`: lists, adds, chooses and removes named yards.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::input::completion;
use crate::output::screen::Screen;
use crate::output::table::columns;
use crate::session::yards::{Yard, Yards, is_path};
use runyard_core::model::{FieldError, TableName};

/// Names yards.
#[derive(Debug, Args)]
#[command(after_help = "\
The file is yards.yaml in $XDG_CONFIG_HOME/runyard, else ~/.config/runyard. It has no secrets: a profile is one of AWS's own \
files. A verb goes to --yard NAME (or a directory, ./yard), else $RUNYARD_YARD, else the shell's own RUNYARD_TABLE or \
AWS_ENDPOINT_URL, else the yard in use.

Examples:
  runyard config set prod --table ci-runners --region eu-west-1 --profile ci
  runyard config set here --dir ~/yard
  runyard config use prod
  runyard --yard here get pools")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: What,
}

/// What is done with the names.
#[derive(Debug, Subcommand)]
enum What {
    /// List yards; * marks the current one
    List,
    /// Add or change a yard; --table names its table
    Set(SetArgs),
    /// Set the current yard
    Use {
        /// Name of the yard
        #[arg(value_name = "NAME", add = completion::yards())]
        name: String,
    },
    /// Remove a yard
    Remove {
        /// Name of the yard
        #[arg(value_name = "NAME", add = completion::yards())]
        name: String,
    },
}

/// A yard and where it is.
#[derive(Debug, Args)]
struct SetArgs {
    /// Name of the yard
    #[arg(value_name = "NAME", value_parser = name_of)]
    name: String,
    /// Region of its table
    #[arg(long)]
    region: Option<String>,
    /// AWS profile with its credentials
    #[arg(long)]
    profile: Option<String>,
    /// Directory of a local yard (`runyard up`)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["region", "profile"])]
    dir: Option<PathBuf>,
}

fn name_of(text: &str) -> Result<String, FieldError> {
    if text.is_empty() || is_path(text) || text.chars().any(char::is_whitespace) {
        let fix = "use a word without / and spaces";
        return Err(FieldError::new("NAME", text, "is no name of a yard", fix));
    }
    Ok(text.to_owned())
}

/// Runs the verb.
pub(crate) fn run(
    screen: &mut Screen,
    args: ConfigArgs,
    table: Option<&TableName>,
    environment: &Environment,
) -> CliResult {
    let mut yards = Yards::read(environment)?;
    let said = match args.what {
        What::List => {
            list(screen, &yards);
            return Ok(());
        }
        What::Set(set) => {
            let dir = set.dir.map(|dir| std::path::absolute(&dir).unwrap_or(dir));
            let yard =
                Yard { table: table.map(ToString::to_string), region: set.region, profile: set.profile, dir };
            let first = yards.yards.is_empty();
            yards.yards.insert(set.name.clone(), yard);
            if first {
                yards.current = Some(set.name.clone());
            }
            format!("yard {}: {}", set.name, if first { "set, and in use" } else { "set" })
        }
        What::Use { name } => {
            yards.get("NAME", &name)?;
            yards.current = Some(name.clone());
            format!("yard {name}: in use")
        }
        What::Remove { name } => {
            yards.get("NAME", &name)?;
            yards.yards.remove(&name);
            yards.current = yards.current.filter(|current| *current != name);
            format!("yard {name}: forgotten")
        }
    };
    write(&yards, environment)?;
    screen.say(said);
    screen.document(&json!(yards));
    Ok(())
}

fn list(screen: &mut Screen, yards: &Yards) {
    screen.document(&json!(yards));
    if screen.format.for_programs() {
        return;
    }
    if yards.yards.is_empty() {
        screen.remark("there are no named yards; `runyard config set NAME` adds one");
        return;
    }
    let row = |(name, yard): (&String, &Yard)| {
        let current = if yards.current.as_ref() == Some(name) { "*" } else { "" };
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let dir = yard.dir.as_ref().map(|dir| dir.display().to_string()).unwrap_or_default();
        vec![current.into(), name.clone(), word(&yard.table), word(&yard.region), word(&yard.profile), dir]
    };
    let rows = yards.yards.iter().map(row).collect();
    let text = columns(screen, &["USED", "NAME", "TABLE", "REGION", "PROFILE", "DIRECTORY"], rows);
    screen.text(&text);
}

/// Replaces the file atomically: another process reads the old file or the new one.
fn write(yards: &Yards, environment: &Environment) -> CliResult {
    let Some(path) = Yards::path(environment) else {
        let fix = "set HOME or XDG_CONFIG_HOME";
        return Err(CliFailure::error("HOME", "", "there is no place for the file of yards", fix));
    };
    let text = serde_norway::to_string(yards).expect("names and words can be written as YAML");
    let beside = path.with_extension(format!("yaml.{}", std::process::id()));
    let written = std::fs::create_dir_all(path.parent().unwrap_or(&path))
        .and_then(|()| std::fs::write(&beside, text))
        .and_then(|()| std::fs::rename(&beside, &path));
    written.map_err(|error| {
        let fix = "check that path, or set XDG_CONFIG_HOME to a directory that you may write to";
        CliFailure::error("yards.yaml", path.display().to_string(), error.to_string(), fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format::Format;

    #[test]
    fn yards_are_set_chosen_listed_and_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::of(&[("XDG_CONFIG_HOME", home.path().to_str().unwrap())]);
        let table = TableName::parse("ci-runners").unwrap();
        let does = |what: What| {
            let (mut screen, read) = Screen::kept(Format::Text);
            run(&mut screen, ConfigArgs { what }, Some(&table), &environment).map(|()| read())
        };
        let set = |name: &str| {
            let region = Some("eu-west-1".to_owned());
            does(What::Set(SetArgs { name: name.into(), region, profile: None, dir: None }))
        };
        assert_eq!(set("prod").unwrap(), "yard prod: set, and in use\n");
        assert_eq!(set("test").unwrap(), "yard test: set\n");
        does(What::Use { name: "test".into() }).unwrap();
        let listed = does(What::List).unwrap();
        assert!(listed.contains("*     test  ci-runners  eu-west-1"), "{listed}");
        does(What::Remove { name: "test".into() }).unwrap();
        assert!(!does(What::List).unwrap().contains('*'));
        assert!(does(What::Use { name: "test".into() }).is_err());
        assert!(name_of("a/b").is_err() && name_of("").is_err());
    }
}
