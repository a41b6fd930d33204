//! The history of a yard: a line for each ended request, each stretch of a machine's life, each failed launch, and the
//! events. The JSON form of a line is that of `runyard history export`; its stored form is an item of the history
//! table.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::launch::{Launch, LaunchPhase};
use super::request::{Phase, ReleasedBy, Request};
use crate::model::machine::agent::JobReport;
use crate::model::machine::instance::Instance;
use crate::model::machine::life::Life;
use crate::model::pool::selector::InstanceTypes;
use crate::model::record::event::Event;
use crate::model::record::identity::RecordId;
use crate::model::record::ids::{
    ClassName, InstanceArn, InstanceId, LaunchId, Repository, RequestKey, RequestName, RunId,
};
use crate::model::record::state::{Reason, UsageClass};

mod claims;
mod spans;
mod stored;

pub use crate::model::machine::span::{Activity, MOST_PAST_SPANS, PastSpan};
pub use claims::{EndedClaim, StatementLine};
use spans::Stretch;
pub(crate) use stored::item_of;
pub use stored::{SHARDS, day_of, days, event_partitions, events_of, partitions, statements_of_run};

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "lines are read and dropped one by one")]
pub enum HistoryLine {
    /// An ended request.
    Request(RequestLine),
    /// A stretch of a machine's life.
    Machine(MachineLine),
    /// A launch that brought no machine.
    LaunchFailure(LaunchFailureLine),
    /// A signed statement about a claim.
    Statement(StatementLine),
    /// An event, as it was reported to people when it happened.
    Event(Event),
}

/// An ended request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestLine {
    /// Its record's key.
    pub request: RecordId,
    /// The repository as the workflow wrote it.
    pub repository: Repository,
    /// The workflow run.
    pub run_id: RunId,
    /// The request's name among those of the run.
    pub name: RequestName,
    /// The attempt of the run.
    pub attempt: u32,
    /// The workflow's name or path, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The requested class, as given.
    pub resource_class: String,
    /// How many machines it requested.
    pub count: u32,
    /// How many were enough at its deadline.
    pub min_count: u32,
    /// The requested usage class; none when either would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_class: Option<UsageClass>,
    /// The types that it allowed, in place of its class's types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_instance_types: Option<InstanceTypes>,
    /// The share in which it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The name of its priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// When the workflow wrote it, by its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// When it was accepted. A request that was released before that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Timestamp>,
    /// When it was ready; none when it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    /// When the operator saw, or decided, that it is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Timestamp>,
    /// When it ended: failed, or everything given back.
    pub ended_at: Timestamp,
    /// `Released` or `Failed`.
    pub phase: Phase,
    /// Why it failed, or why the operator released it; none when its workflow released it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long it would have waited, in seconds.
    pub timeout_seconds: u64,
    /// How long a machine may run for it, in minutes; none for its class's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_minutes: Option<u64>,
    /// The job that the runner of a slot had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobReport>,
    /// Every machine it ever held.
    #[serde(default)]
    pub machines: Vec<Got>,
}

/// A machine that a request got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Got {
    /// The machine.
    pub instance_id: InstanceId,
    /// Whether it came from the pool. Only the lines of machines contain this; [`join`] copies it from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<bool>,
    /// When it was claimed, or recorded as launched for the request; from the lines of machines too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<Timestamp>,
}

/// A stretch of a machine's life: from its launch, or from the moment it entered the pool, to the next moment it enters
/// the pool, or is gone. The stretches of a machine follow one another without a gap and without an overlap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineLine {
    /// EC2's id.
    pub instance_id: InstanceId,
    /// Its ARN.
    pub instance_arn: InstanceArn,
    /// Its class.
    pub resource_class: ClassName,
    /// EC2's type name; empty when not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance_type: String,
    /// Its zone; empty when not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub availability_zone: String,
    /// How it is paid for.
    pub usage_class: UsageClass,
    /// When it was recorded as launched: the beginning of its first stretch.
    pub launched_at: Timestamp,
    /// Its activities, in order; never empty, and each span begins where the one before ends.
    pub spans: Vec<Span>,
    /// The person who held it in this stretch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// How it ended; only in its last stretch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// One activity of a machine over a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// The activity.
    pub activity: Activity,
    /// The beginning.
    pub from: Timestamp,
    /// The end, exclusive; never before `from`.
    pub to: Timestamp,
    /// The request that it served. A `starting` span without one belongs to a machine launched warm; `idle` and
    /// `ending` have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordId>,
}

