//! `runyard logs`: the output of a machine's agent, first boot, runner and post-run script. The agent writes it to a
//! record of its own when something fails, and when a person asks for it.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::input::completion;
use crate::input::run::repository_hint;
use crate::input::selector::{Noun, Selector};
use crate::output::format::plain;
use crate::output::json;
use crate::session::context::{AuditEvent, CliContext, attributes, one_more, readable, text};
use crate::session::polling::{Interrupts, Waited, until};
use crate::session::verb::{Start, Verb};
use runyard_core::model::{
    Agent, AttributeValue, Guard, Instance, InstanceArn, Item, Record, RecordId, Repository, Request, State,
    Write, millis, text_of, time_of,
};
use runyard_core::ports::StoreError;
use runyard_core::redact::redact;

/// Maximum number of a request's machines whose logs are shown.
const MACHINES: usize = 20;

/// Shows what was written on a machine.
#[derive(Debug, Args)]
#[command(after_help = "\
The agent of the machine keeps the ends of what it, the first boot, the runner and the post-run script wrote, without \
credentials: the last 60 lines of each. It writes them into the table when one of them failed, and when a person asks. \
What jobs wrote is GitHub's to show. The logs of a machine that has ended are kept for a day.

Examples:
  runyard logs i-0123456789abcdef0
  runyard logs 1234567890 --repository acme/web    # a request's machines
  runyard logs i-0123456789abcdef0 --follow        # new lines as they come
  runyard logs i-0123456789abcdef0 --tail 20
  runyard logs i-0123456789abcdef0 --stored         # ask nobody")]
pub(crate) struct LogsArgs {
    /// Instance ID or prefix, or a request: RUN_ID[/NAME[/ATTEMPT]]
    #[arg(value_name = "INSTANCE|REQUEST", add = completion::machines_or_classes())]
    name: String,
    /// Repository of the request, if several have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github)]
    repository: Option<Repository>,
    /// Print the stored logs without asking the agent for newer ones
    #[arg(long)]
    stored: bool,
    /// Follow the logs: print new lines as they come
    #[arg(long, short, conflicts_with = "stored")]
    follow: bool,
    /// Number of last lines to print of each part
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Only logs of this last period
    #[arg(long, value_name = "DURATION", value_parser = duration::past, allow_negative_numbers = true)]
    since: Option<Duration>,
    /// How long to wait for the agent
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::patience)]
    timeout: Duration,
}

impl Verb for LogsArgs {
    type Input = (Selector, Option<Repository>);

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let (noun, name) = match self.name.split_once('/') {
            Some(("instance" | "i", id)) => (Noun::Instances, id),
            Some(("request" | "r", id)) => (Noun::Requests, id),
            Some(_) | None if self.name.starts_with("i-") || self.name.starts_with("arn:") => {
                (Noun::Instances, self.name.as_str())
            }
            Some(_) | None => (Noun::Requests, self.name.as_str()),
        };
        let named =
            |problem: runyard_core::model::FieldError| CliFailure::usage(problem.named("INSTANCE|REQUEST"));
        let selector = Selector::parse(noun, name).map_err(named)?;
        let repository =
            repository_hint(self.repository.as_ref(), start.environment).map_err(CliFailure::usage)?;
        Ok((selector, repository))
    }

    async fn run(&self, context: &mut CliContext, (selector, repository): Self::Input) -> CliResult {
        let (selector, repository) = &(selector, repository);

        let item = selector.find(context, repository.as_ref()).await?;
        let mut machines = match RecordId::of(&item) {
            Some(RecordId::Instance(_)) => vec![item],
            _ => of_request(context, &readable::<Request>(&item)?).await?,
        };
        machines.truncate(MACHINES);
        if machines.is_empty() {
            let message = "has no machine whose record is still there";
            let fix = "`runyard debug request` says what is known";
            return Err(CliFailure::error("REQUEST", &self.name, message, fix));
        }
        let mut interrupts = Interrupts::listen()?;
        let mut shown = Shown::default();
        loop {
            let (mut found, mut failures) = (Vec::new(), Vec::new());
            let mut exit = Exit::Error;
            for machine in &machines {
                let instance: Instance = readable(machine)?;
                match of_machine(context, self, &instance, &mut interrupts).await {
                    Ok(log) if self.is_too_old(&log, context.clock.now()) => {}
                    Ok(log) => {
                        show(context, self, &instance, &log, &mut shown);
                        found.push(log);
                    }
                    Err(failure) => {
                        exit = failure.exit;
                        failures.extend(failure.problems);
                    }
                }
            }
            if !self.follow {
                context.screen.document(&json::list(&found));
                return if failures.is_empty() {
                    Ok(())
                } else {
                    Err(CliFailure { exit, problems: failures })
                };
            }
            for log in &found {
                context.screen.next_document(&json::record(log));
            }
            if !failures.is_empty() {
                return Err(CliFailure { exit, problems: failures });
            }
            if context.screen.closed() {
                return Ok(());
            }
            if let Waited::Interrupted(caught) =
                until(FOLLOW, &mut interrupts, async || Ok(None::<()>)).await?
            {
                let failure = CliFailure { exit: Exit::Signal(caught), problems: Vec::new() };
                return Err(failure);
            }
        }
    }
}

