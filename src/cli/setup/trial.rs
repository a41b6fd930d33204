//! `runyard try`: takes one machine of a class through its whole life, as a workflow would, and prints how long each
//! step took. It writes an ordinary request, shows the machine's console while it boots, waits until its runner
//! listens, releases it and ends it. Nothing remains afterwards, whatever the result.

mod consoles;
mod ending;
mod steps;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::Instant;

use self::consoles::Consoles;
use self::steps::{Step, Steps};
use crate::common::duration;
use crate::common::failure::{Caught, CliFailure, CliResult, Exit};
use crate::input::run::{in_field, repository_of};
use crate::input::{completion, usage};
use crate::output::format::plain;
use crate::session::context::{CliContext, readable};
use crate::session::names;
use crate::session::polling::{Interrupts, Waited, until};
use crate::session::verb::Start;
use crate::workflow::provision;
use crate::workflow::provision::ProvisionArgs;
use runyard_core::ledger;
use runyard_core::ledger::{Money, Price, Prices};
use runyard_core::model::{
    Agent, ClassName, Instance, InstanceFacts, InstanceId, Item, Kind, Phase, Pool, Record as _, RecordId,
    Repository, Request, RequestKey, RequestName, RunId, UsageClass,
};

/// Takes one machine of a class through its life.
#[derive(Debug, Args)]
#[command(after_help = "\
What it does: it asks for one machine in the name of a run of --repository that does not exist, waits until the \
machine's runner is registered and listens, gives it back and ends it. No job runs on it: its label is nobody's.
Ctrl-C takes everything back. A free machine of the pool is taken first, as for any request: then nothing boots.

Examples:
  runyard try linux-x64 --repository acme/web --config runyard.toml
  runyard try small --repository demo/app          # beside `runyard up`")]
pub(crate) struct TryArgs {
    /// Resource class; see `runyard get pools`
    #[arg(value_name = "POOL", add = completion::classes())]
    pool: ClassName,
    /// Repository to register the runner for [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github)]
    repository: Option<Repository>,
    /// Usage class: spot or on-demand
    #[arg(long, value_name = "CLASS", value_parser = usage::one_of::<UsageClass>(UsageClass::ALL, UsageClass::as_str))]
    usage_class: Option<UsageClass>,
    /// How long the machine may take until its runner listens
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration::wait, allow_negative_numbers = true)]
    timeout: Duration,
    /// Operator configuration: also print the EC2 console [default: steps only, and with `runyard up` the agent's log]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How much longer than the request the command waits, so that the operator's result comes first.
const LONGER: Duration = Duration::from_secs(30);
/// The longest runtime of the machine, in case nothing releases it.
const LENT: Duration = Duration::from_secs(300);

/// The checked arguments.
pub(crate) struct Asked {
    repository: Repository,
    consoles: Consoles,
    prices: Prices,
}

/// Checks the arguments.
pub(crate) async fn check(args: &TryArgs, start: &Start<'_>) -> CliResult<Asked> {
    let Start { environment, table } = *start;
    let repository = repository_of(args.repository.as_ref(), environment).map_err(CliFailure::usage)?;
    in_field("POOL", crate::pools::queue_name::fits_queue_name(table, &args.pool))
        .map_err(CliFailure::usage)?;
    let consoles = Consoles::of(args.config.as_deref(), environment, table).await?;
    let config =
        args.config.as_deref().map(|file| crate::session::configured::load(table, file)).transpose()?;
    let prices = config.map_or_else(runyard_operator::prices::shipped, |config| config.prices);
    Ok(Asked { repository, consoles, prices })
}

