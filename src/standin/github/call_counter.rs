//! Counts the calls of the stand-in by method, path and status, so that a test can count those that GitHub would count
//! against an hourly limit.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// One kind of call. A status of 304 is the response to a condition that held: such a call does not count against
/// GitHub's hourly limit (docs.github.com, "Best practices for using the REST API").
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The method in upper case, such as `GET`.
    pub method: String,
    /// The path with names in braces, without its query, such as `/repos/{owner}/{repo}/actions/runs`.
    pub path: String,
    /// The status of the response.
    pub status: u16,
}

/// The calls that were answered, by kind.
#[derive(Default)]
pub(super) struct CallCounter(Mutex<BTreeMap<Call, u64>>);

impl CallCounter {
    pub(super) fn count(&self, call: Call) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(call).or_default() += 1;
    }

    pub(super) fn counted(&self) -> BTreeMap<Call, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
