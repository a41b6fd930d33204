//! Follows the table for the loop: it opens a watch first, then reports its changes while it lists everything once. The
//! list is repeated on an interval, on demand, and whenever the watch may have missed something or has stalled. Changes
//! never wait for a list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::model::{Item, RecordId};
use crate::ports::{Change, Clock, Store, StoreError, Watch};

/// A message of the follower to the loop, or of the doorbell's listener.
pub(crate) enum Seen {
    /// A list of the table begins, at this moment of the monotonic clock.
    ListBegins(Duration),
    /// Some records of the list, and the page's permit in the limit of pages that wait for the loop.
    Page(Vec<Item>, OwnedSemaphorePermit),
    /// The list is complete: these are its keys.
    ListEnds(BTreeSet<RecordId>),
    /// The list failed; another one follows.
    ListFails(StoreError),
    /// A read of the watch succeeded, with these changes (possibly none).
    Changes(Vec<Change>),
    /// A read of the watch failed.
    Blind(StoreError),
    /// A record that a ring named, read at this moment of the monotonic clock or later.
    Read(Duration, Item),
}

/// Maximum number of pages of a list that may wait for the loop: each is a megabyte on the wire, and several once it is
/// parsed. In addition a list keeps its keys.
const PAGES: usize = 2;
/// First pause between attempts while the table cannot be read.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest such pause.
const PAUSE_MOST: Duration = Duration::from_secs(5);

pub(crate) struct Follower {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) resync: Duration,
    /// How long a watch may return no changes: renewals of the lease alone are changes every few seconds.
    pub(crate) silence: Duration,
    pub(crate) sender: mpsc::Sender<Seen>,
    pub(crate) shutdown: CancellationToken,
}

impl Follower {
    /// Follows the table until stopped; a trigger starts a list.
    pub(crate) async fn run(self, mut triggers: mpsc::Receiver<()>) {
        let _ = self.shutdown.run_until_cancelled(self.follow(&mut triggers)).await;
    }

    async fn follow(&self, triggers: &mut mpsc::Receiver<()>) -> Option<()> {
        let mut pause = pauses();
        loop {
            match self.store.watch().await {
                Ok(mut watch) => {
                    pause = pauses();
                    // Neither waits for the other. A page that is ready is sent before a change that follows it.
                    tokio::select! {
                        biased;
                        closed = self.lists(triggers) => closed?,
                        ended = self.changes(watch.as_mut()) => ended?,
                    }
                }
                Err(error) => {
                    self.sender.send(Seen::Blind(error)).await.ok()?;
                    back_off(&mut pause).await;
                }
            }
        }
    }

