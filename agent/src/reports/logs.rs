//! A machine's logs: the last lines that the agent, the first boot, the runner and the post-run script wrote, without
//! credentials. They are written to the `log` record of the machine when a person requests them, which the agent sees
//! in the instance record that it reads anyway, when a signal reports a failure, and when a first boot takes long.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{AttributeValue, Item, Signal};
use runyard_core::ports::{Clock, Entropy};
use runyard_core::redact::redact;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::records::Records;
use crate::step::orders::Sight;
use crate::step::{AgentStatus, Say};
use crate::system::backoff::{after_failures, chance};
use crate::system::disk;
use crate::task::Executor;

/// The maximum number of lines of a part.
const LINES: usize = 60;
/// The maximum number of bytes of a part.
const BYTES: usize = 4096;
/// Longest line that the ring keeps, in bytes.
const LINE: usize = 512;
/// How long the record is stored, in seconds.
const KEPT: i64 = 24 * 3600;

/// The last lines that this process logged.
#[derive(Clone, Debug, Default)]
pub struct Ring(Arc<Mutex<VecDeque<String>>>);

impl Ring {
    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Each write is one line of the log.
impl io::Write for Ring {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(&written[..written.len().min(LINE)]).trim_end().to_owned();
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line);
        while lines.len() > LINES {
            lines.pop_front();
        }
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the end of a text, in a form that is fit for the record.
fn tail(text: &str, secrets: &[&str]) -> String {
    let shown = redact(text.trim_end(), secrets);
    let lines: Vec<&str> = shown.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    let mut from = last.len().saturating_sub(BYTES);
    while !last.is_char_boundary(from) {
        from += 1;
    }
    last[from..].to_owned()
}

/// The reasons for which the record was already written, so that a restarted agent does not write it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    requested_at: Option<Timestamp>,
    failure: Option<(String, String)>,
    #[serde(default)]
    late: bool,
}

/// The reason to write the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Because {
    Asked(Timestamp),
    Failed(Signal, String),
    Late,
}

/// The task that writes the logs.
pub struct LogKeeper {
    /// The records.
    pub records: Arc<dyn Records>,
    /// The source of the machine's output.
    pub executor: Arc<dyn Executor>,
    /// The wall clock, for timestamps that people read.
    pub clock: Arc<dyn Clock>,
    /// The randomness of retries.
    pub entropy: Arc<dyn Entropy>,
    /// The last log lines of this process.
    pub ring: Ring,
    /// The file of the reasons that were already handled.
    pub file: PathBuf,
    /// The agent's version.
    pub version: String,
    /// The time without any signal after which the logs are written, to show the progress of the first boot.
    pub late: Duration,
    /// The instance record.
    pub seen: watch::Receiver<Sight>,
    /// The state that the agent's record should have.
    pub status: watch::Receiver<AgentStatus>,
}

impl LogKeeper {
    /// Writes the logs whenever there is a reason, until it is stopped. A failed write is tried again, and stops
    /// nothing else.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut answered: Answered = disk::load(&self.file).ok().flatten().unwrap_or_default();
        let mut failures = 0_u32;
        let late = Instant::now() + self.late;
        loop {
            let silent = !answered.late && self.status.borrow().say.is_none();
            let due = self.due(&answered).or((silent && Instant::now() >= late).then_some(Because::Late));
            let mut wait: Option<Duration> = None;
            if let Some(because) = due {
                match self.records.log(&self.record(&because)).await {
                    Ok(()) => {
                        answered = answered.with(because);
                        if let Err(error) = disk::save(&self.file, &answered) {
                            tracing::warn!(%error, "cannot note which logs were written");
                        }
                        failures = 0;
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot write the logs");
                        failures = failures.saturating_add(1);
                        wait = Some(after_failures(failures, chance(self.entropy.as_ref())));
                    }
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.seen.changed() => if changed.is_err() { return },
                changed = self.status.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                () = tokio::time::sleep_until(late), if silent && wait.is_none() => {}
            }
        }
    }

    /// Returns the reason that was not handled yet; a failure first, because the machine may end.
    fn due(&mut self, answered: &Answered) -> Option<Because> {
        let failed = failure(self.status.borrow_and_update().say.as_ref());
        let asked = self.seen.borrow_and_update().orders().and_then(|orders| orders.logs_requested);
        let failed = failed.filter(|(signal, claim)| {
            answered.failure.as_ref() != Some(&(signal.to_string(), claim.clone()))
        });
        let asked = asked.filter(|at| answered.requested_at != Some(*at));
        failed.map(|(signal, claim)| Because::Failed(signal, claim)).or(asked.map(Because::Asked))
    }

    /// Returns the record's attributes.
    fn record(&self, because: &Because) -> Item {
        let text = |value: &str| AttributeValue::S(value.to_owned());
        let now = self.clock.now();
        let written = self.executor.logs();
        let secrets: Vec<&str> = written.secrets.iter().map(String::as_str).collect();
        let agent = ("agent", self.ring.text());
        let parts = std::iter::once(agent).chain(written.parts).filter(|(_, said)| !said.trim().is_empty());
        let part = |(name, said): (&str, String)| {
            let said = tail(&said, &secrets);
            AttributeValue::M([("name".to_owned(), text(name)), ("text".to_owned(), text(&said))].into())
        };
        let mut item = Item::from([
            ("kind".to_owned(), text("log")),
            ("at".to_owned(), text(&now.to_string())),
            ("updatedAt".to_owned(), text(&now.to_string())),
            ("agentVersion".to_owned(), text(&self.version)),
            ("parts".to_owned(), AttributeValue::L(parts.map(part).collect())),
            ("expiresAt".to_owned(), AttributeValue::N((now.as_second() + KEPT).to_string())),
        ]);
        match because {
            Because::Asked(at) => {
                item.insert("because".to_owned(), text("asked"));
                item.insert("requestedAt".to_owned(), text(&at.to_string()));
            }
            Because::Failed(signal, _) => {
                item.insert("because".to_owned(), text(signal.as_str()));
            }
            Because::Late => {
                item.insert("because".to_owned(), text("late"));
            }
        }
        item
    }
}

impl Answered {
    fn with(self, because: Because) -> Self {
        match because {
            Because::Asked(at) => Self { requested_at: Some(at), ..self },
            Because::Failed(signal, claim) => Self { failure: Some((signal.to_string(), claim)), ..self },
            Because::Late => Self { late: true, ..self },
        }
    }
}

/// Returns the signal that reports a failure, and its claim.
fn failure(say: Option<&Say>) -> Option<(Signal, String)> {
    let say = say?;
    let claim = say.claim.as_ref().map(ToString::to_string).unwrap_or_default();
    match say.signal {
        Signal::Failed | Signal::RegFailed | Signal::RemoveRegFailed => Some((say.signal, claim)),
        Signal::Ok | Signal::RegOk | Signal::RemoveRegOk => None,
    }
}

#[cfg(test)]
mod tests;
