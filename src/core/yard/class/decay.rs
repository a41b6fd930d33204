//! Decays a sum by half each half-life, in integers only: the same result everywhere, never more than before.

use std::time::Duration;

/// The number of binary digits of a fraction of a half-life.
const STEPS: u32 = 32;

/// Returns the rest of a sum after a time.
pub(crate) fn decayed(sum: u64, time: Duration, half_life: Duration) -> u64 {
    let (time, half_life) = (time.as_millis(), half_life.as_millis().max(1));
    let whole = u32::try_from(time / half_life).unwrap_or(u32::MAX);
    let Some(halved) = sum.checked_shr(whole) else { return 0 };
    // The fraction of a half-life, in parts of 2^-32.
    let mut part = ((time % half_life) << STEPS) / half_life;
    let mut left = u128::from(halved) << 32;
    // 2^-1/2, 2^-1/4, 2^-1/8 …, each times 2^64.
    let mut factor = (1_u128 << 127).isqrt();
    for _ in 0..STEPS {
        part <<= 1;
        if part >> STEPS != 0 {
            part &= (1 << STEPS) - 1;
            left = multiplied(left, factor);
        }
        factor = (factor << 64).isqrt();
    }
    // Rounded, so that small sums that are written often do not vanish.
    u64::try_from((left + (1 << 31)) >> 32).unwrap_or(u64::MAX).min(halved)
}

/// Multiplies a number below 2^96 by a factor below 2^64 that stands for one below 1.
const fn multiplied(number: u128, factor: u128) -> u128 {
    let (high, low) = (number >> 32, number & 0xffff_ffff);
    ((high * (factor >> 1)) >> 31) + ((low * (factor >> 1)) >> 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn half_of_a_sum_is_left_after_each_half_life() {
        let day = 24 * HOUR;
        assert_eq!(decayed(1_000_000, Duration::ZERO, day), 1_000_000);
        assert_eq!(decayed(1_000_000, day, day), 500_000);
        assert_eq!(decayed(1_000_000, 3 * day, day), 125_000);
        assert_eq!(decayed(1_000_000, 12 * HOUR, day), 707_107);
        assert_eq!(decayed(1_000_000, 6 * HOUR, day), 840_896);
        assert_eq!(decayed(u64::MAX, 64 * day, day), 0);
        assert_eq!(decayed(u64::MAX, Duration::MAX, Duration::ZERO), 0);
    }

    #[test]
    fn many_short_steps_forget_as_much_as_a_long_one() {
        let (mut sum, minute) = (10_000_000_000_u64, Duration::from_secs(60));
        for _ in 0..24 * 60 {
            sum = decayed(sum, minute, 24 * HOUR);
        }
        assert!(sum.abs_diff(5_000_000_000) < 5_000, "{sum}");
    }

    #[test]
    fn a_sum_never_grows_and_a_longer_time_never_leaves_more() {
        for sum in [0, 1, 2, 1000, 1 << 40, u64::MAX] {
            let mut last = sum;
            for minutes in 0..300 {
                let left = decayed(sum, Duration::from_secs(60 * minutes), HOUR);
                assert!(left <= last, "{sum} after {minutes} minutes: {left}, {last}");
                last = left;
            }
        }
    }
}
