//! `runyard delete pool`: drains a class, waits until none of its machines is alive, then deletes its record, its queue
//! and its launch template. Every step may be repeated: after an interruption the same command continues.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{apply, expire, scale};
use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::input::completion;
use crate::session::context::{AuditEvent, CliContext, readable};
use crate::session::polling::{Interrupts, Waited, until};
use crate::session::verb::{Start, Verb};
use crate::session::{connect, names};
use runyard_core::model::kind_of;
use runyard_core::model::{
    ANNOUNCED, ClassName, Guard, Instance, Item, Kind, LaunchPhase, Phase, Place, Pool, Reading, State,
    Write, millis, read, text_of,
};
use runyard_core::ports::StoreError;
use runyard_operator::aws::queues::WantedQueue;

/// Deletes a pool.
#[derive(Debug, Args)]
#[command(after_help = "\
The class is paused and keeps nothing any more, its idle machines end, its runs finish; when none of its machines lives, \
its record, its queue with the dead letters, and its launch template are deleted. Requests for it then fail with \
UnknownClass. A pool in the chart's values comes back with the next upgrade: take it out there too.

Examples:
  runyard delete pool linux-x64 --dry-run
  runyard delete pool linux-x64 --yes --timeout 3h")]
pub(crate) struct DeleteArgs {
    /// Kind of record: pool, or pool/CLASS
    #[arg(value_name = "KIND", value_parser = deletable)]
    what: Deletable,
    /// The resource class
    #[arg(value_name = "CLASS", value_parser = ClassName::parse, add = completion::classes())]
    class: Option<ClassName>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for running jobs
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::patience)]
    timeout: Duration,
}

impl Verb for DeleteArgs {
    type Input = ClassName;

    fn check(&self, _start: &Start<'_>) -> CliResult<Self::Input> {
        match (&self.what.0, &self.class) {
            (Some(class), None) | (None, Some(class)) => Ok(class.clone()),
            (None, None) | (Some(_), Some(_)) => {
                let fix = "write `runyard delete pool CLASS`";
                let problem = runyard_core::model::FieldError::new("CLASS", "", "must be named once", fix);
                Err(CliFailure::usage(problem))
            }
        }
    }

    async fn run(&self, context: &mut CliContext, class: Self::Input) -> CliResult {
        let class = &class;
        let key = Pool::key_of(class);
        let Some(item) = context.item(&key).await? else {
            return Err(names::no_such_pool(context, "CLASS", class).await);
        };
        let pool: Pool = readable(&item)?;
        let left = left(context, class).await?;
        if self.dry_run {
            context.screen.say(format!("pool {class}: would be drained and deleted: it has {}", left.told()));
            context.screen.document(&json!({"resourceClass": class.as_str(), "live": left.live.len(),
            "launches": left.launches, "requests": left.requests}));
            return Ok(());
        }
        let question = format!("Pool {class} has {}. Drain and delete it?", left.told());
        context.screen.confirm(self.yes, "CLASS", class.as_str(), &question)?;
        apply::retire(context, class).await?;
        scale::reset(context, class).await?;
        drained(context, self, &pool).await?;
        remove(context, class).await?;
        context.screen.say(format!("pool {class}: deleted"));
        let audit = AuditEvent {
            key: &key,
            reason: "PoolDeleted",
            message: format!("pool {class} was drained and deleted"),
            change: None,
        };
        context.record_event(audit).await;
        for line in beside(context, class, &pool).await {
            context.screen.say(line);
        }
        context.screen.document(&json!({"resourceClass": class.as_str(), "state": "deleted"}));
        Ok(())
    }
}

/// A record that can be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Deletable(Option<ClassName>);

/// The kinds that can be deleted.
#[derive(Clone, Copy, ValueEnum)]
enum Kinds {
    /// A resource class.
    #[value(aliases = ["pools", "po", "p"])]
    Pool,
}

