//! Classes that are shared, and the laws of their order: judged on the records alone, once nothing goes wrong any more
//! and every operator has read what there is.
//!
//! - **Order:** no request is passed over again and again by requests that come after it, for machines it may use.
//! - **Work:** no free machine stays free beside a request that waits and may use it.
//! - **Use:** what machines were used for is written down, so that a restart forgets nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use runyard_core::model::{
    ClassName, Instance, Item, Place, Pool, Priority, Quota, RecordId, Request, ShareBy, Sharing, Write,
    YardSharing,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::simulation::chance::Chance;
use crate::simulation::laws::{Laws, record};
use crate::simulation::world::World;

/// Repositories of the workflows.
pub(crate) const REPOSITORIES: [&str; 3] = ["acme/web", "acme/api", "other/site"];
/// What each machine that is held counts for, in milliseconds.
const ENTRY: u64 = 300_000;
/// How long operators have to serve what can be served.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// How often a request may be passed over.
const PASSED_OVER: u32 = 0;
/// How long a request that is passed over may wait for its own machine: both are written at the same time.
const TOGETHER: Duration = Duration::from_secs(10);
/// From when on after the last fault the laws are judged: what backs off after a fault has begun again by then.
const SETTLED: Duration = Duration::from_secs(120);
/// Use that may not be written yet, for each machine.
const UNWRITTEN: Duration = Duration::from_secs(120);

/// What is shared in one seed's yard. Its numbers are its own, so that a seed without shares is what it was before.
pub(crate) struct Drawn {
    pub(crate) chance: Chance,
    on: bool,
    pub(crate) flood: Option<Flood>,
}

/// Many requests for one class within a minute, most of them of one repository.
pub(crate) struct Flood {
    repository: &'static str,
    class: String,
    pub(crate) count: u64,
}

impl Drawn {
    pub(crate) fn of(seed: u64, possible: bool, classes: &[&str]) -> Self {
        let chance = Chance::of(seed ^ 0x5368_6172_6573);
        let on = possible && chance.percent(60);
        let flood = (on && chance.percent(50)).then(|| Flood {
            repository: chance.one::<&str>(&REPOSITORIES),
            class: (*chance.one(classes)).to_owned(),
            count: chance.number(8..24),
        });
        Self { chance, on, flood }
    }

    /// The `sharing` of a class.
    pub(crate) fn sharing(&self) -> Value {
        let chance = &self.chance;
        if !self.on || chance.percent(20) {
            return Value::Null;
        }
        let weights = [json!({}), json!({"acme/web": 3}), json!({"acme*": 2}), json!({"*": 5, "other*": 1})];
        let quotas = [
            json!({}),
            json!({}),
            json!({"*": {"maxMachines": 3}}),
            json!({"acme*": {"maxMachines": 5}, "other*": {"guaranteed": 2}}),
            json!({"*": {"maxWaiting": 6}}),
        ];
        json!({
            "by": *chance.one(&["repository", "repository", "owner", "team"]),
            "weights": chance.one(&weights), "quotas": chance.one(&quotas),
            "halfLife": *chance.one(&["1h", "24h"]), "reserve": *chance.one(&[0, 0, 10, 50]),
        })
    }

    /// What the whole yard knows of shares.
    pub(crate) fn of_yard(&self) -> YardSharing {
        if !self.on {
            return YardSharing::default();
        }
        let priority = |value, globs: &[&str]| Priority {
            value,
            repositories: globs.iter().map(|glob| (*glob).to_owned()).collect(),
        };
        let quota = Quota { max_machines: Some(8), ..Quota::default() };
        let quotas = self.chance.percent(30).then(|| ("acme*".to_owned(), quota));
        YardSharing {
            teams: [("acme/web".into(), "web".into()), ("*".into(), "all".into())].into(),
            priorities: [
                ("high".to_owned(), priority(100, &["acme/api", "other/*"])),
                ("bulk".to_owned(), priority(-10, &["*"])),
            ]
            .into(),
            quotas: quotas.into_iter().collect(),
        }
    }

