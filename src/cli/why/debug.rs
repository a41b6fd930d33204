//! `runyard debug`: one page about a failed record: its state, its events and those of its machines, the relevant
//! output, and the probable cause with its fix.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::bundle::Bundle;
use super::plan_explain::{self, ExplainTarget};
use crate::common::failure::{CliFailure, CliResult};
use crate::input::what::OneArgs;
use crate::look::{events, logs};
use crate::output::format::plain;
use crate::output::json;
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::explain;
use runyard_core::explain::{CAUSES, Probable, Said};
use runyard_core::model::{Event, Item, Reading, RecordId, Repository, read};
use runyard_core::yard::{Now, Yard};

/// Maximum number of events on the page; the latest are shown.
const EVENTS: usize = 20;
/// Number of log lines that are searched for a cause.
const LAST_LINES: usize = 5;
/// Maximum number of quoted messages on the page.
const WORDS: usize = 12;

/// Tells the probable cause of a failure.
#[derive(Debug, Args)]
#[command(after_help = "\
Only records and events are looked at, so it needs no rights but those of `get`. What machines wrote on their consoles \
is in their records once they ended young.

Examples:
  runyard debug request 1234567890
  runyard debug instance i-0123456789abcdef0
  runyard debug pool linux-x64 -o json
  runyard debug instance i-0123456789abcdef0 --bundle i-0123.tar.gz")]
pub(crate) struct DebugArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Repository of the request, if several have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github)]
    repository: Option<Repository>,
    /// Operator configuration, for its deadlines [default: built-in deadlines and RUNYARD_TIMING__*]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the page, records, events and logs to a new archive (tar.gz), without credentials
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

impl Verb for DebugArgs {
    type Input = ExplainTarget;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let repository = self.repository.as_ref();
        plan_explain::target(
            self.one.selector()?,
            repository,
            self.config.as_ref(),
            start.environment,
            start.table,
        )
    }

    async fn run(&self, context: &mut CliContext, target: Self::Input) -> CliResult {
        let target = &target;
        let (mut stands, items) = plan_explain::explained(context, target).await?;
        // `explain` leads to this page.
        stands.lines.retain(|line| !line.starts_with("`runyard debug "));
        let keys = explain::related(&items, &stands.record);
        let mut happened = Vec::new();
        for key in &keys {
            happened.extend(events::of(context, key).await?);
        }
        happened.sort_by_key(|item| RecordId::of(item).map(|key| (key.sk(), key.pk())));
        let told: Vec<Event> = happened.iter().filter_map(event).collect();
        let (yard, now, _) = explain::picture(&items, context.clock.now());
        let mut said = explain::evidence(&yard, &now, &items, &keys, &told);
        let logs = written(context, &keys).await?;
        let wrong = explain::wrong(&yard, &now, &stands.record);
        for (id, parts) in &logs {
            let bad = wrong && failed(&yard, &now, &keys, id);
            said.extend(words(id, parts).map(|said| Said { sign: bad, ..said }));
        }
        let signs = said.iter().filter(|one| one.sign);
        let causes = explain::probable(signs.map(|one| one.words.as_str()));
        let last = &happened[happened.len().saturating_sub(EVENTS)..];
        let page = document(&stands.record, &stands.lines, last, &said, &causes);
        context.screen.document(&page);
        if let Some(path) = &self.bundle {
            let records: Vec<&Item> = items
                .iter()
                .filter(|item| RecordId::of(item).is_some_and(|key| belongs(&keys, &key)))
                .collect();
            let files = bundled(&page, &records, &happened, &logs, self.config.as_deref())?.write(path)?;
            context.screen.say(format!("{} has {files} files about {}\n", path.display(), stands.record));
        }
        if context.screen.format.for_programs() {
            return Ok(());
        }
        tell(context, &stands.lines, last, &said, wrong.then_some(&causes));
        Ok(())
    }
}

