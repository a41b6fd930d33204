//! The metrics of the loop: counters of its actions and gauges of the yard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::controller::measure;
use crate::controller::records::ledger;
use crate::decide::{Change, Planned, effective_in, first_end};
use crate::explain::{self, SetReport};
use crate::metrics::OTHER;
use crate::model::history::MachineLine;
use crate::model::{
    ClassName, ConditionType, Event, EventType, Instance, Life, Phase, Place, Pool, Request, State,
};
use crate::yard::{BackoffKind, Class};

use super::Loop;

impl Loop {
    /// Counts the changes of an action.
    pub(super) fn count(&self, action: &Planned) {
        let metrics = &self.ports.metrics;
        let moved = |before: Option<State>, after: &Instance| {
            if before != Some(after.state()) {
                metrics.transition(before, after.state());
                if let Life::Terminated { reason, .. } = after.life {
                    metrics.termination(reason);
                }
            }
        };
        for change in action.effect.changes() {
            match change {
                Change::Instance(step) => {
                    moved(Some(step.before.state()), &step.after);
                    measure::moved(metrics, &step.before, &step.after);
                    measure::claimed(metrics, &self.yard, &step.before, &step.after);
                }
                Change::Born(instance) => moved(None, instance),
                Change::Request(step) => self.count_request(&step.before, &step.after),
                Change::Agent(_) | Change::Launch(_) | Change::Pool(_) => {}
            }
        }
    }

    /// Counts a request that failed, and one that became ready with its wait.
    fn count_request(&self, before: &Request, after: &Request) {
        let (metrics, status) = (&self.ports.metrics, &after.status);
        if before.phase() != Phase::Failed && after.phase() == Phase::Failed {
            let ready = status.conditions.iter().find(|one| one.condition_type == ConditionType::Ready);
            let reason = ready.map_or("Other", |one| one.reason.as_str());
            metrics.request_failed(&after.intent.resource_class, reason);
        }
        let became = before.phase() != Phase::Ready && after.phase() == Phase::Ready;
        let (true, Some(accepted), Some(ready)) = (became, status.accepted_at, status.ready_at) else {
            return;
        };
        let waited = Duration::try_from(ready.duration_since(accepted)).unwrap_or_default();
        if let Some(source) = status.ready_source {
            metrics.request_ready(&after.intent.resource_class, source, waited);
        }
    }

    /// Counts machine time and measures queue depths at intervals. Only the leader does so, for all operators.
    pub(super) fn measure(&mut self) {
        let now = self.ports.clock.elapsed();
        let spent = now.saturating_sub(std::mem::replace(&mut self.measures.measured, now));
        if self.role.lease.is_none() {
            return;
        }
        measure::time(&self.yard, &self.measures.prices, &self.ports.metrics, spent);
        self.close_hours();
        if self.measures.queues_measured.is_none_or(|at| now >= at + measure::DEPTHS) {
            self.measures.queues_measured = Some(now);
            let classes =
                self.yard.classes().filter(|(_, class)| class.pool.is_some()).map(|(name, _)| name.clone());
            let (queue, metrics) = (self.ports.queue.clone(), self.ports.metrics.clone());
            let depths = measure::depths(queue, metrics, classes.collect());
            self.tasks.spawn_long(depths);
        }
    }

    /// Closes the finished hours of the ledger that are not closed yet, from the history and the activity that is not
    /// in it yet.
    fn close_hours(&mut self) {
        let now = self.ports.clock.now();
        let Some(table) = self.ports.history.clone().filter(|_| self.backlog.is_there()) else {
            return;
        };
        // A new leader looks back a day, for the hours without a leader.
        let back = if self.measures.closed.is_some() { ledger::HOURS } else { ledger::DAY };
        let hours: Vec<Timestamp> = ledger::hours(now, back).collect();
        if self.measures.closed == hours.last().copied() {
            return;
        }
        self.measures.closed = hours.last().copied();
        let machines = self.yard.instances().map(|tracked| &tracked.instance);
        let known: Vec<MachineLine> = machines
            .flat_map(|instance| {
                MachineLine::over(instance).into_iter().chain(MachineLine::so_far(instance, now))
            })
            .collect();
        let prices = self.measures.prices.clone();
        self.tasks.spawn_long(async move {
            match ledger::close_all(&*table.store, &hours, now, known, &prices, table.keep).await {
                Ok(0) => {}
                Ok(lines) => tracing::info!(lines, "hours of the ledger are closed"),
                Err(error) => {
                    tracing::warn!(%error, "hours of the ledger are not closed; the next hour tries again")
                }
            }
        });
    }

