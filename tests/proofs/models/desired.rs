//! `desired` by trust domains: a class that two repositories of different owners share, with two idle machines wanted.
//! Requests of both come and are released at any moment, machines boot, are lent, cleaned and left idle, and time passes
//! until idle machines expire. Wherever nothing is left to do, the next requests find the machines that the contract
//! promises (4.1, rules 3, 4 and 16), and an hour in which nobody asks changes nothing more.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use runyard_core::decide::Effect;
use runyard_core::model::{
    ConditionType, Desired, IdleMachines, Instance, InstanceArn, Launch, LaunchPhase, Life, Phase, Pool,
    PoolSpec, Reason, Record as _, Request, Threshold,
};
use serde_json::json;

use crate::models::mutants::Mutant;
use crate::models::operator::Operator;
use crate::models::scenes::{key_of, over, pooled, store};
use crate::models::stored::Table;
use crate::models::world::{Left, World};
use crate::models::{Sometimes, Yards, exhaust, refuted};

const WEB: &str = "acme/web";
const API: &str = "other/api";
/// How many idle machines the class wants.
const DESIRED: u32 = 2;
/// How long an idle machine stays that the class does not want: less than time passes at once.
const IDLE: SignedDuration = SignedDuration::from_mins(10);
/// After how many passings of time without a launch or an end nothing more is expected to happen.
const STILL: usize = 2;
/// Most passings of time until then.
const PASSES: usize = 12;
/// Most rounds in which everybody acts without time passing.
const ROUNDS: usize = 200;

/// The idle machines of a class by whom they are for, and which part of the recent requests came from whom.
struct Stock {
    anybody: u32,
    domains: BTreeMap<String, u32>,
    mix: BTreeMap<String, f64>,
}

impl Stock {
    /// As these records show it.
    fn of(table: &Table, spec: &PoolSpec, now: Timestamp) -> Self {
        let mut stock = Self { anybody: 0, domains: BTreeMap::new(), mix: BTreeMap::new() };
        for instance in table.all::<Instance>() {
            match instance.life {
                Life::Created { run: None } | Life::Idle { .. } => match instance.trust_domain.as_str() {
                    "" => stock.anybody += 1,
                    domain => *stock.domains.entry(domain.to_owned()).or_default() += 1,
                },
                Life::Created { run: Some(_) }
                | Life::Claimed { .. }
                | Life::Running { .. }
                | Life::Terminated { .. } => {}
            }
        }
        let accepted = table.all::<Request>().filter_map(|one| Some((one, one.status.accepted_at?)));
        for (request, at) in accepted {
            let hours = now.duration_since(at).as_secs_f64() / 3600.0;
            let sum = stock.mix.entry(spec.trust_domain(&request.id.repository)).or_default();
            *sum += f64::from(request.intent.count) * 0.5_f64.powf(hours / 4.0);
        }
        let all: f64 = stock.mix.values().sum();
        stock.mix.values_mut().for_each(|sum| *sum /= all);
        stock
    }

    fn assigned(&self) -> u32 {
        self.domains.values().sum()
    }

    /// How many of the next requests are expected to find no machine, with so many more for anybody: every order in
    /// which they may come from the domains, as likely as the mix says.
    fn late(&self, requests: u32, more: u32) -> f64 {
        let anybody = self.anybody + more;
        if self.mix.is_empty() {
            return f64::from(requests.saturating_sub(anybody + self.assigned()));
        }
        let mix: Vec<(&String, f64)> = self.mix.iter().map(|(domain, part)| (domain, *part)).collect();
        let orders = mix.len().pow(requests);
        let expected = (0..orders).map(|order| {
            let (mut rest, mut likely, mut came) = (order, 1.0, BTreeMap::<&String, u32>::new());
            for _ in 0..requests {
                let (domain, part) = mix[rest % mix.len()];
                rest /= mix.len();
                likely *= part;
                *came.entry(domain).or_default() += 1;
            }
            let own = |domain: &String| self.domains.get(domain).copied().unwrap_or(0);
            let left_over: u32 = came.iter().map(|(domain, came)| came.saturating_sub(own(domain))).sum();
            likely * f64::from(left_over.saturating_sub(anybody))
        });
        expected.sum()
    }

    /// Whether the next requests find a machine, with so many more for anybody: of them 5 of 100 may find none, and half
    /// a one at most.
    fn is_enough(&self, spec: &PoolSpec, more: u32) -> bool {
        self.late(spec.desired, more) <= (0.05 * f64::from(spec.desired)).min(0.5)
    }
}

/// Of a request, how many machines it lacks that are neither its own nor launched for it.
fn lacks(table: &Table, request: &Request) -> u32 {
    let waits = match request.phase() {
        Phase::Pending | Phase::Fulfilling => {
            request.intent.desired == Desired::Provisioned && request.status.phase.is_some()
        }
        Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed => false,
    };
    let key = request.key();
    let held = table.all::<Instance>().filter(|instance| instance.held_by() == Some(&key)).count() as u32;
    let launched: u32 =
        open(table).filter(|launch| launch.request.as_ref() == Some(&key)).map(|l| l.count).sum();
    if waits { request.intent.count.saturating_sub(held + launched) } else { 0 }
}

