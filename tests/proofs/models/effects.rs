//! What an action does to the world: the table's guards as the production writes carry them, and EC2's answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use runyard_core::decide::{AtGitHub, Effect};
use runyard_core::model::{
    Agent, Instance, InstanceArn, InstanceId, Launch, LaunchId, Life, Place, Reason, Record, RecordId,
    Request, State, TRANSITIONS,
};
use runyard_core::ports::{ComputeError, Launched, Machine, MachineState, Shortfall};
use runyard_core::yard::Observation;

use crate::models::mutants::Mutant;
use crate::models::operator::Possible;
use crate::models::stored::Stored;
use crate::models::world::{Fate, Hand, World};

impl World {
    pub(crate) fn carry_out(&mut self, who: usize, planned: &Possible, fate: Fate) {
        let heard = fate != Fate::Lost;
        if self.wrong.is_none() {
            self.wrong = self.keeps(who, &planned.action.effect);
        }
        match &planned.action.effect {
            Effect::Instance(step, github) => {
                let arn = &step.after.facts.instance_arn;
                if !self.lets_go(who, arn, github, fate) || fate == Fate::Cut {
                    return;
                }
                if self.is(Mutant::KillFirst) && step.after.state() == State::Terminated {
                    self.ends(who, arn, heard);
                }
                let vanished = matches!(step.after.life, Life::Terminated { reason: Reason::Vanished, .. });
                if self.write(who, heard, planned) && vanished && self.alive(arn) {
                    self.wrong = Some("S22: a machine that lives was taken for gone");
                }
            }
            Effect::Silence(step, seq) => self.silences(who, heard, planned, step.before.key(), *seq),
            Effect::Disown(_, request) => self.disowns(who, heard, planned, request),
            Effect::Claim { request, machines, .. } => {
                if self.is(Mutant::LabelBeforeClaim) {
                    let run = request.before.id.run_id.as_str();
                    for step in machines {
                        self.labels_rest(&step.before.facts.instance_arn, run);
                    }
                }
                if fate != Fate::Cut {
                    self.write(who, heard, planned);
                }
            }
            Effect::Request(_) | Effect::Launch(_) => {
                self.write(who, heard, planned);
            }
            Effect::Bind { machines, .. } => {
                if self.is(Mutant::BindInTwo) {
                    self.bind_in_two(who, heard, planned);
                } else {
                    self.write(who, heard, planned);
                }
                machines.iter().for_each(|(instance, _)| self.begin(&instance.facts.instance_arn));
            }
            Effect::Orphan(instance) => self.orphan(who, heard, planned, &instance.facts.instance_arn),
            Effect::Bury(step) => {
                let agent = Agent::key_of(&step.before.facts.instance_arn);
                if self.write(who, heard, planned) {
                    self.table.remove(&agent);
                    if heard {
                        self.sees(who, &agent, false);
                    }
                }
            }
            Effect::Intend(launch, token) => self.intends(who, Launch::clone(launch), *token, heard),
            Effect::Order(order) => self.orders(who, &order.launch.launch_id, fate),
            Effect::Terminate(arn) => self.ends(who, arn, heard),
            Effect::Describe(arn) => {
                let state = self.machines.iter().find(|machine| machine.arn == *arn).map(|m| m.state);
                self.observe(who, Observation::Stands(arn.clone(), state));
            }
            Effect::Console(arn) => self.observe(who, Observation::Console(arn.clone(), None)),
            Effect::Announce(arn, _) => self.observe(who, Observation::Announced(arn.clone())),
            Effect::Receive(class, _) => self.observe(who, Observation::Hints(class.clone(), Vec::new())),
            Effect::SweepRunner(arn, _) => self.observe(who, Observation::Swept(arn.clone())),
            Effect::Look(key) => self.sees(who, key, true),
            Effect::Expire(key, _) => {
                self.table.remove(key);
                self.sees(who, key, false);
            }
            Effect::Pool(_) | Effect::Resolve(_) | Effect::Credential(..) => {}
            Effect::Archive(_) | Effect::Recall(_) => unreachable!("there is no history"),
        }
    }

