//! Estimates when a waiting request will be ready, from how long the class's requests took lately and from what blocks
//! it now. The estimate is for people; no decision uses it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::{ConditionType, InstanceId, Life, Phase, PoolSpec, RecordId, Request, RequestKey, after};

use crate::decide::{Context, WaitReason};
use crate::yard::{Class, Yard, lacking};

/// How many of a class's last requests count.
const SAMPLES: usize = 50;

/// How long the requests of a class took from acceptance to ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Half took no longer.
    pub half: Duration,
    /// Nine in ten took no longer.
    pub nine_in_ten: Duration,
    /// The number of requests in the sample.
    pub of: usize,
}

impl Pace {
    /// Returns the pace of every class that has the record of a served request.
    pub fn of_classes(yard: &Yard) -> BTreeMap<String, Self> {
        let mut took: BTreeMap<&str, Vec<(Timestamp, Duration)>> = BTreeMap::new();
        for (_, request) in yard.requests() {
            let status = &request.status;
            if let (Some(accepted), Some(ready)) = (status.accepted_at, status.ready_at) {
                let time = Duration::try_from(ready.duration_since(accepted)).unwrap_or_default();
                took.entry(&request.intent.resource_class).or_default().push((ready, time));
            }
        }
        took.into_iter().map(|(class, times)| (class.to_owned(), Self::of_times(times))).collect()
    }

    fn of_times(mut times: Vec<(Timestamp, Duration)>) -> Self {
        times.sort_unstable_by(|one, other| other.cmp(one));
        let mut last: Vec<Duration> = times.into_iter().take(SAMPLES).map(|(_, time)| time).collect();
        last.sort_unstable();
        let at = |tenths: usize| last[(last.len() * tenths).div_ceil(10).max(1) - 1];
        Self { half: at(5), nine_in_ten: at(9), of: last.len() }
    }
}

/// The estimate for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The estimated time, if there is one.
    pub at: Option<Timestamp>,
    /// The time from now until then.
    pub ahead: Option<Duration>,
    /// The basis of the estimate, or the reason why there is none.
    pub because: String,
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at, self.ahead) {
            (Some(at), Some(ahead)) => {
                let at = Timestamp::from_second(at.as_second()).unwrap_or(at);
                write!(f, "expected to be ready about {at} (in {}): {}", told(ahead), self.because)
            }
            (Some(_), None) | (None, _) => write!(f, "when it will be ready: {}", self.because),
        }
    }
}

/// Formats a duration for people.
fn told(time: Duration) -> String {
    let whole = time.as_secs() + u64::from(time.subsec_millis() >= 500);
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, _) => format!("{hours}h{minutes}m"),
    }
}

/// The facts about a request besides the records, for its estimate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// The pace of its class.
    pub pace: Option<&'a Pace>,
    /// How many requests are served before it, where its class has `sharing`.
    pub before: Option<usize>,
    /// Whether it waits for something that does not end by itself ([`no_end`]).
    pub no_end: bool,
}

/// Returns whether a wait has no known end. A class that is full, paused or held back is reported separately.
pub const fn no_end(reason: WaitReason) -> bool {
    match reason {
        WaitReason::Quota
        | WaitReason::NoCapacity
        | WaitReason::GitHub
        | WaitReason::Runner
        | WaitReason::Doubt
        | WaitReason::Image => true,
        WaitReason::Busy
        | WaitReason::Starting
        | WaitReason::Cleaning
        | WaitReason::Behind
        | WaitReason::AtMax
        | WaitReason::BackOff
        | WaitReason::Paused
        | WaitReason::NotLeader
        | WaitReason::Agent
        | WaitReason::Deadline
        | WaitReason::Mismatch => false,
    }
}

