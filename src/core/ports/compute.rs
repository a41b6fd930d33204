//! The compute port. Each launch has a client token that makes a repeated call harmless.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::model::{
    ClassName, InstanceArn, InstanceId, InstanceTypes, Launch, LaunchId, PoolSpec, UsageClass,
};

/// The state of a machine at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineState {
    /// Starting.
    Pending,
    /// Running.
    Running,
    /// Stopped or stopping, which counts as lost.
    Stopped,
    /// Being ended.
    ShuttingDown,
    /// Ended.
    Terminated,
}

impl MachineState {
    /// Returns whether it may still serve.
    pub const fn alive(self) -> bool {
        match self {
            Self::Pending | Self::Running => true,
            Self::Stopped | Self::ShuttingDown | Self::Terminated => false,
        }
    }
}

/// A machine that carries our table's tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its id.
    pub id: InstanceId,
    /// Its ARN.
    pub arn: InstanceArn,
    /// Its class, by its tag; none when the tag is missing or unreadable.
    pub class: Option<ClassName>,
    /// The launch that brought it, by its tag.
    pub launch: Option<LaunchId>,
    /// The attempt of that launch, by its tag.
    pub attempt: u32,
    /// EC2's type name.
    pub instance_type: String,
    /// How it is paid for.
    pub usage_class: UsageClass,
    /// vCPUs, 0 when not known.
    pub cpu: u32,
    /// MiB, 0 when not known.
    pub mmem: u32,
    /// Its zone.
    pub zone: String,
    /// Its state.
    pub state: MachineState,
    /// When it was launched, by the provider's clock.
    pub launched_at: Timestamp,
}

/// Why a machine ended, from the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateReason {
    /// The provider's text, for people.
    pub why: String,
    /// Whether it never started for a reason that a person must fix: more of its kind would end in the same way.
    pub never_began: bool,
}

/// The machines to launch.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchOrder {
    /// The intent: token, count, usage class.
    pub launch: Launch,
    /// The class's current spec.
    pub spec: PoolSpec,
    /// The allowed types: the request's, else the class's.
    pub types: InstanceTypes,
    /// The image that is pinned, where the class names it by a parameter.
    pub image: Option<String>,
}

impl LaunchOrder {
    /// Returns the largest machine that it may bring, in vCPUs and MiB, where a request chose types and its class names
    /// none.
    pub fn largest(&self) -> (Option<u32>, Option<u32>) {
        let chosen = !self.types.0.is_empty() && self.types != self.spec.allowed_instance_types;
        if chosen { self.spec.largest_chosen() } else { (None, None) }
    }
}

/// A part of a launch that was not fulfilled, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The provider's code, for example `InsufficientInstanceCapacity`.
    pub code: String,
    /// Its message.
    pub message: String,
}

/// The result of a launch: possibly fewer machines than requested, with the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launched {
    /// The machines.
    pub machines: Vec<Machine>,
    /// Why there are not more.
    pub shortfalls: Vec<Shortfall>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComputeError {
    /// Too many calls. Later.
    #[error("the rate of launches is limited")]
    Throttled,
    /// No capacity. Try later, or another offering.
    #[error("no capacity: {0}")]
    NoCapacity(String),
    /// No response: it may or may not have happened; a retry with the same token is safe.
    #[error("no answer: {0}")]
    Unknown(String),
    /// A person must fix credentials, permissions, quotas or the class's template.
    #[error("refused: {0}")]
    Refused(String),
    /// The token was used with other parameters: this attempt is spent.
    #[error("the launch's token was used with other parameters: {0}")]
    TokenSpent(String),
}

/// The compute port.
#[async_trait]
pub trait Compute: Send + Sync {
    /// Returns whether `list` and `describe` know all machines. Where they do not, no machine counts as missing and
    /// none as unrecorded.
    fn keeps_inventory(&self) -> bool;
    /// Stops launches that have not begun; those in progress continue.
    fn stop(&self) {}
    /// Launches machines. A token that was used before returns the machines of that launch.
    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError>;
    /// Checks whether machines of a class could be launched according to its spec, without launching or changing
    /// anything. A provider without such a check accepts.
    async fn check(&self, _spec: &PoolSpec) -> Result<(), ComputeError> {
        Ok(())
    }
    /// Returns the image that the parameter of a class's `launch.ami` names now. A provider without images returns the
    /// name as it is.
    async fn resolve(&self, spec: &PoolSpec) -> Result<String, ComputeError> {
        Ok(spec.launch.ami.clone().unwrap_or_default())
    }
    /// Ends machines; one that is gone already is no error.
    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError>;
    /// Returns the states of these machines; unknown ones are left out.
    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError>;
    /// Returns why a machine ended, if the provider reported it when the machine was last listed or described.
    fn why_ended(&self, _id: &InstanceId) -> Option<StateReason> {
        None
    }
    /// Returns the end of a machine's console output, at most 64 KiB. None while its provider has no output yet, which
    /// may take minutes after the machine's end, and always where a provider keeps no consoles.
    async fn console(&self, _id: &InstanceId) -> Result<Option<String>, ComputeError> {
        Ok(None)
    }
    /// Lists every machine that carries our table's tag, all pages; a list that could not be read to its end is an
    /// error.
    async fn list(&self) -> Result<Vec<Machine>, ComputeError>;
}
