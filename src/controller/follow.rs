//! How the loop sees the table: a watch is opened first, then everything is listed once, then changes are followed;
//! the list is repeated on an interval, on demand, and whenever the watch may have missed something or has stalled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::model::{Event, Item, Key};
use crate::ports::{Change, Clock, Store, StoreError, Watch};

/// What the follower tells the loop.
pub(super) enum Seen {
    /// A list of the table begins, at this moment of the monotonic clock.
    ListBegins(Duration),
    /// Some records of the list, and the place they took among the pages that wait to be taken in.
    Page(Vec<Item>, OwnedSemaphorePermit),
    /// The list is complete: these are its keys.
    ListEnds(BTreeSet<Key>),
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
/// Longest pause between attempts while the table cannot be read.
const PAUSE_MOST: Duration = Duration::from_secs(5);

pub(super) struct Follower {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) resync: Duration,
    /// How long a watch that answers may tell nothing: renewals of the lease alone are changes every few seconds.
    pub(super) silence: Duration,
    pub(super) tell: mpsc::Sender<Seen>,
    pub(super) kicks: mpsc::Receiver<()>,
    pub(super) shutdown: CancellationToken,
}

impl Follower {
    /// Follows the table until told to stop.
    pub(super) async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        let _ = shutdown.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) -> Option<()> {
        let mut pause = Duration::from_millis(50);
        loop {
            match self.store.watch().await {
                Ok(mut watch) => {
                    pause = Duration::from_millis(50);
                    self.live(watch.as_mut()).await?;
                }
                Err(error) => {
                    self.tell.send(Seen::Blind(error)).await.ok()?;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MOST);
                }
            }
        }
    }

    /// Lists, then follows one watch until it may have missed something.
    async fn live(&mut self, watch: &mut dyn Watch) -> Option<()> {
        let mut pause = Duration::from_millis(50);
        while !self.list().await? {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MOST);
        }
        let mut next_list = tokio::time::Instant::now() + self.resync;
        let mut told = tokio::time::Instant::now();
        pause = Duration::from_millis(50);
        loop {
            tokio::select! {
                biased;
                kick = self.kicks.recv() => {
                    kick?;
                    next_list = tokio::time::Instant::now();
                }
                () = tokio::time::sleep_until(next_list) => {
                    let wait = if self.list().await? { self.resync } else { PAUSE_MOST.min(self.resync) };
                    next_list = tokio::time::Instant::now() + wait;
                }
                looked = watch.next() => match looked {
                    Ok(changes) => {
                        pause = Duration::from_millis(50);
                        let silent = changes.is_empty() && told.elapsed() >= self.silence;
                        if !changes.is_empty() {
                            told = tokio::time::Instant::now();
                        }
                        self.tell.send(Seen::Changes(changes)).await.ok()?;
                        if silent {
                            let seconds = told.elapsed().as_secs();
                            tracing::warn!(seconds, "the watch tells nothing although the lease is renewed, opening another and listing again");
                            return Some(());
                        }
                    }
                    Err(StoreError::Invalid(why)) => {
                        tracing::warn!(%why, "the watch may have missed changes, listing again");
                        return Some(());
                    }
                    Err(error) => {
                        self.tell.send(Seen::Blind(error)).await.ok()?;
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MOST);
                    }
                },
            }
        }
    }

    /// Lists the whole table; whether it came to its end.
    async fn list(&mut self) -> Option<bool> {
        self.tell.send(Seen::ListBegins(self.clock.elapsed())).await.ok()?;
        let mut keys = BTreeSet::new();
        let mut after: Option<Key> = None;
        let places = Arc::new(Semaphore::new(PAGES));
        loop {
            let place = places.clone().acquire_owned().await.ok()?;
            match self.store.list(after.as_ref()).await {
                Ok(page) => {
                    // Events are many times all others, and nobody asks whether they are still there.
                    keys.extend(page.items.iter().filter_map(Key::of).filter(|key| !Event::is_key(key)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{MemoryStore, TokioClock};
    use crate::model::AttributeValue;

    #[tokio::test(start_paused = true)]
    async fn no_more_pages_are_read_than_the_loop_takes_in() {
        let clock = Arc::new(TokioClock::starting(jiff::Timestamp::UNIX_EPOCH));
        let store = MemoryStore::new().paged(1);
        let text = |text: String| AttributeValue::S(text);
        let event = |number| {
            let attributes = [("pk", text(format!("event#{number}"))), ("sk", text("event#1".into()))];
            attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        };
        let events: Vec<Item> = (0..10).map(event).collect();
        assert_eq!(store.append(&events).await.expect("nobody else writes"), 0, "all are kept");
        let (tell, mut told) = mpsc::channel(256);
        let (_kick, kicks) = mpsc::channel(1);
        let shutdown = CancellationToken::new();
        let (resync, silence) = (Duration::from_secs(300), Duration::from_secs(300));
        let store = Arc::new(store);
        let follower = Follower { store, clock, resync, silence, tell, kicks, shutdown: shutdown.clone() };
        let following = tokio::spawn(follower.run());
        assert!(matches!(told.recv().await, Some(Seen::ListBegins(_))));
        for page in 0..10 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if page < 10 - PAGES {
                assert_eq!(told.len(), PAGES, "page {page}");
            }
            assert!(matches!(told.recv().await, Some(Seen::Page(items, _)) if items.len() == 1));
        }
        assert!(
            matches!(told.recv().await, Some(Seen::ListEnds(keys)) if keys.is_empty()),
            "of events none is kept"
        );
        shutdown.cancel();
        following.await.expect("it stops");
    }
}
