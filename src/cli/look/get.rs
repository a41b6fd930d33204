//! `runyard get`: lists records or shows single ones, as a table for people or as documents for programs, once or
//! repeatedly.

mod document;
mod order;

use std::cell::RefCell;
use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::shares;
use crate::common::failure::{CliFailure, CliResult, Problems};
use crate::input::completion;
use crate::input::look::{LookArgs, WATCH};
use crate::input::run::repository_hint;
use crate::input::selector::Noun;
use crate::input::usage::one_of;
use crate::input::what::{Target, targets};
use crate::output::json;
use crate::output::table::{INSTANCES, LAUNCHES, POOLS, REQUESTS, RowContext};
use crate::session::context::CliContext;
use crate::session::names;
use crate::session::verb::{Start, Verb};
use document::listed;
use order::Order;
use runyard_core::model::kind_of;
use runyard_core::model::{
    AttributeValue, ClassName, Counts, FieldError, Item, Kind, Phase, Pool, RecordId, Repository, State,
    UsageClass, text_of, time_of,
};

/// Lists records.
#[derive(Debug, Args)]
#[command(after_help = "\
Kinds have short names: i, r (req), p (po), l. Requests and instances that have \
ended are listed with --all alone. A machine may be \
named by the beginning of its id. A path is a subset of kubectl's: .name, ['name'], [0], [*].

Examples:
  runyard get instances
  runyard get all
  runyard get instances --class linux-x64 --state idle
  runyard get requests -o wide --watch
  runyard get request 1234567890/default/2 -o json
  runyard get pool/linux-x64 instance/i-0123
  runyard get requests --all --sort-by .count --limit 20 --no-headers
  runyard get pools -o custom-columns=CLASS:.resourceClass,MAX:.max
  runyard get instances --field-selector state=running -o name
  runyard get shares --class linux-x64
  runyard get pools -o json | jq '.items[].resourceClass'")]
pub(crate) struct GetArgs {
    /// Kinds to list: instances (i), requests (r), pools (p), launches (l), shares, all; comma-separated, or KIND/NAME
    #[arg(value_name = "KIND", default_value = "instances", add = completion::kinds_and_names())]
    what: String,
    /// Names: an instance ID or prefix, RUN_ID[/NAME[/ATTEMPT]], a class, a launch ID
    #[arg(value_name = "NAME", add = completion::of_the_kind_before())]
    names: Vec<String>,
    #[command(flatten)]
    only: Only,
    #[command(flatten)]
    order: Order,
    /// Print tables without headers
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    look: LookArgs,
}

impl Verb for GetArgs {
    type Input = GetTarget;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let targets = targets(&self.what, &self.names).map_err(CliFailure::usage)?;
        let named = targets.iter().any(|target| target.selector.is_some());
        match targets.as_slice() {
            [Target { noun, .. }] => self.only.check(*noun)?,
            // Shares are not records, so they are not in the other lists.
            several if several.iter().any(|target| target.noun == Noun::Shares) => {
                let problem =
                    FieldError::new("KIND", &self.what, "lists shares beside others", "get shares alone");
                return Err(CliFailure::usage(problem));
            }
            // Of several kinds, those with the selected attributes are listed.
            [..] => {}
        }
        let given = self.look.repository.as_ref();
        // A list covers all repositories; only a run's id may need its repository.
        let hint = if named { repository_hint(given, start.environment) } else { Ok(given.cloned()) };
        Ok(GetTarget { targets, repository: hint.map_err(CliFailure::usage)? })
    }

    async fn run(&self, context: &mut CliContext, target: Self::Input) -> CliResult {
        let target = &target;
        context.screen.headed = !self.no_headers;
        let mut last: Option<String> = None;
        loop {
            let seen = look(context, self, target).await?;
            if let (Some(class), true) = (&self.only.class, seen.items.is_empty() && seen.hidden == 0)
                && context.item(&Pool::key_of(class)).await?.is_none()
            {
                return Err(names::no_such_pool(context, "--class", class).await);
            }
            if last.as_deref() != Some(&seen.mark) {
                show(context, self, target, &seen, last.is_some());
                last = Some(seen.mark);
            }
            if !self.look.watch || context.screen.closed() {
                return Ok(());
            }
            tokio::time::sleep(WATCH).await;
        }
    }
}

