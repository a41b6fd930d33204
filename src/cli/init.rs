//! Is there a place for the records? Creates the table and the queues of its classes where they are missing, and
//! refuses a table of another shape without touching it.

use clap::Args;
use serde_json::json;

use super::context::Context;
use super::failure::{Failure, Outcome};
use super::subject::kind_of;
use crate::model::{ClassName, Kind, Pool, Reading, read};
use crate::ports::QueueError;
use crate::store::{Difference, DynamoStore, TableState};

/// Creates or checks the table and the queues.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard init --dry-run
  runyard init --table ci-runners")]
pub(crate) struct InitArgs {
    /// Say what is missing and change nothing
    #[arg(long)]
    dry_run: bool,
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
    if state != TableState::Missing {
        done.extend(queues(context, args.dry_run).await?);
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

/// The queue of every class there is.
async fn queues(context: &Context, dry_run: bool) -> Outcome<Vec<[String; 3]>> {
    let Some(queue) = &context.queue else { return Ok(Vec::new()) };
    let mut done = Vec::new();
    for class in classes(context).await? {
        let name = format!("{}-{class}", context.table);
        if dry_run {
            done.push(step("queue", &name, "would be created or checked"));
            continue;
        }
        match queue.ensure(&class).await {
            Ok(()) => done.push(step("queue", &name, "as it should be")),
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

async fn classes(context: &Context) -> Outcome<Vec<ClassName>> {
    let items = context.everything().await?;
    let pools = items.iter().filter(|item| kind_of(item) == Some(Kind::Pool));
    Ok(pools
        .filter_map(|item| match read::<Pool>(item) {
            Reading::Record(pool) => Some(pool.spec.resource_class),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        })
        .collect())
}