fn open(table: &Table) -> impl Iterator<Item = &Launch> {
    table.all::<Launch>().filter(|launch| launch.phase == LaunchPhase::Intent)
}

fn spec_of(table: &Table) -> Option<&PoolSpec> {
    table.all::<Pool>().next().map(|pool| &pool.spec)
}

fn live(table: &Table) -> u32 {
    table.all::<Instance>().filter(|instance| instance.state().live()).count() as u32
}

impl Operator {
    /// Whether the class has as many idle machines as it wants, whoever may use them.
    pub(crate) fn has_as_many(&self) -> bool {
        spec_of(&self.images).is_some_and(|spec| {
            let stock = Stock::of(&self.images, spec, Timestamp::MAX);
            stock.anybody + stock.assigned() >= spec.desired
        })
    }
}

impl World {
    /// S37 and S38, by what the operator knows that acts.
    pub(crate) fn keeps(&self, who: usize, effect: &Effect) -> Option<&'static str> {
        let table = &self.operators[who].images;
        let spec = spec_of(table)?;
        match effect {
            Effect::Instance(step, _)
                if matches!(step.after.life, Life::Terminated { reason: Reason::Surplus, .. }) =>
            {
                let waiting = || table.all::<Request>().filter(|request| lacks(table, request) > 0);
                let lack: u32 = waiting().map(|request| lacks(table, request)).sum();
                let taken = live(table) + open(table).map(|launch| launch.count).sum::<u32>();
                let useless = waiting()
                    .any(|request| spec.trust_domain(&request.id.repository) != step.before.trust_domain);
                (!useless || taken + lack <= spec.max)
                    .then_some("S37: an idle machine ended that held nobody's place")
            }
            Effect::Intend(launch, _) if launch.request.is_none() => {
                let mut stock = Stock::of(table, spec, self.now().wall);
                stock.anybody +=
                    open(table).filter(|open| open.request.is_none()).map(|open| open.count).sum::<u32>();
                stock
                    .is_enough(spec, launch.count - 1)
                    .then_some("S38: a machine was launched although the next requests would find one")
            }
            _ => None,
        }
    }

    /// Whether nobody has anything to do any more before time passes.
    fn comes_to_a_halt(&mut self) -> bool {
        (0..ROUNDS).any(|_| !self.round())
    }

    fn live_machines(&self) -> Vec<InstanceArn> {
        let live = self.all::<Instance>().filter(|instance| instance.state().live());
        live.map(|instance| instance.facts.instance_arn.clone()).collect()
    }
}

/// Nothing is on its way: machines are pooled, run, or are gone, and requests have what they want or wait.
fn tidy(world: &World) -> bool {
    let machines = world.all::<Instance>().all(|instance| match instance.life {
        Life::Running { .. } | Life::Idle { pooled_at: Some(_) } => true,
        Life::Terminated { gone_at, .. } => gone_at.is_some(),
        Life::Created { .. } | Life::Claimed { .. } | Life::Idle { pooled_at: None } => false,
    });
    let requests = world.all::<Request>().all(|request| match request.intent.desired {
        Desired::Provisioned => request.phase() == Phase::Ready || lacks(&world.table, request) > 0,
        Desired::Released => request.phase() == Phase::Released,
    });
    machines && requests && open(&world.table).next().is_none()
}

/// Whether a class without anything to do has the idle machines that the contract promises, and says so.
fn promised(world: &World) -> bool {
    let Some(spec) = spec_of(&world.table) else { return false };
    let stock = Stock::of(&world.table, spec, world.now().wall);
    let (full, enough) = (live(&world.table) == spec.max, stock.is_enough(spec, 0));
    let waits = world.all::<Request>().any(|request| lacks(&world.table, request) > 0);
    let (anybody, assigned) = (stock.anybody, stock.assigned());
    // Who waits does so for machines that are lent, never for idle ones.
    let served = !waits || full && anybody + assigned == 0;
    let Some(told) = world.operators[0].reports(&world.setting.policy, world.now()) else { return false };
    let warm = told.status.conditions.iter().find(|one| one.condition_type == ConditionType::Warm);
    let truly = IdleMachines::of(anybody, stock.domains, assigned);
    served
        && (enough || full)
        && warm.is_some_and(|warm| warm.status == enough)
        && told.status.idle == Some(truly)
}

/// The class has what it promises, has it whenever it is quiet while time passes, and in the end launches and ends
/// nothing any more.
fn settles(world: &World) -> bool {
    let (mut world, mut still) = (world.clone(), 0);
    for _ in 0..PASSES {
        if !tidy(&world) || !promised(&world) {
            return false;
        }
        if still == STILL {
            return true;
        }
        let before = world.live_machines();
        world.passed += 1;
        world.asks();
        if !world.comes_to_a_halt() || world.wrong.is_some() {
            return false;
        }
        still = if world.live_machines() == before { still + 1 } else { 0 };
    }
    false
}

