//! The agent record. Only the agent writes it, and only while it exists. It may contain lies, so the operator believes
//! it about the claim that it names and about nothing else.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use super::ahead::AheadReport;
use super::keep::KeptDirectories;
use crate::model::record::Record;
use crate::model::record::field::FieldError;
use crate::model::record::identity::{Kind, RecordId};
use crate::model::record::ids::{ClaimId, InstanceArn};
use crate::model::record::item::AttributeValue;
use crate::model::record::state::{Signal, words};

pub(crate) mod claim_proof;
mod job_report;

use claim_proof::ClaimProof;
pub use job_report::JobReport;
pub(crate) use job_report::known_job;

words! {
    /// The kinds of interruption.
    InterruptionAction {
        /// It will be ended, two minutes from the notice.
        Terminate = "terminate",
        /// It will be stopped, which is the same for us.
        Stop = "stop",
        /// EC2 recommends to rebalance: it is at risk.
        Rebalance = "rebalance",
    }
}

words! {
    /// What is done about a machine that EC2 expects to take back, but not for certain.
    Rebalance {
        /// Nothing.
        Ignore = "ignore",
        /// It is claimed last, and leaves the pool once its replacement is idle.
        Last = "last",
        /// It leaves the pool at once, or does not enter it.
        End = "end",
    }
}

words! {
    /// Why a runner does not listen.
    TroubleKind {
        /// It cannot reach GitHub, or GitHub is not well.
        Unreachable = "unreachable",
        /// GitHub has a session of its name already.
        Conflict = "conflict",
        /// It ended without being asked, and is registered anew.
        Ended = "ended",
    }
}

impl TroubleKind {
    /// Describes the next step, for people.
    #[must_use]
    pub const fn what_next(self) -> &'static str {
        match self {
            Self::Unreachable => "it goes on trying for as long as its machine may wait",
            Self::Conflict => "GitHub lets go of a dead session within four minutes",
            Self::Ended => "it is registered anew under the claim's next name",
        }
    }
}

/// The problem that keeps the runner of a claim from listening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunnerTrouble {
    /// Its beginning by the agent's clock; for people.
    pub since: Timestamp,
    /// Its kind.
    pub kind: TroubleKind,
    /// Its description, at most [`RunnerTrouble::WORDS`] bytes.
    pub words: String,
}

impl RunnerTrouble {
    /// The most bytes of its description.
    pub const WORDS: usize = 200;

