//! The pool of a resource class: its spec, a person's override, and its status. A class exists when its pool record
//! does.
//!
//! Over 400 lines: one record, with each attribute in its two forms.

mod ahead_lacks;
pub(crate) mod drift;
pub(crate) mod launch_template;
pub(crate) mod place;
pub(crate) mod queue;
pub(crate) mod registered_ahead;
pub(crate) mod replacement;
mod reuse;
pub(crate) mod schedule;
pub(crate) mod selector;
pub(crate) mod sets;
pub(crate) mod sharing;
pub(crate) mod sizing;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::record::{Record, Versioned, parse};
use crate::model::machine::hold::MAX_HOLD_SECONDS;
use crate::model::machine::instance::{Instance, InstanceFacts};
use crate::model::machine::jobs::Jobs;
use crate::model::machine::keep::Keep;
use crate::model::machine::runner_package::Adoption;
use crate::model::pool::launch_template::{LaunchTemplate, PinnedImage};
use crate::model::pool::queue::Queue;
use crate::model::pool::registered_ahead::{AheadStatus, RegisteredAhead};
use crate::model::pool::replacement::Replacement;
use crate::model::pool::schedule::Schedule;
use crate::model::pool::selector::{InstanceTypes, matches};
use crate::model::pool::sharing::{Sharing, Usage};
use crate::model::pool::sizing::{Demand, SizedDesired, Sizing};
use crate::model::record::condition::{Condition, known_conditions};
use crate::model::record::field::FieldError;
use crate::model::record::identity::{Kind, RecordId};
use crate::model::record::ids::{ClassName, Repository, Uid};
use crate::model::record::item::Item;
use crate::model::record::state::{RegistrationMode, ReuseWithin, State, UsageClass, words};
use crate::model::record::time::Seconds;

words! {
    /// How the label of a request is built.
    LabelMode {
        /// From the run's id and the request's name, which are public.
        Run = "run",
        /// With a secret part; requests without one are refused.
        Secret = "secret",
    }
}

/// How long an idle machine stays where its class does not set it, in seconds.
pub const IDLE_SECONDS: Seconds = 1800;
/// The least `idleSeconds` of a class that keeps machines: its deadlines are renewed before they pass, and a machine
/// with less than half a minute left is not claimed.
pub const LEAST_IDLE_SECONDS: Seconds = 60;

