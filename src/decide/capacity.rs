//! What is launched for a class: what its waiting requests lack, the oldest first, then what it wants idle; never
//! more than `max` allows, never while a brake is on.

use jiff::Timestamp;

use crate::model::{
    ClassName, Instance, Key, LAUNCH_LIMIT, Launch, LaunchId, LaunchPhase, PoolSpec, Request, UsageClass,
    after,
};

use super::action::{Action, Plan, WaitReason};
use super::context::Context;
use super::schedule::effective;
use super::yard::Class;

/// A launch that was decided and has no name yet; whoever carries it out gives it a fresh one.
pub(super) const UNNAMED: &str = "unnamed";

/// Whether a machine is older than its class allows.
pub(super) fn too_old(instance: &Instance, spec: &PoolSpec, now: Timestamp) -> bool {
    after(instance.facts.created_at, std::time::Duration::from_secs(spec.max_age_seconds)) <= now
}

/// Whether a machine's time is over, so that its class wants another in its place.
pub(super) fn retiring(instance: &Instance, spec: &PoolSpec, now: Timestamp) -> bool {
    let used_up = spec.most_uses().is_some_and(|most| instance.uses >= most);
    used_up || too_old(instance, spec, now) || instance.expired_by.is_some()
}

/// Plans a class's launches. `lacks` are its waiting requests, oldest first, with what they still lack.
pub(super) fn launch(
    cx: &Context<'_>,
    name: &ClassName,
    class: &Class,
    lacks: &[(Key, u32)],
    plan: &mut Plan,
) {
    let Some(pool) = &class.pool else { return };
    let spec = &pool.spec;
    let pool_key = crate::model::Pool::key_of(name);
    let under_way: u32 = cx.yard.open_launches(class).map(|launch| launch.count).sum();
    let mut room = spec.max.saturating_sub(class.live() + under_way);
    let mut wanted: Vec<(Option<Key>, u32)> = Vec::new();
    for (key, lack) in lacks {
        let coming = cx.yard.coming(class, key);
        let need = lack.saturating_sub(coming);
        let take = need.min(room);
        room -= take;
        if take > 0 {
            wanted.push((Some(key.clone()), take));
        }
        if need > take {
            plan.wait(
                key,
                WaitReason::AtMax,
                format!("class {name} has as many machines as max allows ({})", spec.max),
            );
        }
        if coming > 0 {
            plan.wait(key, WaitReason::Starting, format!("{coming} machines are being launched for it"));
        }
    }
    let warm = warm_lack(cx, class).min(room);
    if warm > 0 {
        wanted.push((None, warm));
    }
    if wanted.is_empty() {
        return;
    }
    if spec.paused {
        plan.wait(&pool_key, WaitReason::Paused, format!("class {name} is paused"));
        return;
    }
    if cx.now.mono < class.brake.until {
        let failures = class.brake.failures;
        plan.wake_at(class.brake.until);
        for subject in wanted.iter().filter_map(|(key, _)| key.as_ref()).chain([&pool_key]) {
            plan.wait(
                subject,
                WaitReason::BackOff,
                format!("launches are held back after {failures} failures"),
            );
        }
        return;
    }
    let Some(token) = cx.role.lease else {
        for subject in wanted.iter().filter_map(|(key, _)| key.as_ref()).chain([&pool_key]) {
            plan.wait(subject, WaitReason::NotLeader, "the operator that holds the lease launches");
        }
        return;
    };
    for (request, count) in wanted {
        let usage = request
            .as_ref()
            .and_then(|key| cx.yard.request(key))
            .map_or(spec.usage_class, |request| usage_of(request, spec));
        for part in parts(count) {
            plan.actions
                .push(Action::Intend(Box::new(intent(cx, name, usage, part, request.clone())), token));
        }
    }
}

/// How a request's machines are launched.
fn usage_of(request: &Request, spec: &PoolSpec) -> UsageClass {
    request.intent.usage_class.unwrap_or(spec.usage_class)
}

/// A count in portions of at most what one launch may ask for.
fn parts(count: u32) -> impl Iterator<Item = u32> {
    let full = count / LAUNCH_LIMIT;
    let rest = count % LAUNCH_LIMIT;
    std::iter::repeat_n(LAUNCH_LIMIT, full as usize).chain((rest > 0).then_some(rest))
}

fn intent(
    cx: &Context<'_>,
    class: &ClassName,
    usage: UsageClass,
    count: u32,
    request: Option<Key>,
) -> Launch {
    let id = LaunchId::parse(UNNAMED).expect("a plain word is a launch id");
    Launch {
        client_token: Launch::token_of(&id, 1),
        launch_id: id,
        attempt: 1,
        resource_class: class.clone(),
        usage_class: usage,
        count,
        request,
        phase: LaunchPhase::Intent,
        instances: Vec::new(),
        message: String::new(),
        created_at: cx.now.wall,
        expires_at: None,
        version: 1,
        updated_at: cx.now.wall,
    }
}

/// How many idle machines a class lacks. Those whose time is over do not count: their replacement comes first.
fn warm_lack(cx: &Context<'_>, class: &Class) -> u32 {
    let Some(pool) = &class.pool else { return 0 };
    let desired = effective(pool, cx.now.wall).desired;
    let booting = class.warm_created + class.cleaning;
    let coming: u32 = cx
        .yard
        .open_launches(class)
        .filter(|launch| launch.request.is_none())
        .map(|launch| launch.count)
        .sum();
    let missing = desired.saturating_sub(booting + coming);
    if missing == 0 {
        return 0;
    }
    let young = class.pooled.iter().filter_map(|(_, arn)| cx.yard.instance(arn));
    let young = young.filter(|tracked| !retiring(&tracked.instance, &pool.spec, cx.now.wall));
    missing - young.take(missing as usize).count() as u32
}

/// What requests lack in all.
pub(super) fn total(lacks: &[(Key, u32)]) -> u32 {
    lacks.iter().map(|(_, lack)| lack).sum()
}
