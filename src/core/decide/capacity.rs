//! Plans the launches of a class: first the machines that its waiting requests lack, the oldest request first, then
//! idle machines. It never launches more than `max` allows, and never during a backoff.

use std::collections::BTreeSet;

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    ClassName, Hours, Instance, InstanceArn, LAUNCH_LIMIT, Launch, LaunchId, LaunchPhase, Pool, PoolSpec,
    Rebalance, RecordId, Request, RequestKey, Slot, UsageClass, after,
};

use crate::decide::context::Context;
use crate::decide::health::boots;
use crate::decide::packages;
use crate::decide::plan::reason::{are, machines};
use crate::decide::schedule::effective_in;
use crate::decide::{Plan, Planned, WaitReason};
use crate::yard::{BackoffKind, Class, Now, Offering};

mod room;
mod warm;

use room::Room;
pub(super) use room::kept_for;
pub(crate) use warm::idle_lack;
pub(super) use warm::{counts_whole, enough};
use warm::{leaving, short};

/// The id of a launch that has no id yet; the executor generates one.
pub(super) const UNNAMED: &str = "unnamed";

/// Most actions planned for a class at once; the rest follows when these are done.
const LAUNCHES_AT_ONCE: usize = 500;

/// Most requests that one pass plans launches for: a class writes one intent at a time, and the other requests are
/// planned again after it.
const REQUESTS_AT_ONCE: usize = 64;

/// Returns whether a machine is older than its class allows.
pub(super) fn too_old(instance: &Instance, spec: &PoolSpec, now: Timestamp) -> bool {
    after(instance.facts.created_at, Duration::from_secs(spec.max_age_seconds)) <= now
}

/// Returns whether a machine has expired, so that its class wants another in its place.
pub(super) fn retiring(instance: &Instance, spec: &PoolSpec, now: Timestamp) -> bool {
    spec.used_up(instance)
        || too_old(instance, spec, now)
        || instance.expired_by.is_some()
        || instance.hold.is_some()
}

/// Selects the idle machines of a class that are to be replaced now, because they drifted or EC2 expects to take them
/// back: the oldest first, as many as `atOnce` allows, less those that are already ending. Returns none while launches
/// back off, and outside the class's hours only machines at risk.
pub(super) fn giving_way<'a>(cx: &Context<'_>, class: &'a Class) -> BTreeSet<&'a InstanceArn> {
    let Some(spec) = class.pool.as_ref().map(|pool| &pool.spec) else { return BTreeSet::new() };
    let at_risk = (cx.policy.rebalance == Rebalance::Last).then_some(&class.leaving.at_risk);
    let at_risk = at_risk.filter(|at_risk| !at_risk.is_empty());
    if class.leaving.drifted.is_empty() && at_risk.is_none()
        || spec.paused
        || cx.now.mono < class.backoff.until
    {
        return BTreeSet::new();
    }
    let open = spec.replacement.hours_at(cx.now.wall) == Hours::Open;
    let drifted = open.then_some(&class.leaving.drifted);
    let at_once = (spec.replacement.at_once as usize).saturating_sub(class.leaving.departing.len());
    at_risk.into_iter().chain(drifted).flatten().take(at_once).map(|(_, arn)| arn).collect()
}

/// The launches of a class: collected request by request, the oldest first, and planned at the end.
pub(super) struct Launches<'a> {
    cx: &'a Context<'a>,
    name: &'a ClassName,
    class: &'a Class,
    spec: &'a PoolSpec,
    /// How many more machines `max` allows.
    room: u32,
    /// The idle machines that may end to make room, computed once a request lacks room.
    more: Option<Room<'a>>,
    /// For which request (none for an idle machine), with which offering, and how many machines.
    wanted: Vec<(Option<&'a RequestKey>, Offering, u32)>,
}

impl<'a> Launches<'a> {
    /// Creates an empty set of launches.
    pub(super) fn of(cx: &'a Context<'a>, name: &'a ClassName, class: &'a Class, spec: &'a PoolSpec) -> Self {
        let room = spec.max.saturating_sub(class.taken());
        Self { cx, name, class, spec, room, more: None, wanted: Vec::new() }
    }