/// How long `--follow` waits after a response before it asks again.
const FOLLOW: Duration = Duration::from_secs(5);

/// The lines of each part that were shown last.
type Shown = std::collections::BTreeMap<(String, String), Vec<String>>;

impl LogsArgs {
    /// Returns whether a log is older than the requested period.
    fn is_too_old(&self, log: &Item, now: Timestamp) -> bool {
        let since = self.since.map(|length| now.saturating_sub(length).unwrap_or(Timestamp::MIN));
        since.zip(time_of(log, "at")).is_some_and(|(since, at)| at < since)
    }
}

/// Returns the new lines of a part. A part is the end of a longer text, so its overlap with the previous read is the
/// end of the old and the beginning of the new part.
fn new_lines<'a>(before: &[String], now: &'a [String]) -> &'a [String] {
    let common = (0..=before.len().min(now.len())).rev();
    let mut common = common.filter(|count| before[before.len() - count..] == now[..*count]);
    &now[common.next().unwrap_or_default()..]
}

/// Returns the machines that a request holds or held, if their records exist.
async fn of_request(context: &CliContext, request: &Request) -> CliResult<Vec<Item>> {
    let status = &request.status;
    let ids = if status.instances.is_empty() { &status.served } else { &status.instances };
    let mut machines = context
        .all_that(|item| {
            let of = RecordId::of(item);
            let id = of.as_ref().and_then(|key| key.instance()).map(InstanceArn::instance_id);
            id.is_some_and(|id| ids.iter().any(|one| one.as_str() == id))
        })
        .await?;
    machines.sort_by_key(|item| RecordId::of(item).map(|key| key.pk()));
    Ok(machines)
}

/// Reads the `log` record of a machine.
pub(crate) async fn stored(context: &CliContext, arn: &InstanceArn) -> CliResult<Option<Item>> {
    context.item(&RecordId::new(Agent::key_of(arn).pk(), "log")).await
}

/// Returns the logs of a machine: newly requested from its agent, or those stored last.
async fn of_machine(
    context: &mut CliContext,
    args: &LogsArgs,
    instance: &Instance,
    interrupts: &mut Interrupts,
) -> CliResult<Item> {
    let arn = &instance.facts.instance_arn;
    let id = instance.facts.instance_id.to_string();
    let ended = instance.state() == State::Terminated;
    let before = stored(context, arn).await?;
    if ended || args.stored {
        return before.ok_or_else(|| nothing_stored(&id, ended));
    }
    let asked = ask(context, arn).await?;
    let waited = {
        let context = &*context;
        until(args.timeout, interrupts, async || {
            let log = stored(context, arn).await?;
            Ok(log.filter(|log| time_of(log, "requestedAt") == Some(asked)))
        })
        .await?
    };
    let version = context.item(&Agent::key_of(arn)).await?;
    let version =
        version.as_ref().and_then(|agent| text_of(agent, "agentVersion")).unwrap_or("of no known version");
    match waited {
        Waited::Done(log) => Ok(log),
        Waited::Interrupted(caught) => {
            let message = format!("the wait was interrupted by {}", caught.name());
            let failure = CliFailure::error("INSTANCE", id, message, "run the command again with --stored");
            Err(failure.exiting(Exit::Signal(caught)))
        }
        Waited::TimedOut => {
            let message = format!(
                "its agent ({version}) did not answer within {}: it is silent, or too old to know of logs",
                duration::show(args.timeout)
            );
            let fix = match before {
                Some(_) => {
                    "`--stored` shows what it wrote before; `runyard debug instance` what else was said"
                }
                None => "`runyard debug instance` shows what else was said; `runyard ssh` opens a shell",
            };
            Err(CliFailure::error("INSTANCE", id, message, fix).exiting(Exit::TimedOut))
        }
    }
}

