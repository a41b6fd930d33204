//! Writes finished activity to the history table. The records of the yard's table are the outbox: the leader writes the
//! lines of their finished activity, under keys that every operator derives alike, and the lease stores the time up to
//! which all of them were written. Nothing waits for the history table; while it is unavailable the lines wait here,
//! and in the records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::model::history::{EndedClaim, HistoryLine, StatementLine};
use crate::model::{Item, Key, millis};
use crate::ports::{Clock, Signer, Store, StoreError};
use crate::statement::{Envelope, Statement};

/// Maximum number of lines in one batch (DynamoDB, `BatchWriteItem`).
const BATCH: usize = 25;
/// Maximum number of lines that wait here; the others wait in their records.
const WAITING: usize = 10_000;
/// The leader learns of finished activity within a list and this margin: a write may take long, and clocks differ.
const MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// The margin while a record is unreadable, which may contain finished activity that is not delivered yet.
const UNREAD: SignedDuration = SignedDuration::from_hours(1);
/// The interval at which a missing table is looked for.
const LOOK: Duration = Duration::from_secs(60);
/// The first and the longest pause after a failed write.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The history table of a yard.
#[derive(Clone)]
pub struct HistoryTable {
    /// The table.
    pub store: Arc<dyn Store>,
    /// Whether events are written there too.
    pub events: bool,
    /// How long a line is kept, in seconds.
    pub keep: i64,
    /// The key that signs statements about claims; `None` if none are made.
    pub signer: Option<Arc<dyn Signer>>,
}

/// The known state of the history table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Table {
    /// Not known yet.
    #[default]
    Unknown,
    /// It does not exist: nothing is written, and records keep nothing for it.
    Missing,
    /// It exists and accepts lines.
    There,
}

/// The lines that are not written yet. Clones share them.
#[derive(Clone)]
pub(crate) struct Backlog {
    lines: Arc<Mutex<Lines>>,
    wake: Arc<Notify>,
    /// Notified when the history begins, so that the lease stores it at once.
    begun: Arc<Notify>,
    keep: i64,
}

#[derive(Default)]
struct Lines {
    table: Table,
    /// All activity that had ended at this time is in the history table.
    delivered: Option<Timestamp>,
    waiting: BTreeMap<Key, (Timestamp, Item)>,
    /// Written lines about activity that ended after `delivered`.
    written: BTreeMap<Key, Timestamp>,
    /// Whether lines were left to their records.
    full: bool,
}

impl Backlog {
    /// Creates an empty backlog; without a history table it accepts no lines.
    pub(crate) fn new(table: Option<&HistoryTable>) -> Self {
        let missing = if table.is_some() { Table::Unknown } else { Table::Missing };
        let lines = Lines { table: missing, ..Lines::default() };
        let keep = table.map_or(0, |table| table.keep);
        Self { lines: Arc::new(Mutex::new(lines)), wake: Arc::default(), begun: Arc::default(), keep }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time up to which everything was delivered, for the lease.
    pub(crate) fn delivered(&self) -> Option<Timestamp> {
        self.lines().delivered
    }

    /// Waits until the history begins: the lease must store it, or activity that ends before its next renewal is lost
    /// when its holder dies.
    pub(crate) async fn begins(&self) {
        self.begun.notified().await;
    }

    /// Takes over the mark of a newly taken lease.
    pub(crate) fn inherited(&self, delivered: Option<Timestamp>) {
        let mut lines = self.lines();
        lines.delivered = lines.delivered.max(delivered);
    }

    /// Returns the time up to which records may drop activity: up to the delivered mark, or everything if there is no
    /// history.
    pub(crate) fn forgettable(&self, now: Timestamp) -> Option<Timestamp> {
        let lines = self.lines();
        match (lines.table, lines.delivered) {
            (Table::Missing, None) => Some(now),
            (Table::Unknown, None) => None,
            (Table::Missing | Table::Unknown | Table::There, delivered) => delivered,
        }
    }

    /// Returns the time from which finished activity is wanted; `None` while there is no history.
    pub(crate) fn wanted(&self) -> Option<Timestamp> {
        self.lines().delivered
    }

    /// Returns whether the history table accepts lines.
    pub(crate) fn is_there(&self) -> bool {
        self.lines().table == Table::There
    }

    /// Adds a line once. A line before the mark is added only if it is `news` from a record that was written late.
    pub(crate) fn offer(&self, line: &HistoryLine, news: bool) {
        self.offer_made(line.key(), line.at(), news, || line.clone());
    }

    /// Adds the line that `make` makes, of this key and time, once. It is made only if it is added.
    fn offer_made(&self, key: Key, at: Timestamp, news: bool, make: impl FnOnce() -> HistoryLine) {
        let mut lines = self.lines();
        if lines.delivered.is_none_or(|delivered| at <= delivered && !news)
            || lines.written.contains_key(&key)
            || lines.waiting.contains_key(&key)
        {
            return;
        }
        if lines.waiting.len() >= WAITING {
            lines.full = true;
            return;
        }
        lines.waiting.insert(key, (at, make().to_item(self.keep)));
        self.wake.notify_one();
    }

    /// Adds the signed statement about a claim once. It is signed only if it is added.
    pub(crate) fn offer_statement(&self, claim: &EndedClaim, signer: &dyn Signer, news: bool) {
        let Some(request) = claim.request() else { return };
        let (at, claim_id) = (claim.line.to(), claim.end.claim_id.clone());
        let mut line = StatementLine { request: request.clone(), claim_id, at, envelope: String::new() };
        let key = HistoryLine::Statement(line.clone()).key();
        self.offer_made(key, at, news, || {
            let sign = |bytes: &[u8]| Ok::<_, std::convert::Infallible>(signer.sign(bytes));
            let Ok(envelope) = Envelope::seal(&Statement::of(claim), sign);
            line.envelope = envelope.text();
            HistoryLine::Statement(line)
        });
    }

    /// Advances the mark, by a leader whose last complete list of the table began at `listed`, with or without
    /// unreadable records. Returns whether all lines of all records must be offered again: at the beginning, and after
    /// lines were left to their records.
    pub(crate) fn advance(&self, listed: Timestamp, all_read: bool) -> bool {
        let (listed, mut lines) = (millis(listed), self.lines());
        if lines.full {
            return lines.waiting.is_empty() && std::mem::take(&mut lines.full);
        }
        let begun = match (lines.table, lines.delivered) {
            (Table::There, None) => {
                // The history begins here.
                lines.delivered = Some(listed);
                self.begun.notify_one();
                return true;
            }
            (Table::There | Table::Missing | Table::Unknown, Some(delivered)) => delivered,
            (Table::Missing | Table::Unknown, None) => return false,
        };
        let oldest = lines.waiting.values().map(|(at, _)| *at).min();
        let before =
            |at: Timestamp| at.saturating_sub(SignedDuration::from_millis(1)).unwrap_or(Timestamp::MIN);
        let margin = if all_read { MARGIN } else { UNREAD };
        let all = listed.saturating_sub(margin).unwrap_or(Timestamp::MIN);
        let delivered = begun.max(oldest.map_or(all, |oldest| all.min(before(oldest))));
        lines.delivered = Some(delivered);
        lines.written.retain(|_, at| *at > delivered);
        false
    }

    fn next(&self) -> Vec<(Key, Timestamp, Item)> {
        let lines = self.lines();
        lines.waiting.iter().take(BATCH).map(|(key, (at, item))| (key.clone(), *at, item.clone())).collect()
    }

    fn is(&self, table: Table) -> bool {
        std::mem::replace(&mut self.lines().table, table) != table
    }
}

/// Writes the lines until stopped; the next leader writes the rest.
pub(crate) async fn run(
    table: HistoryTable,
    backlog: Backlog,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    shutdown: CancellationToken,
) {
    let mut pause = PAUSE.0;
    loop {
        let wait = if backlog.is_there() {
            match deliver(&table, &backlog, &clock).await {
                Ok(true) => {
                    pause = PAUSE.0;
                    continue;
                }
                Ok(false) => None,
                Err(error) => {
                    metrics.history_failed();
                    tracing::warn!(%error, "lines of the history were not written; they are kept and written later");
                    pause = (pause * 2).min(PAUSE.1);
                    Some(pause)
                }
            }
        } else {
            look(&table, &backlog).await.then_some(LOOK)
        };
        metrics.history_waiting(backlog.lines().waiting.len());
        let slept = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None if backlog.is_there() => backlog.wake.notified().await,
                None => {}
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            () = slept => {}
        }
    }
    // Once more, so that an operator that stops regularly leaves no lines behind.
    while matches!(deliver(&table, &backlog, &clock).await, Ok(true)) {}
}