    /// Returns its stored form.
    pub fn attribute(&self) -> AttributeValue {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let since = text(&self.since.to_string());
        let pairs = [("since", since), ("kind", text(self.kind.as_str())), ("words", text(&self.words))];
        AttributeValue::M(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// Parses the trouble. A kind that only a newer agent knows is ignored here, and leaves the record readable.
fn known_trouble<'de, D: Deserializer<'de>>(from: D) -> Result<Option<RunnerTrouble>, D::Error> {
    #[derive(Deserialize)]
    struct Told {
        since: Timestamp,
        kind: String,
        #[serde(default)]
        words: String,
    }
    let Told { since, kind, words } = Told::deserialize(from)?;
    Ok(kind.parse().ok().map(|kind| RunnerTrouble { since, kind, words }))
}

/// Parses the report about a claim. One of another form is ignored, and leaves the record readable.
fn known_proof<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ClaimProof>, D::Error> {
    let told = serde_json::Map::deserialize(from)?;
    Ok(serde_json::from_value(told.into()).ok())
}

/// The agent's answer to the question whether its runner has a job. A runner without one is suspended for a while, so that
/// none begins before GitHub has removed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetireReport {
    /// The `retireAskedAt` that it answers.
    pub at: Timestamp,
    /// Whether the runner has a job.
    pub busy: bool,
}

impl RetireReport {
    /// Returns its stored form.
    #[must_use]
    pub fn attribute(&self) -> AttributeValue {
        let at = ("at".to_owned(), AttributeValue::S(self.at.to_string()));
        AttributeValue::M([at, ("busy".to_owned(), AttributeValue::Bool(self.busy))].into())
    }
}

/// A notice from EC2 that the agent saw in its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// The event that will happen.
    pub action: InterruptionAction,
    /// Its time.
    pub at: Timestamp,
}

/// The agent record. Created with `heartbeatSeq` 0 in the transaction that creates the instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The machine, from the key.
    #[serde(skip)]
    pub arn: Option<InstanceArn>,
    /// Its signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// The claim of the signal; `""` for `UD_OK` and `UD_FAILED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_claim_id: Option<String>,
    /// The run of the signal; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_run_id: Option<String>,
    /// The time of the signal, by the agent's clock; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_at: Option<Timestamp>,
    /// The reason, at most a few hundred characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_detail: Option<String>,
    /// When it last wrote, by its own clock; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_at: Option<Timestamp>,
    /// Rises with every write of the agent; liveness is judged by it.
    #[serde(default)]
    pub heartbeat_seq: u64,
    /// The agent's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The name under which its runner is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_name: Option<String>,
    /// GitHub's number of that runner: it is removed by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_id: Option<u64>,
    /// Its X25519 public key, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// A notice from EC2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Interruption>,
    /// The number of the last box that is used up: its single-use runner served, or its runner ended unasked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration_done: Option<u64>,
    /// The directories that its machine keeps for later claims.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: KeptDirectories,
    /// The runner that it registered ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<AheadReport>,
    /// The problem that keeps the runner of its claim from listening.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_trouble")]
    pub runner_trouble: Option<RunnerTrouble>,
    /// The answer to the question whether its runner has a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retire: Option<RetireReport>,
    /// The last job that began on a slot's machine.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_job")]
    pub job: Option<JobReport>,
    /// Its report about the claim that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_proof")]
    pub proof: Option<ClaimProof>,
    /// When it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
}

impl Agent {
    /// Returns the key of a machine's agent record.
    pub fn key_of(arn: &InstanceArn) -> RecordId {
        RecordId::Agent(arn.clone())
    }

    /// Creates the record of a new instance's agent.
    pub fn born(arn: &InstanceArn, now: Timestamp) -> Self {
        Self {
            arn: Some(arn.clone()),
            signal: None,
            signal_claim_id: None,
            signal_run_id: None,
            signal_at: None,
            signal_detail: None,
            heartbeat_at: None,
            heartbeat_seq: 0,
            agent_version: None,
            runner_name: None,
            runner_id: None,
            public_key: None,
            interruption: None,
            registration_done: None,
            kept: KeptDirectories::new(),
            ahead: None,
            runner_trouble: None,
            retire: None,
            job: None,
            proof: None,
            updated_at: Some(now),
        }
    }

    /// Returns the job that a slot's runner has, or had, in this claim. Before the first signal of a claim the record may
    /// still show the job of the one before.
    pub fn job_of(&self, claim: &ClaimId) -> Option<&JobReport> {
        self.job.as_ref().filter(|_| self.signal_claim_id.as_deref() == Some(claim.as_str()))
    }

    /// Returns its report about this claim, if it has made one.
    pub fn proof_of(&self, claim: &ClaimId) -> Option<&ClaimProof> {
        self.proof.as_ref().filter(|proof| proof.claim_id == claim.as_str())
    }

    /// Returns its signal for this claim, if it has one.
    pub fn says(&self, claim: &str) -> Option<Signal> {
        self.signal.filter(|_| self.signal_claim_id.as_deref().unwrap_or_default() == claim)
    }
}

impl Record for Agent {
    const KIND: Kind = Kind::Agent;
    type Row = Self;

    fn key(&self) -> RecordId {
        self.arn.as_ref().map_or_else(|| RecordId::new("agent#", "agent"), Self::key_of)
    }

    fn to_row(&self) -> Self {
        self.clone()
    }

    fn from_row(key: &RecordId, row: Self) -> Result<Self, FieldError> {
        let arn = match key.agent() {
            Some(arn) => arn.clone(),
            None => InstanceArn::parse(key.pk().strip_prefix("agent#").unwrap_or_default())?,
        };
        Ok(Self { arn: Some(arn), ..row })
    }
}