    /// Returns the room beyond `max` that ending idle machines would make; none where nothing would be launched in
    /// their place, or where the class would still be over `max`.
    fn more(&mut self) -> Option<&mut Room<'a>> {
        if self.blocked() || self.class.taken() > self.spec.max {
            return None;
        }
        let (cx, class, spec) = (self.cx, self.class, self.spec);
        Some(self.more.get_or_insert_with(|| Room::of(cx, class, spec)))
    }

    /// Returns the idle machines that end for waiting requests.
    pub(super) fn ends(&mut self) -> Vec<&'a InstanceArn> {
        self.more.take().map(Room::ends).unwrap_or_default()
    }

    /// Adds the machines that a request lacks to the launches, as far as `max` allows. Room is reserved only for
    /// machines that may be launched now: a request whose offering is not available does not hold up younger requests
    /// that want another offering. Returns whether the next request of the same demand may be launched for as well.
    pub(super) fn ask(&mut self, key: &'a RequestKey, request: &Request, lack: u32, plan: &mut Plan) -> bool {
        let coming = self.class.in_flight.of(Some(key));
        if coming > 0 {
            plan.wait(
                key,
                WaitReason::Starting,
                format!("{} {} being launched for it", machines(coming), are(coming)),
            );
        }
        let need = lack.saturating_sub(coming);
        if need == 0 {
            return true;
        }
        if self.wanted.len() >= REQUESTS_AT_ONCE {
            plan.wait(key, WaitReason::Behind, "machines are launched for older requests first");
            return false;
        }
        let usage = usage_of(self.cx, self.class, request, self.spec);
        let offering = Offering { usage, types: own_types(Some(request)) };
        if let Some(until) = self.class.backoff_until(&offering, self.cx.now.mono) {
            plan.wake_at(until);
            let (reason, why) = held_back(self.class, &offering, until, &self.cx.now);
            plan.wait(key, reason, why);
            return false;
        }
        let take = need.min(self.room);
        let made = self.make_room(need - take);
        if need > take {
            let kept = self.more.as_ref().map_or_else(String::new, |more| more.told(made));
            let full =
                format!("class {} has as many machines as max allows ({}){kept}", self.name, self.spec.max);
            if self.wanted.is_empty() {
                plan.wait(key, WaitReason::AtMax, full);
            } else {
                let why = format!("older requests come first, and with what is launched for them {full}");
                plan.wait(key, WaitReason::Behind, why);
            }
        }
        if take > 0 {
            self.room -= take;
            self.wanted.push((Some(key), offering, take));
        }
        need == take + made && !self.blocked()
    }

    /// Ends idle machines to make room for the machines that a request lacks; returns how many.
    fn make_room(&mut self, lack: u32) -> u32 {
        if lack == 0 {
            return 0;
        }
        self.more().map_or(0, |more| more.make(lack))
    }

    /// Returns whether nothing more is launched for any request.
    pub(super) fn is_closed(&mut self) -> bool {
        let more = self.room > 0 || self.more().is_some_and(Room::is_left);
        !more || self.wanted.len() >= REQUESTS_AT_ONCE || self.blocked()
    }

    /// Returns whether the class launches nothing now.
    fn blocked(&self) -> bool {
        let writing = self.cx.yard.is_busy(Slot::Launches(self.name.clone()));
        let backs_off = self.cx.now.mono < self.class.backoff.until;
        let useless = unsupported(self.cx, self.spec).is_some();
        writing
            || backs_off
            || useless
            || self.spec.paused
            || self.unresolved()
            || self.cx.role.lease.is_none()
    }

    /// Returns whether it is not known yet which image the class's parameter names.
    fn unresolved(&self) -> bool {
        self.spec.launch.parameter().is_some() && self.class.digest.is_none()
    }

    /// Adds the launches to the plan: first for requests, then for idle machines.
    pub(super) fn plan(mut self, plan: &mut Plan) {
        let (cx, spec) = (self.cx, self.spec);
        let warm = warm_lack(cx, self.class).min(self.room);
        if warm > 0 {
            self.wanted.push((None, Offering { usage: spec.usage_class, types: Vec::new() }, warm));
        }
        if self.wanted.is_empty() {
            return;
        }
        let Some(token) = self.may_launch(plan) else { return };
        for (request, offering, count) in self.wanted {
            if let Some(until) = self.class.backoff_until(&offering, cx.now.mono) {
                plan.wake_at(until);
                let why = account(&offering, until, &cx.now);
                plan.wait(Pool::key_of(self.name), WaitReason::NoCapacity, why);
                continue;
            }
            for part in parts(count) {
                if plan.actions.len() >= LAUNCHES_AT_ONCE {
                    return;
                }
                let launch = intent(cx, self.name, offering.usage, part, request.cloned());
                plan.actions.push(Planned::intend(launch, token));
            }
        }
    }

    /// Returns the token of the lease that a launch needs; none when the class launches nothing now, and then adds the
    /// reason to the plan.
    fn may_launch(&self, plan: &mut Plan) -> Option<u64> {
        let (cx, pool_key) = (self.cx, Pool::key_of(self.name));
        if cx.yard.is_busy(Slot::Launches(self.name.clone())) {
            plan.wait(&pool_key, WaitReason::Busy, "a launch of the class is being written");
            return None;
        }
        if self.spec.paused {
            plan.wait(&pool_key, WaitReason::Paused, format!("class {} is paused", self.name));
            return None;
        }
        let requests = || self.wanted.iter().filter_map(|(key, ..)| key.map(RecordId::from));
        let subjects = || requests().chain([pool_key.clone()]);
        if self.unresolved() {
            let named = self.spec.launch.parameter().unwrap_or_default();
            let message = format!("it is not known yet which image {named} names");
            subjects().for_each(|subject| plan.wait(subject, WaitReason::Image, message.as_str()));
            return None;
        }
        if let Some(why) = unsupported(cx, self.spec) {
            subjects().for_each(|subject| plan.wait(subject, WaitReason::Runner, why.as_str()));
            return None;
        }
        if cx.now.mono < self.class.backoff.until {
            let failures = self.class.backoff.failures;
            let why = refused(self.class);
            plan.wake_at(self.class.backoff.until);
            let message = format!("launches are held back after {failures} failures{why}");
            subjects().for_each(|subject| plan.wait(subject, WaitReason::BackOff, message.as_str()));
            return None;
        }
        if cx.role.lease.is_none() {
            let message = "the operator that holds the lease launches";
            subjects().for_each(|subject| plan.wait(subject, WaitReason::NotLeader, message));
        }
        cx.role.lease
    }
}