/// One operator; a class with two idle machines, each for anybody or of a trust domain.
fn shared(max: u32, within: &str, machines: [&str; 2], left: Left, mutant: Option<Mutant>) -> World {
    let mut world = World::new(1, left, mutant).with_prompt_readers();
    let class = json!({
        "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 1, "resourceClass": "linux", "cpu": 2,
        "mmem": 4096, "desired": DESIRED, "max": max, "idleSeconds": IDLE.as_secs(), "maxAgeSeconds": 360_000,
        "maxRuntimeMinutes": 600, "reuseWithin": within,
    });
    store(&mut world, &class);
    for (name, domain) in ["i-1", "i-2"].into_iter().zip(machines) {
        pooled(&mut world, name);
        let (arn, set_at) = (world.hands.last().expect("its agent").arn.clone(), world.now().wall);
        world.change::<Instance>(&Instance::key_of(&arn), 3, |instance| {
            instance.trust_domain = domain.to_owned();
            instance.threshold = Some(Threshold { at: set_at + IDLE, set_at });
        });
    }
    world.left.releases = world.left.arrivals.iter().map(|(whose, run)| key_of(whose, run)).collect();
    world
}

fn ended(reason: Reason) -> impl Fn(&Instance) -> bool {
    move |instance| matches!(instance.life, Life::Terminated { reason: why, .. } if why == reason)
}

fn makes_room(_: &Yards, world: &World) -> bool {
    world.all::<Instance>().any(ended(Reason::Surplus))
}

fn launches_for_anybody(_: &Yards, world: &World) -> bool {
    world.all::<Launch>().any(|launch| launch.request.is_none())
}

fn expires(_: &Yards, world: &World) -> bool {
    world.all::<Instance>().any(ended(Reason::Threshold))
}

fn waits(_: &Yards, world: &World) -> bool {
    world.all::<Request>().any(|request| lacks(&world.table, request) > 0)
}

fn model(begin: World, sometimes: &[Sometimes]) -> Yards {
    Yards { begin, rest: settles, sometimes: sometimes.to_vec() }
}

#[test]
fn a_full_class_whose_idle_machines_are_all_of_one_domain_serves_the_other() {
    let arrivals = vec![(WEB, "1"), (API, "2")];
    let left = Left { arrivals, ..Left::default() };
    let begin = shared(2, "repository", ["repository:acme/web"; 2], left, None).started();
    let sometimes: [Sometimes; 2] = [("it makes room", makes_room), ("one waits", waits)];
    assert_eq!(exhaust(model(begin, &sometimes)), 6196);
}

#[test]
fn a_class_with_room_has_machines_for_both_domains_and_comes_to_rest() {
    let left = Left { arrivals: vec![(WEB, "1"), (API, "2")], ..Left::default() };
    let mut begin = shared(3, "owner", ["", ""], left, None);
    begin.left.releases = vec![key_of(WEB, "1")];
    let begin = begin.started();
    let sometimes: [Sometimes; 1] = [("it launches for anybody", launches_for_anybody)];
    assert_eq!(exhaust(model(begin, &sometimes)), 3851);
}

#[test]
fn idle_machines_that_nobody_wants_expire_and_those_that_are_wanted_stay() {
    let left = Left { arrivals: vec![(API, "1")], passes: 1, ..Left::default() };
    let mut begin = shared(3, "repository", ["repository:acme/web", ""], left, None);
    over(&mut begin, WEB, "0");
    let begin = begin.started();
    let sometimes: [Sometimes; 2] =
        [("it launches for anybody", launches_for_anybody), ("one expires", expires)];
    assert_eq!(exhaust(model(begin, &sometimes)), 6573);
}

/// What a mutant is refuted by, where only one of the domains asks.
fn refuted_with(max: u32, machines: [&str; 2], mutant: Mutant) -> &'static str {
    let left = Left { arrivals: vec![(API, "1")], ..Left::default() };
    refuted(model(shared(max, "repository", machines, left, Some(mutant)).started(), &[]))
}

#[test]
fn machines_that_are_counted_whoever_may_use_them_are_refuted() {
    let what = refuted_with(3, ["repository:acme/web"; 2], Mutant::DesiredByNumber);
    assert!(what.starts_with("L: it rests"));
}

#[test]
fn idle_machines_that_hold_the_place_of_others_are_refuted() {
    let what = refuted_with(2, ["repository:acme/web"; 2], Mutant::IdleHoldsPlace);
    assert!(what.starts_with("L: it rests"));
}

#[test]
fn an_end_of_idle_machines_for_which_nobody_waits_is_refuted() {
    assert!(refuted_with(2, ["", ""], Mutant::OneLessRoom).starts_with("S37"));
}

#[test]
fn launches_of_a_class_that_has_enough_are_refuted() {
    assert!(refuted_with(3, ["", ""], Mutant::OneMoreWanted).starts_with("S38"));
}

#[test]
fn machines_that_are_launched_and_expire_for_ever_are_refuted() {
    assert!(refuted_with(3, ["", ""], Mutant::NeverKept).starts_with("L: it rests"));
}