/// The spec of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    /// The class.
    pub resource_class: ClassName,
    /// vCPUs of a machine.
    #[serde(default)]
    pub cpu: u32,
    /// Its memory in MiB.
    #[serde(default)]
    pub mmem: u32,
    /// Idle machines kept ahead of need.
    #[serde(default)]
    pub desired: u32,
    /// The floor for schedules and `scale`.
    #[serde(default)]
    pub min: u32,
    /// Most live machines of the class, in every state, launches in progress included.
    #[serde(default = "default_max")]
    pub max: u32,
    /// When `desired` changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    /// How its machines are paid for.
    #[serde(default = "on_demand")]
    pub usage_class: UsageClass,
    /// The allowed EC2 types.
    #[serde(default, skip_serializing_if = "nothing")]
    pub allowed_instance_types: InstanceTypes,
    /// The bounds of the types that a request chooses itself; the allowed types where it is empty.
    #[serde(default, skip_serializing_if = "nothing")]
    pub request_types: InstanceTypes,
    /// How long an idle machine beyond `desired` stays, in seconds.
    #[serde(default = "default_idle")]
    pub idle_seconds: Seconds,
    /// The longest time that a request may hold a machine, in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_minutes: Option<u64>,
    /// How many claims a machine serves before it is retired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// The age at which a machine is retired, in seconds.
    #[serde(default = "default_age")]
    pub max_age_seconds: Seconds,
    /// How long a person may hold a machine, in seconds (`runyard hold`); 0: not at all.
    #[serde(default = "default_hold", skip_serializing_if = "is_default_hold")]
    pub max_hold_seconds: Seconds,
    /// Whether nothing is launched or claimed for now.
    #[serde(default)]
    pub paused: bool,
    /// Extra labels; each appears as `<run's label>.<extra>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Whether the labels of its requests must have a secret part.
    #[serde(default = "label_of_run", skip_serializing_if = "is_of_run")]
    pub label_mode: LabelMode,
    /// The runner group; empty for the default one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub runner_group: String,
    /// How runners are registered.
    #[serde(default = "mode_run")]
    pub registration_mode: RegistrationMode,
    /// Globs of repositories that may use the class.
    #[serde(default = "everyone")]
    pub repositories: Vec<String>,
    /// The boundary within which machines are reused.
    #[serde(default = "owner")]
    pub reuse_within: ReuseWithin,
    /// The directories that survive from one run of a repository to the next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<Keep>,
    /// The launch configuration for EC2.
    #[serde(default)]
    pub launch: LaunchTemplate,
    /// How drifted idle machines are replaced.
    #[serde(default, skip_serializing_if = "Replacement::is_default")]
    pub replacement: Replacement,
    /// How its machines are shared; none where the oldest request is always served first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// The wait that the class promises; none where the operator does not set its number of idle machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizing: Option<Sizing>,
    /// The permissions of its jobs on their machine.
    #[serde(default, skip_serializing_if = "Jobs::is_default")]
    pub jobs: Jobs,
    /// Whether the runners of its pooled machines are registered before a claim.
    #[serde(default, skip_serializing_if = "RegisteredAhead::is_auto")]
    pub registered_ahead: RegisteredAhead,
    /// The queued jobs that make requests by themselves; none where only jobs that ask get machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
}

fn default_max() -> u32 {
    100
}
fn default_idle() -> Seconds {
    IDLE_SECONDS
}
fn default_age() -> Seconds {
    86_400
}
fn default_hold() -> Seconds {
    MAX_HOLD_SECONDS
}
const fn is_default_hold(seconds: &Seconds) -> bool {
    *seconds == MAX_HOLD_SECONDS
}
fn on_demand() -> UsageClass {
    UsageClass::OnDemand
}
fn label_of_run() -> LabelMode {
    LabelMode::Run
}
const fn is_of_run(mode: &LabelMode) -> bool {
    match mode {
        LabelMode::Run => true,
        LabelMode::Secret => false,
    }
}
fn mode_run() -> RegistrationMode {
    RegistrationMode::Run
}
fn everyone() -> Vec<String> {
    vec!["*".into()]
}
fn owner() -> ReuseWithin {
    ReuseWithin::Owner
}
fn nothing(types: &InstanceTypes) -> bool {
    types.0.is_empty()
}

impl PoolSpec {
    /// Returns whether the class admits this repository.
    pub fn admits(&self, repository: &Repository) -> bool {
        let folded = repository.folded();
        self.repositories.iter().any(|glob| matches(&glob.to_ascii_lowercase(), folded.as_str()))
    }

    /// Returns whether every repository that these globs admit may use the class already.
    pub fn covers(&self, globs: &[String]) -> bool {
        // A `*` in the given glob is a character like any other here, which only a `*` of the class's globs matches.
        let within = |glob: &String| {
            let glob = glob.to_ascii_lowercase();
            self.repositories.iter().any(|own| matches(&own.to_ascii_lowercase(), &glob))
        };
        globs.iter().all(within)
    }

    /// Returns the bounds of the types that a request chooses itself; empty: any type.
    pub fn requestable(&self) -> &InstanceTypes {
        if self.request_types.0.is_empty() { &self.allowed_instance_types } else { &self.request_types }
    }

