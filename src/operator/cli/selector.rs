//! Selects a record by the kind and name that a person writes: finds the one record, or reports a clear error.

use super::context::{CliContext, readable};
use super::failure::{CliFailure, CliResult};
use super::names;
use crate::model::{
    ClassName, FieldError, InstanceArn, InstanceId, Item, Kind, LaunchId, Pool, RecordId, Repository,
    Request, RequestKey, RequestName, RunId,
};

/// The kinds that can be read by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Noun {
    /// Machines, by their id.
    #[value(name = "instances", alias = "instance")]
    Instances,
    /// What workflows asked for, by RUN_ID[/NAME[/ATTEMPT]].
    #[value(name = "requests", alias = "request")]
    Requests,
    /// Resource classes, by their name.
    #[value(name = "pools", alias = "pool")]
    Pools,
    /// Launches, by their id.
    #[value(name = "launches", alias = "launch")]
    Launches,
    /// Shares of the classes that are shared; `get` lists them.
    #[value(name = "shares", alias = "share")]
    Shares,
}

impl Noun {
    /// The kind of record.
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
    /// The request's name; any when absent.
    pub(crate) name: Option<RequestName>,
    /// The attempt; the latest when absent.
    pub(crate) attempt: Option<u32>,
}

impl RequestSelector {
    /// Reads a selector.
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

/// Reads the number of an attempt.
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
    /// By its id, or its whole ARN.
    Instance(String),
    /// By run, name and attempt.
    Request(RequestSelector),
    /// By its class.
    Pool(ClassName),
    /// By its id.
    Launch(LaunchId),
}

impl Selector {
    /// Reads a name of this kind.
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

    /// The one item it names.
    pub(crate) async fn find(
        &self,
        context: &CliContext,
        repository: Option<&Repository>,
    ) -> CliResult<Item> {
        match self {
            Self::Instance(name) => instance(context, name).await,
            Self::Request(selector) => request(context, selector, repository).await,
            Self::Pool(class) => match context.item(&Pool::key_of(class)).await? {
                Some(item) => Ok(item),
                None => Err(names::no_such_pool(context, "pool", class).await),
            },
            Self::Launch(id) => by_key(context, &RecordId::Launch(id.clone()), id).await,
        }
    }
}

/// The kind that an item's key says it is of, as the operator sees it, whatever else it says of itself; none for what
/// others keep in the table, which is none of our business.
pub(crate) fn kind_of(item: &Item) -> Option<Kind> {
    RecordId::of(item)?.kind()
}

async fn by_key(context: &CliContext, key: &RecordId, name: impl ToString) -> CliResult<Item> {
    let (kind, name) = (key.sk(), name.to_string());
    context.item(key).await?.ok_or_else(|| {
        let list = if kind == "launch" { "launches".to_owned() } else { format!("{kind}s") };
        CliFailure::error(
            &kind,
            name,
            format!("there is no such {kind}"),
            format!("see `runyard get {list}`"),
        )
    })
}

async fn instance(context: &CliContext, name: &str) -> CliResult<Item> {
    if let Ok(arn) = InstanceArn::parse(name) {
        return by_key(context, &RecordId::Instance(arn), name).await;
    }
    let named = |item: &Item| {
        kind_of(item) == Some(Kind::Instance)
            && RecordId::of(item).is_some_and(|id| id.machine() == Some(name))
    };
    let mut found = context.all_that(named).await?;
    match (found.pop(), found.is_empty()) {
        (Some(item), true) => Ok(item),
        (None, _) => Err(CliFailure::error(
            "instance",
            name,
            "there is no such instance",
            "see `runyard get instances`; the record goes a day after the machine",
        )),
        (Some(_), false) => {
            Err(CliFailure::error("instance", name, "more than one record has this id", "give the whole ARN"))
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
        Some(repository) => context.of_run(repository, &selector.run_id, "request#").await?,
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
        return Err(CliFailure::error(
            "request",
            name(),
            format!("there is no such request{near}"),
            "see `runyard get requests`; records go 7 days after the end",
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

/// The request a selector names, which must be readable.
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
    use crate::cli::context::{attributes, text};

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
