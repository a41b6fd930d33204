//! The true state of a simulated machine, whatever its records show: the runner's process, its registration, and
//! whether it is clean. The executor of the production agent runs on it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runyard_agent::task::{Executor, GithubFailure, RunnerEnd, RunnerProcess, Task, TaskOutcome, Wipe};
use runyard_core::model::{
    Ahead, ClaimId, ClaimProof, CleaningItem, Finding, Instance, Place, Reading, RegistrationCredential,
    RunnerPackage, read, runner_name,
};
use runyard_core::ports::github::{Runner, Scope};
use runyard_core::ports::{Machine, Store as _};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::simulation::actor::Actor;
use crate::simulation::bugs::Bug;
use crate::simulation::fault_rates::Fault;
use crate::simulation::plans::Wrong;
use crate::simulation::set_jobs::SlotRunner;
use crate::simulation::world::World;

/// A machine as it is.
pub(crate) struct SimHost {
    pub(crate) machine: Machine,
    /// Cancelled when the power is off.
    pub(crate) dead: CancellationToken,
    process: Mutex<Option<(ClaimId, RunnerProcess)>>,
    /// The runner package that the process was started from; none: the one that the machine was launched with.
    package: Mutex<Option<RunnerPackage>>,
    registered: Mutex<Option<(Scope, String)>>,
    /// Every name under which a runner was registered here.
    names: Mutex<BTreeSet<String>>,
    /// Those whose runner died: GitHub may hold its session.
    dead_names: Mutex<BTreeSet<String>>,
    unclean: Mutex<bool>,
    started: Mutex<u64>,
    /// Whether its processes are suspended, so that no job begins.
    frozen: Mutex<bool>,
    /// The runner of a slot.
    slot: Mutex<Option<SlotRunner>>,
    /// The runner registered ahead that was told whose jobs may begin, and of which run they are.
    lent: Mutex<Option<(ClaimId, String)>>,
}

/// Whether it was registered ahead of any claim and has no label of a run.
fn at_rest(runner: &Runner) -> bool {
    let [label] = &runner.labels[..] else { return false };
    Ahead::named(&runner.name).is_some() && label.len() == 32
}

impl SimHost {
    pub(crate) fn new(machine: Machine) -> Arc<Self> {
        Arc::new(Self {
            machine,
            dead: CancellationToken::new(),
            process: Mutex::default(),
            package: Mutex::default(),
            registered: Mutex::default(),
            names: Mutex::default(),
            dead_names: Mutex::default(),
            unclean: Mutex::default(),
            started: Mutex::default(),
            frozen: Mutex::default(),
            slot: Mutex::default(),
            lent: Mutex::default(),
        })
    }

    /// Whether a runner runs on it that may get jobs.
    pub(crate) fn at_work(&self) -> bool {
        let (process, names) = (self.process.lock().unwrap(), self.names.lock().unwrap());
        let rests = |id: &ClaimId| {
            let lent = self.lent.lock().unwrap().as_ref().is_some_and(|(of, _)| of == id);
            names.contains(&Ahead::name_of(id)) && !lent
        };
        process.as_ref().is_some_and(|(id, _)| !rests(id))
    }

    /// Whether a job that GitHub assigns to this runner begins here.
    pub(crate) fn takes_jobs_as(&self, runner: &str) -> bool {
        let named = self.registered.lock().unwrap().as_ref().is_some_and(|(_, name)| name == runner);
        named
            && !self.dead.is_cancelled()
            && !*self.frozen.lock().unwrap()
            && self.process.lock().unwrap().is_some()
    }

    /// The name of its runner.
    fn runner(&self) -> Option<String> {
        self.registered.lock().unwrap().as_ref().map(|(_, name)| name.clone())
    }

