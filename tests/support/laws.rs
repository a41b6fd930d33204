//! Which promises must every write keep? Versions, transitions, one holder a machine, never more than was asked for:
//! judged over the whole history, so that nothing can slip through between two looks.

use std::collections::{BTreeMap, BTreeSet};

use runyard_core::model::{
    AttributeValue, Instance, Item, Place, Reading, Record, RecordId, Request, TRANSITIONS, read,
};

/// One write of one record.
#[derive(Clone, Debug)]
pub struct Step {
    pub key: RecordId,
    pub old: Option<Item>,
    pub new: Option<Item>,
}

/// A record's kind.
pub fn kind(item: &Item) -> &str {
    match item.get("kind") {
        Some(AttributeValue::S(kind)) => kind,
        Some(_) | None => "",
    }
}

/// What a history shows.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Every promise that a step broke, as sentences.
    pub broken: Vec<String>,
    /// How many steps were judged.
    pub steps: usize,
    /// How many assignments of a machine to a request there were.
    pub claims: usize,
    /// Machines by the word they were ended with.
    pub ended: BTreeMap<String, usize>,
}

/// Who holds what, as the steps tell it.
#[derive(Default)]
struct Picture {
    verdict: Verdict,
    /// Which request holds each machine.
    held: BTreeMap<RecordId, RecordId>,
    /// How many each request asked for.
    asked: BTreeMap<RecordId, usize>,
    /// Which request each claim was made for.
    claims: BTreeMap<String, RecordId>,
    gone: BTreeSet<RecordId>,
}

/// Judges every step.
pub fn judge(steps: &[Step]) -> Verdict {
    let mut picture = Picture::default();
    for step in steps {
        picture.step(step);
    }
    picture.verdict
}

/// Judges the records of one moment; answers what is broken.
pub fn judge_moment(items: &[Item]) -> Vec<String> {
    let steps: Vec<Step> = items
        .iter()
        .filter_map(|item| Some(Step { key: RecordId::of(item)?, old: None, new: Some(item.clone()) }))
        .collect();
    let mut picture = Picture::default();
    // Requests first: what they ask for is what machines are counted against.
    for step in steps.iter().filter(|step| step.new.as_ref().is_some_and(|item| kind(item) == "request")) {
        picture.request(&step.key, None, step.new.as_ref());
    }
    for step in steps.iter().filter(|step| step.new.as_ref().is_some_and(|item| kind(item) == "instance")) {
        if let Some(instance) = picture.readable::<Instance>(&step.key, step.new.as_ref()) {
            picture.holds(&step.key, &instance);
        }
    }
    picture.verdict.broken
}

impl Picture {
    fn breaks(&mut self, key: &RecordId, law: &str) {
        self.verdict.broken.push(format!("{key}: {law}"));
    }

    fn step(&mut self, step: &Step) {
        let Step { key, old, new } = step;
        let Some(either) = new.as_ref().or(old.as_ref()) else { return };
        // The engine tells writes that change nothing, too.
        if old == new {
            return;
        }
        self.verdict.steps += 1;
        match kind(either) {
            "instance" => {
                self.version(key, old.as_ref(), new.as_ref());
                self.instance(key, old.as_ref(), new.as_ref());
            }
            "request" => {
                self.version(key, old.as_ref(), new.as_ref());
                self.request(key, old.as_ref(), new.as_ref());
            }
            "agent" => self.agent(key, old.as_ref(), new.as_ref()),
            "event" => {
                if old.is_some() && new.is_some() {
                    self.breaks(key, "an event was changed");
                }
            }
            // Replaced as a whole by one agent, and nobody decides by it.
            "log" => {}
            "pool" | "launch" | "lease" | "queue" => self.version(key, old.as_ref(), new.as_ref()),
            other => self.breaks(key, &format!("kind {other:?}")),
        }
    }

    fn version(&mut self, key: &RecordId, old: Option<&Item>, new: Option<&Item>) {
        let Some(new) = new else { return };
        let (before, after) = (old.map_or(Some(0), |old| number(old, "version")), number(new, "version"));
        if before.zip(after).is_none_or(|(before, after)| after != before + 1) {
            self.breaks(key, &format!("version {before:?} became {after:?}"));
        }
    }