/// Runs the verb.
pub(crate) async fn run(context: &mut CliContext, args: &TryArgs, asked: &Asked) -> CliResult {
    let Some(pool) = context.item(&Pool::key_of(&args.pool)).await? else {
        return Err(names::no_such_pool(context, "POOL", &args.pool).await);
    };
    let pool: Pool = readable(&pool)?;
    if pool.spec.paused {
        let fix = format!("`runyard set pool {} paused=false` first", args.pool);
        return Err(CliFailure::error("POOL", args.pool.to_string(), "is paused: nothing is launched", fix));
    }
    let mut interrupts = Interrupts::listen()?;
    let id = key(context, &asked.repository);
    let wanted = ProvisionArgs::trial(&id, &args.pool, args.usage_class, args.timeout, LENT);
    let item = provision::submit(context, &wanted, &id).await?;
    let request: Request = readable(&item)?;
    context.screen.say(format!("asked for one machine of class {} as request {}", args.pool, request.id));
    let mut trial =
        Trial { key: request.key(), begun: Instant::now(), steps: Steps::default(), machine: None };
    let waited = trial.watch(context, asked, args.timeout + LONGER, &mut interrupts).await;
    // From here on everything is released, whatever the result.
    let listens = matches!(&waited, Ok(Waited::Done(request)) if request.phase() == Phase::Ready);
    if !listens {
        let tail = trial.console_tail(&asked.consoles).await;
        tail.iter().for_each(|line| context.screen.say(format!("console: {line}")));
    }
    trial.steps.reached(Step::GivenBack, trial.begun.elapsed());
    let left = ending::end(context, &mut trial, &mut interrupts).await;
    show(context, &trial, listens, &asked.prices);
    let (after, id) = (described(&left), request.id.to_string());
    match waited {
        Err(failure) => Err(failure),
        Ok(_) if !left.is_empty() => {
            let fix =
                "see `runyard get instances`, and end what is left with `runyard expire INSTANCE --now`";
            Err(CliFailure::error("try", id, after, fix))
        }
        Ok(Waited::Done(_)) if listens => Ok(()),
        Ok(Waited::Done(request)) => {
            let message = format!("failed: {}; {after}", plain(&request.status.message));
            let fix = format!(
                "see the console above, `runyard events pool {}`, and `runyard doctor --config FILE --preflight`",
                args.pool
            );
            Err(CliFailure::error("try", id, message, fix).exiting(Exit::RequestFailed))
        }
        Ok(Waited::TimedOut) => {
            let message =
                format!("no operator served it within {}; {after}", duration::show(args.timeout + LONGER));
            let fix = "check that an operator runs: `runyard doctor`";
            Err(CliFailure::error("try", id, message, fix).exiting(Exit::TimedOut))
        }
        Ok(Waited::Interrupted(caught)) => Err(interrupted(caught, id, &after)),
    }
}

fn interrupted(caught: Caught, id: String, after: &str) -> CliFailure {
    let message = format!("was interrupted by {}; {after}", caught.name());
    CliFailure::error("try", id, message, "run the command again").exiting(Exit::Signal(caught))
}

fn described(left: &[String]) -> String {
    if left.is_empty() { "nothing of it is left".into() } else { format!("left: {}", left.join(", ")) }
}

/// Returns the key of a request that no job of any run matches: today's microseconds are larger than GitHub's run ids,
/// and the label contains the name.
fn key(context: &CliContext, repository: &Repository) -> RequestKey {
    let number = context.clock.now().as_microsecond();
    RequestKey {
        repository: repository.folded(),
        run_id: RunId::parse(&number.to_string()).expect("digits are fit for a run's id"),
        name: RequestName::parse("try").expect("a valid name"),
        attempt: 1,
    }
}

/// The progress of one machine.
struct Trial {
    key: RecordId,
    begun: Instant,
    steps: Steps,
    machine: Option<Instance>,
}

impl Trial {
    /// Follows the request until its machine listens or it is over, and shows the console meanwhile.
    async fn watch(
        &mut self,
        context: &mut CliContext,
        asked: &Asked,
        limit: Duration,
        interrupts: &mut Interrupts,
    ) -> CliResult<Waited<Request>> {
        let mut shown = consoles::Shown::default();
        until(limit, interrupts, async || {
            let Some(item) = context.item(&self.key).await? else {
                return Err(CliFailure::error(
                    "request",
                    self.key.to_string(),
                    "its record was deleted",
                    "run it again",
                ));
            };
            let request: Request = readable(&item)?;
            self.look(context, &request).await?;
            for line in self.steps.news() {
                context.screen.say(line);
            }
            let over = request.is_released() || request.phase().is_final() || request.phase() == Phase::Ready;
            if let Some(machine) = &self.machine {
                shown.since = request.status.accepted_at.filter(|_| self.steps.warm());
                for line in shown.news(&asked.consoles, &machine.facts.instance_id, over).await {
                    context.screen.say(format!("console: {line}"));
                }
            }
            Ok(over.then_some(request))
        })
        .await
    }

