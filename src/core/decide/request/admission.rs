//! Why is a request refused? For its own contents, for the limits of its class, or for EC2's response to its choice.

use crate::decide::capacity;
use crate::decide::context::Context;
use crate::model::{
    Asked, InstanceTypes, Intent, LONGEST_RUNTIME_MINUTES, LONGEST_TIMEOUT_SECONDS, LabelMode, MOST_MACHINES,
    Phase, Pool, PoolSpec, Request, SetPlace,
};
use crate::yard::Yard;

use super::{archived, is_live};

/// Returns why a new request is refused: one word and a sentence. None when it is not refused, or when its class must
/// be read again before it counts as unknown.
pub(in crate::decide) fn refused(cx: &Context<'_>, request: &Request) -> Option<(&'static str, String)> {
    if let Some(message) = archived::taken(cx, request) {
        return Some(("KeyTaken", message));
    }
    let intent = &request.intent;
    let class = Yard::class_of(request);
    let pool = class.as_ref().and_then(|class| cx.yard.pool(class));
    let Some(pool) = pool else {
        let key = class.as_ref().map(Pool::key_of);
        let known =
            key.as_ref().is_some_and(|key| cx.yard.is_unreadable(key) || !cx.yard.absent.contains_key(key));
        let message =
            format!("there is no resource class {:?}; `runyard get pools` lists them", intent.resource_class);
        return (!known).then_some(("UnknownClass", message));
    };
    let spec = &pool.spec;
    invalid(intent).map(|message| ("Invalid", message)).or_else(|| {
        if let Some(message) = no_slot(request, spec) {
            return Some(("NotAllowed", message));
        }
        if !spec.admits(&request.id.repository) {
            let message = format!("class {} is not open to {}", spec.resource_class, request.id.repository);
            return Some(("NotAllowed", message));
        }
        if spec.label_mode == LabelMode::Secret && intent.label_suffix.is_none() {
            let message = format!(
                "class {} serves requests with a secret label alone: ask with `runyard provision --secret-label`",
                spec.resource_class
            );
            return Some(("NotAllowed", message));
        }
        if let Some(message) = intent.allowed_instance_types.as_ref().and_then(|types| spec.refuses_types(types)) {
            return Some(("NotAllowed", message));
        }
        if let Some(why) = unfair(cx, request, spec) {
            return Some(why);
        }
        if intent.count > spec.max {
            let message = format!(
                "count {} is over the max of class {} ({})",
                intent.count, spec.resource_class, spec.max
            );
            return Some(("OverMax", message));
        }
        if let (Some(asked), Some(most)) = (intent.max_runtime_minutes, spec.max_runtime_minutes)
            && asked > most
        {
            let message = format!(
                "maxRuntimeMinutes {asked} is over what class {} allows ({most})",
                spec.resource_class
            );
            return Some(("NotAllowed", message));
        }
        let holder = cx.yard.same_label(request).find(|other| is_live(other))?;
        let message = format!(
            "label {} is that of {} until it is over; use another run id or name",
            request.public_label(),
            holder.id
        );
        Some(("LabelTaken", message))
    })
}

/// Returns why a request with the key or the mark of a slot is none of a scale set of its class.
fn no_slot(request: &Request, spec: &PoolSpec) -> Option<String> {
    if request.id.set().is_none()
        && request.intent.asked != Asked::Set
        && !request.id.repository.is_organization()
    {
        return None;
    }
    let place = SetPlace::repository(&request.id.repository);
    let one = request.is_slot() && request.intent.count == 1;
    (!one || !spec.set_places().contains(&place)).then(|| {
        format!(
            "{} is no slot of a scale set of class {}; the operator alone makes those",
            request.id, spec.resource_class
        )
    })
}

/// Returns why a class with `sharing` refuses a new request: its priority, or a quota that it can never fit in.
fn unfair(cx: &Context<'_>, request: &Request, spec: &PoolSpec) -> Option<(&'static str, String)> {
    let (intent, id) = (&request.intent, &request.id);
    let sharing = spec.sharing.as_ref()?;
    if let Err(message) = cx.policy.sharing.priority(intent.priority.as_deref(), &id.repository) {
        return Some(("NotAllowed", message));
    }
    let share = sharing.share(&id.repository, &cx.policy.sharing.teams);
    let bounds = [sharing.quota(&share), cx.policy.sharing.quota(&share)];
    let most = bounds.into_iter().filter_map(|quota| quota.max_machines).min();
    most.filter(|most| intent.count > *most).map(|most| {
        let message =
            format!("count {} is over what share {share} may have at the same time ({most})", intent.count);
        ("Quota", message)
    })
}

/// Returns EC2's error message for a request that waits for machines which EC2 refuses to launch because of the
/// request's own choice.
pub(super) fn unlaunchable(cx: &Context<'_>, request: &Request) -> Option<String> {
    match request.phase() {
        Phase::Pending | Phase::Fulfilling => {}
        Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed => return None,
    }
    let class = cx.yard.class(&Yard::class_of(request)?)?;
    let spec = &class.pool.as_ref()?.spec;
    capacity::refused_choice(cx, class, request, spec).map(|why| format!("EC2: {why}"))
}

/// Returns the fault of an intent, whatever its class.
fn invalid(intent: &Intent) -> Option<String> {
    if let Some(why) = intent.allowed_instance_types.as_ref().and_then(InstanceTypes::out_of_bounds) {
        return Some(format!("allowedInstanceTypes: {why}"));
    }
    if !(1..=MOST_MACHINES).contains(&intent.count) {
        return Some(format!("count: {} is not within 1 to {MOST_MACHINES}", intent.count));
    }
    if intent.min_count > intent.count || intent.min_count == 0 {
        return Some(format!("minCount: {} is not within 1 to count ({})", intent.min_count, intent.count));
    }
    if !(1..=LONGEST_TIMEOUT_SECONDS).contains(&intent.timeout_seconds) {
        return Some(format!(
            "timeoutSeconds: {} is not within 1 to {LONGEST_TIMEOUT_SECONDS}",
            intent.timeout_seconds
        ));
    }
    intent
        .max_runtime_minutes
        .filter(|minutes| !(1..=LONGEST_RUNTIME_MINUTES).contains(minutes))
        .map(|minutes| format!("maxRuntimeMinutes: {minutes} is not within 1 to {LONGEST_RUNTIME_MINUTES}"))
}