fn deletable(text: &str) -> Result<Deletable, runyard_core::model::FieldError> {
    let (kind, name) = text.split_once('/').map_or((text, None), |(kind, name)| (kind, Some(name)));
    if Kinds::from_str(kind, false).is_err() {
        let fix = "only pools are deleted: machines end (`runyard expire`), requests are released or failed";
        return Err(runyard_core::model::FieldError::new("KIND", kind, "cannot be deleted", fix));
    }
    Ok(Deletable(name.map(ClassName::parse).transpose()?))
}

/// Returns how a class gets back what its deletion took from its spec.
fn kept(pool: &Pool) -> String {
    let spec = &pool.spec;
    if spec.paused && spec.desired == 0 && spec.min == 0 && spec.schedules.is_empty() {
        // An earlier deletion was not finished.
        return format!("`runyard events pool {}` tells what its spec was before", spec.resource_class);
    }
    let schedules = serde_json::to_string(&spec.schedules).expect("schedules are JSON");
    let quoted = schedules.replace('\'', "'\\''");
    format!(
        "`runyard set pool {} paused={} desired={} min={} 'schedules={quoted}'`",
        spec.resource_class, spec.paused, spec.desired, spec.min
    )
}

/// The remaining records of a class.
struct Left {
    live: Vec<Item>,
    launches: usize,
    requests: usize,
}

impl Left {
    /// Returns whether nothing is alive or being launched.
    fn nothing(&self) -> bool {
        self.live.is_empty() && self.launches == 0
    }

    fn told(&self) -> String {
        let machines = if self.live.len() == 1 { "machine" } else { "machines" };
        format!(
            "{} live {machines}, {} open launches, {} open requests",
            self.live.len(),
            self.launches,
            self.requests
        )
    }
}

/// Reads the machines of the class that are alive, its launches, and its waiting requests.
async fn left(context: &CliContext, class: &ClassName) -> CliResult<Left> {
    let of = |item: &Item| text_of(item, "resourceClass") == Some(class.as_str());
    let wanted = |item: &Item| {
        of(item)
            && match kind_of(item) {
                // An unreadable machine may be alive.
                Some(Kind::Instance) => {
                    text_of(item, "state").unwrap_or_default().parse::<State>().map_or(true, State::live)
                }
                Some(Kind::Launch) => text_of(item, "phase")
                    .unwrap_or_default()
                    .parse::<LaunchPhase>()
                    .is_ok_and(|phase| phase == LaunchPhase::Intent),
                Some(Kind::Request) => {
                    !text_of(item, "phase").unwrap_or_default().parse::<Phase>().is_ok_and(Phase::is_final)
                }
                Some(Kind::Agent | Kind::Pool | Kind::Lease | Kind::Queue | Kind::Event) | None => false,
            }
    };
    let mut left = Left { live: Vec::new(), launches: 0, requests: 0 };
    for item in context.all_that(wanted).await? {
        match kind_of(&item) {
            Some(Kind::Instance) => left.live.push(item),
            Some(Kind::Launch) => left.launches += 1,
            Some(Kind::Request) => left.requests += 1,
            Some(Kind::Agent | Kind::Pool | Kind::Lease | Kind::Queue | Kind::Event) | None => {}
        }
    }
    Ok(left)
}

