//! Processes observations: each updates the images and the indexes and returns the units that must be judged again.
//! Observations are hints with a version and, for reads, the moment at which the read began: an older image never
//! replaces a newer one, and a record created anew under the same key is another record.
//!
//! Over 400 lines: each kind of observation has its arm.

mod ahead;
mod github;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::{
    Item, Kind, Lease, Reading, Record, RecordId, SetRecord, Uid, Unreadable, Versioned, read,
};

use super::{Archived, Former, Now, Observation, Tracked, Unit, UnreadMachine, Written, Yard};

/// How an image was received, which decides what it may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A change of the table, or a write of this process.
    Told,
    /// A read that began at this moment of the monotonic clock: it shows the state of that moment, or a later one.
    Read(Duration),
}

/// How long a removed or replaced record is remembered: longer than a page of a list can wait to be observed.
const FORMER_KEPT: Duration = Duration::from_secs(600);
/// How long the absence of a record is remembered; afterwards it is read again when that matters.
const ABSENCE_KEPT: Duration = Duration::from_secs(3600);
/// How long a queue that did not respond is not used.
const QUEUE_DOWN: Duration = Duration::from_secs(15);

impl Yard {
    /// Applies one observation to the images and the indexes and returns the units that must be judged again.
    ///
    /// # Guarantees
    /// - An older image never replaces a newer one. Versions are compared where both images are of one record (same
    ///   `uid`), else the time at which a read began (`Source`).
    /// - A record that cannot be read, or that a newer program wrote, is remembered by name, keeps its machine counted
    ///   and changes nothing else.
    /// - Every unit whose decision can differ because of this observation is returned. Units may be returned whose
    ///   decision is the same.
    /// - The work does not depend on the number of records, except for [`Observation::Listed`],
    ///   [`Observation::Inventory`] and a change of a pool's spec or scale.
    ///
    /// # Assumes
    /// - The changes of one record arrive in their order; changes of different records, pages and strong reads arrive
    ///   in any order and any number of times.
    /// - `now` never runs backwards on the monotonic clock, and each read carries the moment at which it began.
    ///
    /// # Errors
    /// None: an observation about something unknown changes nothing.
    pub fn observe(&mut self, seen: Observation, now: &Now) -> BTreeSet<Unit> {
        let mut dirty = BTreeSet::new();
        self.fire(now);
        match seen {
            Observation::Record(key, item) => self.record(&key, item.as_ref(), Source::Told, now, &mut dirty),
            Observation::Shown(begun, key, item) => {
                self.record(&key, Some(&item), Source::Read(begun), now, &mut dirty)
            }
            Observation::Written(record) => self.written(*record, now, &mut dirty),
            Observation::Looked(begun, key, item) => self.looked(begun, &key, item.as_ref(), now, &mut dirty),
            Observation::Listed(begun, keys) => self.listed(begun, &keys, now, &mut dirty),
            Observation::Ordered(id, answer) => self.ordered(&id, answer, now, &mut dirty),
            Observation::WhyEnded(arn, reason) => self.why_ended(&arn, reason, now, &mut dirty),
            Observation::Inventory(machines) => self.inventory(machines, now, &mut dirty),
            Observation::Notice(notice) => self.noticed(notice, &mut dirty),
            Observation::GitHub(arn, answered) => self.github_said(&arn, answered),
            Observation::RunnerBusy(arn) => self.of(&arn, &mut dirty, Tracked::runner_busy),
            Observation::PutOff(arn, wait) => self.of(&arn, &mut dirty, |of| of.put_off(now.mono + wait)),
            Observation::LabelFailed(arn, refused) => self.label_failed(&arn, refused, now, &mut dirty),
            Observation::LabelGiven(arn) => self.label_given(&arn),
            Observation::AheadRefused(arn) => self.of(&arn, &mut dirty, |of| of.rest.refused(now.mono)),
            Observation::LabelSet(arn) => self.of(&arn, &mut dirty, |tracked| tracked.unlabelled = None),
            Observation::RunRefused(id, why) => {
                if let Some(asked) = self.requests.get_mut(&id) {
                    asked.refused = Some(why);
                    dirty.insert(Unit::Request(id));
                }
            }
            Observation::Recalled(id, ended) => {
                if let Some(asked) = self.requests.get_mut(&id) {
                    asked.archived = ended.map_or(Archived::Absent, Archived::Ended);
                    dirty.extend(Self::class_of(&asked.request).map(Unit::Class));
                    dirty.insert(Unit::Request(id));
                }
            }
            Observation::Hints(class, hints) => {
                let entry = self.classes.entry(class.clone()).or_default();
                entry.received = Some(now.mono);
                entry.hints = hints;
                dirty.insert(Unit::Class(class));
            }
            Observation::QueueDown(class) => {
                let entry = self.classes.entry(class.clone()).or_default();
                entry.received = Some(now.mono + QUEUE_DOWN);
                entry.hints.clear();
                dirty.insert(Unit::Class(class));
            }
            Observation::Reported(class) => {
                self.classes.entry(class).or_default().reported = Some(now.mono);
            }
            Observation::Ended(arn) => self.of(&arn, &mut dirty, |of| {
                of.ended = Some((now.mono, of.ended.map_or(0, |(_, times)| times).saturating_add(1)));
            }),
            Observation::Console(arn, line) => self.of(&arn, &mut dirty, |tracked| {
                let times = tracked.console_read.map_or(0, |(_, times)| times);
                tracked.console_read = Some((now.mono, times.saturating_add(1)));
                tracked.console_line = line.or(tracked.console_line.take());
            }),
            Observation::Stands(arn, state) => self.stands(&arn, state, now, &mut dirty),
            Observation::Announced(arn) => self.of(&arn, &mut dirty, |of| of.announced = Some(now.mono)),
            Observation::Unannounced(arn) => self.of(&arn, &mut dirty, |of| of.announced = None),
            Observation::Swept(arn) => self.of(&arn, &mut dirty, |tracked| tracked.swept = true),
        }
        dirty
    }

