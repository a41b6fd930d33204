//! What a statement says of a claim, and what it does not know.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::history::{Activity, EndedClaim, Span};
use crate::model::{
    ClaimId, ClaimProof, ClassName, CleaningItem, Finding, InstanceArn, InstanceId, JobReport, Reason,
    RecordId, Signal, UsageClass, words,
};

words! {
    /// What became of the machine after the claim.
    Outcome {
        /// It entered the pool, and may be lent again.
        Pooled = "pooled",
        /// A person kept it; it was not lent again.
        Held = "held",
        /// It ended; it was not lent again.
        Ended = "ended",
    }
}

words! {
    /// The result of an item of the proof, or that none is known.
    Shown {
        /// Done and checked.
        Passed = "passed",
        /// It could not be proved.
        Failed = "failed",
        /// There was nothing to do.
        Nothing = "nothing",
        /// Nobody said.
        Unknown = "unknown",
    }
}

/// What is said of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Predicate {
    /// Whether the machine was proved clean after the claim.
    pub clean: bool,
    /// The items that are known not to hold.
    pub failed: Vec<String>,
    /// The parts of which nothing is known.
    pub unknown: Vec<String>,
    /// The claim.
    pub claim: ClaimPart,
    /// The machine.
    pub machine: MachinePart,
    /// The version of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The runner package.
    pub runner: RunnerPart,
    /// The isolation of the jobs that was in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolation: Vec<String>,
    /// The jobs that the runner's hook saw, in their own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobReport>>,
    /// How many more jobs the hook saw.
    #[serde(default)]
    pub jobs_left_out: u32,
    /// Each item of the clean-up.
    pub cleaning: BTreeMap<String, Shown>,
    /// The agent's last word about the clean-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// Why the clean-up failed, in the agent's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Who could use the machine before and after.
    pub trust_domain: Domains,
}

/// The claim of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPart {
    /// Its id.
    pub id: ClaimId,
    /// The request that it served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordId>,
    /// What the machine did for it, and when.
    pub spans: Vec<Span>,
    /// What became of the machine.
    pub outcome: Outcome,
    /// Why the machine ended, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Reason>,
    /// When it entered the pool, or was gone.
    pub at: Timestamp,
}

/// The machine of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachinePart {
    /// EC2's id.
    pub instance_id: InstanceId,
    /// Its ARN.
    pub instance_arn: InstanceArn,
    /// Its class.
    pub resource_class: ClassName,
    /// EC2's type name; empty where it is not known.
    pub instance_type: String,
    /// How it was paid for.
    pub usage_class: UsageClass,
    /// When it was recorded as launched.
    pub launched_at: Timestamp,
    /// The image that it was booted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// The runner package of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerPart {
    /// The version that the claim named; absent where it named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The SHA-256 of the package that the agent unpacked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The trust domains of a machine around a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domains {
    /// Before; empty where it was nobody's, absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Afterwards.
    pub after: String,
}

/// The name of the item that the package is the one that the claim named.
const PACKAGE: &str = "runner.sha256";
/// The name of the item that the agent signalled a clean machine.
const SIGNAL: &str = "signal";

impl Shown {
    const fn of(finding: Option<Finding>) -> Self {
        match finding {
            Some(Finding::Passed) => Self::Passed,
            Some(Finding::Failed) => Self::Failed,
            Some(Finding::Nothing) => Self::Nothing,
            None => Self::Unknown,
        }
    }
}

