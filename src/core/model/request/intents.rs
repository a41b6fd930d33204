//! The two writes of a workflow: the intent of a new request, and its release. Everything else in a request is written
//! by the operator.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Asked, Desired, Intent, Phase, Request, Status, TIMEOUT_SECONDS};
use crate::model::record::item_of;
use crate::model::{
    AttributeValue, ClassName, Guard, InstanceTypes, Item, LabelSuffix, Record, RequestKey, Uid, UsageClass,
    Write, millis,
};

/// The longest that a machine may run for a request, in minutes: GitHub ends a workflow run after 35 days.
pub const LONGEST_RUNTIME_MINUTES: u64 = 35 * 24 * 60;
/// How long the request of a label that queued jobs have waits for its machines, in seconds: GitHub queues a job as
/// long. <https://docs.github.com/en/actions/reference/limits>
const QUEUED_SECONDS: u64 = 24 * 3600;
/// The longest that a request may wait for its machines, in seconds.
pub const LONGEST_TIMEOUT_SECONDS: u64 = 7 * 24 * 3600;

/// The intent of a workflow; none where the contract's default holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described at `Intent`")]
pub struct NewIntent {
    pub resource_class: ClassName,
    pub count: u32,
    pub min_count: Option<u32>,
    pub usage_class: Option<UsageClass>,
    pub on_demand_fallback: bool,
    pub allowed_instance_types: Option<InstanceTypes>,
    pub max_runtime_minutes: Option<u64>,
    pub timeout_seconds: Option<u64>,
    pub asked: Asked,
    pub trial: bool,
    pub label_suffix: Option<LabelSuffix>,
    pub priority: Option<String>,
}

impl NewIntent {
    /// Returns an intent for this many machines of a class, with the contract's defaults.
    pub const fn of(resource_class: ClassName, count: u32) -> Self {
        Self {
            resource_class,
            count,
            min_count: None,
            usage_class: None,
            on_demand_fallback: false,
            allowed_instance_types: None,
            max_runtime_minutes: None,
            timeout_seconds: None,
            asked: Asked::Verb,
            trial: false,
            label_suffix: None,
            priority: None,
        }
    }

    /// Builds the new record: the given values, and nothing where a default holds. Its key has the repository in lower
    /// case.
    pub fn item(self, id: &RequestKey, uid: Uid, now: Timestamp) -> Item {
        let (given_min, given_timeout) = (self.min_count, self.timeout_seconds);
        let request = self.request(id, uid, now);
        let mut row = request.to_row();
        // A given number stays, even if it is the current default.
        (row.min_count, row.timeout_seconds) = (given_min, given_timeout);
        item_of::<Request>(&request.key(), &row)
    }

    fn request(self, id: &RequestKey, uid: Uid, now: Timestamp) -> Request {
        let now = millis(now);
        let intent = Intent {
            repository: id.repository.clone(),
            resource_class: self.resource_class.to_string(),
            count: self.count,
            min_count: self.min_count.unwrap_or(self.count),
            usage_class: self.usage_class,
            on_demand_fallback: self.on_demand_fallback,
            allowed_instance_types: self.allowed_instance_types,
            max_runtime_minutes: self.max_runtime_minutes,
            timeout_seconds: self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
            label_suffix: self.label_suffix,
            priority: self.priority,
            wanted: None,
            desired: Desired::Provisioned,
            generation: 1,
            created_at: Some(now),
            fail_requested_at: None,
            fail_requested_by: None,
            asked: self.asked,
            trial: self.trial,
        };
        Request {
            id: RequestKey { repository: id.repository.folded(), ..id.clone() },
            intent,
            written: None,
            status: Status::default(),
            uid: Some(uid),
            version: 1,
            updated_at: Some(now),
        }
    }
}

impl Request {
    /// Builds the request of a later attempt of its run, for this many waiting jobs: the accepted intent of this one,
    /// and no more machines than it had requested.
    #[must_use]
    pub fn derived(&self, attempt: u32, jobs: u32, uid: Uid, now: Timestamp) -> Self {
        let now = millis(now);
        let count = jobs.clamp(1, self.intent.count.max(1));
        let intent = Intent {
            count,
            min_count: self.intent.min_count.min(count),
            wanted: None,
            desired: Desired::Provisioned,
            generation: 1,
            created_at: Some(now),
            fail_requested_at: None,
            fail_requested_by: None,
            asked: Asked::Rerun,
            ..self.intent.clone()
        };
        Self {
            id: RequestKey { repository: self.id.repository.folded(), attempt, ..self.id.clone() },
            intent,
            written: None,
            status: Status { derived_from: Some(self.id.attempt), ..Status::default() },
            uid: Some(uid),
            version: 1,
            updated_at: Some(now),
        }
    }
}

