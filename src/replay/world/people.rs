//! The behaviour of workflows and people: requests arrive, release machines and give up, and counts change by the hour.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runyard_core::decide::sizing::hour_of_week;
use runyard_core::model::{Asked, Desired, Intent, PoolOverride, Request, Status, Versioned as _};
use runyard_core::yard::Written;

use super::{Event, World, span};
use crate::outcome::Verdict;
use crate::trace::USUAL_BOOT;

impl World<'_> {
    /// Sets the count of each class for its hour, or for the next hour if that begins within a boot.
    pub(super) fn counts(&mut self) {
        let hour = Duration::from_secs(3600);
        let into = Duration::from_secs(self.now.wall.as_second().rem_euclid(3600).unsigned_abs());
        let mut again = hour - into;
        for (name, (zone, by_hour)) in self.by_hour.clone() {
            let Some(pool) = self.yard.pool(&name) else { continue };
            let lead = self.names.get(&name).map_or(USUAL_BOOT, |class| self.classes[*class].times.lead());
            let of = |at: Timestamp| by_hour[usize::from(hour_of_week(at, &zone))];
            let soon = self.now.wall.saturating_add(SignedDuration::try_from(lead).unwrap_or_default());
            let desired = of(self.now.wall).max(of(soon.unwrap_or(self.now.wall)));
            if let Some(ahead) = (hour - into).checked_sub(lead).filter(|ahead| !ahead.is_zero()) {
                again = again.min(ahead);
            }
            if pool.scale.as_ref().is_none_or(|scale| scale.desired != desired) {
                let mut next = pool.clone();
                let (until, by, at) = (None, String::new(), self.now.wall);
                next.scale = Some(PoolOverride { desired, until, by, at });
                next.advance(self.now.wall);
                self.wrote(Written::Pool(next));
            }
        }
        self.after(again, Event::Counts);
    }

    /// Writes a request.
    pub(super) fn comes(&mut self, number: usize) {
        self.comes_next(number + 1);
        let arrival = &self.trace.arrivals[number];
        if let Some(class) = self.names.get(&arrival.class).map(|class| &mut self.classes[*class]) {
            (self.served[number].idle, self.served[number].waiting) = (class.idle, class.waiting);
            class.waiting += 1;
        }
        let intent = Intent {
            repository: arrival.key.repository.clone(),
            resource_class: arrival.class.to_string(),
            count: arrival.count,
            min_count: arrival.min_count,
            usage_class: arrival.usage,
            on_demand_fallback: true,
            allowed_instance_types: arrival.types.clone(),
            max_runtime_minutes: arrival.max_runtime_minutes,
            timeout_seconds: arrival.timeout_seconds,
            label_suffix: None,
            priority: arrival.priority.clone(),
            wanted: None,
            desired: Desired::Provisioned,
            generation: 1,
            created_at: Some(arrival.at),
            fail_requested_at: None,
            fail_requested_by: None,
            asked: Asked::Verb,
            trial: false,
        };
        let request = Request {
            id: arrival.key.clone(),
            intent,
            written: None,
            status: Status::default(),
            uid: None,
            version: 1,
            updated_at: Some(self.now.wall),
        };
        if let Some(after) = arrival.gave_up {
            self.after(after.saturating_sub(arrival.notice), Event::GivesUp(number));
        }
        self.wrote(Written::Request(request));
    }

    /// Releases a request, as its workflow does.
    pub(super) fn release(&mut self, number: usize) {
        let Some(request) = self.yard.request(&self.trace.arrivals[number].key) else { return };
        let mut request = request.clone();
        request.intent.desired = Desired::Released;
        request.intent.generation += 1;
        request.advance(self.now.wall);
        self.wrote(Written::Request(request));
    }

    pub(super) fn ends(&mut self, number: usize, verdict: Verdict) {
        let arrival = &self.trace.arrivals[number];
        let served = &mut self.served[number];
        served.verdict = verdict;
        served.wait = span(arrival.at, self.now.wall);
        if let Some(class) = self.names.get(&arrival.class) {
            self.classes[*class].waiting = self.classes[*class].waiting.saturating_sub(1);
        }
    }
}
