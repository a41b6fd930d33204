//! `runyard doctor --preflight`: checks the requirements of a class's first machine at EC2, at GitHub and at the
//! package servers, and launches nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};

#[cfg(feature = "ec2")]
use super::account;
use super::{Finding, package};
use crate::common::failure::CliResult;
use crate::session::context::CliContext;
use crate::session::names;
use runyard_core::model::{
    AheadStatus, ClassName, EventType, Item, Pool, PoolSpec, Reading, Record as _, RegisteredAhead,
    Repository, Request, read,
};
use runyard_core::ports::github::Scope;
use runyard_operator::config::{Config, Fetched, ScopeKind};
use runyard_operator::github::RestGitHub;
use runyard_operator::preflight::{Check, Outcome};

/// The adapters to query.
#[derive(Default)]
pub(super) struct Asked {
    #[cfg(feature = "ec2")]
    pub(super) ec2: Option<runyard_operator::aws::Ec2Compute>,
    pub(super) github: Option<RestGitHub>,
}

/// A check, and its record; `operator` if the check is for every class.
pub(super) struct Checked {
    record: String,
    check: Check,
}

/// Returns the selected classes, which must exist.
pub(super) async fn pools(
    context: &CliContext,
    items: &[Item],
    named: Option<&ClassName>,
) -> CliResult<Vec<Pool>> {
    let pools: Vec<Pool> = of_kind(items);
    let Some(class) = named else { return Ok(pools) };
    let found: Vec<Pool> = pools.into_iter().filter(|pool| pool.spec.resource_class == *class).collect();
    if found.is_empty() {
        return Err(names::no_such_pool(context, "--preflight", class).await);
    }
    Ok(found)
}

/// Runs all checks for these classes.
pub(super) async fn look(
    asked: &Asked,
    config: &Config,
    pools: &[Pool],
    items: &[Item],
    repository: Option<&Repository>,
) -> Vec<Checked> {
    let mut checked = Vec::new();
    let mut add = |record: &str, checks: Vec<Check>| {
        checked.extend(checks.into_iter().map(|check| Checked { record: record.to_owned(), check }));
    };
    for (what, fetched, keys) in packages(config) {
        add("operator", vec![package::check(what, fetched.url(), fetched.sha256(), keys).await]);
    }
    #[cfg(feature = "ec2")]
    if let Some(ec2) = &asked.ec2 {
        for pool in pools {
            add(&pool.key().to_string(), ec2.preflight(&pool.spec).await);
            add(&pool.key().to_string(), account::checks(&pool.spec).await);
        }
    }
    if let (Some(github), Some(settings)) = (&asked.github, &config.github) {
        let requests: Vec<Request> = of_kind(items);
        for pool in pools {
            let known = repository.cloned().into_iter().collect::<Vec<_>>();
            let known = if known.is_empty() { repositories(pool, &requests) } else { known };
            let record = pool.key().to_string();
            add(&record, vec![registered_ahead(&pool.spec, settings.scope)]);
            let places = pool.spec.set_places();
            if known.is_empty() && places.is_empty() {
                let why = "no repository of the class is known yet";
                let check = Check::unchecked("GitHub", why, "name one with --repository OWNER/REPO");
                add(&record, vec![check]);
            }
            let group = Some(pool.spec.runner_group.as_str()).filter(|group| !group.is_empty());
            let mut scopes = BTreeSet::new();
            for repository in &known {
                let scope = scope(repository, settings.scope);
                if scopes.insert(scope.clone()) {
                    let named = Some((repository.owner(), repository.name()));
                    add(&record, github.preflight(&scope, group, named).await);
                }
            }
            // A set is where its class says, whatever `github.scope` says of other runners.
            for place in &places {
                let scope = Scope::of_slots(place.of_slots());
                if scopes.insert(scope.clone()) {
                    add(&record, github.preflight(&scope, group, None).await);
                }
            }
        }
    }
    checked
}

/// Returns the packages that machines download, with their names and settings.
fn packages(config: &Config) -> Vec<(&'static str, &dyn Fetched, &'static str)> {
    let (runner, program) = (&config.agent.runner, &config.agent.program);
    let given: [(_, Option<&dyn Fetched>, _); 4] = [
        (
            "runner package",
            runner.usual.as_ref().map(|one| one as _),
            "agent.runner_url, agent.runner_sha256",
        ),
        (
            "runner package for arm64",
            runner.arm64.as_ref().map(|one| one as _),
            "agent.runner_url_arm64, agent.runner_sha256_arm64",
        ),
        ("agent's program", program.usual.as_ref().map(|one| one as _), "agent.url, agent.sha256"),
        (
            "agent's program for arm64",
            program.arm64.as_ref().map(|one| one as _),
            "agent.url_arm64, agent.sha256_arm64",
        ),
    ];
    given.into_iter().filter_map(|(what, fetched, keys)| Some((what, fetched?, keys))).collect()
}

fn of_kind<T: runyard_core::model::Record>(items: &[Item]) -> Vec<T> {
    let of_kind = items.iter().filter(|item| runyard_core::model::kind_of(item) == Some(T::KIND));
    let record = |item: &Item| match read::<T>(item) {
        Reading::Record(record) => Some(record),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    };
    of_kind.filter_map(record).collect()
}

