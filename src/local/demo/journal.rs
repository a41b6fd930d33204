//! Who tells the person at the terminal? The operator's events as the table shows them, between the demonstration's own
//! lines.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::{Event, Key, Reading, read};
use crate::ports::{Clock, Store, StoreError};

use super::timeline::Timeline;

/// Prints lines in one order.
pub(super) struct Journal {
    timeline: Mutex<Timeline>,
    clock: Arc<dyn Clock>,
}

impl Journal {
    pub(super) fn starting(clock: Arc<dyn Clock>) -> Self {
        Self { timeline: Mutex::new(Timeline::starting(clock.now())), clock }
    }

    /// A title.
    pub(super) fn title(&self, text: &str) {
        println!("\n{text}");
    }

    /// A line of our own, now.
    pub(super) fn say(&self, text: &str) {
        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{}", timeline.said(self.clock.now(), text));
    }

    fn tell(&self, event: &Event) {
        let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{}", timeline.event(event));
    }

    /// Tells every event that is written from now on, for ever.
    pub(super) async fn follow(&self, store: Arc<dyn Store>) {
        let mut told = BTreeSet::new();
        loop {
            if let Err(error) = self.watch(store.as_ref(), &mut told).await {
                tracing::debug!(%error, "the timeline begins a new watch");
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        }
    }

    async fn watch(&self, store: &dyn Store, told: &mut BTreeSet<Key>) -> Result<(), StoreError> {
        let mut watch = store.watch().await?;
        loop {
            let changes = watch.next().await?;
            let new = changes.into_iter().filter(|change| told.insert(change.key.clone()));
            let mut events: Vec<Event> = new
                .filter_map(|change| match read::<Event>(&change.item?) {
                    Reading::Record(event) => Some(event),
                    Reading::Newer { .. } | Reading::Unreadable(_) => None,
                })
                .collect();
            events.sort_by_key(|event| event.at);
            events.iter().for_each(|event| self.tell(event));
        }
    }
}