    /// S1, S3 and S4: whether what runs here is what the record says.
    pub(crate) fn judge(&self, world: &World, record: &Instance) -> Vec<String> {
        let mut broken = Vec::new();
        let id = &self.machine.id;
        let claim = record.claim.as_ref().map(|claim| &claim.id);
        if record.place() == Place::IdlePooled {
            broken.extend(world.set_jobs.left_of(id));
            let ours = |name: &str| {
                let rest =
                    name.strip_prefix("runyard-").map(|rest| rest.strip_prefix("ahead-").unwrap_or(rest));
                rest.is_some_and(|rest| rest.starts_with(id.as_str()))
            };
            let listed = world.github.all_runners();
            let labelled = |runner: &Runner| Ahead::named(&runner.name).is_some() && !at_rest(runner);
            let left = listed.iter().filter(|runner| ours(&runner.name) && !at_rest(runner));
            let left = left.filter(|runner| runner.online || labelled(runner));
            broken.extend(left.map(|runner| format!("S4 {id}: in the pool while {} is online", runner.name)));
            // The last claim's last runner is off GitHub's list before. A single-use one before it that died without a
            // job stays listed, offline, until the leftovers are swept.
            let names = self.names.lock().unwrap();
            let latest = claim.map(|claim| runner_name(claim, record.registration_seq.max(1)));
            let anew = latest.as_ref().is_some_and(|latest| names.contains(latest));
            let latest = latest.filter(|_| anew || world.single_use(&self.machine));
            let last = latest.or_else(|| claim.map(|claim| runner_name(claim, 1)));
            let left = listed.iter().filter(|r| last.as_ref() == Some(&r.name) && names.contains(&r.name));
            broken.extend(
                left.map(|runner| format!("S4 {id}: in the pool while GitHub lists {}", runner.name)),
            );
            if *self.unclean.lock().unwrap() {
                broken.push(format!("S23 {id}: in the pool although its clean-up failed"));
            }
        }
        let process = self.process.lock().unwrap();
        let Some((running, _)) = process.as_ref() else { return broken };
        if self.names.lock().unwrap().contains(&Ahead::name_of(running)) {
            broken.extend(self.judge_ahead(running, record));
            return broken;
        }
        match record.place() {
            Place::Terminated => {}
            Place::IdlePooled => {
                broken.push(format!("S4 {id}: in the pool while the runner of {running} runs"))
            }
            Place::CreatedWarm => broken.push(format!("S3 {id}: warm while the runner of {running} runs")),
            Place::Nowhere
            | Place::CreatedBound
            | Place::Claimed
            | Place::Running
            | Place::IdleCleaning
            | Place::IdleHeld => {
                if claim != Some(running) {
                    broken.push(format!("S1 S3 {id}: the runner of {running} runs, the claim is {claim:?}"));
                }
                let package = self.package.lock().unwrap();
                if claim == Some(running) && *package != record.runner {
                    let named = &record.runner;
                    broken.push(format!("S24 {id}: {running} runs {package:?}, its record names {named:?}"));
                }
            }
        }
        broken
    }

    /// The same of a runner that was registered ahead: at rest it serves nobody, whatever the record says; once it is
    /// lent, it is of the claim that took it.
    fn judge_ahead(&self, running: &ClaimId, record: &Instance) -> Vec<String> {
        let (mut broken, id) = (Vec::new(), &self.machine.id);
        let lent = self.lent.lock().unwrap();
        if let Some((_, run)) = lent.as_ref().filter(|(of, _)| of == running) {
            let pooled = matches!(record.place(), Place::IdlePooled | Place::CreatedWarm);
            let request = record.claim.as_ref().and_then(|claim| claim.request.request());
            let other = request.is_none_or(|request| request.run_id.as_str() != run);
            if record.place() != Place::Terminated && (pooled || other) {
                broken.push(format!("S1 S4 {id}: {running} runs for run {run}, the record has {request:?}"));
            }
        }
        let package = self.package.lock().unwrap();
        let named = record.ahead.as_ref().is_some_and(|ahead| ahead.id == *running);
        if named && *package != record.runner {
            let named = &record.runner;
            broken.push(format!("S24 {id}: {running} runs {package:?}, its record names {named:?}"));
        }
        broken
    }

