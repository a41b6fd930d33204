//! What is kept with each change is what a walk over all records would count.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use crate::model::{ClassName, Phase, Place, Record as _, RecordId, SetPlace, slot_number};
use crate::testing::{Scene, arn, ask, at, machine, request};
use crate::yard::{MachineKind, Observation, QueuePosition, Yard, gives_back};

/// A sequence of numbers that looks random and is the same every time.
struct Draws(u64);

impl Draws {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Puts a request of some phase, class, repository and moment under one of thirty keys; some are slots of two sets.
fn any_request(scene: &mut Scene, draws: &mut Draws, version: u64) {
    let phases = ["Pending", "Fulfilling", "Ready", "Releasing", "Released", "Failed"];
    let number = draws.below(30);
    let phase = phases[draws.below(6) as usize];
    let class = ["linux", "none", "no class at all"][draws.below(3) as usize];
    let accepted = (draws.below(4) > 0).then(|| at(-(draws.below(50) as i64)));
    let mut more = json!({
        "phase": phase, "acceptedAt": accepted, "version": version, "updatedAt": at(draws.below(50) as i64),
        "resourceClass": class, "repository": format!("acme/web-{}", number % 3),
    });
    let mut run = number.to_string();
    if number >= 15 {
        run = format!("set-{}", number % 2);
        more["asked"] = "set".into();
        more["name"] = format!("s{number}").into();
    }
    let fields = request(&run, 1, more);
    if draws.below(5) == 0 {
        scene.see(Observation::Record(fields.key(), None));
    } else {
        scene.put(&fields);
    }
}

/// Puts one of eight machines at some place of its life.
fn any_machine(scene: &mut Scene, draws: &mut Draws, version: u64) {
    let name = format!("i-{}", draws.below(8));
    let key = ask("1");
    let reasons = [Reason::Interrupted, Reason::Vanished, Reason::Surplus];
    let reason = reasons[draws.below(3) as usize];
    let one = machine(&name).until(draws.below(600) as i64);
    let built = match draws.below(7) {
        0 => one,
        1 => one.bound(&key),
        2 => one.running(&key),
        3 => one.cleaning(&key),
        4 => one.pooled(),
        5 => one.running(&key).ended(reason),
        _ => one.claimed(&key).ended(reason).with(|i| {
            i.life = Life::Terminated { reason, gone_at: Some(at(1)) };
        }),
    };
    let spot = draws.below(2) == 0;
    let built = built.with(|i| {
        i.version = version;
        i.facts.usage_class = if spot { UsageClass::Spot } else { UsageClass::OnDemand };
        i.facts.instance_type = format!("m7i.{}", version % 2);
    });
    if draws.below(6) == 0 {
        scene.see(Observation::Record(RecordId::Instance(arn(&name)), None));
    } else {
        scene.put(&built.instance);
    }
}

fn phases_agree(yard: &Yard) {
    let (mut phases, mut oldest) = (BTreeMap::new(), BTreeMap::<&str, QueuePosition>::new());
    for (key, request) in yard.requests() {
        let class = request.intent.resource_class.as_str();
        *phases.entry((class, request.phase())).or_insert(0) += 1;
        let waits = matches!(request.phase(), Phase::Pending | Phase::Fulfilling);
        if let Some(at) = request.status.accepted_at.filter(|_| waits) {
            let first = oldest.entry(class).or_insert((at, key.clone()));
            *first = first.clone().min((at, key.clone()));
        }
    }
    let kept: BTreeMap<_, _> = yard.phases().map(|(class, phase, count)| ((class, phase), count)).collect();
    assert_eq!(kept, phases);
    for class in ["linux", "none", "no class at all"] {
        assert_eq!(yard.oldest_waiting(class), oldest.get(class).map(|(at, _)| *at), "{class}");
    }
    let repositories: BTreeSet<&Repository> = yard.requests().map(|(key, _)| &key.repository).collect();
    assert!(yard.repositories().eq(repositories));
}

fn slots_agree(yard: &Yard) {
    let mut walked: BTreeMap<_, (Vec<_>, Option<Timestamp>, u64)> = BTreeMap::new();
    for (key, request) in yard.requests().filter(|(_, request)| request.is_slot()) {
        let set = (SetPlace::repository(&key.repository), key.set().unwrap());
        let (open, failed_at, highest) = walked.entry(set).or_default();
        *highest = (*highest).max(slot_number(key).unwrap());
        if request.phase() == Phase::Failed {
            *failed_at = (*failed_at).max(request.updated_at);
        }
        open.extend((!gives_back(request)).then(|| key.clone()));
    }
    for (open, ..) in walked.values_mut() {
        open.sort_by_key(slot_number);
    }
    let kept = yard.slots().map(|(set, slots)| {
        let open = slots.open().cloned().collect();
        (set.clone(), (open, slots.failed_at(), slots.last().unwrap().0))
    });
    assert_eq!(kept.collect::<BTreeMap<_, _>>(), walked);
}

fn machines_agree(yard: &Yard) {
    let all = || yard.instances().map(|tracked| &tracked.instance);
    let mut kinds: BTreeMap<(&ClassName, MachineKind), u32> = BTreeMap::new();
    for instance in all().filter(|instance| instance.gone_at().is_none()) {
        let facts = &instance.facts;
        let kind = MachineKind {
            place: instance.place(),
            usage_class: facts.usage_class,
            instance_type: facts.instance_type.clone(),
            zone: facts.availability_zone.clone(),
        };
        assert_ne!(kind.place, Place::Nowhere);
        *kinds.entry((&facts.resource_class, kind)).or_default() += 1;
    }
    let of_class = |(name, class)| class_kinds(class).map(move |(kind, count)| ((name, kind.clone()), count));
    assert_eq!(yard.classes().flat_map(of_class).collect::<BTreeMap<_, _>>(), kinds);
    for seconds in [0, 100, 300, 599] {
        let (now, grace) = (at(seconds), SignedDuration::from_secs(60));
        let late = |one: &&Instance| one.threshold.is_some_and(|t| now.duration_since(t.at) > grace);
        assert_eq!(yard.over_deadline(now, grace), all().filter(late).count());
    }
    let lost: BTreeSet<_> = all().filter(|one| taken_back(one)).map(|one| &one.facts.instance_id).collect();
    assert_eq!(yard.taken_back().map(|one| &one.facts.instance_id).collect::<BTreeSet<_>>(), lost);
}

fn class_kinds(class: &crate::yard::Class) -> impl Iterator<Item = (&MachineKind, u32)> {
    class.kinds()
}

#[test]
fn what_is_kept_with_each_change_is_what_a_walk_would_count() {
    let (mut scene, mut draws) = (Scene::with(json!({})), Draws(1));
    let (mut slots, mut lost, mut oldest) = (false, false, false);
    for version in 10..3_000 {
        if draws.below(2) == 0 {
            any_request(&mut scene, &mut draws, version);
        } else {
            any_machine(&mut scene, &mut draws, version);
        }
        phases_agree(&scene.yard);
        slots_agree(&scene.yard);
        machines_agree(&scene.yard);
        slots |= scene.yard.slots().any(|(_, of)| of.open().count() > 1 && of.failed_at().is_some());
        lost |= scene.yard.taken_back().count() > 1;
        oldest |= scene.yard.oldest_waiting("no class at all").is_some();
    }
    assert!(slots && lost && oldest, "everything that is counted was there: {slots} {lost} {oldest}");
}

#[test]
fn the_changed_requests_are_those_since_the_last_call_and_all_of_them_at_first() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 1, json!({})));
    assert_eq!(scene.yard.take_changed(), None, "the first call concerns all");
    assert_eq!(scene.yard.take_changed(), Some(BTreeSet::new()));
    scene.put(&request("2", 1, json!({})));
    scene.see(Observation::Record(RecordId::from(&ask("1")), None));
    assert_eq!(scene.yard.take_changed(), Some(BTreeSet::from([ask("1"), ask("2")])));
    for n in 0..=MOST_CHANGED {
        scene.put(&request(&format!("9{n}"), 1, json!({})));
    }
    assert_eq!(scene.yard.take_changed(), None, "more than are remembered are as good as all");
}

#[test]
fn the_requests_of_a_run_are_those_of_all_its_names_and_attempts() {
    let mut scene = Scene::with(json!({}));
    for (run, name, attempt) in
        [("1", "default", 1), ("1", "default", 2), ("1", "other", 1), ("12", "default", 1)]
    {
        scene.put(&request(run, 1, json!({"name": name, "attempt": attempt})));
    }
    let of_run = |run: &str| {
        let key = ask(run);
        scene
            .yard
            .requests_of_run(&key)
            .map(|(key, _)| (key.name.to_string(), key.attempt))
            .collect::<Vec<_>>()
    };
    let [first, second] = ["default", "other"].map(str::to_owned);
    assert_eq!(of_run("1"), [(first.clone(), 1), (first.clone(), 2), (second, 1)]);
    assert_eq!(of_run("12"), [(first, 1)]);
    assert_eq!(of_run("2"), []);
}
