//! The bodies of the service, as github.com/actions/scaleset has them. Everything else in an answer is ignored, so that
//! GitHub may add to it.

use serde::{Deserialize, Serialize};

use crate::ports::github::Runner;
use crate::ports::scale_sets::{ScaleSet, SetSpec, Statistics};

/// The type of the labels of sets.
const LABEL_TYPE: &str = "System";
/// The name that a session has before GitHub names it.
const NO_SESSION: &str = "00000000-0000-0000-0000-000000000000";

#[derive(Serialize)]
pub(super) struct TenantRequest<'a> {
    pub(super) url: &'a str,
    pub(super) runner_event: &'static str,
}

#[derive(Deserialize)]
pub(super) struct TenantBody {
    pub(super) url: String,
    pub(super) token: String,
}

/// A list of things.
#[derive(Deserialize)]
pub(super) struct List<T> {
    #[serde(default = "Vec::new")]
    pub(super) value: Vec<T>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetRequest<'a> {
    name: &'a str,
    runner_group_id: u64,
    labels: Vec<LabelRequest<'a>>,
    #[serde(rename = "RunnerSetting")]
    runner_setting: SettingRequest,
}

#[derive(Serialize)]
struct LabelRequest<'a> {
    name: &'a str,
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SettingRequest {
    ephemeral: bool,
    disable_update: bool,
}

/// Returns the request for a set: its runners serve one job and do not update themselves.
pub(super) fn set(spec: &SetSpec) -> SetRequest<'_> {
    let label = |name| LabelRequest { name, r#type: LABEL_TYPE };
    SetRequest {
        name: &spec.name,
        runner_group_id: spec.group_id,
        labels: spec.labels.iter().map(String::as_str).map(label).collect(),
        runner_setting: SettingRequest { ephemeral: true, disable_update: true },
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetBody {
    id: u64,
    name: String,
    runner_group_id: u64,
    #[serde(default)]
    labels: Vec<LabelBody>,
}

#[derive(Deserialize)]
struct LabelBody {
    name: String,
}

impl From<SetBody> for ScaleSet {
    fn from(body: SetBody) -> Self {
        let labels = body.labels.into_iter().map(|label| label.name).collect();
        Self { id: body.id, spec: SetSpec { name: body.name, labels, group_id: body.runner_group_id } }
    }
}

#[derive(Deserialize)]
pub(super) struct GroupBody {
    pub(super) id: u64,
    pub(super) name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OpenRequest<'a> {
    session_id: &'static str,
    owner_name: &'a str,
}

impl<'a> OpenRequest<'a> {
    /// Returns the request of a listener of this name.
    pub(super) fn of(owner: &'a str) -> Self {
        Self { session_id: NO_SESSION, owner_name: owner }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionBody {
    #[serde(default)]
    pub(super) session_id: String,
    #[serde(default)]
    pub(super) message_queue_url: String,
    #[serde(default)]
    pub(super) message_queue_access_token: String,
    #[serde(default)]
    pub(super) statistics: Option<StatisticsBody>,
}

/// The counts of a set. GitHub's are signed.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StatisticsBody {
    total_available_jobs: i64,
    total_acquired_jobs: i64,
    total_assigned_jobs: i64,
    total_running_jobs: i64,
    total_registered_runners: i64,
    total_busy_runners: i64,
    total_idle_runners: i64,
}

impl From<StatisticsBody> for Statistics {
    fn from(body: StatisticsBody) -> Self {
        let count = |signed: i64| u32::try_from(signed.max(0)).unwrap_or(u32::MAX);
        Self {
            available: count(body.total_available_jobs),
            acquired: count(body.total_acquired_jobs),
            assigned: count(body.total_assigned_jobs),
            running: count(body.total_running_jobs),
            registered: count(body.total_registered_runners),
            busy: count(body.total_busy_runners),
            idle: count(body.total_idle_runners),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobConfigRequest<'a> {
    pub(super) name: &'a str,
    pub(super) work_folder: &'a str,
}

#[derive(Deserialize)]
pub(super) struct JobConfigBody {
    pub(super) runner: IdBody,
    #[serde(rename = "encodedJITConfig")]
    pub(super) encoded: String,
}

#[derive(Deserialize)]
pub(super) struct IdBody {
    pub(super) id: u64,
}

/// A runner. The public clients read no more than its number, its name and its set; a state that is not told counts as
/// offline.
#[derive(Deserialize)]
pub(super) struct RunnerBody {
    id: u64,
    pub(super) name: String,
    #[serde(default)]
    status: Option<String>,
}

impl From<RunnerBody> for Runner {
    fn from(body: RunnerBody) -> Self {
        let online = body.status.is_some_and(|status| status.eq_ignore_ascii_case("online"));
        // That a runner has a job is told by the refusal to remove it.
        Self { id: body.id, name: body.name, online, busy: false, labels: Vec::new() }
    }
}
