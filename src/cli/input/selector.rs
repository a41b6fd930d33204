//! Selects a record by the kind and name that a person writes: finds the one record, or reports a clear error.

use std::collections::BTreeSet;

use crate::common::failure::{CliFailure, CliResult};
use crate::session::context::{CliContext, readable};
use crate::session::names;
use runyard_core::model::{
    ClassName, FieldError, InstanceArn, InstanceId, Item, Kind, LaunchId, Pool, RecordId, Repository,
    Request, RequestKey, RequestName, RunId, kind_of,
};

/// The kinds that can be read by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Noun {
    /// Machines, by their id.
    #[value(name = "instances", aliases = ["instance", "inst", "i"])]
    Instances,
    /// What workflows asked for, by RUN_ID[/NAME[/ATTEMPT]].
    #[value(name = "requests", aliases = ["request", "req", "r"])]
    Requests,
    /// Resource classes, by their name.
    #[value(name = "pools", aliases = ["pool", "po", "p"])]
    Pools,
    /// Launches, by their id.
    #[value(name = "launches", aliases = ["launch", "l"])]
    Launches,
    /// Shares of the classes that are shared; `get` lists them.
    #[value(name = "shares", alias = "share")]
    Shares,
}

impl Noun {
    /// Returns the kind of record.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Instances => Kind::Instance,
            Self::Requests => Kind::Request,
            Self::Pools | Self::Shares => Kind::Pool,
            Self::Launches => Kind::Launch,
        }
    }
}

/// `RUN_ID[/NAME[/ATTEMPT]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestSelector {
    /// The run.
    pub(crate) run_id: RunId,
    /// The request's name; any name if `None`.
    pub(crate) name: Option<RequestName>,
    /// The attempt; the latest if `None`.
    pub(crate) attempt: Option<u32>,
}

impl RequestSelector {
    /// Parses a selector.
    pub(crate) fn parse(text: &str) -> Result<Self, FieldError> {
        let fix = "write RUN_ID, RUN_ID/NAME or RUN_ID/NAME/ATTEMPT";
        let mut parts = text.split('/');
        let run_id = RunId::parse(parts.next().unwrap_or_default())?;
        let name = parts.next().map(RequestName::parse).transpose()?;
        let attempt = parts.next().map(attempt).transpose()?;
        match parts.next() {
            None => Ok(Self { run_id, name, attempt }),
            Some(_) => Err(FieldError::new("request", text, "too many parts", fix)),
        }
    }

    fn covers(&self, id: &RequestKey) -> bool {
        id.run_id == self.run_id
            && self.name.as_ref().is_none_or(|name| *name == id.name)
            && self.attempt.is_none_or(|attempt| attempt == id.attempt)
    }
}

/// Parses the number of an attempt.
pub(crate) fn attempt(text: &str) -> Result<u32, FieldError> {
    let number = text.parse::<u32>().ok().filter(|n| (1..=1_000_000).contains(n));
    number.ok_or_else(|| {
        FieldError::new(
            "attempt",
            text,
            "not the number of an attempt",
            "use 1, 2, … as in GITHUB_RUN_ATTEMPT",
        )
    })
}

/// One record, as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// A machine by its id or its whole ARN.
    Instance(String),
    /// A request by run, name and attempt.
    Request(RequestSelector),
    /// A pool by its class.
    Pool(ClassName),
    /// A launch by its id.
    Launch(LaunchId),
}

impl Selector {
    /// Parses a name of this kind.
    pub(crate) fn parse(noun: Noun, name: &str) -> Result<Self, FieldError> {
        match noun {
            Noun::Instances if name.starts_with("arn:") => {
                InstanceArn::parse(name).map(|arn| Self::Instance(arn.to_string()))
            }
            Noun::Instances => InstanceId::parse(name).map(|id| Self::Instance(id.to_string())),
            Noun::Requests => RequestSelector::parse(name).map(Self::Request),
            Noun::Pools => ClassName::parse(name).map(Self::Pool),
            Noun::Launches => LaunchId::parse(name).map(Self::Launch),
            Noun::Shares => {
                let fix = "write `runyard get shares`, with --class CLASS for those of one class";
                Err(FieldError::new("NAME", name, "a share has no record of its own", fix))
            }
        }
    }