    /// Returns the first of these globs that admits a type outside the bounds for requests.
    pub fn beyond_requestable<'a>(&self, types: &'a InstanceTypes) -> Option<&'a str> {
        let own = &self.requestable().0;
        // A `*` in the given glob is a character like any other here, which only a `*` of the class's globs matches.
        let within = |glob: &str| own.is_empty() || own.iter().any(|own| matches(own, glob));
        if types.0.is_empty() {
            // An empty list accepts every type.
            return (!within("*")).then_some("*");
        }
        types.0.iter().map(String::as_str).find(|glob| !within(glob))
    }

    /// Returns why a request may not choose these types; none where it may.
    pub fn refuses_types(&self, types: &InstanceTypes) -> Option<String> {
        let glob = self.beyond_requestable(types)?;
        Some(format!(
            "allowedInstanceTypes: class {} lets no request choose {glob}, only within {}; ask for these, or for none",
            self.resource_class,
            self.requestable().0.join(" ")
        ))
    }

    /// Returns the largest machine that a request may choose by types of its own, in vCPUs and MiB, where the class
    /// names no types: four times its size. None for a size that the class leaves open, and where it names types.
    pub fn largest_chosen(&self) -> (Option<u32>, Option<u32>) {
        let most = |size: u32| (size > 0).then(|| size.saturating_mul(4));
        match self.requestable().0.is_empty() {
            true => (most(self.cpu), most(self.mmem)),
            false => (None, None),
        }
    }

    /// Returns the trust domain that a machine enters when it is first assigned to this repository, in lower case.
    pub fn trust_domain(&self, repository: &Repository) -> String {
        let repository = repository.folded();
        match self.reuse_within {
            ReuseWithin::Repository => format!("repository:{repository}"),
            ReuseWithin::Owner => format!("owner:{}", repository.owner()),
            ReuseWithin::Any => "any".into(),
            ReuseWithin::Never => "none".into(),
        }
    }

    /// Returns whether a machine is large enough for the class and of a type that it accepts.
    pub fn fits(&self, facts: &InstanceFacts) -> bool {
        let large = facts.cpu >= self.cpu && facts.mmem >= self.mmem;
        large && self.allowed_instance_types.accept(&facts.instance_type)
    }

    /// Returns the permissions of a claim's jobs: those of the class, as far as such a class may grant them.
    pub fn granted_jobs(&self) -> Jobs {
        self.jobs.granted(self.reuse_within, self.registration_mode)
    }

    /// Returns whether a machine that serves no request now has served all the claims that its class allows. Where
    /// machines are not shared, one claim is all, even one whose runner was never seen to listen: its job may have run
    /// all the same. The same holds where a job could become root, whatever the class allows now.
    pub fn used_up(&self, machine: &Instance) -> bool {
        if machine.claim.is_some() && machine.jobs.single_use() {
            return true;
        }
        match self.reuse_within {
            ReuseWithin::Never => machine.claim.is_some(),
            ReuseWithin::Repository | ReuseWithin::Owner | ReuseWithin::Any => {
                self.max_uses.is_some_and(|most| machine.uses >= most)
            }
        }
    }
}

/// A person's `scale`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolOverride {
    /// Idle machines kept.
    pub desired: u32,
    /// The end; permanent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The person.
    pub by: String,
    /// The time of the command.
    pub at: Timestamp,
}

/// Live machines per state.
pub type Counts = BTreeMap<State, u32>;

/// How many trust domains a pool's status names.
const DOMAINS_NAMED: usize = 10;

/// The idle machines of a class by trust domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleMachines {
    /// All that count as idle: pooled, being cleaned, or warm and booting.
    pub idle: u32,
    /// Those of them that served no request.
    pub idle_for_anybody: u32,
    /// The others by trust domain: the ten domains with most machines.
    pub warm_for: BTreeMap<String, u32>,
}

impl IdleMachines {
    /// Builds the counts from the machines for any request, the machines of each trust domain, and their total, which
    /// includes those that no request can get.
    pub fn of(anybody: u32, domains: BTreeMap<String, u32>, assigned: u32) -> Self {
        let mut most: Vec<(String, u32)> = domains.into_iter().collect();
        most.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        most.truncate(DOMAINS_NAMED);
        Self {
            idle: anybody.saturating_add(assigned),
            idle_for_anybody: anybody,
            warm_for: most.into_iter().collect(),
        }
    }
}

