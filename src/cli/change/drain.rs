//! `runyard drain`: a machine serves its run to the end and is not claimed again; one without a run ends at once. Only
//! `expiredBy` is written to a busy machine: its deadline stays, and the operator ends it when it is clean.

use clap::Args;
use jiff::Timestamp;

use super::expire;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::input::completion;
use crate::input::selector::{Noun, Selector};
use crate::output::json;
use crate::output::table::state;
use crate::session::context::{AuditEvent, CliContext, attributes, one_more, readable, text};
use crate::session::verb::{Start, Verb};
use runyard_core::model::{Guard, Instance, Item, Place, Record, RecordId, Write, millis};
use runyard_core::ports::StoreError;

/// Takes machines out of service.
#[derive(Debug, Args)]
#[command(after_help = "\
A machine with a run serves it to the end, is cleaned and ends; it is not claimed again. One without a run ends at once. \
To end a machine with its run: runyard expire INSTANCE --now.

Examples:
  runyard drain i-0123456789abcdef0
  runyard wait instance/i-0123456789abcdef0 --for=terminated --timeout 2h")]
pub(crate) struct DrainArgs {
    /// Instance IDs
    #[arg(value_name = "INSTANCE", required = true, add = completion::machines_or_classes())]
    names: Vec<String>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Verb for DrainArgs {
    type Input = Vec<Selector>;

    fn check(&self, _start: &Start<'_>) -> CliResult<Self::Input> {
        let parse = |name: &String| {
            let id = name
                .split_once('/')
                .filter(|_| !name.starts_with("arn:"))
                .map_or(name.as_str(), |(_, id)| id);
            Selector::parse(Noun::Instances, id)
                .map_err(|problem| CliFailure::usage(problem.named("INSTANCE")))
        };
        self.names.iter().map(parse).collect()
    }

    async fn run(&self, context: &mut CliContext, machines: Self::Input) -> CliResult {
        let machines = machines.as_slice();
        let mut items = Vec::new();
        for machine in machines {
            items.push(machine.find_whole(context, None).await?);
        }
        let (mut after, mut refused) = (Vec::new(), Vec::new());
        for item in items {
            match drain(context, item, self.dry_run).await {
                Ok(item) => after.push(item),
                Err(failure) => refused.extend(failure.problems),
            }
        }
        context.screen.document(&json::list(&after));
        if refused.is_empty() { Ok(()) } else { Err(CliFailure { exit: Exit::Error, problems: refused }) }
    }
}

/// The result for a machine.
enum Drained {
    /// The machine has ended, or is drained already.
    Already(&'static str),
    /// The write that was made, or would be made.
    Written(&'static str, Item),
}

async fn drain(context: &mut CliContext, item: Item, dry_run: bool) -> CliResult<Item> {
    let key = RecordId::of(&item).expect("what was found by its key has one");
    let mut found: Option<Instance> = None;
    let drained = {
        let (context, found) = (&*context, &mut found);
        let attempt = async || -> Result<CliResult<Drained>, StoreError> {
            let Some(item) = context.store.get(&key).await? else { return Ok(Ok(Drained::Already("ended"))) };
            let instance: Instance = match readable(&item) {
                Ok(instance) => instance,
                Err(failure) => return Ok(Err(failure)),
            };
            *found = Some(instance.clone());
            let (now, by) = (millis(context.clock.now()), context.environment.actor());
            let (write, then) = match instance.place() {
                Place::Terminated => return Ok(Ok(Drained::Already("ended"))),
                Place::IdlePooled | Place::IdleHeld | Place::CreatedWarm | Place::Nowhere => {
                    (expire::ending(&instance, now, &by), "ends now")
                }
                Place::IdleCleaning | Place::CreatedBound | Place::Claimed | Place::Running => {
                    if instance.expired_by.is_some() {
                        return Ok(Ok(Drained::Already("draining")));
                    }
                    (draining(&instance, now, &by), "ends when it is clean after its run")
                }
            };
            if dry_run {
                return Ok(Ok(Drained::Written(then, item)));
            }
            context.store.write(&write).await.map(|item| Ok(Drained::Written(then, item)))
        };
        crate::session::polling::again(attempt).await.map_err(|error| context.failed(&error))??
    };
    let name = found.as_ref().map_or_else(|| key.to_string(), |i| i.facts.instance_id.to_string());
    let was = found.as_ref().map(state).unwrap_or_default();
    match drained {
        Drained::Already(how) => {
            context.screen.say(format!("instance {name}: already {how}"));
            Ok(item)
        }
        Drained::Written(then, after) if dry_run => {
            context.screen.say(format!("instance {name}: would be drained: it is {was} and {then}"));
            Ok(after)
        }
        Drained::Written(then, after) => {
            context.screen.say(format!("instance {name}: is not claimed again; it is {was} and {then}"));
            let message = format!("instance {name} was drained by a person while {was}");
            let audit = AuditEvent { key: &key, reason: "DrainRequested", message, change: None };
            context.record_event(audit).await;
            Ok(after)
        }
    }
}

/// Returns the write that keeps a busy machine from being claimed again.
fn draining(instance: &Instance, now: Timestamp, by: &str) -> Write {
    let set = attributes([("expiredBy", text(by)), ("updatedAt", text(now))]);
    Write::update(instance.key(), Guard::Version(instance.version), set, one_more(["version"]))
}
