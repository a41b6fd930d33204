//! `runyard hold` and `runyard release-hold`: keep a machine for a person to look at, and end it afterwards. Only `hold`
//! is written; the operator takes the machine from its request, the pool or its failure, and never lends it again.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};

use super::expire;
use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::input::completion;
use crate::input::selector::{Noun, Selector};
use crate::output::json;
use crate::output::table::state;
use crate::session::context::{AuditEvent, CliContext, attributes, one_more, readable, text};
use crate::session::verb::{Start, Verb};
use runyard_core::model::{
    AttributeValue, Guard, Instance, Item, MAX_HOLD_SECONDS, Place, Pool, Record, RecordId, Write, millis,
};
use runyard_core::ports::StoreError;

/// Keeps a machine for a person.
#[derive(Debug, Args)]
#[command(after_help = "\
A machine with a run serves it to the end. Then it is given back, but neither cleaned nor pooled, and it serves nobody \
again: it ends when the hold is over, also where its first boot, its registration or its clean-up failed. It counts \
towards `max` until then. The class says how long a hold may be (maxHoldSeconds of its pool, 4 hours where it does not \
say); a second `hold` makes it longer or shorter.

Examples:
  runyard hold i-0123456789abcdef0 --for 1h
  runyard ssh i-0123456789abcdef0
  runyard release-hold i-0123456789abcdef0")]
pub(crate) struct HoldArgs {
    /// Instance ID
    #[arg(value_name = "INSTANCE", add = completion::machines_or_classes())]
    name: String,
    /// Duration of the hold
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = duration::hold)]
    length: Duration,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Verb for HoldArgs {
    type Input = Selector;

    fn check(&self, _start: &Start<'_>) -> CliResult<Self::Input> {
        selector(&self.name)
    }

    async fn run(&self, context: &mut CliContext, machine: Self::Input) -> CliResult {
        let machine = &machine;
        let item = machine.find_whole(context, None).await?;
        let instance: Instance = readable(&item)?;
        let most = longest(context, &instance).await?;
        let asked = self.length.as_secs();
        if asked > most {
            let (class, id) = (&instance.facts.resource_class, duration::show(self.length));
            let message = match most {
                0 => format!("class {class} lets nobody hold a machine"),
                most => format!(
                    "class {class} lets a machine be held for {} at most",
                    duration::show(Duration::from_secs(most))
                ),
            };
            let fix = format!("ask for less, or `runyard set pool {class} maxHoldSeconds={asked}`");
            return Err(CliFailure::error("--for", id, message, fix));
        }
        let by = context.environment.actor();
        let length = SignedDuration::from_secs(i64::try_from(asked).unwrap_or(i64::MAX));
        let outcome = |instance: &Instance, now: Timestamp| {
            let until = now.saturating_add(length).unwrap_or(Timestamp::MAX);
            if instance.expired_by.is_some() {
                return Err("is to end: a person asked for that");
            }
            let then = match instance.place() {
                Place::Terminated | Place::Nowhere => return Err("has ended"),
                Place::CreatedBound | Place::Claimed | Place::Running => {
                    "it serves its run to the end, is kept after that".to_owned()
                }
                Place::CreatedWarm => "it is kept when it has booted, or failed to".to_owned(),
                Place::IdleCleaning | Place::IdlePooled | Place::IdleHeld => {
                    "it is kept from now on".to_owned()
                }
            };
            let then = format!("{then}, and ends at {until}");
            let message = format!("was put on hold until {until}");
            Ok(Outcome {
                then,
                write: Some(holding(instance, now, &by, until)),
                event: ("HoldRequested", message),
            })
        };
        let after = one(context, item, self.dry_run, outcome).await?;
        context.screen.document(&json::record(&after));
        Ok(())
    }
}

/// Ends machines that are held.
#[derive(Debug, Args)]
#[command(after_help = "\
A held machine ends now. One whose run goes on ends when it is given back: a person may have been on it.

Example:
  runyard release-hold i-0123456789abcdef0")]