    /// Finds the one selected item; a machine also by the beginning of its id, if it is unique.
    pub(crate) async fn find(
        &self,
        context: &CliContext,
        repository: Option<&Repository>,
    ) -> CliResult<Item> {
        match self {
            Self::Instance(name) => instance(context, name, true).await,
            Self::Request(_) | Self::Pool(_) | Self::Launch(_) => self.find_whole(context, repository).await,
        }
    }

    /// Finds the one item that is named in full, as irreversible verbs require.
    pub(crate) async fn find_whole(
        &self,
        context: &CliContext,
        repository: Option<&Repository>,
    ) -> CliResult<Item> {
        match self {
            Self::Instance(name) => instance(context, name, false).await,
            Self::Request(selector) => request(context, selector, repository).await,
            Self::Pool(class) => match context.item(&Pool::key_of(class)).await? {
                Some(item) => Ok(item),
                None => Err(names::no_such_pool(context, "pool", class).await),
            },
            Self::Launch(id) => by_key(context, &RecordId::Launch(id.clone()), id).await,
        }
    }
}

async fn by_key(context: &CliContext, key: &RecordId, name: impl ToString) -> CliResult<Item> {
    let (kind, name) = (key.sk(), name.to_string());
    if let Some(item) = context.item(key).await? {
        return Ok(item);
    }
    let list = if kind == "launch" { "launches".to_owned() } else { format!("{kind}s") };
    let same = |item: &Item| kind_of(item) == key.kind();
    let known: Vec<String> =
        context.all_that(same).await.unwrap_or_default().iter().filter_map(id_of).collect();
    let near = names::meant(&name, known.iter().map(String::as_str));
    let fix = format!("{near}see `runyard get {list}`");
    Err(CliFailure::error(&kind, name, format!("there is no such {kind}"), fix))
}

/// Returns the id of a machine or a launch.
fn id_of(item: &Item) -> Option<String> {
    let id = RecordId::of(item)?;
    if let RecordId::Launch(launch) = &id {
        return Some(launch.to_string());
    }
    id.machine().map(str::to_owned)
}

async fn instance(context: &CliContext, name: &str, by_beginning: bool) -> CliResult<Item> {
    if let Ok(arn) = InstanceArn::parse(name) {
        return by_key(context, &RecordId::Instance(arn), name).await;
    }
    let machines = context.all_that(|item| kind_of(item) == Some(Kind::Instance)).await?;
    let machines: Vec<(String, Item)> =
        machines.into_iter().filter_map(|item| Some((id_of(&item)?, item))).collect();
    let refused = |message: String, fix: String| Err(CliFailure::error("instance", name, message, fix));
    let whole: Vec<&Item> = machines.iter().filter(|(id, _)| id == name).map(|(_, item)| item).collect();
    match whole.as_slice() {
        [item] => return Ok((*item).clone()),
        [] => {}
        [_, _, ..] => return refused("more than one record has this id".into(), "give the whole ARN".into()),
    }
    let begun: Vec<&(String, Item)> = machines.iter().filter(|(id, _)| id.starts_with(name)).collect();
    match begun.as_slice() {
        [(_, item)] if by_beginning => Ok(item.clone()),
        [(id, _)] => refused("is the beginning of an id".into(), format!("give the whole id: {id}")),
        [] => {
            let near = names::meant(name, machines.iter().map(|(id, _)| id.as_str()));
            let fix = format!("{near}see `runyard get instances`; the record goes a day after the machine");
            refused("there is no such instance".into(), fix)
        }
        more => {
            let some: Vec<&str> = more.iter().take(5).map(|(id, _)| id.as_str()).collect();
            let message = format!("{} machines begin so: {}", more.len(), some.join(" "));
            refused(message, "give more of the id".into())
        }
    }
}

