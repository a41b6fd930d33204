//! Completion in a shell: the script that a shell loads, and the names stored in the table (classes, machines,
//! requests, launches), which are read when a person presses TAB.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum as _;
use clap_complete::env::Shells;
use clap_complete::{ArgValueCandidates, CompleteEnv, CompletionCandidate, Shell};

use super::selector::Noun;
use crate::common::environment::Environment;
use crate::output::format::Format;
use crate::output::pick::Output;
use crate::output::screen::Screen;
use crate::session::{connect, yards};
use runyard_core::model::kind_of;
use runyard_core::model::{AttributeValue, Item, Kind, RecordId, RequestName, TableName};
use runyard_core::ports::Store as _;

/// The environment variable with which the shell's script asks the program for candidates.
const VARIABLE: &str = "RUNYARD_COMPLETE";
/// Timeout of a completion: if the table does not respond by then, no names are offered.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Maximum number of pages of the table (1 MB each) that one TAB reads.
const PAGES: usize = 8;

/// Answers the shell's script, if it started the program (`command` is the whole command line). An invalid request
/// counts as answered.
pub(crate) fn asked(command: fn() -> clap::Command, arguments: &[OsString]) -> bool {
    let current = std::env::current_dir().ok();
    CompleteEnv::with_factory(command)
        .var(VARIABLE)
        .try_complete(arguments.iter().cloned(), current.as_deref())
        .unwrap_or(true)
}

/// Returns the script that a shell loads.
pub(crate) fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    if let Some(writer) = Shells::builtins().completer(&shell.to_string()) {
        writer
            .write_registration(VARIABLE, "runyard", "runyard", "runyard", &mut script)
            .expect("memory takes what is written");
    }
    String::from_utf8(script).expect("a script is text")
}

/// Completes the names of resource classes.
pub(crate) fn classes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| named(&Asked::now(), Kind::Pool))
}

/// Completes the names of yards.
pub(crate) fn yards() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        yards::known(&Environment::of_process()).into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Completes the output formats.
pub(crate) fn forms() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let forms = ["text", "wide", "json", "yaml", "name", "csv", "jsonpath=", "custom-columns="];
        forms.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Completes the kinds of records, or after `KIND/` the names of its records.
pub(crate) fn kinds_and_names() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let asked = Asked::now();
        let before = asked.0.last().and_then(|word| word.split_once('/')).map(|(kind, _)| kind.to_owned());
        match before.and_then(|kind| Some((Noun::from_str(&kind, false).ok()?, kind))) {
            Some((noun, kind)) => {
                let names = named(&asked, noun.kind());
                names.into_iter().map(|name| name.add_prefix(format!("{kind}/"))).collect()
            }
            None => Noun::value_variants()
                .iter()
                .filter_map(|noun| {
                    Some(CompletionCandidate::new(noun.to_possible_value()?.get_name().to_owned()))
                })
                .collect(),
        }
    })
}

/// Completes the names of requests.
pub(crate) fn requests() -> ArgValueCandidates {
    ArgValueCandidates::new(|| named(&Asked::now(), Kind::Request))
}

/// Completes the ids of machines, or with `--idle` the names of resource classes.
pub(crate) fn machines_or_classes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let asked = Asked::now();
        let kind = if asked.says("--idle") { Kind::Pool } else { Kind::Instance };
        named(&asked, kind)
    })
}

/// Completes the names of the kind of record that precedes them.
pub(crate) fn of_the_kind_before() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let asked = Asked::now();
        asked.noun().map_or_else(Vec::new, |noun| named(&asked, noun.kind()))
    })
}

/// The words of the line to complete.
struct Asked(Vec<String>);

impl Asked {
    /// Reads the words after `--`, which the shell's script writes before them.
    fn now() -> Self {
        let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        Self(words.filter_map(|word| word.into_string().ok()).collect())
    }

    fn says(&self, option: &str) -> bool {
        self.0.iter().any(|word| word == option)
    }

    /// Returns the first kind named after the verb.
    fn noun(&self) -> Option<Noun> {
        self.0.iter().skip(2).find_map(|word| Noun::from_str(word, false).ok())
    }

    fn table(&self) -> Option<TableName> {
        TableName::parse(&self.option("--table")?).ok()
    }

