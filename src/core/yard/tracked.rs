//! One record in this process: its last image and the facts learned besides it.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Agent, ClaimId, ClassName, Instance, Interruption, InterruptionAction, Launch, Life, RecordId, Request,
    Threshold, Uid,
};
use crate::ports::{ComputeError, Launched, MachineState};

use super::ahead::RestOf;

/// An agent's last heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its `heartbeatSeq` then.
    pub seq: u64,
    /// On the clock of successful reads.
    pub at: Duration,
}

/// A machine: its two records and the facts that this process learned besides them.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// The instance record.
    pub instance: Instance,
    /// The agent record.
    pub agent: Option<Agent>,
    /// The first public key of its agent, while the instance record has none.
    pub(crate) first_key: Option<String>,
    /// The agent's last heartbeat as this process saw it.
    pub beat: Option<Beat>,
    /// The `heartbeatSeq` that a strong read confirmed after the agent fell silent.
    pub silent: Option<u64>,
    /// When its termination was last requested, and how often it was.
    pub ended: Option<(Duration, u32)>,
    /// Its state at the provider; `Some(None)`: the provider does not know it.
    pub stands: Option<Option<MachineState>>,
    /// Why it ended, in the provider's words.
    pub(crate) why_ended: Option<String>,
    /// When its console was last read, and how often.
    pub(crate) console_read: Option<(Duration, u32)>,
    /// The last line of its console (`last_console_line`), once it was read.
    pub(crate) console_line: Option<String>,
    /// When it was last described, and how often it was since its termination was first requested.
    pub asked: Option<(Duration, u32)>,
    /// Whether it is missing from the last list of machines.
    pub missing: bool,
    /// When it was last announced, if that message was not deleted since: until it expires there is no other one.
    pub announced: Option<Duration>,
    /// The claim whose runner GitHub reported as busy when it was to be removed.
    pub busy_for: Option<ClaimId>,
    /// The claim for which a call to GitHub was put off, and until when.
    pub(crate) put_off: Option<(ClaimId, Duration)>,
    /// The claim whose runner, registered ahead, GitHub did not give its label, and how often in a row.
    pub unlabelled: Option<(ClaimId, u32)>,
    /// Its registrations ahead of claims.
    pub(crate) rest: RestOf,
    /// Whether its runner was removed at GitHub after its end.
    pub swept: bool,
    /// The notice from EC2 that came through the queue; its agent may report one too.
    pub notice: Option<Interruption>,
    /// Whether EC2 reported a change of state and the machine was not described since.
    pub changed: bool,
    /// Whether someone other than this operator shortened its deadline in the pool.
    pub(crate) shortened: bool,
    /// Whether a person's hold was seen to come while it was cleaned, and no operator has stored yet that its cleaning
    /// is over.
    pub(crate) held_while_cleaned: bool,
    /// When a deadline set by a clock ahead of ours was seen, on the monotonic clock; none for other deadlines, and for
    /// one that existed from the start.
    pub(crate) set_ahead: Option<Duration>,
    /// When its two records were last seen, on the monotonic clock.
    pub(crate) there: (Duration, Duration),
}

impl Tracked {
    /// Returns whether the runner of the last box served its job, or ended without being asked to. Before the first box of
    /// a claim the last one is of the claim before.
    pub(crate) fn box_used_up(&self) -> bool {
        let (instance, done) =
            (&self.instance, self.agent.as_ref().and_then(|agent| agent.registration_done));
        let sent = match instance.life {
            Life::Claimed { .. } => instance.registration.is_some() || instance.ahead.is_some(),
            Life::Created { .. } | Life::Running { .. } | Life::Idle { .. } | Life::Terminated { .. } => true,
        };
        sent && done.is_some_and(|done| done > 0 && done == instance.registration_seq)
    }

    /// Returns whether the runner of its claim ended: it served its job, or ended without being asked to. Before the first
    /// signal of a claim, what the agent says of a box is said of the claim before.
    pub(crate) fn runner_ended(&self) -> bool {
        let claim = self.instance.claim.as_ref().map(|claim| claim.id.as_str());
        let says = self.agent.as_ref().and_then(|agent| agent.signal_claim_id.as_deref());
        self.box_used_up() && claim.is_some() && claim == says
    }

    /// Records that GitHub reports the runner of its claim as busy.
    pub(super) fn runner_busy(&mut self) {
        self.busy_for = self.instance.claim.as_ref().map(|claim| claim.id.clone());
    }

    /// Records that a call to GitHub for its claim was put off until this time.
    pub(super) fn put_off(&mut self, until: Duration) {
        self.put_off = self.instance.claim.as_ref().map(|claim| (claim.id.clone(), until));
    }

    /// Records that GitHub did not set the label of its claim: it refused, or the outcome is unknown.
    pub(super) fn label_failed(&mut self, refused: bool) {
        let Some(claim) = &self.instance.claim else { return };
        let before = self.unlabelled.as_ref().filter(|(of, _)| *of == claim.id);
        let times = before.map_or(0, |(_, times)| *times).saturating_add(1);
        self.unlabelled = Some((claim.id.clone(), if refused { u32::MAX } else { times }));
    }