/// How a machine ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// When EC2 had ended it.
    pub at: Timestamp,
    /// The reason.
    pub reason: Reason,
}

/// A launch that brought no machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchFailureLine {
    /// The launch.
    pub launch_id: LaunchId,
    /// The attempt of that launch.
    pub attempt: u32,
    /// The class it was for.
    pub resource_class: ClassName,
    /// How the machines would have been paid for.
    pub usage_class: UsageClass,
    /// How many machines it asked for.
    pub count: u32,
    /// The request it was for; none for warm capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordId>,
    /// When it was decided.
    pub created_at: Timestamp,
    /// When it had failed.
    pub at: Timestamp,
    /// The provider's code, for example `InsufficientInstanceCapacity`, where its response had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The provider's text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl HistoryLine {
    /// Returns when the subject of the line ended, by which lines are kept and ordered.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Request(line) => line.ended_at,
            Self::Machine(line) => line.to(),
            Self::LaunchFailure(line) => line.at,
            Self::Statement(line) => line.at,
            Self::Event(event) => event.at,
        }
    }
}

impl RequestLine {
    /// Builds the line of a request; none while it has not ended, or when an older program ended it.
    pub fn of(request: &Request) -> Option<Self> {
        let RequestKey { run_id, name, attempt, .. } = request.id.clone();
        let (intent, status) = (request.intent.clone(), &request.status);
        let ended_at = status.ended_at.filter(|_| request.phase().is_final())?;
        let got = |id: &InstanceId| Got { instance_id: id.clone(), warm: None, claimed_at: None };
        Some(Self {
            request: Request::key_of(&request.id),
            repository: intent.repository,
            run_id,
            name,
            attempt,
            workflow: status.workflow.clone(),
            resource_class: intent.resource_class,
            count: intent.count,
            min_count: intent.min_count,
            usage_class: intent.usage_class,
            allowed_instance_types: intent.allowed_instance_types,
            share: status.share.clone(),
            priority: intent.priority,
            created_at: intent.created_at,
            accepted_at: status.accepted_at,
            ready_at: status.ready_at,
            released_at: status.released_at,
            ended_at,
            phase: request.phase(),
            reason: reason(request),
            timeout_seconds: intent.timeout_seconds,
            max_runtime_minutes: intent.max_runtime_minutes,
            job: status.job.clone(),
            machines: status.served.iter().map(got).collect(),
        })
    }
}

/// Returns why a request failed, or why the operator released it.
fn reason(request: &Request) -> Option<String> {
    if request.phase() == Phase::Failed {
        // The message of a failed request begins with the reason.
        return request.status.message.split_once(':').map(|(reason, _)| reason.to_owned());
    }
    request.status.released_by.map(ReleasedBy::as_str).map(str::to_owned)
}

impl MachineLine {
    /// Lists the completed stretches of a machine, as far as its record still has them, in order.
    pub fn over(instance: &Instance) -> Vec<Self> {
        Self::completed(instance).map(|(line, _)| line).collect()
    }

