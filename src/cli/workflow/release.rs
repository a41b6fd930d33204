//! `runyard release`: writes `desired = released` on the given attempt and earlier ones. It never touches a later
//! attempt, and never overwrites what the operator decided meanwhile.

use std::time::Duration;

use clap::Args;

use super::cost_of_request::Cost;
use super::github_output;
use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit, Problems};
use crate::input::run::{RunArgs, in_field};
use crate::input::selector;
use crate::output::json;
use crate::session::context::{CliContext, readable};
use crate::session::polling::{Interrupts, Waited, again, until};
use crate::session::verb::{Start, Verb};
use runyard_core::model;
use runyard_core::model::{
    Desired, Item, Kind, Record, RecordId, Repository, Request, RequestName, RunId, kind_of,
};
use runyard_core::ports::StoreError;

/// Gives machines back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard release        # in a workflow: this attempt and earlier ones
  runyard release --run-id 42 --repository acme/web --wait
  runyard release --run-id 42 --repository acme/web --name gpu --attempt 2")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Release this attempt and earlier ones [default: $GITHUB_RUN_ATTEMPT, else all]
    #[arg(long, value_name = "N", value_parser = selector::attempt, allow_negative_numbers = true)]
    attempt: Option<u32>,
    /// Wait until all machines are released
    #[arg(long)]
    wait: bool,
    /// Maximum wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::patience, allow_negative_numbers = true)]
    timeout: Duration,
}

impl Verb for ReleaseArgs {
    type Input = Released;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let mut problems = Problems::default();
        let run = self.run.resolve(start.environment, &mut problems);
        let attempt = match (self.attempt, start.environment.get("GITHUB_RUN_ATTEMPT")) {
            (Some(attempt), _) => Some(attempt),
            (None, Some(value)) => problems.keep(in_field("GITHUB_RUN_ATTEMPT", selector::attempt(value))),
            (None, None) => None,
        };
        problems.check()?;
        let (repository, run_id, name) = run.expect("what is missing was refused above");
        Ok(Released { repository, run_id, name, attempt })
    }

    async fn run(&self, context: &mut CliContext, asked: Self::Input) -> CliResult {
        let asked = &asked;
        let mut found = requests(context, asked).await?;
        if found.is_empty() {
            context.screen.say(format!("{asked}: there is no such request, nothing to release"));
            context.screen.document(&json::list([]));
            return Ok(());
        }
        let (mut refused, mut costs) = (Vec::new(), Vec::new());
        for item in &mut found {
            match release_one(context, item).await {
                Ok((after, cost)) => {
                    *item = after;
                    costs.extend(cost);
                }
                Err(failure) => refused.extend(failure.problems),
            }
        }
        github_output::publish_costs(&context.environment, &costs);
        if self.wait && refused.is_empty() {
            found = wait(context, found, self.timeout).await?;
        }
        context.screen.document(&json::list(&found));
        if refused.is_empty() { Ok(()) } else { Err(CliFailure { exit: Exit::Error, problems: refused }) }
    }
}

/// The requests to release.
pub(crate) struct Released {
    repository: Repository,
    run_id: RunId,
    name: RequestName,
    /// This attempt and earlier ones; all if `None`.
    attempt: Option<u32>,
}

async fn requests(context: &CliContext, asked: &Released) -> CliResult<Vec<Item>> {
    let prefix = format!("request#{}#", asked.name);
    let mut items = context.of_run(&asked.repository, &asked.run_id, &prefix).await?;
    items.retain(|item| {
        let id = RecordId::of(item).and_then(|id| id.request().cloned());
        kind_of(item) == Some(Kind::Request)
            && id.is_some_and(|id| asked.attempt.is_none_or(|last| id.attempt <= last))
    });
    Ok(items)
}

/// Releases one request; returns its record, and its cost if it is known.
async fn release_one(context: &mut CliContext, item: &Item) -> CliResult<(Item, Option<Cost>)> {
    let request: Request = readable(item)?;
    if request.phase().is_final() {
        context.screen.say(format!("{}: already {}, nothing to release", request.id, request.phase()));
        return Ok((item.clone(), None));
    }
    if request.intent.desired == Desired::Released {
        context.screen.say(format!("{}: already releasing", request.id));
        return Ok((item.clone(), None));
    }
    let after = write_released(context, &request).await?;
    context.screen.say(format!("{}: released", request.id));
    let cost = Cost::of(&request, context.clock.now());
    if let Some(cost) = &cost {
        context.screen.say(format!("{}: {cost}", request.id));
    }
    Ok((after, cost))
}

