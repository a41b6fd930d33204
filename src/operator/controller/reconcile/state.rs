//! The loop's state beside the yard, in groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::ledger::Prices;
use crate::model::{ClassName, RecordId, TableName, Timing};
use crate::ports::{Delivery, StoreError};
use crate::status::History;
use crate::yard::{BackoffKind, Unit};

use super::backoffs::Backoffs;
use super::clock_skew::ClockSkew;
use super::intake::vouches;
use super::stuck::Failing;

/// Work that is paused, or left to another operator.
#[derive(Default)]
pub(super) struct Postponed {
    /// The backoffs of failed actions.
    pub(super) backoffs: Backoffs,
    /// Actions that keep failing, with their reasons.
    pub(super) failing: Failing,
    /// Since when a standby has had an action to take.
    pub(super) due: BTreeMap<Unit, Duration>,
    /// Units whose judgement panicked, and until when they are skipped.
    pub(super) panicked: BTreeMap<Unit, Duration>,
}

/// The time for which the table could be read.
pub(super) struct Reads {
    /// Monotonic time during which it could be read.
    pub(super) seen: Duration,
    pub(super) last_look: Duration,
    /// The longest period for which one successful read counts.
    pub(super) vouches: Duration,
}

/// Lists of the whole table: the one in progress, and the requested ones.
pub(super) struct Listing {
    /// When the list in progress began, and the keys seen since.
    pub(super) in_flight: Option<(Duration, BTreeSet<RecordId>)>,
    /// The token and time at which the lease was taken, until a full list has followed.
    pub(super) taken: Option<(u64, Duration)>,
    /// Expired events of a table without time-to-live, with their `expiresAt`.
    pub(super) late: Vec<(RecordId, i64)>,
    /// When a person's request for a resync was seen.
    pub(super) requested: Option<Duration>,
    /// When it was requested, by that person's clock.
    pub(super) requested_at: Option<Timestamp>,
    pub(super) triggers: Triggers,
    /// The error that prevents every list of the table.
    pub(super) refused: Option<StoreError>,
}

/// Reports already made, and notices not acknowledged yet.
#[derive(Default)]
pub(super) struct Reported {
    pub(super) clock_skew: ClockSkew,
    /// The backoffs of classes that were reported.
    pub(super) open: BTreeSet<(ClassName, BackoffKind)>,
    /// Records that were reported as unreadable or of a newer program.
    pub(super) unreadable: BTreeSet<RecordId>,
    /// Notices that are not acknowledged yet, because something remains to be done.
    pub(super) unacknowledged: Vec<Delivery>,
}

/// State for people and for metrics.
pub(super) struct Measures {
    /// The history of machines.
    pub(super) history: History,
    pub(super) table: TableName,
    /// When the activity of machines was last counted, and when the sizes of the queues were last read.
    pub(super) measured: Duration,
    pub(super) queues_measured: Option<Duration>,
    /// The prices of machines.
    pub(super) prices: Arc<Prices>,
    /// The last hour of the ledger that this operator closed, or tried to.
    pub(super) closed: Option<Timestamp>,
}

/// Triggers of an early list or inventory.
pub(super) struct Triggers {
    /// Starts a list of the table.
    pub(super) resync: mpsc::Sender<()>,
    /// Starts a list of all machines.
    pub(super) sweep: mpsc::Sender<()>,
}

impl Reads {
    /// Creates the state before the first read.
    pub(super) fn new(timing: &Timing, now: Duration) -> Self {
        Self { seen: Duration::ZERO, last_look: now, vouches: vouches(timing.heartbeat, timing.stale) }
    }
}

impl Listing {
    /// Creates the state before the first list.
    pub(super) const fn new(triggers: Triggers) -> Self {
        Self {
            in_flight: None,
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
    /// Creates the state before the first measurement.
    pub(super) fn new(table: TableName, prices: Arc<Prices>, wall: Timestamp, mono: Duration) -> Self {
        Self {
            history: History::new(wall),
            table,
            measured: mono,
            queues_measured: None,
            prices,
            closed: None,
        }
    }
}