pub(crate) struct ReleaseHoldArgs {
    /// Instance IDs
    #[arg(value_name = "INSTANCE", required = true, add = completion::machines_or_classes())]
    names: Vec<String>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Verb for ReleaseHoldArgs {
    type Input = Vec<Selector>;

    fn check(&self, _start: &Start<'_>) -> CliResult<Self::Input> {
        self.names.iter().map(|name| selector(name)).collect()
    }

    async fn run(&self, context: &mut CliContext, machines: Self::Input) -> CliResult {
        let machines = machines.as_slice();
        let by = context.environment.actor();
        let outcome = |instance: &Instance, now: Timestamp| {
            if instance.place() == Place::Terminated {
                let event = ("HoldReleased", String::new());
                return Ok(Outcome { then: "already ended".to_owned(), write: None, event });
            }
            if instance.hold.is_none() {
                return Err("is not held");
            }
            let (then, write) = match instance.place() {
                Place::IdleHeld
                | Place::IdleCleaning
                | Place::IdlePooled
                | Place::CreatedWarm
                | Place::Nowhere => ("it ends now", expire::ending(instance, now, &by)),
                Place::CreatedBound | Place::Claimed | Place::Running | Place::Terminated => {
                    ("it ends when it is given back", holding(instance, now, &by, now))
                }
            };
            let event = ("HoldReleased", "was released from its hold".to_owned());
            Ok(Outcome { then: then.to_owned(), write: Some(write), event })
        };
        let (mut after, mut refused) = (Vec::new(), Vec::new());
        for machine in machines {
            let item = machine.find_whole(context, None).await?;
            match one(context, item, self.dry_run, outcome).await {
                Ok(item) => after.push(item),
                Err(failure) => refused.extend(failure.problems),
            }
        }
        context.screen.document(&json::list(&after));
        if refused.is_empty() { Ok(()) } else { Err(CliFailure { exit: Exit::Error, problems: refused }) }
    }
}

fn selector(name: &str) -> CliResult<Selector> {
    let id = name.split_once('/').filter(|_| !name.starts_with("arn:")).map_or(name, |(_, id)| id);
    Selector::parse(Noun::Instances, id).map_err(|problem| CliFailure::usage(problem.named("INSTANCE")))
}

/// The action of a verb on one machine.
struct Outcome {
    /// The description of the result.
    then: String,
    /// The write; `None` if nothing is to be done.
    write: Option<Write>,
    /// The event: its reason, and the sentence after the machine's id.
    event: (&'static str, String),
}

/// Performs the action on the current record of one machine.
async fn one(
    context: &mut CliContext,
    item: Item,
    dry_run: bool,
    outcome: impl Fn(&Instance, Timestamp) -> Result<Outcome, &'static str>,
) -> CliResult<Item> {
    let key = RecordId::of(&item).expect("what was found by its key has one");
    let refused = |instance: &Instance, why: &str| {
        let id = instance.facts.instance_id.to_string();
        let fix = "`runyard get instance ID` shows what it is; another machine can be held";
        CliFailure::error("INSTANCE", id, why, fix)
    };
    let done = {
        let context = &*context;
        let attempt = async || -> Result<CliResult<(Instance, Outcome, Item)>, StoreError> {
            let item = context.store.get(&key).await?.unwrap_or_else(|| item.clone());
            let instance: Instance = match readable(&item) {
                Ok(instance) => instance,
                Err(failure) => return Ok(Err(failure)),
            };
            let done = match outcome(&instance, millis(context.clock.now())) {
                Ok(done) => done,
                Err(why) => return Ok(Err(refused(&instance, why))),
            };
            match done.write.as_ref().filter(|_| !dry_run) {
                None => Ok(Ok((instance, done, item))),
                Some(write) => context.store.write(write).await.map(|item| Ok((instance, done, item))),
            }
        };
        crate::session::polling::again(attempt).await.map_err(|error| context.failed(&error))??
    };
    let (before, done, after) = done;
    let (id, was) = (&before.facts.instance_id, state(&before));
    let would = if dry_run { "would be done: " } else { "" };
    context.screen.say(format!("instance {id}: {would}it is {was}; {}", done.then));
    if done.write.is_some() && !dry_run {
        let (reason, message) = done.event;
        let message = format!("instance {id} {message} by a person while {was}");
        context.record_event(AuditEvent { key: &key, reason, message, change: None }).await;
    }
    Ok(after)
}

/// Returns the longest hold of a machine's class, in seconds.
async fn longest(context: &CliContext, instance: &Instance) -> CliResult<u64> {
    let item = context.item(&Pool::key_of(&instance.facts.resource_class)).await?;
    let pool = item.map(|item| readable::<Pool>(&item)).transpose()?;
    Ok(pool.map_or(MAX_HOLD_SECONDS, |pool| pool.spec.max_hold_seconds))
}

/// Returns the write of a hold, on the version that was read, whichever request has the machine.
fn holding(instance: &Instance, now: Timestamp, by: &str, until: Timestamp) -> Write {
    let hold = BTreeMap::from([("by".to_owned(), text(by)), ("until".to_owned(), text(until))]);
    let set = attributes([("hold", AttributeValue::M(hold.into_iter().collect())), ("updatedAt", text(now))]);
    Write::update(instance.key(), Guard::Version(instance.version), set, one_more(["version"]))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use runyard_fakes::MemoryStore;

    use super::*;
    use crate::output::format::Format;
    use crate::output::screen::Screen;
    use crate::session::context::number;
    use crate::verbs::{AnyVerb, Cli, Once};

    const ID: &str = "i-0123456789abcdef0";

    fn yard(record: &str, more: &[(&str, AttributeValue)]) -> MemoryStore {
        let store = MemoryStore::new();
        let mut item: Item = serde_json::from_str(record).expect("a golden record");
        item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        store.put(item);
        store
    }

    async fn runs(store: &MemoryStore, line: &str) -> CliResult {
        let mut context = CliContext::on(store.clone(), Screen::nowhere(Format::Text));
        let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
        match cli.verb {
            AnyVerb::Once(Once::Hold(args)) => args.run_on(&mut context).await,
            AnyVerb::Once(Once::ReleaseHold(args)) => args.run_on(&mut context).await,
            AnyVerb::Once(_) | AnyVerb::Process(_) => panic!("{line}: another verb"),
        }
    }

    async fn machine(store: &MemoryStore) -> Instance {
        use runyard_core::ports::Store as _;
        let item = store.list(None).await.expect("a page").items;
        let item = item.into_iter().find(|item| item["sk"] == text("instance")).expect("it is there");
        readable(&item).expect("it is readable")
    }

    #[tokio::test]
    async fn a_hold_writes_who_and_until_when_and_a_release_ends_the_machine() {
        let running = include_str!("../../../tests/golden/instance-running.json");
        let store = yard(running, &[]);
        runs(&store, &format!("runyard hold {ID} --for 1h --dry-run"))
            .await
            .expect("it says what it would do");
        assert_eq!(machine(&store).await.hold, None);
        let before = machine(&store).await;
        runs(&store, &format!("runyard hold {ID} --for 1h")).await.expect("it is held");
        let held = machine(&store).await;
        let hold = held.hold.clone().expect("a hold");
        assert_eq!(hold.until.duration_since(Timestamp::UNIX_EPOCH).as_secs() / 60, 60);
        assert!(hold.by.starts_with("cli:"));
        assert_eq!((held.version, held.threshold), (before.version + 1, before.threshold), "its run goes on");
        runs(&store, &format!("runyard release-hold {ID}")).await.expect("it is released");
        let released = machine(&store).await;
        assert!(released.hold.expect("it stays").until <= hold.until && released.expired_by.is_none());
    }

    #[tokio::test]
    async fn a_machine_that_is_held_ends_at_once_when_it_is_released() {
        let store = yard(include_str!("../../../tests/golden/instance-held.json"), &[]);
        runs(&store, &format!("runyard release-hold {ID}")).await.expect("it is released");
        let released = machine(&store).await;
        assert!(released.hold.is_some() && released.expired_by.is_some());
        let threshold = released.threshold.expect("a deadline");
        assert_eq!(threshold.at, threshold.set_at, "it has passed");
    }

    #[tokio::test]
    async fn what_cannot_be_held_is_refused_with_what_may_be() {
        let ended = yard(include_str!("../../../tests/golden/instance-terminated.json"), &[]);
        let refused = runs(&ended, &format!("runyard hold {ID}")).await.expect_err("it has ended");
        assert!(refused.problems[0].message.contains("end"), "{:?}", refused.problems);
        let running = include_str!("../../../tests/golden/instance-running.json");
        let store = yard(running, &[]);
        let refused =
            runs(&store, &format!("runyard hold {ID} --for 5h")).await.expect_err("4 hours at most");
        assert_eq!(refused.problems[0].field, "--for");
        let mut pool: Item = serde_json::from_str(include_str!("../../../tests/golden/pool-full.json"))
            .expect("a golden record");
        pool.insert("maxHoldSeconds".to_owned(), number(0u64));
        store.put(pool);
        let refused = runs(&store, &format!("runyard hold {ID} --for 1m")).await.expect_err("nobody holds");
        assert!(refused.problems[0].message.contains("lets nobody hold"), "{:?}", refused.problems);
    }
}
