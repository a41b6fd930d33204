//! The watchdog timer ends the machine when the agent is gone, hangs or was replaced. A systemd timer starts this short
//! program as root every minute on monotonic time (`runyard-fuse.timer`). The program reads the file in which the agent
//! keeps the deadline, needs nothing else, and powers the machine off when the deadline has passed. Without a file that
//! was written during this boot, the boot deadline counts.

use std::time::Duration;

use serde::Deserialize;

use crate::shutdown::guard::Lengths;

/// How much longer than the agent the watchdog timer waits, so that a healthy agent acts first.
pub const MARGIN: Duration = Duration::from_secs(60);

/// The decision of the watchdog timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The deadline has not passed; this much time is left.
    Wait(Duration),
    /// The deadline has passed: power off, with the reason.
    PowerOff(&'static str),
}

/// The part of the agent's file that the watchdog timer reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Deadline {
    boot_id: String,
    power_off_at_ms: u64,
}

/// Decides whether to power off. `file` is the content of the agent's threshold file, if it could be read; `boot_id`
/// names the running boot and `now` is the time since that boot, suspension included. The wall clock is not used.
#[must_use]
pub fn decide(file: Option<&[u8]>, boot_id: &str, now: Duration, lengths: Lengths) -> Verdict {
    let deadline = file
        .and_then(|content| serde_json::from_slice::<Deadline>(content).ok())
        .filter(|deadline| deadline.boot_id == boot_id);
    let (at, why) = match deadline {
        Some(deadline) => (
            Duration::from_millis(deadline.power_off_at_ms),
            "the agent's deadline has passed and it did not act",
        ),
        None => (
            lengths.created.saturating_add(lengths.grace),
            "no agent kept a deadline within the boot deadline",
        ),
    };
    let left = at.saturating_add(MARGIN).saturating_sub(now);
    if left.is_zero() { Verdict::PowerOff(why) } else { Verdict::Wait(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: Lengths = Lengths { created: Duration::from_secs(900), grace: Duration::from_secs(300) };

    fn judged(file: Option<&str>, seconds: u64) -> Verdict {
        decide(file.map(str::as_bytes), "boot", Duration::from_secs(seconds), LENGTHS)
    }

    fn kept(boot: &str, at: &str) -> String {
        format!(r#"{{"bootId":"{boot}","beganMs":1,"powerOffAtMs":{at}}}"#)
    }

    #[test]
    fn the_watchdog_timer_waits_a_minute_longer_than_the_agents_deadline() {
        let file = kept("boot", "5000000");
        assert_eq!(judged(Some(&file), 4000), Verdict::Wait(Duration::from_secs(1060)));
        assert_eq!(judged(Some(&file), 5059), Verdict::Wait(Duration::from_secs(1)));
        assert!(matches!(judged(Some(&file), 5060), Verdict::PowerOff(_)));
        assert!(matches!(judged(Some(&kept("boot", "0")), 60), Verdict::PowerOff(_)));
    }

    #[test]
    fn a_file_that_is_missing_garbled_or_of_another_boot_leaves_the_boot_deadline() {
        let files = [
            None,
            Some(String::new()),
            Some("garbage\u{0}".to_owned()),
            Some("{}".to_owned()),
            Some(kept("boot", "-1")),
            Some(kept("boot", "\"soon\"")),
            Some(kept("boot", "1e126")),
            Some(kept("other", "99999999999")),
        ];
        for file in files {
            let at = |seconds| judged(file.as_deref(), seconds);
            assert_eq!(at(1259), Verdict::Wait(Duration::from_secs(1)), "{file:?}");
            assert!(matches!(at(1260), Verdict::PowerOff(why) if why.contains("boot deadline")), "{file:?}");
        }
    }
}