/// The status of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Machines per state.
    pub counts: Counts,
    /// The idle machines by trust domain; none before an operator has written them.
    pub idle: Option<IdleMachines>,
    /// The message for people.
    pub message: String,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The image that the parameter of `launch.ami` named when it was last resolved.
    pub image: Option<PinnedImage>,
    /// The use of its shares, where it has `sharing`.
    pub usage: Option<Usage>,
    /// The number of idle machines that the operator set, where it has `sizing`.
    pub sized_desired: Option<SizedDesired>,
    /// The learned past demand, where it has `sizing`.
    pub demand: Option<Demand>,
    /// The adoption of new versions of the runner package, where its machines follow them.
    pub runner: Adoption,
    /// Whether runners of its pooled machines are registered ahead; none before an operator has written it.
    pub ahead: Option<AheadStatus>,
}

/// The pool record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The spec.
    pub spec: PoolSpec,
    /// A person's `scale`, which overrides the spec.
    pub scale: Option<PoolOverride>,
    /// The status of a pool.
    pub status: PoolStatus,
    /// The record's identity; none in records written before there were any.
    pub uid: Option<Uid>,
    /// The number of writes.
    pub version: u64,
    /// When it was last written.
    pub updated_at: Option<Timestamp>,
}

impl Pool {
    /// Returns how long an idle machine stays: a moment at least, and where the class keeps machines
    /// [`LEAST_IDLE_SECONDS`].
    pub fn idle_time(&self) -> Duration {
        let least = if self.keeps_machines() { LEAST_IDLE_SECONDS } else { 1 };
        Duration::from_secs(self.spec.idle_seconds.max(least))
    }

    /// Returns whether the class ever keeps idle machines: by its spec, by a schedule or by a person's `scale`.
    pub fn keeps_machines(&self) -> bool {
        let scaled = self.scale.as_ref().map_or(0, |scale| scale.desired);
        let spec = &self.spec;
        let scheduled = spec.schedules.iter().map(|schedule| schedule.desired);
        let sized = self.sized().map_or(0, |sized| sized.desired);
        scheduled.chain([spec.desired, spec.min, scaled, sized]).any(|desired| desired > 0)
    }

    /// Returns the number that the operator set, where the class still has `sizing`.
    pub fn sized(&self) -> Option<&SizedDesired> {
        self.status.sized_desired.as_ref().filter(|_| self.spec.sizing.is_some())
    }

    /// Returns the image that its machines are launched from, where its spec names a parameter: the one that the
    /// parameter was last resolved to. None before it was resolved, and where the spec now names another parameter, or
    /// none.
    pub fn pinned(&self) -> Option<&PinnedImage> {
        let parameter = self.spec.launch.parameter()?;
        self.status.image.as_ref().filter(|image| image.parameter == parameter)
    }

    /// Returns the key of a class's pool.
    pub fn key_of(class: &ClassName) -> RecordId {
        RecordId::Pool(class.clone())
    }
}

/// The flat stored form. Only its parts are ever parsed, see [`Record::row`] below.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolRow {
    #[serde(flatten)]
    spec: PoolSpec,
    #[serde(flatten)]
    rest: PoolRest,
}

/// The attributes of a pool record besides its spec.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolRest {
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    scale: Option<PoolOverride>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle_for_anybody: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warm_for: Option<BTreeMap<String, u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default, deserialize_with = "known_conditions", skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<PinnedImage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sized_desired: Option<SizedDesired>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    demand: Option<Demand>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runner: Option<Adoption>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ahead: Option<AheadStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<Uid>,
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

impl Record for Pool {
    const KIND: Kind = Kind::Pool;
    type Row = PoolRow;

    fn key(&self) -> RecordId {
        Self::key_of(&self.spec.resource_class)
    }