    /// Processes a change of the machine's record from this image.
    pub(super) fn rested(&mut self, old: &Instance, now: Duration) {
        if self.instance.pooled_at() != old.pooled_at() {
            self.rest = RestOf::default();
        }
        let id = |of: &Instance| of.ahead.as_ref().map(|ahead| ahead.id.clone());
        if self.instance.ahead.is_some() && id(&self.instance) != id(old) {
            self.rest.refused(now);
        }
    }

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
            put_off: None,
            unlabelled: None,
            rest: RestOf::default(),
            swept: false,
            notice: None,
            changed: false,
            shortened: false,
            held_while_cleaned: false,
            set_ahead: None,
            there: (Duration::ZERO, Duration::ZERO),
        }
    }

    /// Returns the notice that counts: termination before a rebalance recommendation, the earlier before the later.
    pub fn interruption(&self) -> Option<&Interruption> {
        let told = self.agent.as_ref().and_then(|agent| agent.interruption.as_ref());
        told.into_iter().chain(self.notice.as_ref()).min_by_key(|notice| Self::weight(notice))
    }

    /// Returns the one of two notices that counts.
    pub(crate) fn graver(one: Interruption, other: Interruption) -> Interruption {
        if Self::weight(&other) < Self::weight(&one) { other } else { one }
    }

    /// Returns when its agent last sent a heartbeat; none unless the machine is live, its agent has sent one and its
    /// agent record can be read.
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

    /// Returns the account at GitHub of its present or last claim, in lower case.
    pub(crate) fn account(&self) -> Option<String> {
        let request = self.instance.claim.as_ref()?.request.request()?;
        Some(request.repository.folded().owner().to_owned())
    }

    /// Returns whether EC2 only expects to take it back.
    pub(crate) fn is_at_risk(&self) -> bool {
        self.interruption().is_some() && !self.is_interrupted()
    }

    /// Returns whether EC2 will end it for certain, and did not only recommend to rebalance.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interruption().is_some_and(|notice| match notice.action {
            InterruptionAction::Terminate | InterruptionAction::Stop => true,
            InterruptionAction::Rebalance => false,
        })
    }
}

/// A request: its record and the facts that this process learned besides it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The record.
    pub(crate) request: Request,
    /// When it was last seen to change, on the monotonic clock.
    pub(crate) touched: Duration,
    /// When it was last seen, on the monotonic clock.
    pub(crate) there: Duration,
    /// Why the run is refused, once it is certain that GitHub does not know it.
    pub(crate) refused: Option<String>,
    /// What is known of a request that had this key before and left the table.
    pub(crate) archived: Archived,
}

/// What is known of a request that had the same key before and moved to the history table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Archived {
    /// The history table was not asked.
    #[default]
    Unknown,
    /// There was none, as far as the history table answered.
    Absent,
    /// There was one; how it ended.
    Ended(String),
}

/// The last response to a launch, not recorded yet.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// The response.
    pub answer: Result<Launched, ComputeError>,
    /// Its time, on the monotonic clock.
    pub at: Duration,
    /// How many calls were made.
    pub times: u32,
    /// The time of the first response in the current row that agrees about the token: spent, or not.
    pub since: Duration,
}

impl Ordered {
    /// Combines a response to an order with the ones before.
    pub(crate) fn after(before: Option<&Self>, answer: Result<Launched, ComputeError>, at: Duration) -> Self {
        let spent = matches!(answer, Err(ComputeError::TokenSpent(_)));
        let same = before.filter(|before| spent == matches!(before.answer, Err(ComputeError::TokenSpent(_))));
        Self {
            answer,
            at,
            times: before.map_or(0, |before| before.times).saturating_add(1),
            since: same.map_or(at, |before| before.since),
        }
    }
}

/// A launch: its record and the facts that this process learned about it.
#[derive(Clone, Debug)]
pub struct TrackedLaunch {
    /// The record.
    pub launch: Launch,
    /// The last response.
    pub ordered: Option<Ordered>,
    /// When it was first seen.
    pub since: Duration,
}

/// A record that was removed or replaced by another record under the same key.
#[derive(Clone, Debug)]
pub(crate) struct Former {
    /// Which record it was; none where that is not known.
    pub(crate) uid: Option<Uid>,
    /// When that was seen, on the monotonic clock.
    pub(crate) at: Duration,
}

/// The known facts about a machine whose record cannot be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadMachine {
    /// The class in which it counts as live: the class that the record names, unless the record shows that the machine
    /// ended.
    pub(crate) class: Option<ClassName>,
    /// Its deadline: the one still in the record, else the one from when the record could be read.
    pub(crate) deadline: Option<Timestamp>,
    /// The request that held it, or had it cleaned, when the record could be read.
    pub(crate) held_by: Option<RecordId>,
}

impl UnreadMachine {
    /// Takes the facts from the last readable image.
    pub(crate) fn after(tracked: &Tracked) -> Self {
        let instance = &tracked.instance;
        let holds = match instance.life {
            Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => true,
            Life::Idle { pooled_at } => pooled_at.is_none() && instance.held().is_none(),
            Life::Terminated { .. } => false,
        };
        Self {
            class: None,
            deadline: instance.threshold.map(|Threshold { at, .. }| at),
            held_by: instance.claim.as_ref().filter(|_| holds).map(|claim| claim.request.clone()),
        }
    }
}
