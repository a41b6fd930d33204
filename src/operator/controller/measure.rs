//! Measures machines and queues in addition to their states: time by activity, boot times, uses, and queue sizes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Prices;
use crate::metrics::{Activity, Found, Metrics, Part};
use crate::model::{ClassName, Instance, Life, Place, State, UsageClass, kept_of};
use crate::ports::PoolQueue;
use crate::yard::Yard;

/// The interval at which the sizes of the queues are read.
pub(super) const DEPTHS: Duration = Duration::from_secs(60);

/// Returns a machine's activity; `None` once it is gone.
fn activity(instance: &Instance) -> Option<Activity> {
    match instance.place() {
        Place::Nowhere => None,
        Place::CreatedBound | Place::CreatedWarm => Some(Activity::Starting),
        Place::Claimed | Place::Running => Some(Activity::Busy),
        Place::IdleCleaning => Some(Activity::Cleaning),
        Place::IdleHeld => Some(Activity::Held),
        Place::IdlePooled => Some(Activity::Idle),
        Place::Terminated => match instance.life {
            Life::Terminated { gone_at: None, .. } => Some(Activity::Ending),
            Life::Terminated { gone_at: Some(_), .. }
            | Life::Created { .. }
            | Life::Claimed { .. }
            | Life::Running { .. }
            | Life::Idle { .. } => None,
        },
    }
}

/// Returns the part of the cost to which a machine's time belongs.
fn part(instance: &Instance, activity: Activity) -> Part {
    match activity {
        Activity::Busy | Activity::Cleaning | Activity::Held => Part::Requests,
        Activity::Starting if instance.run().is_some() => Part::Requests,
        Activity::Starting | Activity::Idle | Activity::Ending => Part::Idle,
    }
}

/// Adds a period of time, with its cost, to every machine's activity.
pub(super) fn time(yard: &Yard, prices: &Prices, metrics: &Metrics, spent: Duration) {
    let mut machines: BTreeMap<(&ClassName, UsageClass, Activity), u32> = BTreeMap::new();
    let mut priced: BTreeMap<(&ClassName, &str, &str, UsageClass, Part), u32> = BTreeMap::new();
    for instance in yard.instances().map(|tracked| &tracked.instance) {
        if let Some(activity) = activity(instance) {
            let facts = &instance.facts;
            *machines.entry((&facts.resource_class, facts.usage_class, activity)).or_default() += 1;
            let (kind, zone) = (facts.instance_type.as_str(), facts.availability_zone.as_str());
            let key = (&facts.resource_class, kind, zone, facts.usage_class, part(instance, activity));
            *priced.entry(key).or_default() += 1;
        }
    }
    for ((class, usage, activity), count) in machines {
        metrics.machine_time(class, usage, activity, spent * count);
    }
    for ((class, kind, zone, usage, part), count) in priced {
        match prices.hour(class.as_str(), kind, zone, usage) {
            Ok(hour) => {
                let hours = (spent * count).as_secs_f64() / 3600.0;
                metrics.cost(class, part, hour.dollars() * hours);
            }
            Err(_) => metrics.unpriced(class, spent * count),
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
