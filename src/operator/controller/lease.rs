//! The leader lease: a record that its holder renews. Other operators take it if it was not renewed for a term on their
//! own monotonic clock. The token rises at each change of holder and fences off launches of the former one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ordered_watch;
use crate::controller::records::history::Backlog;
use crate::model::{Lease, Reading, Record, RecordId, Versioned, read};
use crate::ports::{Clock, Store, StoreError};

/// One operator's attempt to hold the lease.
pub(super) struct Candidate {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) identity: String,
    pub(super) term: Duration,
    backlog: Backlog,
    seen: Option<Seen>,
    held: Option<Lease>,
    /// Whether it was logged that the lease cannot be read.
    unreadable: bool,
}

/// Our version in the lease, for `runyard version`.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The last observed renewal.
struct Seen {
    token: u64,
    renewals: u64,
    since: Instant,
}

impl Candidate {
    pub(super) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        identity: String,
        term: Duration,
        backlog: Backlog,
    ) -> Self {
        Self { store, clock, identity, term, backlog, seen: None, held: None, unreadable: false }
    }

    fn key() -> RecordId {
        Lease::key_of(Lease::OPERATOR)
    }

    /// Renews the lease, or takes it if allowed, and returns the token while it is held.
    pub(super) async fn attempt(&mut self) -> Result<Option<u64>, StoreError> {
        match self.amend(|next| next.renewals += 1).await {
            Ok(Some(token)) => return Ok(Some(token)),
            Ok(None) => {}
            Err(StoreError::Refused { .. }) => self.held = None,
            Err(other) => return Err(other),
        }
        let lease = match self.store.get(&Self::key()).await? {
            None => return self.create().await,
            Some(item) => match read::<Lease>(&item) {
                Reading::Record(lease) => {
                    self.unreadable = false;
                    lease
                }
                // A lease that cannot be read must not be taken.
                Reading::Newer { .. } | Reading::Unreadable(_) => {
                    if !std::mem::replace(&mut self.unreadable, true) {
                        let key = Self::key();
                        tracing::error!(%key, "the lease cannot be read or is of a newer program: no operator of this version leads, nothing is launched");
                    }
                    return Ok(None);
                }
            },
        };
        if !self.free(&lease) {
            return Ok(None);
        }
        let (holder, term) = (self.identity.clone(), self.term.as_secs_f64());
        let taken = self.put(&lease, |next| {
            next.holder = holder;
            next.token += 1;
            next.term_seconds = term;
            next.operator_version = Some(VERSION.into());
        });
        match taken.await {
            Ok(token) => Ok(Some(token)),
            Err(StoreError::Refused { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Changes the lease while it is ours; returns `None` if it is not. After a write whose response was lost, holder
    /// and token show that the lease is still ours, because each token is given once.
    async fn amend(&mut self, change: impl Fn(&mut Lease)) -> Result<Option<u64>, StoreError> {
        let Some(held) = self.held.clone() else { return Ok(None) };
        match self.put(&held, &change).await {
            Ok(token) => return Ok(Some(token)),
            Err(StoreError::Refused { .. }) => {}
            Err(other) => return Err(other),
        }
        let there = self.store.get(&Self::key()).await?;
        self.held = match there.as_ref().map(read::<Lease>) {
            Some(Reading::Record(lease)) => {
                (lease.holder == held.holder && lease.token == held.token).then_some(lease)
            }
            Some(Reading::Newer { .. } | Reading::Unreadable(_)) | None => None,
        };
        let Some(ours) = self.held.clone() else { return Ok(None) };
        self.put(&ours, &change).await.map(Some)
    }

    /// Returns whether the lease may be taken: it was released, is held by our own former process, or was not renewed
    /// for its term.
    fn free(&mut self, lease: &Lease) -> bool {
        if lease.holder.is_empty() || lease.holder == self.identity {
            return true;
        }
        let now = Instant::now();
        match &self.seen {
            Some(seen) if seen.token == lease.token && seen.renewals == lease.renewals => {
                let term =
                    Duration::try_from_secs_f64(lease.term_seconds).unwrap_or(self.term).max(self.term);
                now.duration_since(seen.since) >= term
            }
            Some(_) | None => {
                self.seen = Some(Seen { token: lease.token, renewals: lease.renewals, since: now });
                false
            }
        }
    }

    async fn create(&mut self) -> Result<Option<u64>, StoreError> {
        let lease = Lease {
            name: Lease::OPERATOR.into(),
            holder: self.identity.clone(),
            token: 1,
            renewals: 0,
            term_seconds: self.term.as_secs_f64(),
            requested_at: None,
            completed_at: None,
            operator_version: Some(VERSION.into()),
            history_until: None,
            version: 1,
            updated_at: Some(self.clock.now()),
        };
        match self.store.write(&lease.creating()).await {
            Ok(_) => {
                self.held = Some(lease);
                Ok(Some(1))
            }
            Err(StoreError::Refused { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    async fn put(&mut self, before: &Lease, change: impl FnOnce(&mut Lease)) -> Result<u64, StoreError> {
        let mut after = before.clone();
        after.advance(self.clock.now());
        change(&mut after);
        // The mark only rises, also when the holder changes.
        after.history_until = after.history_until.max(self.backlog.delivered());
        self.store.write(&after.replacing(before)).await?;
        let token = after.token;
        self.backlog.inherited(after.history_until);
        self.held = Some(after);
        Ok(token)
    }

    /// Releases the lease, so that another operator need not wait for its term. The token remains; the next holder
    /// increments it.
    async fn hand_back(&mut self) {
        if let Err(error) = self.amend(|next| next.holder.clear()).await {
            tracing::debug!(%error, "the lease was not handed back; it will expire");
        }
        self.held = None;
    }

    /// Renews the lease until stopped. While renewals fail, it counts as held for two thirds of its term, from the
    /// start of the last successful renewal, since it may have been written then. No attempt lasts longer.
    pub(super) async fn keep(
        mut self,
        sender: ordered_watch::Sender<Option<u64>>,
        shutdown: CancellationToken,
    ) {
        let third = self.term / 3;
        let (mut renewed, backlog) = (Instant::now(), self.backlog.clone());
        loop {
            let begun = Instant::now();
            let over = renewed + third * 2;
            let until = if over > begun { over.min(begun + third) } else { begun + third };
            match tokio::time::timeout_at(until, self.attempt()).await {
                Ok(Ok(token)) => {
                    renewed = begun;
                    publish(&sender, token);
                }
                Ok(Err(error)) => tracing::warn!(%error, "the lease could not be renewed"),
                Err(_) => {
                    tracing::warn!("the lease could not be renewed: no answer within a third of its term")
                }
            }
            if renewed.elapsed() >= third * 2 {
                publish(&sender, None);
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = backlog.begins() => {}
                () = tokio::time::sleep_until(begun + third) => {}
            }
        }
        publish(&sender, None);
        self.hand_back().await;
    }
}

fn publish(sender: &ordered_watch::Sender<Option<u64>>, token: Option<u64>) {
    if sender.set(token) {
        match token {
            Some(token) => tracing::info!(token, "holding the lease"),
            None => tracing::info!("not holding the lease"),
        }
    }
}

/// Returns the key of the lease, with which launches are fenced.
pub(super) fn fence() -> RecordId {
    Candidate::key()
}

/// Parses an item as the record that requests a resync.
pub(super) fn resync(item: &crate::model::Item) -> Option<Lease> {
    match read::<Lease>(item) {
        Reading::Record(lease) if lease.name == Lease::RESYNC => Some(lease),
        Reading::Record(_) | Reading::Newer { .. } | Reading::Unreadable(_) => None,
    }
}

/// Marks a request for a resync as completed.
pub(super) async fn answer(store: &dyn Store, clock: &dyn Clock) -> Result<(), StoreError> {
    let key = Lease::key_of(Lease::RESYNC);
    let Some(lease) = store.get(&key).await?.as_ref().and_then(resync) else { return Ok(()) };
    let mut done = lease.clone();
    done.advance(clock.now());
    // The clock of the requesting person may be ahead of ours.
    done.completed_at = lease.requested_at.max(Some(clock.now()));
    debug_assert_eq!(done.key(), key, "the answer goes where the question was");
    store.write(&done.replacing(&lease)).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_fakes::{Fault, MemoryStore, TokioClock};

    const TERM: Duration = Duration::from_secs(15);

    fn candidate(store: &MemoryStore, identity: &str) -> Candidate {
        let clock = TokioClock::starting(jiff::Timestamp::UNIX_EPOCH);
        Candidate::new(Arc::new(store.clone()), Arc::new(clock), identity.into(), TERM, Backlog::new(None))
    }

    async fn lease(store: &MemoryStore) -> Lease {
        let item = store.get(&fence()).await.unwrap().expect("the lease is there");
        let Reading::Record(lease) = read::<Lease>(&item) else { panic!("it can be read: {item:?}") };
        lease
    }

    fn lost() -> Fault<StoreError> {
        Fault::LoseAnswer(StoreError::Unknown("simulated: the answer was lost".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_whose_answer_was_lost_costs_no_leadership() {
        let store = MemoryStore::new();
        let mut holder = candidate(&store, "one");
        assert_eq!(holder.attempt().await, Ok(Some(1)));
        for renewals in [1, 3] {
            store.next_write(lost());
            assert!(matches!(holder.attempt().await, Err(StoreError::Unknown(_))));
            assert_eq!(lease(&store).await.renewals, renewals, "it was written");
            tokio::time::sleep(TERM / 3).await;
            assert_eq!(holder.attempt().await, Ok(Some(1)), "the token is the same: no budget is held up");
            assert_eq!(lease(&store).await.renewals, renewals + 1, "and it is renewed");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_took_is_not_gone_on_with() {
        let store = MemoryStore::new();
        let (mut holder, mut heir) = (candidate(&store, "one"), candidate(&store, "two"));
        assert_eq!(holder.attempt().await, Ok(Some(1)));
        assert_eq!(heir.attempt().await, Ok(None));
        tokio::time::sleep(TERM).await;
        assert_eq!(heir.attempt().await, Ok(Some(2)));
        assert_eq!(holder.attempt().await, Ok(None));
        // Also when a process of the same name takes it, as in a stateful set.
        let mut again = candidate(&store, "two");
        assert_eq!(again.attempt().await, Ok(Some(3)));
        assert_eq!(again.amend(|_| {}).await, Ok(Some(3)));
        assert_eq!(heir.amend(|_| {}).await, Ok(None));
    }

    /// Returns whether a holder still leads this long after calls of the table became this slow.
    async fn leads_after(call: Duration, time: Duration) -> bool {
        let store = MemoryStore::new();
        let (sender, held) = ordered_watch::channel(None);
        let stop = CancellationToken::new();
        let keeping = tokio::spawn(candidate(&store, "one").keep(sender, stop.clone()));
        tokio::time::sleep(TERM / 3 + Duration::from_secs(1)).await;
        assert_eq!(held.get(), Some(1), "it was renewed a second ago");
        store.every_call_takes(call);
        tokio::time::sleep(time).await;
        let leads = held.get().is_some();
        keeping.abort();
        leads
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_whose_table_does_not_answer_stops_to_lead_before_its_term_is_over() {
        // Another operator takes the lease 15 s after the last renewal, which was a second ago here.
        let before = TERM - Duration::from_secs(2);
        assert!(!leads_after(Duration::from_secs(10), before).await, "each call is within its own limit");
        assert!(!leads_after(Duration::from_secs(3600), before).await);
        assert!(leads_after(Duration::from_secs(4), TERM * 10).await, "slow is not gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_given_up_keeps_its_token_and_the_next_holder_raises_it() {
        let store = MemoryStore::new();
        let (mut holder, mut heir) = (candidate(&store, "one"), candidate(&store, "two"));
        assert_eq!(holder.attempt().await, Ok(Some(1)));
        assert_eq!(lease(&store).await.operator_version.as_deref(), Some(VERSION));
        // Even if the response to the last renewal was lost.
        store.next_write(lost());
        assert!(holder.attempt().await.is_err());
        holder.hand_back().await;
        let given_up = lease(&store).await;
        assert_eq!((given_up.holder.as_str(), given_up.token), ("", 1));
        assert_eq!(heir.attempt().await, Ok(Some(2)), "at once");
    }
}
