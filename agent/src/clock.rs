//! What time is it? The one place that asks: the wall clock for what people read, boot time for every deadline, and
//! the id of the boot that boot time belongs to.

use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use runyard::model::millis;
use runyard::ports::Clock;

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    fn now(&self) -> Timestamp {
        millis(Timestamp::now())
    }

    /// Time since the machine booted, suspension included: it never jumps, and it means the same to an agent that was
    /// started again.
    fn elapsed(&self) -> Duration {
        let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has a boot-time clock");
        Duration::from(boot)
    }
}

/// Names the running boot; boot times of another one mean nothing.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
