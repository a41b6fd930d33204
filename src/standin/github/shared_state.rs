//! Shares one state among concurrent requests. Each change is made under one lock and stored before its response is
//! sent; every change wakes the waiting requests.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rand::Rng;
use rand::distr::Alphanumeric;
use tokio::sync::{Notify, broadcast};

use super::behaviour::Behaviour;
use super::call_counter::CallCounter;
use super::files;
use super::package::Package;
use super::state::{QueuedJobs, Refusal, State};

/// A clock; the wall clock in production.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The longest sleep of a waiter: time alone changes things, too.
const WAKE_AT_LEAST_EVERY: Duration = Duration::from_secs(1);
/// 32 letters and digits are 190 bits.
const SECRET_CHARS: usize = 32;
/// How many runs with queued jobs a receiver may be behind before it misses the oldest, as a webhook may be lost.
const QUEUED_KEPT: usize = 256;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StandInFailure {
    /// The stand-in refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The change could not be stored.
    #[error("the stand-in GitHub cannot store its state: {0}")]
    Storage(#[from] io::Error),
}

/// The state with its lock, its file and its surroundings.
pub(super) struct SharedState {
    state: Mutex<State>,
    changed: Notify,
    queued: broadcast::Sender<QueuedJobs>,
    calls: CallCounter,
    dir: Option<PathBuf>,
    address: SocketAddr,
    api_token: String,
    package: Package,
    clock: Clock,
}

impl SharedState {
    pub(super) fn open(
        dir: Option<PathBuf>,
        address: SocketAddr,
        package: Package,
        clock: Clock,
        behaviour: Behaviour,
    ) -> io::Result<Self> {
        let (mut state, mut api_token) = (State::default(), secret());
        if let Some(dir) = &dir {
            files::prepare(dir)?;
            api_token = files::token(dir, api_token)?;
            state = files::load(dir)?.unwrap_or_default();
            state.resume(clock());
            files::save_port(dir, address.port())?;
        }
        state.behave(behaviour);
        Ok(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            queued: broadcast::Sender::new(QUEUED_KEPT),
            calls: CallCounter::default(),
            dir,
            address,
            api_token,
            package,
            clock,
        })
    }

    pub(super) fn queued_jobs(&self) -> broadcast::Receiver<QueuedJobs> {
        self.queued.subscribe()
    }

    pub(super) fn calls(&self) -> &CallCounter {
        &self.calls
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn api_token(&self) -> &str {
        &self.api_token
    }

    pub(super) fn token_file(&self) -> Option<PathBuf> {
        self.dir.as_deref().map(files::token_path)
    }

    pub(super) fn package(&self) -> &Package {
        &self.package
    }

    /// Applies a change; when this returns `Ok` it is stored.
    pub(super) fn change<T>(
        &self,
        apply: impl FnOnce(&mut State, Timestamp) -> Result<T, Refusal>,
    ) -> Result<T, StandInFailure> {
        let mut state = self.lock();
        let before = state.revision;
        let outcome = apply(&mut state, (self.clock)());
        if state.revision != before {
            if let Some(dir) = &self.dir {
                files::save(dir, &state)?;
            }
            for queued in state.take_queued() {
                // Without a receiver it is lost.
                let _ = self.queued.send(queued);
            }
            self.changed.notify_waiters();
        }
        Ok(outcome?)
    }

    /// Reads the current state.
    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> Result<T, StandInFailure> {
        self.change(|state, now| {
            state.tick(now);
            Ok(look(state))
        })
    }

    /// Checks the state after each change until `look` finds something.
    pub(super) async fn wait_for<T>(
        &self,
        mut look: impl FnMut(&State) -> Option<T>,
    ) -> Result<T, StandInFailure> {
        loop {
            let changed = self.next_change();
            if let Some(seen) = self.read(&mut look)? {
                return Ok(seen);
            }
            changed.await;
        }
    }

    /// Completes after the next change, or a second. Changes count from this call on, not from the first poll.
    pub(super) fn next_change(&self) -> impl Future<Output = ()> + '_ {
        let notified = self.changed.notified();
        async move {
            // A second without a change is a reason to check, too.
            let _ = tokio::time::timeout(WAKE_AT_LEAST_EVERY, notified).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Generates an unguessable text.
pub(super) fn secret() -> String {
    rand::rng().sample_iter(Alphanumeric).take(SECRET_CHARS).map(char::from).collect()
}
