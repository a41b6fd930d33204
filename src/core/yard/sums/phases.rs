//! Counts the requests of each class by their phase, and orders those that wait.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::{Phase, Request};
use crate::yard::QueuePosition;

/// The requests of all classes; a class is the name that a request gives, whether or not there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases(BTreeMap<String, OfClass>);

#[derive(Clone, Debug, Default)]
struct OfClass {
    counts: BTreeMap<Phase, usize>,
    /// The accepted requests that wait for machines.
    waiting: BTreeSet<QueuePosition>,
}

/// Returns the position of a request among those that wait for machines; none when it does not wait.
fn waits(request: &Request) -> Option<QueuePosition> {
    let waiting = match request.phase() {
        Phase::Pending | Phase::Fulfilling => true,
        Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed => false,
    };
    Some((request.status.accepted_at.filter(|_| waiting)?, request.id.clone()))
}

impl Phases {
    pub(super) fn change(&mut self, old: Option<&Request>, new: Option<&Request>) {
        let place = |of: &Request| (of.phase(), of.status.accepted_at);
        let class = |of: &Request| of.intent.resource_class.clone();
        if old.map(place) == new.map(place) && old.map(class) == new.map(class) {
            return;
        }
        if let Some(old) = old {
            self.remove(old);
        }
        if let Some(new) = new {
            let of_class = self.0.entry(class(new)).or_default();
            *of_class.counts.entry(new.phase()).or_default() += 1;
            of_class.waiting.extend(waits(new));
        }
    }

    fn remove(&mut self, old: &Request) {
        let Some(of_class) = self.0.get_mut(&old.intent.resource_class) else { return };
        if let Some(count) = of_class.counts.get_mut(&old.phase()) {
            *count = count.saturating_sub(1);
        }
        of_class.counts.retain(|_, count| *count > 0);
        waits(old).map(|place| of_class.waiting.remove(&place));
        if of_class.counts.is_empty() {
            self.0.remove(&old.intent.resource_class);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, Phase, usize)> {
        self.0.iter().flat_map(|(class, of)| {
            of.counts.iter().map(move |(phase, count)| (class.as_str(), *phase, *count))
        })
    }

    pub(crate) fn oldest(&self, class: &str) -> Option<Timestamp> {
        self.0.get(class)?.waiting.first().map(|(accepted_at, _)| *accepted_at)
    }
}
