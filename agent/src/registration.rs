//! The registration loop. It calls the pure step, writes the resulting state to disk, and starts or abandons tasks
//! accordingly. After every event it evaluates the step again.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use runyard_core::model::AgentKey;
use runyard_core::ports::{Clock, Entropy};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pace::Pace;
use crate::records::Records;
use crate::step::local::Local;
use crate::step::orders::Sight;
use crate::step::{AgentStatus, Effects, Stored, View, package, step};
use crate::system::backoff::{Backoff, chance};
use crate::system::disk;
use crate::task::{Executor, Task, TaskOutcome};

/// Longest wait between two reads while the table does not respond.
const LONGEST: Duration = Duration::from_secs(10);
/// Longest wait for the record after GitHub forgot a runner; without the table the machine continues by itself.
const LOOK: Duration = Duration::from_secs(5);

/// What the registration loop, the reader of the record and the heartbeat let each other know.
#[derive(Debug, Default)]
pub struct Attention {
    /// Whether the agent waits for nothing but its next claim or the end of this one.
    at_rest: AtomicBool,
    /// Whether the machine has been free for so long that its heartbeats may be rare.
    long_free: AtomicBool,
    /// The record is to be read at once, strongly.
    wanted: Notify,
}

impl Attention {
    /// Returns whether the machine has been free for so long that its heartbeats may be rare.
    pub fn is_long_free(&self) -> bool {
        self.long_free.load(Ordering::Relaxed)
    }
}

/// Reads the instance record at every poll, sooner while a change is expected, and publishes it.
///
/// # Guarantees
/// - Only strongly consistent reads are published, in their order, so that the record never goes back in time.
/// - While nothing is awaited it only glances at the record. A glance that shows anything else than what was published
///   last, older or newer, leads to a strong read at once, and to nothing else.
/// - A failed read changes nothing.
pub async fn read_record(
    records: Arc<dyn Records>,
    poll: Duration,
    entropy: &dyn Entropy,
    seen: watch::Sender<Sight>,
    attention: Arc<Attention>,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::drawn(poll, LONGEST, entropy);
    let mut pace = Pace::new(poll);
    // Strong reads that come whatever is awaited.
    let mut wanted = 0_u32;
    let reading = async {
        loop {
            let settled = attention.at_rest.load(Ordering::Relaxed) && pace.is_settled(Instant::now());
            let glances = settled && wanted == 0;
            let read = if glances { records.glance().await } else { records.instance().await };
            let wait = match read {
                Ok(sight) if glances && sight != *seen.borrow() => {
                    wanted = 1;
                    continue;
                }
                Ok(sight) => {
                    backoff.reset();
                    let wait = pace.after(&sight, Instant::now());
                    attention.long_free.store(pace.is_long_free(Instant::now()), Ordering::Relaxed);
                    if !glances {
                        note(&seen.borrow(), &sight);
                        seen.send_replace(sight);
                        wanted = wanted.saturating_sub(1);
                    }
                    if wanted > 0 { Duration::ZERO } else { wait }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the instance record");
                    backoff.wait()
                }
            };
            tokio::select! {
                biased;
                // The first may be taken for one that began before.
                () = attention.wanted.notified() => wanted = 2,
                () = tokio::time::sleep(wait) => {}
            }
        }
    };
    stop.run_until_cancelled(reading).await;
}

/// Logs the changes of the record.
fn note(before: &Sight, now: &Sight) {
    match now {
        Sight::Orders(orders) => {
            let known = before.orders();
            if known.map(|o| (o.state, &o.claim, &o.run)) != Some((orders.state, &orders.claim, &orders.run))
            {
                let claim = orders.claim.as_ref().map_or("", |claim| claim.as_str());
                tracing::info!(state = %orders.state, claim, run = orders.run, "the record changed");
            }
        }
        Sight::Absent if before != now => tracing::warn!("there is no instance record"),
        Sight::Unreadable(problem) if before != now => {
            tracing::warn!(problem, "the instance record is left alone")
        }
        Sight::Absent | Sight::Unreadable(_) | Sight::Unseen => {}
    }
}

/// The registration loop.
pub struct RegistrationLoop {
    /// Executes tasks on the machine.
    pub executor: Arc<dyn Executor>,
    /// Monotonic time.
    pub clock: Arc<dyn Clock>,
    /// The randomness of retries.
    pub entropy: Arc<dyn Entropy>,
    /// The key that opens credentials.
    pub key: AgentKey,
    /// The file of the local state.
    pub file: PathBuf,
    /// How long a runner that ended unrequested waits for its new credential.
    pub reregister: Duration,
    /// The instance record.
    pub seen: watch::Receiver<Sight>,
    /// The state of the agent's own record.
    pub stored: watch::Receiver<Stored>,
    /// The state that the agent's own record should have.
    pub status: watch::Sender<AgentStatus>,
    /// How closely the record must be watched.
    pub attention: Arc<Attention>,
}

