//! What must hold in every state (S1–S4, S7, S12; S37 and S38 are in `desired.rs`), and what a fair run from it must
//! come to.

use runyard_core::model::{
    Instance, InstanceId, Launch, LaunchPhase, Place, Pool, Record, RecordId, Request,
};

use crate::models::Rest;
use crate::models::world::{Fate, Left, World};

/// Most rounds of a fair run.
const ROUNDS: usize = 200;
/// What is said of a fair run that does not end.
const ENDLESS: &str = "L: it never comes to rest";
/// How often a fair run lets time pass when nobody has anything to do.
const PASSES: u8 = 3;

impl World {
    /// Whether this is the first thing found to be wrong: the checker would show the last of several, the first is the
    /// nearest.
    pub(crate) fn is_first(&self, wrong: Option<&'static str>) -> bool {
        wrong.is_some_and(|wrong| self.setting.failed.set(wrong).is_ok())
    }

    /// Says what is wrong with a state, if something is.
    pub(crate) fn check(&mut self) {
        if self.wrong.is_none() {
            self.wrong = self
                .holdings()
                .or_else(|| self.budget())
                .or_else(|| self.runners())
                .or_else(|| self.labels());
        }
    }

    /// S1 and S2.
    fn holdings(&self) -> Option<&'static str> {
        let mut holders: Vec<(&InstanceId, RecordId)> = Vec::new();
        for request in self.all::<Request>().filter(|request| request.phase().wants_machines()) {
            let key = request.key();
            let held = request.status.instances.iter().filter(|id| self.holds(&key, id));
            let before = holders.len();
            for id in held {
                if holders.iter().any(|(other, _)| *other == id) {
                    return Some("S1: two requests hold one machine");
                }
                holders.push((id, key.clone()));
            }
            if holders.len() - before > request.intent.count as usize {
                return Some("S2: a request holds more than it asked for");
            }
        }
        let unlisted = self.all::<Instance>().any(|instance| {
            let request = instance.held_by().map(|key| self.get::<Request>(key));
            let knows = |request: &Request| request.status.served.contains(&instance.facts.instance_id);
            request.is_some_and(|request| !request.is_some_and(knows))
        });
        unlisted.then_some("S1: a machine serves a request that does not know it")
    }

    fn holds(&self, request: &RecordId, id: &InstanceId) -> bool {
        self.all::<Instance>()
            .any(|instance| instance.facts.instance_id == *id && instance.held_by() == Some(request))
    }

    /// S7 and S8.
    fn budget(&self) -> Option<&'static str> {
        let brought = |launch: &Launch| {
            self.machines.iter().filter(|machine| machine.launch.as_ref() == Some(&launch.launch_id)).count()
        };
        if self.all::<Launch>().any(|launch| brought(launch) > launch.count as usize) {
            return Some("S8: a launch brought more machines than it asked for");
        }
        let live = self.all::<Instance>().filter(|instance| instance.state().live()).count() as u32;
        let open = self.all::<Launch>().filter(|launch| launch.phase == LaunchPhase::Intent);
        let open: u32 = open.map(|launch| launch.count).sum();
        let max: u32 = self.all::<Pool>().map(|pool| pool.spec.max).sum();
        (live + open > max).then_some("S7: more is live or on its way than `max`")
    }

    /// S3, S4 and S12, of the agents.
    fn runners(&self) -> Option<&'static str> {
        for hand in &self.hands {
            if self.buried(&hand.arn) && self.agent(&hand.arn).is_some() {
                return Some("S12: an agent brought its record back");
            }
            if hand.listed
                && self.setting.policy.github
                && self.sight(&hand.arn).is_some_and(|(place, ..)| place == Place::IdlePooled)
            {
                return Some("S4: a machine is in the pool while GitHub lists its runner");
            }
            let (Some(runner), true) = (&hand.runner, self.alive(&hand.arn)) else { continue };
            match self.sight(&hand.arn) {
                None => return Some("S3: a runner executes on a machine without a record"),
                Some((Place::IdlePooled, ..)) => return Some("S4: a runner executes on a pooled machine"),
                Some((_, claim, _)) if claim.as_ref() != Some(runner) => {
                    return Some("S3: a runner executes for a claim that its record does not name");
                }
                Some(_) => {}
            }
        }
        None
    }

    /// What is wrong with a fair run from here without further faults; nothing, if it comes to rest where it should.
    /// Everybody sees everything and acts, time passes when nobody has anything to do. Runs that meet share their end.
    pub(crate) fn unrest(&self, rest: Rest) -> Option<&'static str> {
        let mut world = Self { left: Left::default(), ..self.clone() };
        let mut met = Vec::new();
        let mut verdict = Some(ENDLESS);
        for _ in 0..ROUNDS {
            let print = world.print(false);
            let known = self.setting.rests.lock().expect("no thread panicked").get(&print).copied();
            if let Some(known) = known {
                verdict = known;
                break;
            }
            met.push(print);
            if world.wrong.is_some() {
                verdict = world.wrong;
                break;
            }
            if world.round() {
                continue;
            }
            if rest(&world) || world.passed >= self.passed + PASSES {
                verdict = (!rest(&world)).then_some("L: it rests where it should not");
                break;
            }
            world.passed += 1;
            world.asks();
        }
        let mut rests = self.setting.rests.lock().expect("no thread panicked");
        rests.extend(met.into_iter().map(|print| (print, verdict)));
        verdict
    }

    /// Everybody sees everything, each operator does the first thing it wants to, each agent its part; whether somebody
    /// did something.
    pub(crate) fn round(&mut self) -> bool {
        let mut busy = false;
        for who in 0..self.operators.len() {
            self.sees_all(who);
            if self.setting.policy.inventory {
                self.reads_list(who, None);
            }
            if let Some(planned) = self.plans(who).first().cloned() {
                busy = true;
                self.carry_out(who, &planned, Fate::Heard);
                self.check();
            }
        }
        let hands: Vec<_> = self.hands.iter().map(|hand| hand.arn.clone()).collect();
        for arn in hands.iter().filter(|arn| self.alive(arn)).cloned().collect::<Vec<_>>() {
            let sight = self.sight(&arn);
            if let Some(hand) = self.hands.iter_mut().find(|hand| hand.arn == arn) {
                hand.sight = sight;
            }
            if self.unsaid(&arn) {
                busy = true;
                self.speaks(&arn);
                self.check();
            }
        }
        busy
    }
}