    /// The power goes: nothing runs any more, GitHub sees the runner go offline.
    pub(crate) fn power_off(&self, world: &World) {
        self.dead.cancel();
        self.runner_ends(world);
        *self.process.lock().unwrap() = None;
        if let Some((scope, name)) = self.registered.lock().unwrap().as_ref() {
            world.github.set_runner(scope, name, false, false);
        }
    }
}

impl SimHost {
    /// Its guard ends it. While things go wrong that may cost a job: no operator was there to move the deadline.
    pub(crate) fn ends_itself(&self, world: &World) {
        if !world.fault_rates.calm() {
            let slot = self.slot.lock().unwrap().take();
            slot.into_iter().for_each(|slot| world.set_jobs.lost(&slot));
        }
    }

    /// S39: its runner ends, with the job that it may have.
    fn runner_ends(&self, world: &World) {
        let runs = self.process.lock().unwrap().is_some();
        let job = self.runner().filter(|_| runs).and_then(|runner| world.jobs.ended(&runner));
        job.into_iter().for_each(|what| world.broke(what));
        let slot = self.slot.lock().unwrap().take();
        let job = slot.and_then(|slot| world.set_jobs.ended(&slot));
        job.into_iter().for_each(|what| world.broke(what));
    }
}

/// The executor of a machine's agent.
pub(crate) struct Hands {
    pub(crate) world: Arc<World>,
    pub(crate) actor: Arc<Actor>,
    pub(crate) sim_host: Arc<SimHost>,
    /// The package that its agent told it to run.
    pub(crate) package: Mutex<Option<RunnerPackage>>,
}

fn scope(url: &str) -> Scope {
    let (owner, name) =
        url.trim_start_matches("https://github.example/").split_once('/').expect("a repository");
    Scope::Repository { owner: owner.to_owned(), name: name.to_owned() }
}

impl Hands {
    fn say(&self, what: &str) {
        self.world.trace.tell(&format!("{} {what}", self.sim_host.machine.id));
    }

    async fn takes(&self, seconds: std::ops::Range<u64>) {
        sleep(self.world.chance.millis(seconds.start * 1000 + 1..seconds.end * 1000)).await;
    }

    /// Why something that needs GitHub fails, if it does.
    fn refused(&self) -> Option<TaskOutcome> {
        let world = &self.world;
        if world.fault_rates.lasts(Fault::GitHubAway) || world.strikes(Fault::GitHubFails) {
            return Some(TaskOutcome::Failed(GithubFailure::Unreachable("simulated".into())));
        }
        let package = self.package.lock().unwrap();
        if package.as_ref().is_some_and(|package| world.is_broken(&package.version)) {
            return Some(TaskOutcome::Failed(GithubFailure::Refused("simulated: a broken version".into())));
        }
        let refused = world.strikes(Fault::RegistrationFails);
        refused.then(|| TaskOutcome::Failed(GithubFailure::Refused("simulated".into())))
    }

    async fn configure(&self, claim: &ClaimId, sealed: &RegistrationCredential) -> TaskOutcome {
        self.takes(1..6).await;
        if let Some(failed) = self.refused() {
            return failed;
        }
        if sealed.expires_at < self.world.clock_now() {
            return TaskOutcome::Failed(GithubFailure::Refused("the token has run out".into()));
        }
        let scope = scope(&sealed.url);
        let name = match (self.world.bug, self.sim_host.registered.lock().unwrap().clone()) {
            (Some(Bug::NameOfTheDead), Some((_, former))) if sealed.seq > 1 => former,
            _ => sealed.runner_name.clone(),
        };
        if self.sim_host.dead_names.lock().unwrap().contains(&name) {
            let id = &self.sim_host.machine.id;
            self.world.broke(format!("S35 {id}: registers {name} again, whose dead session GitHub may hold"));
        }
        self.world.github.register(&scope, &name, sealed.labels.clone());
        self.world.effects.registered.lock().unwrap().push(name.clone());
        self.world.github.set_runner(&scope, &name, false, false);
        self.sim_host.names.lock().unwrap().insert(name.clone());
        *self.sim_host.registered.lock().unwrap() = Some((scope, name));
        self.say(&format!("registers for {claim}"));
        self.takes(0..2).await;
        TaskOutcome::Configured
    }

