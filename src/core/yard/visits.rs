//! How many records does a decision look at? Counted where records are looked up and indexes are walked, in tests only.

#[cfg(not(test))]
pub(crate) const fn visited() {}

#[cfg(test)]
thread_local! {
    static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A record, or its place in an index, is looked at.
#[cfg(test)]
pub(crate) fn visited() {
    VISITS.with(|visits| visits.set(visits.get() + 1));
}

/// How many were looked at on this thread since this was last asked.
#[cfg(test)]
pub(crate) fn take() -> u64 {
    VISITS.with(|visits| visits.replace(0))
}
