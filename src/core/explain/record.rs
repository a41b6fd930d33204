//! Explains in sentences why a record is in its state, what it waits for, and when it ends.

use crate::decide::{Context, Plan, Policy, Role, WaitReason, effective, idle_lack};
use crate::model::{
    AheadStatus, Asked, ClassName, Condition, ConditionType, InstanceArn, Phase, Pool, RecordId, Request,
    RequestKey, RunnerTrouble, State, kept_of,
};
use crate::yard::{Class, Demand, Now, Tracked, Unit, Yard};

use super::forecast::Place;
use super::{Pace, before, end, forecast, judge, no_end};

/// Explains a request: why it is in its phase, what it waits for, and when it ends.
pub fn explain(yard: &Yard, policy: &Policy, now: Now, role: Role, key: &RequestKey) -> Vec<String> {
    let Some(request) = yard.request(key) else { return vec!["there is no such request".into()] };
    let mut lines = vec![headline(request)];
    if let Some(attempt) = request.status.derived_from {
        lines.push(format!(
            "the operator wrote it as in attempt {attempt}: jobs were re-run, and their workflow does not ask again"
        ));
    }
    if request.intent.asked == Asked::Job {
        lines.push(
            "the operator wrote it for queued jobs with its label, and raises its count with them".into(),
        );
    }
    lines.extend(super::sets::slot(yard, request));
    if let Some(at) = request.status.rerun_requested_at {
        lines.push(format!("a spot machine was taken back: its failed jobs are run again, decided at {at}"));
    }
    if request.phase().is_final() {
        lines.extend(lost(yard, key));
        if request.phase() == Phase::Failed {
            lines.push(format!("`runyard debug request {}` looks for the cause", request.id.run_id));
        }
        return lines;
    }
    if !request.status.message.is_empty() {
        lines.push(request.status.message.clone());
    }
    lines.extend(yard.leaderless(&now).map(|why| format!("waits: no operator leads: {why}")));
    lines.extend(machines(yard, request));
    lines.extend(class(yard, request, now));
    let (mut told, mut stuck) = (Vec::<String>::new(), false);
    for (unit, plan) in judge(yard, policy, now, role) {
        if let Unit::Class(name) = &unit {
            told.extend(alike(yard, name, request, &plan).map(|why| format!("waits: {why}")));
        }
        let about = plan.waits.into_iter().filter(|wait| wait.subject.request() == Some(key));
        for wait in about {
            stuck |= no_end(wait.reason);
            told.push(format!("waits: {}", wait.message));
        }
        let next = plan.actions.iter().filter(|action| action.holds(key));
        told.extend(next.map(|action| format!("next: {}", action.describe())));
    }
    told.sort();
    told.dedup();
    lines.extend(told);
    let shared = super::shares::place(yard, now, request);
    lines.extend(if shared.is_empty() { ahead(yard, request).into_iter().collect() } else { shared });
    let cx = Context { yard, policy, now, role };
    let pace = Pace::of_classes(yard);
    let before = before(yard, now).get(key).copied();
    let pace = pace.get(&request.intent.resource_class);
    let place = Place { pace, before, no_end: stuck };
    lines.extend(forecast(&cx, key, place).map(|told| told.to_string()));
    lines
}

/// Describes the machines that ended while they served a request.
fn lost(yard: &Yard, key: &RequestKey) -> Vec<String> {
    let ended = yard.instances().filter(|tracked| end::lost_by(&tracked.instance) == Some(key));
    let told = ended.filter_map(|tracked| {
        let id = &tracked.instance.facts.instance_id;
        let why = end::ended(&tracked.instance)?;
        Some(format!("machine {id}: terminated: {why}; `runyard debug instance {id}` looks for the cause"))
    });
    told.collect()
}

