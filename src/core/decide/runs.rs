//! Judges what GitHub says about workflow runs: whether an attempt is over, which machines a re-run needs, which
//! requests its queued jobs make by their labels, and how many slots a runner scale set needs.

pub(super) mod queued;
pub(super) mod rerun;
pub(super) mod sets;

use crate::ports::github::RunState;

/// Returns whether that attempt of a run is over: it or a later one is completed, or a later one runs.
#[must_use]
pub const fn is_over(state: RunState, attempt: u32) -> bool {
    match state {
        RunState::Completed { attempt: ended } => attempt <= ended,
        RunState::Active { attempt: current } => attempt < current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_over_when_it_or_a_later_one_is_completed_or_a_later_one_runs() {
        let completed = |attempt| RunState::Completed { attempt };
        let active = |attempt| RunState::Active { attempt };
        assert!(is_over(completed(2), 2) && is_over(completed(2), 1));
        assert!(!is_over(completed(1), 2), "the list lags behind a re-run");
        assert!(is_over(active(3), 2));
        assert!(!is_over(active(2), 2) && !is_over(active(1), 2));
    }
}
