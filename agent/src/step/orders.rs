//! Reads from the instance record only what an agent acts on, so that a record with additional, missing or malformed
//! attributes elsewhere is still usable.

use jiff::Timestamp;
use runyard_core::model::{AttributeValue, ClaimId, Item, Jobs, RunnerPackage, SCHEMA, State};

/// The result of reading the instance record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and it nearly always has orders")]
pub enum Sight {
    /// Nothing was read yet.
    #[default]
    Unseen,
    /// The record does not exist. This is not a command.
    Absent,
    /// The record is unreadable or of a newer schema. This is not a command either.
    Unreadable(String),
    /// The orders in the record.
    Orders(Orders),
}

/// The deadline of the record's state. Only the difference of the two times is meaningful here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// `threshold`.
    pub at: Timestamp,
    /// `thresholdSetAt`.
    pub set_at: Option<Timestamp>,
}

/// The part of an instance record that an agent acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// `state`.
    pub state: State,
    /// `runId`; empty if no run holds the machine.
    pub run: String,
    /// The repository in the key of `request`; empty if there is none.
    pub repository: String,
    /// `claimId`.
    pub claim: Option<ClaimId>,
    /// `jobs`: the permissions of the claim's jobs, or the reason why they cannot be read.
    pub jobs: Result<Jobs, String>,
    /// `runner`: the package of the claim, and in the pool that of the next one, or the reason why it cannot be read;
    /// `None` for the one that the machine was launched with.
    pub runner: Result<Option<RunnerPackage>, String>,
    /// `threshold` and `thresholdSetAt`.
    pub deadline: Option<Deadline>,
    /// Whether the machine is in the pool (`pooledAt`).
    pub pooled: bool,
    /// `ahead.id`: the registration ahead of a claim that the record names.
    pub ahead: Option<ClaimId>,
    /// `registration`, sealed.
    pub registration: Option<String>,
    /// `removal`, sealed.
    pub removal: Option<String>,
    /// Whether a person holds the machine (`hold`) and no run has it: nothing is cleaned then.
    pub held: bool,
    /// `retireAskedAt`: the operator asks whether the runner has a job.
    pub retire_asked: Option<Timestamp>,
    /// `logsRequestedAt`.
    pub logs_requested: Option<Timestamp>,
    /// `promotion`: its claim, and the names of kept directories that the claim may change.
    pub promotion: Option<(ClaimId, Vec<String>)>,
}

impl Sight {
    /// Reads a stored record.
    pub fn of(item: Option<&Item>) -> Self {
        match item.map(orders) {
            None => Self::Absent,
            Some(Ok(orders)) => Self::Orders(orders),
            Some(Err(problem)) => Self::Unreadable(problem),
        }
    }

