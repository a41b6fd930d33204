//! `runyard plan` and `runyard explain`: run the operator's own decisions on the current records without executing
//! them, for all records or for one.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::explain_run::{RunTarget, explain_run};
use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::input::completion;
use crate::input::look::{LookArgs, WATCH};
use crate::input::run::repository_hint;
use crate::input::selector::Selector;
use crate::input::what::OneArgs;
use crate::output::format::plain;
use crate::pools::sets::sets_of;
use crate::session::configured::policy;
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::decide::{Effect, Plan, Planned, Policy, Wait};
use runyard_core::explain::{self, SetReport};
use runyard_core::model::kind_of;
use runyard_core::model::{
    AheadStatus, Item, Kind, Launch, Pool, Reading, RecordId, Repository, TableName, read,
};
use runyard_core::yard::{Unit, Yard};

/// Number of waiting requests that `explain pool` explains.
const WAITS_TOLD: usize = 3;

/// Tells what the operator would do now.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is changed, and only the records are looked at: what EC2, the queues and GitHub would answer is not asked, and \
what the operator remembers of their answers is known as far as its pools' status tells it.

Examples:
  runyard plan
  runyard plan --config /etc/runyard/runyard.toml -o json")]
pub(crate) struct PlanArgs {
    /// Operator configuration, for its deadlines [default: built-in deadlines and RUNYARD_TIMING__*]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Verb for PlanArgs {
    type Input = Policy;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        policy(self.config.as_ref(), start.table)
    }

    async fn run(&self, context: &mut CliContext, policy: Self::Input) -> CliResult {
        let policy = &policy;
        let records = context.everything().await?;
        let now = context.clock.now();
        let (actions, waits) = judged(&records, policy, now);
        let items: Vec<Value> = actions.iter().map(action_json).collect();
        let waiting: Vec<Value> = waits.iter().map(wait_json).collect();
        let ahead = hours_ahead(&records, now);
        let hours: Vec<Value> =
            ahead.iter().map(|(class, told)| json!({"resourceClass": class, "message": told})).collect();
        let off = not_registered_ahead(&records);
        let slower: Vec<Value> = off
        .iter()
        .map(
            |(class, told)| json!({"resourceClass": class, "reasons": told.reasons, "message": told.message}),
        )
        .collect();
        let document =
            json!({"items": items, "waits": waiting, "ahead": hours, "notRegisteredAhead": slower});
        context.screen.document(&document);
        if actions.is_empty() {
            context.screen.say("there is nothing to do");
        }
        for action in &actions {
            context.screen.say(format!("would do: {}", plain(&action.describe())));
        }
        for wait in &waits {
            context.screen.say(format!("waits: {}: {}", plain(&named(&wait.subject)), plain(&wait.message)));
        }
        for (class, told) in &ahead {
            context.screen.say(format!("ahead: class {class}: {told}"));
        }
        for (class, told) in &off {
            context.screen.say(format!("slower: class {class}: {}", plain(&told.message)));
        }
        Ok(())
    }
}

/// Tells why one record is where it is, and what comes next.
#[derive(Debug, Args)]
#[command(after_help = "\
`explain run` tells the jobs of a workflow run, their labels, and the class that serves each or the reason why none does. \
GitHub is asked for them with the token in GITHUB_TOKEN (or GH_TOKEN), or with the operator's credential (--config); in \
local mode the stand-in is asked. Without a credential its requests and events are told alone.

Examples:
  runyard explain run 1234567890 --repository acme/web
  runyard explain request 1234567890
  runyard explain request 1234567890 --watch
  runyard explain instance i-0123456789abcdef0
  runyard explain pool linux-x64 -o json")]
pub(crate) struct ExplainArgs {
    /// Kind of record: instance (i), request (r), pool (p) or launch (l), or a workflow run (run), or KIND/NAME
    #[arg(value_name = "KIND", add = completion::kinds_and_names())]
    what: String,
    /// Name: an instance ID or prefix, RUN_ID[/NAME[/ATTEMPT]], a class, a launch ID
    #[arg(value_name = "NAME", add = completion::of_the_kind_before())]
    name: Option<String>,
    #[command(flatten)]
    look: LookArgs,
    /// Operator configuration, for its deadlines [default: built-in deadlines and RUNYARD_TIMING__*]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Verb for ExplainArgs {
    type Input = Explainable;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let (repository, config) = (self.look.repository.as_ref(), self.config.as_ref());
        let one = OneArgs::of(self.what.clone(), self.name.clone());
        if let Some(run_id) = one.run()? {
            let repository = repository_hint(repository, start.environment).map_err(CliFailure::usage)?;
            let (policy, config) = (policy(config, start.table)?, config.cloned());
            return Ok(Explainable::Run(RunTarget { run_id, repository, policy, config }));
        }
        let selector = one.selector_beside_runs()?;
        target(selector, repository, config, start.environment, start.table).map(Explainable::Record)
    }

    async fn run(&self, context: &mut CliContext, target: Self::Input) -> CliResult {
        let target = &match target {
            Explainable::Run(target) => return explain_run(context, &target, self.look.watch).await,
            Explainable::Record(target) => target,
        };
        let mut last: Option<Explained> = None;
        loop {
            let (seen, _) = explained(context, target).await?;
            if last.as_ref() != Some(&seen) {
                show(context, self.look.watch, &seen, last.is_some());
                last = Some(seen);
            }
            if !self.look.watch || context.screen.closed() {
                return Ok(());
            }
            tokio::time::sleep(WATCH).await;
        }
    }
}

