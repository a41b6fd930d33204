//! What would be done now, and why the rest is not: every unit judged once, nothing carried out. The same decisions
//! the operator makes, told to a person.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{ClassName, InstanceArn, Item, Key, Lease, Phase, Reading, Request, State, read};

use super::context::{Context, Now, Policy, Role};
use super::forecast::{Pace, forecast};
use super::observe::Observation;
use super::yard::{Unit, Yard};
use super::{Plan, decide, effective};

/// A yard as the table shows it at one moment. Every agent counts as just heard: how long one has been silent is
/// known only to who has watched it.
pub fn picture(items: &[Item], now: Timestamp) -> (Yard, Now, Role) {
    let now = Now { wall: now, mono: Duration::from_secs(1), seen: Duration::from_secs(1) };
    let mut yard = Yard::default();
    let mut role = Role { lease: None };
    for item in items {
        let Some(key) = Key::of(item) else { continue };
        if key == Lease::key_of(Lease::OPERATOR)
            && let Reading::Record(lease) = read::<Lease>(item)
        {
            role.lease = Some(lease.token);
        }
        yard.observe(Observation::Record(key, Some(item.clone())), &now);
    }
    let keys = items.iter().filter_map(Key::of).collect();
    yard.observe(Observation::Listed(now.mono, keys), &now);
    (yard, now, role)
}

/// Judges every unit.
pub fn judge(yard: &Yard, policy: &Policy, now: Now, role: Role) -> Vec<(Unit, Plan)> {
    let cx = Context { yard, policy, now, role };
    yard.units().into_iter().map(|unit| (unit.clone(), decide(&cx, &unit))).collect()
}

/// Why a request is where it is, what would bring it on, and when it ends, as sentences.
pub fn explain(yard: &Yard, policy: &Policy, now: Now, role: Role, key: &Key) -> Vec<String> {
    let Some(request) = yard.request(key) else { return vec!["there is no such request".into()] };
    let mut lines = vec![headline(request)];
    if !request.status.message.is_empty() {
        lines.push(request.status.message.clone());
    }
    if request.phase().is_final() {
        return lines;
    }
    lines.extend(machines(yard, request));
    lines.extend(class(yard, request, now));
    let mut told: Vec<String> = Vec::new();
    for (_, plan) in judge(yard, policy, now, role) {
        let about = plan.waits.into_iter().filter(|wait| wait.subject == *key);
        told.extend(about.map(|wait| format!("waits: {}", wait.message)));
        let next = plan.actions.iter().filter(|action| action.writes().contains(key));
        told.extend(next.map(|action| format!("next: {}", action.describe())));
    }
    told.sort();
    told.dedup();
    lines.extend(told);
    lines.extend(ahead(yard, request));
    let cx = Context { yard, policy, now, role };
    let pace = Pace::of_classes(yard);
    lines.extend(forecast(&cx, key, pace.get(&request.intent.resource_class)).map(|told| told.to_string()));
    lines
}

/// How a machine stands, as a sentence; none when it is not known.
pub fn machine(yard: &Yard, key: &Key) -> Option<String> {
    let arn = InstanceArn::parse(key.pk.strip_prefix("instance#")?).ok()?;
    let tracked = yard.instance(&arn)?;
    let instance = &tracked.instance;
    let place = match instance.pooled_at() {
        Some(_) => "idle, in the pool".to_owned(),
        None => instance.state().to_string(),
    };
    let holder = instance.held_by().and_then(|key| Request::id_of(key).ok());
    let holder = holder.map_or(String::new(), |id| format!(" for {id}"));
    let until = instance.threshold.map_or(String::new(), |t| format!(", until {}", t.at));
    let said = tracked.agent.as_ref().and_then(|agent| agent.signal).map_or("nothing yet", |s| s.as_str());
    let (id, class) = (&instance.facts.instance_id, &instance.facts.resource_class);
    let since = instance.state_since;
    Some(format!("{id} of class {class}: {place}{holder} since {since}{until}; its agent says {said}"))
}

/// How a class stands, who waits for it and what it lacks, as sentences.
pub fn pool(yard: &Yard, now: Now, key: &Key) -> Vec<String> {
    let name = key.pk.strip_prefix("pool#").and_then(|name| ClassName::parse(name).ok());
    let Some(name) = name else { return Vec::new() };
    let mut lines: Vec<String> = counts(yard, &name, now).into_iter().collect();
    let Some(class) = yard.class(&name) else { return lines };
    let Some(pool) = &class.pool else { return lines };
    if pool.spec.paused {
        lines.push("it is paused: nothing is launched or claimed".into());
    }
    if let Some(((since, first), _)) = class.waiting.first_key_value() {
        let many = class.waiting.len();
        lines.push(format!("{many} requests wait for machines, the oldest ({first}) since {since}"));
    }
    let idle = class.pooled.len() as u32 + class.cleaning + class.warm_created;
    let (desired, max) = (effective(pool, now.wall).desired, pool.spec.max);
    if idle < desired && class.taken() >= max {
        let lacks = desired - idle;
        lines.push(format!(
            "waits: {lacks} more idle machines are wanted, and there are as many machines as max allows ({max})"
        ));
    }
    lines
}

fn headline(request: &Request) -> String {
    let (intent, status) = (&request.intent, &request.status);
    let phase =
        status.phase.map_or("new (no operator has seen it yet)".to_owned(), |phase| phase.to_string());
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
            let said =
                tracked.agent.as_ref().and_then(|agent| agent.signal).map_or("nothing yet", |s| s.as_str());
            let until = instance.threshold.map_or(String::new(), |t| format!(", until {}", t.at));
            format!(
                "machine {id}: {} since {}{until}; its agent says {said}",
                instance.state(),
                instance.state_since
            )
        }
    })
    .collect()
}

fn class(yard: &Yard, request: &Request, now: Now) -> Option<String> {
    counts(yard, &Yard::class_of(request)?, now)
}

fn counts(yard: &Yard, name: &ClassName, now: Now) -> Option<String> {
    let class = yard.class(name)?;
    let pool = class.pool.as_ref()?;
    let count = |state: State| class.counts.get(&state).copied().unwrap_or(0);
    let said = &pool.status.message;
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

/// Who comes before it.
fn ahead(yard: &Yard, request: &Request) -> Option<String> {
    let class = yard.class(&Yard::class_of(request)?)?;
    let rank = request.rank();
    class.waiting.contains_key(&rank).then(|| {
        let before = class.waiting.range(..&rank).count();
        format!("place in the line of its class: {} (older ones are served first)", before + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::a_minute_each;
    use super::*;
    use crate::model::Pool;

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
        assert_eq!(Pool::key_of(&ClassName::parse("linux").unwrap()).sk, "pool");
        let key = Key::new("request#a/b#2", "request#default#1");
        let told = explain(&yard, &a_minute_each(), now, Role { lease: Some(1) }, &key).join("\n");
        assert!(told.contains("as many machines as max allows (1)"), "{told}");
        assert!(told.contains("place in the line of its class: 2"), "{told}");
        let class = super::pool(&yard, now, &Key::new("pool#linux", "pool")).join("\n");
        assert!(class.contains("2 requests wait") && class.contains("(a/b run 1/default/1)"), "{class}");
        let nobody = Key::new("request#a/b#3", "request#default#1");
        assert_eq!(
            explain(&yard, &a_minute_each(), now, Role { lease: None }, &nobody),
            ["there is no such request"]
        );
    }
}
