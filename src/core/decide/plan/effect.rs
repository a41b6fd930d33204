//! The effects that a plan can have. Each effect is one call of one port and carries everything that the call needs;
//! each write carries the record that it replaces and the record that it writes, so carrying it out leaves no choice.

use crate::model::{
    Agent, ClassName, Instance, InstanceArn, Launch, Pool, PoolMessage, RecordId, Request, RequestKey,
    Versioned,
};
use crate::ports::LaunchOrder;

use super::runner::{AtGitHub, Credential, RunnerConfig, StaleRunners};

/// A record before and after a write.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<T> {
    /// The record as it was read.
    pub before: T,
    /// The record as it will be written.
    pub after: T,
}

impl<T: Versioned> Step<T> {
    /// Builds the next version of a record, changed by `change`.
    pub fn of(before: &T, now: jiff::Timestamp, change: impl FnOnce(&mut T)) -> Self {
        let mut after = before.clone();
        after.advance(now);
        change(&mut after);
        after.settle(before);
        Self { before: before.clone(), after }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write an instance record. Fenced by its version.
    Instance(Box<Step<Instance>>, AtGitHub),
    /// Tombstone a machine for silence. Fenced by its version and the heartbeat that was judged.
    Silence(Box<Step<Instance>>, u64),
    /// Write a machine that a request does not know. Fenced by its version, and by the request as it was read.
    Disown(Box<Step<Instance>>, Box<Request>),
    /// Write a request record. Fenced by its version.
    Request(Box<Step<Request>>),
    /// Write a launch record. Fenced by its version.
    Launch(Box<Step<Launch>>),
    /// Write a pool's status. Fenced by its version.
    Pool(Box<Step<Pool>>),
    /// Ask the provider which image the parameter of a class names, and pin it in the pool. Fenced by its version.
    Resolve(Box<Pool>),
    /// Assign pooled machines to a request: one transaction over all their versions and the request's.
    Claim {
        /// The request, gaining the machines.
        request: Box<Step<Request>>,
        /// The machines, at most 40.
        machines: Vec<Step<Instance>>,
        /// The registration of their runners; none where there is no GitHub.
        runner: Option<Box<RunnerConfig>>,
    },
    /// Record an intent to launch: the record must be new and the lease still held by this operator.
    Intend(Box<Launch>, u64),
    /// Ask the provider for an intent's machines, by its token.
    Order(Box<LaunchOrder>),
    /// Record the machines of a launch: every machine new, the intent open, the request at the version that was read.
    Bind {
        /// The intent, becoming `Bound`.
        launch: Box<Step<Launch>>,
        /// The request, gaining the machines that it lacks.
        request: Option<Box<Step<Request>>>,
        /// The new machines with their agents.
        machines: Vec<(Instance, Agent)>,
    },
    /// Record a machine without an owner as decided to end: it must still be without a record.
    Orphan(Box<Instance>),
    /// End a machine that is tombstoned in its record.
    Terminate(InstanceArn),
    /// Ask the provider for the state of a machine.
    Describe(InstanceArn),
    /// Read the console of a machine that ended.
    Console(InstanceArn),
    /// Record that a machine is gone and remove its agent record, in one transaction.
    Bury(Box<Step<Instance>>),
    /// Announce on the class's queue that a pooled machine is free.
    Announce(InstanceArn, Box<PoolMessage>),
    /// Receive announcements of free machines from the queue, at most this many (1 to 10).
    Receive(ClassName, u32),
    /// Mint, seal and write the credential that a machine lacks. Fenced by its version.
    Credential(Box<Step<Instance>>, Box<Credential>),
    /// Remove the runners that an ended machine may have left at GitHub; none where it cannot have left any.
    SweepRunner(InstanceArn, Option<StaleRunners>),
    /// Read a record strongly before deciding on its absence or silence.
    Look(RecordId),
    /// Remove a record whose time is over. Fenced by its `expiresAt`.
    Expire(RecordId, i64),
    /// Copy the record of an ended request to the history table, and remove it here once it is there. Fenced by the
    /// version that was copied.
    Archive(RequestKey),
    /// Read what the history table has under the key of a new request.
    Recall(RequestKey),
}

/// One record of this operator that an effect writes in full, as planned.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A changed machine.
    Instance(&'a Step<Instance>),
    /// A new machine.
    Born(&'a Instance),
    /// The agent of a new machine.
    Agent(&'a Agent),
    /// A changed request.
    Request(&'a Step<Request>),
    /// A changed launch.
    Launch(&'a Step<Launch>),
    /// A pool's status.
    Pool(&'a Step<Pool>),
}

impl Effect {
    /// Returns the records that the effect writes as they are planned. An intent, a credential and an image are
    /// completed while they are carried out.
    pub fn changes(&self) -> Vec<Change<'_>> {
        match self {
            Self::Instance(step, _) | Self::Silence(step, _) | Self::Disown(step, _) | Self::Bury(step) => {
                vec![Change::Instance(step)]
            }
            Self::Request(step) => vec![Change::Request(step)],
            Self::Launch(step) => vec![Change::Launch(step)],
            Self::Pool(step) => vec![Change::Pool(step)],
            Self::Claim { request, machines, .. } => {
                machines.iter().map(Change::Instance).chain([Change::Request(request)]).collect()
            }
            Self::Bind { launch, request, machines } => {
                let born = machines.iter().flat_map(|(new, agent)| [Change::Born(new), Change::Agent(agent)]);
                let request = request.iter().map(|step| Change::Request(step));
                std::iter::once(Change::Launch(launch)).chain(request).chain(born).collect()
            }
            Self::Orphan(instance) => vec![Change::Born(instance)],
            Self::Resolve(_)
            | Self::Intend(..)
            | Self::Order(_)
            | Self::Terminate(_)
            | Self::Describe(_)
            | Self::Console(_)
            | Self::Announce(..)
            | Self::Receive(..)
            | Self::Credential(..)
            | Self::SweepRunner(..)
            | Self::Look(_)
            | Self::Expire(..)
            | Self::Archive(_)
            | Self::Recall(_) => Vec::new(),
        }
    }
}
