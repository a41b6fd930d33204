//! `runyard extend`: extends the time for which a ready request keeps its machines. It raises the intent's
//! `maxRuntimeMinutes`, on the version that was read, and waits until the operator accepts or rejects it.

use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};

use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::input::completion;
use crate::input::run::repository_hint;
use crate::input::selector::{RequestSelector, request_record};
use crate::output::json;
use crate::session::context::{CliContext, attributes, number, one_more, readable, text};
use crate::session::polling::{Interrupts, Waited, again, until};
use crate::session::verb::{Start, Verb};
use runyard_core::model::{
    Guard, Item, LONGEST_RUNTIME_MINUTES, Phase, Record, Repository, Request, Write, millis,
};
use runyard_core::ports::StoreError;

/// Lets a request keep its machines for longer.
#[derive(Debug, Args)]
#[command(after_help = "\
It raises the maximum runtime of a ready request, so that its machines are taken back so long from now at the earliest. \
The class's own limit (maxRuntimeMinutes of its pool) stays; a maximum runtime is never lowered. Workflows may extend \
their own requests.

Examples:
  runyard extend 1234567890 --for 30m
  runyard extend 1234567890/gpu --for 2h --repository acme/web")]
pub(crate) struct ExtendArgs {
    /// Request; the latest attempt unless one is given
    #[arg(value_name = "RUN_ID[/NAME[/ATTEMPT]]", value_parser = RequestSelector::parse, add = completion::requests())]
    request: RequestSelector,
    /// New runtime from now, in whole minutes
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::run, allow_negative_numbers = true)]
    length: Duration,
    /// Repository of the request, if several have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github)]
    repository: Option<Repository>,
    /// How long to wait for the operator
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::patience, allow_negative_numbers = true)]
    timeout: Duration,
    /// Print what would be requested, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Verb for ExtendArgs {
    type Input = Option<Repository>;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        repository_hint(self.repository.as_ref(), start.environment).map_err(CliFailure::usage)
    }

    async fn run(&self, context: &mut CliContext, repository: Self::Input) -> CliResult {
        let repository = repository.as_ref();
        let mut interrupts = Interrupts::listen()?;
        let request = request_record(context, &self.request, repository).await?;
        if self.dry_run {
            let Wanted { minutes, end } = wanted(&request, self.length, context.clock.now())?;
            let id = &request.id;
            context.screen.say(format!("{id}: would be asked for {minutes} min from ready, until {end}"));
            return Ok(());
        }
        let (asked, wanted) = ask(context, &request, self.length).await?;
        let generation = readable::<Request>(&asked)?.intent.generation;
        let key = request.key();
        let waited = {
            let context = &*context;
            until(self.timeout, &mut interrupts, async || {
                let Some(item) = context.item(&key).await? else { return Ok(None) };
                let now: Request = readable(&item)?;
                let answered = now.status.observed_generation >= generation || now.phase().is_final();
                Ok(answered.then_some((now, item)))
            })
            .await?
        };
        let (why, exit) = match waited {
            Waited::Done((now, item)) => {
                accepted(&now, &wanted)?;
                context.screen.say(format!("{}: its machines are taken back at {}", now.id, wanted.end));
                context.screen.document(&json::record(&item));
                return Ok(());
            }
            Waited::Interrupted(caught) => {
                (format!("interrupted by {}", caught.name()), Exit::Signal(caught))
            }
            Waited::TimedOut => ("no operator answered in time".to_owned(), Exit::TimedOut),
        };
        let message = format!("{why}; it stays asked for");
        let fix = "check that an operator runs (`runyard doctor`), or run the command again";
        Err(CliFailure::error("request", request.id.to_string(), message, fix).exiting(exit))
    }
}

/// A requested maximum runtime.
struct Wanted {
    minutes: u64,
    /// The end of the runtime.
    end: Timestamp,
}