/// What can be explained.
pub(crate) enum Explainable {
    /// A record.
    Record(ExplainTarget),
    /// A workflow run.
    Run(RunTarget),
}

/// The selected record, its repository, and the operator's settings.
pub(crate) struct ExplainTarget(Selector, Option<Repository>, Policy);

/// Combines a selected record with the operator's settings.
pub(crate) fn target(
    selector: Selector,
    repository: Option<&Repository>,
    config: Option<&PathBuf>,
    environment: &Environment,
    table: &TableName,
) -> CliResult<ExplainTarget> {
    let repository = repository_hint(repository, environment).map_err(CliFailure::usage)?;
    Ok(ExplainTarget(selector, repository, policy(config, table)?))
}

/// Judges all records and returns what concerns a person: planned writes, launches and terminations, and waits. Actions
/// that only read, or repeat a hint, depend on the operator's memory and are left out.
fn judged(items: &[Item], policy: &Policy, now: jiff::Timestamp) -> (Vec<Planned>, Vec<Wait>) {
    let (yard, now, role) = explain::picture(items, now);
    let plans: Vec<(Unit, Plan)> = explain::judge(&yard, policy, now, role);
    let (mut actions, mut waits) = (Vec::new(), Vec::new());
    for (_, plan) in plans {
        actions.extend(plan.actions.into_iter().filter(|action| !action.upkeep));
        waits.extend(plan.waits);
    }
    (actions, waits)
}

/// Returns the classes whose runners are not registered ahead of claims, with the missing conditions; not those
/// configured so on purpose.
fn not_registered_ahead(items: &[Item]) -> Vec<(String, AheadStatus)> {
    let told = |pool: Pool| {
        let on_purpose = pool.spec.ahead_lacks().any(|off| off.is_choice());
        let told = AheadStatus::of_pool(&pool).filter(|told| !told.on && !on_purpose)?;
        Some((pool.spec.resource_class.to_string(), told))
    };
    pools(items).filter_map(told).collect()
}

fn pools(items: &[Item]) -> impl Iterator<Item = Pool> {
    let pools = items.iter().filter(|item| kind_of(item) == Some(Kind::Pool));
    pools.filter_map(|item| match read::<Pool>(item) {
        Reading::Record(pool) => Some(pool),
        Reading::Unreadable(_) | Reading::Newer { .. } => None,
    })
}

/// Returns the classes whose number of idle machines changes in the next hours, and how.
fn hours_ahead(items: &[Item], now: jiff::Timestamp) -> Vec<(String, String)> {
    let told = |pool: Pool| Some((pool.spec.resource_class.to_string(), explain::hours_ahead(&pool, now)?));
    pools(items).filter_map(told).collect()
}

fn action_json(action: &Planned) -> Value {
    let records: Vec<String> = action.slots.iter().map(ToString::to_string).collect();
    json!({"message": action.describe(), "records": records})
}

fn wait_json(wait: &Wait) -> Value {
    json!({"subject": wait.subject.to_string(), "reason": wait.reason.as_str(), "message": wait.message})
}

/// The result of one read.
#[derive(PartialEq, Eq)]
pub(crate) struct Explained {
    pub(crate) record: RecordId,
    pub(crate) lines: Vec<String>,
    /// The scale sets of a class.
    pub(crate) sets: Vec<SetReport>,
}

/// Reads once; returns the explanation and all records except events.
pub(crate) async fn explained(
    context: &CliContext,
    target: &ExplainTarget,
) -> CliResult<(Explained, Vec<Item>)> {
    let ExplainTarget(selector, repository, policy) = target;
    let item = selector.find(context, repository.as_ref()).await?;
    let key = RecordId::of(&item).expect("what was found by its key has one");
    let mut items = context.everything().await?;
    if key.request().is_some() && !items.iter().any(|item| RecordId::of(item).as_ref() == Some(&key)) {
        // It left the table for the history.
        items.push(item);
    }
    let now = context.clock.now();
    let lines = match selector {
        Selector::Request(_) => {
            let (yard, now, role) = explain::picture(&items, now);
            match &key {
                RecordId::Request(id) => explain::explain(&yard, policy, now, role, id),
                // The key is a request's, but does not parse as one.
                _ => vec!["there is no such request".into()],
            }
        }
        Selector::Instance(_) | Selector::Pool(_) | Selector::Launch(_) => about(&items, policy, now, &key),
    };
    let sets = key.pool().map(|class| sets_of(&items, now, class)).unwrap_or_default();
    Ok((Explained { record: key, lines, sets }, items))
}

