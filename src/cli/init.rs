//! Is there a place for the records, and what its classes need? Creates the table, the queues and, with the operator's
//! configuration, the launch templates of its classes where they are missing; refuses a table of another shape and a
//! launch template that is not ours without touching them.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::context::Context;
use super::failure::{Failure, Outcome};
use super::subject::kind_of;
use crate::aws::SqsNotices;
use crate::config::{self, ComputeKind, Config};
use crate::model::{Kind, Pool, PoolSpec, Reading, ReuseWithin, read};
use crate::ports::QueueError;
use crate::store::{Difference, DynamoStore, TableState};

#[cfg(feature = "ec2")]
mod templates;

/// Creates or checks the table, the queues and the launch templates.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard init --dry-run
  runyard init --config /etc/runyard/runyard.toml
  runyard init --table ci-runners")]
pub(crate) struct InitArgs {
    /// Say what is missing and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The operator's configuration: with compute.kind = "ec2" launch templates are kept equal to their classes, and
    /// the queue of interruptions is looked for [default: neither]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the verb.
pub(crate) async fn run(context: &mut Context, args: &InitArgs, store: &DynamoStore) -> Outcome {
    let state = store.check_table().await.map_err(|error| context.failed(&error))?;
    let mut done = Vec::new();
    match (&state, args.dry_run) {
        (TableState::Missing, true) => done.push(step("table", context.table.as_str(), "would be created")),
        (TableState::Missing, false) => {
            create(context, store).await?;
            done.push(step("table", context.table.as_str(), "created"));
        }
        (TableState::Present(differences), _) if differences.is_empty() => {
            done.push(step("table", context.table.as_str(), "as it should be"));
        }
        (TableState::Present(differences), _) => return Err(another_shape(context, differences)),
    }
    let config = args.config.as_deref().map(|file| configuration(context, file)).transpose()?;
    let specs = if state == TableState::Missing { Vec::new() } else { specs(context).await? };
    done.extend(queues(context, &specs, args.dry_run).await?);
    if let Some(config) = &config {
        done.extend(outside(config, &specs, args.dry_run).await?);
    }
    if !specs.is_empty() && specs.iter().all(|spec| spec.reuse_within != ReuseWithin::Never) {
        let warning = "none of them has reuseWithin: none, which runs of forks and of code you do not trust should ask for";
        done.push(step("classes", &specs.len().to_string(), warning));
    }
    for [what, name, state] in &done {
        context.screen.say(format!("{what} {name}: {state}"));
    }
    let items: Vec<_> =
        done.iter().map(|[what, name, state]| json!({"what": what, "name": name, "state": state})).collect();
    context.screen.document(&json!({"items": items}));
    Ok(())
}

fn step(what: &str, name: &str, state: &str) -> [String; 3] {
    [what, name, state].map(str::to_owned)
}

/// Creates the table, or finds that somebody else did so at this moment.
async fn create(context: &Context, store: &DynamoStore) -> Outcome {
    let Err(error) = store.create_table().await else { return Ok(()) };
    match store.check_table().await {
        Ok(TableState::Present(differences)) if differences.is_empty() => Ok(()),
        Ok(_) | Err(_) => Err(context.failed(&error)),
    }
}

fn another_shape(context: &Context, differences: &[Difference]) -> Failure {
    let all: Vec<String> = differences.iter().map(ToString::to_string).collect();
    Failure::error(
        "table",
        context.table.as_str(),
        format!("exists with another shape; nothing was changed: {}", all.join("; ")),
        "use another --table, or mend what is said",
    )
}

/// The operator's configuration, for the table that was named to us.
fn configuration(context: &Context, file: &std::path::Path) -> Outcome<Config> {
    let given = config::environment().filter(|(name, _)| name != "RUNYARD_TABLE");
    let given = given.chain([("RUNYARD_TABLE".to_owned(), context.table.to_string())]);
    Config::load(Some(file), given).map_err(|errors| Failure::all_usage(errors.problems().to_vec()))
}

/// The queue of every class there is.
async fn queues(context: &Context, specs: &[PoolSpec], dry_run: bool) -> Outcome<Vec<[String; 3]>> {
    let Some(queue) = &context.queue else { return Ok(Vec::new()) };
    let mut done = Vec::new();
    for spec in specs {
        let class = &spec.resource_class;
        let name = format!("{}-{class}", context.table);
        let found = if dry_run { queue.depth(class).await.map(|_| ()) } else { queue.ensure(class).await };
        match found {
            Ok(()) => done.push(step("queue", &name, "as it should be")),
            Err(QueueError::Missing) if dry_run => done.push(step("queue", &name, "would be created")),
            Err(QueueError::NoService(_)) => {
                done.push(step("queue", &name, "none: this endpoint has no SQS"))
            }
            Err(error) => {
                let fix = "check the permissions and the endpoint of SQS, then run init again";
                return Err(Failure::error("queue", &name, error.to_string(), fix));
            }
        }
    }
    Ok(done)
}

/// What the operator's configuration names beyond the table: the queue of interruptions, and EC2's launch templates.
async fn outside(config: &Config, specs: &[PoolSpec], dry_run: bool) -> Outcome<Vec<[String; 3]>> {
    let mut done = Vec::new();
    let sdk = aws_config::defaults(aws_config::BehaviorVersion::latest()).load().await;
    if let Some(name) = &config.interruptions {
        let state = match SqsNotices::connect(name, &sdk).found().await {
            Ok(()) => "there",
            Err(QueueError::Missing) => {
                "missing: config/cloudformation.yaml makes it and the rules that feed it"
            }
            Err(error) => {
                let fix = "check the permissions and the endpoint of SQS, then run init again";
                return Err(Failure::error("interruptions.queue", name, error.to_string(), fix));
            }
        };
        done.push(step("queue", name, state));
    }
    match config.compute {
        #[cfg(feature = "ec2")]
        ComputeKind::Ec2 => done.extend(templates::all(config, &sdk, specs, dry_run).await?),
        #[cfg(not(feature = "ec2"))]
        ComputeKind::Ec2 => {
            let _ = (specs, dry_run);
        }
        ComputeKind::Local | ComputeKind::None => {}
    }
    Ok(done)
}

/// What every class of the table is to be.
async fn specs(context: &Context) -> Outcome<Vec<PoolSpec>> {
    let items = context.everything().await?;
    let pools = items.iter().filter(|item| kind_of(item) == Some(Kind::Pool));
    Ok(pools
        .filter_map(|item| match read::<Pool>(item) {
            Reading::Record(pool) => Some(pool.spec),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        })
        .collect())
}
