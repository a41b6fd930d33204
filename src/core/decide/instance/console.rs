//! Reads the console of a machine that ended before it was of use: it shows the cause when no other source is left.

use std::time::Duration;

use crate::decide::context::Context;
use crate::decide::{AtGitHub, Note, Plan, Planned, Step};
use crate::model::{Life, Reason, Slot, after, says_why};
use crate::yard::Tracked;

/// The pauses between two reads: EC2 posts a console some minutes after the machine's end.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(240),
    Duration::from_secs(300),
];
/// How long after the end of a machine its console is read. EC2 keeps it for an hour.
const WORTH: Duration = Duration::from_secs(1200);

/// Plans a read of the console and the record of its contents, in addition to the actions already planned for the
/// machine.
pub(super) fn decide(cx: &Context<'_>, tracked: &Tracked, plan: &mut Plan) {
    let instance = &tracked.instance;
    let arn = &instance.facts.instance_arn;
    if instance.console.is_some() || !cx.policy.inventory || !ended_young(tracked) {
        return;
    }
    let (last, times) = tracked.console_read.unwrap_or((Duration::ZERO, 0));
    let pause = (times > 0).then(|| PAUSES.get(times as usize - 1)).map(|pause| pause.copied());
    let over = after(instance.state_since, WORTH) <= cx.now.wall || pause == Some(None);
    if let Some(line) = &tracked.console_line
        && (over || says_why(line))
    {
        if plan.actions.is_empty() {
            let step = Step::of(instance, cx.now.wall, |next| next.console = Some(line.clone()));
            let note = Note::warning("ConsoleRead", format!("its console says: {line}"));
            plan.actions.push(Planned::instance(step, note, AtGitHub::Nothing));
        }
        return;
    }
    if over || cx.yard.is_busy(Slot::Console(arn.clone())) {
        return;
    }
    let due = last + pause.flatten().unwrap_or_default();
    if cx.now.mono >= due {
        plan.actions.push(Planned::console(arn.clone()));
    } else {
        plan.wake_at(due);
    }
}

/// Returns whether it ended without having been of use to any request. A machine that passed its deadline counts only
/// if its agent never reported its boot, because free machines end by their deadlines every day.
fn ended_young(tracked: &Tracked) -> bool {
    let Life::Terminated { reason, .. } = tracked.instance.life else { return false };
    let silent = tracked.instance.public_key.is_none()
        || tracked.agent.as_ref().is_some_and(|agent| agent.signal.is_none());
    tracked.instance.uses == 0
        && match reason {
            Reason::BootFailed | Reason::RegistrationFailed | Reason::Unhealthy | Reason::Vanished => true,
            Reason::Threshold => silent,
            Reason::CleanupFailed
            | Reason::Interrupted
            | Reason::Drifted
            | Reason::Surplus
            | Reason::MaxUses
            | Reason::MaxAge
            | Reason::Expired
            | Reason::Orphan => false,
        }
}