    async fn start(&self, claim: &ClaimId, single_use: Option<&RegistrationCredential>) -> TaskOutcome {
        self.takes(0..3).await;
        if let Some(slot) = single_use.and_then(|sealed| self.world.set_jobs.runner(sealed)) {
            if let Some(failed) = self.refused() {
                return failed;
            }
            *self.sim_host.slot.lock().unwrap() = Some(slot);
        } else if let Some(sealed) = single_use {
            let scope = scope(&sealed.url);
            if let Some(failed) = self.refused() {
                return failed;
            }
            self.sim_host.names.lock().unwrap().insert(sealed.runner_name.clone());
            *self.sim_host.registered.lock().unwrap() = Some((scope, sealed.runner_name.clone()));
        }
        let runner = {
            let mut started = self.sim_host.started.lock().unwrap();
            *started += 1;
            RunnerProcess { pid: 1000 + *started as i32, started: *started }
        };
        if let Some((other, _)) = self.sim_host.process.lock().unwrap().as_ref()
            && other != claim
        {
            self.world.broke(format!("S1 {}: {claim} starts beside {other}", self.sim_host.machine.id));
        }
        self.sim_host.package.lock().unwrap().clone_from(&self.package.lock().unwrap());
        *self.sim_host.process.lock().unwrap() = Some((claim.clone(), runner));
        self.say(&format!("runs for {claim}"));
        self.world.judge_host(&self.sim_host);
        TaskOutcome::Started(runner)
    }

    /// GitHub sees the runner no more.
    fn goes_offline(&self) {
        if let Some((scope, name)) = self.sim_host.registered.lock().unwrap().as_ref() {
            self.world.github.set_runner(scope, name, false, false);
        }
    }

    /// GitHub may take the runner for busy for a while after its job was killed.
    fn stays_busy(&self) {
        let Some((scope, name)) = self.sim_host.registered.lock().unwrap().clone() else { return };
        if !self.world.strikes(Fault::GitHubBusy) {
            return;
        }
        let (world, long) = (self.world.clone(), self.world.chance.seconds(1..600));
        world.github.set_runner(&scope, &name, false, true);
        tokio::spawn(async move {
            sleep(long).await;
            world.github.set_runner(&scope, &name, false, false);
        });
    }

    /// GitHub's listing of the runner of this machine.
    fn listed(&self) -> Option<Runner> {
        let (_, name) = self.sim_host.registered.lock().unwrap().clone()?;
        self.world.github.all_runners().into_iter().find(|runner| runner.name == name)
    }

    fn runs(&self, runner: RunnerProcess) -> bool {
        self.sim_host.process.lock().unwrap().as_ref().is_some_and(|(_, running)| *running == runner)
    }