/// Returns the wait of a request that its class did not reach: that of the last older request with the same demand.
fn alike<'a>(yard: &Yard, name: &ClassName, request: &Request, plan: &'a Plan) -> Option<&'a str> {
    let class = yard.class(name)?;
    let rank = request.queue_position();
    let (_, key) = class.waiting.all().get(&rank)?;
    let written = plan.actions.iter().any(|action| action.holds(key));
    if written || plan.waits.iter().any(|wait| wait.subject.request() == Some(key)) {
        return None;
    }
    let demand = Demand::of(request, &class.pool.as_ref()?.spec);
    let older = class.waiting.demands().get(&demand)?.range(..rank).rev();
    // A quota applies to its own share, whatever other requests of the same demand wait for.
    let about = |older: &RequestKey| {
        let mut waits = plan.waits.iter().filter(|wait| wait.reason != WaitReason::Quota);
        waits.rfind(|wait| wait.subject.request() == Some(older))
    };
    let mut waits = older.filter_map(|(_, older)| about(older));
    waits.next().map(|wait| wait.message.as_str())
}

/// Returns the operator's message about a class without its counts, which are older than the records; empty where
/// nothing remains.
pub fn remark(message: &str) -> &str {
    let numbers = message.split_once(" idle of ").is_some_and(|(idle, _)| idle.parse::<u32>().is_ok());
    if numbers { message.split_once("; ").map_or("", |(_, remark)| remark) } else { message }
}

/// Describes a machine in a sentence; none when it is not known.
pub fn machine(yard: &Yard, arn: &InstanceArn) -> Option<String> {
    let tracked = yard.instance(arn)?;
    let instance = &tracked.instance;
    let place = match (instance.pooled_at(), instance.held(), end::ended(instance)) {
        (Some(_), ..) => "idle, in the pool".to_owned(),
        (None, Some(hold), _) => format!("held for {}, and serves nobody again", hold.by),
        (None, None, Some(why)) => format!("{}: {why}", instance.state()),
        (None, None, None) => instance.state().to_string(),
    };
    let holder = instance.held_by().and_then(RecordId::request);
    let job = super::sets::job_on(tracked).map_or(String::new(), |job| format!(" ({job})"));
    let holder = holder.map_or(String::new(), |id| format!(" for {id}{job}"));
    let until = instance.threshold.map_or(String::new(), |t| format!(", until {}", t.at));
    let said = word(tracked) + &trouble(tracked).unwrap_or_default();
    let (id, class) = (&instance.facts.instance_id, &instance.facts.resource_class);
    let since = instance.state_since;
    let console = instance.console.as_ref();
    let console = console.map_or(String::new(), |line| format!("; its console says: {line}"));
    let wanted = instance.hold.as_ref().filter(|_| instance.held().is_none() && instance.state().live());
    let wanted = wanted.map_or(String::new(), |hold| {
        format!("; {} holds it until {}: it is kept then, and ends without another run", hold.by, hold.until)
    });
    Some(format!("{id} of class {class}: {place}{holder} since {since}{until}; {said}{wanted}{console}"))
}

/// Describes the agent's last signal. The agent record is removed with its machine.
fn word(tracked: &Tracked) -> String {
    match (&tracked.agent, tracked.instance.state()) {
        (None, State::Terminated) => "its agent's record is gone".into(),
        (None, State::Created | State::Claimed | State::Running | State::Idle) => {
            "its agent says nothing yet".into()
        }
        (Some(agent), _) => {
            let signal = agent.signal.map_or("nothing yet", |signal| signal.as_str());
            let detail = agent.signal_detail.as_deref().filter(|detail| !detail.is_empty());
            let detail = detail.map_or(String::new(), |detail| format!(": {detail}"));
            format!("its agent says {signal}{detail}")
        }
    }
}

/// Describes the problem that keeps a machine's runner from listening, and the next step.
fn trouble(tracked: &Tracked) -> Option<String> {
    let trouble = tracked.agent.as_ref()?.runner_trouble.as_ref()?;
    let RunnerTrouble { since, kind, words } = trouble;
    let next = kind.what_next();
    Some(format!("; its runner does not listen since {since} ({kind}): {words}; {next}"))
}

