//! Measures machines and queues in addition to their states: time by activity, boot times, uses, and queue sizes.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Prices;
use crate::metrics::{Activity, Found, Metrics, Part};
use crate::model::{ClassName, Instance, Place, State, kept_of};
use crate::ports::PoolQueue;
use crate::yard::Yard;

/// The interval at which the sizes of the queues are read.
pub(super) const DEPTHS: Duration = Duration::from_secs(60);

/// Returns a machine's activity; `None` once it is gone.
fn activity(instance: &Instance) -> Option<Activity> {
    instance.gone_at().is_none().then(|| activity_at(instance.place())).flatten()
}

/// Returns the activity of machines that are not gone, by the place of their life.
const fn activity_at(place: Place) -> Option<Activity> {
    match place {
        Place::Nowhere => None,
        Place::CreatedBound | Place::CreatedWarm => Some(Activity::Starting),
        Place::Claimed | Place::Running => Some(Activity::Busy),
        Place::IdleCleaning => Some(Activity::Cleaning),
        Place::IdleHeld => Some(Activity::Held),
        Place::IdlePooled => Some(Activity::Idle),
        Place::Terminated => Some(Activity::Ending),
    }
}

/// Returns the part of the cost to which the time of machines belongs, by the place of their life.
const fn part(place: Place) -> Part {
    match place {
        Place::CreatedBound | Place::Claimed | Place::Running | Place::IdleCleaning | Place::IdleHeld => {
            Part::Requests
        }
        Place::Nowhere | Place::CreatedWarm | Place::IdlePooled | Place::Terminated => Part::Idle,
    }
}

/// Adds a period of time, with its cost, to the activity of all machines.
pub(super) fn time(yard: &Yard, prices: &Prices, metrics: &Metrics, spent: Duration) {
    for (class, of_class) in yard.classes() {
        for (kind, count) in of_class.kinds() {
            let Some(activity) = activity_at(kind.place) else { continue };
            let (usage, spent) = (kind.usage_class, spent * count);
            metrics.machine_time(class, usage, activity, spent);
            match prices.hour(class.as_str(), &kind.instance_type, &kind.zone, usage) {
                Ok(hour) => {
                    let hours = spent.as_secs_f64() / 3600.0;
                    metrics.cost(class, part(kind.place), hour.dollars() * hours);
                }
                Err(_) => metrics.unpriced(class, spent),
            }
        }
    }
    metrics.orphans(yard.orphans());
}

/// Counts a written change of a machine's state.
pub(super) fn moved(metrics: &Metrics, before: &Instance, after: &Instance) {
    let facts = &after.facts;
    let class = &facts.resource_class;
    let since = |from: jiff::Timestamp| {
        Duration::try_from(after.state_since.duration_since(from)).unwrap_or_default()
    };
    let of_use = [Some(Activity::Busy), Some(Activity::Idle)].contains(&activity(after));
    if activity(before) == Some(Activity::Starting) && of_use {
        metrics.booted(class, facts.usage_class, since(facts.created_at));
    }
    if (before.state(), after.state()) == (State::Claimed, State::Running) {
        metrics.claim_served(class, since(before.state_since));
    }
    if before.state().live() && !after.state().live() {
        metrics.machine_used(class, after.uses);
    }
}

/// Counts a written claim of a machine in a class that keeps directories, by the directories it had of the request's
/// repository.
pub(super) fn claimed(metrics: &Metrics, yard: &Yard, before: &Instance, after: &Instance) {
    if before.state() == State::Claimed || after.state() != State::Claimed {
        return;
    }
    let facts = &after.facts;
    let class = &facts.resource_class;
    let keeps = yard.pool(class).is_some_and(|pool| !pool.spec.keep.is_empty());
    let request = after.claim.as_ref().and_then(|claim| claim.request.request());
    let (true, Some(request)) = (keeps, request) else { return };
    let (agent, repository) = (
        yard.instance(&facts.instance_arn).and_then(|tracked| tracked.agent.as_ref()),
        request.repository.folded(),
    );
    let warm = agent.is_some_and(|agent| kept_of(&agent.kept, repository.as_str()).next().is_some());
    metrics.claim_found(class, if warm { Found::Warm } else { Found::Cold });
}

/// Reads the sizes of each class's queues. Unknown sizes are not reported.
pub(super) async fn depths(queue: Arc<dyn PoolQueue>, metrics: Metrics, classes: Vec<ClassName>) {
    for class in classes {
        match queue.depth(&class).await {
            Ok(Some(depth)) => metrics.queue_depth(&class, depth),
            Ok(None) => {}
            Err(error) => tracing::debug!(%class, %error, "the depth of the queue is not known"),
        }
    }
}