    fn to_row(&self) -> PoolRow {
        let seen = !self.status.counts.is_empty();
        let rest = PoolRest {
            scale: self.scale.clone(),
            counts: seen.then(|| self.status.counts.clone()),
            idle: self.status.idle.as_ref().map(|idle| idle.idle),
            idle_for_anybody: self.status.idle.as_ref().map(|idle| idle.idle_for_anybody),
            warm_for: self.status.idle.as_ref().map(|idle| idle.warm_for.clone()),
            message: seen.then(|| self.status.message.clone()),
            conditions: self.status.conditions.clone(),
            image: self.status.image.clone(),
            usage: self.status.usage.clone(),
            sized_desired: self.status.sized_desired.clone(),
            demand: self.status.demand.clone(),
            runner: Some(self.status.runner.clone()).filter(|runner| *runner != Adoption::default()),
            ahead: self.status.ahead.clone(),
            uid: self.uid.clone(),
            version: self.version,
            updated_at: self.updated_at,
        };
        PoolRow { spec: self.spec.clone(), rest }
    }

    fn row(attributes: &Item) -> Result<PoolRow, String> {
        Ok(PoolRow { spec: parse(attributes)?, rest: parse(attributes)? })
    }

    fn from_row(_: &RecordId, row: PoolRow) -> Result<Self, FieldError> {
        let PoolRow { spec, rest } = row;
        Ok(Self {
            spec,
            scale: rest.scale,
            status: PoolStatus {
                counts: rest.counts.unwrap_or_default(),
                idle: rest.idle.map(|idle| IdleMachines {
                    idle,
                    idle_for_anybody: rest.idle_for_anybody.unwrap_or_default(),
                    warm_for: rest.warm_for.unwrap_or_default(),
                }),
                message: rest.message.unwrap_or_default(),
                conditions: rest.conditions,
                image: rest.image,
                usage: rest.usage,
                sized_desired: rest.sized_desired,
                demand: rest.demand,
                runner: rest.runner.unwrap_or_default(),
                ahead: rest.ahead,
            },
            uid: rest.uid,
            version: rest.version,
            updated_at: rest.updated_at,
        })
    }
}

impl Versioned for Pool {
    fn version(&self) -> u64 {
        self.version
    }

    fn uid(&self) -> Option<&Uid> {
        self.uid.as_ref()
    }

