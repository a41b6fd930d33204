//! Reports why a request waits: writes the one reason that a person can act on into its `message`. It is written when
//! the reason changes, not when a number changes, and reading it needs no permission but to read the request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::decide::capacity;
use crate::decide::context::Context;
use crate::decide::plan::reason::{base, machines, of, waits};
use crate::decide::request::leaves_queue;
use crate::decide::{Note, Plan, Planned, Step, WaitReason};
use crate::model::{ClassName, Phase, PoolSpec, RecordId, Request, RequestKey};
use crate::yard::{Class, Demand, ShareName, gives_back, lacking, share_of};

/// The event reasons: a request waits, and it goes on.
const TOLD: &str = "Waits";
const OVER: &str = "GoesOn";
/// How long after a request's last write its reason is first written: most requests are served before.
const FIRST: Duration = Duration::from_secs(2);
/// The shortest interval between two writes of a request's reason.
const EVERY: Duration = Duration::from_secs(10);
/// How many requests of a queue get a reason: the oldest. Later requests wait for the same reason, and writing each of
/// thousands would be a storm of its own.
const REPORTED_REQUESTS: usize = 32;

/// Writes the reason why the oldest requests of a class wait, where their records do not state it yet. A request that
/// the pass did not reach gets the reason of another request of the same demand.
pub(super) fn tell(cx: &Context<'_>, name: &ClassName, class: &Class, spec: &PoolSpec, plan: &mut Plan) {
    let line = class.waiting.all();
    if line.is_empty() || cx.role.lease.is_none() {
        return;
    }
    let mut reasons: BTreeMap<&RequestKey, WaitReason> = BTreeMap::new();
    for wait in plan.waits.iter().filter(|wait| rank(wait.reason).is_some()) {
        let Some(request) = wait.subject.request() else { continue };
        let first = reasons.entry(request).or_insert(wait.reason);
        if rank(wait.reason) < rank(*first) {
            *first = wait.reason;
        }
    }
    let mut alike: BTreeMap<Demand, WaitReason> = BTreeMap::new();
    // A quota applies to its own share, whatever other requests of the same demand wait for.
    let share = |key: &RequestKey| Some(share_of(spec.sharing.as_ref()?, cx.yard.request(key)?));
    let over = reasons.iter().filter(|(_, reason)| **reason == WaitReason::Quota);
    let over: BTreeSet<ShareName> = over.filter_map(|(key, _)| share(key)).collect();
    for (key, reason) in reasons.iter().filter(|(_, reason)| **reason != WaitReason::Quota) {
        alike.extend(cx.yard.request(key).map(|request| (Demand::of(request, spec), *reason)));
    }
    // A request that is being served at this moment does not wait.
    let busy =
        plan.waits.iter().filter(|wait| wait.reason == WaitReason::Busy).map(|wait| wait.subject.clone());
    let written: BTreeSet<RecordId> =
        plan.actions.iter().flat_map(Planned::records).cloned().chain(busy).collect();
    let (mut told, mut said) = (Plan::default(), BTreeMap::<WaitReason, String>::new());
    let oldest = line.iter().map(|(_, key)| key).take(REPORTED_REQUESTS);
    for key in oldest.filter(|key| !written.contains(&RecordId::from(*key)) && !cx.yard.is_busy(*key)) {
        let Some(request) = cx.yard.request(key) else { continue };
        if request.status.phase.is_none() || gives_back(request) || leaves_queue(cx, request) {
            continue;
        }
        let of_share = || share(key).filter(|share| over.contains(share)).map(|_| WaitReason::Quota);
        let of_demand = || alike.get(&Demand::of(request, spec)).copied();
        let reason = reasons.get(key).copied().or_else(of_share).or_else(of_demand);
        let why = reason.and_then(|reason| Some((reason, told_of(reason)?)));
        let why = why.map(|(reason, (_, say))| said.entry(reason).or_insert_with(|| say(name, class, spec)));
        tell_one(cx, key, request, why.map(|why| why.as_str()), &mut told);
    }
    plan.actions.append(&mut told.actions);
    if let Some(wake) = told.wake {
        plan.wake_at(wake);
    }
}

fn tell_one(cx: &Context<'_>, key: &RequestKey, request: &Request, why: Option<&str>, plan: &mut Plan) {
    let said = of(&request.status.message);
    let lack = lacking(cx.yard, key, request);
    let why = why.filter(|_| lack > 0);
    if said == why {
        return;
    }
    let written = request.updated_at.and_then(|at| Duration::try_from(cx.now.wall.duration_since(at)).ok());
    let patience = if said.is_some() { EVERY } else { FIRST };
    if let Some(since) = written.filter(|since| *since < patience) {
        plan.wake_at(cx.now.mono + (patience - since));
        return;
    }
    let message = match why {
        Some(why) => waits(request, lack, why),
        None if request.phase() == Phase::Ready => base(&request.status.message).to_owned(),
        None => format!("{} of {} bound", request.status.instances.len(), machines(request.intent.count)),
    };
    let note = Note::normal(if why.is_some() { TOLD } else { OVER }, message.clone());
    let step = Step::of(request, cx.now.wall, |next| next.status.message = message);
    plan.actions.push(Planned::request(step, note));
}

/// Returns whether an action only writes a reason. That depends on the operator's memory, so no other program can
/// predict it.
pub(crate) fn is_telling(action: &Planned) -> bool {
    action.note().is_some_and(|note| [TOLD, OVER].contains(&note.reason))
}

/// Returns the rank and the sentence of a reason that is reported; the lowest rank wins. The sentence contains nothing
/// that changes while the reason holds. Returns none for reasons that pass by themselves or are reported by the next
/// action.
fn told_of(reason: WaitReason) -> Option<(u8, Sentence)> {
    match reason {
        WaitReason::Paused => Some((0, |name, _, _| format!("class {name} is paused"))),
        WaitReason::AtMax => Some((1, |name, class, spec| {
            let kept = capacity::kept_for(class, spec);
            let kept = kept.map_or_else(String::new, |whom| format!("; idle machines are kept for {whom}"));
            format!("class {name} is at its max of {}{kept}", spec.max)
        })),
        WaitReason::Quota => Some((0, |name, _, _| {
            format!("its share has all the machines that its quota in class {name} allows")
        })),
        WaitReason::BackOff => Some((2, |name, class, _| {
            format!("launches of class {name} are held back after failures{}", capacity::refused(class))
        })),
        WaitReason::Image => {
            Some((2, |name, _, _| format!("which image class {name} is launched from is not known yet")))
        }
        WaitReason::Runner => Some((0, |name, _, _| {
            format!("class {name} is held back: GitHub takes no runner of its version any more")
        })),
        WaitReason::NoCapacity => {
            Some((3, |name, _, _| format!("EC2 has no capacity for class {name} at the moment")))
        }
        WaitReason::Busy
        | WaitReason::Starting
        | WaitReason::Cleaning
        | WaitReason::Behind
        | WaitReason::NotLeader
        | WaitReason::Agent
        | WaitReason::Deadline
        | WaitReason::Mismatch
        | WaitReason::GitHub
        | WaitReason::Doubt => None,
    }
}

/// Formats a reason of a class.
type Sentence = fn(&ClassName, &Class, &PoolSpec) -> String;

fn rank(reason: WaitReason) -> Option<u8> {
    told_of(reason).map(|(rank, _)| rank)
}
