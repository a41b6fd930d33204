//! `runyard events`: lists the events of one record, or of all, oldest first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use super::history;
use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult};
use crate::input::completion;
use crate::input::look::{LookArgs, WATCH};
use crate::input::run::repository_hint;
use crate::input::selector::Selector;
use crate::input::usage::one_of;
use crate::input::what::OneArgs;
use crate::output::format::Format;
use crate::output::json;
use crate::output::screen::Screen;
use crate::output::table::{columns, distance, more_columns};
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::model::kind_of;
use runyard_core::model::{EventType, Item, Kind, RecordId, Repository, text_of, time_of};

/// Tells what happened.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard events --since 30m
  runyard events -o wide                      # with the time and type of each
  runyard events --type Warning --limit 20    # the last 20 warnings
  runyard events pool linux-x64 --reason LaunchFailed
  runyard events request 1234567890 --watch
  runyard events instance i-0123456789abcdef0 -o json")]
pub(crate) struct EventsArgs {
    /// Kind of the record, or KIND/NAME [default: all records]
    #[arg(value_name = "KIND", add = completion::kinds_and_names())]
    what: Option<String>,
    /// Name of the record
    #[arg(value_name = "NAME", add = completion::of_the_kind_before())]
    name: Option<String>,
    /// Only events of this last period [default: 7 days]
    #[arg(long, value_name = "DURATION", value_parser = duration::past, allow_negative_numbers = true)]
    since: Option<Duration>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = one_of::<EventType>(EventType::ALL, EventType::as_str))]
    of_type: Option<EventType>,
    /// Only events with these reasons, comma-separated
    #[arg(long, value_name = "REASON", value_delimiter = ',')]
    reason: Vec<String>,
    /// Maximum number: the last ones
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    look: LookArgs,
}

impl Verb for EventsArgs {
    type Input = EventsTarget;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let one = self.what.clone().map(|what| OneArgs::of(what, self.name.clone()));
        let selector = one.as_ref().map(OneArgs::selector).transpose()?;
        let repository =
            repository_hint(self.look.repository.as_ref(), start.environment).map_err(CliFailure::usage)?;
        Ok(EventsTarget(selector, repository))
    }

    async fn run(&self, context: &mut CliContext, target: Self::Input) -> CliResult {
        let target = &target;
        let mut seen: BTreeSet<RecordId> = BTreeSet::new();
        let now = context.clock.now();
        let since = self.since.map(|length| now.saturating_sub(length).unwrap_or(Timestamp::MIN));
        loop {
            let mut items = match &target.0 {
                Some(selector) => {
                    let item = selector.find(context, target.1.as_ref()).await?;
                    let id = RecordId::of(&item).expect("what was found by its key has one");
                    let from = since.unwrap_or_else(|| now.saturating_sub(WEEK).unwrap_or(Timestamp::MIN));
                    let mut items = of_since(context, &id, from).await?;
                    items.retain(|item| happened(item, since));
                    items
                }
                None => all(context, since).await?,
            };
            let first = seen.is_empty();
            items.retain(|item| self.wants(item) && RecordId::of(item).is_some_and(|key| seen.insert(key)));
            // Later events of a watch are always shown.
            let items = if first { self.last(items) } else { items };
            show(context, self.look.watch, first, &items);
            if !self.look.watch || context.screen.closed() {
                return Ok(());
            }
            tokio::time::sleep(WATCH).await;
        }
    }
}

impl EventsArgs {
    /// Returns whether an event matches the selected type and reasons.
    fn wants(&self, item: &Item) -> bool {
        let reason = text_of(item, "reason").unwrap_or_default();
        self.of_type.is_none_or(|of| text_of(item, "type") == Some(of.as_str()))
            && (self.reason.is_empty() || self.reason.iter().any(|one| one.eq_ignore_ascii_case(reason)))
    }

    /// Returns the last events, up to the limit.
    fn last(&self, mut items: Vec<Item>) -> Vec<Item> {
        let more = self.limit.map_or(0, |limit| items.len().saturating_sub(limit));
        items.split_off(more)
    }
}