    /// Of which repository a workflow is and which class it asks for, where it is of the flood.
    pub(crate) fn of_flood(&self, number: u64) -> Option<(&'static str, &str)> {
        let flood = self.flood.as_ref().filter(|_| number >= 100)?;
        let other = self.chance.percent(30);
        let repository = if other { *self.chance.one(&REPOSITORIES) } else { flood.repository };
        Some((repository, &flood.class))
    }

    /// The priority that a request names.
    pub(crate) fn priority(&self) -> Option<&'static str> {
        (self.on && self.chance.percent(30)).then(|| *self.chance.one(&["high", "bulk", "bulk"]))
    }
}

/// One request that another was served before.
struct PassedOver {
    key: RecordId,
    version: u64,
    at: Instant,
    told: String,
}

/// What was seen of the order.
#[derive(Default)]
pub(crate) struct Watched {
    /// From when on it is judged.
    from: Option<Instant>,
    passed: Vec<PassedOver>,
    /// How often each was.
    times: BTreeMap<RecordId, u32>,
    /// Since when each machine is free beside a request that may use it.
    idle: BTreeMap<(RecordId, RecordId), Instant>,
    /// What each share of a class used since then, and the most machines it held.
    used: BTreeMap<(ClassName, String), (u64, u32)>,
    looked: Option<Instant>,
    /// How many requests waited for machines that others got, and rightly so.
    pub(crate) compared: u64,
}

/// The requests of a class, and what their shares hold.
struct Yard<'a> {
    laws: &'a Laws,
    pool: &'a Pool,
    sharing: &'a Sharing,
    of_yard: &'a YardSharing,
    now: jiff::Timestamp,
    /// Machines that a share holds by the writes that are judged, and did not hold before them.
    given: Option<(String, u32)>,
}

impl<'a> Yard<'a> {
    fn share(&self, request: &Request) -> String {
        share_of(self.sharing, self.of_yard, request)
    }