    async fn listen(&self, runner: RunnerProcess) -> TaskOutcome {
        self.takes(1..5).await;
        if !self.runs(runner) {
            return TaskOutcome::Failed(GithubFailure::Unreachable("its process is gone".into()));
        }
        let package = self.sim_host.package.lock().unwrap().clone();
        let ended = self.world.has_ended(package.as_ref().map(|package| package.version.as_str()));
        // GitHub refuses it at its session, or only at its first poll.
        let at_once = self.world.chance.percent(50);
        if ended && at_once && self.world.ends.is_some_and(|ends| !ends.starves) {
            *self.sim_host.process.lock().unwrap() = None;
            return TaskOutcome::Failed(GithubFailure::Refused("simulated: a version that ended".into()));
        }
        if self.world.strikes(Fault::RegistrationFails) {
            *self.sim_host.process.lock().unwrap() = None;
            return TaskOutcome::Failed(GithubFailure::Refused("simulated".into()));
        }
        if let Some((scope, name)) = self.sim_host.registered.lock().unwrap().as_ref() {
            self.world.github.set_runner(scope, name, true, false);
        }
        TaskOutcome::Listening
    }

    /// Until the job of a slot's runner begins, or, where that is not awaited, is over.
    async fn serve_slot(&self, runner: RunnerProcess, awaits: bool) -> TaskOutcome {
        while self.runs(runner) {
            self.takes(0..2).await;
            let mut slot = self.sim_host.slot.lock().unwrap();
            let Some(own) = slot.as_mut() else { break };
            let frozen = *self.sim_host.frozen.lock().unwrap();
            if awaits
                && !frozen
                && let Some(began) = self.world.set_jobs.take(&self.world, own)
            {
                return began;
            }
            if let Some(ended) = self.world.set_jobs.ends(own) {
                (*slot, *self.sim_host.process.lock().unwrap()) = (None, None);
                return ended;
            }
        }
        TaskOutcome::Ended { worked: false, end: RunnerEnd::Lost("its process is gone".into()) }
    }

    /// Until the runner ends: a single-use one after its job, another one when it dies.
    async fn serve(&self, runner: RunnerProcess) -> TaskOutcome {
        let single_use = self.world.single_use(&self.sim_host.machine);
        let (mut worked, mut end) = (false, RunnerEnd::Lost("simulated: its listener died".into()));
        let package = self.sim_host.package.lock().unwrap().clone();
        let over = self.world.has_ended(package.as_ref().map(|package| package.version.as_str()));
        if over && self.runs(runner) && self.world.ends.is_some_and(|ends| !ends.starves) {
            *self.sim_host.process.lock().unwrap() = None;
            self.goes_offline();
            let why = "simulated: GitHub takes no runner of this version any more";
            end = RunnerEnd::Failed(GithubFailure::Deprecated(why.into()));
        }
        while self.runs(runner) {
            self.takes(10..60).await;
            if single_use && self.world.chance.percent(30) {
                let used = self.sim_host.registered.lock().unwrap().take();
                if let Some((scope, name)) = used {
                    self.world.github.deregister(&scope, &name);
                }
                *self.sim_host.process.lock().unwrap() = None;
                worked = true;
            } else if self.world.strikes(Fault::RunnerDies) {
                self.say("loses its runner");
                *self.sim_host.process.lock().unwrap() = None;
                self.goes_offline();
                let lost = self.sim_host.registered.lock().unwrap().clone();
                if let Some((scope, name)) = lost {
                    if self.world.chance.percent(30) {
                        self.world.github.deregister(&scope, &name);
                        end = RunnerEnd::Forgotten("simulated: somebody deleted it at GitHub".into());
                    }
                    self.sim_host.dead_names.lock().unwrap().insert(name);
                }
            }
        }
        TaskOutcome::Ended { worked, end }
    }

    /// Its jobs may begin from now on.
    async fn lend(&self, claim: &ClaimId, run: &str) -> TaskOutcome {
        self.takes(0..2).await;
        *self.sim_host.lent.lock().unwrap() = Some((claim.clone(), run.to_owned()));
        self.say(&format!("lends {claim} to run {run}"));
        self.world.judge_host(&self.sim_host);
        TaskOutcome::Lent
    }