    fn agent(&mut self, key: &RecordId, old: Option<&Item>, new: Option<&Item>) {
        let Some(new) = new else { return };
        let before = old.map(|old| number(old, "heartbeatSeq").unwrap_or_default() + 1).unwrap_or_default();
        if number(new, "heartbeatSeq") != Some(before) {
            let after = number(new, "heartbeatSeq");
            self.breaks(key, &format!("heartbeatSeq is {after:?} instead of {before}"));
        }
    }

    fn readable<T: Record>(&mut self, key: &RecordId, item: Option<&Item>) -> Option<T> {
        match read::<T>(item?) {
            Reading::Record(record) => Some(record),
            Reading::Newer { schema } => {
                self.breaks(key, &format!("schema {schema}"));
                None
            }
            Reading::Unreadable(problem) => {
                self.breaks(key, &problem.to_string());
                None
            }
        }
    }

    fn instance(&mut self, key: &RecordId, old: Option<&Item>, new: Option<&Item>) {
        let before = self.readable::<Instance>(key, old);
        let Some(after) = self.readable::<Instance>(key, new) else {
            if before.is_some_and(|before| before.place() != Place::Terminated) {
                self.breaks(key, "removed while it was alive");
            }
            self.gone.insert(key.clone());
            self.held.remove(key);
            return;
        };
        if self.gone.contains(key) {
            self.breaks(key, "came back after it was removed");
        }
        let (from, to) = (before.as_ref().map_or(Place::Nowhere, Instance::place), after.place());
        if from != to && !TRANSITIONS.iter().any(|row| (row.from, row.to) == (from, to)) {
            self.breaks(key, &format!("{from:?} became {to:?}"));
        }
        if let Some(before) = before.as_ref().filter(|_| from == to)
            && (before.run(), &before.claim) != (after.run(), &after.claim)
        {
            self.breaks(key, &format!("changed hands while {to:?}"));
        }
        if from != to && to == Place::Terminated {
            let reason = new.and_then(|item| text(item, "reason")).unwrap_or_default();
            *self.verdict.ended.entry(reason).or_default() += 1;
        }
        if from != to && matches!(to, Place::CreatedBound | Place::Claimed) {
            self.verdict.claims += 1;
            self.fresh_claim(key, &after);
        }
        self.holds(key, &after);
    }

    fn fresh_claim(&mut self, key: &RecordId, instance: &Instance) {
        let Some(claim) = &instance.claim else { return };
        if let Some(earlier) = self.claims.insert(claim.id.to_string(), claim.request.clone()) {
            self.breaks(key, &format!("claim {} was made before, for {earlier}", claim.id));
        }
    }

    /// S1 and S2: a machine has one holder, and a request no more machines than it asked for.
    fn holds(&mut self, key: &RecordId, instance: &Instance) {
        let now = instance.held_by().cloned();
        let before = self.held.get(key).cloned();
        if let (Some(before), Some(now)) = (&before, &now)
            && before != now
        {
            self.breaks(key, &format!("went from {before} to {now} without being given back"));
        }
        self.held.remove(key);
        let Some(request) = now else { return };
        self.held.insert(key.clone(), request.clone());
        let holds = self.held.values().filter(|holder| **holder == request).count();
        match self.asked.get(&request).copied() {
            Some(asked) if holds <= asked => {}
            Some(asked) => self.breaks(&request, &format!("holds {holds} machines and asked for {asked}")),
            None => self.breaks(key, &format!("held by {request}, which is not there")),
        }
    }

    fn request(&mut self, key: &RecordId, old: Option<&Item>, new: Option<&Item>) {
        let before = self.readable::<Request>(key, old);
        let Some(after) = self.readable::<Request>(key, new) else {
            if before.is_some_and(|before| !before.phase().is_final()) {
                self.breaks(key, "removed while it was open");
            }
            return;
        };
        let count = after.intent.count as usize;
        self.asked.insert(key.clone(), count);
        let held = &after.status.instances;
        if held.len() > count {
            self.breaks(key, &format!("lists {} machines and asked for {count}", held.len()));
        }
        if held.iter().collect::<BTreeSet<_>>().len() != held.len() {
            self.breaks(key, &format!("lists a machine twice: {held:?}"));
        }
        if let Some(before) = before.filter(|before| before.phase().is_final())
            && before.phase() != after.phase()
        {
            self.breaks(key, &format!("{} became {}", before.phase(), after.phase()));
        }
    }
}

fn number(item: &Item, name: &str) -> Option<u64> {
    match item.get(name) {
        Some(runyard_core::model::AttributeValue::N(number)) => number.parse().ok(),
        Some(_) | None => None,
    }
}