impl Predicate {
    pub(super) fn of(claim: &EndedClaim) -> Self {
        let (line, end) = (&claim.line, &claim.end);
        // A report about another claim says nothing about this one.
        let proof = end.proof.as_ref().filter(|proof| proof.claim_id == end.claim_id.as_str());
        let (failed, unknown) = (failed(claim, proof), unknown(claim, proof));
        let signal = signal(claim);
        let says_clean = match signal {
            Some(Signal::RemoveRegOk) => true,
            Some(
                Signal::Ok | Signal::Failed | Signal::RegOk | Signal::RegFailed | Signal::RemoveRegFailed,
            )
            | None => false,
        };
        let finding = |item: &CleaningItem| proof.and_then(|proof| proof.cleaning.get(item)).copied();
        let cleaning = CleaningItem::ALL.iter().map(|item| (item.to_string(), Shown::of(finding(item))));
        Self {
            clean: says_clean && failed.is_empty() && proof.is_some_and(ClaimProof::is_whole),
            failed,
            unknown,
            claim: claim_part(claim),
            machine: MachinePart {
                instance_id: line.instance_id.clone(),
                instance_arn: line.instance_arn.clone(),
                resource_class: line.resource_class.clone(),
                instance_type: line.instance_type.clone(),
                usage_class: line.usage_class,
                launched_at: line.launched_at,
                image: proof.and_then(|proof| proof.image.clone()),
            },
            agent_version: end.agent_version.clone(),
            runner: RunnerPart {
                version: end.runner.as_ref().map(|runner| runner.version.clone()),
                sha256: proof.and_then(|proof| proof.package.clone()),
            },
            isolation: proof.map(|proof| proof.isolation.clone()).unwrap_or_default(),
            jobs: proof.and_then(|proof| proof.jobs.clone()),
            jobs_left_out: proof.map_or(0, |proof| proof.jobs_left_out),
            cleaning: cleaning.collect(),
            signal,
            detail: end.detail.clone(),
            trust_domain: Domains { before: claim.domain_before.clone(), after: end.trust_domain.clone() },
        }
    }
}

fn claim_part(claim: &EndedClaim) -> ClaimPart {
    let line = &claim.line;
    let held = line.spans.iter().any(|span| span.activity == Activity::Held);
    let outcome = match (&line.ended, held) {
        (_, true) => Outcome::Held,
        (Some(_), false) => Outcome::Ended,
        (None, false) => Outcome::Pooled,
    };
    let serves = |span: &&Span| span.activity.serves();
    ClaimPart {
        id: claim.end.claim_id.clone(),
        request: claim.request().cloned(),
        spans: line.spans.iter().filter(serves).cloned().collect(),
        outcome,
        ended: line.ended.as_ref().map(|ended| ended.reason),
        at: line.to(),
    }
}

/// Returns the agent's last word about the clean-up. What it said of the registration before is none.
fn signal(claim: &EndedClaim) -> Option<Signal> {
    claim.end.signal.filter(|signal| match signal {
        Signal::RemoveRegOk | Signal::RemoveRegFailed => true,
        Signal::Ok | Signal::Failed | Signal::RegOk | Signal::RegFailed => false,
    })
}

/// Lists what is known not to hold.
fn failed(claim: &EndedClaim, proof: Option<&ClaimProof>) -> Vec<String> {
    let items = proof.into_iter().flat_map(|proof| &proof.cleaning);
    let items = items.filter(|(item, finding)| !item.is_proved_by(**finding));
    let mut failed: Vec<String> = items.map(|(item, _)| format!("cleaning.{item}")).collect();
    if signal(claim) == Some(Signal::RemoveRegFailed) {
        failed.push(SIGNAL.to_owned());
    }
    let named = claim.end.runner.as_ref().map(|runner| &runner.sha256);
    let unpacked = proof.and_then(|proof| proof.package.as_ref());
    if named.zip(unpacked).is_some_and(|(named, unpacked)| named != unpacked) {
        failed.push(PACKAGE.to_owned());
    }
    failed
}

/// Lists the parts of which nothing is known.
fn unknown(claim: &EndedClaim, proof: Option<&ClaimProof>) -> Vec<String> {
    let parts = [
        ("agentVersion", claim.end.agent_version.is_none()),
        ("isolation", proof.is_none_or(|proof| proof.isolation.is_empty())),
        ("jobs", proof.is_none_or(|proof| proof.jobs.is_none())),
        ("machine.image", proof.is_none_or(|proof| proof.image.is_none())),
        (PACKAGE, proof.is_none_or(|proof| proof.package.is_none())),
        (SIGNAL, signal(claim).is_none()),
        ("trustDomain.before", claim.domain_before.is_none()),
    ];
    let missing = parts.into_iter().filter(|(_, missing)| *missing).map(|(part, _)| part.to_owned());
    let has = |item: &CleaningItem| proof.is_some_and(|proof| proof.cleaning.contains_key(item));
    let items = CleaningItem::ALL.iter().filter(|item| !has(item));
    missing.chain(items.map(|item| format!("cleaning.{item}"))).collect()
}
