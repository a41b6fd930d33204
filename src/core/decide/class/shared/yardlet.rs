//! A class with `sharing` on a small scale: machines, repositories with jobs, and one operator that decides once a
//! second.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::decide::Effect;
use crate::decide::class::turns::Turns;
use crate::model::{Desired, InstanceId, Life, Phase, Pool, Request, RequestKey, Status, Threshold};
use crate::testing::{Scene, arn, linux, machine, request};
use crate::yard::Observation;

/// A running job: its repository, its machines, and its start.
struct Job {
    key: RequestKey,
    machines: Vec<InstanceId>,
    since: u64,
}

pub(super) struct Yardlet {
    pub(super) scene: Scene,
    pub(super) second: u64,
    jobs: BTreeMap<(u64, u64), Job>,
    /// How long the jobs of a run take.
    lasts: BTreeMap<String, u64>,
    asked: BTreeMap<String, u64>,
    next: u64,
    chance: u64,
    /// Machine-seconds used by repository.
    pub(super) used: BTreeMap<String, u64>,
    /// How long each request waited for its last machine, by repository and in the order of their service.
    pub(super) waited: BTreeMap<String, Vec<u64>>,
    pub(super) failed: Vec<String>,
    /// Idle machines that ended to make room and were replaced by others.
    ended_idle: u64,
}

