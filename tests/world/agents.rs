//! Agents for tests, played from the contract: each reads its instance record and derives what it says. A habit makes
//! one misbehave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runyard_core::model::{
    Agent, AgentKey, ClaimProof, CleaningItem, Finding, Guard, Instance, InstanceId, Item, Life, Operation,
    Reading, RegistrationCredential, RemovalCredential, Signal, Write, read,
};
use runyard_core::ports::{Clock, Machine, Store};
use runyard_fakes::{FakeCompute, MemoryStore, TokioClock};

use crate::slots::SlotRunners;
use crate::world::item;

/// How an agent behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// As it should.
    Good,
    /// The machine never gets as far as an agent.
    NeverBoots,
    /// Its first boot fails.
    BootFails,
    /// It beats and never registers a runner.
    NeverRegisters,
    /// It says that registration failed.
    RegistrationFails,
    /// It cannot clean up.
    CleaningFails,
    /// It beats and never says that it is clean.
    NeverCleans,
    /// It dies at this many seconds after it was born, without a word.
    Dies(u64),
}

/// All agents of a yard.
#[derive(Clone)]
pub struct Agents(Arc<Inner>);

struct Inner {
    store: MemoryStore,
    compute: FakeCompute,
    clock: TokioClock,
    habits: Mutex<(Habit, BTreeMap<InstanceId, Habit>)>,
    known: Mutex<BTreeSet<InstanceId>>,
    keeping: Mutex<bool>,
    /// How often each looks at its record.
    pace: Mutex<Duration>,
    /// How often each writes although it has nothing new to say.
    beats: Mutex<Duration>,
    /// Boxes that were opened: claim and credential.
    opened: Mutex<Vec<(String, String)>>,
    /// GitHub's numbers of the runners, where agents tell them.
    numbers: Mutex<BTreeMap<InstanceId, u64>>,
    /// The machines whose runners have a job; those of agents that are asked and do not know the question are absent.
    jobs: Mutex<Option<BTreeSet<InstanceId>>>,
    /// Whether agents report what their clean-ups found.
    proves: Mutex<bool>,
    /// The private halves of their keys.
    keys: Mutex<BTreeMap<InstanceId, [u8; 32]>>,
    /// The runners of slots, where there are scale sets.
    slots: Mutex<Option<Arc<SlotRunners>>>,
    /// Which claims each machine ran, as its ground truth.
    served: Mutex<BTreeMap<InstanceId, Vec<String>>>,
}

impl Agents {
    pub fn new(store: MemoryStore, compute: FakeCompute, clock: TokioClock) -> Self {
        Self(Arc::new(Inner {
            store,
            compute,
            clock,
            habits: Mutex::new((Habit::Good, BTreeMap::new())),
            known: Mutex::default(),
            keeping: Mutex::default(),
            pace: Mutex::new(Duration::from_millis(100)),
            beats: Mutex::new(Duration::from_secs(10)),
            opened: Mutex::default(),
            numbers: Mutex::default(),
            jobs: Mutex::default(),
            proves: Mutex::default(),
            keys: Mutex::default(),
            slots: Mutex::default(),
            served: Mutex::default(),
        }))
    }

    /// The runners of slots serve the jobs of these scale sets from now on.
    pub fn serve_sets(&self, runners: &Arc<SlotRunners>) {
        *self.0.slots.lock().unwrap() = Some(runners.clone());
    }

    fn slots(&self) -> Option<Arc<SlotRunners>> {
        self.0.slots.lock().unwrap().clone()
    }

    /// How machines behave from now on that have no habit of their own.
    pub fn all(&self, habit: Habit) {
        self.0.habits.lock().unwrap().0 = habit;
    }

    /// How one machine behaves.
    pub fn one(&self, id: &InstanceId, habit: Habit) {
        self.0.habits.lock().unwrap().1.insert(id.clone(), habit);
    }

    /// Which number one machine's agent tells of its runner from its next write on.
    pub fn tells(&self, id: &InstanceId, runner: u64) {
        self.0.numbers.lock().unwrap().insert(id.clone(), runner);
    }