/// Writes one batch and returns whether there was one.
async fn deliver(
    table: &HistoryTable,
    backlog: &Backlog,
    clock: &Arc<dyn Clock>,
) -> Result<bool, StoreError> {
    let batch = backlog.next();
    if batch.is_empty() {
        return Ok(false);
    }
    let items: Vec<Item> = batch.iter().map(|(_, _, item)| item.clone()).collect();
    let begun = clock.elapsed();
    let sent = table.store.append(&items).await;
    tracing::debug!(lines = items.len(), took = ?clock.elapsed().saturating_sub(begun), "wrote to the history");
    match sent {
        Ok(0) => {}
        Ok(_) => return Err(StoreError::Throttled),
        Err(error) => {
            if matches!(error, StoreError::NoTable(_)) {
                backlog.is(Table::Missing);
            }
            return Err(error);
        }
    }
    let mut lines = backlog.lines();
    for (key, at, _) in batch {
        lines.waiting.remove(&key);
        lines.written.insert(key, at);
    }
    Ok(true)
}

/// Checks whether the history table exists, and returns whether to check again later.
async fn look(table: &HistoryTable, backlog: &Backlog) -> bool {
    match table.store.query("history#", "", None).await {
        Ok(_) => {
            if backlog.is(Table::There) {
                tracing::info!("the history table is there; what is over is kept in it");
            }
            false
        }
        Err(error @ (StoreError::NoTable(_) | StoreError::Denied(_))) => {
            if backlog.is(Table::Missing) {
                tracing::warn!(%error, "there is no history table, or no right to it: events stay in the yard's table and no history is kept; `runyard init` makes one");
            }
            true
        }
        Err(error) => {
            tracing::debug!(%error, "the history table did not answer");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use runyard_fakes::MemoryStore;

    #[test]
    fn the_history_begins_at_a_time_of_milliseconds_that_the_lease_has_at_once() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let backlog = Backlog::new(Some(&HistoryTable { store, events: true, keep: 60, signer: None }));
        let listed: Timestamp = "2026-01-05T12:00:00.051952560Z".parse().unwrap();
        assert!(!backlog.advance(listed, true) && backlog.begins().now_or_never().is_none());
        backlog.is(Table::There);
        assert!(backlog.advance(listed, true), "all is to be offered");
        assert_eq!(backlog.delivered().map(|at| at.to_string()).as_deref(), Some("2026-01-05T12:00:00.051Z"));
        assert!(backlog.begins().now_or_never().is_some());
        assert!(backlog.begins().now_or_never().is_none(), "once");
    }
}
