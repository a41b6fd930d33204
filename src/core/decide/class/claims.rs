//! Builds a claim: the machines and the request that takes them.

use crate::model::{
    Cause, Claim, ClaimId, Instance, InstanceArn, Life, Phase, PoolSpec, Request, RequestKey, Threshold,
    after, legal,
};
use crate::yard::target;

use crate::decide::context::Context;
use crate::decide::instance::lendable;
use crate::decide::packages::Packages;
use crate::decide::plan::reason;
use crate::decide::request;
use crate::decide::statement;
use crate::decide::{Planned, RunnerConfig, Step};

/// Most machines in one claim: together with the request, well within DynamoDB's 100 items per transaction.
pub(super) const CLAIM_LIMIT: usize = 40;

/// Claims pooled machines for a request, in one transaction over all versions.
pub(super) fn claim(
    cx: &Context<'_>,
    key: &RequestKey,
    request: &Request,
    spec: &PoolSpec,
    arns: &[InstanceArn],
    packages: Packages<'_>,
) -> Planned {
    let now = cx.now.wall;
    let machines: Vec<Step<Instance>> = arns
        .iter()
        .take(CLAIM_LIMIT)
        .filter_map(|arn| cx.yard.instance(arn))
        .enumerate()
        .map(|(number, tracked)| {
            let mut step = Step::of(&tracked.instance, now, |next| {
                if let Some(delivered) = cx.yard.delivered {
                    next.forget(delivered);
                }
                let id = ClaimId::of(&next.facts.instance_id, next.version);
                next.life = Life::Claimed { run: request.id.run_id.clone() };
                next.claim = Some(Claim { id, request: key.into() });
                next.jobs = spec.granted_jobs();
                next.ahead = lendable(cx, tracked, spec, &request.id.repository);
                // A runner that is registered already has the package that the record names.
                if next.ahead.is_none() {
                    next.runner = packages.for_claim(number);
                }
                next.state_since = now;
                next.threshold = Some(Threshold { at: after(now, cx.policy.timing.claimed), set_at: now });
                next.trust_domain = spec.trust_domain(&request.id.repository);
                next.registration = None;
                next.removal = None;
                next.promotion = None;
                if next.public_key.is_none() {
                    next.public_key = tracked.agent.as_ref().and_then(|agent| agent.public_key.clone());
                }
            });
            if cx.policy.statements {
                statement::keep_domain(&mut step);
            }
            debug_assert!(
                legal(step.before.place(), Cause::Claimed, step.after.place()),
                "a claim is of a pooled machine"
            );
            step
        })
        .collect();
    let gained = machines.iter().map(|step| &step.after);
    let step = Step::of(request, now, |next| {
        request::accept_into(cx, spec, next);
        request::drop_lost(cx, key, request, next);
        next.gain(gained);
        let held = next.status.instances.len() as u32;
        let claimed = format!("{held} of {} claimed", reason::machines(next.intent.count));
        let message = reason::kept(next, target(next).saturating_sub(held), claimed);
        next.progress(Phase::Fulfilling, message);
    });
    let runner = cx.policy.github.then(|| RunnerConfig::of(request, spec));
    Planned::claim(step, machines, runner)
}
