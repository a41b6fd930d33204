//! Seeded random numbers. The number for one subject does not depend on the numbers for others, so that two scenarios
//! with one seed differ by the change and not by luck.

/// A source of random numbers that are the same every time.
#[derive(Clone, Copy, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Creates a source with a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the number for a subject: its kind, and two numbers that distinguish it from others.
    pub const fn of(self, kind: u64, one: u64, two: u64) -> u64 {
        let all = mix(self.0 ^ mix(kind.wrapping_add(0x51)));
        mix(mix(all ^ one) ^ two.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns a number between 0 and 1, never 0.
    pub const fn share(self, kind: u64, one: u64, two: u64) -> f64 {
        ((self.of(kind, one, two) >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }
}

const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