/// The default period of events.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// The selection: one record's events, or all.
pub(crate) struct EventsTarget(Option<Selector>, Option<Repository>);

/// Reads the events of a record, oldest first.
pub(crate) async fn of(context: &CliContext, id: &RecordId) -> CliResult<Vec<Item>> {
    let week = context.clock.now().saturating_sub(WEEK).unwrap_or(Timestamp::MIN);
    of_since(context, id, week).await
}

/// Reads the events of a record from both tables; those of the history table since the given time.
async fn of_since(context: &CliContext, id: &RecordId, since: Timestamp) -> CliResult<Vec<Item>> {
    let pk = id.pk();
    let mut items = context.under(&pk, "event#").await?;
    items.extend(history::events(context, Some(&pk), since).await?);
    Ok(in_order(items))
}

/// Sorts events by time and removes duplicates: after a write that failed halfway an event may be in both tables.
fn in_order(items: Vec<Item>) -> Vec<Item> {
    let keyed = items.into_iter().map(|item| (RecordId::of(&item).map(|key| (key.sk(), key.pk())), item));
    keyed.collect::<BTreeMap<_, _>>().into_values().collect()
}

async fn all(context: &CliContext, since: Option<Timestamp>) -> CliResult<Vec<Item>> {
    let wanted = |item: &Item| kind_of(item) == Some(Kind::Event) && happened(item, since);
    let mut items = context.all_that(wanted).await?;
    let from = since.unwrap_or_else(|| context.clock.now().saturating_sub(WEEK).unwrap_or(Timestamp::MIN));
    items.extend(history::events(context, None, from).await?);
    items.retain(|item| happened(item, since));
    Ok(in_order(items))
}

/// Returns whether an event happened since the given time; an event with an unreadable time is shown.
fn happened(item: &Item, since: Option<Timestamp>) -> bool {
    since.is_none_or(|since| time_of(item, "at").is_none_or(|at| at >= since))
}

fn show(context: &mut CliContext, watch: bool, first: bool, items: &[Item]) {
    if !watch {
        context.screen.document(&json::list(items));
    }
    if watch && context.screen.format.for_programs() {
        for item in items {
            context.screen.next_document(&json::record(item));
        }
    }
    if items.is_empty() && first && !watch {
        context.screen.remark("there are no events");
    }
    if !items.is_empty() && !context.screen.format.for_programs() {
        // The output of a watch is read later, so it needs absolute times.
        let now = (!watch && context.screen.format != Format::Wide).then(|| context.clock.now());
        let text = lines(&context.screen, items, now, first);
        context.screen.text(&text);
    }
}

/// Formats events as a table.
pub(crate) fn table(screen: &Screen, items: &[Item], now: Option<Timestamp>) -> String {
    lines(screen, items, now, true)
}

/// Formats events as lines: with their age, or with their time if `now` is not given; with headings or as the
/// continuation of a list. Types are shown if one of the events is a warning, and always in a continued list.
fn lines(screen: &Screen, items: &[Item], now: Option<Timestamp>, first: bool) -> String {
    let attribute = |item: &Item, name: &str| text_of(item, name).unwrap_or_default().to_owned();
    let change = |item: &Item| match (attribute(item, "from"), attribute(item, "to")) {
        // If the state does not change, only the message describes the event.
        (from, to) if from == to => String::new(),
        (from, to) => format!("{from} → {to}"),
    };
    let when = |item: &Item| {
        let at = attribute(item, "at");
        let ago = now.and_then(|now| Some(distance(at.parse().ok()?, now)));
        ago.unwrap_or(at)
    };
    let normal = |item: &Item| attribute(item, "type") == EventType::Normal.as_str();
    let typed = now.is_none() || !items.iter().all(normal);
    let row = |item: &Item| {
        let mut cells = vec![
            when(item),
            attribute(item, "type"),
            short(&attribute(item, "subject")),
            attribute(item, "reason"),
            change(item),
            attribute(item, "actor"),
            attribute(item, "message"),
        ];
        if !typed {
            cells.remove(1);
        }
        cells
    };
    let mut heads = vec!["WHEN", "TYPE", "SUBJECT", "REASON", "CHANGE", "BY", "MESSAGE"];
    if !typed {
        heads.remove(1);
    }
    let rows = items.iter().map(row).collect();
    if first { columns(screen, &heads, rows) } else { more_columns(screen, &heads, rows) }
}

