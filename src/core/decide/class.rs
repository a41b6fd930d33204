//! Decides about one class: serves its waiting requests from the pool, launches the machines that are missing, and
//! writes its status.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    AheadStatus, ClassName, Condition, ConditionType, HeldBack, Hours, IdleMachines, Pool, Record, State,
};

use crate::decide::ahead::ahead_lacks;
use crate::decide::capacity;
use crate::decide::context::Context;
use crate::decide::health::beats;
use crate::decide::packages;
use crate::decide::schedule::effective_in;
use crate::decide::{Plan, Planned, Step, WaitReason};
use crate::yard::{Class, Doubt};

mod claims;
mod hung;
mod image;
mod oldest;
mod rebalance;
mod serve;
mod shared;
mod size;
mod tell;
#[cfg(test)]
mod tell_tests;
mod turns;

pub(crate) use shared::places;
pub(crate) use size::too_little;
pub(crate) use tell::is_telling;

/// The shortest interval between two writes of a pool's status.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// The longest interval between two writes of the use of shares, while machines are lent.
const USAGE_EVERY: Duration = Duration::from_secs(30);
/// The interval after which machines that another class may free are checked again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Plans the actions for a class now.
pub(super) fn decide(cx: &Context<'_>, name: &ClassName) -> Plan {
    let Some(class) = cx.yard.class(name) else { return Plan::default() };
    let mut plan = Plan::default();
    if let Some(pool) = &class.pool {
        let looked = serve::serve(cx, name, class, &pool.spec, &mut plan);
        hung::decide(cx, class, &pool.spec, &mut plan);
        if looked {
            tell::tell(cx, name, class, &pool.spec, &mut plan);
        }
        image::resolve(cx, pool, &mut plan);
        packages::adopt(cx, class, pool, &mut plan);
        size::size(cx, name, class, pool, &mut plan);
        report(cx, class, pool, &mut plan);
        if let Some(at) = beats::look_again(cx, class) {
            plan.wake_at(at);
        }
        if !class.leaving.drifted.is_empty()
            && let Hours::ClosedUntil(opening) = pool.spec.replacement.hours_at(cx.now.wall)
        {
            plan.wake_at(cx.now.when(opening));
        }
        let end = cx.yard.runner.as_ref().and_then(|runner| runner.end.first());
        if let Some(at) = end.filter(|at| *at > cx.now.wall) {
            plan.wake_at(cx.now.when(at));
        }
        if let Some(until) = effective_in(class, pool, cx.now.wall).until {
            plan.wake_at(cx.now.when(until));
        }
    }
    plan
}

/// The contents of a class's status.
struct Report<'a> {
    idle: IdleMachines,
    desired: u32,
    /// How many of the next `desired` requests would find no machine.
    lack: u32,
    held_back: bool,
    /// Why machines that are launched now would be of no use.
    unsupported: Option<String>,
    doubt: Option<Doubt>,
    /// How many idle machines have agents whose records cannot be read.
    unread_agents: usize,
    /// The runner package that failed and is held back.
    held_back_runner: Option<&'a HeldBack>,
    /// When GitHub's support for the runner version of its claims ends, if that is soon.
    runner_ends: Option<String>,
    /// How many of its machines are missing from the list of machines, where that is too many to believe the list.
    unbelieved: Option<u32>,
    /// How many actions can never succeed, and the first of them.
    stuck: Option<(usize, &'a str)>,
}

impl<'a> Report<'a> {
    fn of(cx: &Context<'a>, class: &Class, pool: &'a Pool) -> Self {
        let desired = effective_in(class, pool, cx.now.wall).desired;
        Self {
            idle: idle_machines(class),
            desired,
            lack: capacity::idle_lack(class, desired),
            held_back: cx.now.mono < class.backoff.until,
            unsupported: capacity::unsupported(cx, &pool.spec),
            held_back_runner: cx
                .policy
                .following
                .of(&pool.spec.launch)
                .and(pool.status.runner.held_back.as_ref()),
            runner_ends: packages::ends_soon(cx, pool),
            unread_agents: class.idle.unread_agents.len(),
            doubt: class.beats.doubt(&cx.now, cx.policy.timing.stale),
            unbelieved: class
                .unbelieved(cx.now.wall.saturating_sub(cx.policy.timing.orphan).unwrap_or(Timestamp::MIN)),
            stuck: cx.yard.stuck_in(&pool.spec.resource_class),
        }
    }

