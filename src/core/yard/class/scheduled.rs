//! Which number of idle machines do a class's schedules want now? The schedules are parsed when the class changes, and
//! the result is kept until one fires.

use jiff::Timestamp;

use crate::model::{PoolSpec, Scheduled, Schedules};

/// The schedules of a class, with the number of the moment at which they were last looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScheduledNumber {
    schedules: Schedules,
    last: Option<Scheduled>,
}

impl ScheduledNumber {
    /// Parses the schedules of a class.
    pub(crate) fn of(spec: &PoolSpec, now: Timestamp) -> Self {
        if spec.schedules.is_empty() {
            return Self::default();
        }
        let schedules = Schedules::parse(&spec.schedules);
        let last = Some(schedules.at(now));
        Self { schedules, last }
    }

    /// Returns the number in effect at a moment: the kept one, if no schedule fired since.
    pub(crate) fn at(&self, now: Timestamp) -> Scheduled {
        match self.last {
            Some(last) if last.holds_at(now) => last,
            Some(_) | None => self.schedules.at(now),
        }
    }

    /// Keeps the number of this moment.
    pub(crate) fn look(&mut self, now: Timestamp) {
        self.last = self.last.map(|_| self.at(now));
    }

    /// Returns when the next schedule fires, as far as that is known.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.last.and_then(|last| last.until)
    }
}
