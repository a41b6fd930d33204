//! `runyard release`: writes `desired = released` on the given attempt and earlier ones. It never touches a later
//! attempt, and never overwrites what the operator decided meanwhile.

use std::time::Duration;

use clap::Args;

use super::context::{CliContext, readable};
use super::failure::{CliFailure, CliResult, Exit, Problems};
use super::json;
use super::polling::{Interrupts, Waited, again, until};
use super::run::{RunArgs, in_field};
use super::{duration, selector};
use crate::model::{self, Desired, Item, Kind, Record, RecordId, Repository, Request, RequestName, RunId};
use crate::ports::StoreError;

/// Gives machines back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard release                               # in a workflow: this attempt and earlier ones
  runyard release --run-id 42 --repository acme/web --wait
  runyard release --run-id 42 --repository acme/web --name gpu --attempt 2")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Release this attempt and earlier ones [default: $GITHUB_RUN_ATTEMPT, else all]
    #[arg(long, value_name = "N", value_parser = selector::attempt, allow_negative_numbers = true)]
    attempt: Option<u32>,
    /// Wait until everything is given back
    #[arg(long)]
    wait: bool,
    /// How long to wait at most
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::patience, allow_negative_numbers = true)]
    timeout: Duration,
}

/// Which requests are released.
pub(crate) struct Released {
    repository: Repository,
    run_id: RunId,
    name: RequestName,
    /// This attempt and earlier ones; all when absent.
    attempt: Option<u32>,
}

/// Runs the verb.
pub(crate) async fn run(context: &mut CliContext, args: &ReleaseArgs, asked: &Released) -> CliResult {
    let mut found = requests(context, asked).await?;
    if found.is_empty() {
        context.screen.say(format!("{asked}: there is no such request, nothing to release"));
        context.screen.document(&json::list([]));
        return Ok(());
    }
    let mut refused = Vec::new();
    for item in &mut found {
        match release_one(context, item).await {
            Ok(after) => *item = after,
            Err(failure) => refused.extend(failure.problems),
        }
    }
    if args.wait && refused.is_empty() {
        found = wait(context, found, args.timeout).await?;
    }
    context.screen.document(&json::list(&found));
    if refused.is_empty() { Ok(()) } else { Err(CliFailure { exit: Exit::Error, problems: refused }) }
}

/// What the options say, refused as a whole where it makes no sense.
pub(crate) fn check(
    args: &ReleaseArgs,
    environment: &super::environment::Environment,
) -> CliResult<Released> {
    let mut problems = Problems::default();
    let run = args.run.resolve(environment, &mut problems);
    let attempt = match (args.attempt, environment.get("GITHUB_RUN_ATTEMPT")) {
        (Some(attempt), _) => Some(attempt),
        (None, Some(value)) => problems.keep(in_field("GITHUB_RUN_ATTEMPT", selector::attempt(value))),
        (None, None) => None,
    };
    problems.check()?;
    let (repository, run_id, name) = run.expect("what is missing was refused above");
    Ok(Released { repository, run_id, name, attempt })
}

async fn requests(context: &CliContext, asked: &Released) -> CliResult<Vec<Item>> {
    let prefix = format!("request#{}#", asked.name);
    let mut items = context.of_run(&asked.repository, &asked.run_id, &prefix).await?;
    items.retain(|item| {
        let id = RecordId::of(item).and_then(|id| id.request().cloned());
        selector::kind_of(item) == Some(Kind::Request)
            && id.is_some_and(|id| asked.attempt.is_none_or(|last| id.attempt <= last))
    });
    Ok(items)
}

async fn release_one(context: &mut CliContext, item: &Item) -> CliResult<Item> {
    let request: Request = readable(item)?;
    if request.phase().is_final() {
        context.screen.say(format!("{}: already {}, nothing to release", request.id, request.phase()));
        return Ok(item.clone());
    }
    if request.intent.desired == Desired::Released {
        context.screen.say(format!("{}: already releasing", request.id));
        return Ok(item.clone());
    }
    let after = write_released(context, &request).await?;
    context.screen.say(format!("{}: released", request.id));
    Ok(after)
}

/// Writes `desired = released` unless it says so already; answers the record as it is then.
pub(crate) async fn write_released(context: &CliContext, request: &Request) -> CliResult<Item> {
    let key = request.key();
    let write = model::release(&request.id, context.clock.now());
    let written = again(async || match context.store.write(&write).await {
        Err(StoreError::Refused { .. }) => Ok(None),
        Ok(item) => Ok(Some(item)),
        Err(error) => Err(error),
    });
    match written.await.map_err(|error| context.failed(&error))? {
        // No event: a workflow's credential writes intents alone, the operator tells of them.
        Some(item) => Ok(item),
        // Somebody else released it first, or it is gone: either way it is no longer asked for.
        None => Ok(context.item(&key).await?.unwrap_or_default()),
    }
}

async fn wait(context: &mut CliContext, released: Vec<Item>, limit: Duration) -> CliResult<Vec<Item>> {
    let keys: Vec<RecordId> = released.iter().filter_map(RecordId::of).collect();
    let mut interrupts = Interrupts::listen()?;
    let mut last = released;
    let waited = {
        let (context, last) = (&*context, &mut last);
        until(limit, &mut interrupts, async || {
            let mut items = Vec::new();
            for key in &keys {
                items.extend(context.item(key).await?);
            }
            last.clone_from(&items);
            let over = items.iter().all(|item| readable::<Request>(item).is_ok_and(|r| r.phase().is_final()));
            Ok(over.then_some(items))
        })
        .await?
    };
    match waited {
        Waited::Done(items) => {
            for item in &items {
                let request: Request = readable(item)?;
                context.screen.say(format!("{}: {}", request.id, request.phase()));
            }
            Ok(items)
        }
        Waited::TimedOut => {
            context.screen.document(&json::list(&last));
            let late = format!("not given back in time: {}", open(&last));
            Err(not_given_back("--timeout", &duration::show(limit), late).exiting(Exit::TimedOut))
        }
        Waited::Interrupted(caught) => {
            context.screen.document(&json::list(&last));
            let message = format!("interrupted by {}: {}", caught.name(), open(&last));
            Err(not_given_back("release", "", message).exiting(Exit::Signal(caught)))
        }
    }
}

fn not_given_back(field: &str, value: &str, message: String) -> CliFailure {
    let fix = "the release stands and goes on without you; see `runyard describe request`";
    CliFailure::error(field, value, message, fix)
}

/// The requests that are not over, in a sentence.
fn open(items: &[Item]) -> String {
    let open: Vec<String> = items
        .iter()
        .filter_map(|item| readable::<Request>(item).ok())
        .filter(|request| !request.phase().is_final())
        .map(|r| format!("{} is {} and holds {}", r.id, r.phase(), r.status.instances.len()))
        .collect();
    open.join("; ")
}

impl std::fmt::Display for Released {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} run {}/{}", self.repository, self.run_id, self.name)?;
        self.attempt.map_or(Ok(()), |attempt| write!(f, " up to attempt {attempt}"))
    }
}