    /// Describes how many of the desired machines are idle, and whether they are for other trust domains than those
    /// that ask.
    fn idle_of_desired(&self) -> String {
        let (idle, desired, lack) = (self.idle.idle, self.desired, self.lack);
        // With room for any numbers: a longer number must not cost another allocation.
        let mut told = String::with_capacity(96);
        let _ = write!(told, "{idle} idle of {desired} wanted");
        if idle >= desired && lack > 0 {
            let _ = write!(told, ", {lack} lacking for other trust domains that ask");
        }
        told
    }

    /// Returns the one sentence that a person should read first.
    fn message(&self, cx: &Context<'_>, class: &Class, pool: &Pool, plan: &mut Plan) -> String {
        let idle = self.idle_of_desired();
        if let Some(gone) = self.unbelieved {
            let message = disbelieved(gone, class);
            plan.wait(pool.key(), WaitReason::Doubt, message.clone());
            message
        } else if let Some(doubt) = self.doubt {
            plan.wait(pool.key(), WaitReason::Doubt, beats::told(doubt));
            beats::told(doubt)
        } else if let Some((_, stuck)) = self.stuck {
            stuck.to_owned()
        } else if let Some(why) = &self.unsupported {
            format!("{idle}; launches are held back: {why}")
        } else if self.held_back {
            format!(
                "{idle}; launches are held back after {} failures{}",
                class.backoff.failures,
                capacity::refused(class)
            )
        } else if self.unread_agents > 0 {
            plan.wait(pool.key(), WaitReason::Doubt, newer_agents(self.unread_agents));
            format!("{idle}; {}", newer_agents(self.unread_agents))
        } else if let Some((offering, backoff)) = class.backing_off(cx.now.mono).next() {
            plan.wake_at(backoff.until);
            format!("{idle}; {}", capacity::account(offering, backoff.until, &cx.now))
        } else {
            let (mut message, live, max) = (idle, class.live(), pool.spec.max);
            let _ = write!(message, ", {live} live of at most {max}");
            if let Some(ends) = &self.runner_ends {
                let _ = write!(message, "; {ends}");
            }
            message
        }
    }