    fn of_class(&self) -> impl Iterator<Item = &'a Request> {
        let class = self.pool.spec.resource_class.clone();
        self.laws.requests().filter(move |request| class_of(request) == class.as_str())
    }

    fn held(&self, share: &str) -> u32 {
        let own = self.of_class().filter(|request| self.share(request) == share);
        let held: u32 = own.map(|request| request.status.instances.len() as u32).sum();
        let given = self.given.as_ref().filter(|(to, _)| to == share).map_or(0, |(_, given)| *given);
        held - given.min(held)
    }

    fn for_weight(&self, share: &str, sum: u64) -> u64 {
        sum * 1000 / u64::from(self.sharing.weight(share))
    }

    fn holds(&self, share: &str) -> u64 {
        self.for_weight(share, u64::from(self.held(share)) * ENTRY)
    }

    fn used(&self, share: &str) -> u64 {
        let usage = self.pool.status.usage.as_ref();
        let sum = usage.and_then(|usage| usage.sums.get(share)).copied().unwrap_or(0);
        self.for_weight(share, sum + u64::from(self.held(share)) * ENTRY)
    }

    /// Since when a request is overdue: positive is after it.
    fn overdue(&self, request: &Request) -> i64 {
        let Some(accepted) = request.status.accepted_at else { return i64::MIN };
        let wait = (request.intent.timeout_seconds / 2).min(300) as i64;
        self.now.duration_since(accepted).as_secs() - wait
    }

    /// Whether `waits` surely comes before `served`, each as it was when one of them got a machine.
    fn comes_before(&self, waits: &Request, served: &Request) -> bool {
        let part = |request: &Request| !request.status.served.is_empty();
        let (at, other) = (waits.status.accepted_at, served.status.accepted_at);
        match (part(waits), part(served)) {
            (true, false) => return true,
            (false, true) => return false,
            (true, true) => return at < other,
            (false, false) => {}
        }
        let (a, b) = (self.share(waits), self.share(served));
        let (late, other_late) = (self.overdue(waits), self.overdue(served));
        let (holds, others) = (self.holds(&a), self.holds(&b));
        if other_late > -10 {
            // Overdue, or soon: only what shares hold counts, and between equals their age.
            return late > 10
                && (holds < others || (a == b && late > other_late && same_lane(waits, served)));
        }
        if late > 10 && holds <= others {
            return true;
        }
        let rank = |request: &Request, share: &str| {
            let guaranteed = self.sharing.quota(share).guaranteed.unwrap_or(0);
            let met = self.held(share) >= guaranteed;
            (met, -request.status.priority_value, self.used(share), request.status.accepted_at)
        };
        rank(waits, &a) < rank(served, &b)
    }

    /// Whether what a request lacks may be given to it now. What a quota leaves is kept for a larger request of its
    /// share that is overdue.
    fn may_have(&self, request: &Request) -> bool {
        let share = self.share(request);
        let kept_for = |other: &&Request| {
            other.id != request.id
                && self.share(other) == share
                && self.overdue(other) > -10
                && waits(other, self.now)
                && !self.is_within_quota(other)
        };
        self.is_within_quota(request) && !self.of_class().any(|other| kept_for(&other))
    }

    fn is_within_quota(&self, request: &Request) -> bool {
        let share = self.share(request);
        let (own, wants) = (request.status.instances.len() as u32, target(request));
        let held = self.held(&share);
        let others = held - own.min(held);
        let all: u32 = self.laws.pools().filter_map(|pool| Some((pool, pool.spec.sharing.as_ref()?))).fold(
            0,
            |sum, (pool, sharing)| {
                let class = Yard { pool, sharing, given: None, ..*self };
                sum + class.held(&share)
            },
        );
        let fits = |others: u32, most: Option<u32>| most.is_none_or(|most| others + wants <= most);
        let max = u64::from(self.pool.spec.max);
        let kept = max * u64::from(self.sharing.reserve) / 100;
        let given = self.given.as_ref().map_or(0, |(_, given)| *given);
        let lent: u32 = self.of_class().map(|request| request.status.instances.len() as u32).sum();
        let lent = lent - given.min(lent);
        let reserved = kept > 0 && others > 0 && u64::from(lent - own.min(lent) + wants) > max - kept;
        fits(others, self.sharing.quota(&share).max_machines)
            && fits(all - own.min(all), self.of_yard.quota(&share).max_machines)
            && !reserved
    }
}

fn same_lane(one: &Request, other: &Request) -> bool {
    one.status.priority_value == other.status.priority_value
}

fn class_of(request: &Request) -> &str {
    &request.intent.resource_class
}

fn target(request: &Request) -> u32 {
    request.status.settled_for.unwrap_or(request.intent.count).min(request.wanted())
}

fn share_of(sharing: &Sharing, of_yard: &YardSharing, request: &Request) -> String {
    let looked_up = request.status.share.clone().filter(|_| sharing.by == ShareBy::Team);
    looked_up.unwrap_or_else(|| sharing.share(&request.id.repository, &of_yard.teams))
}

/// Whether a request waits for machines now, and nobody asked to end it.
fn waits(request: &Request, now: jiff::Timestamp) -> bool {
    let status = &request.status;
    status.accepted_at.is_some()
        && request.phase().wants_machines()
        && !request.is_released()
        && status.ready_at.is_none()
        && status.deadline.is_some_and(|deadline| deadline.duration_since(now).as_secs() > 30)
        && (status.instances.len() as u32) < target(request)
}

/// Whether a request may use a machine that is free.
fn fits(pool: &Pool, request: &Request, machine: &Instance) -> bool {
    let usage = request.intent.usage_class.is_none_or(|usage| usage == machine.facts.usage_class);
    let domain = pool.spec.trust_domain(&request.id.repository);
    let used = &machine.trust_domain;
    usage && (used.is_empty() || used.eq_ignore_ascii_case(&domain))
}