struct Doing {
    task: Task,
    outcome: BoxFuture<'static, TaskOutcome>,
}

impl RegistrationLoop {
    /// Runs until the machine has to end and returns the reason; `None` if it is stopped. In this case it does not
    /// touch a running runner: the next agent finds it.
    ///
    /// # Errors
    /// The local state cannot be read or written: without it no signal would be reliable.
    pub async fn run(mut self, stop: CancellationToken) -> io::Result<Option<&'static str>> {
        let mut local: Local = disk::load(&self.file)?.unwrap_or_default();
        let mut doing: Option<Doing> = None;
        let mut in_use = None;
        loop {
            let effects = self.judge(&local);
            if effects.local != local {
                disk::save(&self.file, &effects.local)?;
                local = effects.local;
            }
            self.status.send_if_modified(|status| {
                // The obstacle that keeps a runner from listening can wait for the next heartbeat: it may be over by
                // then.
                let trouble = status.trouble.clone();
                // So can the removal of a report that the operator has.
                let proof = effects.status.proof.clone().or_else(|| status.proof.clone());
                let changed = *status != AgentStatus { trouble, proof, ..effects.status.clone() };
                *status = effects.status.clone();
                changed
            });
            self.attention.at_rest.store(local.is_at_rest(), Ordering::Relaxed);
            if let Some(why) = effects.power_off {
                return Ok(Some(why));
            }
            let named = package(&self.seen.borrow(), &local);
            // Preparations with another package cannot be used.
            let prepared_anew = named != in_use && matches!(effects.task, Task::Idle);
            if named != in_use {
                self.executor.use_package(named.as_ref());
                in_use = named;
            }
            if prepared_anew || !doing.as_ref().is_some_and(|doing| doing.task.is(&effects.task)) {
                doing = self.begin(effects.task, local.is_clean());
            }
            let retry = local.retry_at();
            let retry =
                retry.map(|at| at.saturating_sub(self.clock.elapsed())).filter(|left| !left.is_zero());
            tokio::select! {
                biased;
                outcome = async { (&mut doing.as_mut().expect("guarded").outcome).await }, if doing.is_some() => {
                    // Not inside the log statement, which may be disabled: a completed future must not be polled again.
                    let task = doing.take().map(|doing| doing.task);
                    tracing::info!(?task, ?outcome, "done");
                    if outcome.is_forgotten() {
                        self.look_again(&stop).await;
                    }
                    let learns = outcome.tells_of_a_registration();
                    let keeps = outcome.changes_what_is_kept();
                    let cleaned = outcome.is_of_a_clean_up();
                    let (now, chance) = (self.clock.elapsed(), chance(self.entropy.as_ref()));
                    let number = learns.then(|| self.executor.runner_id());
                    local = local.after_task(task.as_ref(), outcome, now, chance, number);
                    if cleaned && let Some(claim) = local.claim_of(task.as_ref()) {
                        local.prove(self.executor.proof(&claim));
                    }
                    if keeps {
                        local.kept = self.executor.kept();
                    }
                    disk::save(&self.file, &local)?;
                }
                changed = self.seen.changed() => changed.map_err(io::Error::other)?,
                changed = self.stored.changed() => changed.map_err(io::Error::other)?,
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {}
                () = stop.cancelled() => return Ok(None),
            }
        }
    }

    /// Waits for a read of the record that began after this call. The party that removed the runner at GitHub has first
    /// written the future of the machine to the record: a claim that a person wants to inspect must not be cleaned for
    /// another runner.
    async fn look_again(&mut self, stop: &CancellationToken) {
        self.seen.borrow_and_update();
        self.attention.wanted.notify_one();
        let reads = async {
            // The first read may have begun before.
            for _ in 0..2 {
                self.seen.changed().await.ok();
            }
        };
        stop.run_until_cancelled(tokio::time::timeout(LOOK, reads)).await;
    }

    fn judge(&mut self, local: &Local) -> Effects {
        let (sight, stored) = (self.seen.borrow_and_update(), self.stored.borrow_and_update());
        let (key, now, reregister) = (&self.key, self.clock.elapsed(), self.reregister);
        step(&View { sight: &sight, stored: &stored, local, key, now, reregister })
    }

    fn begin(&self, task: Task, clean: bool) -> Option<Doing> {
        let (executor, order) = (self.executor.clone(), task.clone());
        if matches!(task, Task::Idle) {
            // It runs until there is another task.
            let outcome = async move {
                executor.prepare().await;
                std::future::pending().await
            };
            return clean.then(|| Doing { task, outcome: Box::pin(outcome) });
        }
        tracing::info!(?task, "begins");
        Some(Doing { task, outcome: Box::pin(async move { executor.execute(order).await }) })
    }
}

#[cfg(test)]
mod tests;