fn show(context: &mut CliContext, watch: bool, seen: &Explained, again: bool) {
    let mut document = json!({"record": seen.record.to_string(), "lines": seen.lines});
    if !seen.sets.is_empty() {
        document["sets"] = json!(seen.sets);
    }
    if context.screen.format.for_programs() {
        if watch {
            context.screen.next_document(&document);
        } else {
            context.screen.document(&document);
        }
        return;
    }
    if again {
        context.screen.separate();
    }
    for line in &seen.lines {
        context.screen.say(plain(line));
    }
}

/// Returns the name of a record as people write it.
fn named(key: &RecordId) -> String {
    match key {
        RecordId::Request(id) => format!("request {id}"),
        RecordId::Instance(arn) => format!("instance {}", arn.instance_id()),
        RecordId::Agent(arn) => format!("agent {arn}"),
        RecordId::Pool(class) => format!("pool {class}"),
        RecordId::Launch(id) => format!("launch {id}"),
        RecordId::Lease(name) => format!("lease {name}"),
        RecordId::Queue(class, place) => format!("scale set of {class} at {place}"),
        RecordId::Event { .. } | RecordId::Unnamed(..) | RecordId::Foreign(_) => key.to_string(),
    }
}

/// Describes a launch in a sentence; `None` for other items.
fn launch(item: &Item) -> Option<String> {
    let launch = match (kind_of(item), read::<Launch>(item)) {
        (Some(Kind::Launch), Reading::Record(launch)) => launch,
        (_, _) => return None,
    };
    let purpose = match launch.request.as_ref().and_then(RecordId::request) {
        Some(id) => format!("for {id}"),
        None => "to be kept idle".into(),
    };
    let (id, class, count) = (&launch.launch_id, &launch.resource_class, launch.count);
    let told = if launch.message.is_empty() { String::new() } else { format!(": {}", launch.message) };
    Some(format!(
        "launch {id} of {count} of class {class} {purpose}: {} since {}, got {}{told}",
        launch.phase,
        launch.created_at,
        launch.instances.len()
    ))
}

/// Returns the command that examines a record.
fn debug_of(key: &RecordId) -> Option<String> {
    match key {
        RecordId::Instance(arn) => Some(format!("runyard debug instance {}", arn.instance_id())),
        RecordId::Launch(id) => Some(format!("runyard debug launch {id}")),
        RecordId::Pool(class) => Some(format!("runyard debug pool {class}")),
        RecordId::Request(_)
        | RecordId::Agent(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => None,
    }
}

/// Describes the state of a record, the planned actions for it, and what it waits for.
fn about(items: &[Item], policy: &Policy, now: jiff::Timestamp, key: &RecordId) -> Vec<String> {
    let (yard, moment, _) = explain::picture(items, now);
    let mut lines: Vec<String> =
        key.instance().and_then(|arn| explain::machine(&yard, arn)).into_iter().collect();
    lines.extend(key.pool().into_iter().flat_map(|class| explain::pool(&yard, moment, class)));
    lines.extend(items.iter().find(|item| RecordId::of(item).as_ref() == Some(key)).and_then(launch));
    let (actions, waits) = judged(items, policy, now);
    let class = key.pool();
    let concerns = |action: &Planned| {
        action.holds(key)
            || matches!((&action.effect, class), (Effect::Intend(launch, _), Some(class)) if launch.resource_class == *class)
    };
    let next = actions.iter().filter(|action| concerns(action));
    let next = next.map(|action| format!("next: {}", action.describe()));
    let own = waits.iter().filter(|wait| wait.subject == *key);
    let own = own.map(|wait| format!("waits: {}", wait.message));
    // A class without enough machines is reported at the requests that wait for them.
    let of_class = |wait: &&Wait| {
        let request = wait.subject.request().and_then(|id| yard.request(id));
        class.is_some() && request.and_then(Yard::class_of).as_ref() == class
    };
    let others = waits.iter().filter(of_class).take(WAITS_TOLD);
    let others = others.map(|wait| format!("waits: {}: {}", named(&wait.subject), wait.message));
    lines.extend(next.chain(own).chain(others));
    // A record that ended was requested to end or is no longer needed, so it is neither in order nor wrong.
    let over =
        key.instance().and_then(|arn| yard.instance(arn)).is_some_and(|one| !one.instance.state().live());
    if !lines.iter().any(|line| line.starts_with("next:") || line.starts_with("waits:")) {
        let wrong = explain::wrong(&yard, &moment, key);
        let so = if wrong || over { "" } else { "in order: " };
        lines.push(format!("{so}no action needed"));
    }
    if let Some(debug) = debug_of(key).filter(|_| explain::wrong(&yard, &moment, key)) {
        lines.push(format!("`{debug}` looks for the cause"));
    }
    lines
}
