//! The instance record. Only states that have a run hold one, so an idle machine with a run, or a running one without,
//! can be neither written nor read.
//!
//! Over 400 lines: one record, with each attribute in its three forms.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ahead::Ahead;
use super::hold::Hold;
use super::jobs::Jobs;
use super::keep::Promotion;
use super::life::{Claim, Life, Threshold};
use super::runner_package::RunnerPackage;
use super::span::{self, PastSpan};
use super::transition::Place;
use crate::model::record::field::FieldError;
use crate::model::record::identity::{Kind, RecordId};
use crate::model::record::ids::{ClaimId, ClassName, InstanceArn, InstanceId, LaunchId, RunId, Uid};
use crate::model::record::state::{Reason, State, UsageClass};
use crate::model::record::{Record, Versioned, text};

/// The facts about a machine when it is recorded; they never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceFacts {
    /// EC2's id.
    pub instance_id: InstanceId,
    /// Its ARN, the name under which IAM lets it see its own records.
    pub instance_arn: InstanceArn,
    /// The class it belongs to.
    pub resource_class: ClassName,
    /// EC2's type name, for example `m7i.large`.
    pub instance_type: String,
    /// How it is paid for.
    pub usage_class: UsageClass,
    /// vCPUs.
    pub cpu: u32,
    /// Memory in MiB.
    pub mmem: u32,
    /// For example `eu-west-1a`.
    pub availability_zone: String,
    /// The launch that brought it.
    pub launch_id: Option<LaunchId>,
    /// The digest of how it was launched; none when not known.
    pub launch_digest: Option<String>,
    /// When it was recorded.
    pub created_at: Timestamp,
}

/// A credential sealed to the machine's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The sealed credential, base64.
    pub sealed: String,
    /// When the credential expires.
    pub expires_at: Option<Timestamp>,
}

/// The instance record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The facts that never change.
    pub facts: InstanceFacts,
    /// Its state.
    pub life: Life,
    /// Its current assignment, or the last one; it stays after a release until the next.
    pub claim: Option<Claim>,
    /// The permissions of that assignment's jobs on it.
    pub jobs: Jobs,
    /// The runner package of that assignment, or in the pool the one that the next assignment most likely gets; none
    /// where the machine uses the one that it was launched with.
    pub runner: Option<RunnerPackage>,
    /// Its deadline; none once terminated.
    pub threshold: Option<Threshold>,
    /// When it entered its state.
    pub state_since: Timestamp,
    /// How many claims it has run.
    pub uses: u32,
    /// The boundary within which it may be used again; empty until it is first assigned.
    pub trust_domain: String,
    /// The agent's public key, as the operator first saw it (base64 of 32 bytes).
    pub public_key: Option<String>,
    /// The credential that the agent needs to register its runner.
    pub registration: Option<Registration>,
    /// The number of that credential, from 1; it rises with each one written for a claim.
    pub registration_seq: u64,
    /// The credential that the agent needs to deregister it.
    pub removal: Option<Registration>,
    /// Which of the kept directories its last claim may change.
    pub promotion: Option<Promotion>,
    /// Its runner that was registered ahead: at rest while it is pooled, then part of the claim that took the machine.
    pub ahead: Option<Ahead>,
    /// Failed registrations since the machine last ran one.
    pub registration_failures: u32,
    /// The person who expired it (`runyard expire`).
    pub expired_by: Option<String>,
    /// A person's hold; it is never taken back.
    pub hold: Option<Hold>,
    /// When the operator asked its agent whether its runner has a job; the agent keeps the runner from a job meanwhile.
    pub retire_asked: Option<Timestamp>,
    /// When a person last asked for its logs (`runyard logs`), and who it was; its agent reads it.
    pub logs_requested: Option<(Timestamp, String)>,
    /// The last line on its console before it ended, if it ended before it was of use.
    pub console: Option<String>,
    /// Its spans before its current state, as far as the history does not have them yet.
    pub spans: Vec<PastSpan>,
    /// When the record may be deleted, epoch seconds.
    pub expires_at: Option<i64>,
    /// The number of writes.
    pub version: u64,
    /// When it was last written.
    pub updated_at: Timestamp,
}

