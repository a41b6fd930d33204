//! What the loop keeps beside the yard, in groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::controller::runs;
use crate::model::{ClassName, RecordId, TableName, Timing};
use crate::ports::{Delivery, StoreError};
use crate::status::History;
use crate::yard::{Breaker, Unit};

use super::clock_skew::ClockSkew;
use super::intake::vouches;
use super::resting::Resting;
use super::stuck::Failing;

/// What is not tried again yet, or left to another operator.
#[derive(Default)]
pub(super) struct Backoffs {
    /// What failed last.
    pub(super) resting: Resting,
    /// What failed again and again, and for which reason.
    pub(super) failing: Failing,
    /// Since when a stand-by knows of something to do.
    pub(super) due: BTreeMap<Unit, Duration>,
}

/// How long the table could be read.
pub(super) struct Reads {
    /// Monotonic time during which it could.
    pub(super) seen: Duration,
    pub(super) last_look: Duration,
    /// Longest stretch of successful reads that one look vouches for.
    pub(super) vouches: Duration,
}

/// Lists of the whole table: the one under way, and those that are asked for.
pub(super) struct Listing {
    /// When the list under way began, and the keys seen since.
    pub(super) under_way: Option<(Duration, BTreeSet<RecordId>)>,
    /// When the lease was taken that no list has followed yet.
    pub(super) taken: Option<(u64, Duration)>,
    /// Events that outlived their time in a table that does not delete by itself, with their `expiresAt`.
    pub(super) late: Vec<(RecordId, i64)>,
    /// When a person's request for a resync was seen.
    pub(super) requested: Option<Duration>,
    /// When that was, by the clock of who asked.
    pub(super) requested_at: Option<Timestamp>,
    pub(super) triggers: Triggers,
    /// Why the table cannot be listed at all.
    pub(super) refused: Option<StoreError>,
}

/// What was said already, and what was not acknowledged yet.
#[derive(Default)]
pub(super) struct Reported {
    pub(super) clock_skew: ClockSkew,
    /// What classes do without now, as far as it was told.
    pub(super) open: BTreeSet<(ClassName, Breaker)>,
    /// Records that were said to be unreadable, or of a newer program.
    pub(super) unreadable: BTreeSet<RecordId>,
    /// Notices that are not acknowledged yet, because something remains to be done.
    pub(super) unacknowledged: Vec<Delivery>,
}

/// What is kept for people and for metrics.
pub(super) struct Measures {
    /// What machines were.
    pub(super) history: History,
    pub(super) table: TableName,
    /// When the time of machines was last counted, and when the queues were last asked how much they hold.
    pub(super) measured: Duration,
    pub(super) queues_measured: Option<Duration>,
    /// The requests whose runs are watched at GitHub.
    pub(super) live: watch::Sender<runs::Live>,
}

/// What starts a list or a sweep out of turn.
pub(super) struct Triggers {
    /// Starts a list of the table.
    pub(super) resync: mpsc::Sender<()>,
    /// Starts a list of all machines.
    pub(super) sweep: mpsc::Sender<()>,
}

impl Reads {
    /// Nothing was read yet.
    pub(super) fn new(timing: &Timing, now: Duration) -> Self {
        Self { seen: Duration::ZERO, last_look: now, vouches: vouches(timing.heartbeat, timing.stale) }
    }
}

impl Listing {
    /// No list yet, and none asked for.
    pub(super) const fn new(triggers: Triggers) -> Self {
        Self {
            under_way: None,
            taken: None,
            late: Vec::new(),
            requested: None,
            requested_at: None,
            triggers,
            refused: None,
        }
    }
}

impl Measures {
    /// Nothing was measured yet.
    pub(super) fn new(
        table: TableName,
        wall: Timestamp,
        mono: Duration,
        live: watch::Sender<runs::Live>,
    ) -> Self {
        Self { history: History::new(wall), table, measured: mono, queues_measured: None, live }
    }
}
