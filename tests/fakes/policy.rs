use std::time::Duration;

use runyard_core::decide::Policy;
use runyard_core::model::Timing;

/// Deadlines of a minute each, where a test does not care.
pub fn a_minute_each() -> Policy {
    let minute = Duration::from_secs(60);
    Policy {
        timing: Timing {
            created: minute,
            claimed: minute,
            cleanup: minute,
            end: minute,
            grace: minute,
            heartbeat: minute,
            stale: minute,
            agent_poll: minute,
            resync: minute,
            reannounce: minute,
            lease: minute,
            orphan: minute,
            image: Duration::from_secs(3600),
        },
        requests_per_repository: 2000,
        prices: Default::default(),
        sharing: Default::default(),
        following: Default::default(),
        github: false,
        organization: false,
        watches_runs: false,
        inventory: false,
        rebalance: runyard_core::model::Rebalance::Last,
        statements: false,
        ended_stays: Policy::ENDED_STAYS,
    }
}

/// The deadlines and intervals of `config/default.toml`.
pub fn as_shipped() -> Timing {
    let seconds = Duration::from_secs;
    Timing {
        created: seconds(900),
        claimed: seconds(300),
        cleanup: seconds(300),
        end: seconds(180),
        grace: seconds(300),
        heartbeat: seconds(10),
        stale: seconds(60),
        agent_poll: seconds(1),
        resync: seconds(300),
        reannounce: seconds(300),
        lease: seconds(15),
        orphan: seconds(600),
        image: Duration::from_secs(3600),
    }
}
