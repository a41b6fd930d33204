//! Parses the package's own options, in the forms `--name value` and `--name=value`, or from the environment.

use std::collections::BTreeMap;

/// Options of all commands that take a value.
const VALUES: [&str; 8] =
    ["url", "token", "name", "labels", "runnergroup", "work", "jitconfig", "startuptype"];
/// Options of all commands that do not.
const FLAGS: [&str; 8] = [
    "unattended",
    "replace",
    "no-default-labels",
    "disableupdate",
    "ephemeral",
    "local",
    "once",
    "runasservice",
];
/// The prefix of an option's name in the environment.
const INPUT: &str = "ACTIONS_RUNNER_INPUT_";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Configure(Configure),
    Remove(Remove),
    Run(Run),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Configure {
    pub(super) url: String,
    pub(super) token: String,
    pub(super) name: Option<String>,
    pub(super) labels: Vec<String>,
    pub(super) work: String,
    pub(super) replace: bool,
    pub(super) no_default_labels: bool,
    pub(super) ephemeral: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remove {
    pub(super) token: Option<String>,
    /// Whether to remove only the local files.
    pub(super) local: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) jitconfig: Option<String>,
    pub(super) once: bool,
}

/// Parses a command line. Errors name the option, never its value: it may be a token.
pub(super) fn parse(args: &[String], inputs: &BTreeMap<String, String>) -> Result<Command, String> {
    let (command, rest) = args.split_first().ok_or("Expected a command: configure, remove or run")?;
    let mut options = Options::read(rest)?;
    options.add_inputs(inputs);
    match command.as_str() {
        "configure" => Ok(Command::Configure(Configure {
            url: options.required("url")?,
            token: options.required("token")?,
            name: options.value("name"),
            labels: split(options.value("labels")),
            work: options.value("work").unwrap_or_else(|| "_work".to_owned()),
            replace: options.flag("replace"),
            no_default_labels: options.flag("no-default-labels"),
            ephemeral: options.flag("ephemeral"),
        })),
        "remove" => {
            Ok(Command::Remove(Remove { token: options.value("token"), local: options.flag("local") }))
        }
        "run" => Ok(Command::Run(Run { jitconfig: options.value("jitconfig"), once: options.flag("once") })),
        other => Err(format!("Unrecognized command: {other}")),
    }
}

#[derive(Default)]
struct Options(BTreeMap<String, String>);

impl Options {
    fn read(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let option = arg.strip_prefix("--").ok_or("Unrecognized command-line input argument")?;
            let (name, inline) = match option.split_once('=') {
                Some((name, value)) => (name.to_lowercase(), Some(value.to_owned())),
                None => (option.to_lowercase(), None),
            };
            let value = if FLAGS.contains(&name.as_str()) {
                inline.unwrap_or_else(|| "true".to_owned())
            } else if VALUES.contains(&name.as_str()) {
                let next = inline.or_else(|| args.next().cloned());
                next.ok_or_else(|| format!("--{name} needs a value"))?
            } else {
                return Err(format!("Unrecognized command-line input argument: '{name}'"));
            };
            options.0.insert(name, value);
        }
        Ok(options)
    }

    fn add_inputs(&mut self, inputs: &BTreeMap<String, String>) {
        for (key, value) in inputs {
            let name = key.strip_prefix(INPUT).map(|name| name.to_lowercase().replace('_', "-"));
            if let Some(name) = name {
                self.0.entry(name).or_insert_with(|| value.clone());
            }
        }
    }

    fn value(&mut self, name: &str) -> Option<String> {
        self.0.remove(name).filter(|value| !value.is_empty())
    }

    fn required(&mut self, name: &str) -> Result<String, String> {
        self.value(name).ok_or_else(|| {
            format!("Invalid configuration provided for {name}. Terminating unattended configuration: give --{name}.")
        })
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

fn split(labels: Option<String>) -> Vec<String> {
    let labels = labels.unwrap_or_default();
    labels.split(',').map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, inputs: &[(&str, &str)]) -> Result<Command, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&args, &inputs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn the_whole_configuration_line_is_read() {
        let line = "configure --url http://h/o/r --token T --name n --labels a,b --unattended --replace \
                    --no-default-labels --disableupdate --runnergroup Default --work=w";
        let Ok(Command::Configure(read)) = parsed(line, &[]) else { panic!("not read") };
        assert_eq!((read.url.as_str(), read.token.as_str(), read.work.as_str()), ("http://h/o/r", "T", "w"));
        assert_eq!((read.name.as_deref(), read.labels), (Some("n"), vec!["a".to_owned(), "b".to_owned()]));
        assert!(read.replace && read.no_default_labels && !read.ephemeral);
    }

    #[test]
    fn secrets_may_come_by_the_environment_and_options_win() {
        let inputs = [("ACTIONS_RUNNER_INPUT_JITCONFIG", "J"), ("UNRELATED", "x")];
        assert_eq!(
            parsed("run", &inputs),
            Ok(Command::Run(Run { jitconfig: Some("J".to_owned()), once: false }))
        );
        let given = parsed("run --jitconfig K", &inputs);
        assert_eq!(given, Ok(Command::Run(Run { jitconfig: Some("K".to_owned()), once: false })));
    }

    #[test]
    fn mistakes_are_named_without_repeating_a_value() {
        assert!(parsed("configure --url u", &[]).unwrap_err().contains("--token"));
        assert!(parsed("run --bogus=hunter2", &[]).unwrap_err().contains("'bogus'"));
        assert!(!parsed("run hunter2", &[]).unwrap_err().contains("hunter2"));
        assert!(parsed("remove --token", &[]).unwrap_err().contains("needs a value"));
    }
}