/// Returns the repositories that have requested machines of the class, and those that its spec names without a `*`.
fn repositories(pool: &Pool, requests: &[Request]) -> Vec<Repository> {
    let named = pool.spec.repositories.iter().filter(|glob| !glob.contains('*'));
    let named = named.filter_map(|name| Repository::parse_at_github(name).ok());
    let class = pool.spec.resource_class.as_str();
    let asked = requests.iter().filter(|request| request.intent.resource_class == class);
    let all = named.chain(asked.map(|request| request.id.repository.clone()));
    all.map(|repository| repository.folded()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Checks whether the operator registers runners of the class ahead of claims. It is an error if the class requires it
/// and cannot have it; otherwise it only costs time.
fn registered_ahead(spec: &PoolSpec, kind: ScopeKind) -> Check {
    const WHAT: &str = "runners registered ahead";
    let organization = match kind {
        ScopeKind::Organization => true,
        ScopeKind::Repository => false,
    };
    let mut lacks = spec.ahead_lacks().chain(spec.operator_lacks(true, organization)).peekable();
    match (lacks.peek(), spec.registered_ahead) {
        (Some(off), RegisteredAhead::Always) => Check::wrong(WHAT, off.why(), off.fix()),
        (Some(_) | None, RegisteredAhead::Auto | RegisteredAhead::Never | RegisteredAhead::Always) => {
            Check::good(WHAT, AheadStatus::of(lacks).message)
        }
    }
}

fn scope(repository: &Repository, kind: ScopeKind) -> Scope {
    let owner = repository.owner().to_owned();
    match kind {
        ScopeKind::Organization => Scope::Organization { owner },
        ScopeKind::Repository => Scope::Repository { owner, name: repository.name().to_owned() },
    }
}

/// Returns the failed checks as findings.
pub(super) fn findings(checked: &[Checked]) -> Vec<Finding> {
    let finding = |checked: &Checked| match &checked.check.outcome {
        Outcome::Good(_) | Outcome::Unchecked { .. } => None,
        Outcome::Wrong { problem, fix } => Some(Finding {
            severity: EventType::Warning,
            reason: "Preflight",
            record: checked.record.clone(),
            problem: format!("{}: {problem}", checked.check.what),
            fix: fix.clone(),
            mend: Vec::new(),
        }),
    };
    checked.iter().filter_map(finding).collect()
}

/// Returns lines for the checks that passed or could not be made; failed checks are findings.
pub(super) fn lines(checked: &[Checked]) -> Vec<String> {
    let line = |Checked { record, check }: &Checked| match &check.outcome {
        Outcome::Good(told) => Some(format!("good: {record}: {}: {told}", check.what)),
        Outcome::Unchecked { why, fix } => {
            Some(format!("not checked: {record}: {}: {why}\n  fix: {fix}", check.what))
        }
        Outcome::Wrong { .. } => None,
    };
    checked.iter().filter_map(line).collect()
}

/// Returns all checks for programs.
pub(super) fn document(checked: &[Checked]) -> Vec<Value> {
    let item = |Checked { record, check }: &Checked| {
        let (state, message, fix) = match &check.outcome {
            Outcome::Good(told) => ("good", told, ""),
            Outcome::Wrong { problem, fix } => ("wrong", problem, fix.as_str()),
            Outcome::Unchecked { why, fix } => ("unchecked", why, fix.as_str()),
        };
        json!({"record": record, "check": check.what, "state": state, "message": message, "fix": fix})
    };
    checked.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_that_machines_fetch_is_checked_by_its_own_keys() {
        let digest = |one: char| one.to_string().repeat(64);
        let given = [
            ("RUNYARD_GITHUB__KIND", "none".to_owned()),
            ("RUNYARD_AGENT__RUNNER_VERSION", "2.330.0".to_owned()),
            ("RUNYARD_AGENT__RUNNER_URL", "https://example.com/runner-x64".to_owned()),
            ("RUNYARD_AGENT__RUNNER_SHA256", digest('a')),
            ("RUNYARD_AGENT__RUNNER_URL_ARM64", "https://example.com/runner-arm64".to_owned()),
            ("RUNYARD_AGENT__RUNNER_SHA256_ARM64", digest('b')),
            ("RUNYARD_AGENT__URL_ARM64", "https://example.com/agent-arm64".to_owned()),
            ("RUNYARD_AGENT__SHA256_ARM64", digest('c')),
        ];
        let config =
            Config::load(None, given.into_iter().map(|(name, value)| (name.to_owned(), value))).unwrap();
        let checked = packages(&config).into_iter().map(|(what, fetched, keys)| (what, fetched.url(), keys));
        assert_eq!(
            checked.collect::<Vec<_>>(),
            [
                ("runner package", "https://example.com/runner-x64", "agent.runner_url, agent.runner_sha256"),
                (
                    "runner package for arm64",
                    "https://example.com/runner-arm64",
                    "agent.runner_url_arm64, agent.runner_sha256_arm64"
                ),
                (
                    "agent's program for arm64",
                    "https://example.com/agent-arm64",
                    "agent.url_arm64, agent.sha256_arm64"
                ),
            ]
        );
    }
}