    /// No job begins from now on, unless one has begun.
    async fn freeze(&self) -> TaskOutcome {
        self.takes(0..2).await;
        let begun = self.sim_host.runner().is_some_and(|runner| self.world.jobs.has_begun(&runner));
        let slot = self.sim_host.slot.lock().unwrap().as_ref().is_some_and(SlotRunner::has_job);
        let busy =
            (begun || slot) && !matches!(self.world.bug, Some(Bug::FreeWhileBusy | Bug::BusyGivenBack));
        *self.sim_host.frozen.lock().unwrap() = !busy;
        self.say(if busy { "has a job" } else { "is suspended" });
        TaskOutcome::Frozen { busy }
    }

    /// S43: an agent ends the runner of a claim only when the claim is over, which its record says for good then.
    async fn may_end(&self, claim: &ClaimId) {
        let found = self.world.store.get(&Instance::key_of(&self.sim_host.machine.arn)).await;
        let Ok(Some(Reading::Record(instance))) = found.map(|item| item.as_ref().map(read::<Instance>))
        else {
            return;
        };
        let holds = instance.claim.as_ref().is_some_and(|held| held.id == *claim);
        if let Some(run) = instance.run().filter(|_| holds) {
            let name = &self.actor.name;
            self.world.broke(format!("S43 {name}: ends the runner of {claim}, which serves run {run}"));
        }
    }

    async fn stop(&self, claim: &ClaimId) -> TaskOutcome {
        self.takes(0..8).await;
        self.sim_host.runner_ends(&self.world);
        *self.sim_host.frozen.lock().unwrap() = false;
        if self.world.bug != Some(Bug::RunnerOutlivesStop) {
            *self.sim_host.process.lock().unwrap() = None;
        }
        self.goes_offline();
        self.stays_busy();
        self.say(&format!("stopped {claim}"));
        TaskOutcome::Stopped { registered: self.sim_host.registered.lock().unwrap().is_some() }
    }

    async fn deregister(&self) -> TaskOutcome {
        self.takes(1..5).await;
        if let Some(failed) = self.refused() {
            return failed;
        }
        if self.listed().is_some_and(|runner| runner.busy) {
            return TaskOutcome::Failed(GithubFailure::Unreachable("it is busy".into()));
        }
        if let Some((scope, name)) = self.sim_host.registered.lock().unwrap().take() {
            self.world.github.deregister(&scope, &name);
        }
        TaskOutcome::Deregistered
    }

    async fn renew(&self, claim: &ClaimId) -> TaskOutcome {
        self.stop(claim).await;
        self.takes(1..10).await;
        if !self.world.strikes(Fault::CleaningFails) {
            return TaskOutcome::Renewed;
        }
        *self.sim_host.unclean.lock().unwrap() = true;
        TaskOutcome::Unproved("simulated".into())
    }

    async fn wipe(&self, wipe: Wipe) -> TaskOutcome {
        self.takes(1..10).await;
        if self.world.strikes(Fault::CleaningFails) {
            *self.sim_host.unclean.lock().unwrap() = true;
            if self.world.bug == Some(Bug::FailedCleaningSaidClean) {
                return TaskOutcome::Wiped;
            }
            return TaskOutcome::Unproved("simulated".into());
        }
        if wipe != Wipe::BeforeRemoval {
            *self.sim_host.registered.lock().unwrap() = None;
        }
        TaskOutcome::Wiped
    }
}

#[async_trait]
impl Executor for Hands {
    async fn execute(&self, task: Task) -> TaskOutcome {
        let planned = self.planned(&task);
        if planned == Some(Wrong::Before) {
            self.actor.die().await;
        }
        let outcome = self.act(task).await;
        match planned {
            Some(Wrong::After) => {
                self.actor.die().await;
                outcome
            }
            Some(Wrong::Lost) if matches!(outcome, TaskOutcome::Configured | TaskOutcome::Deregistered) => {
                TaskOutcome::Failed(GithubFailure::Unreachable("simulated: the answer was lost".into()))
            }
            Some(Wrong::Before | Wrong::Lost) | None => outcome,
        }
    }