impl Instance {
    /// Creates a record without a deadline and without a claim.
    pub fn born(facts: InstanceFacts, life: Life) -> Self {
        let now = facts.created_at;
        Self {
            facts,
            life,
            claim: None,
            jobs: Jobs::default(),
            runner: None,
            threshold: None,
            state_since: now,
            uses: 0,
            trust_domain: String::new(),
            public_key: None,
            registration: None,
            registration_seq: 0,
            removal: None,
            promotion: None,
            ahead: None,
            registration_failures: 0,
            expired_by: None,
            hold: None,
            retire_asked: None,
            logs_requested: None,
            console: None,
            spans: Vec::new(),
            expires_at: None,
            version: 1,
            updated_at: now,
        }
    }

    /// Returns the key of a machine's record.
    pub fn key_of(arn: &InstanceArn) -> RecordId {
        RecordId::Instance(arn.clone())
    }

    /// Returns the span that it is in, after those that it keeps.
    pub(crate) fn present_span(&self) -> Option<PastSpan> {
        let request = self.claim.as_ref().map(|claim| &claim.request);
        span::present(self.place(), self.state_since, request, &self.spans)
    }

    /// Ends the cleaning of a machine for which a person's hold came meanwhile: it is held from now on.
    pub fn held_from(&mut self, now: Timestamp) {
        let request = self.claim.as_ref().map(|claim| &claim.request);
        let cleaned = span::present(Place::IdleCleaning, self.state_since, request, &self.spans);
        span::keep(&mut self.spans, cleaned);
        self.state_since = now;
    }

    /// Returns the contract's state.
    pub fn state(&self) -> State {
        match self.life {
            Life::Created { .. } => State::Created,
            Life::Claimed { .. } => State::Claimed,
            Life::Running { .. } => State::Running,
            Life::Idle { .. } => State::Idle,
            Life::Terminated { .. } => State::Terminated,
        }
    }

    /// Returns its place in the table of transitions.
    pub fn place(&self) -> Place {
        match &self.life {
            Life::Created { run: Some(_) } => Place::CreatedBound,
            Life::Created { run: None } => Place::CreatedWarm,
            Life::Claimed { .. } => Place::Claimed,
            Life::Running { .. } => Place::Running,
            Life::Idle { pooled_at: None } if self.hold.is_some() => Place::IdleHeld,
            Life::Idle { pooled_at: None } => Place::IdleCleaning,
            Life::Idle { pooled_at: Some(_) } => Place::IdlePooled,
            Life::Terminated { .. } => Place::Terminated,
        }
    }

    /// Returns the run that holds it, if one does.
    pub fn run(&self) -> Option<&RunId> {
        match &self.life {
            Life::Created { run } => run.as_ref(),
            Life::Claimed { run } | Life::Running { run } => Some(run),
            Life::Idle { .. } | Life::Terminated { .. } => None,
        }
    }

    /// Returns since when it is in the pool.
    pub fn pooled_at(&self) -> Option<Timestamp> {
        match self.life {
            Life::Idle { pooled_at } => pooled_at,
            Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Terminated { .. } => {
                None
            }
        }
    }

    /// Returns the hold of a machine that no run has any more and that is kept for a person.
    pub fn held(&self) -> Option<&Hold> {
        self.hold.as_ref().filter(|_| matches!(self.life, Life::Idle { pooled_at: None }))
    }

    /// Returns when EC2 had ended it.
    pub fn gone_at(&self) -> Option<Timestamp> {
        match self.life {
            Life::Terminated { gone_at, .. } => gone_at,
            Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => None,
        }
    }

    /// Returns the request that holds it now.
    pub fn held_by(&self) -> Option<&RecordId> {
        self.run().and(self.claim.as_ref()).map(|claim| &claim.request)
    }
}