/// Returns the maximum runtime with which a ready request keeps its machines for this length from now.
fn wanted(request: &Request, length: Duration, now: Timestamp) -> CliResult<Wanted> {
    let (id, phase) = (request.id.to_string(), request.phase());
    let ready_at = request.status.ready_at.filter(|_| phase == Phase::Ready && !request.is_released());
    let Some(ready_at) = ready_at else {
        let message = format!("is {phase}: only a ready request has machines to keep");
        let fix = "`--max-runtime` of `provision` says how long from ready; a request that is over needs a new attempt";
        return Err(CliFailure::error("request", id, message, fix));
    };
    let length_from_ready = now
        .duration_since(ready_at)
        .saturating_add(SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX));
    let minutes = u64::try_from(length_from_ready.as_secs()).unwrap_or(0).div_ceil(60);
    let end = |minutes: u64| {
        let minutes = SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(i64::MAX / 60));
        ready_at.saturating_add(minutes).unwrap_or(Timestamp::MAX)
    };
    let refused =
        |message: String, fix: &str| Err(CliFailure::error("--for", duration::show(length), message, fix));
    if let Some(has) = request.intent.max_runtime_minutes.filter(|has| *has >= minutes) {
        let message = format!("{id} has its machines until {} already, and that is never lowered", end(has));
        return refused(message, "ask for longer, or `runyard release` gives the machines back");
    }
    if minutes > LONGEST_RUNTIME_MINUTES {
        let message = format!("{id} would have its machines for {minutes} min from ready");
        return refused(message, &format!("ask for less: {LONGEST_RUNTIME_MINUTES} min from ready at most"));
    }
    Ok(Wanted { minutes, end: end(minutes) })
}

/// Checks whether the operator accepted the new runtime.
fn accepted(request: &Request, wanted: &Wanted) -> CliResult {
    if request.intent.max_runtime_minutes == Some(wanted.minutes) && !request.phase().is_final() {
        return Ok(());
    }
    let (id, class) = (request.id.to_string(), &request.intent.resource_class);
    let message = if request.phase().is_final() {
        format!("is {} meanwhile", request.phase())
    } else {
        format!(
            "was not extended to {} min from ready: class {class} allows less, or it has its machines for longer already",
            wanted.minutes
        )
    };
    let fix = format!(
        "ask for another time, or have the class's raised: `runyard set pool {class} maxRuntimeMinutes=N`"
    );
    Err(CliFailure::error("request", id, message, fix))
}

