//! Serves the requests of a class without `sharing`: the oldest of all demands is next. A pass looks only at the demands
//! that it serves, however many there are.

use std::collections::{BTreeMap, BTreeSet, btree_map, btree_set};
use std::sync::Arc;

use super::serve::{Others, Pass};
use crate::yard::{Demand, QueuePosition, WaitingRequests, visited};

/// The requests of a demand that are not served yet.
pub(super) type Rest<'a> = btree_set::Iter<'a, QueuePosition>;

/// The oldest requests of demands, in their order.
type Heads<'a> = btree_map::Iter<'a, QueuePosition, Arc<Demand>>;

/// The order of one pass.
pub(super) struct Oldest<'a> {
    waiting: &'a WaitingRequests,
    /// The demands of which no request was served, each with its oldest request.
    walks: Vec<std::iter::Peekable<Heads<'a>>>,
    /// The demands of which some requests were served, each with its next request.
    again: BTreeMap<&'a QueuePosition, Next<'a>>,
    /// All demands that were served.
    begun: BTreeSet<&'a Demand>,
    /// The trust domains that are served; none when all are.
    domains: Option<BTreeSet<String>>,
}

/// The next request to serve.
pub(super) struct Next<'a> {
    /// Its position.
    pub(super) head: &'a QueuePosition,
    /// Its demand.
    pub(super) demand: &'a Demand,
    /// The younger requests of its demand.
    rest: Rest<'a>,
}

impl<'a> Oldest<'a> {
    pub(super) fn of(waiting: &'a WaitingRequests) -> Self {
        let walks = vec![waiting.heads().iter().peekable()];
        Self { waiting, walks, again: BTreeMap::new(), begun: BTreeSet::new(), domains: None }
    }

    /// Restricts the remaining turns to the demands of these trust domains.
    pub(super) fn only(&mut self, domains: BTreeSet<String>) {
        if self.domains.as_ref() == Some(&domains) {
            return;
        }
        self.again.retain(|_, next| domains.contains(&next.demand.trust_domain));
        let heads = domains.iter().filter_map(|domain| self.waiting.heads_of(domain));
        self.walks = heads.map(|heads| heads.iter().peekable()).collect();
        self.domains = Some(domains);
    }

    /// Skips the demands that were served at the beginning of each walk.
    fn skip(&mut self) {
        let begun = &self.begun;
        for walk in &mut self.walks {
            while walk.next_if(|(_, demand)| begun.contains(demand.as_ref())).is_some() {
                visited();
            }
        }
    }

    /// Returns whether there is no next request.
    pub(super) fn is_over(&mut self) -> bool {
        self.skip();
        self.again.is_empty() && self.walks.iter_mut().all(|walk| walk.peek().is_none())
    }

    /// Returns the next request to serve, and does not return its demand again before [`Self::go_on`].
    pub(super) fn next(&mut self) -> Option<Next<'a>> {
        self.skip();
        let heads = self.walks.iter_mut().enumerate();
        let first = heads.filter_map(|(at, walk)| Some((walk.peek()?.0, at))).min();
        let again = self.again.first_key_value().map(|(head, _)| *head);
        match (first, again) {
            (Some((head, at)), again) if again.is_none_or(|again| head < again) => {
                let (_, demand) = self.walks[at].next()?;
                let (demand, alike) = self.waiting.demands().get_key_value(demand)?;
                self.begun.insert(demand);
                let mut rest = alike.iter();
                rest.next();
                Some(Next { head, demand, rest })
            }
            (Some(_) | None, _) => self.again.pop_first().map(|(_, next)| next),
        }
    }

    /// Serves the younger requests of a demand too.
    pub(super) fn go_on(&mut self, mut next: Next<'a>) {
        if let Some(head) = next.rest.next() {
            self.again.insert(head, Next { head, ..next });
        }
    }
}

/// The requests that the remaining machines and launches of a pass can serve.
pub(super) enum Servable {
    /// None.
    Nothing,
    /// Those of these trust domains.
    Domains(BTreeSet<String>),
    /// Any.
    All,
}

impl<'a> Pass<'a, '_> {
    /// Serves the accepted requests: the oldest of all demands in turn.
    pub(super) fn by_age(&mut self) {
        let mut oldest = Oldest::of(&self.class.waiting);
        // Whether a demand can have nothing, and how many machines were given when it was last asked who can.
        let (mut in_vain, mut asked) = (false, None);
        while !self.is_full() {
            let given = Some(self.matcher.given());
            if in_vain && asked != given && !oldest.is_over() && self.launches.is_closed() {
                asked = given;
                match self.servable() {
                    Servable::Nothing => return,
                    Servable::Domains(domains) => oldest.only(domains),
                    Servable::All => {}
                }
            }
            let Some(next) = oldest.next() else { return };
            match self.one(&next.head.1, next.demand) {
                Others::MayHave => oldest.go_on(next),
                Others::HaveNothing | Others::OverQuota => in_vain = true,
            }
        }
    }

    /// Returns which requests the remaining machines and launches can serve.
    pub(super) fn servable(&mut self) -> Servable {
        if !self.launches.is_closed() {
            return Servable::All;
        }
        let domains = if self.closed.is_some() { BTreeSet::new() } else { self.matcher.domains() };
        match (domains.is_empty(), domains.contains("")) {
            (true, _) => Servable::Nothing,
            (false, true) => Servable::All,
            (false, false) => Servable::Domains(domains),
        }
    }
}