/// The flat stored form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceRow {
    instance_id: InstanceId,
    instance_arn: InstanceArn,
    resource_class: ClassName,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    instance_type: String,
    usage_class: UsageClass,
    #[serde(default)]
    cpu: u32,
    #[serde(default)]
    mmem: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    availability_zone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    launch_id: Option<LaunchId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    launch_digest: Option<String>,
    created_at: Timestamp,
    state: State,
    #[serde(with = "text")]
    run_id: Option<RunId>,
    #[serde(with = "text")]
    claim_id: Option<ClaimId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RecordId>,
    #[serde(default, skip_serializing_if = "Jobs::is_default")]
    jobs: Jobs,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runner: Option<RunnerPackage>,
    #[serde(with = "text")]
    threshold: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold_set_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pooled_at: Option<Timestamp>,
    state_since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone_at: Option<Timestamp>,
    #[serde(default)]
    uses: u32,
    #[serde(default)]
    trust_domain: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    registration: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    registration_expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_zero")]
    registration_seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removal_expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promotion: Option<Promotion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ahead: Option<Ahead>,
    #[serde(default, skip_serializing_if = "is_zero")]
    registration_failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expired_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold: Option<Hold>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retire_asked_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logs_requested_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logs_requested_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    console: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    spans: Vec<PastSpan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    version: u64,
    updated_at: Timestamp,
}

fn is_zero<N: Default + PartialEq>(n: &N) -> bool {
    *n == N::default()
}

fn sealed(boxed: Option<String>, expires_at: Option<Timestamp>) -> Option<Registration> {
    boxed.map(|sealed| Registration { sealed, expires_at })
}

/// Parses the state and its fields, or reports the field that contradicts them.
fn life(row: &InstanceRow) -> Result<Life, FieldError> {
    let state = row.state.as_str();
    let wrong = |field: &str, value: String, message: String| {
        Err(FieldError::new(field, value, message, "leave the record to the operator, or expire the machine"))
    };
    let run = match (row.state, &row.run_id) {
        (State::Created, run) => run.clone(),
        (State::Claimed | State::Running, Some(run)) => Some(run.clone()),
        (State::Idle | State::Terminated, None) => None,
        (State::Claimed | State::Running, None) => {
            return wrong("runId", String::new(), format!("{state} without a run"));
        }
        (State::Idle | State::Terminated, Some(run)) => {
            return wrong("runId", run.to_string(), format!("{state} with a run"));
        }
    };
    if run.is_some() && (row.claim_id.is_none() || row.request.is_none()) {
        return wrong("claimId", String::new(), format!("{state} for a run without claimId and request"));
    }
    if row.state.live() && row.threshold.is_none() {
        return wrong("threshold", String::new(), format!("{state} without a deadline"));
    }
    Ok(match (row.state, run) {
        (State::Created, run) => Life::Created { run },
        (State::Claimed, Some(run)) => Life::Claimed { run },
        (State::Running, Some(run)) => Life::Running { run },
        (State::Idle, _) => Life::Idle { pooled_at: row.pooled_at },
        (State::Terminated, _) => {
            Life::Terminated { reason: row.reason.unwrap_or(Reason::Vanished), gone_at: row.gone_at }
        }
        (State::Claimed | State::Running, None) => {
            return wrong("runId", String::new(), format!("{state} without a run"));
        }
    })
}

impl Record for Instance {
    const KIND: Kind = Kind::Instance;
    type Row = InstanceRow;

    fn key(&self) -> RecordId {
        Self::key_of(&self.facts.instance_arn)
    }