/// Prints the page for people; causes only if something is wrong.
fn tell(
    context: &mut CliContext,
    lines: &[String],
    last: &[Item],
    said: &[Said],
    causes: Option<&Vec<Probable<'_>>>,
) {
    for line in lines {
        context.screen.say(plain(line));
    }
    if !last.is_empty() {
        let table = events::table(&context.screen, last, Some(context.clock.now()));
        context
            .screen
            .say(format!("\nWhat happened last, to it and to what belongs to it:\n{}", table.trim_end()));
    }
    if !said.is_empty() {
        context.screen.say("\nWhat was said:");
    }
    for one in said.iter().take(WORDS) {
        let mut lines = one.words.lines();
        context.screen.say(format!("  {}: {}", plain(&one.by), plain(lines.next().unwrap_or_default())));
        for line in lines {
            context.screen.say(format!("    {}", plain(line)));
        }
    }
    context.screen.say("");
    let found = causes.map_or(&[][..], Vec::as_slice);
    for one in found {
        let by = said.iter().find(|said| said.words == one.said).map_or("", |said| said.by.as_str());
        context.screen.say(format!("probable cause: {}", one.cause.why));
        context.screen.say(format!("  known by: {}: {}", plain(by), plain(&telling(one))));
        context.screen.say(format!("  fix: {}", one.cause.fix));
    }
    if causes.is_none() {
        context.screen.say("nothing is wrong with it now; what was said above is over, or is no failure");
    } else if found.is_empty() {
        context.screen.say(format!(
            "no probable cause: nothing that was said fits one of the {} known ones",
            CAUSES.len()
        ));
    }
}

/// Reads the stored logs of the machines among these records: id, and name and text of each part.
async fn written(context: &CliContext, keys: &[RecordId]) -> CliResult<Vec<MachineLogs>> {
    let mut all = Vec::new();
    for arn in keys.iter().filter_map(RecordId::instance) {
        let Some(log) = logs::stored(context, arn).await? else { continue };
        all.push((arn.instance_id().to_owned(), logs::parts(&log)));
    }
    Ok(all)
}

/// Returns whether a machine among these records is in trouble, so that its logs show why.
fn failed(yard: &Yard, now: &Now, keys: &[RecordId], id: &str) -> bool {
    let machine = |key: &&RecordId| key.instance().is_some_and(|arn| arn.instance_id() == id);
    keys.iter().find(machine).is_some_and(|key| explain::wrong(yard, now, key))
}

/// Returns the text that identifies a cause: of several lines, the one that contains its sign.
fn telling(one: &Probable<'_>) -> String {
    let line = one
        .said
        .lines()
        .find(|line| explain::probable([*line]).iter().any(|of| of.cause.name == one.cause.name));
    line.unwrap_or(one.said).to_owned()
}

/// A machine and the parts of its logs.
type MachineLogs = (String, Vec<(String, String)>);

/// Returns the last lines of each part.
fn words<'a>(id: &'a str, parts: &'a [(String, String)]) -> impl Iterator<Item = Said> + 'a {
    parts.iter().filter_map(move |(name, text)| {
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        let said = || Said { by: format!("the log `{name}` of {id}"), words: last, sign: false };
        (!lines.is_empty()).then(said)
    })
}

/// Returns whether a record is among these, or is the agent of a machine that is.
fn belongs(keys: &[RecordId], key: &RecordId) -> bool {
    keys.contains(key) || key.agent().is_some_and(|arn| keys.iter().any(|one| one.instance() == Some(arn)))
}

/// Collects everything for an archive.
fn bundled(
    page: &Value,
    records: &[&Item],
    events: &[Item],
    logs: &[MachineLogs],
    config: Option<&Path>,
) -> CliResult<Bundle> {
    let mut bundle = Bundle::default();
    bundle.document("debug.json", page);
    bundle.document("records.json", &records.iter().map(|item| json::record(item)).collect());
    bundle.document("events.json", &events.iter().map(json::record).collect());
    bundle.text("version.txt", &format!("runyard {}\n", env!("CARGO_PKG_VERSION")));
    for (id, parts) in logs {
        for (name, text) in parts {
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
            let name: String = name.chars().take(40).map(plain).collect();
            bundle.text(&format!("logs/{id}/{name}.txt"), text);
        }
    }
    if let Some(path) = config {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let fix = "name the operator's configuration, or leave --config out";
            CliFailure::error("--config", path.display().to_string(), format!("cannot be read: {error}"), fix)
        })?;
        bundle.configuration("operator.json", &text);
    }
    Ok(bundle)
}

fn event(item: &Item) -> Option<Event> {
    match read::<Event>(item) {
        Reading::Record(event) => Some(event),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    }
}

fn document(
    record: &RecordId,
    lines: &[String],
    events: &[Item],
    said: &[Said],
    causes: &[Probable<'_>],
) -> Value {
    let said: Vec<Value> =
        said.iter().map(|one| json!({"by": one.by, "words": one.words, "sign": one.sign})).collect();
    let cause = |one: &Probable<'_>| json!({"cause": one.cause.name, "message": one.cause.why, "fix": one.cause.fix, "said": one.said});
    json!({
        "record": record.to_string(),
        "lines": lines,
        "events": events.iter().map(json::record).collect::<Vec<_>>(),
        "said": said,
        "causes": causes.iter().map(cause).collect::<Vec<_>>(),
    })
}