/// Returns the failure for logs that are not stored and are not requested.
fn nothing_stored(id: &str, ended: bool) -> CliFailure {
    let (message, fix) = if ended {
        (
            "has ended, and its agent had written no logs: nothing failed that it knew of, or it is too old",
            "`runyard debug instance` shows its console and what else was said",
        )
    } else {
        ("has written no logs yet", "leave --stored out to ask for them")
    };
    CliFailure::error("INSTANCE", id, message, fix)
}

/// Writes the request for logs, with a time after that of earlier requests, so that the response belongs to this one.
async fn ask(context: &CliContext, arn: &InstanceArn) -> CliResult<Timestamp> {
    let key = Instance::key_of(arn);
    let by = context.environment.actor();
    let attempt = async || -> Result<CliResult<Timestamp>, StoreError> {
        let Some(item) = context.store.get(&key).await? else {
            let fix = "`runyard get instances` lists those that are there";
            return Ok(Err(CliFailure::error("INSTANCE", arn.instance_id(), "is gone", fix)));
        };
        let instance: Instance = match readable(&item) {
            Ok(instance) => instance,
            Err(failure) => return Ok(Err(failure)),
        };
        let now = millis(context.clock.now());
        let last = instance
            .logs_requested
            .as_ref()
            .and_then(|(at, _)| at.checked_add(Duration::from_millis(1)).ok());
        let asked = millis(last.map_or(now, |last| last.max(now)));
        let set = attributes([
            ("logsRequestedAt", text(asked)),
            ("logsRequestedBy", text(&by)),
            ("updatedAt", text(now)),
        ]);
        let write =
            Write::update(instance.key(), Guard::Version(instance.version), set, one_more(["version"]));
        context.store.write(&write).await.map(|_| Ok(asked))
    };
    let asked = crate::session::polling::again(attempt).await.map_err(|error| context.failed(&error))??;
    let message = format!("the logs of instance {} were asked for by a person", arn.instance_id());
    context.record_event(AuditEvent { key: &key, reason: "LogsRequested", message, change: None }).await;
    Ok(asked)
}

/// Returns the parts of a `log` record: name and text. They come from a machine that others used, so credentials are
/// redacted again.
pub(crate) fn parts(log: &Item) -> Vec<(String, String)> {
    let Some(AttributeValue::L(parts)) = log.get("parts") else { return Vec::new() };
    let part = |part: &AttributeValue| {
        let AttributeValue::M(part) = part else { return None };
        let (Some(AttributeValue::S(name)), Some(AttributeValue::S(said))) =
            (part.get("name"), part.get("text"))
        else {
            return None;
        };
        Some((plain(name), redact(said, &[])))
    };
    parts.iter().filter_map(part).collect()
}

fn show(context: &mut CliContext, args: &LogsArgs, instance: &Instance, log: &Item, shown: &mut Shown) {
    let id = &instance.facts.instance_id;
    let (at, because) = (text_of(log, "at").unwrap_or_default(), text_of(log, "because").unwrap_or_default());
    let version = text_of(log, "agentVersion").unwrap_or_default();
    let why = match because {
        "asked" => "asked for".to_owned(),
        "late" => "written because its first boot takes long".to_owned(),
        signal => format!("written with {signal}"),
    };
    let again = shown.keys().any(|(of, _)| of.as_str() == id.as_str());
    if !again {
        context.screen.say(plain(&format!("instance {id}: {why}, at {at} by agent {version}")));
    }
    for (name, said) in parts(log) {
        let lines: Vec<String> = said.lines().map(plain).collect();
        let before = shown.insert((id.to_string(), name.clone()), lines.clone()).unwrap_or_default();
        let new = new_lines(&before, &lines);
        let new = &new[args.tail.map_or(0, |tail| new.len().saturating_sub(tail))..];
        if new.is_empty() && again {
            continue;
        }
        context.screen.say(format!("\n==> {name} <=="));
        for line in new {
            context.screen.say(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_goes_on_shows_what_is_new_alone() {
        let lines = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let new = |before: &str, now: &str| new_lines(&lines(before), &lines(now)).concat();
        assert_eq!(new("", "abc"), "abc");
        assert_eq!(new("abc", "abc"), "");
        assert_eq!(new("abc", "bcde"), "de", "its beginning was cut off meanwhile");
        assert_eq!(new("abc", "xyz"), "xyz", "so much was written that nothing is left of the last");
        assert_eq!(new("aba", "abab"), "b");
    }
}
