//! The heartbeat. Each beat is one write to the agent record: the heartbeat itself and every field that the record does
//! not show yet. A new signal does not wait for the next beat; it causes one.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{
    AheadReport, AttributeValue, ClaimProof, Item, JobReport, RetireReport, RunnerTrouble, kept_attribute,
};
use runyard_core::ports::{Clock, Entropy};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::records::{Change, Records};
use crate::registration::Attention;
use crate::step::{AgentStatus, Stored};
use crate::system::backoff::{Backoff, chance};
use crate::task::Trouble;

/// The first wait after a write that failed.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// How much earlier a heartbeat may be, as a part of the interval, so that machines that started together do not send
/// heartbeats together.
const JITTER: f64 = 0.1;

/// The constant part of the record.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The agent's version.
    pub version: String,
    /// Its public key.
    pub public_key: String,
}

/// The heartbeat task.
pub struct Heartbeat {
    /// The records.
    pub records: Arc<dyn Records>,
    /// The wall clock, for timestamps that people read.
    pub clock: Arc<dyn Clock>,
    /// The randomness that spreads the heartbeats of machines that started together.
    pub entropy: Arc<dyn Entropy>,
    /// The interval.
    pub every: Duration,
    /// The interval while the machine has been free for long.
    pub every_free: Duration,
    /// Knows whether it has.
    pub attention: Arc<Attention>,
    /// The agent's version and key.
    pub identity: Identity,
    /// The state that the record should have.
    pub status: watch::Receiver<AgentStatus>,
    /// The state of the record.
    pub stored: watch::Sender<Stored>,
}

impl Heartbeat {
    /// Sends heartbeats until it is stopped.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut backoff = Backoff::drawn(FIRST_WAIT.min(self.every), self.every, self.entropy.as_ref());
        if stop.run_until_cancelled(self.read_own(&mut backoff)).await.is_none() {
            return;
        }
        loop {
            let wait = self.beat(&mut backoff).await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(wait) => {}
                changed = self.status.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
        }
    }

    /// Reads the record before the first write: a restarted agent must know its last signal.
    async fn read_own(&mut self, backoff: &mut Backoff) {
        loop {
            match self.records.own().await {
                Ok(stored) => {
                    self.stored.send_replace(stored);
                    return backoff.reset();
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the agent record");
                    tokio::time::sleep(backoff.wait()).await;
                }
            }
        }
    }

    /// Writes once and returns the wait until the next write.
    async fn beat(&mut self, backoff: &mut Backoff) -> Duration {
        let change = {
            let (status, stored) = (self.status.borrow_and_update(), self.stored.borrow());
            change(&self.identity, &status, &stored, self.clock.now())
        };
        match self.records.write(&change).await {
            Ok(stored) => {
                if matches!(
                    (&stored, &*self.stored.borrow()),
                    (Stored::Absent, Stored::Known(_) | Stored::Unknown)
                ) {
                    tracing::warn!("there is no agent record; continuing by the last instance record");
                }
                self.stored.send_replace(stored);
                backoff.reset();
                let every = if self.attention.is_long_free() { self.every_free } else { self.every };
                every.mul_f64(1.0 - JITTER * chance(self.entropy.as_ref()))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot write the agent record");
                backoff.wait().min(self.every)
            }
        }
    }
}

/// Changes a report to the present one, if the record shows another one.
fn show<T: PartialEq>(
    change: &mut Change,
    name: &str,
    shown: Option<&T>,
    now: Option<&T>,
    attribute: fn(&T) -> AttributeValue,
) {
    match now {
        _ if shown == now => {}
        Some(report) => drop(change.set.insert(name.to_owned(), attribute(report))),
        None => drop(change.remove.insert(name.to_owned())),
    }
}

/// Changes the obstacle that keeps the runner from listening, if the record shows another one. Its time is that of the
/// first report of an obstacle.
fn show_trouble(
    change: &mut Change,
    shown: Option<&RunnerTrouble>,
    trouble: Option<&Trouble>,
    now: Timestamp,
) {
    let name = || "runnerTrouble".to_owned();
    let Some(Trouble { kind, words }) = trouble else {
        change.remove.extend(shown.map(|_| name()));
        return;
    };
    let (since, words) = (shown.map_or(now, |shown| shown.since), short(words));
    let told = RunnerTrouble { since, kind: *kind, words };
    if shown != Some(&told) {
        change.set.insert(name(), told.attribute());
    }
}

