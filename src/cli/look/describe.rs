//! `runyard describe`: shows one record, the most useful attributes first, then all others, the agent's record if it is
//! a machine, and its events.

mod sets;

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::events;
use crate::common::failure::{CliFailure, CliResult};
use crate::input::look::LookArgs;
use crate::input::run::repository_hint;
use crate::input::selector::Selector;
use crate::input::what::OneArgs;
use crate::output::format::plain;
use crate::output::json as documents;
use crate::output::screen::Screen;
use crate::output::table::{distance, indented};
use crate::pools::sets::sets_of;
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::model::{Asked, Queue, RecordId, Repository};

/// Tells everything about one record.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard describe instance i-0123456789abcdef0
  runyard describe request 1234567890
  runyard describe pool/linux-x64")]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    one: OneArgs,
    #[command(flatten)]
    look: LookArgs,
}

impl Verb for DescribeArgs {
    type Input = DescribeTarget;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let selector = self.one.selector()?;
        let repository =
            repository_hint(self.look.repository.as_ref(), start.environment).map_err(CliFailure::usage)?;
        Ok(DescribeTarget(selector, repository))
    }

    async fn run(&self, context: &mut CliContext, target: Self::Input) -> CliResult {
        let target = &target;
        let mut last: Option<Value> = None;
        loop {
            let seen = look(context, target).await?;
            if last.as_ref() != Some(&seen) {
                show(context, self, &seen, last.is_some());
                last = Some(seen);
            }
            if !self.look.watch || context.screen.closed() {
                return Ok(());
            }
            tokio::time::sleep(crate::input::look::WATCH).await;
        }
    }
}

/// The selected record.
pub(crate) struct DescribeTarget(Selector, Option<Repository>);

