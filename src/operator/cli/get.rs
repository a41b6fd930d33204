//! `runyard get`: lists records or shows single ones, as a table for people or as documents for programs, once or
//! repeatedly.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use super::completion;
use super::context::CliContext;
use super::environment::Environment;
use super::failure::{CliFailure, CliResult, Problems};
use super::run::repository_hint;
use super::selector::{Noun, Selector, kind_of};
use super::shares;
use super::table::{INSTANCES, LAUNCHES, POOLS, REQUESTS, RowContext};
use super::usage::one_of;
use super::{json, names};
use crate::model::{
    AttributeValue, ClassName, FieldError, Instance, Item, Kind, Launch, Phase, Pool, Reading, Record,
    RecordId, Repository, Request, State, read,
};

/// Lists records.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard get instances
  runyard get instances --class linux-x64 --state idle
  runyard get requests -o wide --watch
  runyard get request 1234567890/default/2 -o json
  runyard get shares --class linux-x64
  runyard get pools -o json | jq '.items[].resourceClass'")]
pub(crate) struct GetArgs {
    /// What to list
    #[arg(value_name = "KIND")]
    noun: Noun,
    /// One of them: an instance's id, RUN_ID[/NAME[/ATTEMPT]], a class, a launch's id
    #[arg(value_name = "NAME", add = completion::of_the_kind_before())]
    name: Option<String>,
    #[command(flatten)]
    only: Only,
    #[command(flatten)]
    look: LookArgs,
}

/// Which of a list.
#[derive(Debug, Args)]
struct Only {
    /// Only instances, requests or launches of this class
    #[arg(long, value_name = "CLASS", conflicts_with = "name", add = completion::classes())]
    class: Option<ClassName>,
    /// Only instances in this state
    #[arg(long, value_name = "STATE", conflicts_with = "name", value_parser = one_of::<State>(State::ALL, State::as_str))]
    state: Option<State>,
    /// Only requests in this phase
    #[arg(long, value_name = "PHASE", conflicts_with = "name", value_parser = one_of::<Phase>(Phase::ALL, Phase::as_str))]
    phase: Option<Phase>,
}

impl Only {
    /// Refuses what no record of this kind has.
    fn check(&self, noun: Noun) -> CliResult {
        let mut problems = Problems::default();
        let kind = plural(noun);
        if let (Some(class), Noun::Pools) = (&self.class, noun) {
            let fix = format!("write `runyard get pool {class}`");
            problems.add(FieldError::new("--class", class.as_str(), "a class has one pool", fix));
        }
        if let Some(state) = self.state.filter(|_| noun != Noun::Instances) {
            let message = format!("{kind} have no state");
            problems.add(FieldError::new(
                "--state",
                state.as_str(),
                message,
                "leave it out, or get instances",
            ));
        }
        if let Some(phase) = self.phase.filter(|_| noun != Noun::Requests) {
            let message = format!("{kind} have no phase to look for");
            problems.add(FieldError::new(
                "--phase",
                phase.as_str(),
                message,
                "leave it out, or get requests",
            ));
        }
        problems.check()
    }

    /// Whether an item is one of them, by what it says itself: also one that cannot be read as a whole.
    fn accepts(&self, item: &Item) -> bool {
        let says = |name: &str, word: Option<&str>, absent: Option<&str>| {
            let Some(word) = word else { return true };
            match item.get(name) {
                Some(AttributeValue::S(said)) => said == word,
                Some(_) => false,
                None => absent == Some(word),
            }
        };
        says("resourceClass", self.class.as_ref().map(ClassName::as_str), None)
            && says("state", self.state.map(State::as_str), None)
            // One that no operator has seen yet has none.
            && says("phase", self.phase.map(Phase::as_str), Some(Phase::Pending.as_str()))
    }

    /// What an empty list is not to say of all there are.
    const fn such(&self) -> &'static str {
        match (&self.class, self.state, self.phase) {
            (None, None, None) => "",
            (_, _, _) => "such ",
        }
    }
}

/// How to look.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    /// Where the request is, if several repositories have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO")]
    pub(crate) repository: Option<Repository>,
    /// Look again and again, and show what changed
    #[arg(long, short)]
    pub(crate) watch: bool,
}

/// What is looked for.
pub(crate) struct GetTarget {
    noun: Noun,
    selector: Option<Selector>,
    repository: Option<Repository>,
}

/// How often `--watch` looks.
pub(crate) const WATCH: Duration = Duration::from_secs(1);

/// What the options say, refused where it makes no sense.
pub(crate) fn check(args: &GetArgs, environment: &Environment) -> CliResult<GetTarget> {
    args.only.check(args.noun)?;
    let selector = args.name.as_deref().map(|name| Selector::parse(args.noun, name)).transpose();
    let selector = selector.map_err(|problem: FieldError| CliFailure::usage(problem.named("NAME")))?;
    let given = args.look.repository.as_ref();
    // A list is of everything; only a run's id may need its repository.
    let hint = if selector.is_some() { repository_hint(given, environment) } else { Ok(given.cloned()) };
    Ok(GetTarget { noun: args.noun, selector, repository: hint.map_err(CliFailure::usage)? })
}

