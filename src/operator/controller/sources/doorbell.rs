//! Waits for rings of the doorbell while this operator holds the lease. The record that a ring names is read at once, so
//! that a late stream delays nothing that somebody waits for; and the watch of the table looks several times in short
//! succession, because the stream returns a write some time after it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::follow::Seen;
use super::listen::{Listener, listen};
use crate::controller::{Bell, ordered_watch};
use crate::model::RecordId;
use crate::ports::{Clock, Doorbell, QueueError, Ring, Store};

/// The pauses after each look that follows a ring. However often it rings, a shard is read at most ten times a second,
/// as by two readers at the watch's own interval.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(150),
    Duration::from_millis(150),
];
/// The pause after each call of the queue that returned rings: 40 calls a second in a flood.
const PACE: Duration = Duration::from_millis(25);
/// The most records that are read in a second because one sender rang.
const MOST_OF_SENDER: u32 = 20;
/// The most records that are read in a second because anybody rang.
const MOST: u32 = 100;

/// Reads the records that rings name, and reports them to the loop.
pub(crate) struct Reader {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sender: mpsc::Sender<Seen>,
}

/// Listens until stopped.
pub(crate) async fn run(
    bell: Bell,
    reader: Reader,
    lease: ordered_watch::Receiver<Option<u64>>,
    shutdown: CancellationToken,
) {
    let rung = Arc::new(Notify::new());
    let looks = look_after_rings(bell.look, rung.clone());
    let ears = Ears { port: bell.port, rung, reader, room: Room::default(), reads: JoinSet::new() };
    tokio::select! {
        biased;
        () = looks => {}
        () = listen(ears, lease, shutdown) => {}
    }
}

/// Makes the watch look after each ring; rings during its looks count once.
async fn look_after_rings(look: watch::Sender<()>, rung: Arc<Notify>) {
    loop {
        rung.notified().await;
        for after in PAUSES {
            look.send_replace(());
            tokio::time::sleep(after).await;
        }
    }
}

struct Ears {
    port: Arc<dyn Doorbell>,
    rung: Arc<Notify>,
    reader: Reader,
    room: Room,
    reads: JoinSet<()>,
}

#[async_trait]
impl Listener for Ears {
    async fn hear(&mut self) -> Result<bool, QueueError> {
        let rings = self.port.rung().await?;
        if rings.is_empty() {
            return Ok(false);
        }
        self.rung.notify_one();
        for key in self.room.admitted(rings, self.reader.clock.elapsed()) {
            let (store, clock, sender) =
                (self.reader.store.clone(), self.reader.clock.clone(), self.reader.sender.clone());
            self.reads.spawn(async move { report(&key, store.as_ref(), clock.as_ref(), &sender).await });
        }
        while self.reads.try_join_next().is_some() {}
        tokio::time::sleep(PACE).await;
        Ok(true)
    }

    /// Only time is lost: the watch sees every write at its next look.
    fn report(&self, error: &QueueError) {
        match error {
            QueueError::Missing => tracing::info!(
                "there is no queue of the doorbell; intents are seen at the next look at the stream; `runyard init` makes it"
            ),
            QueueError::NoService(why) => tracing::info!(%why, "no doorbell: no SQS there"),
            QueueError::Throttled
            | QueueError::Unreachable(_)
            | QueueError::Denied(_)
            | QueueError::Invalid(_) => tracing::warn!(%error, "the doorbell cannot be heard"),
        }
    }
}

/// Reads a record and reports it. That a record is not there says nothing: a ring about it may be forged, and the
/// stream tells of a removal.
async fn report(key: &RecordId, store: &dyn Store, clock: &dyn Clock, sender: &mpsc::Sender<Seen>) {
    let begun = clock.elapsed();
    match store.get(key).await {
        // Nobody takes records any more once this operator stops.
        Ok(Some(item)) => drop(sender.send(Seen::Read(begun, item)).await),
        Ok(None) => {}
        Err(error) => tracing::debug!(%key, %error, "a record that a ring named cannot be read"),
    }
}