    fn advance(&mut self, now: Timestamp) {
        self.version += 1;
        self.updated_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(more: serde_json::Value) -> PoolSpec {
        let mut fields = serde_json::json!({"resourceClass": "linux"});
        for (name, value) in more.as_object().unwrap() {
            fields[name] = value.clone();
        }
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn what_a_pool_does_not_say_has_the_contracts_value() {
        let plain = spec(serde_json::json!({}));
        assert_eq!((plain.cpu, plain.mmem, plain.desired, plain.min, plain.max), (0, 0, 0, 0, 100));
        assert_eq!((plain.idle_seconds, plain.max_age_seconds), (1800, 86_400));
        assert_eq!((plain.max_runtime_minutes, plain.max_uses, plain.paused), (None, None, false));
        assert_eq!(plain.usage_class, UsageClass::OnDemand);
        assert_eq!(plain.registration_mode, RegistrationMode::Run);
        assert_eq!((plain.repositories, plain.reuse_within), (vec!["*".to_owned()], ReuseWithin::Owner));
        let schedule: Schedule =
            serde_json::from_value(serde_json::json!({"cron": "@daily", "desired": 1})).unwrap();
        assert_eq!(schedule.time_zone, "UTC");
    }

    #[test]
    fn a_class_that_keeps_machines_keeps_them_a_minute_at_least() {
        let pool = |more: serde_json::Value, scale: Option<u32>| Pool {
            spec: spec(more),
            scale: scale.map(|desired| PoolOverride {
                desired,
                until: None,
                by: "me".into(),
                at: Timestamp::UNIX_EPOCH,
            }),
            uid: None,
            status: PoolStatus::default(),
            version: 1,
            updated_at: None,
        };
        let schedule = serde_json::json!([{"cron": "0 8 * * 1-5", "desired": 2}]);
        for (more, scale, seconds) in [
            (serde_json::json!({"idleSeconds": 0}), None, 1),
            (serde_json::json!({"idleSeconds": 10}), Some(0), 10),
            (serde_json::json!({"idleSeconds": 10}), Some(1), 60),
            (serde_json::json!({"idleSeconds": 10, "desired": 1}), None, 60),
            (serde_json::json!({"idleSeconds": 10, "min": 1}), None, 60),
            (serde_json::json!({"idleSeconds": 10, "schedules": schedule}), None, 60),
            (serde_json::json!({"idleSeconds": 61, "desired": 1}), None, 61),
        ] {
            let told = format!("{more} {scale:?}");
            assert_eq!(pool(more, scale).idle_time(), Duration::from_secs(seconds), "{told}");
        }
    }

    #[test]
    fn types_are_stored_only_where_some_are_named() {
        let stored = |more| serde_json::to_value(spec(more)).unwrap().get("allowedInstanceTypes").cloned();
        assert_eq!(stored(serde_json::json!({})), None);
        let types = serde_json::json!(["m7i.*"]);
        assert_eq!(stored(serde_json::json!({"allowedInstanceTypes": types})), Some(types));
    }

    #[test]
    fn a_request_chooses_within_the_types_of_its_class_or_those_open_to_requests() {
        let types = |globs: &[&str]| InstanceTypes(globs.iter().map(|glob| (*glob).to_owned()).collect());
        let beyond = |more: serde_json::Value, globs: &[&str]| -> Option<String> {
            spec(more).beyond_requestable(&types(globs)).map(str::to_owned)
        };
        let nano = || serde_json::json!({"allowedInstanceTypes": ["t3.nano"]});
        let opened = || serde_json::json!({"allowedInstanceTypes": ["t3.nano"], "requestTypes": ["m7i.*", "c7*.large"]});
        for (more, good, bad) in [
            (nano(), vec!["t3.nano"], vec!["t3.*", "*", "p5.48xlarge", "t3.nano*"]),
            (opened(), vec!["m7i.*", "m7i.2*", "c7i.large", "c7*.large"], vec!["m7*", "t3.nano", "c7*large"]),
            (serde_json::json!({}), vec!["p5.48xlarge", "*"], vec![]),
            (
                serde_json::json!({"allowedInstanceTypes": ["t3.nano"], "requestTypes": ["*"]}),
                vec!["p5.*"],
                vec![],
            ),
        ] {
            good.iter().for_each(|glob| assert_eq!(beyond(more.clone(), &[glob]), None, "{more} {glob}"));
            for glob in bad {
                let all = [good[0], glob];
                assert_eq!(beyond(more.clone(), &all).as_deref(), Some(glob), "{more} {glob}");
            }
        }
        assert_eq!(beyond(nano(), &[]).as_deref(), Some("*"), "an empty list is any type");
        assert_eq!(beyond(serde_json::json!({}), &[]), None);
    }

    #[test]
    fn where_a_class_names_no_types_a_request_chooses_up_to_four_times_its_size() {
        let sized = |more: serde_json::Value| {
            let mut fields = serde_json::json!({"cpu": 2, "mmem": 4096});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec(fields).largest_chosen()
        };
        assert_eq!(sized(serde_json::json!({})), (Some(8), Some(16_384)));
        assert_eq!(sized(serde_json::json!({"mmem": 0})), (Some(8), None));
        assert_eq!(sized(serde_json::json!({"cpu": u32::MAX})).0, Some(u32::MAX));
        for named in ["allowedInstanceTypes", "requestTypes"] {
            assert_eq!(sized(serde_json::json!({named: ["*"]})), (None, None), "{named}");
        }
    }

    #[test]
    fn who_may_use_a_class_and_within_what_its_machines_are_used_again() {
        let web: Repository = "acme/web".parse().unwrap();
        let admits = |globs: &[&str]| spec(serde_json::json!({"repositories": globs})).admits(&web);
        assert!(admits(&["*"]) && admits(&["other/*", "acme/*"]) && admits(&["acme/web"]));
        assert!(!admits(&[]) && !admits(&["acme/api", "other/*"]));
        assert!(admits(&["Acme/*"]) && admits(&["ACME/web"]), "GitHub does not regard case");
        let shouted: Repository = "Acme/WEB".parse().unwrap();
        assert!(spec(serde_json::json!({"repositories": ["acme/w*"]})).admits(&shouted));
        for (within, domain) in
            [("repository", "repository:acme/web"), ("owner", "owner:acme"), ("any", "any"), ("none", "none")]
        {
            let spec = spec(serde_json::json!({"reuseWithin": within}));
            assert_eq!(spec.trust_domain(&web), domain);
            assert_eq!(spec.trust_domain(&shouted), domain);
        }
    }

    #[test]
    fn a_machine_is_used_up_by_its_uses_or_where_nobody_shares_by_its_first_claim() {
        let golden = include_str!("../../../tests/golden/instance-idle-pooled.json");
        let mut machine: Instance = match crate::model::read(&serde_json::from_str::<Item>(golden).unwrap()) {
            crate::model::Reading::Record(machine) => machine,
            other => panic!("it is golden: {other:?}"),
        };
        assert!(machine.claim.is_some());
        let used_up = |more, machine: &Instance| spec(more).used_up(machine);
        for uses in [0, 7] {
            machine.uses = uses;
            assert!(!used_up(serde_json::json!({}), &machine));
            assert_eq!(used_up(serde_json::json!({"maxUses": 7}), &machine), uses == 7);
            assert!(used_up(serde_json::json!({"reuseWithin": "none", "maxUses": 9}), &machine), "{uses}");
        }
        machine.claim = None;
        assert!(!used_up(serde_json::json!({"reuseWithin": "none"}), &machine), "it has served nobody");
    }

    #[test]
    fn what_a_newer_program_says_within_a_record_makes_nothing_unreadable() {
        let told = |golden: &serde_json::Value| {
            let item: Item = serde_json::from_value(golden.clone()).unwrap();
            match crate::model::read::<Pool>(&item) {
                crate::model::Reading::Record(pool) => pool,
                other => panic!("it is golden, and then some: {other:?}"),
            }
        };
        let mut golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/golden/pool-full.json")).unwrap();
        let before = told(&golden);
        assert!(before.spec.launch != LaunchTemplate::default() && !before.spec.schedules.is_empty());
        let newer = serde_json::json!({"S": "newer"});
        let condition = serde_json::json!({"M": {"type": {"S": "Newer"}, "status": {"BOOL": true}}});
        golden["conditions"]["L"].as_array_mut().unwrap().push(condition);
        golden["launch"]["M"]["newer"] = newer.clone();
        golden["schedules"]["L"][0]["M"]["newer"] = newer.clone();
        golden["replacement"] = serde_json::json!({"M": {"newer": newer}});
        assert_eq!(told(&golden), before);
    }

    #[test]
    fn what_nobody_counted_yet_is_not_stored() {
        let mut pool = Pool {
            spec: spec(serde_json::json!({})),
            scale: None,
            status: PoolStatus { message: "said".into(), ..PoolStatus::default() },
            uid: None,
            version: 1,
            updated_at: None,
        };
        assert!(!pool.to_item().contains_key("counts") && !pool.to_item().contains_key("message"));
        pool.status.counts.insert(State::Idle, 2);
        assert!(pool.to_item().contains_key("counts") && pool.to_item().contains_key("message"));
        pool.advance(Timestamp::UNIX_EPOCH);
        assert_eq!((pool.version(), pool.updated_at), (2, Some(Timestamp::UNIX_EPOCH)));
    }
}
