//! Watches for EC2's interruption notices. On a spot machine it polls every few seconds and writes a notice to the
//! agent record at once, without waiting for a heartbeat: a spot machine has two minutes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{AttributeValue, Interruption, InterruptionAction, Item};
use runyard_core::ports::Clock;
use tokio_util::sync::CancellationToken;

use crate::records::{Change, Records};
use crate::step::Stored;
use crate::system::metadata::Metadata;

/// The polling interval that EC2 recommends (EC2 user guide, "Spot Instance interruption notices").
pub const EVERY: Duration = Duration::from_secs(5);
/// Delay before a failed write is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The task that watches for notices.
pub struct NoticeWatcher {
    /// The source of the notices.
    pub metadata: Arc<Metadata>,
    /// The records to which notices are written.
    pub records: Arc<dyn Records>,
    /// The wall clock, for timestamps that people read.
    pub clock: Arc<dyn Clock>,
    /// The polling interval.
    pub every: Duration,
}

impl NoticeWatcher {
    /// Watches until it is stopped. A metadata service that does not respond is no notice.
    pub async fn run(self, stop: CancellationToken) {
        let watching = async {
            let mut said = None;
            loop {
                let wait = match self.metadata.notice().await {
                    Ok(Some(notice)) if is_news(said.as_ref(), &notice) => {
                        if self.say(&notice).await {
                            said = Some(notice);
                            self.every
                        } else {
                            AGAIN.min(self.every)
                        }
                    }
                    Ok(Some(_) | None) => self.every,
                    Err(error) => {
                        tracing::debug!(%error, "cannot read interruption notices");
                        self.every
                    }
                };
                tokio::time::sleep(wait).await;
            }
        };
        stop.run_until_cancelled(watching).await;
    }

    /// Writes a notice. Returns whether the record shows it now.
    async fn say(&self, notice: &Interruption) -> bool {
        match self.records.write(&change(notice, self.clock.now())).await {
            Ok(Stored::Known(_) | Stored::Unknown) => {
                tracing::warn!(action = %notice.action, at = %notice.at, "EC2 takes this machine back");
                true
            }
            // The record may not exist yet.
            Ok(Stored::Absent) => false,
            Err(error) => {
                tracing::warn!(%error, "cannot write the notice");
                false
            }
        }
    }
}

/// Returns whether a notice is new. A rebalance recommendation never replaces an announced end.
fn is_news(said: Option<&Interruption>, notice: &Interruption) -> bool {
    match (said.map(|said| said.action), notice.action) {
        (None, _) => true,
        (Some(InterruptionAction::Terminate | InterruptionAction::Stop), InterruptionAction::Rebalance) => {
            false
        }
        (
            Some(InterruptionAction::Terminate | InterruptionAction::Stop | InterruptionAction::Rebalance),
            InterruptionAction::Terminate | InterruptionAction::Stop | InterruptionAction::Rebalance,
        ) => said != Some(notice),
    }
}

fn change(notice: &Interruption, now: Timestamp) -> Change {
    let text = |value: String| AttributeValue::S(value);
    let fields = [
        ("action".to_owned(), text(notice.action.as_str().to_owned())),
        ("at".to_owned(), text(notice.at.to_string())),
    ];
    let set = Item::from([
        ("interruption".to_owned(), AttributeValue::M(fields.into_iter().collect())),
        ("updatedAt".to_owned(), text(now.to_string())),
    ]);
    Change { set, ..Change::default() }
}

#[cfg(test)]
mod tests;
