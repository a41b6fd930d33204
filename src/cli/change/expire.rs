//! `runyard expire`: ends a machine by moving its deadline to now, on the version that was read. The operator then ends
//! it as any machine whose deadline has passed.

use clap::Args;
use jiff::Timestamp;

use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::input::completion;
use crate::input::selector::{Noun, Selector};
use crate::output::json;
use crate::output::table::state;
use crate::session::context::{AuditEvent, CliContext, attributes, one_more, readable, text};
use crate::session::names;
use crate::session::verb::{Start, Verb};
use runyard_core::model::kind_of;
use runyard_core::model::{
    ClassName, Guard, Instance, Item, Kind, Place, Pool, Reading, Record, RecordId, State, Write, millis,
    read,
};
use runyard_core::ports::StoreError;

/// Ends machines.
#[derive(Debug, Args)]
#[command(after_help = "\
Where a run would lose its machine, it asks on a terminal first; elsewhere --yes is needed.

Examples:
  runyard expire i-0123456789abcdef0          # if it is idle
  runyard expire i-0123456789abcdef0 --now    # even if a run is on it
  runyard expire linux-x64 --idle             # all idle machines of the class")]
pub(crate) struct ExpireArgs {
    /// Instance ID, or with --idle a resource class
    #[arg(value_name = "INSTANCE|CLASS", add = completion::machines_or_classes())]
    name: String,
    /// Terminate all idle machines of the class
    #[arg(long)]
    idle: bool,
    /// Include busy machines: one with a run, or with --idle one that is being cleaned
    #[arg(long)]
    now: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Print what would be terminated, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Verb for ExpireArgs {
    type Input = Target;

    fn check(&self, _start: &Start<'_>) -> CliResult<Self::Input> {
        let target = if self.idle {
            ClassName::parse(&self.name).map(Target::Class)
        } else {
            Selector::parse(Noun::Instances, &self.name).map(Target::Instance)
        };
        target.map_err(|problem| CliFailure::usage(problem.named("INSTANCE|CLASS")))
    }

    async fn run(&self, context: &mut CliContext, target: Self::Input) -> CliResult {
        let target = &target;
        let items = match target {
            Target::Instance(selector) => vec![selector.find_whole(context, None).await?],
            Target::Class(class) => idle(context, class, self.now).await?,
        };
        if let (Target::Class(class), true) = (target, items.is_empty()) {
            if context.item(&Pool::key_of(class)).await?.is_none() {
                return Err(names::no_such_pool(context, "CLASS", class).await);
            }
            context.screen.say(format!("class {class} has no idle machines"));
        }
        if self.dry_run {
            return would_end(context, self, &items);
        }
        let lost = runs(&items);
        if let Some(question) = question(self, &items, &lost)
        // Ending idle machines loses no work, so a script that names a class continues.
        && (!lost.is_empty() || context.screen.can_ask())
        {
            context.screen.confirm(self.yes, "INSTANCE|CLASS", &self.name, &question)?;
        }
        let agreed = self.yes || !lost.is_empty();
        let mut after = Vec::new();
        let mut refused = Vec::new();
        for item in &items {
            match expire(context, item, self, agreed).await {
                Ok(item) => after.push(item),
                Err(failure) => refused.extend(failure.problems),
            }
        }
        context.screen.document(&json::list(&after));
        if refused.is_empty() { Ok(()) } else { Err(CliFailure { exit: Exit::Error, problems: refused }) }
    }
}

/// The machines to end.
pub(crate) enum Target {
    /// One machine.
    Instance(Selector),
    /// The idle machines of a class.
    Class(ClassName),
}

/// Prints the machines that would end, or returns why one may not.
fn would_end(context: &mut CliContext, args: &ExpireArgs, items: &[Item]) -> CliResult {
    for item in items {
        let instance: Instance = readable(item)?;
        if instance.state() == State::Terminated {
            context.screen.say(format!("instance {}: already ended", instance.facts.instance_id));
            continue;
        }
        may_end(&instance, args)?;
        let is = state(&instance);
        context.screen.say(format!("instance {}: would expire (it is {is})", instance.facts.instance_id));
    }
    context.screen.document(&json::list(items));
    Ok(())
}

async fn idle(context: &CliContext, class: &ClassName, cleaning_too: bool) -> CliResult<Vec<Item>> {
    let wanted = |item: &Item| match read::<Instance>(item) {
        Reading::Record(instance) if kind_of(item) == Some(Kind::Instance) => {
            instance.facts.resource_class == *class
                && match instance.place() {
                    Place::IdlePooled => true,
                    Place::IdleCleaning => cleaning_too,
                    Place::IdleHeld
                    | Place::Nowhere
                    | Place::CreatedBound
                    | Place::CreatedWarm
                    | Place::Claimed
                    | Place::Running
                    | Place::Terminated => false,
                }
        }
        Reading::Record(_) | Reading::Newer { .. } | Reading::Unreadable(_) => false,
    };
    context.all_that(wanted).await
}

/// Returns the runs that would lose a machine.
fn runs(items: &[Item]) -> Vec<String> {
    let held = |item: &Item| match read::<Instance>(item) {
        Reading::Record(instance) => instance.run().map(ToString::to_string),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    };
    items.iter().filter_map(held).collect()
}

/// Returns the question to ask first, if there is one.
fn question(args: &ExpireArgs, items: &[Item], lost: &[String]) -> Option<String> {
    let (number, name) = (items.len(), &args.name);
    match (number, lost) {
        (_, []) if number < 2 => None,
        (_, []) => Some(format!("{number} machines of {name} end. Go on?")),
        // Without --now it is refused, with an error that names the option.
        (_, _) if !args.now => None,
        (_, lost) => Some(format!("Run {} loses its machine {name}. Go on?", lost.join(", "))),
    }
}

async fn expire(context: &mut CliContext, item: &Item, args: &ExpireArgs, agreed: bool) -> CliResult<Item> {
    let key = RecordId::of(item).expect("what was found by its key has one");
    let mut found: Option<Instance> = None;
    let written = {
        let (context, found) = (&*context, &mut found);
        let attempt = async || -> Result<CliResult<Option<Item>>, StoreError> {
            let Some(item) = context.store.get(&key).await? else { return Ok(Ok(None)) };
            let instance: Instance = match readable(&item) {
                Ok(instance) => instance,
                Err(failure) => return Ok(Err(failure)),
            };
            *found = Some(instance.clone());
            if instance.state() == State::Terminated {
                return Ok(Ok(None));
            }
            if let Err(failure) = may_end(&instance, args).and_then(|()| still_agreed(&instance, agreed)) {
                return Ok(Err(failure));
            }
            let write = ending(&instance, millis(context.clock.now()), &context.environment.actor());
            context.store.write(&write).await.map(|item| Ok(Some(item)))
        };
        crate::session::polling::again(attempt).await.map_err(|error| context.failed(&error))??
    };
    let name = found.as_ref().map_or_else(|| key.to_string(), |i| i.facts.instance_id.to_string());
    let Some(after) = written else {
        context.screen.say(format!("instance {name}: already ended"));
        return Ok(item.clone());
    };
    let was = found.as_ref().map(state).unwrap_or_default();
    context.screen.say(format!("instance {name}: expires now (it was {was})"));
    let message = format!("instance {name} was expired by a person while {was}");
    context.record_event(AuditEvent { key: &key, reason: "ExpireRequested", message, change: None }).await;
    Ok(after)
}

/// Checks whether this machine may be ended without `--now`.
fn may_end(instance: &Instance, args: &ExpireArgs) -> CliResult {
    let id = instance.facts.instance_id.to_string();
    if args.now {
        return Ok(());
    }
    if let Some(run) = instance.run() {
        let message = format!("is {} for run {run}", instance.state());
        return Err(CliFailure::error(
            "INSTANCE",
            id,
            message,
            "release the run first, or add --now to end it anyway",
        ));
    }
    // Of a class, only machines that are still idle are ended: one may have been claimed since it was listed.
    let taken = args.idle && instance.state() != State::Idle;
    if taken {
        let message = format!("is {} by now", instance.state());
        return Err(CliFailure::error("INSTANCE", id, message, "run the command again"));
    }
    Ok(())
}

/// Checks whether a machine that was free when it was read may be taken from the run that has it now.
fn still_agreed(instance: &Instance, agreed: bool) -> CliResult {
    let Some(run) = instance.run().filter(|_| !agreed) else { return Ok(()) };
    let message = format!("is {} for run {run} by now", instance.state());
    let id = instance.facts.instance_id.to_string();
    Err(CliFailure::error("INSTANCE", id, message, "run the command again, with --yes to end it anyway"))
}

/// Returns the write that expires a machine's deadline. Deadlines follow the operator's clock and not ours: the moment
/// when the last one was set is certainly past for the operator, however wrong our own clock is.
pub(crate) fn ending(instance: &Instance, now: Timestamp, by: &str) -> Write {
    let at = instance.threshold.map_or(now, |threshold| threshold.set_at.min(now));
    let set = attributes([
        ("threshold", text(at)),
        ("thresholdSetAt", text(at)),
        ("expiredBy", text(by)),
        ("updatedAt", text(now)),
    ]);
    Write::update(instance.key(), Guard::Version(instance.version), set, one_more(["version"]))
}
