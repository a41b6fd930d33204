//! Assembles an agent: one reader of the instance record and three tasks that do not wait for each other, namely the
//! registration loop, the heartbeat and the guard. The first task that decides to end the machine ends it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::AgentKey;
use runyard_core::ports::{Clock, Entropy};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::records::Records;
use crate::registration::{Attention, RegistrationLoop, read_record};
use crate::reports::beat::{Heartbeat, Identity};
use crate::reports::logs::{LogKeeper, Ring};
use crate::shutdown::guard::{Guard, Lengths};
use crate::shutdown::power::Power;
use crate::step::orders::Sight;
use crate::step::{AgentStatus, Stored};
use crate::system::disk;
use crate::task::Executor;

/// The intervals and time limits of an agent.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Interval between two heartbeats.
    pub heartbeat: Duration,
    /// The same while the machine has been free for long.
    pub heartbeat_free: Duration,
    /// Interval between two reads of the instance record.
    pub poll: Duration,
    /// How long a runner that ended unrequested waits for its new credential before it is restarted with its old
    /// registration.
    pub reregister: Duration,
    /// The time limits of the guard.
    pub guard: Lengths,
}

/// The dependencies of an agent.
pub struct Parts {
    /// Its records.
    pub records: Arc<dyn Records>,
    /// Executes its tasks.
    pub executor: Arc<dyn Executor>,
    /// Its clocks.
    pub clock: Arc<dyn Clock>,
    /// Its randomness: for the key pair, and to spread machines over time.
    pub entropy: Arc<dyn Entropy>,
    /// Ends the machine.
    pub power: Arc<dyn Power>,
    /// The intervals and time limits.
    pub timing: Timing,
    /// The directory of its state, which outlives the process.
    pub state_dir: PathBuf,
    /// The id of the current boot.
    pub boot_id: String,
    /// The last log lines of this process.
    pub ring: Ring,
}

/// The end of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The agent was stopped; the machine continues to run.
    Stopped,
    /// The machine ends, for this reason.
    PoweredOff(&'static str),
}

/// Runs an agent until it or its machine ends. Heartbeat, logs and reader end only on request.
///
/// # Errors
/// Its state cannot be written.
pub async fn run(parts: Parts, stop: CancellationToken) -> io::Result<End> {
    let Parts { records, executor, clock, entropy, power, timing, state_dir, boot_id, ring } = parts;
    let key = key(&state_dir.join("key"), entropy.as_ref())?;
    let (seen_in, seen) = watch::channel(Sight::default());
    let (stored_in, stored) = watch::channel(Stored::default());
    let (status_in, status) = watch::channel(AgentStatus::default());
    let attention = Arc::new(Attention::default());
    let heartbeat = Heartbeat {
        records: records.clone(),
        clock: clock.clone(),
        entropy: entropy.clone(),
        every: timing.heartbeat,
        every_free: timing.heartbeat_free,
        attention: attention.clone(),
        identity: Identity { version: env!("CARGO_PKG_VERSION").to_owned(), public_key: key.public() },
        status,
        stored: stored_in,
    };
    let guard = Guard {
        records: records.clone(),
        clock: clock.clone(),
        lengths: timing.guard,
        boot_id,
        file: state_dir.join("threshold"),
        seen: seen.clone(),
    };
    let logs = LogKeeper {
        records: records.clone(),
        executor: executor.clone(),
        clock: clock.clone(),
        entropy: entropy.clone(),
        ring,
        file: state_dir.join("logs-written"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        late: timing.guard.created / 2,
        seen: seen.clone(),
        status: heartbeat.status.clone(),
    };
    let registration = RegistrationLoop {
        executor: executor.clone(),
        clock,
        entropy: entropy.clone(),
        key,
        file: state_dir.join("state"),
        reregister: timing.reregister,
        seen,
        stored,
        status: status_in,
        attention: attention.clone(),
    };
    let ended = tokio::select! {
        biased;
        ended = registration.run(stop.clone()) => ended?,
        ended = guard.run(stop.clone()) => ended,
        () = heartbeat.run(stop.clone()) => None,
        () = logs.run(stop.clone()) => None,
        () = read_record(records, timing.poll, entropy.as_ref(), seen_in, attention, stop.clone()) => None,
    };
    let Some(why) = ended else { return Ok(End::Stopped) };
    tracing::warn!(why, "this machine ends");
    executor.kill_everything().await;
    power.off(why).await;
    Ok(End::PoweredOff(why))
}

/// Returns the machine's key pair, which is created at its first boot.
fn key(path: &Path, entropy: &dyn Entropy) -> io::Result<AgentKey> {
    if let Some(kept) = disk::read(path)? {
        let bytes = <[u8; 32]>::try_from(kept).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: not 32 bytes", path.display()))
        })?;
        return Ok(AgentKey::from_bytes(bytes));
    }
    let mut bytes = [0; 32];
    entropy.fill(&mut bytes);
    let key = AgentKey::from_bytes(bytes);
    disk::replace(path, &key.to_bytes())?;
    Ok(key)
}

#[cfg(test)]
mod tests;