    /// Returns the conditions of a class: their types, whether they hold, and their reasons.
    fn kinds(&self) -> [Option<(ConditionType, bool, &'static str)>; 6] {
        let blocked = match &self.unsupported {
            Some(_) => (ConditionType::Blocked, true, capacity::DEPRECATED),
            None => (ConditionType::Blocked, self.held_back, "Launches"),
        };
        [
            Some((ConditionType::Warm, self.lack == 0, "Idle")),
            Some(blocked),
            match (self.unbelieved, self.doubt, self.unread_agents) {
                (Some(_), _, _) => Some((ConditionType::Doubtful, true, "Inventory")),
                (None, Some(_), _) => Some((ConditionType::Doubtful, true, "Silence")),
                (None, None, 1..) => Some((ConditionType::Doubtful, true, "NewerAgents")),
                (None, None, 0) => None,
            },
            self.held_back_runner.map(|_| (ConditionType::RunnerHeldBack, true, "TrialFailed")),
            self.runner_ends.as_ref().map(|_| (ConditionType::RunnerEnds, true, "EndOfLife")),
            self.stuck.map(|_| (ConditionType::Stuck, true, "Repeats")),
        ]
    }

    /// Returns whether a pool already has these conditions, regardless of the numbers in their messages.
    fn is_told(&self, pool: &Pool) -> bool {
        let told =
            pool.status.conditions.iter().map(|one| (one.condition_type, one.status, one.reason.as_str()));
        told.eq(self.kinds().into_iter().flatten())
    }

    fn conditions(&self, cx: &Context<'_>, class: &Class, pool: &Pool) -> Vec<Condition> {
        let failures = || format!("{} failures in a row{}", class.backoff.failures, capacity::refused(class));
        let messages = [
            Some(self.idle_of_desired()),
            Some(self.unsupported.clone().unwrap_or_else(failures)),
            self.unbelieved
                .map(|gone| disbelieved(gone, class))
                .or_else(|| self.doubt.map(beats::told))
                .or_else(|| (self.unread_agents > 0).then(|| newer_agents(self.unread_agents))),
            self.held_back_runner.map(|held| format!("runner {}: {}", held.package.version, held.message)),
            self.runner_ends.clone(),
            self.stuck.map(|(actions, first)| {
                let more = if actions > 1 { format!(" (and {} more)", actions - 1) } else { String::new() };
                format!("{first}{more}")
            }),
        ];
        let told = self.kinds().into_iter().zip(messages);
        told.filter_map(|(kind, message)| {
            let (kind, status, reason) = kind?;
            Some(Condition::since(&pool.status.conditions, kind, status, reason, message?, cx.now.wall))
        })
        .collect()
    }
}

/// Describes the idle machines whose agents write records that this program cannot read.
fn newer_agents(count: usize) -> String {
    let machines = if count == 1 { "1 idle machine".to_owned() } else { format!("{count} idle machines") };
    format!(
        "{machines} cannot be claimed: the record of the agent is of a newer form than this operator reads; \
         `runyard doctor` names them, update the operators"
    )
}

/// Counts the idle machines of a class by trust domain, including those on their way to its pool.
fn idle_machines(class: &Class) -> IdleMachines {
    let (pooled, coming) = (&class.idle.pooled, &class.idle.coming);
    let mut domains = pooled.domains.clone();
    for (domain, count) in &coming.domains {
        *domains.entry(domain.clone()).or_default() += count;
    }
    IdleMachines::of(pooled.anybody + coming.anybody, domains, pooled.assigned + coming.assigned)
}

/// Describes a class with more machines missing from the provider's list than can be believed.
fn disbelieved(gone: u32, class: &Class) -> String {
    let live = class.live();
    format!(
        "the list of machines lacks {gone} of {live}: too many to believe it, none is ended for that; `runyard doctor` tells more"
    )
}

/// Writes the status of a pool when it changed, at most once per [`REPORT_EVERY`].
fn report(cx: &Context<'_>, class: &Class, pool: &Pool, plan: &mut Plan) {
    let mut counts = crate::model::Counts::new();
    for state in State::ALL.iter().filter(|state| state.live()) {
        counts.insert(*state, class.counts.get(state).copied().unwrap_or(0));
    }
    let report = Report::of(cx, class, pool);
    let message = report.message(cx, class, pool, plan);
    let unwritten = class.shares.unwritten();
    let used = unwritten.is_some_and(|since| cx.now.mono >= since + USAGE_EVERY);
    let refused = cx.yard.refused_labels.get(&pool.spec.resource_class);
    if let Some((until, _)) = refused.and_then(|refused| refused.now(cx.now.mono)) {
        plan.wake_at(until);
    }
    if let Some(since) = unwritten.filter(|_| cx.role.lease.is_some()) {
        plan.wake_at(since + USAGE_EVERY);
    }
    let ahead = |told: &AheadStatus| told.tells(ahead_lacks(cx, &pool.spec));
    let told = report.is_told(pool) && pool.status.ahead.as_ref().is_some_and(ahead);
    let counted = pool.status.counts == counts && pool.status.idle.as_ref() == Some(&report.idle);
    let same = counted && pool.status.message == message && told && !used;
    // A plan that already writes the pool, such as to pin an image, goes first.
    let pinning = plan.actions.iter().any(|planned| planned.holds(pool.key()));
    if same || pinning || cx.yard.is_busy(pool.key()) || cx.role.lease.is_none() {
        return;
    }
    if let Some(reported) = class.reported
        && cx.now.mono < reported + REPORT_EVERY
    {
        plan.wake_at(reported + REPORT_EVERY);
        return;
    }
    let step = Step::of(pool, cx.now.wall, |next| {
        next.status.counts = counts;
        next.status.idle = Some(report.idle.clone());
        next.status.message = message;
        next.status.conditions = report.conditions(cx, class, pool);
        next.status.ahead = Some(AheadStatus::of(ahead_lacks(cx, &pool.spec)));
        if unwritten.is_some() {
            next.status.usage = class.shares.usage(cx.now.wall, cx.now.mono);
        }
    });
    plan.actions.push(Planned::pool(step));
}

#[cfg(test)]
mod tests;
