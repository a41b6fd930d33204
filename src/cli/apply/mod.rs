//! How do pools come to be? From a file of specs that is checked whole before anything is written; each is written
//! on the version that was read, and no more of it than a person owns.

mod checks;
mod file;
mod launch;
mod spec;

use std::path::{Path, PathBuf};

use clap::Args;

use super::context::{Context, Deed, number, text};
use super::failure::{Failure, Outcome, Problems};
use super::{configured, init, json};
use crate::config::Config;
use crate::model::{ClassName, FieldError, Guard, Item, Key, Kind, Pool, PoolSpec, TableName, Write, millis};
use crate::ports::{QueueError, StoreError};

pub(crate) use checks::is_type_glob;

/// Creates and changes pools.
#[derive(Debug, Args)]
#[command(after_help = "\
The file is a list of pool specs, or {\"pools\": [...]}; YAML (.yaml, .yml) or JSON (.json), `-` for YAML or JSON on
standard input. What a spec leaves out has its default; an override made with `runyard scale` stays.

Examples:
  runyard apply -f pools.yaml
  runyard apply -f - <<'END'
  pools:
    - resourceClass: linux-x64
      cpu: 4
      mmem: 16384
      desired: 2
      max: 20
      schedules:
        - {cron: '0 8 * * 1-5', timeZone: Europe/Berlin, desired: 10}
        - {cron: '0 19 * * *', timeZone: Europe/Berlin, desired: 0}
  END")]
pub(crate) struct ApplyArgs {
    /// The file of pool specs
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// The operator's configuration: with compute.kind = "ec2" the classes' launch templates are kept, too [default: the
    /// operator keeps them when it launches]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The most characters of the table's name and the class together: both are in the name of the class's queue.
const QUEUE_NAME: usize = 74;

/// Whether the class's queue can have its name.
pub(crate) fn fits_queue_name(table: &TableName, class: &ClassName) -> Result<(), FieldError> {
    if table.as_str().len() + class.as_str().len() <= QUEUE_NAME {
        return Ok(());
    }
    let message =
        format!("is too long beside the table's name {table}: together at most {QUEUE_NAME} characters");
    Err(FieldError::new("resourceClass", class.as_str(), message, "shorten the class or the table's name"))
}

/// What was asked, checked.
pub(crate) struct Asked {
    config: Option<Config>,
    specs: Vec<PoolSpec>,
}

/// What can be refused without the network; a file of specs as a whole where any of it makes no sense.
pub(crate) fn check(args: &ApplyArgs, table: &TableName) -> Outcome<Asked> {
    let config = args.config.as_ref().map(|file| configured::load(table, file)).transpose()?;
    Ok(Asked { config, specs: specs(&args.file, table)? })
}

/// The specs of a file, refused as a whole where any of it makes no sense.
pub(crate) fn specs(file: &Path, table: &TableName) -> Outcome<Vec<PoolSpec>> {
    let mut problems = Problems::default();
    let entries = file::read(file).map_err(Failure::usage)?;
    let specs = spec::all(&entries, table, &mut problems);
    problems.check()?;
    Ok(specs)
}

/// Runs the verb.
pub(crate) async fn run(context: &mut Context, asked: &Asked) -> Outcome {
    // A class exists when its record does, so its launch template comes first, and its queue.
    for line in init::keep_templates(asked.config.as_ref(), &asked.specs).await? {
        context.screen.say(line);
    }
    let mut records = Vec::new();
    for spec in &asked.specs {
        let class = &spec.resource_class;
        if let Some(queue) = &context.queue {
            match queue.ensure(class).await {
                Ok(()) => {}
                // Queues are hints: where there are none, the records alone do.
                Err(QueueError::NoService(why)) => {
                    tracing::warn!(%class, %why, "no queue for the class: no SQS there")
                }
                Err(error) => {
                    let fix = "check the permissions and the endpoint of SQS, then apply again";
                    return Err(Failure::error("queue", class.as_str(), error.to_string(), fix));
                }
            }
        }
        let (done, item) = apply(context, spec).await?;
        context.screen.say(format!("pool {class}: {}", done.said()));
        if let Some(reason) = done.reason() {
            let (key, message) = (Pool::key_of(class), format!("pool {class} {}", done.said()));
            context.note(Deed { key: &key, reason, message, change: None }).await;
        }
        records.push(item);
    }
    context.screen.document(&json::list(&records));
    Ok(())
}

enum Done {
    Created,
    Changed,
    Nothing,
}

impl Done {
    const fn said(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Nothing => "unchanged",
        }
    }

    const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Created => Some("PoolCreated"),
            Self::Changed => Some("PoolChanged"),
            Self::Nothing => None,
        }
    }
}

