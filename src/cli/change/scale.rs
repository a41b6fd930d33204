//! `runyard scale`: overrides a pool's numbers for a while. The override is stored beside the spec; `apply` never
//! touches it, and it ends by itself or by `--reset`.

use std::time::Duration;

use clap::{ArgGroup, Args};
use jiff::Timestamp;

use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult};
use crate::input::completion;
use crate::output::json;
use crate::session::context::{AuditEvent, CliContext, number, readable, text};
use crate::session::names;
use crate::session::verb::{Start, Verb};
use runyard_core::model::{
    AttributeValue, ClassName, FieldError, Guard, Item, Pool, PoolOverride, Write, millis,
};
use runyard_core::ports::StoreError;

/// Keeps more or fewer idle machines for a while.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).args(["desired", "reset"]), after_help = "\
Examples:
  runyard scale linux-x64 --desired 10 --for 2h
  runyard scale linux-x64 --reset")]
pub(crate) struct ScaleArgs {
    /// The resource class
    #[arg(value_name = "CLASS", add = completion::classes())]
    class: ClassName,
    /// Number of idle machines to keep, overriding the spec and its schedules
    #[arg(long, value_name = "N", value_parser = machines, allow_negative_numbers = true)]
    desired: Option<u32>,
    /// Duration of the override [default: until --reset]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::hold, conflicts_with = "reset", allow_negative_numbers = true)]
    hold: Option<Duration>,
    /// Remove the override
    #[arg(long)]
    reset: bool,
}

impl Verb for ScaleArgs {
    type Input = ();

    fn check(&self, _start: &Start<'_>) -> CliResult {
        Ok(())
    }

    async fn run(&self, context: &mut CliContext, (): ()) -> CliResult {
        let (before, item) = match write(context, self).await? {
            Written::Pool(before, item) => (before, item),
            Written::NoPool => return Err(names::no_such_pool(context, "CLASS", &self.class).await),
        };
        let pool: Pool = readable(&item)?;
        let said = match &pool.scale {
            Some(scale) => {
                let until = scale.until.map_or_else(|| "until --reset".into(), |at| format!("until {at}"));
                let machines = if scale.desired == 1 { "machine" } else { "machines" };
                format!("keeps {} idle {machines} {until}", scale.desired)
            }
            None => "goes by its spec and schedules again".into(),
        };
        context.screen.say(format!("pool {}: {said}", self.class));
        if let Some(scale) = pool.scale.as_ref().filter(|scale| scale.desired < pool.spec.min) {
            context.screen.say(format!("its min {} is more than {} and holds", pool.spec.min, scale.desired));
        }
        let key = Pool::key_of(&self.class);
        let message = format!("pool {}: {said}", self.class);
        let change = Some((overridden_by(&before), overridden_by(&item)));
        context.record_event(AuditEvent { key: &key, reason: "Scaled", message, change }).await;
        context.screen.document(&json::record(&item));
        Ok(())
    }
}

fn machines(text: &str) -> Result<u32, FieldError> {
    let number = text.parse::<u32>().ok().filter(|n| *n <= 100_000);
    number.ok_or_else(|| {
        let fix = "use 0 to the pool's max";
        FieldError::new("desired", text, "must be a whole number from 0 to 100000", fix)
    })
}

/// Removes a pool's override, if it has one.
pub(crate) async fn reset(context: &mut CliContext, class: &ClassName) -> CliResult {
    let key = Pool::key_of(class);
    let Some(item) = context.item(&key).await? else { return Ok(()) };
    if readable::<Pool>(&item)?.scale.is_none() {
        return Ok(());
    }
    let args = ScaleArgs { class: class.clone(), desired: None, hold: None, reset: true };
    write(context, &args).await.map(drop)
}

/// The result of the write.
enum Written {
    /// The record before and after.
    Pool(Item, Item),
    /// The class does not exist.
    NoPool,
}

async fn write(context: &CliContext, args: &ScaleArgs) -> CliResult<Written> {
    let key = Pool::key_of(&args.class);
    let attempt = async || -> Result<CliResult<Written>, StoreError> {
        let Some(before) = context.store.get(&key).await? else { return Ok(Ok(Written::NoPool)) };
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
            return Ok(Ok(Written::Pool(before.clone(), before)));
        }
        let after = overridden(&before, scale.as_ref(), pool.version, now);
        let write = Write::difference(key.clone(), Guard::image(&pool), &before, &after);
        let after = context.store.write(&write).await?;
        Ok(Ok(Written::Pool(before, after)))
    };
    crate::session::polling::again(attempt).await.map_err(|error| context.failed(&error))?
}

/// Returns the record with this override, or without one.
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

/// Describes the override of a record for its event.
fn overridden_by(item: &Item) -> String {
    let scale = readable::<Pool>(item).ok().and_then(|pool| pool.scale);
    scale.map_or_else(|| "no override".into(), |scale| format!("desired {}", scale.desired))
}

fn too_many(desired: u32, pool: &Pool) -> CliFailure {
    let class = &pool.spec.resource_class;
    let fix =
        format!("use 0 to {}, or raise max with `runyard set pool {class} max={desired}`", pool.spec.max);
    CliFailure::error(
        "--desired",
        desired.to_string(),
        format!("is more than the pool's max {}", pool.spec.max),
        fix,
    )
}