fn text(item: &Item, name: &str) -> Option<String> {
    match item.get(name) {
        Some(runyard_core::model::AttributeValue::S(text)) => Some(text.clone()),
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_core::model::AttributeValue;

    const ARN: &str = "arn:aws:ec2:local:000000000000:instance/i-0123456789abcdef0";

    fn instance(state: &str, version: u64, run: &str, claim: &str) -> Item {
        let mut attributes = serde_json::json!({
            "pk": format!("instance#{ARN}"), "sk": "instance", "kind": "instance",
            "instanceId": "i-0123456789abcdef0", "instanceArn": ARN, "resourceClass": "small",
            "usageClass": "on-demand", "createdAt": "2026-01-01T00:00:00Z", "state": state, "runId": run,
            "claimId": claim, "threshold": "2026-01-01T01:00:00Z", "stateSince": "2026-01-01T00:00:00Z",
            "version": version, "updatedAt": "2026-01-01T00:00:00Z",
        });
        if !claim.is_empty() {
            attributes["request"] = serde_json::json!({"pk": pk(run), "sk": "request#default#1"});
        }
        serde_dynamo::to_item::<_, serde_dynamo::Item>(attributes).unwrap().into_inner().into_iter().collect()
    }

    fn pk(run: &str) -> String {
        format!("request#acme/web#{run}")
    }

    fn request(run: &str, count: u32) -> Item {
        let attributes = serde_json::json!({
            "pk": pk(run), "sk": "request#default#1", "kind": "request", "runId": run, "attempt": 1,
            "repository": "acme/web", "name": "default", "resourceClass": "small", "count": count,
            "desired": "provisioned", "generation": 1, "version": 1,
        });
        serde_dynamo::to_item::<_, serde_dynamo::Item>(attributes).unwrap().into_inner().into_iter().collect()
    }

    fn steps(images: &[Item]) -> Vec<Step> {
        let mut last: BTreeMap<RecordId, Item> = BTreeMap::new();
        let step = |item: &Item| {
            let key = RecordId::of(item).unwrap();
            Step { old: last.insert(key.clone(), item.clone()), new: Some(item.clone()), key }
        };
        images.iter().map(step).collect()
    }

    fn pooled(mut item: Item) -> Item {
        item.insert("pooledAt".into(), AttributeValue::S("2026-01-01T00:00:00Z".into()));
        item
    }

    #[test]
    fn a_history_as_it_should_be_breaks_nothing() {
        let history =
            steps(&[request("1", 1), instance("created", 1, "1", "c.1"), instance("running", 2, "1", "c.1")]);
        let verdict = judge(&history);
        assert_eq!(verdict.broken, Vec::<String>::new());
        assert_eq!((verdict.steps, verdict.claims), (3, 1));
    }

    #[test]
    fn whatever_is_doctored_a_promise_is_seen_to_break() {
        let mut other = instance("created", 1, "1", "c.2");
        let arn = ARN.replace("abcdef0", "abcdef1");
        for (name, value) in [
            ("pk", format!("instance#{arn}")),
            ("instanceArn", arn.clone()),
            ("instanceId", "i-0123456789abcdef1".into()),
        ] {
            other.insert(name.into(), AttributeValue::S(value));
        }
        let doctored: &[(&str, Vec<Item>)] = &[
            ("changed hands", vec![instance("running", 1, "1", "c.1"), instance("running", 2, "2", "c.2")]),
            ("version", vec![request("1", 1), instance("created", 2, "1", "c.1")]),
            ("became", vec![pooled(instance("idle", 1, "", "")), instance("running", 2, "1", "c.1")]),
            ("asked for 1", vec![request("1", 1), instance("created", 1, "1", "c.1"), other.clone()]),
            ("not there", vec![instance("created", 1, "9", "c.1")]),
            ("without being given back", {
                let between = instance("claimed", 2, "2", "c.2");
                vec![request("1", 1), request("2", 1), instance("created", 1, "1", "c.1"), between]
            }),
        ];
        for (law, images) in doctored {
            let broken = judge(&steps(images)).broken.join("\n");
            assert!(broken.contains(law), "{law}: {broken}");
        }
        let moment = [request("1", 1), instance("created", 1, "1", "c.1"), other];
        assert!(judge_moment(&moment).join("\n").contains("asked for 1"));
    }
}