/// Writes `desired = released` unless it is written already; returns the resulting record.
pub(crate) async fn write_released(context: &CliContext, request: &Request) -> CliResult<Item> {
    let key = request.key();
    let write = model::release(&request.id, context.clock.now());
    let written = again(async || match context.store.write(&write).await {
        Err(StoreError::Refused { .. }) => Ok(None),
        Ok(item) => Ok(Some(item)),
        Err(error) => Err(error),
    });
    match written.await.map_err(|error| context.failed(&error))? {
        // No event: a workflow's credential may only write intents, and the operator writes the events.
        Some(item) => Ok(item),
        // Another writer released it first, or it is gone: either way it is no longer requested.
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

/// Lists the open requests in a sentence.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser as _;
    use runyard_fakes::{Fault, MemoryStore, TokioClock};
    use serde_json::json;

    use super::*;
    use crate::common::environment::Environment;
    use crate::output::screen::Screen;
    use crate::verbs::{AnyVerb, Cli, Once};

    /// Returns a ready request with these attributes replaced.
    fn request(more: serde_json::Value) -> Item {
        let mut fields = json!({
            "pk": "request#acme/web#42", "sk": "request#default#1", "kind": "request", "version": 3, "runId": "42",
            "attempt": 1, "repository": "acme/web", "name": "default", "resourceClass": "linux-x64", "count": 3,
            "desired": "provisioned", "generation": 1, "phase": "Ready", "acceptedAt": "2026-11-20T11:45:00Z",
            "deadline": "2026-11-20T11:55:00Z", "readyAt": "2026-11-20T11:46:00Z", "observedGeneration": 1,
            "instances": ["i-1", "i-2", "i-3"],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            fields[name] = value.clone();
        }
        // A null attribute is omitted.
        fields.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let item: serde_dynamo::Item = serde_dynamo::to_item(fields).unwrap();
        item.into_inner().into_iter().collect()
    }

    /// Releases the request with these attributes 14 minutes after it was ready; returns the summary.
    async fn summary(more: serde_json::Value) -> String {
        let (store, file) = (MemoryStore::new(), tempfile::NamedTempFile::new().unwrap());
        store.put(request(more));
        let cli = Cli::try_parse_from(["runyard", "release"]).unwrap();
        let mut context = CliContext::on(store, Screen::kept_at(&cli.common.output, None).0);
        context.clock = Arc::new(TokioClock::starting("2026-11-20T12:00:00Z".parse().unwrap()));
        context.environment = Environment::of(&[
            ("GITHUB_RUN_ID", "42"),
            ("GITHUB_RUN_ATTEMPT", "1"),
            ("GITHUB_REPOSITORY", "acme/web"),
            ("GITHUB_STEP_SUMMARY", file.path().to_str().unwrap()),
        ]);
        let AnyVerb::Once(Once::Release(args)) = cli.verb else { panic!("it is release") };
        // The second release finds it released already, and adds no cost.
        for _ in 0..2 {
            args.run_on(&mut context).await.unwrap_or_else(|failure| panic!("{failure:?}"));
        }
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_summary_of_a_run_tells_what_its_machines_cost_once() {
        assert_eq!(
            summary(json!({"hourlyCostNanos": 1_800_000_000_u64})).await,
            "### Runyard: this run: $0.42\n\n- $0.42 for 3 machines of linux-x64 for 14m, at list prices and without \
             boots, clean-up and idle machines\n\n"
        );
        assert_eq!(summary(json!({})).await, "", "without a price nothing is said");
        let never = json!({"hourlyCostNanos": 1, "readyAt": null, "phase": "Fulfilling"});
        assert_eq!(summary(never).await, "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_the_return_outlives_a_table_that_is_away() {
        let store = MemoryStore::new();
        let open = request(json!({"desired": "released", "phase": "Releasing"}));
        store.put(open.clone());
        let cli = Cli::try_parse_from(["runyard", "release"]).unwrap();
        let mut context = CliContext::on(store.clone(), Screen::kept_at(&cli.common.output, None).0);
        let away = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for error in [StoreError::Unknown("request has timed out".into()), StoreError::Throttled] {
                store.next_read(Fault::Fail(error));
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            store.put(request(json!({"desired": "released", "phase": "Released"})));
        };
        let limit = Duration::from_secs(60);
        let (waited, ()) = tokio::join!(wait(&mut context, vec![open], limit), away);
        let items = waited.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(readable::<Request>(&items[0]).unwrap().phase(), model::Phase::Released);
    }
}