    /// On which machines a job runs: agents answer from now on whether their runner may be retired.
    #[allow(dead_code, reason = "each test crate takes the parts it needs")]
    pub fn have_jobs<'a>(&self, machines: impl IntoIterator<Item = &'a InstanceId>) {
        *self.0.jobs.lock().unwrap() = Some(machines.into_iter().cloned().collect());
    }

    /// The box in a machine's record, opened as its agent would.
    #[allow(dead_code, reason = "each test crate takes the parts it needs")]
    pub fn opens(&self, instance: &Instance) -> Option<RegistrationCredential> {
        let bytes = *self.0.keys.lock().unwrap().get(&instance.facts.instance_id)?;
        AgentKey::from_bytes(bytes).open(&instance.registration.as_ref()?.sealed).ok()
    }

    /// Agents report from now on what their clean-ups found; one that failed, that files were left.
    #[allow(dead_code, reason = "each test crate takes the parts it needs")]
    pub fn prove(&self) {
        *self.0.proves.lock().unwrap() = true;
    }

    /// The report about a claim that its agent gives with this signal.
    fn proof(&self, signal: Signal, claim: &str) -> Option<Item> {
        let claim = claim.parse().ok().filter(|_| *self.0.proves.lock().unwrap())?;
        let mut proof = ClaimProof::of(&claim);
        proof.cleaning = CleaningItem::ALL.iter().map(|item| (*item, Finding::Passed)).collect();
        match signal {
            Signal::RemoveRegOk => {}
            Signal::RemoveRegFailed => {
                proof.cleaning.insert(CleaningItem::Files, Finding::Failed);
            }
            Signal::Ok | Signal::Failed | Signal::RegOk | Signal::RegFailed => return None,
        }
        Some(Item::from([("proof".to_owned(), proof.attribute())]))
    }

    /// How often agents look at their records from now on.
    #[allow(dead_code, reason = "each test crate takes the parts it needs")]
    pub fn pace(&self, pace: Duration) {
        *self.0.pace.lock().unwrap() = pace;
    }

    /// How often agents beat from now on.
    #[allow(dead_code, reason = "each test crate takes the parts it needs")]
    pub fn beats(&self, every: Duration) {
        *self.0.beats.lock().unwrap() = every;
    }

    /// Which claims each machine truly served, in their order.
    #[allow(dead_code, reason = "each test crate takes the parts it needs")]
    pub fn served(&self) -> BTreeMap<InstanceId, Vec<String>> {
        self.0.served.lock().unwrap().clone()
    }

    pub fn opened(&self) -> Vec<(String, String)> {
        self.0.opened.lock().unwrap().clone()
    }

    /// Gives every machine that comes up an agent.
    pub fn keep(&self) {
        if std::mem::replace(&mut *self.0.keeping.lock().unwrap(), true) {
            return;
        }
        let agents = self.clone();
        tokio::spawn(async move {
            loop {
                for machine in agents.0.compute.machines() {
                    if machine.state.alive() && agents.0.known.lock().unwrap().insert(machine.id.clone()) {
                        tokio::spawn(agents.clone().live(machine));
                    }
                }
                let pace = *agents.0.pace.lock().unwrap();
                tokio::time::sleep(pace / 2).await;
            }
        });
    }

    fn habit(&self, id: &InstanceId) -> Habit {
        let habits = self.0.habits.lock().unwrap();
        habits.1.get(id).copied().unwrap_or(habits.0)
    }

    async fn live(self, machine: Machine) {
        let born = self.0.clock.elapsed();
        let mut beat = born;
        let mut random = crypto_box::aead::OsRng;
        let key = AgentKey::generate(&mut random);
        self.0.keys.lock().unwrap().insert(machine.id.clone(), key.to_bytes());
        let mut said: Option<(Signal, String)> = None;
        let mut answered = None;
        let mut shown: Option<Item> = None;
        tokio::time::sleep(Duration::from_secs(2)).await;
        loop {
            // Old agents look less often, so that a day passes quickly.
            let old = self.0.clock.elapsed().saturating_sub(born) > Duration::from_secs(7200);
            let pace = *self.0.pace.lock().unwrap();
            tokio::time::sleep(if old { Duration::from_secs(5) } else { pace }).await;
            let alive = self.0.compute.machines().iter().any(|m| m.id == machine.id && m.state.alive());
            let habit = self.habit(&machine.id);
            let age = self.0.clock.elapsed().saturating_sub(born);
            let dead = matches!(habit, Habit::Dies(at) if age.as_secs() >= at) || habit == Habit::NeverBoots;
            if !alive {
                return;
            }
            if dead {
                continue;
            }
            let Ok(Some(found)) = self.0.store.get(&Instance::key_of(&machine.arn)).await else { continue };
            let Reading::Record(instance) = read::<Instance>(&found) else { continue };
            let says = self.says(&instance, habit, &key, said.as_ref());
            let due = self.0.clock.elapsed() >= beat + *self.0.beats.lock().unwrap();
            let slots = self.slots();
            let shows = slots.as_ref().and_then(|slots| slots.shows(&instance, self.0.clock.now()));
            let knows = self.0.jobs.lock().unwrap().is_some() || shows.is_some();
            let asked = instance.retire_asked.filter(|_| knows);
            if says != said || asked != answered || shows != shown || due || said.is_none() {
                beat = self.0.clock.elapsed();
                let former: Vec<String> = shown.iter().flat_map(|item: &Item| item.keys().cloned()).collect();
                if self.write(&machine, says.as_ref(), &key, asked, (&former, shows.as_ref())).await {
                    (said, answered, shown) = (says, asked, shows);
                }
            }
        }
    }

    /// What the records make it say.
    fn says(
        &self,
        instance: &Instance,
        habit: Habit,
        key: &AgentKey,
        said: Option<&(Signal, String)>,
    ) -> Option<(Signal, String)> {
        if habit == Habit::BootFails {
            return Some((Signal::Failed, String::new()));
        }
        let Some(claim) = &instance.claim else { return Some((Signal::Ok, String::new())) };
        let id = claim.id.to_string();
        match &instance.life {
            Life::Created { run: Some(_) } | Life::Claimed { .. } => match habit {
                Habit::NeverRegisters => said.cloned(),
                Habit::RegistrationFails => Some((Signal::RegFailed, id)),
                // Its runner was registered ahead, and has not the label of the run yet.
                _ if instance.ahead.is_some() => said.cloned(),
                _ if claim.request.request().is_some_and(|request| request.set().is_some()) => {
                    let signed = said == Some(&(Signal::RegOk, id.clone()));
                    let started = signed || self.slots().is_some_and(|slots| slots.start(instance, key));
                    if started {
                        self.serve(instance, &id);
                    }
                    if started { Some((Signal::RegOk, id)) } else { said.cloned() }
                }
                _ => {
                    if let Some(registration) = &instance.registration
                        && said != Some(&(Signal::RegOk, id.clone()))
                    {
                        let opened: RegistrationCredential = key.open(&registration.sealed).ok()?;
                        assert_eq!(opened.claim_id, id, "a box is for the claim it came with");
                        self.0.opened.lock().unwrap().push((id.clone(), opened.token.unwrap_or_default()));
                    }
                    self.serve(instance, &id);
                    Some((Signal::RegOk, id))
                }
            },
            Life::Running { .. } => Some((Signal::RegOk, id)),
            Life::Idle { pooled_at: None } => match habit {
                Habit::CleaningFails => Some((Signal::RemoveRegFailed, id)),
                Habit::NeverCleans => said.cloned(),
                _ => {
                    if let Some(removal) = &instance.removal {
                        let opened: RemovalCredential = key.open(&removal.sealed).ok()?;
                        assert_eq!(opened.claim_id, id, "a box is for the claim it came with");
                    }
                    Some((Signal::RemoveRegOk, id))
                }
            },
            Life::Created { run: None } | Life::Idle { .. } | Life::Terminated { .. } => said.cloned(),
        }
    }

    fn serve(&self, instance: &Instance, claim: &str) {
        let mut served = self.0.served.lock().unwrap();
        let claims = served.entry(instance.facts.instance_id.clone()).or_default();
        if claims.last().map(String::as_str) != Some(claim) {
            claims.push(claim.to_owned());
        }
    }

    async fn write(
        &self,
        machine: &Machine,
        says: Option<&(Signal, String)>,
        key: &AgentKey,
        asked: Option<jiff::Timestamp>,
        (former, shows): (&[String], Option<&Item>),
    ) -> bool {
        let mut set: Item = item(&serde_json::json!({"publicKey": key.public()}));
        if let Some((signal, claim)) = says {
            set.extend(self.proof(*signal, claim).unwrap_or_default());
            set.extend(item(&serde_json::json!({"signal": signal.as_str(), "signalClaimId": claim})));
        }
        if let Some(number) = self.0.numbers.lock().unwrap().get(&machine.id) {
            set.extend(item(&serde_json::json!({"runnerId": number})));
        }
        if let Some(at) = asked {
            let busy = match &*self.0.jobs.lock().unwrap() {
                Some(jobs) => jobs.contains(&machine.id),
                None => self.slots().is_some_and(|slots| slots.is_busy(&machine.id)),
            };
            let retire = serde_json::json!({"at": at, "busy": busy});
            set.extend(item(&serde_json::json!({"retire": retire})));
        }
        set.extend(shows.cloned().unwrap_or_default());
        let remove = former.iter().filter(|name| !set.contains_key(*name)).cloned().collect();
        let add = BTreeMap::from([("heartbeatSeq".to_owned(), 1)]);
        let operation = Operation::Update { guard: Guard::Exists, set, remove, add };
        let write = Write { key: Agent::key_of(&machine.arn), operation };
        self.0.store.write(&write).await.is_ok()
    }
}