impl Request {
    /// Builds the request of a label that queued jobs have, for this many machines; one of them is enough.
    #[must_use]
    pub fn asked_by_job(id: &RequestKey, class: &ClassName, count: u32, uid: Uid, now: Timestamp) -> Self {
        let (min_count, timeout_seconds) = (Some(1), Some(QUEUED_SECONDS));
        let intent = NewIntent::of(class.clone(), count);
        NewIntent { min_count, timeout_seconds, asked: Asked::Job, ..intent }.request(id, uid, now)
    }

    /// Builds a slot of a scale set: a request of one machine whose runner serves any one job of the set.
    #[must_use]
    pub fn slot_of_set(id: &RequestKey, class: &ClassName, uid: Uid, now: Timestamp) -> Self {
        let intent = NewIntent::of(class.clone(), 1);
        NewIntent { timeout_seconds: Some(QUEUED_SECONDS), asked: Asked::Set, ..intent }.request(id, uid, now)
    }

    /// Writes into the intent that its jobs need more machines. A higher count is accepted like that of a workflow.
    pub fn raise_to(&mut self, count: u32, wanted: u32, now: Timestamp) {
        let mut written = self.written.take().unwrap_or_else(|| Box::new(self.intent.clone()));
        written.count = written.count.max(count);
        self.written = Some(written);
        let wanted = self.intent.wanted.map(|_| wanted);
        self.rewrite_wanted(wanted, now);
        self.settle_written();
    }

    /// Writes into the intent how many machines its jobs need now.
    pub fn want(&mut self, wanted: u32, now: Timestamp) {
        self.rewrite_wanted(Some(wanted), now);
    }

    /// Changes what is wanted in the next generation of the intent. After a rest, the time for which the request has
    /// machines begins anew.
    fn rewrite_wanted(&mut self, wanted: Option<u32>, now: Timestamp) {
        if self.rests() && wanted != Some(0) && self.status.phase == Some(Phase::Ready) {
            self.status.lent_since = Some(millis(now));
        }
        self.intent.generation += 1;
        self.intent.wanted = wanted;
        if let Some(written) = &mut self.written {
            (written.generation, written.wanted) = (self.intent.generation, wanted);
        }
    }
}

/// Releases the machines of a request, unless it was released already.
pub fn release(id: &RequestKey, now: Timestamp) -> Write {
    let string = |value: String| AttributeValue::S(value);
    let set = [("desired", Desired::Released.to_string()), ("updatedAt", millis(now).to_string())];
    let set: Item = set.map(|(name, value)| (name.to_owned(), string(value))).into_iter().collect();
    let more: BTreeMap<String, i64> = ["generation", "version"].map(|name| (name.to_owned(), 1)).into();
    Write::update(Request::key_of(id), Guard::StillProvisioned, set, more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Operation, Reading, read};
    use crate::testing::{ask, at};

    fn intent() -> NewIntent {
        NewIntent::of("linux".parse().unwrap(), 2)
    }

    #[test]
    fn a_new_request_carries_what_was_given_and_no_default() {
        let uid: Uid = "u-1".parse().unwrap();
        let mut id = ask("7");
        id.repository = "Acme/Web".parse().unwrap();
        let item = intent().item(&id, uid.clone(), at(0));
        let mut names: Vec<&str> = item.keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected = [
            "attempt",
            "count",
            "createdAt",
            "desired",
            "generation",
            "kind",
            "name",
            "pk",
            "repository",
            "resourceClass",
            "runId",
            "sk",
            "uid",
            "updatedAt",
            "version",
        ];
        assert_eq!(names, expected);
        let Reading::Record(request) = read::<Request>(&item) else { panic!("{item:?}") };
        assert_eq!((request.id, request.uid), (ask("7"), Some(uid.clone())));
        assert_eq!((request.intent.repository, request.intent.min_count), (id.repository.clone(), 2));
        let given = NewIntent { min_count: Some(2), timeout_seconds: Some(TIMEOUT_SECONDS), ..intent() };
        let item = given.item(&id, uid, at(0));
        assert!(item.contains_key("minCount") && item.contains_key("timeoutSeconds"), "they were given");
    }

    #[test]
    fn a_release_changes_a_request_that_is_still_wanted_and_nothing_else() {
        let write = release(&ask("7"), at(0));
        let Operation::Update { guard, set, remove, add } = write.operation else { panic!("an update") };
        assert_eq!((write.key, guard, remove.len()), (ask("7").into(), Guard::StillProvisioned, 0));
        assert_eq!(set.keys().collect::<Vec<_>>(), ["desired", "updatedAt"]);
        assert_eq!(add, [("generation".to_owned(), 1), ("version".to_owned(), 1)].into());
    }
}
