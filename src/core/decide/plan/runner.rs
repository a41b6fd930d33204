//! What a machine's runner needs of GitHub, taken from the records of its machine, its request and its class.

use std::collections::BTreeSet;

use crate::model::{
    Ahead, AheadPlace, Instance, Keep, PoolSpec, RegistrationMode, Repository, Request, RequestKey,
    runner_name,
};

/// What a runner is registered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerConfig {
    /// The request it serves; its repository is where the runner is registered.
    pub request: RequestKey,
    /// Every label it gets.
    pub labels: Vec<String>,
    /// The runner group; empty for the default one.
    pub group: String,
    /// Which kind of credential it registers with.
    pub mode: RegistrationMode,
    /// The directories that the class keeps.
    pub keep: Vec<Keep>,
    /// Whether a person tries the class, so that there is no run to ask GitHub for.
    pub trial: bool,
}

impl RunnerConfig {
    /// The runner of a request of this class.
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

/// Which credential a machine lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// To register this runner.
    Registration(RunnerConfig),
    /// To register a runner anew, under the claim's next name: the last one ended without being asked, or without a job.
    Anew {
        /// What it is to be.
        runner: RunnerConfig,
        /// The last one, where GitHub may still list it: it is removed once the box is written.
        dead: Option<StaleRunners>,
    },
    /// To deregister its runner of this repository.
    Removal(Repository),
    /// To register a runner ahead of a claim, here and in this runner group.
    Ahead {
        /// Where.
        place: AheadPlace,
        /// The runner group; empty for the default one.
        group: String,
        /// GitHub's number of the one that it had before, which is removed.
        former: Option<u64>,
    },
    /// To keep what its claim wrote: the operator's word on that.
    Promotion(KeepQuestion),
}

impl Credential {
    /// The kind of action, by which failures are counted: no claim waits for what becomes of kept directories, nor for
    /// a pause after that failed.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Registration(_) | Self::Anew { .. } | Self::Removal(_) | Self::Ahead { .. } => "credential",
            Self::Promotion(_) => "promotion",
        }
    }
}

/// Whether what a claim wrote into kept directories may stay there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepQuestion {
    /// The request of the claim; its run is asked for.
    pub request: RequestKey,
    /// The directories that the class keeps.
    pub keep: Vec<Keep>,
}

/// The runners that a machine's last claim may have left at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleRunners {
    /// Where they were registered.
    pub place: AheadPlace,
    /// Their names.
    pub names: Vec<String>,
    /// GitHub's number of one of them, by the word of its agent.
    pub number: Option<u64>,
}

impl StaleRunners {
    /// With tokens a claim has one runner. Of single-use ones GitHub drops what served its job: only the last is left.
    /// Where nobody knows which kind it was, or a claim's runner was registered anew, both are looked for. None without a claim of a request and without a runner
    /// that was registered ahead of one.
    pub(crate) fn of(instance: &Instance, mode: Option<RegistrationMode>) -> Option<Self> {
        let ahead = instance.ahead.iter().map(|ahead| Ahead::name_of(&ahead.id));
        let Some(claim) = &instance.claim else {
            let place = AheadPlace::of(&instance.trust_domain).filter(|_| instance.ahead.is_some())?;
            return Some(Self { place, names: ahead.collect(), number: None });
        };
        let place = AheadPlace::Repository(claim.request.request()?.repository.to_string());
        let last = instance.registration_seq.max(1);
        let numbers = match mode {
            Some(RegistrationMode::Run) => BTreeSet::from([1]),
            Some(RegistrationMode::Job) => BTreeSet::from([last]),
            None => BTreeSet::from([1, last]),
        };
        let names = numbers.into_iter().map(|number| runner_name(&claim.id, number)).chain(ahead).collect();
        Some(Self { place, names, number: None })
    }
}

/// What is done about a machine's runner together with the write of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtGitHub {
    /// Nothing.
    Nothing,
    /// The machine is given back: what removes its runner from this repository goes with the write if it is at hand.
    AttachRemoval(Repository),
    /// The machine goes to the pool: these are removed first, or GitHub itself says that they are gone, however sure
    /// its agent is.
    ConfirmRemoved(StaleRunners),
    /// GitHub must know the runner of this number by this name, and that it listens.
    Confirm {
        /// Where it was registered.
        place: AheadPlace,
        /// GitHub's number of it, by the word of its agent.
        number: u64,
        /// Its name.
        name: String,
    },
    /// This runner, which was registered ahead, gets the labels of its claim; its run is asked for before.
    Label {
        /// What the claim's runner is to be.
        runner: RunnerConfig,
        /// GitHub's number of it.
        number: u64,
    },
    /// A runner that was registered ahead is deleted. What registers the claim's own goes with the write if it is at
    /// hand.
    Forget {
        /// Where it is, and GitHub's number of it, once GitHub confirmed that.
        number: Option<(AheadPlace, u64)>,
        /// Of a claim, what its runner is to be.
        runner: Option<RunnerConfig>,
    },
}
