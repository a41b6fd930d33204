//! A fair queue in front of one or more token buckets; callers are served by how many tokens their class has used.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Rate;

/// The share of the account's limits that is used: clocks and networks differ, and people start machines too.
const SHARE: f64 = 0.98;
/// The lowest pace of a line, as a fraction of its rate.
const SLOWEST: f64 = 1.0 / 16.0;
/// How long after a throttled call the next one may slow the line down again, so that calls in flight together count
/// once.
const ONE_LESSON: Duration = Duration::from_secs(2);
/// How long after the last throttled call the line becomes one step faster.
const CALM: Duration = Duration::from_secs(10);
/// The factor of one such step.
const FASTER: f64 = 1.25;

/// The line is closed: no further calls are admitted.
#[derive(Debug)]
pub(super) struct Closed;

/// A queue of callers in front of some token buckets.
pub(super) struct Line {
    state: Mutex<State>,
    changed: Notify,
}

struct Bucket {
    burst: f64,
    per_second: f64,
    tokens: f64,
}

struct State {
    buckets: Vec<Bucket>,
    /// When the buckets were last refilled.
    filled: Instant,
    /// The fraction of its rate at which the line refills.
    pace: f64,
    /// When the line last changed its pace.
    paced: Option<Instant>,
    waiting: BTreeMap<String, VecDeque<(u64, Vec<f64>)>>,
    /// Tokens that each class has used, as far as they matter for the order.
    given: BTreeMap<String, f64>,
    /// Tokens that the class served last had used before that call.
    turn: f64,
    tickets: u64,
    closed: bool,
}

/// The answer to a caller that asks whether it may go on.
enum Answer {
    Go,
    /// The caller is the first, and its tokens are there after this time.
    After(Duration),
    /// Others are before the caller.
    Behind,
    Closed,
}

impl Line {
    pub(super) fn new(rates: &[Rate]) -> Self {
        let buckets = rates.iter().map(|rate| {
            let burst = (f64::from(rate.burst) * SHARE).max(1.0);
            let per_second = (f64::from(rate.milli) / 1000.0 * SHARE).max(0.001);
            Bucket { burst, per_second, tokens: burst }
        });
        let state = State {
            buckets: buckets.collect(),
            filled: Instant::now(),
            pace: 1.0,
            paced: None,
            waiting: BTreeMap::new(),
            given: BTreeMap::new(),
            turn: 0.0,
            tickets: 0,
            closed: false,
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the caller's turn and takes `needs` tokens from the buckets.
    pub(super) async fn take(&self, whose: &str, needs: &[f64]) -> Result<(), Closed> {
        let ticket = self.state().enter(whose, needs);
        let _place = Place { line: self, whose, ticket };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let answer = self.state().ask(whose, ticket, Instant::now());
            match answer {
                Answer::Go => return Ok(()),
                Answer::Closed => return Err(Closed),
                Answer::Behind => changed.await,
                Answer::After(pause) => drop(tokio::time::timeout(pause, changed).await),
            }
        }
    }

    /// Halves the pace after a throttled call: the account had fewer tokens than assumed.
    pub(super) fn slow_down(&self) {
        self.state().slow_down(Instant::now());
    }

    /// Wakes all waiters with `Closed`; no further calls are admitted.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_waiters();
    }

    #[cfg(test)]
    pub(super) fn pace(&self) -> f64 {
        let mut state = self.state();
        state.fill(Instant::now());
        state.pace
    }
}

/// A place in the line. Dropping it, when its caller goes on or gives up, removes it.
struct Place<'a> {
    line: &'a Line,
    whose: &'a str,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.line.state().leave(self.whose, self.ticket);
        self.line.changed.notify_waiters();
    }
}

impl State {
    fn enter(&mut self, whose: &str, needs: &[f64]) -> u64 {
        self.tickets += 1;
        if !self.waiting.contains_key(whose) {
            // A class that did not wait meanwhile accumulates no credit.
            let given = self.given.entry(whose.to_owned()).or_default();
            *given = given.max(self.turn);
        }
        let line = self.waiting.entry(whose.to_owned()).or_default();
        line.push_back((self.tickets, needs.to_vec()));
        self.tickets
    }

    fn leave(&mut self, whose: &str, ticket: u64) {
        if let Some(line) = self.waiting.get_mut(whose) {
            line.retain(|(other, _)| *other != ticket);
            if line.is_empty() {
                self.waiting.remove(whose);
            }
        }
    }

    fn ask(&mut self, whose: &str, ticket: u64, now: Instant) -> Answer {
        if self.closed {
            return Answer::Closed;
        }
        let given = |class: &String| self.given.get(class).copied().unwrap_or_default();
        let next = self.waiting.iter().min_by(|(a, _), (b, _)| given(a).total_cmp(&given(b)));
        let Some((class, line)) = next else { return Answer::Behind };
        let Some((first, needs)) = line.front().filter(|(first, _)| class == whose && *first == ticket)
        else {
            return Answer::Behind;
        };
        debug_assert_eq!(*first, ticket, "the first of the line asks");
        let needs = needs.clone();
        self.fill(now);
        let pace = self.pace;
        let lacking = |(bucket, need): (&Bucket, &f64)| {
            let lack = need.min(bucket.burst) - bucket.tokens;
            (lack > 0.0).then(|| lack / (bucket.per_second * pace))
        };
        let longest = self.buckets.iter().zip(&needs).filter_map(lacking).fold(0.0_f64, f64::max);
        if longest > 0.0 {
            // At most 10 s, as the pace may rise meanwhile.
            return Answer::After(Duration::from_secs_f64(longest.clamp(0.001, 10.0)));
        }
        for (bucket, need) in self.buckets.iter_mut().zip(&needs) {
            bucket.tokens -= need.min(bucket.burst);
        }
        let given = self.given.entry(whose.to_owned()).or_default();
        self.turn = *given;
        *given += needs.last().copied().unwrap_or(1.0);
        self.leave(whose, ticket);
        Answer::Go
    }

    fn fill(&mut self, now: Instant) {
        while let Some(paced) = self.paced
            && now >= paced + CALM
        {
            self.flow(paced + CALM);
            self.pace = (self.pace * FASTER).min(1.0);
            self.paced = (self.pace < 1.0).then_some(paced + CALM);
        }
        self.flow(now);
    }

    fn flow(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        for bucket in &mut self.buckets {
            bucket.tokens = (bucket.tokens + passed * bucket.per_second * self.pace).min(bucket.burst);
        }
    }

    fn slow_down(&mut self, now: Instant) {
        self.fill(now);
        if self.paced.is_some_and(|paced| now < paced + ONE_LESSON) {
            return;
        }
        self.pace = (self.pace / 2.0).max(SLOWEST);
        self.paced = Some(now);
        // The tokens that were assumed are not there, so the buckets are emptied.
        for bucket in &mut self.buckets {
            bucket.tokens = bucket.tokens.min(0.0);
        }
    }
}
