//! `runyard history export` and `statements`: finished activity as lines of JSON, oldest first; and the reading of the history table.

mod statements;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult};
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::model::history::{HistoryLine, day_of, days, event_partitions, events_of, partitions};
use runyard_core::model::{Event, Item, Record};
use runyard_core::ports::{Store, StoreError};

/// What is kept of what is over.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(subcommand)]
    verb: HistoryVerb,
}

impl Verb for HistoryArgs {
    type Input = Option<statements::Asked>;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        match &self.verb {
            HistoryVerb::Export(_) => Ok(None),
            HistoryVerb::Statements(args) => args.check(start).map(Some),
        }
    }

    async fn run(&self, context: &mut CliContext, asked: Self::Input) -> CliResult {
        match (&self.verb, asked) {
            (HistoryVerb::Statements(args), Some(asked)) => args.run(context, &asked).await,
            (HistoryVerb::Export(args), _) => args.run(context).await,
            (HistoryVerb::Statements(_), None) => unreachable!("its check returns the request"),
        }
    }
}

impl ExportArgs {
    async fn run(&self, context: &mut CliContext) -> CliResult {
        let args = self;
        let now = context.clock.now();
        let ago = |length: Duration| now.saturating_sub(length).unwrap_or(Timestamp::MIN);
        let (since, until) = (ago(args.since), args.until.map_or(now, ago));
        if until < since {
            let (given, fix) =
                (format!("{:?}", args.until.unwrap_or_default()), "give --until less than --since");
            return Err(CliFailure::error("--until", given, "is before --since", fix));
        }
        match &args.file {
            Some(file) => {
                let failed = |error: std::io::Error| {
                    let fix = "name a file that you may write to";
                    CliFailure::error("--file", file.display().to_string(), error.to_string(), fix)
                };
                let mut to = BufWriter::new(File::create(file).map_err(failed)?);
                export(context, since, until, args.events, |text| writeln!(to, "{text}").map_err(failed))
                    .await?;
                to.flush().map_err(failed)
            }
            None => {
                let mut to = BufWriter::new(std::io::stdout().lock());
                let failed = |error: std::io::Error| match error.kind() {
                    // A reader that closes the pipe has seen enough.
                    std::io::ErrorKind::BrokenPipe => Stopped::Left,
                    _ => {
                        Stopped::Failed(CliFailure::error("stdout", "", error.to_string(), "write to --file"))
                    }
                };
                let mut left = false;
                export(context, since, until, args.events, |text| {
                    match if left { Ok(()) } else { writeln!(to, "{text}").map_err(failed) } {
                        Ok(()) => Ok(()),
                        Err(Stopped::Left) => {
                            left = true;
                            Ok(())
                        }
                        Err(Stopped::Failed(failure)) => Err(failure),
                    }
                })
                .await?;
                match if left { Ok(()) } else { to.flush().map_err(failed) } {
                    Ok(()) | Err(Stopped::Left) => Ok(()),
                    Err(Stopped::Failed(failure)) => Err(failure),
                }
            }
        }
    }
}

#[derive(Debug, Subcommand)]
enum HistoryVerb {
    /// Write ended requests, machines' lives and failed launches as lines of JSON
    Export(ExportArgs),
    /// Write the signed statements about the claims of a run
    Statements(statements::StatementsArgs),
}

/// Which part of the history, and where to.
#[derive(Debug, Args)]
#[command(after_help = "\
A day is read at a time and written in the order in which things were over; nothing is scanned.

Examples:
  runyard history export --since 30d > history.jsonl
  runyard history export --since 48h --until 24h --events -f yesterday.jsonl")]
