//! `runyard init`: creates the table, the queues of the classes and their launch templates where they are missing, adds
//! missing settings, and refuses a table of another shape before it changes anything.

mod queues;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::common::failure::{CliFailure, CliResult};
use crate::pools;
use crate::session::context::CliContext;
use crate::session::setup_step::{SetupStep, State};
use crate::session::stack::StackArgs;
use crate::session::verb::Start;
use crate::session::{configured, connect, launch_templates};
use runyard_core::model::kind_of;
use runyard_core::model::{ANNOUNCED, ClassName, Item, Kind, Pool, PoolSpec, Reading, ReuseWithin, read};
use runyard_operator::aws::queues::{Queues, WantedQueue};
use runyard_operator::config::Config;
use runyard_store::{Difference, DynamoStore, TableState};

/// Makes, mends or checks what a yard stands on.
#[derive(Debug, Args)]
#[command(after_help = "\
Classes are those of the table's pool records and those of --file, which win. With --config and compute.kind = \"ec2\" \
each class's launch template is made too, and the queue that interruptions.queue names. Run again it changes nothing.

Examples:
  runyard init --dry-run
  runyard init --table ci-runners
  runyard init --config /etc/runyard/runyard.toml -f pools.yaml --dry-run
  runyard init --stack runyard -f pools.yaml")]
pub(crate) struct InitArgs {
    /// Print what would be created or changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Operator configuration: also create launch templates and the interruption queue [default: table and pool queues
    /// only]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File of pool specs, for classes without a record yet
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) stack: StackArgs,
}

/// The checked arguments.
pub(crate) struct InitInput {
    dry_run: bool,
    config: Option<Config>,
    pools: Vec<PoolSpec>,
}

/// Checks all that can be checked without the network.
pub(crate) fn check(args: &InitArgs, start: &Start<'_>) -> CliResult<InitInput> {
    let table = start.table;
    let config = args.config.as_ref().map(|file| configured::load(table, file)).transpose()?;
    let pools = args
        .file
        .as_ref()
        .map(|file| pools::specs(file, &args.stack.of_yard(start.environment), table))
        .transpose()?;
    let pools = pools.unwrap_or_default();
    Ok(InitInput { dry_run: args.dry_run, config, pools })
}

/// Runs the verb.
pub(crate) async fn run(context: &mut CliContext, input: &InitInput, store: &DynamoStore) -> CliResult {
    let dry = input.dry_run;
    let before = store.check_table().await.map_err(|error| context.failed(&error))?;
    let mut done = vec![table(context, store, context.table.as_str(), &before, dry).await?];
    if let (Some(history), Some(name)) = (store.history(), context.table.history()) {
        let before = history.check_table().await.map_err(|error| context.failed(&error))?;
        done.push(table(context, &history, name.as_str(), &before, dry).await?);
    }
    let there = before != TableState::Missing || !dry;
    let pools = classes(context, input, there).await?;
    let queues = match connect::queues(&context.environment).await {
        Some(queues) => queues_of(context, input, &pools, &queues).await?,
        None => Vec::new(),
    };
    done.extend(queues);
    done.extend(launch_templates::all(&context.environment, input.config.as_ref(), &pools, dry).await?);
    for line in done.iter().flat_map(|step| step.lines(dry)) {
        context.screen.say(line);
    }
    let items: Vec<_> = done.iter().map(|step| step.document(dry)).collect();
    context.screen.document(&json!({"items": items}));
    advise(&pools);
    Ok(())
}

/// Creates or corrects the table, or refuses it.
async fn table(
    context: &CliContext,
    store: &DynamoStore,
    name: &str,
    before: &TableState,
    dry: bool,
) -> CliResult<SetupStep> {
    let state = match before {
        TableState::Missing => {
            if !dry {
                create(context, store).await?;
            }
            State::Made(Vec::new())
        }
        TableState::Present(differences) if differences.is_empty() => State::Good,
        TableState::Present(differences) if differences.iter().all(Difference::mendable) => {
            if !dry {
                store.mend_table(differences).await.map_err(|error| context.failed(&error))?;
            }
            State::Mended(differences.clone())
        }
        TableState::Present(differences) => return Err(another_shape(name, differences)),
    };
    Ok(SetupStep::new("table", name, state))
}

/// Creates the table; another process may create it at the same moment.
async fn create(context: &CliContext, store: &DynamoStore) -> CliResult {
    let Err(error) = store.create_table().await else { return Ok(()) };
    match store.check_table().await {
        Ok(TableState::Present(differences)) if differences.is_empty() => Ok(()),
        Ok(_) | Err(_) => Err(context.failed(&error)),
    }
}

fn another_shape(table: &str, differences: &[Difference]) -> CliFailure {
    let all: Vec<String> = differences.iter().map(ToString::to_string).collect();
    CliFailure::error(
        "table",
        table,
        format!("exists with another shape; nothing was changed: {}", all.join("; ")),
        "use another --table, or mend what is said",
    )
}

/// Returns the recorded classes and those of the file, by name and without duplicates.
async fn classes(context: &CliContext, input: &InitInput, there: bool) -> CliResult<Vec<PoolSpec>> {
    let pool = |item: &Item| kind_of(item) == Some(Kind::Pool);
    let items = if there { context.all_that(pool).await? } else { Vec::new() };
    let recorded = items.iter().filter_map(|item| match read::<Pool>(item) {
        Reading::Record(pool) => Some(pool.spec),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    });
    let named = |spec: PoolSpec| (spec.resource_class.clone(), spec);
    let all: BTreeMap<ClassName, PoolSpec> = recorded.chain(input.pools.iter().cloned()).map(named).collect();
    Ok(all.into_values().collect())
}

async fn queues_of(
    context: &CliContext,
    input: &InitInput,
    pools: &[PoolSpec],
    queues: &Queues,
) -> CliResult<Vec<SetupStep>> {
    let classes = pools.iter().map(|spec| &spec.resource_class);
    let announced = input.config.as_ref().map_or(ANNOUNCED, |config| config.timing.announced());
    let mut wanted: Vec<WantedQueue> =
        classes.flat_map(|class| WantedQueue::of_class(&context.table, class, announced)).collect();
    wanted.push(WantedQueue::of_doorbell(&context.table));
    wanted.push(WantedQueue::of_jobs(&context.table));
    if let Some(name) = input.config.as_ref().and_then(|config| config.interruptions.as_ref()) {
        wanted.extend(WantedQueue::of_interruptions(name));
    }
    queues::all(queues, &wanted, input.dry_run).await
}

/// Warns if every class reuses machines: runs of untrusted people need machines that are not used after them.
fn advise(pools: &[PoolSpec]) {
    if !pools.is_empty() && pools.iter().all(|spec| spec.reuse_within != ReuseWithin::Never) {
        tracing::warn!(
            "no class has reuseWithin: none; runs of forks and of people you do not trust need one (docs/security.md)"
        );
    }
}