/// Returns as many whole characters of the text as fit.
fn short(words: &str) -> String {
    words[..words.floor_char_boundary(RunnerTrouble::WORDS)].to_owned()
}

/// Returns a change with every field that the record does not show yet, and the heartbeat.
fn change(identity: &Identity, status: &AgentStatus, stored: &Stored, now: Timestamp) -> Change {
    let shown = stored.agent();
    let at = AttributeValue::S(now.to_string());
    let mut change = Change {
        set: Item::from([("heartbeatAt".to_owned(), at.clone()), ("updatedAt".to_owned(), at.clone())]),
        ..Change::default()
    };
    let mut set = |name: &str, value: &str, shown: Option<&str>| {
        if shown != Some(value) {
            change.set.insert(name.to_owned(), AttributeValue::S(value.to_owned()));
        }
    };
    set("agentVersion", &identity.version, shown.and_then(|a| a.agent_version.as_deref()));
    set("publicKey", &identity.public_key, shown.and_then(|a| a.public_key.as_deref()));
    if let Some(name) = &status.runner_name {
        set("runnerName", name, shown.and_then(|a| a.runner_name.as_deref()));
    }
    if let Some(done) = status.registration_done
        && shown.and_then(|a| a.registration_done) != Some(done)
    {
        change.set.insert("registrationDone".to_owned(), AttributeValue::N(done.to_string()));
    }
    if let Some(id) = status.runner_id
        && shown.and_then(|a| a.runner_id) != Some(id)
    {
        change.set.insert("runnerId".to_owned(), AttributeValue::N(id.to_string()));
    }
    if shown.is_none_or(|a| a.kept != status.kept) {
        if status.kept.is_empty() {
            change.remove.extend(shown.is_some().then(|| "kept".to_owned()));
        } else {
            change.set.insert("kept".to_owned(), kept_attribute(&status.kept));
        }
    }
    let ahead = shown.and_then(|a| a.ahead.as_ref());
    show(&mut change, "ahead", ahead, status.ahead.as_ref(), AheadReport::attribute);
    let retire = shown.and_then(|a| a.retire.as_ref());
    show(&mut change, "retire", retire, status.retire.as_ref(), RetireReport::attribute);
    let job = shown.and_then(|a| a.job.as_ref());
    show(&mut change, "job", job, status.job.as_ref(), JobReport::attribute);
    let proof = shown.and_then(|a| a.proof.as_ref());
    show(&mut change, "proof", proof, status.proof.as_ref(), ClaimProof::attribute);
    let trouble = shown.and_then(|a| a.runner_trouble.as_ref());
    show_trouble(&mut change, trouble, status.trouble.as_ref(), now);
    if status.runner_id.is_none() && shown.is_some_and(|a| a.runner_id.is_some()) {
        // The id is that of an earlier runner: as long as the record contains it, the operator removes that runner, and
        // sends no credential with which this machine could remove its own.
        change.remove.insert("runnerId".to_owned());
    }
    let Some(say) = &status.say else { return change };
    let claim = say.claim.as_ref().map_or("", |claim| claim.as_str());
    if shown.and_then(|a| a.says(claim)) == Some(say.signal) {
        return change;
    }
    for (name, value) in
        [("signal", say.signal.as_str()), ("signalClaimId", claim), ("signalRunId", &say.run)]
    {
        change.set.insert(name.to_owned(), AttributeValue::S(value.to_owned()));
    }
    change.set.insert("signalAt".to_owned(), at);
    match &say.detail {
        Some(detail) => drop(change.set.insert("signalDetail".to_owned(), AttributeValue::S(detail.clone()))),
        None => drop(change.remove.insert("signalDetail".to_owned())),
    }
    tracing::info!(signal = %say.signal, claim, detail = say.detail.as_deref(), "saying");
    change
}

#[cfg(test)]
mod tests;