/// Repeatedly ends idle machines until nothing is left.
async fn drained(context: &mut CliContext, args: &DeleteArgs, pool: &Pool) -> CliResult {
    let class = &pool.spec.resource_class;
    let mut interrupts = Interrupts::listen()?;
    let (end, mut told) = (tokio::time::Instant::now() + args.timeout, String::new());
    let waited = loop {
        let limit = end.saturating_duration_since(tokio::time::Instant::now());
        let seen = {
            let (context, told) = (&*context, &told);
            until(limit, &mut interrupts, async || {
                let left = left(context, class).await?;
                for item in &left.live {
                    end_idle(context, item).await?;
                }
                Ok((left.nothing() || left.told() != *told).then_some(left))
            })
            .await?
        };
        match seen {
            Waited::Done(left) if left.nothing() => break Waited::Done(()),
            Waited::Done(left) => {
                told = left.told();
                context.screen.say(format!("pool {class}: {told}"));
            }
            Waited::TimedOut => break Waited::TimedOut,
            Waited::Interrupted(caught) => break Waited::Interrupted(caught),
        }
    };
    let stopped = |why: String, exit| {
        let fix = format!("run the command again to go on, or keep the class: {}", kept(pool));
        Err(CliFailure::error("pool", class.as_str(), format!("{why} at {told}"), fix).exiting(exit))
    };
    match waited {
        Waited::Done(()) => Ok(()),
        Waited::TimedOut => stopped("the wait timed out".into(), Exit::TimedOut),
        Waited::Interrupted(caught) => {
            stopped(format!("interrupted by {}", caught.name()), Exit::Signal(caught))
        }
    }
}

/// Ends a machine that has no run; one that is claimed at this moment continues to serve.
async fn end_idle(context: &CliContext, item: &Item) -> CliResult {
    let Reading::Record(instance) = read::<Instance>(item) else { return Ok(()) };
    match instance.place() {
        Place::IdlePooled | Place::CreatedWarm if instance.expired_by.is_none() => {}
        Place::IdlePooled
        | Place::CreatedWarm
        | Place::IdleCleaning
        | Place::IdleHeld
        | Place::Nowhere
        | Place::CreatedBound
        | Place::Claimed
        | Place::Running
        | Place::Terminated => return Ok(()),
    }
    let write = expire::ending(&instance, millis(context.clock.now()), &context.environment.actor());
    match context.store.write(&write).await {
        // Another writer was faster; the next read shows the new state.
        Ok(_) | Err(StoreError::Refused { .. } | StoreError::Contended | StoreError::Throttled) => Ok(()),
        Err(error) => Err(context.failed(&error)),
    }
}

/// Deletes the current record, which must be paused and have nothing alive.
async fn remove(context: &CliContext, class: &ClassName) -> CliResult {
    let key = Pool::key_of(class);
    let attempt = async || -> Result<CliResult, StoreError> {
        let Some(item) = context.store.get(&key).await? else { return Ok(Ok(())) };
        let pool: Pool = match readable(&item) {
            Ok(pool) => pool,
            Err(failure) => return Ok(Err(failure)),
        };
        if !pool.spec.paused {
            let fix = "somebody resumed it: decide with them, then run the command again";
            return Ok(Err(CliFailure::error("pool", class.as_str(), "is no longer paused", fix)));
        }
        context.store.write(&Write::delete(key.clone(), Guard::image(&pool))).await.map(|_| Ok(()))
    };
    crate::session::polling::again(attempt).await.map_err(|error| context.failed(&error))?
}

