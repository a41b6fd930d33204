//! What the yard learns from: records as they are read, listed, written or told, and what the other ports answered.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::{
    Agent, ClassName, Instance, InstanceArn, InstanceId, Item, Launch, LaunchId, Notice, Pool, Record,
    RecordId, Request, RequestKey,
};
use crate::ports::{ComputeError, Launched, Machine, MachineState, StateReason};

/// Something this process saw.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A record as a change of the table tells it, or that it is gone. Changes of one record come in their order.
    Record(RecordId, Option<Item>),
    /// A record on a page of a list of the table that began at this moment of the monotonic clock.
    Shown(Duration, RecordId, Item),
    /// A record that was just written here.
    Written(Box<Written>),
    /// A strong read of a record that began at this moment of the monotonic clock; also tells absence and silence.
    Looked(Duration, RecordId, Option<Item>),
    /// A complete list of the table, begun at this moment: every key it showed or that was seen otherwise since.
    Listed(Duration, BTreeSet<RecordId>),
    /// What a launch brought.
    Ordered(LaunchId, Result<Launched, ComputeError>),
    /// The maker was asked to end a machine.
    Ended(InstanceArn),
    /// Why the maker says a machine ended. Told before where it stands, so that its end is told with it.
    WhyEnded(InstanceArn, StateReason),
    /// Where the maker says a machine stands.
    Stands(InstanceArn, Option<MachineState>),
    /// A machine was announced.
    Announced(InstanceArn),
    /// What a class's queue says about who is free.
    Hints(ClassName, Vec<InstanceId>),
    /// A class's queue did not answer: it is done without for a while.
    QueueDown(ClassName),
    /// A machine's runner was looked for at GitHub after its end.
    Swept(InstanceArn),
    /// All machines that are ours, as their maker lists them.
    Inventory(Vec<Machine>),
    /// What EC2 says of a machine from outside.
    Notice(Notice),
    /// Whether GitHub answered.
    GitHub(bool),
    /// GitHub does not know a request's run, and why.
    RunRefused(RequestKey, String),
    /// A pool's status was written.
    Reported(ClassName),
}

/// A record of a kind that is judged, as this process wrote it: nothing has to be read out of its stored form.
#[derive(Clone, Debug)]
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
    /// The record's key.
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
