//! What the loop knows of runs: the requests of each, the spot machines that were reclaimed from them, and the classes
//! that serve jobs by their labels.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::model::{Asked, ClaimId, PoolSpec, Repository, Request, RequestKey};
use crate::yard::Yard;

/// A question to the loop for what is new of its requests and machines.
pub(crate) type Ask = oneshot::Sender<News>;

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

/// What is new of the loop's requests and machines.
pub(crate) struct News {
    /// Whether the runs are all that have requests; otherwise they are those of which a request changed, and one
    /// without requests has none any more.
    all: bool,
    runs: BTreeMap<Repo, BTreeMap<u64, Requests>>,
    lost: BTreeMap<RequestKey, Vec<(ClaimId, Timestamp)>>,
    classes: Vec<PoolSpec>,
}

impl News {
    /// Collects the requests that changed since the last question, and the machines and classes of the yard.
    pub(crate) fn of(yard: &mut Yard) -> Self {
        let changed = yard.take_changed();
        let mut runs: BTreeMap<Repo, BTreeMap<u64, Requests>> = BTreeMap::new();
        match &changed {
            None => {
                for (key, request) in yard.requests().filter(|(_, request)| counts(request)) {
                    let Some(run) = number(key) else { continue };
                    let of_run = runs.entry(repo(key)).or_default().entry(run).or_default();
                    of_run.insert(key.clone(), held(request));
                }
            }
            Some(changed) => {
                for key in changed {
                    let Some(run) = number(key) else { continue };
                    let of_repo = runs.entry(repo(key)).or_default();
                    of_repo.entry(run).or_insert_with(|| {
                        let requests = yard.requests_of_run(key).filter(|(_, request)| counts(request));
                        requests.map(|(key, request)| (key.clone(), held(request))).collect()
                    });
                }
            }
        }
        let mut lost: BTreeMap<RequestKey, Vec<(ClaimId, Timestamp)>> = BTreeMap::new();
        for instance in yard.taken_back() {
            let of = instance.claim.as_ref().and_then(|claim| Some((claim.request.request()?, claim)));
            let Some((key, claim)) = of else { continue };
            if number(key).is_some() && yard.request(key).is_some_and(counts) {
                lost.entry(key.clone()).or_default().push((claim.id.clone(), instance.state_since));
            }
        }
        let specs = || yard.classes().filter_map(|(_, class)| class.pool.as_ref()).map(|pool| &pool.spec);
        let serves = specs().any(|spec| spec.serves_labels().is_some());
        let classes = if serves { specs().cloned().collect() } else { Vec::new() };
        Self { all: changed.is_none(), runs, lost, classes }
    }
}

impl News {
    /// Returns whether a request of a run may have changed.
    pub(super) fn tells_of(&self, repo: &Repo, run: u64) -> bool {
        self.all || self.runs.get(repo).is_some_and(|runs| runs.contains_key(&run))
    }
}

impl Known {
    /// Takes in what is new.
    pub(super) fn learn(&mut self, news: News) {
        (self.lost, self.classes) = (news.lost, news.classes);
        if news.all {
            self.runs = news.runs;
            return;
        }
        for (repo, runs) in news.runs {
            let known = self.runs.entry(repo.clone()).or_default();
            for (run, requests) in runs {
                if requests.is_empty() {
                    known.remove(&run);
                } else {
                    known.insert(run, requests);
                }
            }
            if known.is_empty() {
                self.runs.remove(&repo);
            }
        }
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

/// Returns whether a request is of a run, and no trial of a machine.
const fn counts(request: &Request) -> bool {
    !request.intent.trial
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::model::{Record as _, RecordId};
    use crate::yard::{Now, Observation};

    fn item(run: u64, name: &str, phase: &str, version: u64) -> crate::model::Item {
        let fields = json!({
            "pk": format!("request#acme/web#{run}"), "sk": format!("request#{name}#1"), "kind": "request",
            "version": version, "runId": run.to_string(), "attempt": 1, "repository": "acme/web", "name": name,
            "resourceClass": "linux", "count": 1, "desired": "provisioned", "generation": 1, "phase": phase,
            "acceptedAt": Timestamp::UNIX_EPOCH, "observedGeneration": 1,
        });
        let item: serde_dynamo::Item = serde_dynamo::to_item(fields).unwrap();
        item.into_inner().into_iter().collect()
    }

    /// The watch asks every few seconds: an answer must not grow with the requests that are over.
    #[test]
    fn an_answer_has_the_runs_that_changed_and_with_them_all_is_known() {
        let now = Now { wall: Timestamp::UNIX_EPOCH, mono: Duration::ZERO, seen: Duration::ZERO };
        let mut yard = Yard::default();
        let see = |yard: &mut Yard, item: crate::model::Item| {
            yard.observe(Observation::Record(RecordId::of(&item).unwrap(), Some(item)), &now);
        };
        for run in 0..500 {
            see(&mut yard, item(run, "default", "Released", 1));
        }
        let mut known = Known::default();
        known.learn(News::of(&mut yard));
        assert_eq!(known.runs.values().map(BTreeMap::len).sum::<usize>(), 500);
        see(&mut yard, item(7, "default", "Ready", 2));
        see(&mut yard, item(7, "other", "Released", 1));
        see(&mut yard, item(900, "default", "Pending", 1));
        let gone = RecordId::of(&item(8, "default", "Released", 1)).unwrap();
        yard.observe(Observation::Record(gone, None), &now);
        let news = News::of(&mut yard);
        let told: Vec<(u64, usize)> =
            news.runs.values().flatten().map(|(run, requests)| (*run, requests.len())).collect();
        assert_eq!((news.all, told), (false, vec![(7, 2), (8, 0), (900, 1)]));
        known.learn(news);
        let (mut anew, mut whole) = (Known::default(), Yard::default());
        for (_, request) in yard.requests() {
            see(&mut whole, request.to_item());
        }
        anew.learn(News::of(&mut whole));
        assert_eq!(known.runs, anew.runs);
        assert!(News::of(&mut yard).runs.is_empty(), "nothing changed since");
    }
}
