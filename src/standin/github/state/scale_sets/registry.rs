//! Sets and the sessions of their listeners.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runyard_core::ports::scale_sets::SetSpec;

use super::ScaleSetService;
use super::types::{JobPlace, Set, SetRefusal, SetSession};

/// The only runner group.
const DEFAULT_GROUP: u64 = 1;

impl ScaleSetService {
    /// Returns the set of this number, if it is of this scope.
    ///
    /// # Errors
    /// There is none.
    pub fn set_in(&self, scope: &str, id: u64) -> Result<&Set, SetRefusal> {
        let found = self.sets.get(&id).filter(|set| set.scope.eq_ignore_ascii_case(scope));
        found.ok_or(SetRefusal::NoSet(id))
    }

    /// Creates a set. Without labels its name is its label (\[s\]).
    ///
    /// # Errors
    /// No name, an unknown group, or a name that is taken.
    pub fn create_set(&mut self, scope: &str, spec: &SetSpec, now: Timestamp) -> Result<Set, SetRefusal> {
        self.check(scope, spec, None)?;
        self.last_set += 1;
        let set = Set {
            id: self.last_set,
            scope: scope.to_owned(),
            name: spec.name.clone(),
            labels: labels(spec),
            group_id: spec.group_id,
            session: None,
            capacity: None,
            news: Vec::new(),
            batches: BTreeMap::new(),
            last_batch: 0,
        };
        self.sets.insert(set.id, set.clone());
        self.changed();
        self.tick(now);
        Ok(set)
    }

    /// Changes a set. Jobs that it has stay with it.
    ///
    /// # Errors
    /// As [`Self::create_set`], or there is no such set.
    pub fn update_set(&mut self, scope: &str, id: u64, spec: &SetSpec) -> Result<Set, SetRefusal> {
        self.set_in(scope, id)?;
        self.check(scope, spec, Some(id))?;
        self.changed();
        let set = self.set_mut(id)?;
        (set.name, set.labels, set.group_id) = (spec.name.clone(), labels(spec), spec.group_id);
        Ok(set.clone())
    }

    /// Deletes a set, as a caller or somebody else does: its jobs that did not begin are queued for other sets, and its
    /// runners without a job are gone.
    ///
    /// # Errors
    /// There is none.
    pub fn delete_set(&mut self, scope: &str, id: u64, now: Timestamp) -> Result<(), SetRefusal> {
        self.set_in(scope, id)?;
        self.sets.remove(&id);
        for job in self.jobs.values_mut().filter(|job| job.place.set() == Some(id) && !job.place.running()) {
            job.place = JobPlace::Waiting;
        }
        let jobs = &self.jobs;
        let runs = |runner: u64| jobs.values().any(|job| job.place.runner() == Some(runner));
        self.runners.retain(|number, runner| runner.set != id || runs(*number));
        self.changed();
        self.tick(now);
        Ok(())
    }

    /// Opens the session of a set, which has one at a time (\[live\]). `id` and `token` must be unguessable.
    ///
    /// # Errors
    /// There is no such set, or another listener has its session, or had it until lately.
    pub fn open(
        &mut self,
        set: u64,
        owner: &str,
        (id, token): (&str, &str),
        now: Timestamp,
    ) -> Result<(), SetRefusal> {
        self.tick(now);
        let token_until = now + self.behaviour.token_lifetime;
        let set = self.set_mut(set)?;
        if set.session.is_some() {
            return Err(SetRefusal::SessionConflict(set.name.clone()));
        }
        set.session = Some(SetSession {
            id: id.to_owned(),
            owner: owner.to_owned(),
            token: token.to_owned(),
            token_until,
            last_seen: now,
        });
        self.changed();
        Ok(())
    }

    /// Renews the credential of a session.
    ///
    /// # Errors
    /// There is no such set or session.
    pub fn renew(&mut self, set: u64, id: &str, token: &str, now: Timestamp) -> Result<(), SetRefusal> {
        self.tick(now);
        let token_until = now + self.behaviour.token_lifetime;
        let session = self.set_mut(set)?.session.as_mut().filter(|session| session.id == id);
        let session = session.ok_or(SetRefusal::NoSession)?;
        (session.token, session.token_until, session.last_seen) = (token.to_owned(), token_until, now);
        self.changed();
        Ok(())
    }

    /// Closes a session.
    ///
    /// # Errors
    /// There is no such set or session.
    pub fn close(&mut self, set: u64, id: &str, now: Timestamp) -> Result<(), SetRefusal> {
        self.tick(now);
        let session = self.set_mut(set)?.session.as_ref().filter(|session| session.id == id);
        session.ok_or(SetRefusal::NoSession)?;
        self.end_session(set);
        Ok(())
    }

    /// Ends the session of a set without a word to its listener, as GitHub does now and then.
    pub fn evict(&mut self, set: u64) {
        self.end_session(set);
    }

    /// Ends the credentials of all sessions.
    pub fn expire_tokens(&mut self) {
        for session in self.sets.values_mut().filter_map(|set| set.session.as_mut()) {
            session.token_until = Timestamp::MIN;
        }
        self.changed();
    }

    pub(super) fn end_session(&mut self, set: u64) {
        if let Some(set) = self.sets.get_mut(&set) {
            (set.session, set.capacity) = (None, None);
        }
        self.changed();
    }

    fn check(&self, scope: &str, spec: &SetSpec, own: Option<u64>) -> Result<(), SetRefusal> {
        if spec.name.trim().is_empty() {
            return Err(SetRefusal::Invalid("name is required".to_owned()));
        }
        if spec.group_id != DEFAULT_GROUP {
            return Err(SetRefusal::NoGroup(spec.group_id));
        }
        let same = |set: &Set| {
            set.scope.eq_ignore_ascii_case(scope)
                && set.group_id == spec.group_id
                && set.name.eq_ignore_ascii_case(&spec.name)
                && own != Some(set.id)
        };
        match self.sets.values().any(same) {
            true => Err(SetRefusal::SetExists(spec.name.clone())),
            false => Ok(()),
        }
    }
}

fn labels(spec: &SetSpec) -> Vec<String> {
    if spec.labels.is_empty() { vec![spec.name.clone()] } else { spec.labels.clone() }
}
