//! `runyard fail`: fails a stuck request. The operator owns the status, so the verb writes `failRequestedAt` and
//! `failRequestedBy`, on the version that was read.

use clap::Args;
use serde_json::Value;

use crate::common::failure::{CliFailure, CliResult};
use crate::input::completion;
use crate::input::run::repository_hint;
use crate::input::selector::{RequestSelector, request_record};
use crate::output::json;
use crate::session::context::{AuditEvent, CliContext, attributes, one_more, readable, text};
use crate::session::verb::{Start, Verb};
use runyard_core::model::{Guard, Item, Record, Repository, Request, Write, millis};
use runyard_core::ports::StoreError;

/// Ends a stuck request.
#[derive(Debug, Args)]
#[command(after_help = "\
The operator fails the request and gives its machines back, as if its time were over. Where it holds machines, its run \
loses them: on a terminal it asks first, elsewhere --yes is needed.

Examples:
  runyard fail 1234567890
  runyard fail 1234567890 --yes
  runyard fail 1234567890/gpu --repository acme/web")]
pub(crate) struct FailArgs {
    /// Request; the latest attempt unless one is given
    #[arg(value_name = "RUN_ID[/NAME[/ATTEMPT]]", value_parser = RequestSelector::parse, add = completion::requests())]
    request: RequestSelector,
    /// Repository of the request, if several have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github)]
    repository: Option<Repository>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Print what would fail, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Verb for FailArgs {
    type Input = Option<Repository>;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        repository_hint(self.repository.as_ref(), start.environment).map_err(CliFailure::usage)
    }

    async fn run(&self, context: &mut CliContext, repository: Self::Input) -> CliResult {
        let repository = repository.as_ref();
        let request = request_record(context, &self.request, repository).await?;
        let key = request.key();
        let (phase, holds) = (request.phase(), request.status.instances.len());
        if self.dry_run {
            let would = if phase.is_final() { "is over, nothing to fail" } else { "would fail" };
            context
                .screen
                .say(format!("{}: {would}; it is {phase} and holds {holds} of its machines", request.id));
            let item = context.item(&key).await?;
            context.screen.document(&item.as_ref().map_or(Value::Null, json::record));
            return Ok(());
        }
        if holds > 0 && !phase.is_final() {
            let question =
                format!("{} is {phase}, and its {holds} machines are taken from it. Go on?", request.id);
            context.screen.confirm(self.yes, "REQUEST", &request.id.to_string(), &question)?;
        }
        let (after, done) = ask(context, &request).await?;
        let now: Request = readable(&after)?;
        if done {
            context.screen.say(format!("{}: the operator was asked to fail it", now.id));
            let message = format!("{}: a person asked to fail it while {}", now.id, now.phase());
            context
                .record_event(AuditEvent { key: &key, reason: "FailRequested", message, change: None })
                .await;
        } else if now.phase().is_final() {
            context.screen.say(format!("{}: already {}, nothing to fail", now.id, now.phase()));
        } else {
            context.screen.say(format!("{}: already failing", now.id));
        }
        context.screen.document(&json::record(&after));
        Ok(())
    }
}

/// Writes the request to fail unless it exists or comes too late; returns the record, and whether it was written.
async fn ask(context: &CliContext, request: &Request) -> CliResult<(Item, bool)> {
    let key = request.key();
    let attempt = async || -> Result<CliResult<(Item, bool)>, StoreError> {
        let Some(item) = context.store.get(&key).await? else {
            let fix = "see `runyard get requests`";
            return Ok(Err(CliFailure::error(
                "request",
                request.id.to_string(),
                "was deleted meanwhile",
                fix,
            )));
        };
        let current: Request = match readable(&item) {
            Ok(current) => current,
            Err(failure) => return Ok(Err(failure)),
        };
        if current.phase().is_final() || item.contains_key("failRequestedAt") {
            return Ok(Ok((item, false)));
        }
        let now = millis(context.clock.now());
        let set = attributes([
            ("failRequestedAt", text(now)),
            ("failRequestedBy", text(context.environment.actor())),
            ("updatedAt", text(now)),
        ]);
        let write = Write::update(key.clone(), Guard::image(&current), set, one_more(["version"]));
        context.store.write(&write).await.map(|item| Ok((item, true)))
    };
    crate::session::polling::again(attempt).await.map_err(|error| context.failed(&error))?
}