/// Returns the usage class to launch for a request: the wanted one, or on-demand where the request allows the fallback
/// and spot has no capacity.
fn usage_of(cx: &Context<'_>, class: &Class, request: &Request, spec: &PoolSpec) -> UsageClass {
    let spot = Offering { usage: UsageClass::Spot, types: own_types(Some(request)) };
    let done_without = || {
        class.scarce(&request.id)
            || class.backoff_until(&spot, cx.now.mono).is_some()
            || class.backs_off(BackoffKind::Spot, cx.now.mono)
    };
    match request.intent.usage_class.unwrap_or(spec.usage_class) {
        UsageClass::Spot if request.intent.on_demand_fallback && done_without() => UsageClass::OnDemand,
        wanted @ (UsageClass::Spot | UsageClass::OnDemand) => wanted,
    }
}

/// Returns whether the offering that a request wants backs off.
pub(super) fn barred(cx: &Context<'_>, class: &Class, request: &Request, spec: &PoolSpec) -> bool {
    let usage = usage_of(cx, class, request, spec);
    class.backoff_until(&Offering { usage, types: own_types(Some(request)) }, cx.now.mono).is_some()
}

/// Returns EC2's error message, where EC2 refused the types or offering that the request itself chose twice since the
/// request was accepted.
pub(super) fn refused_choice<'a>(
    cx: &Context<'_>,
    class: &'a Class,
    request: &Request,
    spec: &PoolSpec,
) -> Option<&'a str> {
    if class.offerings.is_empty() {
        return None;
    }
    let own = !own_types(Some(request)).is_empty() || request.intent.usage_class.is_some();
    let accepted_at = request.status.accepted_at.filter(|_| own)?;
    let usage = usage_of(cx, class, request, spec);
    class.refusal_of(&Offering { usage, types: own_types(Some(request)) })?.twice_since(accepted_at)
}