/// Which of a list.
#[derive(Debug, Args)]
struct Only {
    /// Only instances, requests or launches of this class
    #[arg(long, value_name = "CLASS", conflicts_with = "names", add = completion::classes())]
    class: Option<ClassName>,
    /// Only instances in this state
    #[arg(long, value_name = "STATE", conflicts_with = "names", value_parser = one_of::<State>(State::ALL, State::as_str))]
    state: Option<State>,
    /// Only requests in this phase
    #[arg(long, value_name = "PHASE", conflicts_with = "names", value_parser = one_of::<Phase>(Phase::ALL, Phase::as_str))]
    phase: Option<Phase>,
    /// Only instances of this usage class
    #[arg(long, value_name = "CLASS", conflicts_with = "names", value_parser = one_of::<UsageClass>(UsageClass::ALL, UsageClass::as_str))]
    usage_class: Option<UsageClass>,
    /// Include ended requests and instances; with a history table, those of the last day
    #[arg(long, short = 'A', conflicts_with = "names")]
    all: bool,
}

impl Only {
    /// Refuses filters that do not apply to records of this kind.
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

    /// Returns whether an item matches, by its own attributes, so that unreadable items can match too.
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
            && says("usageClass", self.usage_class.map(UsageClass::as_str), None)
            // A request that no operator has read yet has no phase.
            && says("phase", self.phase.map(Phase::as_str), Some(Phase::Pending.as_str()))
    }

    /// Returns whether the item is an ended request or machine that was not asked for.
    fn hides(&self, item: &Item, order: &Order) -> bool {
        let (over, asked) = match kind_of(item) {
            Some(Kind::Request) => {
                let ended = |text: &str| text.parse::<Phase>().is_ok_and(Phase::is_final);
                (text_of(item, "phase").is_some_and(ended), self.phase.is_some() || order.selects("phase"))
            }
            Some(Kind::Instance) => {
                let ended = |text: &str| text.parse::<State>().is_ok_and(|state| !state.live());
                (text_of(item, "state").is_some_and(ended), self.state.is_some() || order.selects("state"))
            }
            Some(Kind::Agent | Kind::Pool | Kind::Launch | Kind::Lease | Kind::Queue | Kind::Event)
            | None => (false, false),
        };
        over && !asked && !self.all
    }

    /// Returns the qualifier in the message about an empty list.
    const fn such(&self) -> &'static str {
        match (&self.class, self.state, self.phase, self.usage_class) {
            (None, None, None, None) => "",
            (_, _, _, _) => "such ",
        }
    }
}

/// The selected records.
pub(crate) struct GetTarget {
    targets: Vec<Target>,
    repository: Option<Repository>,
}

impl GetTarget {
    /// Returns the kinds without duplicates.
    fn nouns(&self) -> Vec<Noun> {
        let mut nouns: Vec<Noun> = Vec::new();
        for target in &self.targets {
            if !nouns.contains(&target.noun) {
                nouns.push(target.noun);
            }
        }
        nouns
    }

    /// Returns whether exactly one record is selected, which is shown as an object and not as a list.
    fn single(&self) -> bool {
        matches!(self.targets.as_slice(), [Target { selector: Some(_), .. }])
    }
}

/// The result of one read.
#[derive(Default)]
struct Listing {
    items: Vec<(Noun, Item)>,
    everything: Vec<Item>,
    /// The machines of each class by state, if pools are listed.
    machines: Option<BTreeMap<String, Counts>>,
    /// Number of ended requests and instances that are not listed.
    hidden: usize,
    document: Value,
    mark: String,
}

async fn look(context: &CliContext, args: &GetArgs, target: &GetTarget) -> CliResult<Listing> {
    if target.nouns() == [Noun::Shares] {
        let all = context.everything().await?;
        let document = shares::document(&all, args.only.class.as_ref(), context.clock.now());
        let items = all.into_iter().filter(|_| !shares::is_empty(&document));
        let (items, mark) = (items.map(|item| (Noun::Shares, item)).collect(), document.to_string());
        return Ok(Listing { items, document, mark, ..Listing::default() });
    }
    let mut seen = Listing::default();
    if target.targets.iter().any(|target| target.selector.is_none()) {
        seen = list(context, args, target).await?;
    }
    for one in &target.targets {
        if let Some(selector) = &one.selector {
            seen.items.push((one.noun, selector.find(context, target.repository.as_ref()).await?));
        }
    }
    seen.document = match seen.items.first() {
        Some((_, item)) if target.single() => json::record(item),
        Some(_) | None => listed(&seen.items),
    };
    let shown = seen.machines.as_ref().filter(|_| !context.screen.format.for_programs());
    seen.mark = format!("{} {shown:?}", seen.document);
    Ok(seen)
}