    /// Lists the table now, on the interval, and on each trigger; ends only when the loop is gone.
    async fn lists(&self, triggers: &mut mpsc::Receiver<()>) -> Option<()> {
        let mut pause = pauses();
        loop {
            // The list serves all earlier triggers.
            while triggers.try_recv().is_ok() {}
            let wait = if self.list().await? {
                pause = pauses();
                self.resync
            } else {
                pause.next().unwrap_or(PAUSE_MOST).min(self.resync)
            };
            tokio::select! {
                biased;
                trigger = triggers.recv() => trigger?,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Follows one watch until it may have missed something.
    async fn changes(&self, watch: &mut dyn Watch) -> Option<()> {
        let mut pause = pauses();
        let mut last_change = tokio::time::Instant::now();
        loop {
            match watch.next().await {
                Ok(changes) => {
                    pause = pauses();
                    let silent = changes.is_empty() && last_change.elapsed() >= self.silence;
                    if !changes.is_empty() {
                        last_change = tokio::time::Instant::now();
                    }
                    self.sender.send(Seen::Changes(changes)).await.ok()?;
                    if silent {
                        let seconds = last_change.elapsed().as_secs();
                        tracing::warn!(
                            seconds,
                            "the watch returned no changes despite lease renewals; reopening it and listing again"
                        );
                        return Some(());
                    }
                }
                Err(StoreError::Invalid(why)) => {
                    tracing::warn!(%why, "the watch may have missed changes; listing again");
                    return Some(());
                }
                Err(error) => {
                    self.sender.send(Seen::Blind(error)).await.ok()?;
                    back_off(&mut pause).await;
                }
            }
        }
    }

    /// Lists the whole table and returns whether it completed.
    async fn list(&self) -> Option<bool> {
        self.sender.send(Seen::ListBegins(self.clock.elapsed())).await.ok()?;
        let mut keys = BTreeSet::new();
        let mut after: Option<RecordId> = None;
        let permits = Arc::new(Semaphore::new(PAGES));
        loop {
            let permit = permits.clone().acquire_owned().await.ok()?;
            match self.store.list(after.as_ref()).await {
                // The loop tracks removals since the list began.
                Ok(page) => {
                    // Events outnumber all other records, and nothing depends on whether they still exist.
                    keys.extend(page.items.iter().filter_map(RecordId::of).filter(|key| !key.is_event()));
                    self.sender.send(Seen::Page(page.items, permit)).await.ok()?;
                    after = page.next;
                    if after.is_none() {
                        self.sender.send(Seen::ListEnds(keys)).await.ok()?;
                        return Some(true);
                    }
                }
                Err(error) => {
                    self.sender.send(Seen::ListFails(error)).await.ok()?;
                    return Some(false);
                }
            }
        }
    }
}

/// Returns the pauses between attempts, each twice as long as the previous one.
fn pauses() -> ExponentialBackoff {
    let pauses = ExponentialBuilder::new().with_min_delay(PAUSE).with_max_delay(PAUSE_MOST);
    pauses.without_max_times().build()
}

async fn back_off(pauses: &mut ExponentialBackoff) {
    tokio::time::sleep(pauses.next().unwrap_or(PAUSE_MOST)).await;
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::model::AttributeValue;
    use runyard_fakes::{MemoryStore, TokioClock};

    /// Returns a follower of this table, and the receiver of its messages.
    fn follower(store: &MemoryStore, shutdown: &CancellationToken) -> (Follower, mpsc::Receiver<Seen>) {
        let clock = Arc::new(TokioClock::starting(jiff::Timestamp::UNIX_EPOCH));
        let (sender, received) = mpsc::channel(256);
        let (store, shutdown) = (Arc::new(store.clone()), shutdown.clone());
        let (resync, silence) = (Duration::from_secs(300), Duration::from_secs(300));
        (Follower { store, clock, resync, silence, sender, shutdown }, received)
    }

    fn record(pk: String, sk: &str) -> Item {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        [("pk", text(&pk)), ("sk", text(sk))].map(|(name, value)| (name.to_owned(), value)).into()
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_pages_are_read_than_the_loop_takes_in() {
        let store = MemoryStore::new().paged(1);
        (0..10).for_each(|number| store.put(record(format!("event#{number}"), "event#1")));
        let shutdown = CancellationToken::new();
        let (follower, mut received) = follower(&store, &shutdown);
        let (_trigger, triggers) = mpsc::channel(1);
        let following = tokio::spawn(follower.run(triggers));
        assert!(matches!(received.recv().await, Some(Seen::ListBegins(_))));
        // Empty looks come in between.
        let mut waiting = VecDeque::new();
        let mut next = |received: &mut mpsc::Receiver<Seen>| {
            while let Ok(seen) = received.try_recv() {
                waiting
                    .extend((!matches!(&seen, Seen::Changes(changes) if changes.is_empty())).then_some(seen));
            }
            let pages = waiting.iter().filter(|seen| matches!(seen, Seen::Page(..))).count();
            (pages, waiting.pop_front())
        };
        for page in 0..10 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (pages, first) = next(&mut received);
            assert_eq!(pages, PAGES.min(10 - page), "page {page}");
            assert!(matches!(first, Some(Seen::Page(items, _)) if items.len() == 1));
        }
        assert!(
            matches!(next(&mut received), (0, Some(Seen::ListEnds(keys))) if keys.is_empty()),
            "of events none is kept"
        );
        shutdown.cancel();
        following.await.expect("it stops");
    }
}