/// Describes a class: its machines, its waiting requests and the machines that it lacks.
pub fn pool(yard: &Yard, now: Now, name: &ClassName) -> Vec<String> {
    let mut lines: Vec<String> = counts(yard, name, now).into_iter().collect();
    let Some(class) = yard.class(name) else { return lines };
    let Some(pool) = &class.pool else { return lines };
    lines.extend(yard.leaderless(&now).map(|why| format!("waits: no operator leads: {why}")));
    if pool.spec.paused {
        lines.push("it is paused: nothing is launched or claimed".into());
    }
    if let Some((since, first)) = class.waiting.all().first() {
        lines.push(match class.waiting.all().len() {
            1 => format!("1 request waits for machines ({first}), since {since}"),
            many => format!("{many} requests wait for machines, the oldest ({first}) since {since}"),
        });
    }
    let (lacks, max) = (lacks(class, pool, now), pool.spec.max);
    if lacks > 0 && class.taken() >= max {
        lines.push(format!(
            "waits: {lacks} more idle machines are wanted, and there are as many machines as max allows ({max})"
        ));
    }
    lines.extend(pool.spec.queue.as_ref().map(|queue| format!("queue: {}", queue.told())));
    let sets = super::sets(yard).into_iter().filter(|set| set.resource_class == *name);
    lines.extend(sets.flat_map(|set| set.told()));
    lines.extend(super::sizing::told(pool, now));
    lines.extend(AheadStatus::of_pool(pool).map(|told| told.message));
    lines
}

/// Returns whether a class lacks nothing: it launches and claims, no request waits for it, and it has the idle machines
/// that it wants.
pub fn is_settled(yard: &Yard, now: Now, name: &ClassName) -> bool {
    let Some(class) = yard.class(name) else { return true };
    let Some(pool) = &class.pool else { return true };
    !pool.spec.paused
        && class.waiting.all().is_empty()
        && lacks(class, pool, now) == 0
        && !pool.status.conditions.iter().any(troubled)
}

/// Returns whether a condition reports a current fault of a class.
pub(super) fn troubled(condition: &Condition) -> bool {
    condition.status
        && match condition.condition_type {
            ConditionType::Blocked
            | ConditionType::Doubtful
            | ConditionType::Stuck
            | ConditionType::Unaccounted
            | ConditionType::Degraded
            | ConditionType::RunnerEnds
            | ConditionType::RunnerHeldBack => true,
            ConditionType::Accepted
            | ConditionType::Ready
            | ConditionType::Warm
            | ConditionType::IntentIgnored
            | ConditionType::Listening
            | ConditionType::RuntimeEnds => false,
        }
}

/// Counts the idle machines that a class lacks; machines that are being cleaned or booted count as present.
fn lacks(class: &Class, pool: &Pool, now: Now) -> u32 {
    idle_lack(class, effective(pool, now.wall).desired)
}

fn headline(request: &Request) -> String {
    let (intent, status) = (&request.intent, &request.status);
    let phase = end::phase(request);
    let mut line =
        format!("{} asks for {} of class {}: {phase}", request.id, intent.count, intent.resource_class);
    if let (Some(deadline), Some(Phase::Pending | Phase::Fulfilling)) = (status.deadline, status.phase) {
        line.push_str(&format!(", fails at {deadline} unless {} run by then", intent.min_count));
    }
    line
}

fn machines(yard: &Yard, request: &Request) -> Vec<String> {
    let held = request.status.instances.iter();
    held.map(|id| match yard.by_id(id) {
        None => format!("machine {id}: no record"),
        Some(tracked) => {
            let instance = &tracked.instance;
            let said = word(tracked);
            let until = instance.threshold.map_or(String::new(), |t| format!(", until {}", t.at));
            let kept = found(yard, request, tracked).unwrap_or_default();
            let trouble = trouble(tracked).unwrap_or_default();
            let (state, since) = (instance.state(), instance.state_since);
            format!("machine {id}: {state} since {since}{until}; {said}{trouble}{kept}")
        }
    })
    .collect()
}

