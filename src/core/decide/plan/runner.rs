//! What does a machine's runner need from GitHub? Taken from the records of its machine, its request and its class.

use std::collections::BTreeSet;

use crate::model::{
    Ahead, AheadPlace, Instance, Keep, PoolSpec, RegistrationMode, Repository, Request, RequestKey,
    runner_name,
};

/// The registration of a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerConfig {
    /// The request that it serves; its repository is where the runner is registered.
    pub request: RequestKey,
    /// All labels.
    pub labels: Vec<String>,
    /// The runner group; empty for the default one.
    pub group: String,
    /// The kind of credential that it registers with.
    pub mode: RegistrationMode,
    /// The directories that the class keeps.
    pub keep: Vec<Keep>,
    /// Whether a person tries the class, so that there is no run to ask GitHub for.
    pub trial: bool,
}

impl RunnerConfig {
    /// Builds the registration of the runner of a request of this class.
    pub(crate) fn of(request: &Request, spec: &PoolSpec) -> Self {
        Self {
            request: request.id.clone(),
            labels: request.labels(&spec.labels),
            group: spec.runner_group.clone(),
            mode: spec.registration_mode,
            keep: spec.keep.clone(),
            trial: request.intent.trial,
        }
    }
}

/// The credential that a machine lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// To register this runner.
    Registration(RunnerConfig),
    /// To register a runner anew, under the claim's next name: the last one ended without being asked to, or without a
    /// job.
    Anew {
        /// The new registration.
        runner: RunnerConfig,
        /// The last runner, where GitHub may still list it: it is removed once the box is written.
        dead: Option<StaleRunners>,
    },
    /// To deregister its runner from this repository.
    Removal(Repository),
    /// To register a runner ahead of a claim, at this place and in this runner group.
    Ahead {
        /// The place.
        place: AheadPlace,
        /// The runner group; empty for the default one.
        group: String,
        /// GitHub's number of its former runner, which is removed.
        former: Option<u64>,
    },
    /// The operator's decision whether its claim's writes into kept directories may stay.
    Promotion(KeepQuestion),
}

impl Credential {
    /// Returns the kind of action by which failures are counted: no claim waits for the decision about kept
    /// directories, nor for a pause after that decision failed.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Registration(_) | Self::Anew { .. } | Self::Removal(_) | Self::Ahead { .. } => "credential",
            Self::Promotion(_) => "promotion",
        }
    }
}

/// The question whether a claim's writes into kept directories may stay there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepQuestion {
    /// The request of the claim; GitHub is asked for its run.
    pub request: RequestKey,
    /// The directories that the class keeps.
    pub keep: Vec<Keep>,
}

/// The runners that a machine's last claim may have left at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleRunners {
    /// Where they were registered.
    pub place: AheadPlace,
    /// Whether they are runners of a scale set.
    pub of_set: bool,
    /// Their names.
    pub names: Vec<String>,
    /// GitHub's number of one of them, as its agent reports it.
    pub number: Option<u64>,
}

impl StaleRunners {
    /// Lists the runners that a machine's last claim may have left. In token mode a claim has one runner. Of single-use
    /// runners, GitHub deletes the one that served its job: only the last is left. Where the mode is unknown, or a
    /// claim's runner was registered anew, both are looked for. Returns none without a claim of a request and without a
    /// runner that was registered ahead of one.
    pub(crate) fn of(instance: &Instance, mode: Option<RegistrationMode>) -> Option<Self> {
        let ahead = instance.ahead.iter().map(|ahead| Ahead::name_of(&ahead.id));
        let Some(claim) = &instance.claim else {
            let place = AheadPlace::of(&instance.trust_domain).filter(|_| instance.ahead.is_some())?;
            return Some(Self { place, of_set: false, names: ahead.collect(), number: None });
        };
        let request = claim.request.request()?;
        let (place, of_set) =
            (AheadPlace::Repository(request.repository.to_string()), request.set().is_some());
        let last = instance.registration_seq.max(1);
        let numbers = match mode {
            Some(RegistrationMode::Run) => BTreeSet::from([1]),
            Some(RegistrationMode::Job) => BTreeSet::from([last]),
            None => BTreeSet::from([1, last]),
        };
        let names = numbers.into_iter().map(|number| runner_name(&claim.id, number)).chain(ahead).collect();
        Some(Self { place, of_set, names, number: None })
    }
}

/// The GitHub step that goes with the write of a machine's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtGitHub {
    /// Nothing.
    Nothing,
    /// The machine is given back: the credential that removes its runner from this repository goes with the write if it
    /// is at hand.
    AttachRemoval(Repository),
    /// The machine goes to the pool: these runners are removed first, or GitHub itself confirms that they are gone,
    /// however sure its agent is.
    ConfirmRemoved(StaleRunners),
    /// GitHub must know the runner of this number by this name, and list it as listening.
    Confirm {
        /// Where it was registered.
        place: AheadPlace,
        /// GitHub's number of it, as its agent reports it.
        number: u64,
        /// Its name.
        name: String,
    },
    /// This runner, which was registered ahead, gets the labels of its claim; GitHub is asked for its run before.
    Label {
        /// The registration of the claim's runner.
        runner: RunnerConfig,
        /// GitHub's number of it.
        number: u64,
    },
    /// A runner that was registered ahead is deleted. The credential that registers the claim's own runner goes with
    /// the write if it is at hand.
    Forget {
        /// Its place and GitHub's number of it, once GitHub confirmed that.
        number: Option<(AheadPlace, u64)>,
        /// For a claim, the registration of its runner.
        runner: Option<RunnerConfig>,
    },
}
