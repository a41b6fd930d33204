//! Computes the pause before the agent reads its record again, and whether a glance is enough for that read. While it
//! waits for a change of the record (a claim, a credential), the pause is shorter the less time has passed since the
//! record last changed: in a busy yard the next claim comes soon. Slightly longer pauses afterwards compensate for the
//! additional reads, so that an hour without a change costs no read more than the poll interval implies. A machine that
//! stays free for long reads ever more rarely: the next claim comes late, and takes those that were free last.

use std::time::Duration;

use runyard_core::model::{ClaimId, QUICK_WHILE_FREE, State};
use tokio::time::Instant;

use crate::step::orders::{Orders, Sight};

/// Shortest pause between two reads.
const SHORTEST: Duration = Duration::from_millis(50);
/// A pause is at most the time since the record last changed, divided by this.
const PART: u32 = 50;
/// The poll interval, divided by this, is added to a pause until the early reads are compensated.
const MADE_UP: u32 = 20;

/// The pause of a machine that stays free is the time since the record last changed, divided by this, once that is
/// longer than the poll interval.
const RARELY: u32 = 600;
/// A pause is at most so many poll intervals.
const MOST: u32 = 5;

/// How long an idle machine's record is unchanged before glances at it are enough.
const SETTLED: Duration = Duration::from_secs(60);

/// The part of the record that shows an agent's work; a later deadline is not a change of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    state: State,
    claim: Option<ClaimId>,
    run: String,
    pooled: bool,
    registration: bool,
    removal: bool,
    held: bool,
    asked_to_retire: bool,
}

impl Standing {
    fn of(orders: &Orders) -> Self {
        Self {
            state: orders.state,
            claim: orders.claim.clone(),
            run: orders.run.clone(),
            pooled: orders.pooled,
            registration: orders.registration.is_some(),
            removal: orders.removal.is_some(),
            held: orders.held,
            asked_to_retire: orders.retire_asked.is_some(),
        }
    }

    /// Returns how long the record must be unchanged before the agent expects no change of it soon; `None` while it
    /// expects one.
    fn settles_after(&self) -> Option<Duration> {
        match self.state {
            State::Idle => (self.pooled || self.held).then_some(SETTLED),
            // The operator answers what the agent reports of its runner.
            State::Running => (!self.asked_to_retire).then_some(Duration::ZERO),
            State::Created | State::Claimed | State::Terminated => None,
        }
    }

    /// Returns whether the machine is free, and nobody is about to use it.
    fn is_free(&self) -> bool {
        self.state == State::Idle && self.pooled && !self.held
    }

    /// Returns whether the agent waits for the next change of the record, and has nothing to do until then.
    fn awaits_something(&self) -> bool {
        match self.state {
            State::Created | State::Claimed => !self.registration,
            State::Idle => true,
            State::Running | State::Terminated => false,
        }
    }
}

/// The pauses between reads of the instance record.
pub(crate) struct Pace {
    poll: Duration,
    /// The last state of the record, and the time of its first read.
    standing: Option<(Standing, Instant)>,
    /// The total time by which the pauses were shorter than the poll interval.
    ahead: Duration,
}

impl Pace {
    pub(crate) fn new(poll: Duration) -> Self {
        Self { poll, standing: None, ahead: Duration::ZERO }
    }

