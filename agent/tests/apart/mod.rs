//! What the machines of tests have, beside what this one has.

use std::path::{Path, PathBuf};

/// The `/usr` and `/etc` of Debian's packages, as `tests/engines/setup machine` unpacks them; none where it did not.
#[expect(clippy::disallowed_methods, reason = "where the tests' tools are; the product never reads it")]
pub(crate) fn packages() -> Option<PathBuf> {
    let home = |name: &str, below: &str| std::env::var_os(name).map(|value| Path::new(&value).join(below));
    let tests = home("RUNYARD_TEST_HOME", "")
        .or_else(|| home("XDG_CACHE_HOME", "runyard-tests"))
        .or_else(|| home("HOME", ".cache/runyard-tests"))?;
    Some(tests.join("machine/root")).filter(|root| root.join("usr/sbin/nft").is_file())
}