/// Estimates when a request is ready; none when it does not wait.
pub fn forecast(cx: &Context<'_>, key: &RequestKey, place: Place<'_>) -> Option<Forecast> {
    let Place { pace, before, no_end } = place;
    let request = cx.yard.request(key)?;
    match (request.phase(), request.is_released()) {
        (Phase::Pending | Phase::Fulfilling, false) => {}
        (Phase::Pending | Phase::Fulfilling, true)
        | (Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed, _) => return None,
    }
    let class = Yard::class_of(request).and_then(|name| cx.yard.class(&name));
    let Some((class, pool)) = class.and_then(|class| Some((class, class.pool.as_ref()?))) else {
        return Some(unknown("its class has no pool".into()));
    };
    if let Some(why) = cx.yard.leaderless(&cx.now) {
        return Some(unknown(format!("not before an operator leads: {why}")));
    }
    if let Some(because) = held_up(cx, class, &pool.spec, key, request, before) {
        return Some(unknown(because));
    }
    if no_end {
        return Some(unknown("nobody can say: what it waits for, as told, has no known end".into()));
    }
    let Some(pace) = pace else {
        let class = &pool.spec.resource_class;
        return Some(unknown(format!("no request of class {class} has become ready yet to go by")));
    };
    Some(by_pace(cx, request, pace))
}

fn unknown(because: String) -> Forecast {
    Forecast { at: None, ahead: None, because }
}

/// Estimates from how long others took: by the median, then by the 90th percentile, then not at all. A request fails at
/// its deadline, so nothing later is promised.
fn by_pace(cx: &Context<'_>, request: &Request, pace: &Pace) -> Forecast {
    let now = cx.now.wall;
    let since = request.status.accepted_at.unwrap_or(now);
    let others = format!(
        "of the last {} requests of its class half took no longer than {}, nine in ten no longer than {}",
        pace.of,
        told(pace.half),
        told(pace.nine_in_ten)
    );
    let next = [pace.half, pace.nine_in_ten].map(|time| after(since, time));
    match (next.into_iter().find(|at| *at > now), request.status.deadline) {
        (Some(at), Some(deadline)) if at > deadline => {
            unknown(format!("others took longer than it may wait (until {deadline}): {others}"))
        }
        (Some(at), _) => {
            let ahead = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Forecast { at: Some(at), ahead: Some(ahead), because: others }
        }
        (None, _) => unknown(format!("it already takes longer than most: {others}")),
    }
}

/// Returns the command that raises a class's `max`.
fn raise(spec: &PoolSpec) -> String {
    format!("raise max ({}) with `runyard set pool {} max=N`", spec.max, spec.resource_class)
}

/// Describes what blocks a request beyond the usual wait; none when nothing does.
fn held_up(
    cx: &Context<'_>,
    class: &Class,
    spec: &PoolSpec,
    key: &RequestKey,
    request: &Request,
    before: Option<usize>,
) -> Option<String> {
    let held = |because: &str| Some(because.to_owned());
    let lack = lacking(cx.yard, key, request);
    if lack == 0 {
        return None;
    }
    if spec.paused {
        return held("not before its class is no longer paused (`paused` in the pool's spec)");
    }
    let live = class.taken();
    let coming = class.pooled.len() as u32 + class.cleaning + class.warm_created;
    if live >= spec.max && coming.saturating_add(class.in_flight.of(Some(key))) < lack {
        return Some(full(cx, spec, key, before));
    }
    let blocked = class.pool.as_ref().is_some_and(|pool| {
        pool.status.conditions.iter().any(|c| c.condition_type == ConditionType::Blocked && c.status)
    });
    let left = class.backoff.until.checked_sub(cx.now.mono).filter(|left| !left.is_zero());
    match (left, blocked) {
        (Some(left), _) => held(&format!("not before launches are tried again in {}", told(left))),
        (None, true) => held("not before launches, held back after failures, are tried again"),
        (None, false) => None,
    }
}

/// Describes the outlook of a request whose class is full. How fast others became ready is of no use: that ended when
/// the class filled.
fn full(cx: &Context<'_>, spec: &PoolSpec, key: &RequestKey, before: Option<usize>) -> String {
    let Some((id, left)) = first_back(cx, spec, key) else {
        return format!("not before more machines are allowed: {}", raise(spec));
    };
    let place = match before {
        None => String::new(),
        Some(1) => "1 request is before it by shares; ".to_owned(),
        Some(before) => format!("{before} requests are before it by shares; "),
    };
    format!(
        "{place}not before others give machines back, the next ({id}) at the latest in {}; more at once: {}",
        told(left),
        raise(spec)
    )
}