    /// Returns whether the record alone lets the agent expect no change soon.
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        let Some((standing, since)) = &self.standing else { return false };
        standing.settles_after().is_some_and(|time| now.saturating_duration_since(*since) >= time)
    }

    /// Returns whether the machine has been free for so long that its heartbeats may be rare.
    pub(crate) fn is_long_free(&self, now: Instant) -> bool {
        let free = self.standing.as_ref().filter(|(standing, _)| standing.is_free());
        free.is_some_and(|(_, since)| now.saturating_duration_since(*since) >= QUICK_WHILE_FREE)
    }

    /// Returns the pause after a read with this result.
    pub(crate) fn after(&mut self, sight: &Sight, now: Instant) -> Duration {
        let Some(orders) = sight.orders() else {
            self.standing = None;
            return self.poll;
        };
        let standing = Standing::of(orders);
        if self.standing.as_ref().is_none_or(|(last, _)| *last != standing) {
            (self.standing, self.ahead) = (Some((standing, now)), Duration::ZERO);
        }
        let awaited = self.standing.as_ref().filter(|(last, _)| last.awaits_something());
        let Some((standing, since)) = awaited else { return self.poll };
        let waited = now.saturating_duration_since(*since);
        let rarely = if standing.is_free() { waited / RARELY } else { Duration::ZERO };
        let soon = (waited / PART).max(SHORTEST).min(self.poll);
        if soon < self.poll {
            self.ahead += self.poll - soon;
            return soon;
        }
        let more = self.ahead.min(self.poll / MADE_UP);
        self.ahead -= more;
        (self.poll + more).max(rarely.min(self.poll * MOST))
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::model::Jobs;

    use super::*;

    const POLL: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn orders(state: State, registration: bool) -> Sight {
        Sight::Orders(Orders {
            state,
            run: String::new(),
            repository: String::new(),
            claim: None,
            jobs: Ok(Jobs::default()),
            runner: Ok(None),
            deadline: None,
            pooled: state == State::Idle,
            ahead: None,
            registration: registration.then(String::new),
            removal: None,
            held: false,
            retire_asked: None,
            logs_requested: None,
            promotion: None,
        })
    }

    /// Returns the times of the reads within this period after the record changed to this state.
    fn reads(sight: &Sight, time: Duration) -> Vec<Duration> {
        let (mut pace, begun) = (Pace::new(POLL), Instant::now());
        let (mut at, mut reads) = (Duration::ZERO, Vec::new());
        while at < time {
            reads.push(at);
            at += pace.after(sight, begun + at);
        }
        reads
    }

    #[tokio::test]
    async fn the_longer_a_machine_is_free_the_rarer_it_reads_and_never_too_often() {
        let long = reads(&orders(State::Idle, false), HOUR * 5);
        let of_hour =
            |hour: u32| long.iter().filter(|at| (HOUR * hour..HOUR * (hour + 1)).contains(*at)).count();
        assert_eq!([0, 1, 2, 3, 4].map(of_hour), [1811, 720, 720, 720, 720]);
        // A claim makes it quick again.
        let (mut pace, begun) = (Pace::new(POLL), Instant::now());
        let free = orders(State::Idle, false);
        pace.after(&free, begun);
        assert_eq!(pace.after(&free, begun + HOUR), POLL * MOST);
        assert_eq!(pace.after(&orders(State::Claimed, false), begun + HOUR), SHORTEST);
        pace.after(&free, begun + HOUR);
        assert_eq!(pace.after(&free, begun + HOUR + POLL * 2), SHORTEST);
    }

    #[tokio::test]
    async fn heartbeats_are_rare_only_where_a_machine_has_been_free_for_ten_minutes() {
        let mut held = orders(State::Idle, false);
        let mut cleaning = orders(State::Idle, false);
        if let (Sight::Orders(held), Sight::Orders(cleaning)) = (&mut held, &mut cleaning) {
            (held.held, cleaning.pooled) = (true, false);
        }
        for (sight, long) in [
            (orders(State::Idle, false), true),
            (held, false),
            (cleaning, false),
            (orders(State::Running, false), false),
            (orders(State::Claimed, false), false),
            (Sight::Absent, false),
        ] {
            let (mut pace, begun) = (Pace::new(POLL), Instant::now());
            pace.after(&sight, begun);
            assert!(!pace.is_long_free(begun + QUICK_WHILE_FREE - POLL));
            assert_eq!(pace.is_long_free(begun + QUICK_WHILE_FREE), long, "{sight:?}");
        }
    }

    #[tokio::test]
    async fn what_comes_soon_is_seen_within_a_fiftieth_of_the_wait_for_it() {
        let idle = reads(&orders(State::Idle, false), HOUR);
        for pair in idle.windows(2) {
            let (at, pause) = (pair[0], pair[1] - pair[0]);
            let most = if at / PART < POLL { (at / PART).max(SHORTEST) } else { POLL + POLL / MADE_UP };
            assert!(pause <= most.max(at / RARELY), "{at:?}: {pause:?}");
        }
        assert_eq!(idle.iter().filter(|at| **at < Duration::from_secs(2)).count(), 40);
    }

    #[tokio::test]
    async fn while_a_job_runs_or_a_runner_registers_there_is_one_read_a_poll() {
        for (state, registration) in [
            (State::Running, false),
            (State::Claimed, true),
            (State::Created, true),
            (State::Terminated, false),
        ] {
            assert_eq!(reads(&orders(state, registration), HOUR).len(), 3600, "{state}");
        }
        assert_eq!(reads(&Sight::Absent, HOUR).len(), 3600);
    }

    #[tokio::test]
    async fn a_claim_without_its_credential_is_read_again_soon() {
        assert_eq!(reads(&orders(State::Claimed, false), POLL).len(), 20);
    }

    #[tokio::test]
    async fn a_deadline_that_moves_on_begins_nothing_anew() {
        let (mut pace, begun) = (Pace::new(POLL), Instant::now());
        let mut sight = orders(State::Idle, false);
        pace.after(&sight, begun);
        if let Sight::Orders(orders) = &mut sight {
            let at = jiff::Timestamp::UNIX_EPOCH;
            orders.deadline = Some(crate::step::orders::Deadline { at, set_at: None });
        }
        assert_eq!(pace.after(&sight, begun + HOUR), POLL * MOST);
        assert_eq!(pace.after(&orders(State::Claimed, false), begun + HOUR), SHORTEST);
    }
}