fn is_request(item: &Item) -> bool {
    kind_of(item) == Some(Kind::Request)
}

async fn request(
    context: &CliContext,
    selector: &RequestSelector,
    repository: Option<&Repository>,
) -> CliResult<Item> {
    let name = || {
        let name = selector.name.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        format!("{}{name}{}", selector.run_id, selector.attempt.map(|n| format!("/{n}")).unwrap_or_default())
    };
    let items = match repository {
        Some(repository) => {
            let mut items = context.of_run(repository, &selector.run_id, "request#").await?;
            let known: BTreeSet<RecordId> = items.iter().filter_map(RecordId::of).collect();
            let past = context.archived(repository, &selector.run_id).await?;
            let left = |item: &Item| RecordId::of(item).is_some_and(|key| !known.contains(&key));
            items.extend(past.into_iter().filter(left));
            items
        }
        None => context.all_that(is_request).await?,
    };
    let mut found: Vec<(RequestKey, Item)> = items
        .into_iter()
        .filter(is_request)
        .filter_map(|item| Some((RecordId::of(&item)?.request()?.clone(), item)))
        .filter(|(id, _)| selector.covers(id))
        .collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let same = |(id, _): &(RequestKey, Item), (last, _): &(RequestKey, Item)| {
        id.repository.is(&last.repository) && id.name == last.name
    };
    let Some(last) = found.last().cloned() else {
        let near = repository.map(|r| format!(" of {r}")).unwrap_or_default();
        let runs = match repository {
            Some(_) => Vec::new(),
            None => context.all_that(is_request).await?,
        };
        let runs: Vec<String> = runs
            .iter()
            .filter_map(|item| Some(RecordId::of(item)?.request()?.run_id.to_string()))
            .filter(|run| *run != selector.run_id.as_str())
            .collect();
        let meant = names::meant(selector.run_id.as_str(), runs.iter().map(String::as_str));
        return Err(CliFailure::error(
            "request",
            name(),
            format!("there is no such request{near}"),
            format!(
                "{meant}see `runyard get requests --all`; a record goes 7 days after the end, and one that ended over a \
                 day ago needs --repository"
            ),
        ));
    };
    if found.iter().all(|one| same(one, &last)) {
        return Ok(last.1);
    }
    let all: Vec<String> = found.iter().map(|(id, _)| id.to_string()).collect();
    Err(CliFailure::error(
        "request",
        name(),
        format!("more than one request fits: {}", all.join("; ")),
        "give --repository and RUN_ID/NAME",
    ))
}

/// Returns the selected request, which must be readable.
pub(crate) async fn request_record(
    context: &CliContext,
    selector: &RequestSelector,
    repository: Option<&Repository>,
) -> CliResult<Request> {
    readable(&request(context, selector, repository).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::context::{attributes, text};

    #[test]
    fn a_request_is_named_by_up_to_three_parts() {
        let all = RequestSelector::parse("42/gpu/3").unwrap();
        assert_eq!((all.run_id.as_str(), all.attempt), ("42", Some(3)));
        assert_eq!(all.name.unwrap().as_str(), "gpu");
        assert_eq!(RequestSelector::parse("42").unwrap().name, None);
        for bad in ["", "/", "42/", "42/gpu/0", "42/gpu/x", "42/gpu/1/2", "$(x)"] {
            assert!(RequestSelector::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_items_kind_is_what_its_key_says_whatever_it_says_itself() {
        let item =
            |pk: &str, sk: &str| attributes([("pk", text(pk)), ("sk", text(sk)), ("kind", text("pool"))]);
        assert_eq!(kind_of(&item("request#a/b#1", "request#default#1")), Some(Kind::Request));
        assert_eq!(kind_of(&item("request#a/b#1", "event#2026-01-01T00:00:00Z#1")), Some(Kind::Event));
        assert_eq!(kind_of(&item("request#a/b#1", "something")), None);
        assert_eq!(kind_of(&item("pool#a", "note")), None);
        assert_eq!(kind_of(&item("note#1", "pool")), None);
    }
}
