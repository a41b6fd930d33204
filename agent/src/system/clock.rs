//! The only place that reads clocks: the wall clock for timestamps that people read, boot time for every deadline, and
//! the id of the boot that boot time belongs to.

use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use rand::TryRngCore;
use rand::rngs::OsRng;
use runyard_core::model::millis;
use runyard_core::ports::{Clock, Entropy};

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    fn now(&self) -> Timestamp {
        millis(Timestamp::now())
    }

    /// Returns the time since the machine booted, suspension included: it never jumps, and it has the same meaning for
    /// a restarted agent.
    fn elapsed(&self) -> Duration {
        let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has a boot-time clock");
        Duration::from(boot)
    }
}

/// The machine's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn hex(&self) -> String {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        format!("{:016x}", u64::from_le_bytes(bytes))
    }

    fn fill(&self, buffer: &mut [u8]) {
        // Without randomness no key is safe: it is better to have no agent than one with credentials that others can
        // open.
        OsRng.try_fill_bytes(buffer).expect("the operating system gives random bytes");
    }
}

/// Returns the id of the current boot; boot times of another one are meaningless.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