/// Reads the items of the selected kinds, with the agents that their tables show and the number of hidden
/// items.
async fn list(context: &CliContext, args: &GetArgs, target: &GetTarget) -> CliResult<Listing> {
    let (nouns, only) = (target.nouns(), &args.only);
    let noun = |item: &Item| nouns.iter().copied().find(|noun| kind_of(item) == Some(noun.kind()));
    let of_agents = nouns.contains(&Noun::Instances) || nouns.contains(&Noun::Requests);
    let beside = |item: &Item| of_agents && kind_of(item) == Some(Kind::Agent);
    let wanted = |item: &Item| noun(item).is_some() && only.accepts(item) && args.order.accepts(item);
    let machines = RefCell::new(nouns.contains(&Noun::Pools).then(BTreeMap::new));
    let found = context.all_that(|item| {
        machines.borrow_mut().as_mut().into_iter().for_each(|all| counted(all, item));
        wanted(item) || beside(item)
    });
    let found = found.await?;
    let (mut items, others): (Vec<Item>, Vec<Item>) =
        found.into_iter().partition(|item| noun(item).is_some());
    if let Some(repository) = &target.repository {
        let of = |id: RecordId| id.request().map(|id| id.repository.clone());
        items.retain(|item| RecordId::of(item).and_then(of).is_some_and(|of| of.is(repository)));
    }
    if let Some(problem) = args.order.refused(&items) {
        return Err(CliFailure::usage(problem));
    }
    let before = items.len();
    items.retain(|item| !only.hides(item, &args.order));
    let hidden = before - items.len();
    let mut all = Vec::new();
    for of in &nouns {
        let (mut those, rest): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| noun(item) == Some(*of));
        items = rest;
        those.sort_by_key(|item| (born(*of, item), RecordId::of(item)));
        all.extend(args.order.arranged(those, *of == Noun::Requests).into_iter().map(|item| (*of, item)));
    }
    let machines = machines.into_inner();
    Ok(Listing { items: all, everything: others, machines, hidden, ..Listing::default() })
}

/// Counts a machine for its class.
fn counted(machines: &mut BTreeMap<String, Counts>, item: &Item) {
    if let (Some(Kind::Instance), Some(class), Some(Ok(state))) =
        (kind_of(item), text_of(item, "resourceClass"), text_of(item, "state").map(str::parse::<State>))
    {
        *machines.entry(class.to_owned()).or_default().entry(state).or_default() += 1;
    }
}

/// Returns when a request was created: requests are listed by age, which their keys do not contain.
fn born(noun: Noun, item: &Item) -> Option<Timestamp> {
    match noun {
        Noun::Requests => time_of(item, "acceptedAt").or_else(|| time_of(item, "createdAt")),
        Noun::Instances | Noun::Pools | Noun::Launches | Noun::Shares => None,
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
        let kinds: Vec<&str> = target.nouns().into_iter().map(plural).collect();
        let none = format!("there are no {}{}", args.only.such(), kinds.join(", "));
        context.screen.remark(match seen.hidden {
            0 => none,
            hidden => format!("{none} that go on; --all lists {hidden} that ended"),
        });
        return;
    }
    let rows =
        RowContext { now: context.clock.now(), others: &seen.everything, machines: seen.machines.as_ref() };
    let screen = &context.screen;
    let mut tables: Vec<String> = Vec::new();
    for noun in target.nouns() {
        let items: Vec<&Item> =
            seen.items.iter().filter(|(of, _)| *of == noun).map(|(_, item)| item).collect();
        if items.is_empty() {
            continue;
        }
        tables.push(match noun {
            Noun::Instances => INSTANCES.table(screen, &items, &rows),
            Noun::Requests => REQUESTS.table(screen, &items, &rows),
            Noun::Pools => POOLS.table(screen, &items, &rows),
            Noun::Launches => LAUNCHES.table(screen, &items, &rows),
            Noun::Shares => shares::table(screen, &seen.document),
        });
    }
    context.screen.text(&tables.join("\n"));
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