/// Bounds what ringers can make this operator read.
#[derive(Debug, Default)]
struct Room {
    /// The second that is counted.
    second: u64,
    /// The reads of that second, by sender.
    reads: BTreeMap<Option<String>, u32>,
}

impl Room {
    /// Returns the records to read, each once.
    fn admitted(&mut self, rings: Vec<Ring>, now: Duration) -> BTreeSet<RecordId> {
        if self.second != now.as_secs() {
            (self.second, self.reads) = (now.as_secs(), BTreeMap::new());
        }
        let mut admitted = BTreeSet::new();
        for Ring { key, sender } in rings {
            let Some(key) = key.filter(|key| !admitted.contains(key)) else { continue };
            if self.reads.values().sum::<u32>() >= MOST {
                break;
            }
            let reads = self.reads.entry(sender).or_default();
            if *reads < MOST_OF_SENDER {
                *reads += 1;
                admitted.insert(key);
            }
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use tokio::time::Instant;

    use super::super::listen::{PAUSE_MOST, SHORT};
    use super::*;
    use crate::model::{AttributeValue, Item};
    use runyard_fakes::{MemoryStore, TokioClock};

    /// A bell that responds as scripted, each time after a second, and then waits forever.
    #[derive(Default)]
    struct Scripted {
        answers: Mutex<VecDeque<Result<Vec<Ring>, QueueError>>>,
        calls: Mutex<u32>,
        /// Whether each call returns a ring at once.
        flood: std::sync::atomic::AtomicBool,
    }

    #[async_trait]
    impl Doorbell for Scripted {
        async fn rung(&self) -> Result<Vec<Ring>, QueueError> {
            *self.calls.lock().unwrap() += 1;
            if self.flood.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(vec![Ring::default()]);
            }
            let answer = self.answers.lock().unwrap().pop_front();
            tokio::time::sleep(if answer.is_some() { SHORT } else { SHORT * 20 }).await;
            answer.unwrap_or(Ok(Vec::new()))
        }
    }

    struct Listener {
        bell: Arc<Scripted>,
        store: MemoryStore,
        seen: mpsc::Receiver<Seen>,
        looks: watch::Receiver<()>,
        lease: ordered_watch::Sender<Option<u64>>,
        stop: CancellationToken,
    }

    fn listening(answers: impl IntoIterator<Item = Result<Vec<Ring>, QueueError>>) -> Listener {
        let bell =
            Arc::new(Scripted { answers: Mutex::new(answers.into_iter().collect()), ..Scripted::default() });
        let ((look, looks), (lease, held)) = (watch::channel(()), ordered_watch::channel(None));
        let stop = CancellationToken::new();
        let (store, (sender, seen)) = (MemoryStore::new(), mpsc::channel(256));
        let clock = Arc::new(TokioClock::starting(jiff::Timestamp::UNIX_EPOCH));
        let reader = Reader { store: Arc::new(store.clone()), clock, sender };
        tokio::spawn(run(Bell { port: bell.clone(), look }, reader, held, stop.clone()));
        Listener { bell, store, seen, looks, lease, stop }
    }

    impl Listener {
        /// Counts the looks within this time, at most one per millisecond.
        async fn looks_within(&mut self, time: Duration) -> usize {
            let (until, mut looks) = (Instant::now() + time, 0);
            while tokio::time::timeout_at(until, self.looks.changed()).await.is_ok_and(|seen| seen.is_ok()) {
                looks += 1;
            }
            looks
        }

        fn calls(&self) -> u32 {
            *self.bell.calls.lock().unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ring_is_followed_by_five_looks_and_only_the_leader_listens() {
        let mut listener = listening([Ok(vec![Ring::default()])]);
        assert_eq!(listener.looks_within(SHORT * 60).await, 0);
        assert_eq!(listener.calls(), 0, "a standby leaves the rings to the leader");
        listener.lease.set(Some(1));
        assert_eq!(listener.looks_within(SHORT * 60).await, PAUSES.len());
        listener.lease.set(None);
        tokio::time::sleep(SHORT * 30).await;
        let calls = listener.calls();
        tokio::time::sleep(SHORT * 600).await;
        assert_eq!(listener.calls(), calls, "nor one that was the leader");
        listener.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_hour_of_the_doorbell_is_180_calls_and_no_look() {
        let mut listener = listening([]);
        listener.lease.set(Some(1));
        assert_eq!(listener.looks_within(Duration::from_secs(3599)).await, 0);
        assert_eq!(listener.calls(), 180);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_doorbell_is_tried_ever_more_rarely() {
        let mut listener =
            listening((0..50).map(|_| Err(QueueError::Missing)).chain([Ok(vec![Ring::default()])]));
        listener.lease.set(Some(1));
        assert_eq!(listener.looks_within(Duration::from_secs(3600)).await, 0);
        assert!((10..25).contains(&listener.calls()), "{}", listener.calls());
        assert_eq!(listener.looks_within(PAUSE_MOST * 60).await, PAUSES.len(), "one that is made is heard");
    }

    fn pool(number: usize) -> RecordId {
        RecordId::new(format!("pool#small-{number}"), "pool")
    }

    fn item(key: &RecordId) -> Item {
        [("pk", key.pk()), ("sk", key.sk())]
            .map(|(name, value)| (name.to_owned(), AttributeValue::S(value)))
            .into()
    }

    fn by(sender: &str, number: usize) -> Ring {
        Ring { key: Some(pool(number)), sender: Some(sender.to_owned()) }
    }

    impl Listener {
        /// Returns the records that were reported so far.
        fn reported(&mut self) -> Vec<Item> {
            let mut reported = Vec::new();
            while let Ok(seen) = self.seen.try_recv() {
                let Seen::Read(_, item) = seen else { panic!("nothing else is reported") };
                reported.push(item);
            }
            reported
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_record_that_a_ring_names_is_read_and_one_that_is_missing_says_nothing() {
        let mut listener = listening([Ok(vec![by("a", 1), by("b", 1), by("a", 2), Ring::default()])]);
        listener.store.put(item(&pool(1)));
        listener.lease.set(Some(1));
        tokio::time::sleep(SHORT + Duration::from_millis(1)).await;
        assert_eq!(listener.reported(), [item(&pool(1))], "once, whoever rang");
    }

    #[test]
    fn no_sender_takes_the_reads_of_another() {
        let mut room = Room::default();
        let now = Duration::from_secs(7);
        let flood = |from: usize| (from..from + 10).map(|number| by("flood", number)).collect::<Vec<_>>();
        let read: usize = (0..100).map(|call| room.admitted(flood(call * 10), now).len()).sum();
        assert_eq!(read, MOST_OF_SENDER as usize);
        assert_eq!(room.admitted(vec![by("flood", 9999), by("honest", 1)], now), BTreeSet::from([pool(1)]));
        let many = (0..1000).map(|number| by(&format!("sender {number}"), number)).collect();
        assert_eq!(room.admitted(many, now).len(), (MOST - MOST_OF_SENDER - 1) as usize);
        assert_eq!(room.admitted(flood(0), now + SHORT).len(), 10, "the next second is another");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_rings_is_forty_calls_and_ten_looks_a_second() {
        let mut listener = listening(std::iter::empty());
        listener.bell.flood.store(true, std::sync::atomic::Ordering::Relaxed);
        listener.lease.set(Some(1));
        let looks = listener.looks_within(SHORT * 10).await;
        assert!(looks <= 101, "{looks}");
        assert!(listener.calls() <= 401, "{}", listener.calls());
    }
}