    /// Whether GitHub lets go of the runner that is to be removed before the write; nothing is asked for another write.
    fn lets_go(&mut self, who: usize, arn: &InstanceArn, github: &AtGitHub, fate: Fate) -> bool {
        match github {
            AtGitHub::Nothing | AtGitHub::AttachRemoval(_) | AtGitHub::Confirm { .. } => return true,
            AtGitHub::Label { runner, .. } => {
                return self.sets_label(who, arn, runner.request.run_id.as_str(), fate);
            }
            AtGitHub::Forget { number, .. } => return number.is_none() || self.forgets(who, arn, fate),
            AtGitHub::ConfirmRemoved(_) => {}
        }
        if fate == Fate::Busy {
            self.observe(who, Observation::RunnerBusy(arn.clone()));
            return self.is(Mutant::PooledWhileBusy);
        }
        for hand in self.hands.iter_mut().filter(|hand| hand.arn == *arn) {
            hand.listed = false;
            hand.rest.iter_mut().for_each(|rest| rest.listed = false);
        }
        true
    }

    /// One transaction: each record at the version that was read, each new one where nothing is.
    fn write(&mut self, who: usize, heard: bool, planned: &Possible) -> bool {
        let fenced = |key: &RecordId| self.mutant().is_none_or(|mutant| mutant.fences(key));
        let version = |key: &RecordId| self.table.get(key).map(|stored| stored.version);
        let holds = planned
            .steps
            .iter()
            .all(|(read, after)| !fenced(&after.key) || version(&after.key) == Some(*read))
            && planned.new.iter().all(|new| !fenced(&new.key) || version(&new.key).is_none());
        if !holds {
            self.setting.refused.store(true, Ordering::Relaxed);
        }
        let records: Vec<Arc<Stored>> =
            planned.steps.iter().map(|(_, after)| after).chain(&planned.new).cloned().collect();
        for record in &records {
            if holds {
                self.moves(record);
                self.table.put(record.clone());
            }
            if heard {
                self.sees(who, &record.key, false);
            }
        }
        holds
    }

    /// S10 and S11: what is stored moves along the table of transitions only.
    fn moves(&mut self, stored: &Stored) {
        let Some(after) = stored.as_kind::<Instance>() else { return };
        let before: Option<&Instance> = self.get(&stored.key);
        let from = before.map_or(Place::Nowhere, Instance::place);
        let known = TRANSITIONS.iter().any(|row| row.from == from && row.to == after.place());
        let rises = before.is_none_or(|before| before.version < after.version);
        if from == Place::Terminated && after.place() != Place::Terminated {
            self.wrong = Some("S10: a machine's end was taken back");
        } else if from != after.place() && !known {
            self.wrong = Some("S11: a record moved as the table does not allow");
        } else if !rises {
            self.wrong = Some("S11: a version did not rise");
        }
    }

    /// The mutant's bind: the machines are recorded first, then the launch and its request; the second write is lost
    /// with the answer of the first.
    fn bind_in_two(&mut self, who: usize, heard: bool, planned: &Possible) {
        for new in &planned.new {
            self.table.put(new.clone());
            if heard {
                self.sees(who, &new.key, false);
            }
        }
        if heard {
            for (_, after) in &planned.steps {
                self.table.put(after.clone());
                self.sees(who, &after.key, false);
            }
        }
    }

    fn begin(&mut self, arn: &InstanceArn) {
        if self.instance(arn).is_some() && !self.hands.iter().any(|hand| hand.arn == *arn) {
            self.hands.push(Hand::of(arn));
        }
    }

    /// A death for silence also holds the heartbeat that was judged.
    fn silences(&mut self, who: usize, heard: bool, planned: &Possible, key: RecordId, seq: u64) {
        let arn = InstanceArn::parse(key.pk().strip_prefix("instance#").unwrap_or_default());
        let arn = arn.expect("the key of a machine");
        let spoke = self.agent(&arn).is_none_or(|agent| agent.heartbeat_seq != seq);
        if spoke && !self.is(Mutant::SilenceWithoutBeat) {
            self.setting.refused.store(true, Ordering::Relaxed);
            if heard {
                self.sees(who, &Agent::key_of(&arn), false);
                self.sees(who, &key, false);
            }
            return;
        }
        if self.write(who, heard, planned) && spoke {
            self.wrong = Some("S14: a machine was ended for silence although its agent spoke");
        }
    }

