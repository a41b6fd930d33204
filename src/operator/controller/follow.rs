//! How the loop sees the table: a watch is opened first, then its changes are followed while everything is listed once.
//! The list is repeated on an interval, on demand, and whenever the watch may have missed something or has stalled.
//! However long a list takes, changes do not wait for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::model::{Item, RecordId};
use crate::ports::{Change, Clock, Store, StoreError, Watch};

/// What the follower tells the loop.
pub(super) enum Seen {
    /// A list of the table begins, at this moment of the monotonic clock.
    ListBegins(Duration),
    /// Some records of the list, and the place they took among the pages that wait to be taken in.
    Page(Vec<Item>, OwnedSemaphorePermit),
    /// The list is complete: these are its keys.
    ListEnds(BTreeSet<RecordId>),
    /// The list broke off; another one follows.
    ListFails(StoreError),
    /// A look at the watch succeeded, with these changes (possibly none).
    Changes(Vec<Change>),
    /// A look failed.
    Blind(StoreError),
}

/// Most pages of a list that are read before the loop takes them in: each is a megabyte on the wire, and several once it
/// is read. Beside them a list keeps its keys.
const PAGES: usize = 2;
/// First pause between attempts while the table cannot be read.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest such pause.
const PAUSE_MOST: Duration = Duration::from_secs(5);

pub(super) struct Follower {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) resync: Duration,
    /// How long a watch that answers may tell nothing: renewals of the lease alone are changes every few seconds.
    pub(super) silence: Duration,
    pub(super) tell: mpsc::Sender<Seen>,
    pub(super) shutdown: CancellationToken,
}

impl Follower {
    /// Follows the table until told to stop; a kick asks for a list.
    pub(super) async fn run(self, mut kicks: mpsc::Receiver<()>) {
        let _ = self.shutdown.run_until_cancelled(self.follow(&mut kicks)).await;
    }

    async fn follow(&self, kicks: &mut mpsc::Receiver<()>) -> Option<()> {
        let mut pause = pauses();
        loop {
            match self.store.watch().await {
                Ok(mut watch) => {
                    pause = pauses();
                    // Neither waits for the other. A page that is ready goes to the loop before a change that follows it.
                    tokio::select! {
                        biased;
                        closed = self.lists(kicks) => closed?,
                        ended = self.changes(watch.as_mut()) => ended?,
                    }
                }
                Err(error) => {
                    self.tell.send(Seen::Blind(error)).await.ok()?;
                    rest(&mut pause).await;
                }
            }
        }
    }

    /// Lists the table now, on the interval, and when asked to; only ends when the loop is gone.
    async fn lists(&self, kicks: &mut mpsc::Receiver<()>) -> Option<()> {
        let mut pause = pauses();
        loop {
            // The list answers everybody who asked before it began.
            while kicks.try_recv().is_ok() {}
            let wait = if self.list().await? {
                pause = pauses();
                self.resync
            } else {
                pause.next().unwrap_or(PAUSE_MOST).min(self.resync)
            };
            tokio::select! {
                biased;
                kick = kicks.recv() => kick?,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Follows one watch until it may have missed something.
    async fn changes(&self, watch: &mut dyn Watch) -> Option<()> {
        let mut pause = pauses();
        let mut told = tokio::time::Instant::now();
        loop {
            match watch.next().await {
                Ok(changes) => {
                    pause = pauses();
                    let silent = changes.is_empty() && told.elapsed() >= self.silence;
                    if !changes.is_empty() {
                        told = tokio::time::Instant::now();
                    }
                    self.tell.send(Seen::Changes(changes)).await.ok()?;
                    if silent {
                        let seconds = told.elapsed().as_secs();
                        tracing::warn!(
                            seconds,
                            "the watch tells nothing although the lease is renewed, opening another and listing again"
                        );
                        return Some(());
                    }
                }
                Err(StoreError::Invalid(why)) => {
                    tracing::warn!(%why, "the watch may have missed changes, listing again");
                    return Some(());
                }
                Err(error) => {
                    self.tell.send(Seen::Blind(error)).await.ok()?;
                    rest(&mut pause).await;
                }
            }
        }
    }

    /// Lists the whole table; whether it came to its end.
    async fn list(&self) -> Option<bool> {
        self.tell.send(Seen::ListBegins(self.clock.elapsed())).await.ok()?;
        let mut keys = BTreeSet::new();
        let mut after: Option<RecordId> = None;
        let places = Arc::new(Semaphore::new(PAGES));
        loop {
            let place = places.clone().acquire_owned().await.ok()?;
            match self.store.list(after.as_ref()).await {
                // The loop knows what was removed since the list began.
                Ok(page) => {
                    // Events are many times all others, and nobody asks whether they are still there.
                    keys.extend(page.items.iter().filter_map(RecordId::of).filter(|key| !key.is_event()));
                    self.tell.send(Seen::Page(page.items, place)).await.ok()?;
                    after = page.next;
                    if after.is_none() {
                        self.tell.send(Seen::ListEnds(keys)).await.ok()?;
                        return Some(true);
                    }
                }
                Err(error) => {
                    self.tell.send(Seen::ListFails(error)).await.ok()?;
                    return Some(false);
                }
            }
        }
    }
}

/// Pauses between attempts, each twice as long as the one before.
fn pauses() -> ExponentialBackoff {
    let pauses = ExponentialBuilder::new().with_min_delay(PAUSE).with_max_delay(PAUSE_MOST);
    pauses.without_max_times().build()
}

async fn rest(pauses: &mut ExponentialBackoff) {
    tokio::time::sleep(pauses.next().unwrap_or(PAUSE_MOST)).await;
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::model::AttributeValue;
    use runyard_fakes::{MemoryStore, TokioClock};

    /// A follower of this table, and what it tells the loop.
    fn follower(store: &MemoryStore, shutdown: &CancellationToken) -> (Follower, mpsc::Receiver<Seen>) {
        let clock = Arc::new(TokioClock::starting(jiff::Timestamp::UNIX_EPOCH));
        let (tell, told) = mpsc::channel(256);
        let (store, shutdown) = (Arc::new(store.clone()), shutdown.clone());
        let (resync, silence) = (Duration::from_secs(300), Duration::from_secs(300));
        (Follower { store, clock, resync, silence, tell, shutdown }, told)
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
        let (follower, mut told) = follower(&store, &shutdown);
        let (_kick, kicks) = mpsc::channel(1);
        let following = tokio::spawn(follower.run(kicks));
        assert!(matches!(told.recv().await, Some(Seen::ListBegins(_))));
        // Looks that found nothing come in between.
        let mut waiting = VecDeque::new();
        let mut next = |told: &mut mpsc::Receiver<Seen>| {
            while let Ok(seen) = told.try_recv() {
                waiting
                    .extend((!matches!(&seen, Seen::Changes(changes) if changes.is_empty())).then_some(seen));
            }
            let pages = waiting.iter().filter(|seen| matches!(seen, Seen::Page(..))).count();
            (pages, waiting.pop_front())
        };
        for page in 0..10 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (pages, first) = next(&mut told);
            assert_eq!(pages, PAGES.min(10 - page), "page {page}");
            assert!(matches!(first, Some(Seen::Page(items, _)) if items.len() == 1));
        }
        assert!(
            matches!(next(&mut told), (0, Some(Seen::ListEnds(keys))) if keys.is_empty()),
            "of events none is kept"
        );
        shutdown.cancel();
        following.await.expect("it stops");
    }
}