async fn apply(context: &Context, spec: &PoolSpec) -> Outcome<(Done, Item)> {
    let key = Pool::key_of(&spec.resource_class);
    let attempt = async || -> Result<Outcome<(Done, Item)>, StoreError> {
        let Some(before) = context.store.get(&key).await? else {
            let write = Write::create(key.clone(), born(context, &key, spec));
            return Ok(Ok((Done::Created, context.store.write(&write).await?)));
        };
        let pool: Pool = match super::context::readable(&before) {
            Ok(pool) => pool,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut after = with_spec(&before, spec);
        if after == before {
            return Ok(Ok((Done::Nothing, before)));
        }
        after.insert("version".into(), number(pool.version + 1));
        after.insert("updatedAt".into(), text(millis(context.clock.now())));
        let write = Write::difference(key.clone(), Guard::image(&pool), &before, &after);
        Ok(Ok((Done::Changed, context.store.write(&write).await?)))
    };
    super::polling::again(attempt).await.map_err(|error| context.failed(&error))?
}

fn born(context: &Context, key: &Key, spec: &PoolSpec) -> Item {
    let mut item = spec::attributes_of(spec);
    item.insert("pk".into(), text(&key.pk));
    item.insert("sk".into(), text(&key.sk));
    item.insert("kind".into(), text(Kind::Pool));
    item.insert("uid".into(), text(context.entropy.hex()));
    item.insert("version".into(), number(1u64));
    item.insert("updatedAt".into(), text(millis(context.clock.now())));
    item
}

/// The record with this spec instead of the one it has; what is not the spec's stays as it is.
fn with_spec(before: &Item, spec: &PoolSpec) -> Item {
    let mut after = before.clone();
    after.retain(|name, _| !spec::NAMES.contains(&name.as_str()));
    after.extend(spec::attributes_of(spec));
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AttributeValue;

    fn spec(json: &str) -> PoolSpec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_applied_spec_leaves_the_override_the_status_and_the_unknown_alone() {
        let mut before = spec::attributes_of(&spec(r#"{"resourceClass":"a","max":3,"labels":["x"]}"#));
        for name in ["override", "counts", "fromTheFuture", "version"] {
            before.insert(name.into(), AttributeValue::S("kept".into()));
        }
        let after = with_spec(&before, &spec(r#"{"resourceClass":"a","max":4}"#));
        for name in ["override", "counts", "fromTheFuture", "version"] {
            assert_eq!(after[name], AttributeValue::S("kept".into()));
        }
        assert_eq!(after["max"], AttributeValue::N("4".into()));
        assert!(!after.contains_key("labels"), "what the file no longer says goes");
    }

    #[test]
    fn the_example_is_taken_as_it_is() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/pools.yaml");
        let specs = specs(&file, &TableName::parse("runyard").unwrap()).unwrap();
        let classes: Vec<&str> = specs.iter().map(|spec| spec.resource_class.as_str()).collect();
        assert_eq!(classes, ["linux-x64", "untrusted"]);
        assert_eq!(specs[0].launch, specs[1].launch);
        assert_eq!(specs[1].reuse_within, crate::model::ReuseWithin::Never);
    }

    #[test]
    fn a_class_whose_queue_could_not_be_named_is_refused() {
        let table = TableName::parse(&"t".repeat(40)).unwrap();
        assert!(fits_queue_name(&table, &ClassName::parse(&"c".repeat(34)).unwrap()).is_ok());
        assert!(fits_queue_name(&table, &ClassName::parse(&"c".repeat(35)).unwrap()).is_err());
    }
}