/// Runs the verb.
pub(crate) async fn run(context: &mut CliContext, args: &GetArgs, target: &GetTarget) -> CliResult {
    let mut last: Option<String> = None;
    loop {
        let seen = look(context, &args.only, target).await?;
        if let (Some(class), true) = (&args.only.class, seen.items.is_empty())
            && context.item(&Pool::key_of(class)).await?.is_none()
        {
            return Err(names::no_such_pool(context, "--class", class).await);
        }
        if last.as_deref() != Some(&seen.mark) {
            show(context, args, target, &seen, last.is_some());
            last = Some(seen.mark);
        }
        if !args.look.watch || context.screen.closed() {
            return Ok(());
        }
        tokio::time::sleep(WATCH).await;
    }
}

/// What one look saw.
struct Listing {
    items: Vec<Item>,
    everything: Vec<Item>,
    document: Value,
    mark: String,
}

async fn look(context: &CliContext, only: &Only, target: &GetTarget) -> CliResult<Listing> {
    if target.noun == Noun::Shares {
        let everything = context.everything().await?;
        let document = shares::document(&everything, only.class.as_ref(), context.clock.now());
        let items = everything.into_iter().filter(|_| !shares::is_empty(&document)).collect();
        let mark = document.to_string();
        return Ok(Listing { items, everything: Vec::new(), document, mark });
    }
    let (items, everything) = match &target.selector {
        Some(selector) => (vec![selector.find(context, target.repository.as_ref()).await?], Vec::new()),
        None => list(context, only, target).await?,
    };
    let document = match (&target.selector, items.first()) {
        (Some(_), Some(item)) => json::record(item),
        (_, _) => listed(target.noun, &items),
    };
    let mark = document.to_string();
    Ok(Listing { items, everything, document, mark })
}

/// The items of the kind, and those of their agents that a table of machines shows.
async fn list(context: &CliContext, only: &Only, target: &GetTarget) -> CliResult<(Vec<Item>, Vec<Item>)> {
    let listed = |item: &Item| kind_of(item) == Some(target.noun.kind());
    let beside = |item: &Item| target.noun == Noun::Instances && kind_of(item) == Some(Kind::Agent);
    let found = context.all_that(|item| listed(item) && only.accepts(item) || beside(item)).await?;
    let (mut items, others): (Vec<Item>, Vec<Item>) = found.into_iter().partition(listed);
    if let Some(repository) = &target.repository {
        let of = |id: RecordId| id.request().map(|id| id.repository.clone());
        items.retain(|item| RecordId::of(item).and_then(of).is_some_and(|of| of.is(repository)));
    }
    items.sort_by_key(|item| (born(target.noun, item), RecordId::of(item)));
    Ok((items, others))
}

/// Since when a request is there: they are listed by their age, which their keys do not tell.
fn born(noun: Noun, item: &Item) -> Option<String> {
    let at = |name| match item.get(name) {
        Some(AttributeValue::S(at)) => Some(at.clone()),
        Some(_) | None => None,
    };
    match noun {
        Noun::Requests => at("acceptedAt").or_else(|| at("createdAt")),
        Noun::Instances | Noun::Pools | Noun::Launches | Noun::Shares => None,
    }
}

/// The contract's list; what cannot be read stands in it as it is and is named beside it.
fn listed(noun: Noun, items: &[Item]) -> Value {
    let odd: Vec<Value> = items.iter().filter_map(|item| problem(noun, item)).collect();
    let mut document = json::list(items);
    if let (Value::Object(map), false) = (&mut document, odd.is_empty()) {
        map.extend(Map::from_iter([("unreadable".to_owned(), Value::Array(odd))]));
    }
    document
}

fn problem(noun: Noun, item: &Item) -> Option<Value> {
    let key = RecordId::of(item).map(|key| key.to_string()).unwrap_or_default();
    let problem = match noun {
        Noun::Instances => unreadable::<Instance>(item),
        Noun::Requests => unreadable::<Request>(item),
        Noun::Pools | Noun::Shares => unreadable::<Pool>(item),
        Noun::Launches => unreadable::<Launch>(item),
    }?;
    Some(serde_json::json!({"key": key, "problem": problem}))
}

fn unreadable<T: Record>(item: &Item) -> Option<String> {
    match read::<T>(item) {
        Reading::Record(_) => None,
        Reading::Newer { schema } => Some(format!("written by a newer runyard (schema {schema})")),
        Reading::Unreadable(unreadable) => Some(unreadable.problem),
    }
}

fn show(context: &mut CliContext, args: &GetArgs, target: &GetTarget, seen: &Listing, again: bool) {
    if context.screen.format.for_programs() {
        if args.look.watch {
            context.screen.next_document(&seen.document);
        } else {
            context.screen.document(&seen.document);
        }
        return;
    }
    if again {
        context.screen.separate();
    }
    if seen.items.is_empty() {
        context.screen.remark(format!("there are no {}{}", args.only.such(), plural(target.noun)));
        return;
    }
    let items: Vec<&Item> = seen.items.iter().collect();
    let rows = RowContext { now: context.clock.now(), others: &seen.everything };
    let screen = &context.screen;
    let text = match target.noun {
        Noun::Instances => INSTANCES.table(screen, &items, &rows),
        Noun::Requests => REQUESTS.table(screen, &items, &rows),
        Noun::Pools => POOLS.table(screen, &items, &rows),
        Noun::Launches => LAUNCHES.table(screen, &items, &rows),
        Noun::Shares => shares::table(screen, &seen.document),
    };
    context.screen.text(&text);
}

const fn plural(noun: Noun) -> &'static str {
    match noun {
        Noun::Instances => "instances",
        Noun::Requests => "requests",
        Noun::Pools => "pools",
        Noun::Launches => "launches",
        Noun::Shares => "shares",
    }
}