    fn to_row(&self) -> InstanceRow {
        let (reason, gone_at) = match self.life {
            Life::Terminated { reason, gone_at } => (Some(reason), gone_at),
            Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => {
                (None, None)
            }
        };
        InstanceRow {
            instance_id: self.facts.instance_id.clone(),
            instance_arn: self.facts.instance_arn.clone(),
            resource_class: self.facts.resource_class.clone(),
            instance_type: self.facts.instance_type.clone(),
            usage_class: self.facts.usage_class,
            cpu: self.facts.cpu,
            mmem: self.facts.mmem,
            availability_zone: self.facts.availability_zone.clone(),
            launch_id: self.facts.launch_id.clone(),
            launch_digest: self.facts.launch_digest.clone(),
            created_at: self.facts.created_at,
            state: self.state(),
            run_id: self.run().cloned(),
            claim_id: self.claim.as_ref().map(|claim| claim.id.clone()),
            request: self.claim.as_ref().map(|claim| claim.request.clone()),
            jobs: self.jobs.clone(),
            runner: self.runner.clone(),
            threshold: self.threshold.map(|t| t.at),
            threshold_set_at: self.threshold.map(|t| t.set_at),
            pooled_at: self.pooled_at(),
            state_since: self.state_since,
            reason,
            gone_at,
            uses: self.uses,
            trust_domain: self.trust_domain.clone(),
            public_key: self.public_key.clone(),
            registration: self.registration.as_ref().map(|r| r.sealed.clone()),
            registration_expires_at: self.registration.as_ref().and_then(|r| r.expires_at),
            registration_seq: self.registration_seq,
            removal: self.removal.as_ref().map(|r| r.sealed.clone()),
            removal_expires_at: self.removal.as_ref().and_then(|r| r.expires_at),
            promotion: self.promotion.clone(),
            ahead: self.ahead.clone(),
            registration_failures: self.registration_failures,
            expired_by: self.expired_by.clone(),
            hold: self.hold.clone(),
            retire_asked_at: self.retire_asked,
            logs_requested_at: self.logs_requested.as_ref().map(|(at, _)| *at),
            logs_requested_by: self.logs_requested.as_ref().map(|(_, by)| by.clone()),
            console: self.console.clone(),
            spans: self.spans.clone(),
            expires_at: self.expires_at,
            version: self.version,
            updated_at: self.updated_at,
        }
    }

    fn from_row(_: &RecordId, row: InstanceRow) -> Result<Self, FieldError> {
        let life = life(&row)?;
        if row.instance_arn.instance_id() != row.instance_id.as_str() {
            let (id, arn) = (row.instance_id.to_string(), row.instance_arn);
            return Err(FieldError::new(
                "instanceId",
                id,
                format!("not the instance of {arn}"),
                "mend the record",
            ));
        }
        let threshold =
            row.threshold.map(|at| Threshold { at, set_at: row.threshold_set_at.unwrap_or(row.state_since) });
        let claim = row.claim_id.zip(row.request).map(|(id, request)| Claim { id, request });
        Ok(Self {
            facts: InstanceFacts {
                instance_id: row.instance_id,
                instance_arn: row.instance_arn,
                resource_class: row.resource_class,
                instance_type: row.instance_type,
                usage_class: row.usage_class,
                cpu: row.cpu,
                mmem: row.mmem,
                availability_zone: row.availability_zone,
                launch_id: row.launch_id,
                launch_digest: row.launch_digest,
                created_at: row.created_at,
            },
            life,
            claim,
            jobs: row.jobs,
            runner: row.runner,
            threshold,
            state_since: row.state_since,
            uses: row.uses,
            trust_domain: row.trust_domain,
            public_key: row.public_key,
            registration: sealed(row.registration, row.registration_expires_at),
            registration_seq: row.registration_seq,
            removal: sealed(row.removal, row.removal_expires_at),
            promotion: row.promotion,
            ahead: row.ahead,
            registration_failures: row.registration_failures,
            expired_by: row.expired_by,
            hold: row.hold,
            retire_asked: row.retire_asked_at,
            logs_requested: row.logs_requested_at.map(|at| (at, row.logs_requested_by.unwrap_or_default())),
            console: row.console,
            spans: row.spans,
            expires_at: row.expires_at,
            version: row.version,
            updated_at: row.updated_at,
        })
    }
}

impl Versioned for Instance {
    fn version(&self) -> u64 {
        self.version
    }

    fn uid(&self) -> Option<&Uid> {
        None
    }

    fn advance(&mut self, now: Timestamp) {
        self.version += 1;
        self.updated_at = now;
    }

    fn settle(&mut self, before: &Self) {
        if before.place() != self.place() {
            span::keep(&mut self.spans, before.present_span());
        }
    }
}
