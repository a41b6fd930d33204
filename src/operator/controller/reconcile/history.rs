//! Passes finished activity from the loop to the history, and keeps the mark up to which everything was delivered.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use crate::model::history::{EndedClaim, HistoryLine, LaunchFailureLine, MachineLine, RequestLine};
use crate::model::{Event, Instance, Record as _, RecordId};
use crate::yard::{Observation, Unit};

use super::Loop;

impl Loop {
    /// Writes an event for people.
    pub(super) fn leave(&mut self, event: &Event) {
        self.events.send(event);
        // The watch of the yard's table does not return the rows of the history table.
        self.measures.history.event(&event.to_item());
    }

    /// Offers the lines about finished activity in a unit's record; only the leader does, so that each is written once.
    pub(super) fn offer_lines(&self, unit: &Unit) {
        if let Some(since) = self.backlog.wanted() {
            self.offer_since(unit, since, false);
        }
    }

    /// Offers the lines about activity that ended after some time; `news` includes lines before the mark.
    fn offer_since(&self, unit: &Unit, since: Timestamp, news: bool) {
        if self.role.lease.is_none() {
            return;
        }
        match unit {
            Unit::Instance(arn) => {
                let known = self.yard.instance(arn).map(|tracked| &tracked.instance);
                if let Some(instance) = known.filter(|instance| instance.was_over_after(since)) {
                    let lines = MachineLine::over(instance).into_iter().map(HistoryLine::Machine);
                    let over = lines.filter(|line| line.at() > since || !news);
                    over.for_each(|line| self.backlog.offer(&line, news));
                    self.offer_statements(instance, since, news);
                }
            }
            Unit::Request(id) => {
                let over = self.yard.request(id).filter(|request| request.status.ended_at > Some(since));
                if let Some(line) = over.and_then(RequestLine::of) {
                    self.backlog.offer(&HistoryLine::Request(line), news);
                }
            }
            Unit::Launch(id) => {
                if let Some(line) =
                    self.yard.launch(id).and_then(|known| LaunchFailureLine::of(&known.launch))
                {
                    self.backlog.offer(&HistoryLine::LaunchFailure(line), news);
                }
            }
            Unit::Class(_) => {}
        }
    }

    /// Offers the statements about claims of a machine that were over after some time, if statements are signed.
    fn offer_statements(&self, instance: &Instance, since: Timestamp, news: bool) {
        let signer = self.ports.history.as_ref().and_then(|table| table.signer.as_deref());
        let Some(signer) = signer else { return };
        let claims = EndedClaim::over(instance).into_iter();
        let over = claims.filter(|claim| claim.line.to() > since || !news);
        over.for_each(|claim| self.backlog.offer_statement(&claim, signer, news));
    }

    /// Returns the unit of an observation's record, and the time until which its past is known; called before the
    /// observation is taken in. `None` for a new record, whose lines are offered from the mark on.
    pub(super) fn known_until(&self, seen: &Observation) -> Option<(Unit, Timestamp)> {
        self.role.lease.as_ref()?;
        let key = match seen {
            Observation::Record(key, Some(_))
            | Observation::Shown(_, key, _)
            | Observation::Looked(_, key, Some(_)) => Cow::Borrowed(key),
            Observation::Written(record) => Cow::Owned(record.key()),
            _ => return None,
        };
        let unread = self.yard.unreadable.contains_key(&*key) || self.yard.newer.contains_key(&*key);
        let (unit, known, until) = match &*key {
            RecordId::Instance(arn) => {
                let known = self.yard.instance(arn).map(|tracked| &tracked.instance);
                let until = known.map(|known| known.gone_at().unwrap_or(known.state_since));
                (Unit::Instance(arn.clone()), known.is_some(), until)
            }
            key => {
                let id = key.request()?;
                let known = self.yard.request(id);
                (Unit::Request(id.clone()), known.is_some(), known.and_then(|known| known.status.ended_at))
            }
        };
        (known || unread).then(|| (unit, until.unwrap_or(Timestamp::MIN)))
    }

    /// Offers the new lines of a record, even before the mark: it was written late, or was unreadable for long.
    pub(super) fn offer_news(&self, known: Option<(Unit, Timestamp)>) {
        if let Some((unit, until)) = known {
            self.offer_since(&unit, until, true);
        }
    }

    /// Offers all lines of all records, because the lease does not show which lines the former leader wrote after the
    /// mark.
    pub(super) fn offer_all(&self) {
        self.yard.units().iter().for_each(|unit| self.offer_lines(unit));
    }

    /// Advances the mark, and lets records drop delivered activity.
    pub(super) fn keep_history(&mut self) {
        let (wall, mono) = (self.ports.clock.now(), self.ports.clock.elapsed());
        self.yard.delivered = None;
        self.yard.archives = self.backlog.is_there();
        if self.role.lease.is_none() {
            return;
        }
        let Some(begun) = self.yard.listed else { return };
        let age = SignedDuration::try_from(mono.saturating_sub(begun)).unwrap_or(SignedDuration::MAX);
        let listed = wall.saturating_sub(age).unwrap_or(Timestamp::MIN);
        let mut unread = self.yard.unreadable.keys().chain(self.yard.newer.keys());
        let all_read = !unread.any(has_lines);
        if self.backlog.advance(listed, all_read) {
            self.offer_all();
        }
        self.yard.delivered = self.backlog.forgettable(wall);
    }
}

/// Returns whether a record with this key may produce lines.
fn has_lines(key: &RecordId) -> bool {
    match key {
        RecordId::Instance(_) | RecordId::Launch(_) | RecordId::Request(_) => true,
        RecordId::Agent(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Pool(_)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => false,
    }
}
