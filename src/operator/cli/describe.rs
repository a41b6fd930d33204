//! What is known of one record? All its attributes, its agent's word if it is a machine, and what happened to it.

use clap::Args;
use serde_json::Value;

use super::context::Context;
use super::environment::Environment;
use super::events;
use super::failure::{Failure, Outcome};
use super::get::LookArgs;
use super::json;
use super::run::repository_hint;
use super::screen::plain;
use super::subject::{Noun, Subject};
use super::table::distance;
use crate::model::{Key, Repository};

/// Tells everything about one record.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard describe instance i-0123456789abcdef0
  runyard describe request 1234567890
  runyard describe pool linux-x64")]
pub(crate) struct DescribeArgs {
    /// What it is
    #[arg(value_name = "KIND")]
    noun: Noun,
    /// Which one: an instance's id, RUN_ID[/NAME[/ATTEMPT]], a class, a launch's id
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    look: LookArgs,
}

/// What is looked for.
pub(crate) struct Looked(Subject, Option<Repository>);

/// What the options say.
pub(crate) fn check(args: &DescribeArgs, environment: &Environment) -> Outcome<Looked> {
    let subject = Subject::parse(args.noun, &args.name).map_err(|p| Failure::usage(p.named("NAME")))?;
    let repository = repository_hint(args.look.repository.as_ref(), environment).map_err(Failure::usage)?;
    Ok(Looked(subject, repository))
}

/// Runs the verb.
pub(crate) async fn run(context: &mut Context, args: &DescribeArgs, looked: &Looked) -> Outcome {
    let mut last: Option<Value> = None;
    loop {
        let seen = look(context, looked).await?;
        if last.as_ref() != Some(&seen) {
            show(context, args, &seen, last.is_some());
            last = Some(seen);
        }
        if !args.look.watch || context.screen.closed() {
            return Ok(());
        }
        tokio::time::sleep(super::get::WATCH).await;
    }
}

async fn look(context: &Context, looked: &Looked) -> Outcome<Value> {
    let item = looked.0.find(context, looked.1.as_ref()).await?;
    let key = Key::of(&item).expect("what was found by its key has one");
    let mut document = json::record(&item);
    if let Some(arn) = key.pk.strip_prefix("instance#") {
        let agent = context.item(&Key::new(format!("agent#{arn}"), "agent")).await?;
        document["agent"] = agent.as_ref().map_or(Value::Null, json::record);
    }
    let events = events::of(context, &key.pk).await?;
    document["events"] = events.iter().map(json::record).collect();
    Ok(document)
}

fn show(context: &mut Context, args: &DescribeArgs, seen: &Value, again: bool) {
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
    let now = context.clock.now();
    let mut text = String::new();
    outline(seen, 0, &mut text, now);
    let events = seen["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    if events.is_empty() {
        text.push_str("Events:  none\n");
    } else {
        text.push_str("Events:\n");
        for event in events {
            let word = |name: &str| plain(event[name].as_str().unwrap_or_default());
            let when = event["at"].as_str().and_then(|at| at.parse().ok()).map(|at| distance(at, now));
            text.push_str(&format!(
                "  {:<10} {:<8} {:<22} {} ({})\n",
                when.unwrap_or_default(),
                word("type"),
                word("reason"),
                word("message"),
                word("actor")
            ));
        }
    }
    context.screen.text(&text);
}

/// An object as indented lines, times with their distance from now.
fn outline(value: &Value, depth: usize, text: &mut String, now: jiff::Timestamp) {
    let Value::Object(map) = value else { return };
    let indent = "  ".repeat(depth);
    for (name, value) in map.iter().filter(|(name, _)| depth > 0 || name.as_str() != "events") {
        let name = plain(name);
        match value {
            Value::Object(_) => {
                text.push_str(&format!("{indent}{name}:\n"));
                outline(value, depth + 1, text, now);
            }
            Value::Array(list) if list.iter().any(Value::is_object) => {
                text.push_str(&format!("{indent}{name}:\n"));
                for one in list {
                    text.push_str(&format!("{indent}  - {}\n", line(one)));
                }
            }
            Value::String(word) => {
                let at = word.parse::<jiff::Timestamp>().ok();
                let from_now = at.map(|at| format!("  ({})", distance(at, now))).unwrap_or_default();
                text.push_str(&format!("{indent}{name}:  {}{from_now}\n", plain(word)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                text.push_str(&format!("{indent}{name}:  {}\n", line(value)));
            }
        }
    }
}

/// A value on one line.
fn line(value: &Value) -> String {
    match value {
        Value::String(word) => plain(word),
        Value::Null => "none".into(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
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
    use serde_json::json;

    #[test]
    fn a_description_names_every_attribute_and_how_far_its_times_are() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let seen = json!({
            "phase": "Failed", "acceptedAt": "2026-01-01T00:00:00Z", "count": 3, "instances": [],
            "conditions": [{"type": "Ready", "status": false}], "fromTheFuture": {"a": ["x", "y"]},
            "events": [],
        });
        let mut text = String::new();
        outline(&seen, 0, &mut text, now);
        let expected = "acceptedAt:  2026-01-01T00:00:00Z  (10m ago)\n\
                        conditions:\n  - status=false, type=Ready\n\
                        count:  3\n\
                        fromTheFuture:\n  a:  x y\n\
                        instances:  none\n\
                        phase:  Failed\n";
        assert_eq!(text, expected);
    }
}
