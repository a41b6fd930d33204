//! The input of a replay: which requests were made when, how long machines were held, and how long external steps took.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{ClassName, InstanceTypes, RequestKey, UsageClass};

use crate::chance::Chance;

/// The boot time where a history has no record of one.
pub(crate) const USUAL_BOOT: Duration = Duration::from_secs(60);

/// A period of demand.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its beginning.
    pub begin: Timestamp,
    /// Its end, exclusive.
    pub end: Timestamp,
    /// The requests in the order of time.
    pub arrivals: Vec<Arrival>,
    /// The times of each class's machines.
    pub times: BTreeMap<ClassName, Times>,
    /// The launches that failed, in the order of time.
    pub failures: Vec<Failure>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its key.
    pub key: RequestKey,
    /// Its class.
    pub class: ClassName,
    /// When it was written.
    pub at: Timestamp,
    /// How long the operator took to accept it.
    pub notice: Duration,
    /// How many machines it requested.
    pub count: u32,
    /// How many were enough.
    pub min_count: u32,
    /// The usage class that it requested.
    pub usage: Option<UsageClass>,
    /// The types that it allowed in place of its class's types.
    pub types: Option<InstanceTypes>,
    /// The name of its priority.
    pub priority: Option<String>,
    /// How long it would have waited, in seconds.
    pub timeout_seconds: u64,
    /// How long it may hold machines, in minutes.
    pub max_runtime_minutes: Option<u64>,
    /// How long it held its machines; none where it never had them, and then the time is drawn from the others of its
    /// class.
    pub hold: Option<Duration>,
    /// How long its workflow waited before it gave up, if it did.
    pub gave_up: Option<Duration>,
    /// The recorded outcome; none in a generated trace.
    pub truth: Option<Truth>,
}

/// The recorded outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth {
    /// How long it waited; none where it was never ready.
    pub wait: Option<Duration>,
    /// Whether all its machines came from the pool.
    pub warm: bool,
}

/// A launch that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The time.
    pub at: Timestamp,
    /// Its class.
    pub class: ClassName,
    /// How its machines would have been paid for.
    pub usage: UsageClass,
    /// The provider's code.
    pub code: String,
}

/// Recorded times of one kind, in order. Draws come from nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    sorted: Vec<Duration>,
    /// The same with the time of each recording, where that is known.
    recorded: Vec<(Timestamp, Duration)>,
}

/// A drawn time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Its length.
    pub took: Duration,
    /// When the recorded step ended, if that is known: the next step is drawn from there too.
    pub until: Option<Timestamp>,
}

/// How many neighbours in time a draw chooses from: slow times come in periods.
const NEAREST: usize = 9;

impl Samples {
    /// Creates samples from recorded times.
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { sorted: times, recorded: Vec::new() }
    }

    /// Creates samples from recorded times, each with its moment.
    pub fn recorded(mut times: Vec<(Timestamp, Duration)>) -> Self {
        times.sort_unstable();
        Self { recorded: times.clone(), ..Self::new(times.into_iter().map(|(_, took)| took).collect()) }
    }

    /// Draws one of those recorded next to a moment; one of all where no moments are known.
    pub fn draw_near(&self, at: Timestamp, number: u64) -> Option<Drawn> {
        if self.recorded.is_empty() {
            return self.draw(number).map(|took| Drawn { took, until: None });
        }
        let all = self.recorded.len();
        let next = self.recorded.partition_point(|(when, _)| *when < at);
        let first = next.saturating_sub(NEAREST / 2).min(all.saturating_sub(NEAREST));
        let near = &self.recorded[first..all.min(first + NEAREST)];
        let chosen = (u128::from(number) * near.len() as u128) >> 64;
        near.get(chosen as usize).map(|(at, took)| Drawn { took: *took, until: at.checked_add(*took).ok() })
    }

    /// Returns the one that was recorded next to a moment.
    pub fn nearest(&self, at: Timestamp) -> Option<Duration> {
        let next = self.recorded.partition_point(|(when, _)| *when < at);
        let two = &self.recorded[next.saturating_sub(1)..self.recorded.len().min(next + 1)];
        two.iter().min_by_key(|(when, _)| when.duration_since(at).abs()).map(|(_, took)| *took)
    }

    /// Returns how many were recorded.
    pub const fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns whether none was recorded.
    pub const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Draws one of them by a random number; none where there are none.
    pub fn draw(&self, number: u64) -> Option<Duration> {
        // The high half of the product is uniform over any length.
        let at = (u128::from(number) * self.sorted.len() as u128) >> 64;
        self.sorted.get(at as usize).copied()
    }

    /// Returns the value that this percentage does not exceed; none where there are none.
    pub fn percentile(&self, part: usize) -> Option<Duration> {
        self.sorted.get((self.sorted.len() * part).div_ceil(100).saturating_sub(1)).copied()
    }
}

/// The times of a class's machines, and of its requests.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// From a launch for a request until its runner listened.
    pub boot: Samples,
    /// From a launch for the pool until the machine was free.
    pub warm_boot: Samples,
    /// From a claim until the runner listened.
    pub claim: Samples,
    /// From when the last runner of a request listened until the request was ready, by when it listened.
    pub tell: Samples,
    /// From a release until the machine was clean.
    pub clean: Samples,
    /// From the decision that a machine ends until it was gone.
    pub end: Samples,
    /// How long requests held machines.
    pub hold: Samples,
    /// The types of its machines, the most frequent first.
    pub types: Vec<String>,
}

impl Times {
    /// Draws a time, or returns the default where none was recorded.
    pub(crate) fn drawn(
        samples: &Samples,
        at: Timestamp,
        chance: Chance,
        subject: (u64, u64, u64),
        usual: Duration,
    ) -> Drawn {
        let (kind, one, two) = subject;
        samples.draw_near(at, chance.of(kind, one, two)).unwrap_or(Drawn { took: usual, until: None })
    }

    /// Returns the time from a launch until its machine is free that 95 of 100 do not exceed.
    pub fn lead(&self) -> Duration {
        let known = self.warm_boot.percentile(95).or_else(|| self.boot.percentile(95));
        known.unwrap_or(USUAL_BOOT)
    }
}