impl Watched {
    /// Nothing goes wrong from now on; `settled`: nothing did before.
    pub(crate) fn begin(&mut self, settled: bool) {
        let wait = if settled { Duration::from_secs(30) } else { SETTLED };
        self.from.get_or_insert(Instant::now() + wait);
    }

    fn judged(&self) -> bool {
        self.from.is_some_and(|from| from <= Instant::now())
    }

    /// Writes were applied to these records as they were before: were free machines given to whom they are due?
    pub(crate) fn written(&mut self, world: &World, laws: &Laws, writes: &[Write], before: &[Option<Item>]) {
        if !self.judged() {
            return;
        }
        let free = |item: &Option<Item>| {
            record::<Instance>(item.as_ref()).filter(|machine| machine.place() == Place::IdlePooled)
        };
        let claimed = before.iter().filter_map(free).filter(|machine| {
            let after = laws.instance_of(&Instance::key_of(&machine.facts.instance_arn));
            after.is_some_and(|after| after.place() == Place::Claimed)
        });
        let served = writes.iter().zip(before).find_map(|(write, item)| {
            let before =
                record::<Request>(item.as_ref()).filter(|_| write.key.pk().starts_with("request#"))?;
            let after = laws.request_of(&write.key)?.status.instances.len();
            Some((after.saturating_sub(before.status.instances.len()) as u32, before))
        });
        let Some((given, served)) = served else { return };
        for machine in claimed {
            self.given(world, laws, &machine, &served, given);
        }
    }

    fn given(&mut self, world: &World, laws: &Laws, machine: &Instance, served: &Request, given: u32) {
        let class = &machine.facts.resource_class;
        let Some(pool) = laws.pools().find(|pool| pool.spec.resource_class == *class) else { return };
        let Some(sharing) = pool.spec.sharing.as_ref() else { return };
        let of_yard = &world.settings.sharing;
        let given = Some((share_of(sharing, of_yard, served), given));
        let yard = Yard { laws, pool, sharing, of_yard, now: world.clock_now(), given };
        let may_use = |other: &&Request| {
            other.id != served.id
                && waits(other, yard.now)
                && fits(pool, other, machine)
                && yard.may_have(other)
        };
        // Of each share the first: those behind it come later once it is served, which may be at this moment.
        let mut first: BTreeMap<String, &Request> = BTreeMap::new();
        for other in yard.of_class().filter(may_use) {
            let known = first.entry(yard.share(other)).or_insert(other);
            let place = |one: &Request| {
                let (status, late) = (&one.status, yard.overdue(one));
                let rank =
                    if late > -10 { (false, -late) } else { (true, -i64::from(status.priority_value)) };
                (status.served.is_empty(), rank, status.accepted_at)
            };
            if place(other) < place(known) {
                *known = other;
            }
        }
        for (share, other) in first {
            self.compared += 1;
            if !yard.comes_before(other, served) {
                continue;
            }
            let mine = yard.share(served);
            let told = format!(
                "S25 {}: waited while {} got {} (used {} and {}, hold {} and {} for their weights)",
                other.id,
                served.id,
                machine.facts.instance_id,
                yard.used(&share),
                yard.used(&mine),
                yard.holds(&share),
                yard.holds(&mine),
            );
            let key = RecordId::from(&other.id);
            self.passed.push(PassedOver { key, version: other.version, at: Instant::now(), told });
        }
    }

    /// How often the request was passed over that was so most.
    pub(crate) fn passed_over_at_most(&self) -> u32 {
        self.times.values().copied().max().unwrap_or(0)
    }

    /// Looks at everything, a few times a minute.
    pub(crate) fn look(&mut self, world: &World, laws: &Laws) -> Vec<String> {
        if !self.judged() {
            return Vec::new();
        }
        let mut broken = self.judge_passed_over(laws);
        broken.extend(self.idle(world, laws));
        broken.extend(self.unwritten(world, laws));
        broken
    }

