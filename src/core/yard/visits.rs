//! How many records does a decision look at? Counted where records are looked up and indexes are walked, in tests only.

#[cfg(not(test))]
pub(crate) const fn visited() {}

#[cfg(test)]
thread_local! {
    static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a visit of a record, or of its place in an index.
#[cfg(test)]
pub(crate) fn visited() {
    VISITS.with(|visits| visits.set(visits.get() + 1));
}

/// Returns the number of visits on this thread since the last call.
#[cfg(test)]
pub(crate) fn take() -> u64 {
    VISITS.with(|visits| visits.replace(0))
}
