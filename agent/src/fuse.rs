//! Who ends the machine when the agent is gone, hangs, or was replaced? The fuse: a short program of root's that a timer
//! starts every minute on monotonic time. It reads the file in which the agent keeps the deadline, needs nothing else,
//! and powers off when the deadline is over. Without a file that holds for this boot, the boot deadline counts.

use std::time::Duration;

use serde::Deserialize;

use crate::guard::Lengths;

/// How much longer than the agent the fuse waits: it is not to win a race against an agent that is well.
pub const MARGIN: Duration = Duration::from_secs(60);

/// What the fuse decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is this much time left.
    Wait(Duration),
    /// It is over, and why.
    PowerOff(&'static str),
}

/// All that the fuse reads of the agent's file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Deadline {
    boot_id: String,
    power_off_at_ms: u64,
}

/// Decides. `file` is the agent's threshold file, if it could be read; `boot_id` and `now` (since boot, suspension
/// included) are the running boot's. No wall clock has a say.
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
    fn the_agents_deadline_decides_and_the_fuse_lets_it_go_first() {
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
