//! Turns lines of machines into entries: parts of lives, in whole seconds, each owned by a request or by a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::history::{Activity, MachineLine, Span};
use crate::model::{ClassName, InstanceArn, InstanceId, RecordId, Repository, UsageClass};

/// The least number of seconds that EC2 bills for a launch.
pub const MINIMUM_SECONDS: i64 = 60;

/// A period in whole seconds; the end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The first second, since the epoch.
    pub from: i64,
    /// The second after the last.
    pub to: i64,
}

impl Period {
    /// All time.
    pub const ALL: Self = Self { from: i64::MIN, to: i64::MAX };

    /// Returns the period between two moments.
    pub fn between(from: Timestamp, to: Timestamp) -> Self {
        Self { from: from.as_second(), to: to.as_second() }
    }

    const fn holds(self, second: i64) -> bool {
        self.from <= second && second < self.to
    }
}

/// The unchanging properties of a machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Machine {
    /// EC2's id.
    pub instance_id: InstanceId,
    /// Its ARN.
    pub instance_arn: InstanceArn,
    /// Its class.
    pub class: ClassName,
    /// EC2's type name; empty when not known.
    pub instance_type: String,
    /// Its zone; empty when not known.
    pub zone: String,
    /// How it is paid for.
    pub usage_class: UsageClass,
}

/// A part of a machine's life that belongs to one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The machine.
    pub machine: Arc<Machine>,
    /// Its activity. Time that no line covers counts as idle.
    pub activity: Activity,
    /// The request it belongs to; none when it is a person's or the pool's.
    pub request: Option<RecordId>,
    /// The person who held it; none when it is not held, or when the person is not known.
    pub holder: Option<Arc<str>>,
    /// The first second, since the epoch.
    pub from: i64,
    /// The second after the last.
    pub to: i64,
    /// Seconds that are billed in addition, because the machine lived shorter than the minimum.
    pub minimum: u64,
    /// Whether the activity begins with it: false where the line's span began before.
    pub begins: bool,
}

impl Entry {
    /// Returns its length in seconds.
    pub fn seconds(&self) -> u64 {
        u64::try_from(self.to - self.from).unwrap_or_default()
    }

    /// Returns how many seconds are billed.
    pub fn billed(&self) -> u64 {
        self.seconds() + self.minimum
    }

    /// Returns the repository of its request, in lower case.
    pub fn repository(&self) -> Option<&Repository> {
        self.request.as_ref().and_then(RecordId::request).map(|request| &request.repository)
    }

    /// Returns whether it belongs to the pool, and not to a request or a person.
    pub const fn is_pools(&self) -> bool {
        self.request.is_none() && self.holder.is_none()
    }

    /// Returns the part of it that lies in a period; none when there is no such part.
    pub fn within(&self, period: Period) -> Option<Self> {
        let (from, to) = (self.from.max(period.from), self.to.min(period.to));
        if self.from == self.to {
            return period.holds(self.from).then(|| self.clone());
        }
        let begins = self.begins && from == self.from;
        (from < to).then(|| Self { from, to, begins, ..self.clone() })
    }
}

/// A machine's life as far as the lines cover it.
struct Life<'a> {
    line: &'a MachineLine,
    launched: i64,
    ended: Option<i64>,
    held_by: Option<&'a str>,
    spans: BTreeSet<Ordered<'a>>,
}

/// A span in the order of time: by its seconds, then by its other contents, so that the order does not depend on the
/// order in which lines are read.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ordered<'a> {
    from: i64,
    to: i64,
    activity: Activity,
    request: Option<&'a RecordId>,
}

impl<'a> Ordered<'a> {
    fn of(span: &'a Span) -> Self {
        let (from, to) = (span.from.as_second(), span.to.as_second());
        let request = span.request.as_ref().filter(|_| span.activity.serves());
        Self { from, to: to.max(from), activity: span.activity, request }
    }
}

/// Returns the entries of these lines that lie in a period, by machine and time. Lines may come in any order, more than
/// once, and overlap; a line that covers less than another of the same time adds nothing.
pub fn entries<'a>(lines: impl IntoIterator<Item = &'a MachineLine>, period: Period) -> Vec<Entry> {
    let mut lives: BTreeMap<&InstanceArn, Life<'a>> = BTreeMap::new();
    for line in lines {
        let (launched, ended) =
            (line.launched_at.as_second(), line.ended.as_ref().map(|end| end.at.as_second()));
        let life = lives.entry(&line.instance_arn).or_insert_with(|| Life {
            line,
            launched,
            ended: None,
            held_by: None,
            spans: BTreeSet::new(),
        });
        life.launched = life.launched.min(launched);
        life.ended = life.ended.max(ended);
        life.held_by = life.held_by.max(line.held_by.as_deref());
        life.spans.extend(line.spans.iter().map(Ordered::of));
    }
    let mut all = Vec::new();
    for life in lives.values() {
        all.extend(life.entries().into_iter().filter_map(|entry| entry.within(period)));
    }
    all
}

impl Life<'_> {
    fn entries(&self) -> Vec<Entry> {
        let machine = Arc::new(Machine {
            instance_id: self.line.instance_id.clone(),
            instance_arn: self.line.instance_arn.clone(),
            class: self.line.resource_class.clone(),
            instance_type: self.line.instance_type.clone(),
            zone: self.line.availability_zone.clone(),
            usage_class: self.line.usage_class,
        });
        let holder: Option<Arc<str>> = self.held_by.map(Arc::from);
        let entry = |activity, request: Option<&RecordId>, from, to, begins| Entry {
            machine: machine.clone(),
            activity,
            request: request.cloned(),
            holder: holder.clone().filter(|_| activity == Activity::Held),
            from,
            to,
            minimum: 0,
            begins,
        };
        let mut all: Vec<Entry> = Vec::new();
        let mut until = self.launched;
        for span in &self.spans {
            if span.from > until {
                all.push(entry(Activity::Idle, None, until, span.from, false));
                until = span.from;
            }
            if span.to > until {
                all.push(entry(span.activity, span.request, until, span.to, span.from == until));
                until = span.to;
            }
        }
        let Some(ended) = self.ended else { return all };
        if ended > until {
            all.push(entry(Activity::Ending, None, until, ended, false));
            until = ended;
        }
        let lived = until - self.launched;
        if lived < MINIMUM_SECONDS {
            // The last user pays for the time billed beyond its life; its pool pays where there was no user.
            let last = all.iter().rev().find(|entry| !entry.is_pools()).or(all.last());
            let (activity, request) =
                last.map_or((Activity::Ending, None), |entry| (entry.activity, entry.request.clone()));
            let minimum = u64::try_from(MINIMUM_SECONDS - lived).unwrap_or_default();
            all.push(Entry { minimum, ..entry(activity, request.as_ref(), until, until, false) });
        }
        all
    }
}
