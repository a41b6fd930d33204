//! The inputs of the yard: records that are read, listed, written or streamed, and the responses of the other ports.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::{
    Agent, ClassName, Instance, InstanceArn, InstanceId, Item, Launch, LaunchId, Notice, Pool, Record,
    RecordId, Request, RequestKey,
};
use crate::ports::{ComputeError, Launched, Machine, MachineState, StateReason};

/// A fact that this process observed.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A change of the table: the record, or its removal. Changes of one record arrive in their order.
    Record(RecordId, Option<Item>),
    /// A record on a page of a list of the table that began at this moment of the monotonic clock.
    Shown(Duration, RecordId, Item),
    /// A record that was just written here.
    Written(Box<Written>),
    /// A strong read of a record that began at this moment of the monotonic clock; it proves absence and silence too.
    Looked(Duration, RecordId, Option<Item>),
    /// A complete list of the table that began at this moment: every key it showed or that was seen otherwise since.
    Listed(Duration, BTreeSet<RecordId>),
    /// The response to a launch.
    Ordered(LaunchId, Result<Launched, ComputeError>),
    /// A machine's termination was requested.
    Ended(InstanceArn),
    /// Why a machine ended, in the provider's words. It is observed before the state, so that the end is recorded with
    /// its reason.
    WhyEnded(InstanceArn, StateReason),
    /// The last line of a machine's console (`last_console_line`); none where its provider has none yet.
    Console(InstanceArn, Option<String>),
    /// A machine's state at the provider; none when the provider does not know it.
    Stands(InstanceArn, Option<MachineState>),
    /// A machine was announced.
    Announced(InstanceArn),
    /// The announcement of a machine was deleted.
    Unannounced(InstanceArn),
    /// Machines that a class's queue announced as free.
    Hints(ClassName, Vec<InstanceId>),
    /// A class's queue did not respond and is not used for a while.
    QueueDown(ClassName),
    /// A machine's runner was removed at GitHub after its end.
    Swept(InstanceArn),
    /// All our machines, as the provider lists them.
    Inventory(Vec<Machine>),
    /// A notice from EC2 about a machine.
    Notice(Notice),
    /// Whether GitHub responded to a call about a machine.
    GitHub(InstanceArn, bool),
    /// GitHub reports the runner of a machine's last claim as busy and does not remove it.
    RunnerBusy(InstanceArn),
    /// A call that a machine waits for was put off for this long, to keep within GitHub's limits.
    PutOff(InstanceArn, Duration),
    /// GitHub did not give the runner of a machine the label of its claim: its error message where it refused, none
    /// where the outcome is unknown.
    LabelFailed(InstanceArn, Option<String>),
    /// GitHub gave the runner of a machine the label of its claim.
    LabelGiven(InstanceArn),
    /// GitHub refused to register the runner of a machine ahead of a claim.
    AheadRefused(InstanceArn),
    /// The runner that was to be deleted has a job, so it has the label of its claim.
    LabelSet(InstanceArn),
    /// A request is refused because GitHub does not know its run.
    RunRefused(RequestKey, String),
    /// What the history table has under the key of a new request: how the request before it ended, none where there was
    /// none, or where the table did not answer.
    Recalled(RequestKey, Option<String>),
    /// A pool's status was written.
    Reported(ClassName),
}

/// A record that this process wrote, so that its stored form need not be parsed.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "it is always in a box")]
pub enum Written {
    /// A machine.
    Instance(Instance),
    /// Its agent.
    Agent(Agent),
    /// A request.
    Request(Request),
    /// A launch.
    Launch(Launch),
    /// A pool.
    Pool(Pool),
}

impl Written {
    /// Returns the record's key.
    pub fn key(&self) -> RecordId {
        match self {
            Self::Instance(record) => record.key(),
            Self::Agent(record) => record.key(),
            Self::Request(record) => record.key(),
            Self::Launch(record) => record.key(),
            Self::Pool(record) => record.key(),
        }
    }
}