/// Returns the machine of a class that another request must give back first, and in how long at the latest.
fn first_back<'a>(cx: &Context<'a>, spec: &PoolSpec, key: &RequestKey) -> Option<(&'a InstanceId, Duration)> {
    let serving = cx.yard.instances().map(|tracked| &tracked.instance).filter(|instance| {
        let serves = match instance.life {
            Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => true,
            Life::Idle { .. } | Life::Terminated { .. } => false,
        };
        serves
            && instance.facts.resource_class == spec.resource_class
            && instance.held_by().and_then(RecordId::request) != Some(key)
    });
    let next = serving.filter_map(|instance| Some((instance.threshold?.at, &instance.facts.instance_id)));
    let (at, id) = next.min()?;
    let left = at.duration_since(cx.now.wall).max(SignedDuration::ZERO);
    Some((id, Duration::try_from(left).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use crate::yard::Observation;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_pace_is_that_of_the_last_requests() {
        let seconds = |n: u64| Duration::from_secs(n);
        let mut times: Vec<_> = (1..=10).map(|n| (at(1000 + n), seconds(n as u64))).collect();
        let pace = Pace::of_times(times.clone());
        assert_eq!(pace, Pace { half: seconds(5), nine_in_ten: seconds(9), of: 10 });
        // Long waits before the last fifty requests are forgotten.
        times = (1..=50).map(|n| (at(1000 + n), seconds(2))).collect();
        times.extend((1..=50).map(|n| (at(n), seconds(900))));
        let two = Pace { half: seconds(2), nine_in_ten: seconds(2), of: 50 };
        assert_eq!(Pace::of_times(times), two);
        let one = Pace::of_times(vec![(at(1), seconds(7))]);
        assert_eq!(one, Pace { half: seconds(7), nine_in_ten: seconds(7), of: 1 });
    }

    #[test]
    fn the_pace_of_a_class_is_that_of_its_own_requests_that_became_ready() {
        let mut scene = Scene::empty();
        let since = |n| crate::testing::at(n);
        let ready = |run: &str, class: &str, from: i64, to: i64| {
            let status = serde_json::json!({
                "resourceClass": class, "phase": "Ready", "acceptedAt": since(from), "readyAt": since(to),
            });
            request(run, 1, status)
        };
        scene.put(&ready("1", "linux", -100, -90));
        scene.put(&ready("2", "linux", -100, -70));
        scene.put(&ready("3", "mac", -100, -20));
        scene.put(&request("4", 1, serde_json::json!({"resourceClass": "windows"})));
        let seconds = |n: u64| Duration::from_secs(n);
        let pace = Pace::of_classes(&scene.yard);
        let linux = Pace { half: seconds(10), nine_in_ten: seconds(30), of: 2 };
        let mac = Pace { half: seconds(80), nine_in_ten: seconds(80), of: 1 };
        assert_eq!(pace, [("linux".to_owned(), linux), ("mac".to_owned(), mac)].into());
    }

    #[test]
    fn lengths_of_time_are_told_in_two_units() {
        let told = |millis| told(Duration::from_millis(millis));
        assert_eq!(told(499), "0s");
        assert_eq!(told(59_400), "59s");
        assert_eq!(told(1_500), "2s");
        assert_eq!(told(60_000), "1m0s");
        assert_eq!(told(3_725_000), "1h2m");
    }

    const PACE: Pace = Pace { half: Duration::from_secs(200), nine_in_ten: Duration::from_secs(300), of: 7 };

    fn says(scene: &Scene, pace: Option<&Pace>) -> String {
        let Scene { yard, policy, now, role } = scene;
        let cx = Context { yard, policy, now: *now, role: *role };
        let before = super::super::before(yard, *now).get(&ask("1")).copied();
        let place = Place { pace, before, no_end: false };
        forecast(&cx, &ask("1"), place).map_or("nothing".to_owned(), |told| told.to_string())
    }

    fn waiting(spec: serde_json::Value) -> Scene {
        let mut scene = Scene::with(spec);
        scene.put(&request("1", 2, serde_json::json!({})));
        scene
    }

    #[test]
    fn a_request_is_expected_by_the_pace_of_others_until_it_takes_longer() {
        let mut scene = waiting(serde_json::json!({}));
        let others = "of the last 7 requests of its class half took no longer than 3m20s, nine in ten no longer than 5m0s";
        let about = |at: &str, ahead: &str| format!("expected to be ready about {at} (in {ahead}): {others}");
        assert_eq!(says(&scene, Some(&PACE)), about("2026-01-05T12:01:40Z", "1m40s"));
        scene.wait(100);
        assert_eq!(says(&scene, Some(&PACE)), about("2026-01-05T12:03:20Z", "1m40s"));
        scene.wait(100);
        let longer = format!("when it will be ready: it already takes longer than most: {others}");
        assert_eq!(says(&scene, Some(&PACE)), longer);
        let none = "when it will be ready: no request of class linux has become ready yet to go by";
        assert_eq!(says(&scene, None), none);
    }

    #[test]
    fn only_what_waits_is_foretold() {
        for (more, foretold) in [
            (serde_json::json!({"phase": "Pending"}), true),
            (serde_json::json!({"phase": "Fulfilling"}), true),
            (serde_json::json!({"phase": "Fulfilling", "desired": "released"}), false),
            (serde_json::json!({"phase": "Ready"}), false),
            (serde_json::json!({"phase": "Failed"}), false),
        ] {
            let mut scene = Scene::with(serde_json::json!({}));
            scene.put(&request("1", 1, more.clone()));
            assert_eq!(says(&scene, Some(&PACE)) != "nothing", foretold, "{more}");
        }
        let mut scene = Scene::empty();
        scene.put(&request("1", 1, serde_json::json!({})));
        assert_eq!(says(&scene, Some(&PACE)), "when it will be ready: its class has no pool");
    }

    #[test]
    fn what_stands_in_the_way_is_said_instead() {
        let paused = waiting(serde_json::json!({"paused": true}));
        assert_eq!(
            says(&paused, Some(&PACE)),
            "when it will be ready: not before its class is no longer paused (`paused` in the pool's spec)"
        );
        let mut full = waiting(serde_json::json!({"max": 2}));
        full.put(&holding("2", 2, &["i-1", "i-2"], serde_json::json!({"phase": "Ready"})));
        full.add(machine("i-1").running(&ask("2")).until(90));
        full.add(machine("i-2").running(&ask("2")).until(60));
        assert_eq!(
            says(&full, Some(&PACE)),
            "when it will be ready: not before others give machines back, the next (i-2) at the latest in 1m0s; \
             more at once: raise max (2) with `runyard set pool linux max=N`"
        );
        // Its own machines, idle ones and those of another class are not given back by other requests, however early
        // they are.
        let mut others = full.clone();
        others.add(machine("i-5").running(&ask("1")).until(10));
        others.add(machine("i-6").cleaning(&ask("2")).until(11));
        let mac = crate::model::ClassName::parse("mac").unwrap();
        others.add(machine("i-7").running(&ask("2")).until(12).with(|i| i.facts.resource_class = mac));
        others.pool(2, serde_json::json!({"max": 1}));
        let told = says(&others, Some(&PACE));
        assert!(told.contains("the next (i-2) at the latest in 1m0s"), "{told}");
        full.wait(80);
        assert!(
            says(&full, Some(&PACE)).contains("the next (i-2) at the latest in 0s"),
            "it is late already"
        );
        let mut room = full.clone();
        room.pool(2, serde_json::json!({"max": 3}));
        assert!(says(&room, Some(&PACE)).starts_with("expected"), "there is room for one more");
        let nobody = waiting(serde_json::json!({"max": 0}));
        assert_eq!(
            says(&nobody, Some(&PACE)),
            "when it will be ready: not before more machines are allowed: raise max (0) with `runyard set pool linux max=N`"
        );
        // Idle machines and those that come back by themselves are enough for it.
        let mut soon = waiting(serde_json::json!({"max": 2}));
        soon.add(machine("i-1").pooled());
        soon.add(machine("i-2").cleaning(&ask("2")));
        assert!(says(&soon, Some(&PACE)).starts_with("expected"), "{}", says(&soon, Some(&PACE)));
        let mut booting = waiting(serde_json::json!({"max": 2}));
        booting.add(machine("i-1"));
        booting.add(machine("i-2").cleaning(&ask("2")));
        assert!(says(&booting, Some(&PACE)).starts_with("expected"), "{}", says(&booting, Some(&PACE)));
    }

    #[test]
    fn a_request_of_a_full_class_is_told_its_place_and_no_time_that_cannot_come_true() {
        let usage =
            serde_json::json!({"at": crate::testing::at(0), "sums": {"acme/web": 9_000_000}, "other": 0});
        let mut full = waiting(serde_json::json!({"max": 1, "sharing": {}, "usage": usage}));
        full.put(&holding("2", 1, &["i-1"], serde_json::json!({"phase": "Ready"})));
        full.add(machine("i-1").running(&ask("2")).until(90));
        let next = "not before others give machines back, the next (i-1) at the latest in 1m30s; more at once: \
                    raise max (1) with `runyard set pool linux max=N`";
        let told = |before: &str| format!("when it will be ready: {before}{next}");
        assert_eq!(says(&full, Some(&PACE)), told("0 requests are before it by shares; "));
        full.put(&request("3", 1, serde_json::json!({"repository": "acme/api"})));
        assert_eq!(says(&full, Some(&PACE)), told("1 request is before it by shares; "));
        // In the order of age there is no place by shares.
        full.pool(2, serde_json::json!({"max": 1}));
        assert_eq!(says(&full, Some(&PACE)), told(""));
    }

    #[test]
    fn nothing_is_promised_after_its_deadline_or_while_nobody_leads() {
        let mut scene = waiting(serde_json::json!({}));
        let slow = Pace { half: Duration::from_secs(601), nine_in_ten: Duration::from_secs(900), of: 7 };
        let told = says(&scene, Some(&slow));
        let late = "when it will be ready: others took longer than it may wait (until 2026-01-05T12:08:20Z)";
        assert!(told.starts_with(late), "{told}");
        let lease = |holder: &str, renewed: i64| {
            crate::testing::item(serde_json::json!({
                "pk": "lease#operator", "sk": "lease", "kind": "lease", "version": 100 + renewed, "holder": holder,
                "token": 1, "termSeconds": 15.0, "updatedAt": crate::testing::at(renewed),
            }))
        };
        let mut led = |holder, renewed| {
            let key = crate::model::Lease::key_of(crate::model::Lease::OPERATOR);
            scene.see(Observation::Record(key, Some(lease(holder, renewed))));
            says(&scene, Some(&PACE))
        };
        assert!(led("a", -50).contains("not before an operator leads: a has not renewed the lease since"));
        assert!(led("a", -40).starts_with("expected"));
        assert!(led("", 0).contains("not before an operator leads: the last operator handed the lease back"));
    }

    #[test]
    fn launches_that_are_held_back_are_said_with_when_they_are_tried_again() {
        let blocked = |status| {
            waiting(serde_json::json!({
                "conditions": [
                    {"type": "Blocked", "status": status, "reason": "Boot", "message": "", "at": at(-9)},
                ],
            }))
        };
        assert_eq!(
            says(&blocked(true), Some(&PACE)),
            "when it will be ready: not before launches, held back after failures, are tried again"
        );
        assert!(says(&blocked(false), Some(&PACE)).starts_with("expected"));
        let mut held_back = waiting(serde_json::json!({}));
        held_back.put(&launch("l-1", 2, Some(&ask("1"))));
        let refused = crate::ports::ComputeError::Refused("its AMI is gone".into());
        held_back.see(Observation::Ordered("l-1".parse().unwrap(), Err(refused)));
        let until = held_back.yard.class(&linux()).unwrap().backoff.until;
        let left = until - held_back.now.mono;
        assert_eq!(
            says(&held_back, Some(&PACE)),
            format!("when it will be ready: not before launches are tried again in {}", told(left))
        );
        held_back.now.mono = until;
        assert!(says(&held_back, Some(&PACE)).starts_with("expected"), "{}", says(&held_back, Some(&PACE)));
    }
}
