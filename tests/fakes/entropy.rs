//! Chance that is the same on every run.

use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use super::script::locked;
use runyard_core::ports::Entropy;

/// Names and bytes drawn from a seed. Not for keys that guard anything.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    /// The source that this seed gives.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn hex(&self) -> String {
        format!("{:016x}", locked(&self.0).random::<u64>())
    }

    fn fill(&self, buffer: &mut [u8]) {
        locked(&self.0).fill_bytes(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_names_again_and_each_only_once() {
        let names = |seed| {
            let entropy = SeededEntropy::new(seed);
            (0..100).map(|_| entropy.hex()).collect::<Vec<_>>()
        };
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
        let mut distinct = names(7);
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 100);
    }
}