/// Returns the types that a request allows in place of its class's types.
fn own_types(request: Option<&Request>) -> Vec<String> {
    request.and_then(|request| request.intent.allowed_instance_types.clone()).unwrap_or_default().0
}

/// Splits a count into portions of at most the number of machines that one launch may ask for.
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
    request: Option<RequestKey>,
) -> Launch {
    let id = LaunchId::parse(UNNAMED).expect("a plain word is a launch id");
    Launch {
        client_token: Launch::token_of(&id, 1),
        launch_id: id,
        attempt: 1,
        resource_class: class.clone(),
        usage_class: usage,
        count,
        request: request.map(RecordId::Request),
        launch_digest: cx.yard.class(class).and_then(|class| class.digest.clone()),
        phase: LaunchPhase::Intent,
        instances: Vec::new(),
        message: String::new(),
        created_at: cx.now.wall,
        expires_at: None,
        uid: None,
        version: 1,
        updated_at: cx.now.wall,
    }
}

/// The reason of a class's condition `Blocked` where GitHub does not accept runners of its version.
pub(super) const DEPRECATED: &str = "RunnerDeprecated";

/// Returns why machines of a class would be of no use: GitHub does not accept runners of the version that they get. A
/// class with a launch template of its own may get its runner elsewhere.
pub(super) fn unsupported(cx: &Context<'_>, spec: &PoolSpec) -> Option<String> {
    let followed = cx.yard.pool(&spec.resource_class).and_then(|pool| packages::unsupported(cx, pool));
    if let Some(unsupported) = followed {
        return unsupported;
    }
    let ours = spec.launch.launch_template_id.is_none();
    cx.yard.runner.as_ref().filter(|_| ours)?.over(cx.now.wall)
}

/// Counts the idle machines that a class lacks. Machines whose time is over do not count: their replacement comes
/// first.
fn warm_lack(cx: &Context<'_>, class: &Class) -> u32 {
    let Some(pool) = &class.pool else { return 0 };
    let desired = effective_in(class, pool, cx.now.wall).desired;
    let desired = desired.saturating_add(boots::beside(cx, class, &pool.spec, desired));
    let coming = class.in_flight.of(None);
    if class.idle.coming.anybody.saturating_add(coming) >= desired {
        return 0;
    }
    let turn = giving_way(cx, class);
    let lack = short(cx, class, desired, Some(coming), leaving(cx, class, &pool.spec, &turn));
    // Machines that no request can claim are replaced once only: the new ones may be no better.
    lack.saturating_sub((class.idle.unread_agents.len() as u32).saturating_sub(desired))
}

/// Returns why the last launch was refused, as the end of a message; empty if it was not refused.
pub(super) fn refused(class: &Class) -> String {
    match (&class.refusal, &class.last_console) {
        (Some(why), _) => format!("; the last was refused: {why}"),
        (None, Some(line)) => format!("; the console of {line}"),
        (None, None) => String::new(),
    }
}

/// Returns why an offering is not ordered now, as a sentence for people.
fn held_back(class: &Class, offering: &Offering, until: Duration, now: &Now) -> (WaitReason, String) {
    match class.refusal_of(offering) {
        Some(refusal) => {
            let (again, why) = (after(now.wall, until.saturating_sub(now.mono)), refusal.why());
            (WaitReason::BackOff, format!("EC2 refused what it asks for, tried again at {again}: {why}"))
        }
        None => (WaitReason::NoCapacity, account(offering, until, now)),
    }
}

/// Describes the backoff of an offering for people.
pub(super) fn account(offering: &Offering, until: Duration, now: &Now) -> String {
    let again = crate::model::after(now.wall, until.saturating_sub(now.mono));
    let types = if offering.types.is_empty() {
        "any type that will do".to_owned()
    } else {
        offering.types.join(", ")
    };
    format!("no capacity for {} machines ({types}), tried again at {again}", offering.usage)
}

#[cfg(test)]
mod tests;
