//! The stored form of a request: one attribute per field, with the intent as it is written and as it was accepted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Asked, Desired, Intent, Phase, ReadySource, ReleasedBy, Request, Status, TIMEOUT_SECONDS};
use crate::model::machine::agent::{JobReport, known_job};
use crate::model::pool::selector::InstanceTypes;
use crate::model::record::Record;
use crate::model::record::condition::{Condition, known_conditions};
use crate::model::record::field::FieldError;
use crate::model::record::identity::{Kind, RecordId};
use crate::model::record::ids::{
    ClaimId, InstanceId, LabelSuffix, Repository, RequestKey, RequestName, RunId, Uid,
};
use crate::model::record::state::UsageClass;
use crate::model::record::text::cut;

/// Longest name of a class or a priority. Of a longer name only enough is kept to show that.
const LONGEST_NAME: usize = 40;
/// How much is kept of the name of the person who failed a request.
const LONGEST_PERSON: usize = 200;

/// The accepted part of an intent, which is served whatever is written later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    resource_class: String,
    count: u32,
    min_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage_class: Option<UsageClass>,
    on_demand_fallback: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowed_instance_types: Option<InstanceTypes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_runtime_minutes: Option<u64>,
    timeout_seconds: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label_suffix: Option<LabelSuffix>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<String>,
}

impl Accepted {
    fn of(intent: &Intent) -> Self {
        Self {
            resource_class: intent.resource_class.clone(),
            count: intent.count,
            min_count: intent.min_count,
            usage_class: intent.usage_class,
            on_demand_fallback: intent.on_demand_fallback,
            allowed_instance_types: intent.allowed_instance_types.clone(),
            max_runtime_minutes: intent.max_runtime_minutes,
            timeout_seconds: intent.timeout_seconds,
            label_suffix: intent.label_suffix.clone(),
            priority: intent.priority.clone(),
        }
    }

    /// Returns the intent that is served, given the one that is written now.
    fn within(self, written: &Intent) -> Intent {
        Intent {
            resource_class: self.resource_class,
            count: self.count,
            min_count: self.min_count,
            usage_class: self.usage_class,
            on_demand_fallback: self.on_demand_fallback,
            allowed_instance_types: self.allowed_instance_types,
            max_runtime_minutes: self.max_runtime_minutes,
            timeout_seconds: self.timeout_seconds,
            label_suffix: self.label_suffix,
            priority: self.priority,
            wanted: written.wanted,
            repository: written.repository.clone(),
            desired: written.desired,
            generation: written.generation,
            created_at: written.created_at,
            fail_requested_at: written.fail_requested_at,
            fail_requested_by: written.fail_requested_by.clone(),
            asked: written.asked,
            trial: written.trial,
        }
    }
}

/// The flat stored form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRow {
    run_id: RunId,
    attempt: u32,
    repository: Repository,
    name: RequestName,
    resource_class: String,
    count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) min_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage_class: Option<UsageClass>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_demand_fallback: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowed_instance_types: Option<InstanceTypes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_runtime_minutes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label_suffix: Option<LabelSuffix>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted: Option<u32>,
    desired: Desired,
    generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_requested_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_requested_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Asked>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instances: Option<Vec<InstanceId>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    claims: BTreeMap<InstanceId, ClaimId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    served: Vec<InstanceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default, deserialize_with = "known_conditions", skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ready_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lent_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settled_for: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    observed_generation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted: Option<Accepted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released_by: Option<ReleasedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    derived_from: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rerun_requested_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority_value: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hourly_cost_nanos: Option<u64>,
    #[serde(default, deserialize_with = "known_job", skip_serializing_if = "Option::is_none")]
    job: Option<JobReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ready_source: Option<ReadySource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<Uid>,
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

/// Returns the served intent, and the written one where it differs.
fn served(accepted: Option<Accepted>, written: Intent) -> (Intent, Option<Box<Intent>>) {
    match accepted.map(|accepted| accepted.within(&written)) {
        Some(served) if served != written => (served, Some(Box::new(written))),
        Some(_) | None => (written, None),
    }
}

impl Record for Request {
    const KIND: Kind = Kind::Request;
    type Row = RequestRow;

    fn key(&self) -> RecordId {
        Self::key_of(&self.id)
    }

