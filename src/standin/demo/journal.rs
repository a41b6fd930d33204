//! Prints the operator's events and the demonstration's own lines in the order in which they happened. Each line is
//! held back until the table has had time to show earlier events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use runyard_core::model::{Event, Item, Reading, Record as _, RecordId, read};
use runyard_core::ports::{Clock, Store, StoreError};

use super::timeline::Timeline;
use crate::demo::records::records;
use crate::say;

/// Events are written in batches and watched: after this time they have been seen.
const HELD: Duration = Duration::from_millis(800);

/// A line to be printed.
enum Entry {
    Title(String),
    Said(String),
    Event(Box<Event>),
}

struct Lines {
    timeline: Timeline,
    /// The entries by time, then in the order in which they came.
    waiting: BTreeMap<(Timestamp, u64), Entry>,
    /// The events that are or were among them.
    taken: BTreeSet<RecordId>,
    count: u64,
}

/// Prints lines in the order of their times.
pub struct Journal {
    lines: Mutex<Lines>,
    clock: Arc<dyn Clock>,
}

impl Journal {
    /// Creates a journal that begins now.
    pub fn starting(clock: Arc<dyn Clock>) -> Self {
        let timeline = Timeline::starting(clock.now());
        Self {
            lines: Mutex::new(Lines { timeline, waiting: BTreeMap::new(), taken: BTreeSet::new(), count: 0 }),
            clock,
        }
    }

    /// Prints a title.
    pub(super) fn title(&self, text: &str) {
        self.add(self.clock.now(), Entry::Title(text.to_owned()));
    }

    /// Adds a line of the demonstration, now.
    pub(super) fn say(&self, text: &str) {
        self.add(self.clock.now(), Entry::Said(text.to_owned()));
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, at: Timestamp, entry: Entry) {
        let mut lines = self.lines();
        lines.count += 1;
        let count = lines.count;
        lines.waiting.insert((at, count), entry);
    }

    /// Adds an event, unless it was added already.
    fn take(&self, event: Event) {
        if self.lines().taken.insert(event.key()) {
            self.add(event.at, Entry::Event(Box::new(event)));
        }
    }

    /// Prints all remaining lines, with the events among these records that the watch has not shown yet.
    pub fn finish(&self, items: &[Item]) {
        records::<Event>(items).into_iter().for_each(|event| self.take(event));
        self.print(Timestamp::MAX);
    }

    /// Prints the lines that are older than this.
    fn print(&self, until: Timestamp) {
        let mut lines = self.lines();
        let later = lines.waiting.split_off(&(until, u64::MAX));
        for ((at, _), entry) in std::mem::replace(&mut lines.waiting, later) {
            match entry {
                Entry::Title(text) => say(format_args!("\n{text}")),
                Entry::Said(text) => say(lines.timeline.said(at, &text)),
                Entry::Event(event) => say(lines.timeline.event(&event)),
            }
        }
    }

    /// Adds every event that is written from now on and prints lines that have waited long enough, forever.
    pub async fn follow(&self, store: Arc<dyn Store>) {
        let printing = async {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                self.print(self.clock.now() - HELD);
            }
        };
        tokio::join!(printing, self.watch(store));
    }

    async fn watch(&self, store: Arc<dyn Store>) {
        loop {
            if let Err(error) = self.take_in(store.as_ref()).await {
                tracing::debug!(%error, "the timeline begins a new watch");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }

    async fn take_in(&self, store: &dyn Store) -> Result<(), StoreError> {
        let mut watch = store.watch().await?;
        loop {
            for change in watch.next().await? {
                if let Some(Reading::Record(event)) = change.item.as_ref().map(read::<Event>) {
                    self.take(event);
                }
            }
        }
    }
}