    /// Whoever was passed over and still waits as it did.
    fn judge_passed_over(&mut self, laws: &Laws) -> Vec<String> {
        let now = Instant::now();
        let (old, young) =
            std::mem::take(&mut self.passed).into_iter().partition(|one| one.at + TOGETHER <= now);
        self.passed = young;
        let old: Vec<PassedOver> = old;
        let mut broken = Vec::new();
        for one in old {
            if laws.request_of(&one.key).is_some_and(|now| now.version == one.version) {
                let times = self.times.entry(one.key).or_default();
                *times += 1;
                if *times > PASSED_OVER {
                    broken.push(one.told);
                }
            }
        }
        broken
    }

    fn idle(&mut self, world: &World, laws: &Laws) -> Vec<String> {
        let (now, wall) = (Instant::now(), world.clock_now());
        let mut idle = BTreeMap::new();
        for pool in laws.pools().filter(|pool| !pool.spec.paused && !World::held_back(pool)) {
            let sharing = pool.spec.sharing.as_ref();
            let class = &pool.spec.resource_class;
            let free = laws.instances().filter(|machine| {
                let left = machine.threshold.map(|threshold| threshold.at.duration_since(wall).as_secs());
                machine.facts.resource_class == *class
                    && machine.place() == Place::IdlePooled
                    && left.is_some_and(|left| left > 90)
                    && machine.expired_by.is_none()
                    && !pool.spec.used_up(machine)
                    && world.is_heard(&machine.facts.instance_id)
            });
            for machine in free {
                let asks = |request: &&Request| {
                    let may = sharing.is_none_or(|sharing| {
                        let of_yard = &world.settings.sharing;
                        Yard { laws, pool, sharing, of_yard, now: wall, given: None }.may_have(request)
                    });
                    class_of(request) == class.as_str()
                        && waits(request, wall)
                        && fits(pool, request, machine)
                        && may
                };
                for request in laws.requests().filter(asks) {
                    let pair = (Instance::key_of(&machine.facts.instance_arn), RecordId::from(&request.id));
                    let since = self.idle.get(&pair).copied().unwrap_or(now);
                    idle.insert(pair, since);
                }
            }
        }
        self.idle = idle;
        let long = self.idle.iter().filter(|(_, since)| **since + SERVED_WITHIN <= now);
        long.map(|((machine, request), _)| format!("S26 {machine}: stays free while {request} waits for one"))
            .collect()
    }

    fn unwritten(&mut self, world: &World, laws: &Laws) -> Vec<String> {
        let now = Instant::now();
        let time = self.looked.replace(now).map_or(0, |at| (now - at).as_millis() as u64);
        let mut broken = Vec::new();
        for pool in laws.pools() {
            let Some(sharing) = pool.spec.sharing.as_ref() else { continue };
            let of_yard = &world.settings.sharing;
            let yard = Yard { laws, pool, sharing, of_yard, now: world.clock_now(), given: None };
            let class = &pool.spec.resource_class;
            for request in yard.of_class() {
                let held = request.status.instances.len() as u64;
                self.used.entry((class.clone(), yard.share(request))).or_default().0 += time * held;
            }
            let half_life = sharing.half_life.get().as_millis() as f64;
            for ((_, share), (used, most)) in self.used.iter_mut().filter(|((of, _), _)| of == class) {
                *most = yard.held(share).max(*most);
                *used = (*used as f64 * 0.5_f64.powf(time as f64 / half_life)) as u64;
                let written = pool.status.usage.as_ref().and_then(|usage| usage.sums.get(share));
                let written = written.copied().unwrap_or(0);
                if *used > written + u64::from(*most) * UNWRITTEN.as_millis() as u64 {
                    broken.push(format!(
                        "S27 {class}: {share} used {used} ms of machines, and {written} are written"
                    ));
                }
            }
        }
        broken
    }
}