/// Describes the kept directories of its repository that a request's machine had when it was claimed; none where its
/// class keeps nothing.
fn found(yard: &Yard, request: &Request, tracked: &Tracked) -> Option<String> {
    let class = yard.class(&tracked.instance.facts.resource_class)?;
    if class.pool.as_ref()?.spec.keep.is_empty() {
        return None;
    }
    let (agent, repository) = (tracked.agent.as_ref()?, request.id.repository.folded());
    let each = kept_of(&agent.kept, repository.as_str());
    let each: Vec<String> = each.map(|(name, kept)| format!("{name} ({} MiB)", kept.bytes >> 20)).collect();
    Some(match each.as_slice() {
        [] => "; nothing of its repository was kept there".to_owned(),
        each => format!("; kept there of its repository: {}", each.join(", ")),
    })
}

fn class(yard: &Yard, request: &Request, now: Now) -> Option<String> {
    counts(yard, &Yard::class_of(request)?, now)
}

fn counts(yard: &Yard, name: &ClassName, now: Now) -> Option<String> {
    let class = yard.class(name)?;
    let pool = class.pool.as_ref()?;
    let count = |state: State| class.counts.get(&state).copied().unwrap_or(0);
    let said = remark(&pool.status.message);
    let said = if said.is_empty() { String::new() } else { format!("; its operator says: {said}") };
    Some(format!(
        "class {name}: {} in the pool, {} being cleaned, {} starting, {} claimed, {} running; {} live of at most {}, {} wanted idle{said}",
        class.pooled.len(),
        class.cleaning,
        count(State::Created),
        count(State::Claimed),
        count(State::Running),
        class.live(),
        pool.spec.max,
        effective(pool, now.wall).desired
    ))
}

