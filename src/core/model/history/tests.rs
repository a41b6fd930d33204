//! The lines of a machine cover its life: over any legal life, each second is in one span of one stretch.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::model::{
    Cause, Claim, ClaimId, Hold, Instance, InstanceFacts, Place, Reading, Record, TRANSITIONS, Transition,
    Versioned, read,
};

fn start() -> Timestamp {
    "2026-01-05T12:00:00Z".parse().unwrap()
}

fn facts() -> InstanceFacts {
    InstanceFacts {
        instance_id: "i-1".parse().unwrap(),
        instance_arn: "arn:aws:ec2:eu-west-1:000000000000:instance/i-1".parse().unwrap(),
        resource_class: "linux".parse().unwrap(),
        instance_type: "m7i.large".into(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mmem: 8192,
        availability_zone: "eu-west-1a".into(),
        launch_id: None,
        launch_digest: None,
        created_at: start(),
    }
}

fn request(n: u64) -> RecordId {
    RecordId::new(format!("request#acme/api#{n}"), "request#default#1")
}

/// Pseudo-random numbers, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Moves a machine to the place of a transition.
fn enter(machine: &mut Instance, to: Place, now: Timestamp, n: u64) {
    let run: RunId = n.to_string().parse().unwrap();
    if matches!(to, Place::CreatedBound | Place::Claimed) {
        let id = ClaimId::of(&machine.facts.instance_id, machine.version);
        machine.claim = Some(Claim { id, request: request(n) });
    }
    if to == Place::IdleHeld {
        machine.hold = Some(Hold { by: "ada".into(), until: now });
    }
    machine.life = match to {
        Place::Nowhere | Place::CreatedWarm => Life::Created { run: None },
        Place::CreatedBound => Life::Created { run: Some(run) },
        Place::Claimed => Life::Claimed { run },
        Place::Running => Life::Running { run },
        Place::IdleCleaning | Place::IdleHeld => Life::Idle { pooled_at: None },
        Place::IdlePooled => Life::Idle { pooled_at: Some(now) },
        Place::Terminated => Life::Terminated { reason: Reason::Threshold, gone_at: None },
    };
}

/// Simulates one life along the table of transitions. `seen` gets the stored record after each write.
fn live(draw: &mut Draw, forgets: bool, mut seen: impl FnMut(&Instance)) -> Instance {
    let (mut now, mut n) = (start(), 1);
    let first = [Place::CreatedBound, Place::CreatedWarm, Place::Terminated][draw.below(3) as usize];
    let mut machine = Instance::born(facts(), Life::Created { run: None });
    enter(&mut machine, first, now, n);
    seen(&machine);
    loop {
        now += SignedDuration::from_millis(i64::try_from(draw.below(90_000)).unwrap());
        let mut next = machine.clone();
        next.advance(now);
        if forgets && draw.below(2) == 0 {
            next.forget(now - SignedDuration::from_secs(i64::try_from(draw.below(120)).unwrap()));
        }
        let ways: Vec<_> = TRANSITIONS.iter().filter(|way| way.from == machine.place()).collect();
        if ways.is_empty() {
            next.life = Life::Terminated { reason: Reason::Threshold, gone_at: Some(now) };
        } else {
            // Few are ended or held, so that lives are long.
            let rare = |way: &Transition| way.cause == Cause::Ended || way.to == Place::IdleHeld;
            let often = ways.iter().filter(|way| !rare(way) || draw.below(16) == 0);
            let ways: Vec<_> = often.copied().collect();
            let Some(way) = ways.get(draw.below(ways.len().max(1) as u64) as usize) else { continue };
            if way.to != way.from {
                n += u64::from(way.to == Place::Claimed);
                enter(&mut next, way.to, now, n);
                next.state_since = now;
            }
        }
        next.settle(&machine);
        let Reading::Record(stored) = read::<Instance>(&with_deadline(&next).to_item()) else {
            panic!("it can be read")
        };
        assert_eq!(stored.spans, next.spans);
        machine = next;
        seen(&machine);
        if machine.gone_at().is_some() {
            return machine;
        }
    }
}

fn with_deadline(machine: &Instance) -> Instance {
    let threshold = crate::model::Threshold { at: machine.updated_at, set_at: machine.updated_at };
    Instance { threshold: Some(threshold), ..machine.clone() }
}

/// Checks that every second from the launch until it was gone is in one span of one line.
fn whole(lines: &[MachineLine], machine: &Instance) {
    let mut at = machine.facts.created_at;
    for line in lines {
        assert_eq!(line.from(), at, "stretches follow one another: {lines:#?}");
        for span in &line.spans {
            assert_eq!(span.from, at, "spans follow one another: {lines:#?}");
            assert!(span.from <= span.to, "time goes on: {span:?}");
            assert!(span.activity.serves() || span.request.is_none(), "nobody is charged: {span:?}");
            at = span.to;
        }
        let last = line.spans.iter().any(|span| span.activity == Activity::Ending);
        assert_eq!(line.ended.is_some(), last, "{line:?}");
    }
    assert_eq!(Some(at), machine.gone_at(), "to the end: {lines:#?}");
}

#[test]
fn the_lines_of_a_machine_are_its_life_second_by_second() {
    for seed in 0..300 {
        let (mut lines, mut full) = (Vec::new(), false);
        let machine = live(&mut Draw(seed), false, |machine| {
            full |= machine.spans.len() + 4 > MOST_PAST_SPANS;
            let told = MachineLine::over(machine);
            assert!(full || told.starts_with(&lines), "what was over stays as it was told");
            lines = told;
        });
        if !full {
            whole(&lines, &machine);
        }
    }
}

#[test]
fn a_record_that_forgets_what_was_delivered_tells_the_same_lines() {
    for seed in 0..300 {
        let mut told: BTreeMap<Timestamp, MachineLine> = BTreeMap::new();
        let mut full = false;
        let machine = live(&mut Draw(seed), true, |machine| {
            full |= machine.spans.len() + 4 > MOST_PAST_SPANS;
            for line in MachineLine::over(machine) {
                let before = told.insert(line.from(), line.clone());
                assert!(before.is_none_or(|before| before == line || before.from() == before.to()));
            }
        });
        let lines: Vec<_> = told.into_values().collect();
        if !full {
            whole(&lines, &machine);
        }
    }
}

#[test]
fn a_record_keeps_a_bounded_number_of_spans() {
    let mut most = 0;
    for seed in 0..300 {
        live(&mut Draw(seed), false, |machine| most = most.max(machine.spans.len()));
    }
    assert!((MOST_PAST_SPANS - 4..=MOST_PAST_SPANS).contains(&most), "{most}");
}

#[test]
fn the_present_stretch_and_those_over_are_the_life_until_now() {
    for seed in 0..100 {
        live(&mut Draw(seed), false, |machine| {
            let now = machine.updated_at + SignedDuration::from_secs(5);
            let over = MachineLine::over(machine);
            let Some(open) = MachineLine::so_far(machine, now) else { return };
            assert_eq!(open.to(), now);
            assert!(over.last().is_none_or(|last| last.to() == open.from()), "{over:#?} {open:#?}");
        });
    }
}

#[test]
fn a_clock_that_is_behind_makes_no_span_of_less_than_nothing() {
    let mut machine = Instance::born(facts(), Life::Created { run: None });
    enter(&mut machine, Place::CreatedBound, start(), 1);
    for (to, seconds) in [(Place::Running, 60), (Place::IdleCleaning, 30), (Place::IdlePooled, 90)] {
        let now = start() + SignedDuration::from_secs(seconds);
        let mut next = machine.clone();
        next.advance(now);
        enter(&mut next, to, now, 1);
        next.state_since = now;
        next.settle(&machine);
        machine = next;
    }
    let lines = MachineLine::over(&machine);
    let lengths: Vec<_> =
        lines[0].spans.iter().map(|s| (s.activity, s.to.duration_since(s.from).as_secs())).collect();
    use Activity::{Cleaning, Running, Starting};
    assert_eq!(lengths, [(Starting, 60), (Running, 0), (Cleaning, 30)]);
    assert!(lines[0].spans.iter().all(|span| span.request == Some(request(1))));
}

#[test]
fn a_line_reads_back_from_its_json() {
    let mut lines = Vec::new();
    let mut lives = 0;
    while lines.len() < 3 {
        lives += 1;
        lines = MachineLine::over(&live(&mut Draw(lives), false, |_| ()));
    }
    for line in lines.into_iter().map(HistoryLine::Machine) {
        let json = serde_json::to_string(&line).unwrap();
        assert!(json.starts_with(r#"{"line":"machine","instanceId":"i-1","#), "{json}");
        assert_eq!(serde_json::from_str::<HistoryLine>(&json).unwrap(), line);
    }
}

#[test]
fn a_stored_line_reads_back_and_lies_where_its_day_is_read() {
    let mut lines: Vec<_> = (0..20)
        .flat_map(|seed| MachineLine::over(&live(&mut Draw(seed), false, |_| ())))
        .map(HistoryLine::Machine)
        .collect();
    let mut event = Event::new(&request(7), "x-1".into(), start(), "operator");
    event.reason = "Ready".into();
    lines.push(HistoryLine::Event(event.clone()));
    for line in lines {
        let item = line.to_item(3600);
        let HistoryLine::Event(_) = &line else {
            assert_eq!(HistoryLine::of_item(&item), Ok(line.clone()));
            assert!(partitions(day_of(line.at())).any(|pk| pk == line.key().pk), "{:?}", line.key());
            continue;
        };
        let Ok(HistoryLine::Event(back)) = HistoryLine::of_item(&item) else { panic!("{item:?}") };
        assert_eq!(back.id(), event.id());
        let (pk, prefix) = events_of(&event.subject, day_of(event.at));
        let key = line.key();
        assert!(key.pk == pk && key.sk.starts_with(&prefix), "{key:?}");
        assert!(event_partitions(day_of(event.at)).any(|partition| partition == pk));
    }
}

#[test]
fn days_are_read_from_the_first_to_the_last() {
    let to = start() + SignedDuration::from_hours(49);
    let days: Vec<_> = days(start(), to).map(|day| day.to_string()).collect();
    assert_eq!(days, ["2026-01-05", "2026-01-06", "2026-01-07"]);
}