    /// Returns the value of an option.
    fn option(&self, name: &str) -> Option<String> {
        let after = self.0.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str());
        let joined = self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        after.or(joined).map(str::to_owned)
    }
}

/// Reads the names of a kind's records from the table; empty if the table does not respond in time.
fn named(asked: &Asked, kind: Kind) -> Vec<CompletionCandidate> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let items = runtime.block_on(async { tokio::time::timeout(PATIENCE, items(asked, kind)).await });
    // A name lookup may still block a thread; it is not waited for.
    runtime.shutdown_background();
    candidates(&items.unwrap_or_default())
}

async fn items(asked: &Asked, kind: Kind) -> Vec<Item> {
    let (table, yard) = (asked.table(), asked.option("--yard"));
    let environment = yards::environment_of(yard.as_deref(), table.as_ref(), Environment::of_process());
    let Ok(environment) = environment else { return Vec::new() };
    let Ok(table) = yards::table_of(table.as_ref(), &environment) else { return Vec::new() };
    let screen = Screen::stdout(&Output { format: Format::Text, pick: None });
    let Ok((_, store)) = connect::connect(table, environment, screen).await else { return Vec::new() };
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..PAGES {
        let Ok(page) = store.list(after.as_ref()).await else { break };
        found.extend(page.items.into_iter().filter(|item| kind_of(item) == Some(kind)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found
}

/// Returns the name of each record with its state, sorted and without duplicates.
fn candidates(items: &[Item]) -> Vec<CompletionCandidate> {
    let mut named: Vec<(String, String)> =
        items.iter().filter_map(|item| Some((name(&RecordId::of(item)?)?, state(item)))).collect();
    named.sort();
    named.dedup_by(|later, first| later.0 == first.0);
    named
        .into_iter()
        .map(|(name, state)| CompletionCandidate::new(name).help((!state.is_empty()).then(|| state.into())))
        .collect()
}

/// Returns the state or phase of an item; empty for a pool.
fn state(item: &Item) -> String {
    let word = ["state", "phase"].iter().find_map(|name| match item.get(*name)? {
        AttributeValue::S(word) => Some(word.clone()),
        _ => None,
    });
    word.unwrap_or_default()
}

fn name(id: &RecordId) -> Option<String> {
    match id {
        RecordId::Instance(_) => id.machine().map(str::to_owned),
        RecordId::Request(key) if key.name == RequestName::default_name() => Some(key.run_id.to_string()),
        RecordId::Request(key) => Some(format!("{}/{}", key.run_id, key.name)),
        RecordId::Pool(class) => Some(class.to_string()),
        RecordId::Launch(id) => Some(id.to_string()),
        RecordId::Agent(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::context::{attributes, text};

    #[test]
    fn names_are_offered_as_a_person_types_them_each_once_and_in_order() {
        let item = |pk: &str, sk: &str, state: &str| {
            attributes([("pk", text(pk)), ("sk", text(sk)), ("phase", text(state))])
        };
        let items = [
            item("request#acme/web#7", "request#gpu#1", "Waiting"),
            item("request#acme/web#7", "request#default#2", "Ready"),
            item("request#acme/web#7", "request#default#1", "Ready"),
            item("pool#small", "pool", ""),
            item("instance#arn:aws:ec2:local:000000000000:instance/i-1", "instance", "idle"),
            item("note#1", "note", ""),
        ];
        let offered = candidates(&items);
        let names: Vec<&str> = offered.iter().filter_map(|one| one.get_value().to_str()).collect();
        assert_eq!(names, ["7", "7/gpu", "i-1", "small"]);
        let help = |at: usize| offered[at].get_help().map(ToString::to_string);
        assert_eq!((help(1), help(3)), (Some("Waiting".into()), None));
    }

    #[test]
    fn the_line_says_which_kind_and_which_table() {
        let asked = |line: &str| Asked(line.split(' ').map(str::to_owned).collect());
        let line = asked("runyard --table=mine describe pool sm");
        assert_eq!(line.noun(), Some(Noun::Pools));
        assert_eq!(line.table().map(|table| table.to_string()).as_deref(), Some("mine"));
        assert_eq!(asked("runyard get requests").noun(), Some(Noun::Requests));
        assert_eq!(asked("runyard expire i-").noun(), None);
        assert!(asked("runyard expire --idle sm").says("--idle"));
    }
}