    /// Returns the orders, if there are any.
    pub fn orders(&self) -> Option<&Orders> {
        match self {
            Self::Orders(orders) => Some(orders),
            Self::Unseen | Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

fn orders(item: &Item) -> Result<Orders, String> {
    match item.get("schema") {
        None => {}
        Some(AttributeValue::N(n)) if n.parse::<u64>().is_ok_and(|n| n <= SCHEMA) => {}
        Some(other) => return Err(format!("schema: {other:?}, this agent knows {SCHEMA}")),
    }
    let state = text(item, "state")?.parse::<State>().map_err(|e| format!("state: {e}"))?;
    let claim = text(item, "claimId")?;
    let claim = match claim.as_str() {
        "" => None,
        claim => Some(claim.parse::<ClaimId>().map_err(|e| e.to_string())?),
    };
    let run = text(item, "runId")?;
    if !run.is_empty() && claim.is_none() {
        return Err("claimId: empty beside a runId".to_owned());
    }
    let deadline = match time(item, "threshold")? {
        None => None,
        Some(at) => Some(Deadline { at, set_at: time(item, "thresholdSetAt")? }),
    };
    let some = |name| text(item, name).map(|value| Some(value).filter(|value| !value.is_empty()));
    Ok(Orders {
        held: run.is_empty() && matches!(item.get("hold"), Some(AttributeValue::M(_))),
        // Requests that cannot be read are ignored.
        retire_asked: time(item, "retireAskedAt").ok().flatten(),
        logs_requested: time(item, "logsRequestedAt").ok().flatten(),
        state,
        run,
        repository: repository(item).unwrap_or_default(),
        claim,
        jobs: Jobs::granted_in(item),
        runner: RunnerPackage::named_in(item),
        deadline,
        pooled: time(item, "pooledAt").is_ok_and(|at| at.is_some()),
        ahead: ahead(item),
        registration: some("registration")?,
        removal: some("removal")?,
        promotion: promotion(item),
    })
}

/// Reads the promotion. One that cannot be read keeps nothing.
fn promotion(item: &Item) -> Option<(ClaimId, Vec<String>)> {
    let Some(AttributeValue::M(said)) = item.get("promotion") else { return None };
    let Some(AttributeValue::S(claim)) = said.get("claimId") else { return None };
    let Some(AttributeValue::L(names)) = said.get("names") else { return None };
    let name = |value: &AttributeValue| match value {
        AttributeValue::S(name) => Some(name.clone()),
        _ => None,
    };
    Some((claim.parse().ok()?, names.iter().map(name).collect::<Option<_>>()?))
}

/// Reads the registration ahead of a claim. One that cannot be read is ignored: the machine serves its claims the
/// normal way.
fn ahead(item: &Item) -> Option<ClaimId> {
    let Some(AttributeValue::M(ahead)) = item.get("ahead") else { return None };
    let Some(AttributeValue::S(id)) = ahead.get("id") else { return None };
    id.parse().ok()
}

/// Reads the repository from `request#<owner>/<repo>#<runId>` (contract, section 1).
fn repository(item: &Item) -> Option<String> {
    let Some(AttributeValue::M(request)) = item.get("request") else { return None };
    let Some(AttributeValue::S(pk)) = request.get("pk") else { return None };
    let (repository, _run) = pk.strip_prefix("request#")?.rsplit_once('#')?;
    Some(repository.to_owned())
}

/// Reads a string; empty if there is none.
fn text(item: &Item, name: &str) -> Result<String, String> {
    match item.get(name) {
        None => Ok(String::new()),
        Some(AttributeValue::S(value)) => Ok(value.clone()),
        Some(_) => Err(format!("{name}: not a string")),
    }
}

fn time(item: &Item, name: &str) -> Result<Option<Timestamp>, String> {
    match text(item, name)?.as_str() {
        "" => Ok(None),
        value => value.parse().map(Some).map_err(|e| format!("{name}: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(pairs: &[(&str, &str)]) -> Item {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), AttributeValue::S((*v).to_owned()))).collect()
    }

    #[test]
    fn a_record_with_what_an_agent_needs_is_enough() {
        let sight = Sight::of(Some(&item(&[
            ("state", "claimed"),
            ("runId", "42"),
            ("claimId", "i-1.4"),
            ("threshold", "2026-01-01T00:05:00Z"),
            ("thresholdSetAt", "2026-01-01T00:00:00Z"),
            ("strange", "kept"),
        ])));
        let orders = sight.orders().unwrap();
        assert_eq!((orders.state, orders.run.as_str()), (State::Claimed, "42"));
        assert_eq!(orders.claim.as_ref().unwrap().as_str(), "i-1.4");
        assert!(orders.deadline.unwrap().set_at.is_some() && orders.registration.is_none());
    }

    #[test]
    fn what_jobs_may_do_is_read_and_what_nobody_here_knows_is_told() {
        let with = |name: &str, value: AttributeValue| {
            let mut record = item(&[("state", "claimed"), ("runId", "4"), ("claimId", "i-1.4")]);
            record.insert("jobs".into(), AttributeValue::M([(name.to_owned(), value)].into()));
            Sight::of(Some(&record)).orders().unwrap().jobs.clone()
        };
        assert!(with("root", AttributeValue::Bool(true)).unwrap().single_use());
        let unknown = with("containers", AttributeValue::S("virtual".into())).unwrap_err();
        assert!(unknown.starts_with("jobs.containers"), "{unknown}");
        assert_eq!(Sight::of(Some(&item(&[("state", "idle")]))).orders().unwrap().jobs, Ok(Jobs::default()));
    }

    #[test]
    fn the_runner_package_is_read_and_one_that_is_no_package_is_told() {
        let with = |value: AttributeValue| {
            let mut record = item(&[("state", "claimed"), ("runId", "4"), ("claimId", "i-1.4")]);
            record.insert("runner".into(), value);
            Sight::of(Some(&record)).orders().unwrap().runner.clone()
        };
        let text = |value: &str| AttributeValue::S(value.into());
        let [version, url, sha256] = ["2.336.0", "https://github.com/a", "0a"];
        let all = [("version", version), ("url", url), ("sha256", sha256)];
        let map = all.map(|(name, value)| (name.to_owned(), text(value)));
        let package = with(AttributeValue::M(map.clone().into())).unwrap().unwrap();
        assert_eq!((package.version.as_str(), package.url.as_str()), (version, url));
        for bad in [
            text("2.336.0"),
            AttributeValue::Null(true),
            AttributeValue::M(map[..2].iter().cloned().collect()),
            AttributeValue::M(Default::default()),
        ] {
            let told = with(bad.clone()).unwrap_err();
            assert!(told.starts_with("runner"), "{bad:?}: {told}");
        }
        let none = item(&[("state", "idle")]);
        assert_eq!(Sight::of(Some(&none)).orders().unwrap().runner, Ok(None));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_is_no_command() {
        let mut newer = item(&[("state", "terminated"), ("runId", ""), ("claimId", "")]);
        newer.insert("schema".into(), AttributeValue::N("2".into()));
        let mut number = item(&[("state", "idle"), ("runId", "")]);
        number.insert("claimId".into(), AttributeValue::N("1".into()));
        let cases = [
            (newer, "schema"),
            (number, "claimId"),
            (item(&[("state", "Idle")]), "state"),
            (item(&[]), "state"),
            (item(&[("state", "idle"), ("threshold", "soon")]), "threshold"),
            (item(&[("state", "claimed"), ("runId", "4")]), "claimId"),
        ];
        for (item, field) in cases {
            let Sight::Unreadable(problem) = Sight::of(Some(&item)) else { panic!("{field} was read") };
            assert!(problem.starts_with(field), "{problem}");
        }
        assert_eq!(Sight::of(None), Sight::Absent);
    }
}
