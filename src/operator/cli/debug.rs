//! `runyard debug`: one page about a record that failed: where it is, what happened to it and to its machines, what was
//! said, and the probable cause with what mends it.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::context::CliContext;
use super::environment::Environment;
use super::events;
use super::failure::CliResult;
use super::json;
use super::plan_explain::{self, ExplainTarget};
use super::screen::plain;
use super::what::OneArgs;
use crate::explain::{self, CAUSES, Probable, Said};
use crate::model::{Event, Item, Reading, RecordId, Repository, TableName, read};

/// Most events on the page, the last ones.
const EVENTS: usize = 20;
/// Most things that were said on the page.
const WORDS: usize = 12;

/// Tells the probable cause of a failure.
#[derive(Debug, Args)]
#[command(after_help = "\
Only records and events are looked at, so it needs no rights but those of `get`. What machines wrote on their consoles \
is in their records once they ended young.

Examples:
  runyard debug request 1234567890
  runyard debug instance i-0123456789abcdef0
  runyard debug pool linux-x64 -o json")]
pub(crate) struct DebugArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Where the request is, if several repositories have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO")]
    repository: Option<Repository>,
    /// The operator's configuration, for its deadlines [default: the defaults and RUNYARD_TIMING__*]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What the options say.
pub(crate) fn check(
    args: &DebugArgs,
    environment: &Environment,
    table: &TableName,
) -> CliResult<ExplainTarget> {
    let repository = args.repository.as_ref();
    plan_explain::target(args.one.selector()?, repository, args.config.as_ref(), environment, table)
}

/// Runs the verb.
pub(crate) async fn run(context: &mut CliContext, target: &ExplainTarget) -> CliResult {
    let (stands, items) = plan_explain::explained(context, target).await?;
    let keys = explain::related(&items, &stands.record);
    let mut happened = Vec::new();
    for key in &keys {
        happened.extend(events::of(context, key).await?);
    }
    happened.sort_by_key(|item| RecordId::of(item).map(|key| (key.sk(), key.pk())));
    let told: Vec<Event> = happened.iter().filter_map(event).collect();
    let said = explain::evidence(&items, &keys, &told);
    let causes = explain::probable(said.iter().map(|one| one.words.as_str()));
    let last = &happened[happened.len().saturating_sub(EVENTS)..];
    context.screen.document(&document(&stands.record, &stands.lines, last, &said, &causes));
    if context.screen.format.for_programs() {
        return Ok(());
    }
    for line in &stands.lines {
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
        context.screen.say(format!("  {}: {}", one.by, plain(&one.words)));
    }
    context.screen.say("");
    for one in &causes {
        let by = said.iter().find(|said| said.words == one.said).map_or("", |said| said.by.as_str());
        context.screen.say(format!("probable cause: {}", one.cause.why));
        context.screen.say(format!("  known by: {by}: {}", plain(one.said)));
        context.screen.say(format!("  fix: {}", one.cause.fix));
    }
    if causes.is_empty() {
        context.screen.say(format!(
            "no probable cause: nothing that was said fits one of the {} known ones",
            CAUSES.len()
        ));
    }
    Ok(())
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
    let said: Vec<Value> = said.iter().map(|one| json!({"by": one.by, "words": one.words})).collect();
    let cause = |one: &Probable<'_>| json!({"cause": one.cause.name, "message": one.cause.why, "fix": one.cause.fix, "said": one.said});
    json!({
        "record": record.to_string(),
        "lines": lines,
        "events": events.iter().map(json::record).collect::<Vec<_>>(),
        "said": said,
        "causes": causes.iter().map(cause).collect::<Vec<_>>(),
    })
}