pub(crate) struct ExportArgs {
    /// Only what ended in this last period
    #[arg(long, value_name = "DURATION", value_parser = duration::past, allow_negative_numbers = true)]
    since: Duration,
    /// Only what ended this long ago or earlier [default: now]
    #[arg(long, value_name = "DURATION", value_parser = duration::past, allow_negative_numbers = true)]
    until: Option<Duration>,
    /// Include events, after the other lines of each day
    #[arg(long)]
    events: bool,
    /// Write to this file, replacing it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Why the export stops.
enum Stopped {
    Left,
    Failed(CliFailure),
}

async fn export(
    context: &CliContext,
    since: Timestamp,
    until: Timestamp,
    events: bool,
    mut write: impl FnMut(&str) -> CliResult,
) -> CliResult {
    each(context, since, until, events, |line| {
        let text = serde_json::to_string(&line).expect("a line is JSON");
        write(&text)
    })
    .await
}

/// Calls `take` with each line that ended from `since` to `until`, both included, in the order of their times. The
/// events of a day come after its other lines. Lines of a newer program that cannot be read are reported and omitted.
///
/// # Errors
/// The history table does not exist or cannot be read; and the errors of `take`.
pub(crate) async fn each(
    context: &CliContext,
    since: Timestamp,
    until: Timestamp,
    events: bool,
    mut take: impl FnMut(HistoryLine) -> CliResult,
) -> CliResult {
    let store = table(context)?;
    for day in days(since, until) {
        let mut found = Vec::new();
        for pk in partitions(day) {
            found.extend(under(store, &pk, "").await.map_err(|error| failed(context, &error))?);
        }
        let mut lines = read(&found);
        if events {
            let mut told = Vec::new();
            for pk in event_partitions(day) {
                told.extend(under(store, &pk, "").await.map_err(|error| failed(context, &error))?);
            }
            lines.extend(read(&told));
        }
        for line in lines.into_iter().filter(|line| (since..=until).contains(&line.at())) {
            take(line)?;
        }
    }
    Ok(())
}

/// Returns whether there is a history table that this person may read.
///
/// # Errors
/// The table did not respond.
pub(crate) async fn is_there(context: &CliContext) -> CliResult<bool> {
    let Some(store) = context.history.as_deref() else { return Ok(false) };
    let Some(pk) = partitions(day_of(context.clock.now())).next() else { return Ok(false) };
    match store.query(&pk, "~", None).await {
        Ok(_) => Ok(true),
        Err(error @ (StoreError::NoTable(_) | StoreError::Denied(_))) => {
            tracing::debug!(%error, "the history table is not read");
            Ok(false)
        }
        Err(error) => Err(context.failed(&error)),
    }
}

/// Returns why there is no history to read, for a yard whose name is short enough for the table; `None` if there is
/// one.
///
/// # Errors
/// The table did not respond.
pub(crate) async fn missing(context: &CliContext) -> CliResult<Option<String>> {
    let Some(store) = context.history.as_deref() else { return Ok(None) };
    match store.query("history#", "", None).await {
        Ok(_) => Ok(None),
        Err(error @ (StoreError::NoTable(_) | StoreError::Denied(_))) => Ok(Some(error.to_string())),
        Err(error) => Err(context.failed(&error)),
    }
}

/// Parses items into lines, sorted by time and then by key.
fn read(items: &[Item]) -> Vec<HistoryLine> {
    let line = |item| match HistoryLine::of_item(item) {
        Ok(line) => Some(line),
        Err(problem) => {
            tracing::warn!(problem, "a line of the history cannot be read and is left out");
            None
        }
    };
    let mut lines: Vec<_> = items.iter().filter_map(line).map(|line| (line.at(), line.key(), line)).collect();
    lines.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    lines.into_iter().map(|(_, _, line)| line).collect()
}

fn table(context: &CliContext) -> CliResult<&dyn Store> {
    context.history.as_deref().ok_or_else(|| no_table(context))
}

fn no_table(context: &CliContext) -> CliFailure {
    let name = format!("{}-history", context.table);
    CliFailure::error("table", name, "there is no history table", "make it with `runyard init`")
}

fn failed(context: &CliContext, error: &StoreError) -> CliFailure {
    if let StoreError::NoTable(_) = error {
        return no_table(context);
    }
    context.failed(error)
}

async fn under(store: &dyn Store, pk: &str, sk_prefix: &str) -> Result<Vec<Item>, StoreError> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page = store.query(pk, sk_prefix, after.as_ref()).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

/// Reads the events of one subject, or of all, from the history table in the form of the yard's table. Empty if the
/// table does not exist or may not be read: then the yard's table has all that is available.
pub(crate) async fn events(
    context: &CliContext,
    subject: Option<&str>,
    since: Timestamp,
) -> CliResult<Vec<Item>> {
    let Some(store) = context.history.as_deref() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for day in days(since, context.clock.now()) {
        let places: Vec<(String, String)> = match subject {
            Some(subject) => vec![events_of(subject, day)],
            None => event_partitions(day).map(|pk| (pk, String::new())).collect(),
        };
        for (pk, prefix) in places {
            match under(store, &pk, &prefix).await {
                Ok(items) => found.extend(items),
                Err(error @ (StoreError::NoTable(_) | StoreError::Denied(_))) => {
                    tracing::debug!(%error, "the history table is not read");
                    return Ok(Vec::new());
                }
                Err(error) => return Err(context.failed(&error)),
            }
        }
    }
    let event = |line| match line {
        HistoryLine::Event(event) => Some(Event::to_item(&event)),
        HistoryLine::Request(_)
        | HistoryLine::Machine(_)
        | HistoryLine::LaunchFailure(_)
        | HistoryLine::Statement(_) => None,
    };
    Ok(read(&found).into_iter().filter_map(event).collect())
}