    fn disowns(&mut self, who: usize, heard: bool, planned: &Possible, request: &Request) {
        let key = request.key();
        let there = self.get::<Request>(&key).map(|there| (there.uid.clone(), there.version));
        if there == Some((request.uid.clone(), request.version)) {
            self.write(who, heard, planned);
            return;
        }
        self.setting.refused.store(true, Ordering::Relaxed);
        if heard {
            self.sees(who, &key, false);
        }
    }

    fn orphan(&mut self, who: usize, heard: bool, planned: &Possible, arn: &InstanceArn) {
        let age = self.machines.iter().find(|machine| machine.arn == *arn);
        let age = age.map(|machine| self.now().wall.duration_since(machine.launched_at));
        if self.write(who, heard, planned) && age.is_some_and(|age| age.as_mins() < 10) {
            self.wrong = Some("S9: a machine younger than the grace was collected");
        }
    }

    fn intends(&mut self, who: usize, mut launch: Launch, token: u64, heard: bool) {
        if token != self.token && !self.is(Mutant::IntentWithoutLease) {
            self.setting.refused.store(true, Ordering::Relaxed);
            self.believes(who, None);
            return;
        }
        // An intent of which nothing was heard keeps its name until it is known whether it stands.
        let kept = self.unsettled[who].filter(|_| !self.is(Mutant::FreshName));
        let name = kept.unwrap_or(self.launches + 1);
        self.launches = self.launches.max(name);
        self.unsettled[who] = (!heard).then_some(name);
        launch.launch_id = LaunchId::parse(&format!("l-{name}")).expect("a launch id");
        launch.client_token = Launch::token_of(&launch.launch_id, launch.attempt);
        let key = launch.key();
        if self.table.get(&key).is_none() {
            self.table.put(Stored::of(launch.to_item()));
        } else {
            self.setting.refused.store(true, Ordering::Relaxed);
        }
        if heard {
            self.sees(who, &key, false);
        }
    }

    /// EC2 brings the machines of a token once, and the same ones ever after.
    fn orders(&mut self, who: usize, id: &LaunchId, fate: Fate) {
        let Some(launch) = self.get::<Launch>(&Launch::key_of(id)).cloned() else { return };
        let of = |machine: &&Arc<Machine>| machine.launch.as_ref() == Some(id);
        let brought = self.machines.iter().filter(of).count() as u32;
        let again = self.is(Mutant::FreshToken);
        let first = if again { brought } else { 0 };
        let count = launch.count - u32::from(fate == Fate::Partial);
        if brought == 0 || again {
            for n in first..first + count {
                self.machines.push(Arc::new(machine_of(&launch, n, self.now().wall)));
            }
        }
        let machines = self.machines.iter().filter(of).skip(first as usize);
        let machines: Vec<Machine> = machines.map(|machine| Machine::clone(machine)).collect();
        let short = || Shortfall { code: "InsufficientInstanceCapacity".into(), message: String::new() };
        let answer = match fate {
            Fate::Heard => Ok(Launched { machines, shortfalls: Vec::new() }),
            Fate::Partial => Ok(Launched { machines, shortfalls: vec![short()] }),
            Fate::Lost | Fate::Busy | Fate::Cut => Err(ComputeError::Unknown("no answer".into())),
        };
        self.observe(who, Observation::Ordered(id.clone(), answer));
    }

    fn ends(&mut self, who: usize, arn: &InstanceArn, heard: bool) {
        if self.instance(arn).map(Instance::state) != Some(State::Terminated) {
            self.wrong = Some("S5: a machine was ended before its record said so");
        }
        if let Some(machine) = self.machine(arn) {
            machine.state = MachineState::Terminated;
        }
        if heard {
            self.observe(who, Observation::Ended(arn.clone()));
        }
    }
}

/// The machine that a launch brings as its `n`th.
pub(crate) fn machine_of(launch: &Launch, n: u32, now: Timestamp) -> Machine {
    let id = InstanceId::parse(&format!("i-{}-{n}", launch.launch_id)).expect("an instance id");
    Machine {
        arn: InstanceArn::local(&id),
        id,
        class: Some(launch.resource_class.clone()),
        launch: Some(launch.launch_id.clone()),
        attempt: launch.attempt,
        instance_type: "m7i.large".into(),
        usage_class: launch.usage_class,
        cpu: 2,
        mmem: 4096,
        zone: String::new(),
        state: MachineState::Running,
        launched_at: now,
    }
}