impl Yardlet {
    /// Creates a class with so many free machines at its maximum; each machine that ends is replaced.
    pub(super) fn new(machines: usize, sharing: serde_json::Value) -> Self {
        let mut spec = json!({"max": machines, "maxAgeSeconds": 100_000_000, "idleSeconds": 100_000_000});
        if !sharing.is_null() {
            spec["sharing"] = sharing;
        }
        let mut scene = Scene::with(spec);
        for n in 0..machines {
            scene.add(machine(&format!("i-{n:04}")).pooled().until(10_000_000));
        }
        let (used, waited, failed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let (jobs, lasts, asked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { scene, second: 0, jobs, lasts, asked, next: 0, chance: 1, used, waited, failed, ended_idle: 0 }
    }

    /// Sets another seed.
    pub(super) fn seeded(mut self, seed: u64) -> Self {
        self.chance = seed;
        self
    }

    /// Returns a pseudo-random number, the same in every run.
    pub(super) fn number(&mut self, below: u64) -> u64 {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    /// Applies a person's change to the pool.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Pool)) {
        let mut pool = self.scene.yard.pool(&linux()).unwrap().clone();
        change(&mut pool);
        pool.version += 1;
        self.scene.put(&pool);
    }

    /// Adds a request of a repository, whose job lasts this many seconds.
    pub(super) fn ask(&mut self, repository: &str, lasts: u64, more: serde_json::Value) -> String {
        self.next += 1;
        let run = format!("{:06}", self.next);
        let mut fields = json!({"repository": repository, "timeoutSeconds": 7200});
        for (name, value) in more.as_object().into_iter().flatten() {
            fields[name] = value.clone();
        }
        let mut asked = request(&run, more["count"].as_u64().unwrap_or(1) as u32, fields);
        asked.status = Status::default();
        self.scene.put(&asked);
        self.lasts.insert(run.clone(), lasts);
        self.asked.insert(run.clone(), self.second);
        run
    }

    /// Counts the waiting requests of a repository.
    pub(super) fn waiting(&self, repository: &str) -> usize {
        let class = self.scene.yard.class(&linux()).unwrap();
        class.waiting.all().iter().filter(|(_, key)| key.repository.as_str() == repository).count()
    }

    /// Returns the runs that wait, in the order in which they would be served if each got one machine.
    pub(super) fn order(scene: &Scene) -> Vec<String> {
        let class = scene.yard.class(&linux()).unwrap();
        let mut turns = Turns::of(&class.shares, scene.now.wall);
        let mut order = Vec::new();
        while let Some(turn) = turns.next() {
            order.push(turn.head.1.run_id.to_string());
            turns.done(&turn, 1, true);
        }
        order
    }

    /// Returns an operator that has just started and read all records.
    pub(super) fn restarted(&self) -> Scene {
        let mut scene = Scene::empty();
        (scene.now, scene.policy) = (self.scene.now, self.scene.policy.clone());
        let yard = &self.scene.yard;
        yard.classes().filter_map(|(_, class)| class.pool.as_ref()).for_each(|pool| drop(scene.put(pool)));
        yard.requests().for_each(|(_, request)| drop(scene.put(request)));
        for tracked in yard.instances() {
            scene.put(&tracked.instance);
            tracked.agent.iter().for_each(|agent| drop(scene.put(agent)));
        }
        scene
    }

    /// Runs the operator until it plans no more actions.
    pub(super) fn act(&mut self) {
        for _ in 0..1000 {
            self.scene.see(Observation::Hints(linux(), Vec::new()));
            let mut actions = self.scene.of_class().actions;
            actions.retain(|action| !matches!(action.effect, Effect::Receive(..) | Effect::Intend(..)));
            if actions.is_empty() {
                return;
            }
            for action in &actions {
                if let Effect::Pool(_) = &action.effect {
                    self.scene.see(Observation::Reported(linux()));
                } else if let Effect::Instance(step, _) = &action.effect {
                    self.ended_idle += u64::from(!step.after.state().live());
                } else if let Effect::Claim { request, .. } = &action.effect {
                    self.claimed(&request.after);
                } else if let Effect::Request(step) = &action.effect
                    && step.after.phase() == Phase::Failed
                {
                    self.failed.push(step.after.status.message.clone());
                }
            }
            self.scene.apply(&actions);
        }
        panic!("the operator never rests");
    }

    fn claimed(&mut self, request: &Request) {
        if (request.status.instances.len() as u32) < request.intent.count {
            return;
        }
        let (run, repository) = (request.id.run_id.to_string(), request.id.repository.to_string());
        self.waited.entry(repository).or_default().push(self.second - self.asked[&run]);
        let (key, machines) = (request.id.clone(), request.status.instances.clone());
        let end = self.second + self.lasts[&run];
        self.next += 1;
        self.jobs.insert((end, self.next), Job { key, machines, since: self.second });
    }

    fn ended(&mut self, job: &Job) {
        let mut request = self.scene.yard.request(&job.key).unwrap().clone();
        request.status.phase = Some(Phase::Released);
        request.intent.desired = Desired::Released;
        request.status.instances.clear();
        request.version += 1;
        self.scene.put(&request);
        let now = self.scene.now.wall;
        for id in &job.machines {
            let mut instance = self.scene.yard.by_id(id).unwrap().instance.clone();
            instance.life = Life::Idle { pooled_at: Some(now) };
            let at = now + jiff::SignedDuration::from_hours(2400);
            instance.threshold = Some(Threshold { at, set_at: now });
            instance.version += 1;
            self.scene.put(&instance);
        }
        let time = (self.second - job.since) * job.machines.len() as u64;
        *self.used.entry(job.key.repository.to_string()).or_default() += time;
    }

    /// Advances one second; `asks` adds requests before the operator acts.
    pub(super) fn tick(&mut self, asks: impl FnOnce(&mut Self)) {
        self.scene.wait(1);
        self.second += 1;
        if self.second.is_multiple_of(20) {
            let ids: BTreeSet<InstanceId> = self
                .scene
                .yard
                .instances()
                .map(|tracked| tracked.instance.facts.instance_id.clone())
                .collect();
            ids.iter().for_each(|id| {
                assert_eq!(arn(id.as_str()), crate::model::InstanceArn::local(id));
                self.scene.speaks(id.as_str(), |_| {});
            });
        }
        while let Some(entry) = self.jobs.first_entry().filter(|entry| entry.key().0 <= self.second) {
            let job = entry.remove();
            self.ended(&job);
        }
        for _ in 0..std::mem::take(&mut self.ended_idle) {
            self.next += 1;
            self.scene.add(machine(&format!("i-{:06}", 900_000 + self.next)).pooled().until(10_000_000));
        }
        asks(self);
        self.act();
    }

    /// Returns the use of each repository, including the jobs that still run.
    pub(super) fn shares(&self) -> BTreeMap<String, f64> {
        let mut used = self.used.clone();
        for job in self.jobs.values() {
            *used.entry(job.key.repository.to_string()).or_default() +=
                (self.second - job.since) * job.machines.len() as u64;
        }
        let all: u64 = used.values().sum();
        used.into_iter().map(|(name, time)| (name, time as f64 / all as f64)).collect()
    }
}