/// Shortens a subject's pk; an instance is shown by its id alone.
fn short(subject: &str) -> String {
    match (subject.split_once('#'), subject.rsplit_once('/')) {
        (Some(("instance", _)), Some((_, id))) => format!("instance {id}"),
        (Some((kind, rest)), _) => format!("{kind} {}", rest.replace('#', " ")),
        (None, _) => subject.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::context::{attributes, text};

    fn event(kind: EventType, message: &str) -> Item {
        attributes([
            ("at", text("2026-01-01T00:00:00.123Z")),
            ("type", text(kind.as_str())),
            ("subject", text("request#acme/web#42")),
            ("reason", text("Ready")),
            ("actor", text("operator")),
            ("message", text(message)),
        ])
    }

    #[test]
    fn events_fit_a_terminal_and_name_their_type_only_where_one_is_a_warning() {
        let now = "2026-01-01T00:02:00Z".parse().ok();
        let long = "2 of 2 machines are running and everybody is as happy as can be";
        let at = |width, items: &[Item]| {
            let screen = Screen::of_width(width);
            lines(&screen, items, now, true)
        };
        let normal = [event(EventType::Normal, long)];
        let head = "WHEN       SUBJECT              REASON  CHANGE  BY        MESSAGE\n";
        let begin = "1m59s ago  request acme/web 42  Ready           operator  ";
        assert_eq!(at(Some(60), &normal), format!("{head}{begin}2 of 2 machines are…\n"));
        assert_eq!(at(Some(80), &normal), format!("{head}{begin}2 of 2 machines are r…\n"));
        assert_eq!(
            at(Some(120), &normal),
            format!("{head}{begin}2 of 2 machines are running and everybody is as happy as can…\n")
        );
        assert_eq!(at(None, &normal), format!("{head}{begin}{long}\n"));
        let warned = at(Some(120), &[event(EventType::Normal, "fine"), event(EventType::Warning, "not")]);
        assert!(warned.contains("Warning") && warned.contains("TYPE"), "{warned}");
        let below = lines(&Screen::nowhere(Format::Text), &normal, None, false);
        assert!(below.starts_with("2026-01-01T00:00:00.123Z  Normal"), "a moment, and no heads: {below}");
    }

    #[test]
    fn events_are_narrowed_by_type_and_reason_and_the_last_are_kept() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: EventsArgs,
        }
        let items = || {
            let (normal, mut warned) = (event(EventType::Normal, "a"), event(EventType::Warning, "b"));
            warned.insert("reason".into(), text("LaunchFailed"));
            vec![normal.clone(), warned, normal]
        };
        let told = |line: &[&str]| {
            let line =
                <Line as clap::Parser>::try_parse_from(std::iter::once(&"events").chain(line)).unwrap();
            let wanted = items().into_iter().filter(|item| line.args.wants(item)).collect();
            let left = line.args.last(wanted);
            left.iter().map(|item| text_of(item, "message").unwrap().to_owned()).collect::<String>()
        };
        assert_eq!(told(&[]), "aba");
        assert_eq!(told(&["--type", "Warning"]), "b");
        assert_eq!(told(&["--reason", "ready"]), "aa");
        assert_eq!(told(&["--reason", "ready,launchfailed", "--limit", "2"]), "ba");
        assert_eq!(told(&["--limit", "0"]), "");
        assert!(<Line as clap::Parser>::try_parse_from(["events", "--type", "Bad"]).is_err());
    }
}
