//! The behaviour of machines: they boot, claim, clean and end, each in the time that is drawn for it; and of EC2, which
//! launches them.

use std::time::Duration;

use runyard_core::model::{Instance, Launch, Life, Record as _, RecordId, Signal};
use runyard_core::ports::{LaunchOrder, Launched, Machine, MachineState, Shortfall};
use runyard_core::yard::{Observation, Written};

use super::{
    Activity, BOOT, Body, CLAIM, CLEAN, Class, END, Event, FAILS_FOR, KEPT, USUAL_CLAIM, USUAL_CLEAN,
    USUAL_END, WARM_BOOT, World, arn, id, number_of,
};
use crate::trace::Times;
use crate::trace::USUAL_BOOT;

impl World<'_> {
    /// Lets an agent respond, unless its record has another task by now.
    pub(super) fn speaks(&mut self, body: usize, version: u64) {
        let Some(tracked) = self.yard.instance(&arn(body)) else { return };
        if tracked.instance.version != version {
            return;
        }
        let Some(mut agent) = tracked.agent.clone() else { return };
        let claim = tracked.instance.claim.as_ref().map_or(String::new(), |claim| claim.id.to_string());
        let (signal, about) = match tracked.instance.life {
            Life::Created { run: None } => (Signal::Ok, String::new()),
            Life::Created { run: Some(_) } | Life::Claimed { .. } => (Signal::RegOk, claim),
            Life::Idle { pooled_at: None } => (Signal::RemoveRegOk, claim),
            Life::Running { .. } | Life::Idle { pooled_at: Some(_) } | Life::Terminated { .. } => return,
        };
        if signal == Signal::RegOk
            && let Some(key) = tracked.instance.held_by().and_then(RecordId::request)
            && let Some(number) = self.numbers.get(key)
        {
            self.listened[*number] = self.bodies[body].listened;
        }
        agent.heartbeat_seq += 1;
        agent.signal = Some(signal);
        agent.signal_claim_id = Some(about);
        self.wrote(Written::Agent(agent));
    }

    /// Processes a written machine record: the machine's next activity, and when its agent completes it.
    pub(super) fn machine(&mut self, instance: &Instance) {
        let Some(number) = number_of(&instance.facts.instance_id) else { return };
        self.done("machine", number as u64 ^ (instance.version << 40));
        let body = &mut self.bodies[number];
        let next = Activity::of(&instance.life);
        if body.activity != next {
            let (class, was, since) = (body.class, body.activity, body.since);
            (body.activity, body.since) = (next, self.now.mono);
            body.claims += u64::from(next == Activity::Claimed);
            self.spent(class, was, since);
            let class = &mut self.classes[class];
            class.idle += u32::from(next == Activity::Idle);
            class.idle -= u32::from(was == Activity::Idle);
            class.live -= u32::from(was.live() && !next.live());
            self.waits_for_agent(number, instance, next);
        }
        self.wrote(Written::Instance(instance.clone()));
        if next == Activity::Gone {
            self.after(KEPT, Event::Forget(instance.key()));
        }
    }

    pub(super) fn waits_for_agent(&mut self, number: usize, instance: &Instance, next: Activity) {
        let (chance, body) = (self.chance, &self.bodies[number]);
        let times = &self.classes[body.class].times;
        let of = |samples, kind, usual| {
            // Drawn by the request where there is one, so that a change of the pool does not change its luck.
            let claim = instance.claim.as_ref().and_then(|claim| claim.request.request());
            let subject = claim.and_then(|request| self.numbers.get(request)).copied();
            let subject = subject
                .map_or((kind, number as u64, body.claims), |n| (kind, 1 << 40 | n as u64, body.claims));
            Times::drawn(samples, self.now.wall, chance, subject, usual)
        };
        let drawn = match next {
            Activity::Starting => match instance.life {
                Life::Created { run: None } => of(&times.warm_boot, WARM_BOOT, USUAL_BOOT),
                Life::Created { .. }
                | Life::Claimed { .. }
                | Life::Running { .. }
                | Life::Idle { .. }
                | Life::Terminated { .. } => of(&times.boot, BOOT, USUAL_BOOT + USUAL_CLAIM),
            },
            Activity::Claimed => of(&times.claim, CLAIM, USUAL_CLAIM),
            Activity::Cleaning => of(&times.clean, CLEAN, USUAL_CLEAN),
            Activity::Ending => {
                let takes = of(&times.end, END, USUAL_END);
                self.bodies[number].gone_at = self.now.mono + takes.took;
                return;
            }
            Activity::Idle | Activity::Running | Activity::Gone => return,
        };
        self.bodies[number].listened = drawn.until;
        self.after(drawn.took, Event::Speaks(number, instance.version));
    }

    /// Adds the time of an activity that ended now, within the measured period.
    pub(super) fn spent(&mut self, class: usize, activity: Activity, since: Duration) {
        let (from, to) = (since.max(self.begin), self.now.mono.min(self.end));
        let time = to.saturating_sub(from).as_secs_f64();
        let hours = &mut self.classes[class].hours;
        match activity {
            Activity::Starting => hours.starting += time,
            Activity::Idle => hours.idle += time,
            Activity::Claimed => hours.claimed += time,
            Activity::Running => hours.running += time,
            Activity::Cleaning => hours.cleaning += time,
            Activity::Ending => hours.ending += time,
            Activity::Gone => (),
        }
    }

    /// Responds to a launch as EC2 would: with machines, or with the failure recorded for such a launch at about this
    /// time.
    pub(super) fn order(&mut self, order: &LaunchOrder) {
        self.called(true);
        let launch = &order.launch;
        let Some(class) = self.names.get(&launch.resource_class).copied() else { return };
        let failures = self.failures.get_mut(&(launch.resource_class.clone(), launch.usage_class.as_str()));
        let mono = self.now.mono;
        let failed = failures.and_then(|failures| {
            let near = |(at, _): &(Duration, String)| *at <= mono + FAILS_FOR && mono <= *at + FAILS_FOR;
            let first = failures.iter().position(near)?;
            Some(failures.remove(first).1)
        });
        let launched = match failed {
            Some(code) => {
                let message = "as it was recorded".to_owned();
                Launched { machines: Vec::new(), shortfalls: vec![Shortfall { code, message }] }
            }
            None => {
                let machines = (0..launch.count).map(|_| self.made(class, order, launch)).collect();
                Launched { machines, shortfalls: Vec::new() }
            }
        };
        self.see(Observation::Ordered(launch.launch_id.clone(), Ok(launched)));
    }

    pub(super) fn made(&mut self, class: usize, order: &LaunchOrder, launch: &Launch) -> Machine {
        let number = self.bodies.len();
        let (since, gone_at) = (self.now.mono, Duration::MAX);
        self.bodies.push(Body { class, activity: Activity::Gone, since, gone_at, claims: 0, listened: None });
        let Class { spec, times, .. } = &self.classes[class];
        let accepted = |name: &&String| order.types.accept(name);
        let recorded = times.types.iter().find(accepted).cloned();
        let named = || order.types.0.first().map(|glob| glob.replace('*', "large"));
        Machine {
            arn: arn(number),
            id: id(number),
            state: MachineState::Running,
            class: Some(launch.resource_class.clone()),
            launch: Some(launch.launch_id.clone()),
            attempt: launch.attempt,
            usage_class: launch.usage_class,
            instance_type: recorded.or_else(named).unwrap_or_else(|| "m7i.large".into()),
            zone: "a".into(),
            cpu: spec.cpu.max(1),
            mmem: spec.mmem.max(1),
            launched_at: self.now.wall,
        }
    }

    pub(super) fn born(&mut self, instance: &Instance) {
        if let Some(number) = number_of(&instance.facts.instance_id) {
            let class = &mut self.classes[self.bodies[number].class];
            class.live += 1;
            class.peak = class.peak.max(class.live);
        }
        self.machine(instance);
    }
}