    /// Records the progress of the request and its machine.
    async fn look(&mut self, context: &CliContext, request: &Request) -> CliResult {
        let now = self.begun.elapsed();
        if request.status.accepted_at.is_some() {
            self.steps.reached(Step::Accepted, now);
        }
        if self.machine.is_none()
            && let Some(id) = request.status.instances.first()
        {
            self.machine = machine(context, id).await?;
        }
        let Some(machine) = &self.machine else { return Ok(()) };
        self.steps.launched(machine, request.status.accepted_at, now);
        let agent = context.item(&Agent::key_of(&machine.facts.instance_arn)).await?;
        let agent: Option<Agent> = agent.as_ref().map(readable).transpose()?;
        if agent.as_ref().is_some_and(|agent| agent.heartbeat_seq > 0) {
            self.steps.reached(Step::AgentSpeaks, now);
        }
        if agent.as_ref().is_some_and(|agent| agent.signal.is_some()) {
            self.steps.reached(Step::Booted, now);
        }
        if request.phase() == Phase::Ready {
            self.steps.reached(Step::Booted, now);
            self.steps.reached(Step::Listens, now);
        }
        Ok(())
    }

    /// Returns the end of the console of a machine whose runner did not listen.
    async fn console_tail(&self, consoles: &Consoles) -> Vec<String> {
        const LINES: usize = 20;
        let Some(machine) = &self.machine else { return Vec::new() };
        let all = consoles.lines(&machine.facts.instance_id, true).await;
        all[all.len().saturating_sub(LINES)..].to_vec()
    }
}

/// Finds a machine by its id, which is only a part of its record's key.
async fn machine(context: &CliContext, id: &InstanceId) -> CliResult<Option<Instance>> {
    let named = |item: &Item| {
        runyard_core::model::kind_of(item) == Some(Kind::Instance)
            && RecordId::of(item).is_some_and(|key| key.machine() == Some(id.as_str()))
    };
    context.all_that(named).await?.first().map(readable).transpose()
}

fn show(context: &mut CliContext, trial: &Trial, listens: bool, prices: &Prices) {
    let rows = trial.steps.table();
    let machine = trial.machine.as_ref().map(|machine| &machine.facts);
    let document = json!({
        "request": trial.key.to_string(),
        "instance": machine.map(|facts| facts.instance_id.to_string()),
        "instanceType": machine.map(|facts| facts.instance_type.clone()),
        "listens": listens,
        "steps": rows.iter().map(|(step, at)| json!({"step": step.as_str(), "seconds": at.as_secs_f64()})).collect::<Vec<_>>(),
    });
    context.screen.document(&document);
    for (step, at) in &rows {
        context.screen.say(format!("{:>8.1}s  {}", at.as_secs_f64(), step.said()));
    }
    let cost = machine.and_then(|facts| cost(facts, trial.steps.lived().as_secs(), prices));
    cost.into_iter().for_each(|line| context.screen.say(line));
}

/// Describes the cost of a machine with this lifetime, at list price; `None` for a machine of local mode.
fn cost(facts: &InstanceFacts, lived: u64, prices: &Prices) -> Option<String> {
    let (kind, zone, usage) = (&facts.instance_type, &facts.availability_zone, facts.usage_class);
    let name: &str = if kind.is_empty() { "the machine" } else { kind };
    let there = format!("{name} was there for {}, {usage}", duration::show(Duration::from_secs(lived)));
    match prices.hour(facts.resource_class.as_str(), kind, zone, usage) {
        Ok(hour) => {
            let billed = lived.max(ledger::MINIMUM_SECONDS.unsigned_abs());
            let price = Price::of_nanos(u64::try_from(hour.nanos()).unwrap_or_default());
            Some(format!("cost: {} at list price; {there}", Money::hourly(price, billed)))
        }
        Err(unpriced) if unpriced.region.is_empty() => None,
        Err(unpriced) => Some(format!(
            "cost: not known, there is no price of {:?} in {:?} (docs/costs.md); {there}",
            unpriced.instance_type, unpriced.region
        )),
    }
}