    fn to_row(&self) -> RequestRow {
        let (id, status) = (&self.id, &self.status);
        let (served, intent) = (&self.intent, self.written.as_deref().unwrap_or(&self.intent));
        let seen = status.phase.is_some();
        RequestRow {
            run_id: id.run_id.clone(),
            attempt: id.attempt,
            repository: intent.repository.clone(),
            name: id.name.clone(),
            resource_class: intent.resource_class.clone(),
            count: intent.count,
            min_count: (intent.min_count != intent.count).then_some(intent.min_count),
            usage_class: intent.usage_class,
            on_demand_fallback: intent.on_demand_fallback.then_some(true),
            allowed_instance_types: intent.allowed_instance_types.clone(),
            max_runtime_minutes: intent.max_runtime_minutes,
            timeout_seconds: (intent.timeout_seconds != TIMEOUT_SECONDS).then_some(intent.timeout_seconds),
            label_suffix: intent.label_suffix.clone(),
            priority: intent.priority.clone(),
            wanted: served.wanted,
            desired: served.desired,
            generation: served.generation,
            created_at: served.created_at,
            fail_requested_at: served.fail_requested_at,
            fail_requested_by: served.fail_requested_by.clone(),
            asked: Some(served.asked).filter(|asked| *asked != Asked::Verb),
            trial: served.trial.then_some(true),
            phase: status.phase,
            instances: seen.then(|| status.instances.clone()),
            claims: status.claims.clone(),
            served: status.served.clone(),
            message: seen.then(|| status.message.clone()),
            conditions: status.conditions.clone(),
            accepted_at: status.accepted_at,
            deadline: status.deadline,
            ready_at: status.ready_at,
            lent_since: status.lent_since,
            released_at: status.released_at,
            ended_at: status.ended_at,
            settled_for: status.settled_for,
            observed_generation: seen.then_some(status.observed_generation),
            expires_at: status.expires_at,
            accepted: status.accepted.then(|| Accepted::of(served)),
            released_by: status.released_by,
            derived_from: status.derived_from,
            rerun_requested_at: status.rerun_requested_at,
            share: status.share.clone(),
            priority_value: (status.priority_value != 0).then_some(status.priority_value),
            workflow: status.workflow.clone(),
            hourly_cost_nanos: status.hourly_cost_nanos,
            job: status.job.clone(),
            ready_source: status.ready_source,
            uid: self.uid.clone(),
            version: self.version,
            updated_at: self.updated_at,
        }
    }

    /// An intent that was accepted before records stored it separately is served as it is.
    fn from_row(key: &RecordId, row: RequestRow) -> Result<Self, FieldError> {
        let named = Self::id_of(key)?.repository;
        let repository = if named.is(&row.repository) { named } else { row.repository.clone() };
        let id = RequestKey { repository, run_id: row.run_id, name: row.name, attempt: row.attempt };
        let open = row.phase.is_some_and(Phase::wants_machines) && row.accepted.is_none();
        let types = row.allowed_instance_types.map(|types| if open { types } else { types.cut() });
        let short = |text: String| cut(&text, LONGEST_NAME);
        let written = Intent {
            repository: row.repository,
            resource_class: short(row.resource_class),
            count: row.count,
            min_count: row.min_count.unwrap_or(row.count),
            usage_class: row.usage_class,
            on_demand_fallback: row.on_demand_fallback.unwrap_or(false),
            allowed_instance_types: types,
            max_runtime_minutes: row.max_runtime_minutes,
            timeout_seconds: row.timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
            label_suffix: row.label_suffix,
            priority: row.priority.map(short),
            wanted: row.wanted,
            desired: row.desired,
            generation: row.generation,
            created_at: row.created_at,
            fail_requested_at: row.fail_requested_at,
            fail_requested_by: row.fail_requested_by.map(|by| cut(&by, LONGEST_PERSON)),
            asked: row.asked.unwrap_or(Asked::Verb),
            trial: row.trial.unwrap_or(false),
        };
        let (accepted, (intent, written)) = (row.accepted.is_some(), served(row.accepted, written));
        Ok(Self {
            id,
            intent,
            written,
            status: Status {
                phase: row.phase,
                instances: row.instances.unwrap_or_default(),
                claims: row.claims,
                served: row.served,
                message: row.message.unwrap_or_default(),
                conditions: row.conditions,
                accepted_at: row.accepted_at,
                accepted,
                released_by: row.released_by,
                derived_from: row.derived_from,
                rerun_requested_at: row.rerun_requested_at,
                share: row.share,
                priority_value: row.priority_value.unwrap_or(0),
                workflow: row.workflow,
                hourly_cost_nanos: row.hourly_cost_nanos,
                job: row.job,
                ready_source: row.ready_source,
                deadline: row.deadline,
                ready_at: row.ready_at,
                lent_since: row.lent_since,
                released_at: row.released_at,
                ended_at: row.ended_at,
                settled_for: row.settled_for,
                observed_generation: row.observed_generation.unwrap_or(0),
                expires_at: row.expires_at,
            },
            uid: row.uid,
            version: row.version,
            updated_at: row.updated_at,
        })
    }
}
