//! What is known of one record: its last image, and what this process learned beside it.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Agent, ClaimId, ClassName, Instance, Interruption, InterruptionAction, Launch, Life, RecordId, Request,
    Threshold, Uid,
};
use crate::ports::{ComputeError, Launched, MachineState};

/// When an agent was last seen to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its `heartbeatSeq` then.
    pub seq: u64,
    /// On the clock of successful reads.
    pub at: Duration,
}

/// A machine: its two records and what this process learned of it.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// The instance record.
    pub instance: Instance,
    /// The agent record.
    pub agent: Option<Agent>,
    /// The key its agent showed at first, while the instance record has none.
    pub(crate) first_key: Option<String>,
    /// When the agent was last seen to speak.
    pub beat: Option<Beat>,
    /// The `heartbeatSeq` that a strong read confirmed after the agent fell silent.
    pub silent: Option<u64>,
    /// When its maker was last asked to end it, and how often it was.
    pub ended: Option<(Duration, u32)>,
    /// Where its maker says it stands; `Some(None)`: its maker does not know it.
    pub stands: Option<Option<MachineState>>,
    /// Why it ended, as its maker says.
    pub(crate) why_ended: Option<String>,
    /// When its console was last read, and how often.
    pub(crate) console_read: Option<(Duration, u32)>,
    /// The last line of ours on its console, once it was read.
    pub(crate) console_line: Option<String>,
    /// When its maker was last asked where it stands, and how often it was since it was asked to end it.
    pub asked: Option<(Duration, u32)>,
    /// Whether the last list of machines did not show it, although it should.
    pub missing: bool,
    /// When it was last announced in the pool it is in.
    pub announced: Option<Duration>,
    /// The claim whose runner GitHub took for busy when it was to be removed.
    pub busy_for: Option<ClaimId>,
    /// Whether its runner was looked for at GitHub after its end.
    pub swept: bool,
    /// What EC2 said of it from outside; its agent may say so too.
    pub notice: Option<Interruption>,
    /// Whether EC2 said that it stops or ends, and was not asked about it since.
    pub changed: bool,
    /// Whether somebody else brought its deadline in the pool nearer.
    pub(crate) shortened: bool,
    /// When its deadline was seen to be set by a clock ahead of ours, on the monotonic clock; none when it was set by one
    /// that is not, or stood there before.
    pub(crate) set_ahead: Option<Duration>,
    /// When its two records were last seen to be there, on the monotonic clock.
    pub(crate) there: (Duration, Duration),
}

impl Tracked {
    pub(crate) fn new(instance: Instance) -> Self {
        Self {
            instance,
            agent: None,
            first_key: None,
            beat: None,
            silent: None,
            ended: None,
            stands: None,
            why_ended: None,
            console_read: None,
            console_line: None,
            asked: None,
            missing: false,
            announced: None,
            busy_for: None,
            swept: false,
            notice: None,
            changed: false,
            shortened: false,
            set_ahead: None,
            there: (Duration::ZERO, Duration::ZERO),
        }
    }

    /// Whether EC2 takes it back, however that is known: the end beats the risk, the earlier beats the later.
    pub fn interruption(&self) -> Option<&Interruption> {
        let told = self.agent.as_ref().and_then(|agent| agent.interruption.as_ref());
        told.into_iter().chain(self.notice.as_ref()).min_by_key(|notice| Self::weight(notice))
    }

    /// Of two notices of one machine the one that counts.
    pub(crate) fn graver(one: Interruption, other: Interruption) -> Interruption {
        if Self::weight(&other) < Self::weight(&one) { other } else { one }
    }

    /// When its agent last spoke, as far as that says something of the machine: it is live, has spoken, and its record
    /// can be read.
    pub(crate) fn spoke_at(&self) -> Option<Duration> {
        let speaks = self.instance.state().live() && self.agent.is_some();
        self.beat.filter(|beat| speaks && beat.seq > 0).map(|beat| beat.at)
    }

    fn weight(notice: &Interruption) -> (u8, Timestamp) {
        match notice.action {
            InterruptionAction::Terminate | InterruptionAction::Stop => (0, notice.at),
            InterruptionAction::Rebalance => (1, notice.at),
        }
    }

    /// Whether its end is certain and near, and not only likely.
    pub(crate) fn doomed(&self) -> bool {
        self.interruption().is_some_and(|notice| match notice.action {
            InterruptionAction::Terminate | InterruptionAction::Stop => true,
            InterruptionAction::Rebalance => false,
        })
    }
}

/// A request: its record and when this process saw it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The record.
    pub(crate) request: Request,
    /// When it was last seen to change, on the monotonic clock.
    pub(crate) touched: Duration,
    /// When it was last seen to be there.
    pub(crate) there: Duration,
    /// Why GitHub does not know its run, once that is certain.
    pub(crate) refused: Option<String>,
}

/// What a launch brought when it was last asked, as yet unrecorded.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// The answer.
    pub answer: Result<Launched, ComputeError>,
    /// When, on the monotonic clock.
    pub at: Duration,
    /// How often it was asked.
    pub times: u32,
}

/// A launch: its record and what this process learned of it.
#[derive(Clone, Debug)]
pub struct TrackedLaunch {
    /// The record.
    pub launch: Launch,
    /// The last answer.
    pub ordered: Option<Ordered>,
    /// When it was first seen.
    pub since: Duration,
}

/// What stood under a key before it was removed, or before another record took its place.
#[derive(Clone, Debug)]
pub(crate) struct Former {
    /// Which record it was, as far as it was known.
    pub(crate) uid: Option<Uid>,
    /// When that was seen, on the monotonic clock.
    pub(crate) at: Duration,
}

/// A machine whose record cannot be read, as it was known last.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadMachine {
    /// The class in which it counts as live: the record names it and does not say that the machine ended.
    pub(crate) class: Option<ClassName>,
    /// Its deadline: as the record still says, else as it said when it could be read.
    pub(crate) deadline: Option<Timestamp>,
    /// The request that held it, or had it cleaned, when the record could be read.
    pub(crate) held_by: Option<RecordId>,
}

impl UnreadMachine {
    /// What a record that could be read says of the time after it.
    pub(crate) fn after(tracked: &Tracked) -> Self {
        let instance = &tracked.instance;
        let holds = match instance.life {
            Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => true,
            Life::Idle { pooled_at } => pooled_at.is_none(),
            Life::Terminated { .. } => false,
        };
        Self {
            class: None,
            deadline: instance.threshold.map(|Threshold { at, .. }| at),
            held_by: instance.claim.as_ref().filter(|_| holds).map(|claim| claim.request.clone()),
        }
    }
}