    fn use_package(&self, package: Option<&RunnerPackage>) {
        *self.package.lock().unwrap() = package.cloned();
    }

    /// It tells what really is, whatever it signals.
    fn proof(&self, claim: &ClaimId) -> ClaimProof {
        let clean = !*self.sim_host.unclean.lock().unwrap();
        self.world.shelf.cleaned(claim, clean);
        let mut proof = ClaimProof::of(claim);
        proof.cleaning = CleaningItem::ALL.iter().map(|item| (*item, Finding::Passed)).collect();
        if !clean {
            proof.cleaning.insert(CleaningItem::Files, Finding::Failed);
        }
        proof
    }

    /// Every other machine has an agent of before this number, which deregisters by itself.
    fn runner_id(&self) -> Option<u64> {
        if let Some(slot) = self.sim_host.slot.lock().unwrap().as_ref() {
            return Some(slot.number());
        }
        let newer = self.sim_host.machine.id.as_str().bytes().last().is_some_and(|last| last % 2 == 0);
        self.listed().filter(|_| newer).map(|runner| runner.id)
    }

    async fn kill_everything(&self) {
        *self.sim_host.process.lock().unwrap() = None;
        sleep(Duration::from_millis(100)).await;
    }
}

impl Hands {
    /// How the task fails by plan. Idling and waiting have no effect.
    fn planned(&self, task: &Task) -> Option<Wrong> {
        let what = match task {
            Task::Idle
            | Task::Listen { .. }
            | Task::Serve { .. }
            | Task::Frozen { .. }
            | Task::Rest { .. } => return None,
            Task::Admit { .. } => "admits",
            Task::Freeze { .. } => "freezes",
            Task::Lend { .. } => "lends",
            Task::Boot => "boots",
            Task::Configure { .. } => "configures",
            Task::Start { .. } => "starts",
            Task::Renew { .. } => "renews",
            Task::Stop { .. } => "stops",
            Task::Deregister { .. } => "deregisters",
            Task::Wipe { .. } => "wipes",
            Task::Settle { .. } => "settles",
        };
        self.world.effects.next(|| format!("{} {what}", self.actor.name))
    }

    async fn act(&self, task: Task) -> TaskOutcome {
        match task {
            Task::Idle => std::future::pending().await,
            Task::Boot => {
                self.takes(1..20).await;
                let fails = self.world.strikes(Fault::BootFails);
                TaskOutcome::Booted(if fails { Err("simulated".into()) } else { Ok(()) })
            }
            Task::Configure { claim, registration } => self.configure(&claim, &registration).await,
            Task::Start { claim, single_use, .. } => self.start(&claim, single_use.as_deref()).await,
            Task::Listen { runner, .. } => self.listen(runner).await,
            Task::Serve { runner, awaits, .. } if self.sim_host.slot.lock().unwrap().is_some() => {
                *self.sim_host.frozen.lock().unwrap() = false;
                self.serve_slot(runner, awaits.is_some()).await
            }
            Task::Serve { runner, .. } | Task::Rest { runner, .. } => {
                *self.sim_host.frozen.lock().unwrap() = false;
                self.serve(runner).await
            }
            Task::Admit { .. } => TaskOutcome::Admitted,
            Task::Freeze { .. } => self.freeze().await,
            Task::Frozen { .. } => std::future::pending().await,
            Task::Lend { claim, holder } => self.lend(&claim, &holder.run).await,
            Task::Stop { claim, .. } => {
                self.may_end(&claim).await;
                self.stop(&claim).await
            }
            Task::Deregister { .. } => self.deregister().await,
            Task::Renew { claim, .. } => self.renew(&claim).await,
            Task::Wipe { wipe, .. } => self.wipe(wipe).await,
            Task::Settle { .. } => {
                self.takes(1..20).await;
                TaskOutcome::Settled
            }
        }
    }
}