    fn record(
        &mut self,
        key: &RecordId,
        item: Option<&Item>,
        source: Source,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let Some(kind) = key.kind().filter(|kind| *kind != Kind::Event) else { return };
        if self.outlived(key, item, source) {
            return;
        }
        if item.is_none() {
            self.there.remove(key);
            let uid = self.uid_of(key);
            self.former.insert(key.clone(), Former { uid, at: now.mono });
        }
        match kind {
            Kind::Instance => {
                let known = key.instance().and_then(|arn| self.instances.get(arn));
                let was = known.map(|tracked| UnreadMachine::after(tracked));
                self.take(key, item, source, dirty, |yard, record, dirty| {
                    yard.instance_is(key, record, source, now, dirty)
                });
                self.note_unread(key, item, was, dirty);
            }
            Kind::Agent => self.take(key, item, source, dirty, |yard, record, dirty| {
                yard.agent_is(key, record, source, now, dirty)
            }),
            Kind::Request => self.take(key, item, source, dirty, |yard, record, dirty| {
                yard.request_is(key, record, source, now, dirty)
            }),
            Kind::Pool => self.take(key, item, source, dirty, |yard, record, dirty| {
                yard.pool_is(key, record, source, now, dirty)
            }),
            Kind::Launch => self.take(key, item, source, dirty, |yard, record, dirty| {
                yard.launch_is(key, record, source, now, dirty)
            }),
            // No decision depends on it; it is kept to show which operator leads.
            Kind::Lease => self.take::<Lease>(key, item, source, dirty, |yard, lease, _| {
                let version = |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.version);
                if *key == Lease::key_of(Lease::OPERATOR)
                    && (lease.is_none() || version(&lease) >= version(&yard.lease))
                {
                    yard.lease = lease;
                }
            }),
            // Slots live by their own records; the leader's loop and people read it.
            Kind::Queue => self.take::<SetRecord>(key, item, source, dirty, |yard, set, _| {
                let RecordId::Queue(class, place) = key else { return };
                let key = (class.clone(), place.clone());
                match (set, yard.sets.get(&key)) {
                    (None, _) => drop(yard.sets.remove(&key)),
                    (Some(set), Some(known)) if set.uid == known.uid && set.version < known.version => {}
                    (Some(set), _) => drop(yard.sets.insert(key, set)),
                }
            }),
            Kind::Event => return,
        }
        if item.is_some() {
            self.is_there(key, now);
        }
    }

    /// Returns whether a read is out of date: a record that it does not show was seen since it began, or a record that
    /// it shows was removed since.
    fn outlived(&self, key: &RecordId, item: Option<&Item>, source: Source) -> bool {
        let Source::Read(begun) = source else { return false };
        let seen = self.seen_since(key, begun);
        match item {
            None => seen,
            // Where one of two images cannot be read, nothing shows which is newer.
            Some(_) if seen => self.is_unreadable(key),
            Some(_) => self.former.get(key).is_some_and(|former| former.at >= begun),
        }
    }

    /// Returns the uid of the record known under a key.
    fn uid_of(&self, id: &RecordId) -> Option<Uid> {
        match id {
            RecordId::Request(id) => self.requests.get(id).and_then(|asked| asked.request.uid.clone()),
            RecordId::Pool(class) => self.pool(class).and_then(|pool| pool.uid.clone()),
            RecordId::Launch(id) => self.launches.get(id).and_then(|tracked| tracked.launch.uid.clone()),
            RecordId::Instance(_)
            | RecordId::Agent(_)
            | RecordId::Lease(_)
            | RecordId::Queue(..)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => None,
        }
    }

    /// Returns whether an image replaces the known one. A read that began after the known image was last seen always
    /// does. Otherwise the higher version of the same record does, and so does another record under the key, unless
    /// that record is known to be a former one.
    pub(super) fn replaces<T: Versioned + PartialEq>(
        &self,
        key: &RecordId,
        old: &T,
        new: &T,
        source: Source,
    ) -> bool {
        if let Source::Read(begun) = source
            && !self.seen_since(key, begun)
        {
            return old != new;
        }
        if old.uid() == new.uid() {
            return new.version() > old.version();
        }
        match (new.uid(), source) {
            (Some(uid), Source::Told | Source::Read(_)) => {
                self.former.get(key).is_none_or(|former| former.uid.as_ref() != Some(uid))
            }
            (None, Source::Told) => true,
            // Written before records had a uid, or by a program that does not know uids: a read that begins later
            // decides.
            (None, Source::Read(_)) => false,
        }
    }

    /// Remembers that another record is under a key now.
    pub(super) fn succeeds<T: Versioned>(&mut self, key: &RecordId, old: Option<&Uid>, new: &T, now: &Now) {
        if old != new.uid() {
            self.former.insert(key.clone(), Former { uid: old.cloned(), at: now.mono });
        }
    }

    /// Returns the field that stores when a record was last seen, for records that have one.
    fn place(&mut self, id: &RecordId) -> Option<&mut Duration> {
        match id {
            RecordId::Instance(arn) => self.instances.get_mut(arn).map(|tracked| &mut tracked.there.0),
            RecordId::Agent(arn) => {
                let tracked = self.instances.get_mut(arn).filter(|tracked| tracked.agent.is_some());
                tracked.map(|tracked| &mut tracked.there.1)
            }
            RecordId::Request(id) => self.requests.get_mut(id).map(|asked| &mut asked.there),
            RecordId::Pool(_)
            | RecordId::Launch(_)
            | RecordId::Lease(_)
            | RecordId::Queue(..)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => None,
        }
    }

    fn is_there(&mut self, id: &RecordId, now: &Now) {
        if let Some(seen) = self.place(id) {
            *seen = now.mono;
        } else if let Some(seen) = self.there.get_mut(id) {
            *seen = now.mono;
        } else {
            self.there.insert(id.clone(), now.mono);
        }
    }

    /// Returns when a record was last seen to exist.
    fn last_seen(&self, id: &RecordId) -> Option<Duration> {
        let place = match id {
            RecordId::Instance(arn) => self.instances.get(arn).map(|tracked| tracked.there.0),
            RecordId::Agent(arn) => {
                let tracked = self.instances.get(arn).filter(|tracked| tracked.agent.is_some());
                tracked.map(|tracked| tracked.there.1)
            }
            RecordId::Request(id) => self.requests.get(id).map(|asked| asked.there),
            RecordId::Pool(_)
            | RecordId::Launch(_)
            | RecordId::Lease(_)
            | RecordId::Queue(..)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => None,
        };
        place.max(self.there.get(id).copied())
    }

    /// Returns whether a record was seen to exist since a moment.
    pub(super) fn seen_since(&self, key: &RecordId, begun: Duration) -> bool {
        self.last_seen(key).is_some_and(|seen| seen >= begun)
    }

    fn written(&mut self, record: Written, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let key = record.key();
        self.unreadable.remove(&key);
        self.newer.remove(&key);
        self.absent.remove(&key);
        match record {
            Written::Instance(record) => self.instance_is(&key, Some(record), Source::Told, now, dirty),
            Written::Agent(record) => self.agent_is(&key, Some(record), Source::Told, now, dirty),
            Written::Request(record) => self.request_is(&key, Some(record), Source::Told, now, dirty),
            Written::Launch(record) => self.launch_is(&key, Some(record), Source::Told, now, dirty),
            Written::Pool(record) => self.pool_is(&key, Some(record), Source::Told, now, dirty),
        }
        self.is_there(&key, now);
    }

    /// Parses an item; a record that cannot be read is remembered by name and otherwise left alone.
    fn take<T: Record>(
        &mut self,
        key: &RecordId,
        item: Option<&Item>,
        source: Source,
        dirty: &mut BTreeSet<Unit>,
        apply: impl FnOnce(&mut Self, Option<T>, &mut BTreeSet<Unit>),
    ) {
        let reading = item.map(read::<T>);
        if let (Some(Reading::Newer { .. } | Reading::Unreadable(_)), Source::Read(begun)) =
            (&reading, source)
            && self.seen_since(key, begun)
        {
            return;
        }
        self.unreadable.remove(key);
        self.newer.remove(key);
        match reading {
            None => apply(self, None, dirty),
            Some(Reading::Record(record)) => {
                self.absent.remove(key);
                apply(self, Some(record), dirty);
            }
            Some(Reading::Newer { schema }) => {
                self.newer.insert(key.clone(), schema);
                apply(self, None, dirty);
            }
            Some(Reading::Unreadable(Unreadable { problem, .. })) => {
                self.unreadable.insert(key.clone(), problem);
                apply(self, None, dirty);
            }
        }
    }

    fn looked(
        &mut self,
        begun: Duration,
        key: &RecordId,
        item: Option<&Item>,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let outlived = self.outlived(key, item, Source::Read(begun));
        if !outlived {
            match item {
                Some(_) => self.absent.remove(key),
                None => self.absent.insert(key.clone(), now.mono),
            };
            self.record(key, item, Source::Read(begun), now, dirty);
        }
        // Units that wait for this read are judged again, whether or not anything changed.
        match key {
            RecordId::Agent(arn) => {
                if let Some(tracked) = self.instances.get_mut(arn).filter(|_| !outlived) {
                    tracked.silent = tracked.agent.as_ref().map(|agent| agent.heartbeat_seq).or(Some(0));
                }
                dirty.insert(Unit::Instance(arn.clone()));
            }
            RecordId::Instance(arn) => {
                dirty.insert(Unit::Instance(arn.clone()));
            }
            RecordId::Pool(class) => {
                let asking = self.requests();
                let asking = asking.filter(|(_, request)| request.intent.resource_class == class.as_str());
                dirty.extend(asking.map(|(id, _)| Unit::Request(id.clone())));
            }
            RecordId::Request(_)
            | RecordId::Launch(_)
            | RecordId::Lease(_)
            | RecordId::Queue(..)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => {}
        }
    }

    fn listed(&mut self, begun: Duration, keys: &BTreeSet<RecordId>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let known = self.instances.values().flat_map(|tracked| {
            let agent = tracked.agent.as_ref().map(Record::key);
            [Some(tracked.instance.key()), agent].into_iter().flatten()
        });
        let known = known
            .chain(self.requests.keys().map(RecordId::from))
            .chain(self.launches.values().map(|tracked| tracked.launch.key()))
            .chain(self.classes.values().filter_map(|class| class.pool.as_ref()).map(Record::key))
            .chain(self.sets.values().map(Record::key))
            .chain(self.unreadable.keys().cloned())
            .chain(self.newer.keys().cloned());
        // A record seen since the list began may be younger than the page that would show it.
        let missing = known.filter(|key| !keys.contains(key) && !self.seen_since(key, begun));
        for key in missing.collect::<Vec<_>>() {
            self.record(&key, None, Source::Told, now, dirty);
        }
        self.former.retain(|_, former| former.at.saturating_add(FORMER_KEPT) > now.mono);
        self.listed = Some(begun);
        for class in self.classes.values_mut() {
            class.in_flight.listed(begun);
            class.forget_backoffs(now.mono);
        }
        self.absent.retain(|_, at| at.saturating_add(ABSENCE_KEPT) > now.mono);
        // Only now is a machine without a record proved lost, so that its request waits for another.
        for request in self.requests.keys().cloned().collect::<Vec<_>>() {
            self.enqueue(&request, now, dirty);
        }
        self.forget_accounts();
        self.forget_classes();
        dirty.extend(self.units());
    }
}

#[cfg(test)]
mod tests;