/// Describes how many requests come before a request.
fn ahead(yard: &Yard, request: &Request) -> Option<String> {
    let class = yard.class(&Yard::class_of(request)?)?;
    let rank = request.queue_position();
    class.waiting.all().contains(&rank).then(|| {
        let before = class.waiting.all().range(..&rank).count();
        format!("place in the line of its class: {} (older ones are served first)", before + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Effect;
    use crate::explain::picture;
    use crate::model::{Item, Lease};
    use crate::model::{Record as _, Signal};
    use crate::testing::{Scene, a_minute_each, arn, ask, at, holding, machine, request};

    fn item(value: serde_json::Value) -> Item {
        let item: serde_dynamo::Item = serde_dynamo::to_item(value).unwrap();
        item.into_inner().into_iter().collect()
    }

    #[test]
    fn a_request_at_the_max_of_its_class_is_told_so() {
        let pool = item(serde_json::json!({
            "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 1, "resourceClass": "linux", "max": 1,
        }));
        let ask = |run: &str, at: &str| {
            item(serde_json::json!({
                "pk": format!("request#a/b#{run}"), "sk": "request#default#1", "kind": "request", "version": 2,
                "runId": run, "attempt": 1, "repository": "a/b", "name": "default", "resourceClass": "linux",
                "count": 1, "desired": "provisioned", "generation": 1, "phase": "Pending", "acceptedAt": at,
                "deadline": "2026-01-05T13:00:00Z",
            }))
        };
        let items = [pool, ask("1", "2026-01-05T12:00:00Z"), ask("2", "2026-01-05T12:01:00Z")];
        let (yard, now, _) = picture(&items, "2026-01-05T12:02:00Z".parse().unwrap());
        assert!(yard.pool(&ClassName::parse("linux").unwrap()).is_some());
        assert_eq!(Pool::key_of(&ClassName::parse("linux").unwrap()).sk(), "pool");
        let of = |run| RequestKey { repository: "a/b".parse().unwrap(), ..crate::testing::ask(run) };
        let key = of("2");
        let told = explain(&yard, &a_minute_each(), now, Role { lease: Some(1) }, &key).join("\n");
        assert!(told.contains("as many machines as max allows (1)"), "{told}");
        assert!(told.contains("place in the line of its class: 2"), "{told}");
        let class = super::pool(&yard, now, &ClassName::parse("linux").unwrap()).join("\n");
        assert!(class.contains("2 requests wait") && class.contains("(a/b run 1/default/1)"), "{class}");
        let nobody = of("3");
        assert_eq!(
            explain(&yard, &a_minute_each(), now, Role { lease: None }, &nobody),
            ["there is no such request"]
        );
    }

    #[test]
    fn launches_that_the_operator_says_it_holds_back_are_not_promised() {
        let pool = |status: bool| {
            item(serde_json::json!({
                "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 2, "resourceClass": "linux",
                "max": 5, "desired": 1, "conditions": [{
                    "type": "Blocked", "status": status, "reason": "Launches", "at": at(-9),
                    "message": "3 failures in a row; the last was refused: launch.ami: missing",
                }],
            }))
        };
        let waiting = request("1", 1, serde_json::json!({})).to_item();
        let judged = |status| {
            let (yard, now, _) = picture(&[pool(status), waiting.clone()], at(0));
            let plans = judge(&yard, &a_minute_each(), now, Role { lease: Some(1) });
            let about = explain(&yard, &a_minute_each(), now, Role { lease: Some(1) }, &ask("1"));
            let (actions, waits): (Vec<_>, Vec<_>) =
                plans.into_iter().map(|(_, plan)| (plan.actions, plan.waits)).unzip();
            let launches = actions.concat().iter().any(|action| matches!(action.effect, Effect::Intend(..)));
            let waits = waits.concat().into_iter().filter(|wait| wait.reason == WaitReason::BackOff);
            (launches, waits.collect::<Vec<_>>(), about.join("\n"))
        };
        let (launches, waits, _) = judged(false);
        assert!(launches && waits.is_empty(), "{waits:?}");
        let (launches, waits, about) = judged(true);
        assert!(!launches, "{waits:?}");
        let said = "launches are held back, its operator has said since 2026-01-05T11:59:51Z: 3 failures in a row; \
                    the last was refused: launch.ami: missing";
        let subjects: Vec<_> = waits.iter().map(|wait| (wait.subject.pk(), wait.message.as_str())).collect();
        assert_eq!(subjects, [("request#acme/web#1".into(), said), ("pool#linux".into(), said)]);
        assert!(about.contains(&format!("waits: {said}")), "{about}");
        assert!(about.contains("not before launches, held back after failures, are tried again"), "{about}");
    }

    #[test]
    fn what_waits_is_named_to_programs_by_one_word() {
        let words =
            [(WaitReason::AtMax, "AtMax"), (WaitReason::BackOff, "BackOff"), (WaitReason::GitHub, "GitHub")];
        assert!(words.iter().all(|(reason, word)| reason.as_str() == *word));
    }

    #[test]
    fn who_looks_at_a_picture_stands_where_the_holder_of_the_lease_stands() {
        let lease = |name: &str| {
            item(serde_json::json!({
                "pk": format!("lease#{name}"), "sk": "lease", "kind": "lease", "version": 1, "token": 7,
                "holder": "one", "renewedAt": at(0), "durationSeconds": 15,
            }))
        };
        let role = |items: &[Item]| picture(items, at(1)).2.lease;
        assert_eq!(Lease::key_of(Lease::OPERATOR), RecordId::of(&lease(Lease::OPERATOR)).unwrap());
        assert_eq!(role(&[lease(Lease::OPERATOR)]), Some(7));
        assert_eq!(role(&[lease("somebody")]), None);
        assert_eq!(role(&[]), None);
    }

    /// Creates a class at its `max` with a machine in each state.
    fn full() -> Scene {
        let mut scene = Scene::with(serde_json::json!({"max": 5, "desired": 3}));
        scene.put(&holding("1", 3, &["i-1", "i-2", "i-8"], serde_json::json!({"minCount": 2})));
        scene.put(&request("2", 1, serde_json::json!({"acceptedAt": at(-20)})));
        scene.add(machine("i-1").running(&ask("1")).says(Signal::RegOk));
        scene.add(machine("i-2").claimed(&ask("1")));
        scene.add(machine("i-3").pooled());
        scene.add(machine("i-4").cleaning(&ask("9")));
        scene.add(machine("i-5"));
        scene
    }

    #[test]
    fn a_class_is_told_with_its_counts_who_waits_and_what_it_lacks() {
        let scene = full();
        let told = |scene: &Scene| {
            let mut told = super::pool(&scene.yard, scene.now, &ClassName::parse("linux").unwrap());
            let last = told.pop().unwrap();
            assert!(last.contains("would save") && last.contains("set reuseWithin to repository"), "{last}");
            told
        };
        let counts = "class linux: 1 in the pool, 1 being cleaned, 1 starting, 1 claimed, 1 running; 5 live of at most 5, 3 wanted idle";
        let waiting = "1 request waits for machines (acme/web run 2/default/1), since 2026-01-05T11:59:40Z";
        assert_eq!(told(&scene), [counts, waiting], "three are idle, or will be");
        let mut lacking = scene.clone();
        lacking.pool(2, serde_json::json!({"max": 5, "desired": 5, "paused": true, "counts": {"idle": 1}, "message": "slow"}));
        let lacks =
            "waits: 2 more idle machines are wanted, and there are as many machines as max allows (5)";
        let counts = counts.replace("3 wanted idle", "5 wanted idle; its operator says: slow");
        let paused = "it is paused: nothing is launched or claimed";
        assert_eq!(told(&lacking), [counts.as_str(), paused, waiting, lacks]);
        lacking.pool(3, serde_json::json!({"max": 6, "desired": 5}));
        assert_eq!(told(&lacking).len(), 2, "there is room for another");
        lacking.pool(
            4,
            serde_json::json!({"max": 6, "desired": 5, "queue": {"runLabels": true, "maxSlots": 8}}),
        );
        assert_eq!(told(&lacking)[2], "queue: run labels, at most 8 machines a label, no forks");
        assert_eq!(
            super::pool(&scene.yard, scene.now, &ClassName::parse("mac").unwrap()),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_request_is_told_with_its_machines_and_its_place() {
        let scene = full();
        let told = |run| explain(&scene.yard, &scene.policy, scene.now, scene.role, &ask(run));
        let lines = told("1");
        assert_eq!(
            lines[..4],
            [
                "acme/web run 1/default/1 asks for 3 of class linux: Fulfilling, fails at 2026-01-05T12:08:20Z unless 2 run by then",
                "machine i-1: running since 2026-01-05T11:58:20Z, until 2026-01-05T12:05:00Z; its agent says UD_REG_OK",
                "machine i-2: claimed since 2026-01-05T11:58:20Z, until 2026-01-05T12:05:00Z; its agent says nothing yet",
                "machine i-8: no record",
            ]
        );
        assert!(lines[4].starts_with("class linux: 1 in the pool"), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("place in the line")), "{lines:?}");
        let second = told("2");
        assert!(
            second.contains(&"place in the line of its class: 1 (older ones are served first)".to_owned()),
            "{second:?}"
        );
        let mut over = scene.clone();
        over.put(&request("3", 1, serde_json::json!({"phase": "Failed", "message": "no capacity"})));
        assert_eq!(
            explain(&over.yard, &over.policy, over.now, over.role, &ask("3")),
            [
                "acme/web run 3/default/1 asks for 1 of class linux: Failed: no capacity",
                "`runyard debug request 3` looks for the cause"
            ],
            "what is over waits for nothing"
        );
    }

    #[test]
    fn a_request_for_queued_jobs_says_who_wrote_it() {
        let told = |asked: &str| {
            let mut scene = full();
            scene.put(&request("4", 1, serde_json::json!({"asked": asked})));
            explain(&scene.yard, &scene.policy, scene.now, scene.role, &ask("4"))[1].clone()
        };
        let expected = "the operator wrote it for queued jobs with its label, and raises its count with them";
        assert_eq!(told("job"), expected);
        assert_ne!(told("verb"), expected);
    }

    #[test]
    fn a_class_is_settled_when_it_lacks_nothing_and_nobody_waits() {
        let settled = |spec: serde_json::Value, waits: bool| {
            let mut scene = Scene::with(spec);
            scene.add(machine("i-1").pooled());
            if waits {
                scene.put(&request("1", 1, serde_json::json!({})));
            }
            is_settled(&scene.yard, scene.now, &crate::testing::linux())
        };
        assert!(settled(serde_json::json!({"desired": 1}), false));
        assert!(!settled(serde_json::json!({"desired": 2}), false), "an idle machine is lacking");
        assert!(!settled(serde_json::json!({"desired": 1}), true), "a request waits");
        assert!(!settled(serde_json::json!({"desired": 1, "paused": true}), false), "it is paused");
    }

    #[test]
    fn a_request_is_told_what_each_of_its_machines_kept_of_its_repository() {
        let keeping = |id: &str, repository: &str| {
            let kept = crate::model::Kept {
                repository: repository.to_owned(),
                generation: 2,
                bytes: 3 << 20,
                used_at: at(-50),
            };
            machine(id).claimed(&ask("1")).agent(|agent| drop(agent.kept.insert("npm#2".to_owned(), kept)))
        };
        let told = |spec: serde_json::Value| {
            let mut scene = Scene::with(spec);
            scene.put(&holding("1", 2, &["i-1", "i-2"], serde_json::json!({})));
            scene.add(keeping("i-1", "acme/web"));
            scene.add(keeping("i-2", "acme/api"));
            let lines = explain(&scene.yard, &scene.policy, scene.now, scene.role, &ask("1"));
            lines[1..3].iter().map(|line| line.rsplit("; ").next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            told(serde_json::json!({"keep": [{"name": "npm", "path": "~/.npm"}]})),
            ["kept there of its repository: npm (3 MiB)", "nothing of its repository was kept there"]
        );
        let nothing = "its agent says nothing yet";
        assert_eq!(told(serde_json::json!({})), [nothing, nothing], "its class keeps nothing");
    }

    #[test]
    fn what_an_operator_says_is_told_without_the_numbers_that_the_records_know_better() {
        for (message, beyond) in [
            ("0 idle of 0 wanted, 0 live of at most 8", ""),
            (
                "1 idle of 3 wanted; launches are held back after 3 failures",
                "launches are held back after 3 failures",
            ),
            ("the list of machines lacks 4 of 9: too many", "the list of machines lacks 4 of 9: too many"),
            ("", ""),
        ] {
            assert_eq!(remark(message), beyond);
        }
    }

    #[test]
    fn a_machine_is_told_with_its_holder_and_its_word() {
        let scene = full();
        let told = |name: &str| super::machine(&scene.yard, &arn(name));
        assert_eq!(
            told("i-1").unwrap(),
            "i-1 of class linux: running for acme/web run 1/default/1 since 2026-01-05T11:58:20Z, until 2026-01-05T12:05:00Z; its agent says UD_REG_OK"
        );
        assert_eq!(
            told("i-3").unwrap(),
            "i-3 of class linux: idle, in the pool since 2026-01-05T11:58:20Z, until 2026-01-05T12:28:20Z; its agent says nothing yet"
        );
        assert_eq!(told("i-9"), None);
        let hold = || Some(crate::model::Hold { by: "cli:ada".into(), until: at(3600) });
        let mut held = scene.clone();
        let mut serves = machine("i-1").running(&ask("1"));
        serves.instance.hold = hold();
        serves.instance.version += 1;
        held.add(serves);
        assert!(
            super::machine(&held.yard, &arn("i-1")).unwrap().contains(
                "; cli:ada holds it until 2026-01-05T13:00:00Z: it is kept then, and ends without another run"
            ),
            "{:?}",
            super::machine(&held.yard, &arn("i-1"))
        );
        let mut kept = machine("i-3").cleaning(&ask("2"));
        kept.instance.hold = hold();
        kept.instance.version += 1;
        held.add(kept);
        let told_of_kept = super::machine(&held.yard, &arn("i-3")).unwrap();
        assert!(told_of_kept.contains(": held for cli:ada, and serves nobody again"), "{told_of_kept}");
        let mut ended = scene.clone();
        let mut gone = machine("i-6").ended(crate::model::Reason::Surplus);
        gone.agent = None;
        ended.add(gone);
        let told = super::machine(&ended.yard, &arn("i-6")).unwrap();
        assert!(told.ends_with("; its agent's record is gone"), "{told}");
        ended.add(machine("i-7").ended(crate::model::Reason::Surplus));
        assert_eq!(
            super::machine(&ended.yard, &arn("i-7")).unwrap(),
            "i-7 of class linux: terminated: surplus (its class had more machines than it may have) since \
             2026-01-05T11:58:20Z; its agent says nothing yet"
        );
    }
}