    /// Iterates over the completed stretches with what the record has of their claims.
    fn completed(instance: &Instance) -> impl Iterator<Item = (Self, Stretch)> {
        let gone = match instance.life {
            Life::Terminated { reason, gone_at: Some(at) } => Some((reason, at)),
            Life::Terminated { gone_at: None, .. }
            | Life::Created { .. }
            | Life::Claimed { .. }
            | Life::Running { .. }
            | Life::Idle { .. } => None,
        };
        spans::over(instance, gone.map(|(_, at)| at)).into_iter().map(move |mut stretch| {
            let line = Self::stretch(instance, std::mem::take(&mut stretch.spans));
            let ended = gone.filter(|_| line.spans.iter().any(|span| span.activity == Activity::Ending));
            (Self { ended: ended.map(|(reason, _)| Ended { at: line.to(), reason }), ..line }, stretch)
        })
    }

    /// Returns the stretch that a machine is in, until now; none for a machine that is gone.
    pub fn so_far(instance: &Instance, now: Timestamp) -> Option<Self> {
        spans::open(instance, now).map(|spans| Self::stretch(instance, spans))
    }

    fn stretch(instance: &Instance, spans: Vec<Span>) -> Self {
        let facts = instance.facts.clone();
        let held = spans.iter().any(|span| span.activity == Activity::Held);
        let hold = instance.hold.as_ref().filter(|_| held);
        Self {
            held_by: hold.map(|hold| hold.by.clone()),
            instance_id: facts.instance_id,
            instance_arn: facts.instance_arn,
            resource_class: facts.resource_class,
            instance_type: facts.instance_type,
            availability_zone: facts.availability_zone,
            usage_class: facts.usage_class,
            launched_at: facts.created_at,
            spans,
            ended: None,
        }
    }

    /// Returns the beginning of the stretch.
    pub fn from(&self) -> Timestamp {
        self.spans.first().map_or(self.launched_at, |span| span.from)
    }

    /// Returns the end of the stretch.
    pub fn to(&self) -> Timestamp {
        self.spans.last().map_or(self.launched_at, |span| span.to)
    }

    /// Returns the claims that the stretch served, each as the request got it.
    pub fn claims(&self) -> impl Iterator<Item = (&RecordId, Got)> {
        let begins = |span: &&Span| matches!(span.activity, Activity::Starting | Activity::Claimed);
        self.spans.iter().filter(begins).filter_map(|span| {
            let warm = Some(span.activity == Activity::Claimed);
            let instance_id = self.instance_id.clone();
            Some((span.request.as_ref()?, Got { instance_id, warm, claimed_at: Some(span.from) }))
        })
    }
}

impl Span {
    /// Returns the repository of its request, in lower case.
    pub fn repository(&self) -> Option<&Repository> {
        self.request.as_ref().and_then(RecordId::request).map(|request| &request.repository)
    }
}

impl LaunchFailureLine {
    /// Builds the line of a launch; none unless it failed.
    pub fn of(launch: &Launch) -> Option<Self> {
        if launch.phase != LaunchPhase::Failed {
            return None;
        }
        let code = |(code, _): (&str, &str)| {
            let word = !code.is_empty() && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
            word.then(|| code.to_owned())
        };
        Some(Self {
            launch_id: launch.launch_id.clone(),
            attempt: launch.attempt,
            resource_class: launch.resource_class.clone(),
            usage_class: launch.usage_class,
            count: launch.count,
            request: launch.request.clone(),
            created_at: launch.created_at,
            at: launch.updated_at,
            code: launch.message.split_once(": ").and_then(code),
            message: launch.message.clone(),
        })
    }
}

/// Adds to the machines of each request whether and when it got them, from the lines of the machines among `lines`.
pub fn join(lines: &mut [HistoryLine]) {
    let mut got = std::collections::BTreeMap::new();
    for line in &*lines {
        if let HistoryLine::Machine(machine) = line {
            got.extend(
                machine.claims().map(|(request, claim)| ((request.key(), claim.instance_id.clone()), claim)),
            );
        }
    }
    for line in lines {
        if let HistoryLine::Request(line) = line {
            let key = line.request.key();
            for machine in &mut line.machines {
                if let Some(claim) = got.get(&(key.clone(), machine.instance_id.clone())) {
                    *machine = claim.clone();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