/// Writes the raised maximum runtime into the intent of the current record.
async fn ask(context: &CliContext, request: &Request, length: Duration) -> CliResult<(Item, Wanted)> {
    let key = request.key();
    let attempt = async || -> Result<CliResult<(Item, Wanted)>, StoreError> {
        let Some(item) = context.store.get(&key).await? else {
            let fix = "see `runyard get requests`";
            let id = request.id.to_string();
            return Ok(Err(CliFailure::error("request", id, "was deleted meanwhile", fix)));
        };
        let now = millis(context.clock.now());
        let current = readable::<Request>(&item);
        let (current, wanted) = match current.and_then(|one| Ok((wanted(&one, length, now)?, one))) {
            Ok((wanted, one)) => (one, wanted),
            Err(failure) => return Ok(Err(failure)),
        };
        let set = attributes([("maxRuntimeMinutes", number(wanted.minutes)), ("updatedAt", text(now))]);
        let more = one_more(["generation", "version"]);
        let write = Write::update(key.clone(), Guard::image(&current), set, more);
        context.store.write(&write).await.map(|item| Ok((item, wanted)))
    };
    again(attempt).await.map_err(|error| context.failed(&error))?
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use runyard_fakes::MemoryStore;

    use super::*;
    use crate::output::format::Format;
    use crate::output::screen::Screen;
    use crate::verbs::{AnyVerb, Cli, Once};
    use runyard_core::ports::Store as _;

    /// Returns a table with a request of run 42 that has been ready since the epoch.
    fn yard(more: &[(&str, runyard_core::model::AttributeValue)]) -> MemoryStore {
        let mut item = attributes([
            ("pk", text("request#acme/web#42")),
            ("sk", text("request#default#1")),
            ("kind", text("request")),
            ("version", number(4u64)),
            ("runId", text("42")),
            ("attempt", number(1u64)),
            ("repository", text("acme/web")),
            ("name", text("default")),
            ("resourceClass", text("small")),
            ("count", number(1u64)),
            ("desired", text("provisioned")),
            ("generation", number(1u64)),
            ("observedGeneration", number(1u64)),
            ("phase", text("Ready")),
            ("readyAt", text("1970-01-01T00:00:00Z")),
        ]);
        item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let store = MemoryStore::new();
        store.put(item);
        store
    }

    async fn runs(store: &MemoryStore, line: &str) -> CliResult {
        let mut context = CliContext::on(store.clone(), Screen::nowhere(Format::Text));
        let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
        let AnyVerb::Once(Once::Extend(args)) = cli.verb else { panic!("{line}: another verb") };
        args.run_on(&mut context).await
    }

    fn request(store: &MemoryStore) -> Request {
        readable(&store.records()[0]).expect("it is readable")
    }

    /// Simulates an operator that answers the next raised intent: it accepts or ignores its minutes.
    async fn answers(store: MemoryStore, accepts: bool) {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let item = store.records()[0].clone();
            let before: Request = readable(&item).expect("it is readable");
            if before.intent.generation == before.status.observed_generation {
                continue;
            }
            let mut set = attributes([("observedGeneration", number(before.intent.generation))]);
            if !accepts {
                set.insert("maxRuntimeMinutes".into(), number(30u64));
            }
            let write = Write::update(before.key(), Guard::image(&before), set, one_more(["version"]));
            store.write(&write).await.expect("it is written");
            return;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_extended_to_so_long_from_now() {
        let store = yard(&[("maxRuntimeMinutes", number(20u64))]);
        runs(&store, "runyard extend 42 --for 30m --dry-run").await.expect("it says what it would do");
        assert_eq!(request(&store).version, 4);
        let (done, ()) =
            tokio::join!(runs(&store, "runyard extend 42 --for 30m"), answers(store.clone(), true));
        done.expect("it is extended");
        let now = request(&store);
        assert_eq!((now.intent.max_runtime_minutes, now.intent.generation), (Some(30), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_operator_does_not_accept_is_an_error_that_names_the_class() {
        let store = yard(&[("maxRuntimeMinutes", number(20u64))]);
        let line = "runyard extend 42 --for 45m";
        let (refused, ()) = tokio::join!(runs(&store, line), answers(store.clone(), false));
        let problems = refused.expect_err("its class allows less").problems;
        assert!(problems[0].message.contains("class small allows less"), "{problems:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_maximum_runtime_is_never_lowered() {
        let store = yard(&[("maxRuntimeMinutes", number(90u64))]);
        let refused = runs(&store, "runyard extend 42 --for 30m").await.expect_err("it has longer");
        let problem = &refused.problems[0];
        assert_eq!(problem.field, "--for");
        assert!(problem.message.contains("until 1970-01-01T01:30:00Z already"), "{problem:?}");
        assert!(problem.message.contains("never lowered"), "{problem:?}");
        assert_eq!(request(&store).version, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_ready_request_is_extended_and_a_wait_without_an_answer_ends() {
        for phase in ["Pending", "Releasing", "Released"] {
            let store = yard(&[("phase", text(phase))]);
            let refused = runs(&store, "runyard extend 42 --for 30m").await.expect_err("it is not ready");
            assert!(refused.problems[0].message.contains(phase), "{:?}", refused.problems);
        }
        let store = yard(&[]);
        let failed = runs(&store, "runyard extend 42 --for 30m").await.expect_err("nobody answers");
        assert_eq!(failed.exit, Exit::TimedOut);
        assert_eq!(request(&store).intent.max_runtime_minutes, Some(30), "it stays asked for");
    }
}
