//! `runyard refresh`: requests a resync on `lease#resync` and waits until a resync that began later has finished.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::output::json;
use crate::session::context::{AuditEvent, CliContext, attributes, number, one_more, readable, text};
use crate::session::polling::{Interrupts, Waited, again, until};
use crate::session::verb::{Start, Verb};
use runyard_core::model::{Guard, Item, Kind, Lease, Write, millis};
use runyard_core::ports::StoreError;

/// Has the operator look at everything now.
#[derive(Debug, Args)]
#[command(after_help = "\
A full resync: every record is judged afresh, and what EC2 and GitHub know is compared with the records.

Example:
  runyard refresh --timeout 2m")]
pub(crate) struct RefreshArgs {
    /// How long to wait for the resync
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::patience, allow_negative_numbers = true)]
    timeout: Duration,
}

impl Verb for RefreshArgs {
    type Input = ();

    fn check(&self, _start: &Start<'_>) -> CliResult {
        Ok(())
    }

    async fn run(&self, context: &mut CliContext, (): ()) -> CliResult {
        let mut interrupts = Interrupts::listen()?;
        let asked = ask(context).await?;
        let key = Lease::key_of(Lease::RESYNC);
        let message = "a full resync was asked for".to_owned();
        context
            .record_event(AuditEvent { key: &key, reason: "ResyncRequested", message, change: None })
            .await;
        let waited = {
            let context = &*context;
            until(self.timeout, &mut interrupts, async || {
                let Some(item) = context.item(&key).await? else { return Ok(None) };
                let lease: Lease = readable(&item)?;
                Ok(lease.completed_at.filter(|at| *at >= asked).map(|at| (at, item)))
            })
            .await?
        };
        match waited {
            Waited::Done((at, item)) => {
                context.screen.say(format!("everything was looked at, done at {at}"));
                context.screen.document(&json::record(&item));
                Ok(())
            }
            Waited::Interrupted(caught) => {
                let message = format!(
                    "interrupted by {}; it was asked for at {asked} and stays asked for",
                    caught.name()
                );
                let failure =
                    CliFailure::error("refresh", "", message, "run the command again to wait for it");
                Err(failure.exiting(Exit::Signal(caught)))
            }
            Waited::TimedOut => {
                let message = format!("not done in time; it was asked for at {asked} and stays asked for");
                let fix = "check that an operator runs (`runyard doctor`), or wait longer";
                let failure = CliFailure::error("--timeout", duration::show(self.timeout), message, fix);
                Err(failure.exiting(Exit::TimedOut))
            }
        }
    }
}

/// Writes the time of the request, never before an earlier one, so that the resync answers this request.
async fn ask(context: &CliContext) -> CliResult<Timestamp> {
    let key = Lease::key_of(Lease::RESYNC);
    let attempt = async || -> Result<CliResult<Timestamp>, StoreError> {
        let now = millis(context.clock.now());
        let Some(item) = context.store.get(&key).await? else {
            context.store.write(&Write::create(key.clone(), born(now))).await?;
            return Ok(Ok(now));
        };
        let lease: Lease = match readable(&item) {
            Ok(lease) => lease,
            Err(failure) => return Ok(Err(failure)),
        };
        let next = Duration::from_millis(1);
        let last = lease.requested_at.max(lease.completed_at).and_then(|at| at.checked_add(next).ok());
        let asked = millis(last.map_or(now, |last| last.max(now)));
        let set = attributes([("requestedAt", text(asked)), ("updatedAt", text(now))]);
        let write = Write::update(key.clone(), Guard::Version(lease.version), set, one_more(["version"]));
        context.store.write(&write).await.map(|_| Ok(asked))
    };
    again(attempt).await.map_err(|error| context.failed(&error))?
}

fn born(now: Timestamp) -> Item {
    let key = Lease::key_of(Lease::RESYNC);
    attributes([
        ("pk", text(key.pk())),
        ("sk", text(key.sk())),
        ("kind", text(Kind::Lease)),
        ("version", number(1u64)),
        ("holder", text("")),
        ("token", number(0u64)),
        ("renewals", number(0u64)),
        ("termSeconds", number(0u64)),
        ("requestedAt", text(now)),
        ("updatedAt", text(now)),
    ])
}
