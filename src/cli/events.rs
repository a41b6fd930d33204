//! What happened? The events of one record, or of all, oldest first.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use super::context::Context;
use super::duration;
use super::environment::Environment;
use super::failure::{Failure, Outcome};
use super::get::{LookArgs, WATCH};
use super::json;
use super::run::repository_hint;
use super::screen::{Screen, plain};
use super::subject::{Noun, Subject, kind_of};
use super::table::columns;
use crate::model::{AttributeValue, Item, Key, Kind, Repository};

/// Tells what happened.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard events --since 30m
  runyard events request 1234567890 --watch
  runyard events instance i-0123456789abcdef0 -o json")]
pub(crate) struct EventsArgs {
    /// Only those of a record of this kind
    #[arg(value_name = "KIND", requires = "name")]
    noun: Option<Noun>,
    /// Which record
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Only what happened this long ago or later [default: all, which is seven days]
    #[arg(long, value_name = "DURATION", value_parser = duration::past, allow_negative_numbers = true)]
    since: Option<Duration>,
    #[command(flatten)]
    look: LookArgs,
}

/// What is looked for: one record's events, or all.
pub(crate) struct Looked(Option<Subject>, Option<Repository>);

/// What the options say.
pub(crate) fn check(args: &EventsArgs, environment: &Environment) -> Outcome<Looked> {
    let subject = match (args.noun, args.name.as_deref()) {
        (Some(noun), Some(name)) => {
            Some(Subject::parse(noun, name).map_err(|p| Failure::usage(p.named("NAME")))?)
        }
        (_, _) => None,
    };
    let repository = repository_hint(args.look.repository.as_ref(), environment).map_err(Failure::usage)?;
    Ok(Looked(subject, repository))
}

/// Runs the verb.
pub(crate) async fn run(context: &mut Context, args: &EventsArgs, looked: &Looked) -> Outcome {
    let mut seen: BTreeSet<Key> = BTreeSet::new();
    let now = context.clock.now();
    let since = args.since.map(|length| now.saturating_sub(length).unwrap_or(Timestamp::MIN));
    loop {
        let mut items = match &looked.0 {
            Some(subject) => {
                let item = subject.find(context, looked.1.as_ref()).await?;
                let mut items = of(context, &Key::of(&item).map(|key| key.pk).unwrap_or_default()).await?;
                items.retain(|item| happened(item, since));
                items
            }
            None => all(context, since).await?,
        };
        let first = seen.is_empty();
        items.retain(|item| Key::of(item).is_some_and(|key| seen.insert(key)));
        show(context, args.look.watch, first, &items);
        if !args.look.watch || context.screen.closed() {
            return Ok(());
        }
        tokio::time::sleep(WATCH).await;
    }
}

/// The events under one partition key, oldest first.
pub(crate) async fn of(context: &Context, pk: &str) -> Outcome<Vec<Item>> {
    context.under(pk, "event#").await
}

async fn all(context: &Context, since: Option<Timestamp>) -> Outcome<Vec<Item>> {
    let wanted = |item: &Item| kind_of(item) == Some(Kind::Event) && happened(item, since);
    let mut items = context.all_that(wanted).await?;
    items.sort_by_key(|item| Key::of(item).map(|key| (key.sk, key.pk)));
    Ok(items)
}

/// Whether it happened since then, or when is not to be read: what is odd is rather shown than hidden.
fn happened(item: &Item, since: Option<Timestamp>) -> bool {
    let at = match item.get("at") {
        Some(AttributeValue::S(at)) => at.parse::<Timestamp>().ok(),
        Some(_) | None => None,
    };
    since.is_none_or(|since| at.is_none_or(|at| at >= since))
}

fn show(context: &mut Context, watch: bool, first: bool, items: &[Item]) {
    if !watch {
        context.screen.document(&json::list(items));
    }
    if watch && context.screen.format.for_programs() {
        for item in items {
            context.screen.next_document(&json::record(item));
        }
    }
    if items.is_empty() && first && !watch {
        context.screen.say("there are no events");
    }
    if !items.is_empty() && !context.screen.format.for_programs() {
        let text = lines(&context.screen, items, true);
        context.screen.text(&text);
    }
}

/// Events as lines, with their subjects or without.
pub(crate) fn lines(screen: &Screen, items: &[Item], subjects: bool) -> String {
    let attribute = |item: &Item, name: &str| match item.get(name) {
        Some(AttributeValue::S(text)) => text.clone(),
        Some(_) | None => String::new(),
    };
    let change = |item: &Item| match (attribute(item, "from"), attribute(item, "to")) {
        // What stays where it is has no change to show; the message says what happened.
        (from, to) if from == to => String::new(),
        (from, to) => format!("{from} → {to}"),
    };
    let row = |item: &Item| {
        let mut cells = vec![
            attribute(item, "at"),
            attribute(item, "type"),
            attribute(item, "reason"),
            change(item),
            attribute(item, "message"),
            attribute(item, "actor"),
        ];
        if subjects {
            cells.insert(1, short(&attribute(item, "subject")));
        }
        cells.iter().map(|cell| plain(cell)).collect()
    };
    let mut heads = vec!["AT", "TYPE", "REASON", "CHANGE", "MESSAGE", "BY"];
    if subjects {
        heads.insert(1, "SUBJECT");
    }
    columns(screen, &heads, items.iter().map(row).collect())
}

/// A subject's pk, an instance's by its id alone.
fn short(subject: &str) -> String {
    match (subject.split_once('#'), subject.rsplit_once('/')) {
        (Some(("instance", _)), Some((_, id))) => format!("instance {id}"),
        (Some((kind, rest)), _) => format!("{kind} {}", rest.replace('#', " ")),
        (None, _) => subject.to_owned(),
    }
}
