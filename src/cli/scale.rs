//! How does a person overrule a pool's numbers for a while? By an override beside the spec, which `apply` never
//! touches and which ends by itself or by `--reset`.

use std::time::Duration;

use clap::{ArgGroup, Args};
use jiff::Timestamp;

use super::context::{Context, Deed, number, readable, text};
use super::failure::{Failure, Outcome};
use super::{duration, json};
use crate::model::{AttributeValue, ClassName, FieldError, Guard, Item, Pool, PoolOverride, Write, millis};
use crate::ports::StoreError;

/// Keeps more or fewer idle machines for a while.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).args(["desired", "reset"]), after_help = "\
Examples:
  runyard scale linux-x64 --desired 10 --for 2h
  runyard scale linux-x64 --reset")]
pub(crate) struct ScaleArgs {
    /// The resource class
    #[arg(value_name = "CLASS")]
    class: ClassName,
    /// Idle machines kept from now on, whatever the spec and its schedules say
    #[arg(long, value_name = "N", value_parser = machines, allow_negative_numbers = true)]
    desired: Option<u32>,
    /// For how long [default: until --reset]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::hold, conflicts_with = "reset", allow_negative_numbers = true)]
    hold: Option<Duration>,
    /// Go back to the spec and its schedules
    #[arg(long)]
    reset: bool,
}

fn machines(text: &str) -> Result<u32, FieldError> {
    let number = text.parse::<u32>().ok().filter(|n| *n <= 100_000);
    number.ok_or_else(|| {
        let fix = "use 0 to the pool's max";
        FieldError::new("desired", text, "must be a whole number from 0 to 100000", fix)
    })
}

/// Runs the verb.
pub(crate) async fn run(context: &mut Context, args: &ScaleArgs) -> Outcome {
    let item = write(context, args).await?;
    let pool: Pool = readable(&item)?;
    let said = match &pool.scale {
        Some(scale) => {
            let until = scale.until.map_or_else(|| "until --reset".into(), |at| format!("until {at}"));
            format!("keeps {} idle machines {until}", scale.desired)
        }
        None => "goes by its spec and schedules again".into(),
    };
    context.screen.say(format!("pool {}: {said}", args.class));
    if let Some(scale) = pool.scale.as_ref().filter(|scale| scale.desired < pool.spec.min) {
        context.screen.say(format!("its min {} is more than {} and holds", pool.spec.min, scale.desired));
    }
    let key = Pool::key_of(&args.class);
    let message = format!("pool {}: {said}", args.class);
    context.note(Deed { key: &key, reason: "Scaled", message, change: None }).await;
    context.screen.document(&json::record(&item));
    Ok(())
}

async fn write(context: &Context, args: &ScaleArgs) -> Outcome<Item> {
    let key = Pool::key_of(&args.class);
    let attempt = async || -> Result<Outcome<Item>, StoreError> {
        let Some(before) = context.store.get(&key).await? else { return Ok(Err(missing(&args.class))) };
        let pool: Pool = match readable(&before) {
            Ok(pool) => pool,
            Err(failure) => return Ok(Err(failure)),
        };
        let now = millis(context.clock.now());
        let scale = args.desired.map(|desired| PoolOverride {
            desired,
            until: args.hold.and_then(|hold| now.checked_add(hold).ok()).map(millis),
            by: context.environment.actor(),
            at: now,
        });
        if let Some(scale) = scale.as_ref().filter(|scale| scale.desired > pool.spec.max) {
            return Ok(Err(too_many(scale.desired, &pool)));
        }
        if scale.is_none() && pool.scale.is_none() {
            return Ok(Ok(before));
        }
        let after = overridden(&before, scale.as_ref(), pool.version, now);
        let write = Write::difference(key.clone(), Guard::image(&pool), &before, &after);
        context.store.write(&write).await.map(Ok)
    };
    super::polling::again(attempt).await.map_err(|error| context.failed(&error))?
}

/// The record with this override, or without any.
fn overridden(before: &Item, scale: Option<&PoolOverride>, version: u64, now: Timestamp) -> Item {
    let mut after = before.clone();
    after.remove("override");
    if let Some(scale) = scale {
        let value: AttributeValue = serde_dynamo::to_attribute_value(scale)
            .expect("an override has only types that DynamoDB can hold");
        after.insert("override".into(), value);
    }
    after.insert("version".into(), number(version + 1));
    after.insert("updatedAt".into(), text(now));
    after
}

fn missing(class: &ClassName) -> Failure {
    let fix = "see `runyard get pools`; `runyard apply -f FILE` creates one";
    Failure::error("CLASS", class.as_str(), "there is no such pool", fix)
}

fn too_many(desired: u32, pool: &Pool) -> Failure {
    let fix = format!("use 0 to {}, or raise max with `runyard apply`", pool.spec.max);
    Failure::error(
        "--desired",
        desired.to_string(),
        format!("is more than the pool's max {}", pool.spec.max),
        fix,
    )
}