    /// Records an event for each circuit breaker that opened or closed.
    pub(super) fn report_backoffs(&mut self) {
        let now = self.ports.clock.elapsed();
        let mut open = BTreeSet::new();
        for (name, class) in self.yard.classes().filter(|(_, class)| class.pool.is_some()) {
            for backoff in BackoffKind::ALL {
                let backs_off = class.backs_off(backoff, now);
                self.ports.metrics.backoff(name, backoff, backs_off);
                if backs_off {
                    open.insert((name.clone(), backoff));
                }
            }
        }
        let before = std::mem::replace(&mut self.reported.open, open);
        // Standbys launch nothing and would record the same event twice.
        if self.role.lease.is_none() {
            return;
        }
        let mut events = Vec::new();
        for (class, backoff) in before.symmetric_difference(&self.reported.open) {
            let opened = self.reported.open.contains(&(class.clone(), *backoff));
            let (id, at) = (self.ports.entropy.hex(), self.ports.clock.now());
            let mut event = Event::new(&Pool::key_of(class), id, at, "operator");
            let (reason, message) = match (backoff, opened) {
                (BackoffKind::Spot, true) => (
                    "SpotAvoided",
                    "spot machines are taken back or not to be had: requests that allow it get on-demand ones",
                ),
                (BackoffKind::Spot, false) => ("SpotTried", "spot machines are asked for again"),
                (BackoffKind::Boot, true) => ("LaunchesHeldBack", "launches are held back after failures"),
                (BackoffKind::Boot, false) => ("LaunchesTried", "launches are tried again"),
            };
            event.event_type = if opened { EventType::Warning } else { EventType::Normal };
            (event.reason, event.message) = (reason.into(), message.into());
            tracing::info!(%class, %reason, %message, "breaker");
            events.push(event);
        }
        events.iter().for_each(|event| self.leave(event));
    }

    /// Updates the gauges.
    pub(super) fn gauge(&self) {
        let metrics = &self.ports.metrics;
        metrics.runner_deadline(first_end(&self.yard, &self.policy), self.ports.clock.now());
        let pools = self.yard.classes().filter_map(|(_, class)| class.pool.as_ref());
        metrics.runner_held_back(pools.filter(|pool| pool.status.runner.held_back.is_some()).count());
        metrics.failed_cleanups(self.yard.failed_clean_ups(self.ports.clock.now()));
        let now = self.ports.clock.now();
        let grace = SignedDuration::try_from(self.policy.timing.grace).unwrap_or(SignedDuration::MAX);
        metrics.over_threshold(self.yard.over_deadline(now, grace));
        let counts = self.yard.phases().map(|(class, phase, count)| ((class, phase), count));
        let mut counts: BTreeMap<(&str, Phase), usize> = counts.collect();
        let mut sets: BTreeMap<ClassName, Vec<SetReport>> = BTreeMap::new();
        for set in explain::sets(&self.yard) {
            sets.entry(set.resource_class.clone()).or_default().push(set);
        }
        for (name, class) in self.yard.classes() {
            if class.pool.is_none() && class.live() == 0 {
                metrics.forget(name);
                continue;
            }
            self.gauge_class(name, class);
            metrics.sets(name, sets.get(name).map_or(&[], Vec::as_slice));
            for phase in Phase::ALL {
                let n = counts.remove(&(name.as_str(), *phase)).unwrap_or(0);
                metrics.requests(name.as_str(), *phase, n);
            }
            metrics.oldest_waiting(name.as_str(), self.yard.oldest_waiting(name.as_str()));
        }
        // Requests of classes that do not exist.
        for phase in Phase::ALL {
            let n = counts.iter().filter(|((_, of), _)| of == phase).map(|(_, n)| n).sum();
            metrics.requests(OTHER, *phase, n);
        }
    }

    fn gauge_class(&self, name: &ClassName, class: &Class) {
        let metrics = &self.ports.metrics;
        metrics.class(name);
        for state in State::ALL.iter().filter(|state| state.live()) {
            metrics.instances(name, *state, class.counts.get(state).copied().unwrap_or(0) as usize);
        }
        let ending = class.kinds().filter(|(kind, _)| kind.place == Place::Terminated);
        metrics.instances(name, State::Terminated, ending.map(|(_, count)| count as usize).sum());
        let now = self.ports.clock.now();
        let desired = class.pool.as_ref().map_or(0, |pool| effective_in(class, pool, now).desired);
        metrics.pool_desired(name, desired as usize);
        let (max, paused) = class.pool.as_ref().map_or((0, false), |pool| (pool.spec.max, pool.spec.paused));
        metrics.pool_bounds(name, max as usize, paused);
        metrics.shares(name, explain::shares(&self.yard, self.now(), name));
    }
}
