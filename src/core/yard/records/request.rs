//! The newest image of a request's record, and the indexes that follow it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Phase, RecordId, Request, RequestKey};
use crate::yard::observe::Source;
use crate::yard::tracked::{Archived, Asked};
use crate::yard::{Now, Unit, Yard, gives_back, label_of, lacking, run_and_name_of};

/// Updates the number of open requests (accepted and not ended) of a repository after one of them changed.
fn count_open(open: &mut BTreeMap<String, u32>, old: Option<&Request>, new: Option<&Request>) {
    let is_open = |request: &&Request| request.status.phase.is_some_and(Phase::wants_machines);
    let repository = |request: &Request| request.id.repository.as_str().to_ascii_lowercase();
    match (old.filter(is_open), new.filter(is_open)) {
        (None, Some(new)) => {
            let count = open.entry(repository(new)).or_default();
            *count = count.saturating_add(1);
        }
        (Some(old), None) => {
            if let Entry::Occupied(mut count) = open.entry(repository(old)) {
                *count.get_mut() = count.get().saturating_sub(1);
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        (None, None) | (Some(_), Some(_)) => {}
    }
}

impl Yard {
    pub(crate) fn request_is(
        &mut self,
        key: &RecordId,
        new: Option<Request>,
        source: Source,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let RecordId::Request(id) = key else { return };
        if let (Some(old), Some(new)) = (self.request_at(id), &new) {
            if !self.replaces(key, old, new, source) {
                return;
            }
            let before = old.uid.clone();
            self.succeeds(key, before.as_ref(), new, now);
        }
        let key = id;
        if let Some(old) = self.requests.get(key).map(|asked| &asked.request)
            && let Some(class) = Self::class_of(old).and_then(|class| self.classes.get_mut(&class))
        {
            let spec = class.pool.as_ref().map(|pool| &pool.spec);
            class.waiting.remove(old, spec);
            if let Some(spec) = spec {
                class.shares.remove(old, spec);
            }
        }
        let old = self.put_request(key, new, now);
        // The machines it listed before or lists now are judged again, because it may have released them.
        let new = self.requests.get(key).map(|asked| &asked.request);
        if let Some(class) =
            old.as_ref().or(new).and_then(Self::class_of).and_then(|class| self.classes.get_mut(&class))
        {
            class.shares.hold(old.as_ref(), new, now.mono);
            if let (Some(new), Some(pool)) = (new, &class.pool) {
                class.mix.count(old.as_ref(), new, &pool.spec, now.wall);
            }
        }
        let listed = old.iter().chain(new).flat_map(|request| &request.status.instances);
        dirty.extend(listed.filter_map(|id| self.ids.get(id)).cloned().map(Unit::Instance));
        if let Some(class) = old.as_ref().or(new).and_then(Self::class_of) {
            dirty.insert(Unit::Class(class));
        }
        if new.is_some() {
            self.request_is_there(key, old.as_ref(), dirty);
            dirty.insert(Unit::Request(key.clone()));
            self.enqueue(key, now, dirty);
        } else if let Some(old) = old {
            self.request_is_gone(key, &old, dirty);
        }
    }

    fn request_at(&self, key: &RequestKey) -> Option<&Request> {
        self.requests.get(key).map(|asked| &asked.request)
    }

    /// Stores the new image of a request, or removes it; returns the image before.
    fn put_request(&mut self, key: &RequestKey, new: Option<Request>, now: &Now) -> Option<Request> {
        let old = match (new, self.requests.get_mut(key)) {
            (Some(new), Some(known)) => {
                known.touched = now.mono;
                Some(std::mem::replace(&mut known.request, new))
            }
            (Some(new), None) => {
                let (refused, archived) = (None, Archived::Unknown);
                let asked = Asked { request: new, touched: now.mono, there: now.mono, refused, archived };
                self.requests.insert(key.clone(), Box::new(asked));
                None
            }
            (None, _) => self.requests.swap_remove(key).map(|asked| asked.request),
        };
        let new = self.requests.get(key).map(|asked| &asked.request);
        count_open(&mut self.open, old.as_ref(), new);
        self.sums.request(key, old.as_ref(), new);
        old
    }

    /// Indexes a request by its run and by its label. An older attempt of its run is judged again, and so are the
    /// others with its label.
    fn request_is_there(&mut self, key: &RequestKey, old: Option<&Request>, dirty: &mut BTreeSet<Unit>) {
        let Some(new) = self.request_at(key) else { return };
        let (id, label) = (new.id.clone(), label_of(new));
        if old.is_none() {
            let attempts = self.attempts.entry(run_and_name_of(&id)).or_default();
            attempts.insert((id.attempt, key.clone()));
            let older = attempts.range(..(id.attempt, key.clone()));
            dirty.extend(older.map(|(_, key)| Unit::Request(key.clone())));
        }
        let before = old.map(label_of);
        if before.as_ref() != Some(&label) {
            // Until it is accepted, its label follows its intent.
            before.iter().for_each(|before| self.unlabel(before, key, dirty));
            self.labels.entry(label.clone()).or_default().insert(key.clone());
        }
        self.label_changes(&label, dirty);
    }

    /// Takes a request out of the indexes by run and by label.
    fn request_is_gone(&mut self, key: &RequestKey, old: &Request, dirty: &mut BTreeSet<Unit>) {
        let run = run_and_name_of(&old.id);
        if let Some(attempts) = self.attempts.get_mut(&run) {
            attempts.remove(&(old.id.attempt, key.clone()));
            if attempts.is_empty() {
                self.attempts.remove(&run);
            }
        }
        self.unlabel(&label_of(old), key, dirty);
    }

    /// Removes a request from the index of labels.
    fn unlabel(&mut self, label: &(String, String), key: &RequestKey, dirty: &mut BTreeSet<Unit>) {
        self.label_changes(label, dirty);
        if let Some(same) = self.labels.get_mut(label) {
            same.remove(key);
            if same.is_empty() {
                self.labels.remove(label);
            }
        }
    }

    /// Marks the other new requests with a label dirty: whether they can be accepted may have changed.
    fn label_changes(&self, label: &(String, String), dirty: &mut BTreeSet<Unit>) {
        let Some(same) = self.labels.get(label).filter(|same| same.len() > 1) else { return };
        for (key, other) in same.iter().filter_map(|key| Some((key, self.request(key)?))) {
            if other.status.phase.is_none() {
                dirty.insert(Unit::Request(key.clone()));
                dirty.extend(Self::class_of(other).map(Unit::Class));
            }
        }
    }

    /// Adds a request to its class's queue of waiting requests if it lacks machines, and removes it if it does not.
    pub(crate) fn enqueue(&mut self, key: &RequestKey, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let Some(request) = self.requests.get(key).map(|asked| &asked.request) else { return };
        let Some(class) = Self::class_of(request) else { return };
        let lacks = lacking(self, key, request) > 0 || request.status.phase.is_none();
        let stands = lacks && !gives_back(request);
        // A request that waits for nothing does not bring back a class that was forgotten.
        if !stands && !self.classes.contains_key(&class) {
            return;
        }
        let entry = self.classes.entry(class.clone()).or_default();
        let stood = entry.waiting.all().contains(&request.queue_position());
        let spec = entry.pool.as_ref().map(|pool| &pool.spec);
        match (stood, stands) {
            (false, true) => entry.waiting.insert(request, spec),
            (true, false) => entry.waiting.remove(request, spec),
            (true, true) | (false, false) => {}
        }
        if let Some(spec) = spec.filter(|spec| spec.sharing.is_some()) {
            match (stood, stands && request.status.accepted_at.is_some()) {
                (false, true) => entry.shares.insert(request, spec),
                (true, false) => entry.shares.remove(request, spec),
                (true, true) | (false, false) => {}
            }
            entry.shares.mature(now.wall);
        }
        if stood != stands {
            dirty.insert(Unit::Class(class));
        }
    }
}
