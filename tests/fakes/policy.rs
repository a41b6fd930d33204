use std::time::Duration;

use runyard_core::decide::Policy;

/// Deadlines of a minute each, where a test does not care.
pub fn a_minute_each() -> Policy {
    let minute = Duration::from_secs(60);
    Policy {
        created: minute,
        claimed: minute,
        cleanup: minute,
        grace: minute,
        stale: minute,
        reannounce: minute,
        orphan: minute,
        requests_per_repository: 2000,
        github: false,
        inventory: false,
    }
}
