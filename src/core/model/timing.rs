//! The deadlines and intervals of an operator, read once from `[timing]` of its configuration (contract, section 8) and
//! passed on unchanged: to the rules, to the loop and to the machines.

use std::time::Duration;

/// The keys of `[timing]`, each at least 100 ms; `config/default.toml` is their reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Deadline of `created`; also how long an agent waits for its record.
    pub created: Duration,
    /// Deadline of `claimed`.
    pub claimed: Duration,
    /// Deadline of a clean-up.
    pub cleanup: Duration,
    /// How long after the release for the maximum runtime the deadline is of a machine that still serves.
    pub end: Duration,
    /// How long past its deadline an agent waits before it ends its machine itself.
    pub grace: Duration,
    /// How often an agent writes a heartbeat.
    pub heartbeat: Duration,
    /// A heartbeat older than this is stale.
    pub stale: Duration,
    /// How often an agent reads its record.
    pub agent_poll: Duration,
    /// How often the whole table is read again.
    pub resync: Duration,
    /// Half the time for which the pool queue keeps the announcement of a machine ([`Timing::announced`]).
    pub reannounce: Duration,
    /// The term of the operators' lease.
    pub lease: Duration,
    /// How long a machine without a record, or a record without a machine, is too young to be judged.
    pub orphan: Duration,
    /// How long an image that a parameter names stays pinned before the parameter is resolved again.
    pub image: Duration,
}

/// [`Timing::announced`] with the defaults of `config/default.toml`.
pub const ANNOUNCED: Duration = Duration::from_secs(600);
/// How long after it became free a machine reads its record at each poll, and writes heartbeats as often as others.
pub const QUICK_WHILE_FREE: Duration = Duration::from_secs(600);
/// The shortest and the longest time for which SQS keeps a message.
const KEPT: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(14 * 24 * 3600)];

impl Timing {
    /// Returns how often the agent of a machine that has been free for long writes a heartbeat: so often that one in
    /// time is never late by half of [`stale`](Self::stale), and one that is lost is not silence.
    #[must_use]
    pub fn heartbeat_free(&self) -> Duration {
        (self.stale * 5 / 12).min(Self::rarely(self.heartbeat)).max(self.heartbeat)
    }

    /// Returns the same if an agent does not choose it by itself ([`Timing::rarely`]).
    #[must_use]
    pub fn unusual_heartbeat_free(&self) -> Option<Duration> {
        Some(self.heartbeat_free()).filter(|every| *every != Self::rarely(self.heartbeat))
    }

    /// Returns how often an agent that is told nothing else writes a heartbeat while its machine has been free for long.
    #[must_use]
    pub fn rarely(heartbeat: Duration) -> Duration {
        heartbeat * 5 / 2
    }

    /// Returns how long the pool queue keeps an announcement, and how long after one the next of the same machine
    /// comes: twice `reannounce` in whole seconds, within the bounds of SQS.
    #[must_use]
    pub fn announced(&self) -> Duration {
        Duration::from_secs(self.reannounce.saturating_mul(2).as_secs()).clamp(KEPT[0], KEPT[1])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::testing::a_minute_each;

    #[test]
    fn a_heartbeat_of_a_free_machine_is_never_taken_for_silence() {
        let secs = Duration::from_secs;
        for (heartbeat, stale, free) in
            [(10, 60, 25), (10, 300, 25), (10, 20, 10), (10, 24, 10), (10, 48, 20), (2, 60, 5)]
        {
            let timing =
                super::Timing { heartbeat: secs(heartbeat), stale: secs(stale), ..a_minute_each().timing };
            assert_eq!(timing.heartbeat_free(), secs(free), "{heartbeat} {stale}");
            // With the defaults machines need not be told.
            let usual = free * 2 == heartbeat * 5;
            assert_eq!(timing.unusual_heartbeat_free(), (!usual).then(|| secs(free)));
        }
    }
}
