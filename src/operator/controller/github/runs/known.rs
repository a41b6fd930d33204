//! What the loop knows of runs: the requests of each, the spot machines that were reclaimed from them, and the classes
//! that serve jobs by their labels.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::model::{Asked, ClaimId, Life, PoolSpec, Reason, Repository, Request, RequestKey, UsageClass};
use crate::yard::Yard;

/// A question to the loop for its requests and machines.
pub(crate) type Ask = oneshot::Sender<Known>;

/// A repository: its owner and its name, in lower case.
pub(super) type Repo = (String, String);

/// A request of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Whether it wants machines and was not released.
    pub(super) live: bool,
    /// Whether the workflow of its run is to be written into it.
    pub(super) unnamed: bool,
    /// Who made it.
    pub(super) asked: Asked,
}

/// The requests of a run.
pub(super) type Requests = BTreeMap<RequestKey, Held>;

/// The loop's requests and machines.
#[derive(Default)]
pub(crate) struct Known {
    /// The requests of the runs of each repository.
    pub(super) runs: BTreeMap<Repo, BTreeMap<u64, Requests>>,
    /// The spot machines that were reclaimed from each request, by claim, with the time.
    pub(super) lost: BTreeMap<RequestKey, Vec<(ClaimId, Timestamp)>>,
    /// The classes, if any of them serves jobs by their labels.
    pub(super) classes: Vec<PoolSpec>,
}

impl Known {
    /// Collects the requests, machines and classes of the yard.
    pub(crate) fn of(yard: &Yard) -> Self {
        let mut known = Self::default();
        for (key, request) in yard.requests().filter(|(_, request)| !request.intent.trial) {
            let Some(run) = number(&request.id) else { continue };
            let runs = known.runs.entry(repo(key)).or_default();
            runs.entry(run).or_default().insert(key.clone(), held(request));
        }
        for instance in yard.instances().map(|tracked| &tracked.instance) {
            let Life::Terminated { reason: Reason::Interrupted | Reason::Vanished, .. } = instance.life
            else {
                continue;
            };
            let claim = instance.claim.as_ref().filter(|_| instance.facts.usage_class == UsageClass::Spot);
            let of = claim.and_then(|claim| Some((claim.request.request()?, claim)));
            if let Some((key, claim)) = of.filter(|(key, _)| known.has(key)) {
                known.lost.entry(key.clone()).or_default().push((claim.id.clone(), instance.state_since));
            }
        }
        let specs = || yard.classes().filter_map(|(_, class)| class.pool.as_ref()).map(|pool| &pool.spec);
        if specs().any(|spec| spec.serves_labels().is_some()) {
            known.classes = specs().cloned().collect();
        }
        known
    }

    fn has(&self, key: &RequestKey) -> bool {
        self.of_run(key).is_some_and(|requests| requests.contains_key(key))
    }

    /// Returns the requests of the same run.
    pub(super) fn of_run(&self, key: &RequestKey) -> Option<&Requests> {
        self.runs.get(&repo(key))?.get(&number(key)?)
    }

    /// Returns the runs of a repository that have requests.
    pub(super) fn runs_of(&self, repo: &Repo) -> impl Iterator<Item = (u64, &Requests)> {
        self.runs.get(repo).into_iter().flatten().map(|(run, requests)| (*run, requests))
    }

    /// Returns whether a request of the repository is open.
    pub(super) fn is_live(&self, repo: &Repo) -> bool {
        self.runs_of(repo).any(|(_, requests)| requests.values().any(|held| held.live))
    }

    /// Returns whether a class serves the jobs of this repository by their labels.
    pub(super) fn serves_labels_of(&self, repository: &Repository) -> bool {
        self.classes.iter().any(|spec| spec.serves_labels().is_some() && spec.admits(repository))
    }

    /// Returns the repositories that classes which serve labels name in full.
    pub(super) fn named(&self) -> BTreeSet<Repo> {
        let serving = self.classes.iter().filter(|spec| spec.serves_labels().is_some());
        let globs = serving.flat_map(|spec| &spec.repositories).filter(|glob| !glob.contains('*'));
        globs
            .filter_map(|glob| Repository::parse_at_github(glob).ok())
            .map(|repository| repo_of(&repository))
            .collect()
    }

    /// Returns whether a class that serves labels admits repositories by a pattern.
    pub(super) fn has_patterns(&self) -> bool {
        let serving = self.classes.iter().filter(|spec| spec.serves_labels().is_some());
        serving.flat_map(|spec| &spec.repositories).any(|glob| glob.contains('*'))
    }
}

/// Returns whether a request's run is to be watched: it wants machines and was not released.
pub(super) fn is_live(request: &Request) -> bool {
    request.phase().wants_machines() && !request.is_released() && request.has_run_at_github()
}

fn held(request: &Request) -> Held {
    let live = is_live(request);
    let unnamed = live && request.status.ready_at.is_some() && request.status.workflow.is_none();
    Held { live, unnamed, asked: request.intent.asked }
}

/// Parses GitHub's run id, which is a number; any other id belongs to another system.
pub(super) fn number(id: &RequestKey) -> Option<u64> {
    id.run_id.as_str().parse().ok()
}

/// Returns the repository of a request.
pub(super) fn repo(key: &RequestKey) -> Repo {
    repo_of(&key.repository)
}

pub(super) fn repo_of(repository: &Repository) -> Repo {
    let repository = repository.folded();
    (repository.owner().to_owned(), repository.name().to_owned())
}

/// Returns a repository by its name.
pub(super) fn repository((owner, name): &Repo) -> Option<Repository> {
    Repository::parse_at_github(&format!("{owner}/{name}")).ok()
}