async fn look(context: &CliContext, target: &DescribeTarget) -> CliResult<Value> {
    let item = target.0.find(context, target.1.as_ref()).await?;
    let key = RecordId::of(&item).expect("what was found by its key has one");
    let mut document = documents::record(&item);
    if let Some(arn) = key.instance() {
        let agent = context.item(&RecordId::Agent(arn.clone())).await?;
        document["agent"] = agent.as_ref().map_or(Value::Null, documents::record);
    }
    match &key {
        RecordId::Pool(class) if sets::are_there(context, class, &item).await? => {
            document["sets"] = json!(sets_of(&context.everything().await?, context.clock.now(), class));
        }
        RecordId::Request(slot) if slot.set().is_some() => {
            document["jobs"] = sets::jobs_of(&context.everything().await?, context.clock.now(), slot);
        }
        RecordId::Pool(_)
        | RecordId::Request(_)
        | RecordId::Instance(_)
        | RecordId::Agent(_)
        | RecordId::Launch(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => {}
    }
    let events = events::of(context, &key).await?;
    document["events"] = events.iter().map(documents::record).collect();
    Ok(document)
}

fn show(context: &mut CliContext, args: &DescribeArgs, seen: &Value, again: bool) {
    if context.screen.format.for_programs() {
        if args.look.watch {
            context.screen.next_document(seen);
        } else {
            context.screen.document(seen);
        }
        return;
    }
    if again {
        context.screen.separate();
    }
    let text = page(&context.screen, seen, context.clock.now());
    context.screen.text(&text);
}

/// A heading and its attributes, in order.
type Section = (&'static str, &'static [&'static str]);

/// Returns the sections of a kind. Attributes in no section, such as those of a newer program, come last.
#[expect(clippy::too_many_lines, reason = "a table: the attributes of each kind of record")]
fn sections(kind: &str) -> &'static [Section] {
    match kind {
        "instance" => &[
            ("Instance", &["instanceId", "resourceClass", "state", "reason", "message", "console"]),
            ("Claim", &["runId", "request", "claimId", "trustDomain", "uses", "registrationFailures"]),
            (
                "Times",
                &[
                    "createdAt",
                    "stateSince",
                    "pooledAt",
                    "thresholdSetAt",
                    "threshold",
                    "expiredBy",
                    "hold",
                    "logsRequestedAt",
                    "logsRequestedBy",
                    "goneAt",
                ],
            ),
            (
                "Machine",
                &["instanceType", "usageClass", "cpu", "mmem", "availabilityZone", "launchId", "instanceArn"],
            ),
        ],
        "request" => &[
            (
                "Request",
                &[
                    "repository",
                    "runId",
                    "name",
                    "attempt",
                    "phase",
                    "message",
                    "instances",
                    "served",
                    "jobs",
                ],
            ),
            (
                "Asked for",
                &[
                    "resourceClass",
                    "count",
                    "minCount",
                    "usageClass",
                    "onDemandFallback",
                    "allowedInstanceTypes",
                    "maxRuntimeMinutes",
                    "timeoutSeconds",
                    "labelSuffix",
                    "priority",
                    "share",
                    "desired",
                    "releasedBy",
                    "asked",
                    "derivedFrom",
                ],
            ),
            ("Times", &["createdAt", "acceptedAt", "deadline", "readyAt", "rerunRequestedAt"]),
        ],
        "pool" => &[
            ("Pool", &["resourceClass", "message", "counts", "idle", "idleForAnybody", "warmFor", "paused"]),
            (
                "Machines",
                &[
                    "desired",
                    "override",
                    "min",
                    "max",
                    "schedules",
                    "cpu",
                    "mmem",
                    "usageClass",
                    "allowedInstanceTypes",
                    "requestTypes",
                ],
            ),
            (
                "Reuse",
                &[
                    "idleSeconds",
                    "maxAgeSeconds",
                    "maxHoldSeconds",
                    "maxUses",
                    "maxRuntimeMinutes",
                    "reuseWithin",
                    "repositories",
                    "keep",
                ],
            ),
            ("Shares", &["sharing", "usage"]),
            ("Sizing", &["sizing", "sizedDesired"]),
            (
                "Runners",
                &[
                    "registrationMode",
                    "labels",
                    "labelMode",
                    "runnerGroup",
                    "queue",
                    "registeredAhead",
                    "ahead",
                    "jobs",
                    "runner",
                ],
            ),
            ("Launch", &["launch", "image", "replacement"]),
        ],
        "launch" => &[
            ("Launch", &["launchId", "resourceClass", "phase", "message", "count", "instances", "request"]),
            ("Times", &["createdAt"]),
        ],
        _ => &[],
    }
}

/// Attributes without information for a person: keys, sealed credentials, and the kind, which the first heading
/// contains.
const HIDDEN: &[&str] =
    &["kind", "pk", "sk", "events", "conditions", "agent", "sets", "publicKey", "registration", "removal"];

/// The attributes of `queue` that one line tells. With others, such as those of a newer program, each has its own line.
const QUEUE: &[&str] = &["runLabels", "maxSlots", "forks", "labels", "scope", "standing", "unusedSeconds"];

/// Formats a record for people.
fn page(screen: &Screen, seen: &Value, now: Timestamp) -> String {
    let Value::Object(map) = seen else { return String::new() };
    let mut left: Vec<&str> = map.keys().map(String::as_str).filter(|name| !HIDDEN.contains(name)).collect();
    let mut text = String::new();
    for (heading, names) in sections(seen["kind"].as_str().unwrap_or_default()) {
        section(&mut text, heading, names.iter().filter_map(|name| Some((*name, map.get(*name)?))), now);
        left.retain(|name| !names.contains(name));
    }
    section(&mut text, "Record", left.into_iter().map(|name| (name, &map[name])), now);
    if let Value::Object(agent) = &seen["agent"] {
        let told = agent.iter().filter(|(name, _)| !HIDDEN.contains(&name.as_str()));
        section(&mut text, "Agent", told.map(|(name, value)| (name.as_str(), value)), now);
    }
    sets::show(&mut text, screen, &seen["sets"], now);
    let word = |of: &Value, name: &str| line(&of[name]);
    let ago = |of: &Value| of["at"].as_str().and_then(|at| at.parse().ok()).map(|at| distance(at, now));
    let list = |name: &str| seen[name].as_array().map(Vec::as_slice).unwrap_or_default();
    if !list("conditions").is_empty() {
        let row = |of: &Value| {
            let is = if of["status"] == true { "yes" } else { "no" };
            vec![
                word(of, "type"),
                is.into(),
                word(of, "reason"),
                ago(of).unwrap_or_default(),
                word(of, "message"),
            ]
        };
        let rows = list("conditions").iter().map(row).collect();
        table(&mut text, "Conditions", indented(screen, &["TYPE", "IS", "REASON", "SINCE", "MESSAGE"], rows));
    }
    let row = |of: &Value| {
        vec![
            ago(of).unwrap_or_default(),
            word(of, "type"),
            word(of, "reason"),
            format!("{} ({})", word(of, "message"), word(of, "actor")),
        ]
    };
    match list("events") {
        [] => text.push_str("Events:  none\n"),
        events => {
            let rows = events.iter().map(row).collect();
            table(&mut text, "Events", indented(screen, &["WHEN", "TYPE", "REASON", "MESSAGE"], rows));
        }
    }
    text
}

fn table(text: &mut String, heading: &str, rows: String) {
    text.push_str(&format!("{heading}:\n"));
    for row in rows.lines() {
        text.push_str(&format!("  {row}\n"));
    }
    text.push('\n');
}

/// Appends a heading with its attributes, their values in a column; nothing if there are no attributes.
fn section<'a>(
    text: &mut String,
    heading: &str,
    attributes: impl Iterator<Item = (&'a str, &'a Value)>,
    now: Timestamp,
) {
    let lines: Vec<(String, String)> = attributes.flat_map(|(name, value)| lines(name, value, now)).collect();
    let Some(width) = lines.iter().map(|(name, _)| name.chars().count()).max() else { return };
    text.push_str(&format!("{heading}:\n"));
    for (name, value) in lines {
        text.push_str(format!("  {name:width$}  {value}").trim_end());
        text.push('\n');
    }
    text.push('\n');
}

/// Returns the lines of an attribute: one for each field of a map, with its path.
fn lines(name: &str, value: &Value, now: Timestamp) -> Vec<(String, String)> {
    let told = match value {
        Value::Object(map) if name == "request" => match subject(map) {
            Some(request) => request,
            None => line(value),
        },
        Value::Object(map) if name == "queue" && map.keys().all(|key| QUEUE.contains(&key.as_str())) => {
            serde_json::from_value::<Queue>(value.clone()).map_or_else(|_| line(value), |queue| queue.told())
        }
        Value::Object(map) if map.is_empty() => "none".into(),
        Value::Object(map) => {
            let inner = map.iter().flat_map(|(key, value)| lines(&format!("{name}.{key}"), value, now));
            return inner.collect();
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            let inner = list.iter().enumerate();
            return inner.map(|(i, one)| (plain(&format!("{name}[{i}]")), line(one))).collect();
        }
        Value::String(word) if name == "asked" => {
            let who = word.parse::<Asked>().map_or_else(|_| plain(word), |asked| asked.told().to_owned());
            return vec![("asked by".into(), who)];
        }
        Value::String(word) => match word.parse::<Timestamp>() {
            Ok(at) => format!("{}  ({})", plain(word), distance(at, now)),
            Err(_) => plain(word),
        },
        Value::Number(_) if name == "mmem" => format!("{value} MiB"),
        Value::Number(_) if name.ends_with("Seconds") => format!("{value} s"),
        Value::Number(_) if name == "expiresAt" => {
            let at = value.as_i64().and_then(|at| Timestamp::from_second(at).ok());
            at.map_or_else(|| line(value), |at| format!("{at}  ({})", distance(at, now)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => line(value),
    };
    vec![(plain(name), told)]
}

/// Returns the command-line name of the request with this key.
fn subject(key: &serde_json::Map<String, Value>) -> Option<String> {
    let word = |name: &str| key.get(name).and_then(Value::as_str);
    let key = RecordId::new(word("pk")?, word("sk")?);
    let id = key.request()?;
    Some(format!("{}/{}/{}  ({})", id.run_id, id.name, id.attempt, id.repository))
}

/// Formats a value on one line.
fn line(value: &Value) -> String {
    match value {
        Value::String(word) => plain(word),
        Value::Null => "none".into(),
        Value::Bool(is) => if *is { "yes" } else { "no" }.into(),
        Value::Number(_) => value.to_string(),
        Value::Array(list) if list.is_empty() => "none".into(),
        Value::Array(list) => list.iter().map(line).collect::<Vec<_>>().join(" "),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| format!("{}={}", plain(name), line(value)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format::Format;
    use serde_json::json;

    #[test]
    fn a_description_has_headings_and_tables_and_names_every_attribute_a_person_can_use() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let event = json!({"at": "2026-01-01T00:09:00Z", "type": "Warning", "reason": "Failed",
            "message": "no machines", "actor": "operator"});
        let seen = json!({
            "kind": "request", "phase": "Failed", "acceptedAt": "2026-01-01T00:00:00Z", "count": 3,
            "instances": [], "timeoutSeconds": 600, "fromTheFuture": {"a": ["x", "y"]}, "publicKey": "AAAA",
            "conditions": [{"type": "Ready", "status": false, "reason": "Invalid", "message": "count",
                "at": "2026-01-01T00:08:00Z"}],
            "events": [event],
        });
        let expected = "\
Request:
  phase      Failed
  instances  none

Asked for:
  count           3
  timeoutSeconds  600 s

Times:
  acceptedAt  2026-01-01T00:00:00Z  (10m ago)

Record:
  fromTheFuture.a  x y

Conditions:
  TYPE   IS  REASON   SINCE   MESSAGE
  Ready  no  Invalid  2m ago  count

Events:
  WHEN    TYPE     REASON  MESSAGE
  1m ago  Warning  Failed  no machines (operator)

";
        assert_eq!(page(&Screen::nowhere(Format::Text), &seen, now), expected);
    }

    #[test]
    fn a_queue_is_one_line_unless_a_newer_program_says_more() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let shown = |queue: Value| {
            let seen = json!({"kind": "pool", "queue": queue, "events": []});
            page(&Screen::nowhere(Format::Text), &seen, now)
        };
        assert_eq!(
            shown(json!({"runLabels": true, "maxSlots": 8})),
            "Runners:\n  queue  run labels, at most 8 machines a label, no forks\n\nEvents:  none\n"
        );
        assert_eq!(
            shown(json!({"labels": ["runyard-small"], "scope": "organization", "maxSlots": 8})),
            "Runners:\n  queue  scale set runyard-small of each organization, at most 8 machines\n\nEvents:  none\n"
        );
        assert_eq!(
            shown(json!({"runLabels": true, "newer": 2})),
            "Runners:\n  queue.newer      2\n  queue.runLabels  yes\n\nEvents:  none\n"
        );
    }

    #[test]
    fn who_asked_for_a_request_is_told_in_words() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        for (asked, told) in [
            ("job", "a queued job"),
            ("rerun", "a re-run job"),
            ("set", "a job of a scale set"),
            ("new", "new"),
        ] {
            let seen = json!({"kind": "request", "asked": asked, "events": []});
            let page = page(&Screen::nowhere(Format::Text), &seen, now);
            assert_eq!(page, format!("Asked for:\n  asked by  {told}\n\nEvents:  none\n"));
        }
    }

    #[test]
    fn what_a_machine_serves_is_named_as_on_the_command_line_and_its_agent_has_a_place() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let seen = json!({
            "kind": "instance", "instanceId": "i-1", "mmem": 4096,
            "request": {"pk": "request#acme/web#42", "sk": "request#gpu#2"},
            "agent": {"signal": "UD_REG_OK", "kind": "agent"}, "events": [],
        });
        let expected = "Instance:\n  instanceId  i-1\n\n\
                        Claim:\n  request  42/gpu/2  (acme/web)\n\n\
                        Machine:\n  mmem  4096 MiB\n\n\
                        Agent:\n  signal  UD_REG_OK\n\n\
                        Events:  none\n";
        assert_eq!(page(&Screen::nowhere(Format::Text), &seen, now), expected);
    }
}
