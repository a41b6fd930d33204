//! Handles a claim's runner that failed, or ended unrequested: it is tried again, or registered anew under the claim's
//! next name, because GitHub may hold the session of the dead one for minutes.

use std::time::Duration;

use runyard_core::model::TroubleKind;

use super::{ClaimStage, Mode, REFUSALS, Served};
use crate::system::backoff::after_failures;
use crate::task::{GithubFailure, RunnerEnd, Trouble};

/// How often a claim's runner is registered anew within [`WITHIN`].
const ANEW: usize = 3;
/// The period for [`ANEW`].
const WITHIN: Duration = Duration::from_secs(600);
/// How long a claim waits for a new credential if nothing else can help it. An operator that does not support such
/// requests never sends one.
const BOX: Duration = Duration::from_secs(60);

impl Served {
    /// Handles the failure of an operation that needs GitHub.
    pub(super) fn failed(&mut self, failure: GithubFailure, now: Duration, chance: f64) {
        let back = self.fallback();
        let (detail, last) = match failure {
            GithubFailure::Unreachable(words) => {
                self.trouble = Some(Trouble { kind: TroubleKind::Unreachable, words });
                return self.try_again(back, now, chance);
            }
            GithubFailure::Conflict(words) => {
                self.trouble = Some(Trouble { kind: TroubleKind::Conflict, words });
                return self.try_again(back, now, chance);
            }
            GithubFailure::Refused(detail) => (detail, false),
            GithubFailure::Deprecated(detail) => (detail, true),
        };
        self.refusals += 1;
        match (self.refusals < REFUSALS && !last, back) {
            (true, back) => self.try_again(back, now, chance),
            (false, ClaimStage::Stopped) => self.stage = ClaimStage::Unclean(detail),
            (false, _) => self.stage = ClaimStage::Refused(detail),
        }
    }

    /// Handles the unrequested end of its runner.
    pub(super) fn ended(&mut self, worked: bool, end: RunnerEnd, now: Duration, chance: f64) {
        if self.mode == Some(Mode::Job) && worked {
            self.listened = true;
            return self.used_up(None);
        }
        match end {
            RunnerEnd::Failed(failure @ GithubFailure::Deprecated(_)) => self.failed(failure, now, chance),
            RunnerEnd::Failed(failure) if !self.has_listened() => self.failed(failure, now, chance),
            // Its single registration is used up all the same.
            RunnerEnd::Failed(GithubFailure::Unreachable(why) | GithubFailure::Conflict(why))
                if self.mode == Some(Mode::Job) =>
            {
                self.lost(why, false, now, chance);
            }
            // A job may have replaced the runner in its directory by another one.
            RunnerEnd::Failed(failure @ GithubFailure::Unreachable(_)) => {
                self.failed(failure, now, chance);
                self.stage = ClaimStage::Renewing(None);
            }
            RunnerEnd::Failed(GithubFailure::Conflict(why) | GithubFailure::Refused(why))
            | RunnerEnd::Lost(why) => self.lost(why, false, now, chance),
            RunnerEnd::Forgotten(why) => self.lost(why, true, now, chance),
        }
    }

    fn has_listened(&self) -> bool {
        matches!(self.stage, ClaimStage::Listening(_))
    }

    /// Handles a runner with a registration that can no longer be used. `forgotten`: GitHub does not know it any more.
    fn lost(&mut self, why: String, forgotten: bool, now: Duration, chance: f64) {
        if forgotten {
            (self.registered, self.runner_id) = (false, None);
        }
        if self.run.is_empty() {
            // No claim waits for this runner: the operator creates another one while the machine is idle.
            self.stage = ClaimStage::Refused(why);
            return;
        }
        // This also removes the times of another boot.
        self.ends.retain(|at| now.checked_sub(*at).is_some_and(|age| age < WITHIN));
        // A restart with the former registration, while no credential arrived, does not count as another runner.
        if self.done != self.seq {
            self.ends.push(now);
        }
        if self.ends.len() > ANEW {
            let times = self.ends.len();
            self.stage = ClaimStage::Refused(format!("{why}; it ended {times} times within ten minutes"));
            return;
        }
        self.trouble = Some(Trouble { kind: TroubleKind::Ended, words: why });
        // There is no pause the first time, except if each credential is one more runner at GitHub.
        let job = self.mode == Some(Mode::Job);
        let pauses = self.ends.len().saturating_sub(usize::from(!job));
        if job || self.place.is_some() {
            self.registered = false;
        }
        let asked = self.done == self.seq;
        self.succeeded(ClaimStage::Renewing(None));
        self.anew = !asked;
        let pause = match (asked, u32::try_from(pauses)) {
            (true, _) => (!job).then_some(BOX),
            (false, Ok(pauses @ 1..)) => Some(after_failures(pauses, chance)),
            (false, Ok(0) | Err(_)) => None,
        };
        self.retry_at = pause.map(|pause| now.saturating_add(pause));
    }

    /// Returns whether it waits for a new credential, or is about to.
    pub(crate) fn asks_anew(&self) -> bool {
        self.anew || (self.trouble.is_some() && self.seq > 0 && self.done == self.seq)
    }

    /// Requests a new credential, once its pause is over. If none arrives within `reregister`, the former registration
    /// is tried again, if it can be used at all.
    pub(crate) fn ask_anew(&mut self, now: Duration, reregister: Duration) {
        if !self.anew || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        (self.anew, self.done) = (false, self.seq);
        let patience = if self.registered { reregister } else { BOX };
        self.retry_at = (self.mode != Some(Mode::Job)).then(|| now.saturating_add(patience));
    }

    /// Records that nothing of its last runner is left.
    pub(super) fn renewed(&mut self) {
        let retry_at = self.retry_at;
        if !self.registered {
            // If it was registered ahead, the place belonged to that registration.
            (self.place, self.lent) = (None, false);
        }
        let stage = if self.registered && self.mode != Some(Mode::Job) {
            ClaimStage::Configured
        } else {
            ClaimStage::Accepted
        };
        self.succeeded(stage);
        self.retry_at = retry_at;
    }
}