/// Deletes the queues and the launch template of a deleted class. Failures are printed and are not errors, because the
/// remains cost nothing and harm nobody.
async fn beside(context: &CliContext, class: &ClassName, pool: &Pool) -> Vec<String> {
    let mut lines = Vec::new();
    if context.queue.is_some()
        && let Some(queues) = connect::queues(&context.environment).await
    {
        for queue in WantedQueue::of_class(&context.table, class, ANNOUNCED) {
            lines.push(match queues.delete(&queue.name).await {
                Ok(true) => format!("queue {}: deleted", queue.name),
                Ok(false) => format!("queue {}: there is none", queue.name),
                Err(error) => format!("queue {}: not deleted: {error}", queue.name),
            });
        }
    }
    #[cfg(feature = "ec2")]
    if pool.spec.launch.ami.is_some() && pool.spec.launch.launch_template_id.is_none() {
        let name = format!("{}-{class}", context.table);
        let sdk = connect::sdk(&context.environment).await;
        lines.push(match runyard_operator::aws::ec2::delete_template(&sdk, &context.table, class).await {
            Ok(true) => format!("template {name}: deleted"),
            Ok(false) => format!("template {name}: there is none"),
            Err(error) => format!("template {name}: not deleted: {error}"),
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format::Format;
    use crate::output::screen::Screen;
    use crate::session::context::{attributes, text};
    use runyard_core::model::{AttributeValue, RecordId};
    use runyard_fakes::MemoryStore;

    fn args(yes: bool) -> DeleteArgs {
        DeleteArgs {
            what: Deletable(None),
            class: ClassName::parse("small").ok(),
            yes,
            dry_run: false,
            timeout: Duration::from_secs(5),
        }
    }

    fn pool(store: &MemoryStore) {
        store.put(attributes([
            ("pk", text("pool#small")),
            ("sk", text("pool")),
            ("kind", text("pool")),
            ("version", AttributeValue::N("1".into())),
            ("resourceClass", text("small")),
            ("max", AttributeValue::N("3".into())),
            ("desired", AttributeValue::N("2".into())),
        ]));
    }

    fn machine(store: &MemoryStore, id: &str, state: &str) -> RecordId {
        let pk = format!("instance#arn:aws:ec2:local:000000000000:instance/{id}");
        let now = text("2026-01-01T00:00:00Z");
        let mut item = attributes([
            ("pk", text(&pk)),
            ("sk", text("instance")),
            ("kind", text("instance")),
            ("version", AttributeValue::N("1".into())),
            ("instanceId", text(id)),
            ("instanceArn", text(pk.trim_start_matches("instance#"))),
            ("resourceClass", text("small")),
            ("state", text(state)),
            ("stateSince", now.clone()),
            ("createdAt", now.clone()),
            ("updatedAt", now.clone()),
            ("usageClass", text("on-demand")),
            ("runId", text("")),
            ("claimId", text("")),
            ("threshold", now.clone()),
            ("thresholdSetAt", now.clone()),
        ]);
        if state == "idle" {
            item.insert("pooledAt".into(), now);
        }
        store.put(item);
        RecordId::new(pk, "instance")
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_is_deleted_once_nothing_of_it_lives() {
        let store = MemoryStore::new();
        pool(&store);
        let class = ClassName::parse("small").unwrap();
        let mut context = CliContext::on(store.clone(), Screen::nowhere(Format::Text));
        let key = Pool::key_of(&class);
        let idle = machine(&store, "i-1", "idle");
        let refused = args(false).run_on(&mut context).await.unwrap_err();
        assert!(refused.problems[0].fix.contains("--yes"), "{refused:?}");
        assert_eq!(context.item(&key).await.unwrap().unwrap()["version"], AttributeValue::N("1".into()));
        let stuck = args(true).run_on(&mut context).await.unwrap_err();
        assert_eq!(stuck.exit, Exit::TimedOut, "its machine lives: {stuck:?}");
        let paused = context.item(&key).await.unwrap().unwrap();
        assert_eq!(paused["paused"], AttributeValue::Bool(true));
        assert!(context.item(&idle).await.unwrap().unwrap().contains_key("expiredBy"), "and is to end");
        machine(&store, "i-1", "terminated");
        args(true).run_on(&mut context).await.unwrap();
        assert_eq!(context.item(&key).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_deletion_says_what_gives_the_class_back() {
        let store = MemoryStore::new();
        pool(&store);
        let class = ClassName::parse("small").unwrap();
        let mut context = CliContext::on(store.clone(), Screen::nowhere(Format::Text));
        machine(&store, "i-1", "running");
        let stuck = args(true).run_on(&mut context).await.unwrap_err();
        let fix = &stuck.problems[0].fix;
        let command = "`runyard set pool small paused=false desired=2 min=0 'schedules=[]'`";
        assert!(fix.contains(command), "{fix}");
        assert_eq!(
            context.item(&Pool::key_of(&class)).await.unwrap().unwrap()["desired"],
            AttributeValue::N("0".into())
        );
        let again = args(true).run_on(&mut context).await.unwrap_err();
        assert!(again.problems[0].fix.contains("runyard events pool small"), "{again:?}");
    }
}
