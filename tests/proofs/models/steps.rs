//! What may happen next in a state, and what becomes of the state then.

use std::hash::{DefaultHasher, Hash, Hasher};

use runyard_core::decide::Effect;
use runyard_core::model::{
    Agent, Desired, Instance, InstanceArn, Place, RecordId, Request, Signal, Versioned,
};
use runyard_core::ports::{Machine, MachineState};
use runyard_core::yard::Observation;

use crate::models::mutants::Mutant;
use crate::models::scenes::arrives;
use crate::models::stored::print_of;
use crate::models::world::{Fate, Happens, Sight, World};

impl World {
    /// Everything that may happen next.
    pub(crate) fn next(&self) -> Vec<Happens> {
        let mut next = Vec::new();
        for who in 0..self.operators.len() {
            self.acts(who, &mut next);
            let behind = self.behind(who);
            let requests = behind.iter().filter(|key| key.pk().starts_with("request#"));
            if requests.clone().count() < behind.len() {
                next.extend(requests.map(|key| Happens::Sees(who, Some((*key).clone()))));
            }
            if !behind.is_empty() {
                next.push(Happens::Sees(who, None));
            }
            if self.left.crashes > 0 {
                next.push(Happens::Crashes(who));
            }
            if self.left.leases > 0 && self.operators[who].lease != Some(self.token) {
                next.push(Happens::Changes(who));
            }
            self.lists(who, &mut next);
        }
        self.agents(&mut next);
        if self.left.loses > 0 {
            let rests = self.hands.iter().filter(|hand| hand.rest.as_ref().is_some_and(|rest| rest.process));
            next.extend(rests.map(|hand| Happens::Loses(hand.arn.clone())));
        }
        if self.left.reclaimed > 0 {
            next.extend(self.living().map(|machine| Happens::Reclaims(machine.arn.clone())));
        }
        next.extend(self.left.arrivals.iter().map(|(whose, run)| Happens::Arrives(whose, run)));
        let releases = self.left.releases.iter().filter(|key| self.table.get(key).is_some());
        next.extend(releases.cloned().map(Happens::Releases));
        next.extend((self.left.passes > 0).then_some(Happens::Passes));
        next.extend((self.left.quiet > 0).then_some(Happens::Quiet));
        next
    }

    fn acts(&self, who: usize, next: &mut Vec<Happens>) {
        let at_once = if self.setting.prompt { 1 } else { usize::MAX };
        for planned in self.plans(who).iter().take(at_once) {
            let mut fates = vec![Fate::Heard];
            if self.left.lost > 0 {
                fates.push(Fate::Lost);
            }
            if self.left.partial > 0 && matches!(planned.action.effect, Effect::Order(_)) {
                fates.push(Fate::Partial);
            }
            if let Effect::Instance(step, github) = &planned.action.effect {
                fates.extend(self.fates_at_github(&step.before.facts.instance_arn, github));
            }
            if self.is(Mutant::LabelBeforeClaim) && matches!(planned.action.effect, Effect::Claim { .. }) {
                fates.extend((self.left.crashes > 0).then_some(Fate::Cut));
            }
            next.extend(fates.into_iter().map(|fate| Happens::Acts(who, planned.clone(), fate)));
        }
    }

    fn lists(&self, who: usize, next: &mut Vec<Happens>) {
        if !self.setting.policy.inventory {
            return;
        }
        let mut without = vec![None];
        if self.left.unlisted > 0 {
            without.extend(self.living().map(|machine| Some(machine.arn.clone())));
        }
        for without in without {
            let mut after = self.clone();
            after.reads_list(who, without.as_ref());
            // A list that says nothing new leads nowhere.
            if after.operators[who].print != self.operators[who].print {
                next.push(Happens::Lists(who, without));
            }
        }
    }

    fn agents(&self, next: &mut Vec<Happens>) {
        for hand in &self.hands {
            if self.left.beats > 0 && (self.agent(&hand.arn).is_some() || self.is(Mutant::AgentResurrects)) {
                next.push(Happens::Beats(hand.arn.clone()));
            }
            if !self.alive(&hand.arn) {
                continue;
            }
            if self.left.repeats > 0 && hand.said.is_some() {
                next.push(Happens::Repeats(hand.arn.clone()));
            }
            let sight = self.sight(&hand.arn);
            if sight.is_some() && sight != hand.sight {
                next.push(Happens::Reads(hand.arn.clone(), None));
            }
            let past = (0..hand.past.len()).filter(|n| Some(&hand.past[*n]) != hand.sight.as_ref());
            next.extend(past.map(|n| Happens::Reads(hand.arn.clone(), Some(n))));
            if let Some((_, runner)) = hand.sight.as_ref().and_then(says)
                && (self.unsaid(&hand.arn) || runner != hand.runner)
            {
                next.push(Happens::Speaks(hand.arn.clone()));
            }
        }
    }

    /// Whether an agent has something to say that its record does not have yet.
    pub(crate) fn unsaid(&self, arn: &InstanceArn) -> bool {
        let Some(hand) = self.hands.iter().find(|hand| hand.arn == *arn) else { return false };
        let (Some(sight), Some(agent)) = (&hand.sight, self.agent(arn)) else { return false };
        says(sight).is_some_and(|(signal, _)| {
            let claim = claim_of(sight);
            agent.signal != Some(signal) || agent.signal_claim_id.as_deref() != Some(claim)
        })
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().map(AsRef::as_ref).filter(|machine| machine.state.alive())
    }

    /// One thing happens.
    pub(crate) fn step(&mut self, happens: &Happens) {
        match happens {
            Happens::Sees(who, Some(key)) => self.sees(*who, key, false),
            Happens::Sees(who, None) => self.sees_all(*who),
            Happens::Acts(who, planned, fate) => {
                self.left.lost -= u8::from(*fate == Fate::Lost);
                self.left.partial -= u8::from(*fate == Fate::Partial);
                self.left.busy -= u8::from(*fate == Fate::Busy);
                self.carry_out(*who, planned, *fate);
                if *fate == Fate::Cut {
                    self.dies(*who);
                }
            }
            Happens::Crashes(who) => self.dies(*who),
            Happens::Changes(who) => {
                self.left.leases -= 1;
                // A new holder reads everything before its first intent; the old one hears of it when it renews.
                if !self.is(Mutant::LeaseWithoutReading) {
                    self.starts(*who);
                }
                self.takes(*who);
            }
            Happens::Reads(arn, past) => self.reads(arn, *past),
            Happens::Speaks(arn) => self.speaks(arn),
            Happens::Repeats(arn) => {
                self.left.repeats -= 1;
                self.signals(arn);
            }
            Happens::Beats(arn) => {
                self.left.beats -= 1;
                if self.is(Mutant::AgentResurrects) && self.agent(arn).is_none() {
                    self.put(&Agent::born(arn, self.now().wall));
                }
                self.change::<Agent>(&Agent::key_of(arn), 0, |agent| agent.heartbeat_seq += 1);
            }
            Happens::Loses(arn) => self.loses(arn),
            Happens::Reclaims(arn) => {
                self.left.reclaimed -= 1;
                self.machine(arn).expect("a machine").state = MachineState::Terminated;
            }
            Happens::Arrives(whose, run) => {
                self.left.arrivals.retain(|other| other != &(*whose, *run));
                arrives(self, whose, run);
            }
            Happens::Releases(key) => {
                self.left.releases.retain(|other| other != key);
                let now = self.now().wall;
                self.change::<Request>(key, 1, |request| {
                    request.intent.desired = Desired::Released;
                    request.intent.generation += 1;
                    request.advance(now);
                });
            }
            Happens::Lists(who, without) => {
                self.left.unlisted -= u8::from(without.is_some());
                self.reads_list(*who, without.as_ref());
            }
            Happens::Passes => {
                self.left.passes -= 1;
                self.passed += 1;
            }
            Happens::Quiet => {
                self.left.quiet -= 1;
                self.silent += 1;
            }
        }
        if self.setting.prompt {
            self.all_read();
        }
        self.asks();
        self.check();
    }

    /// Operators and agents read everything.
    pub(crate) fn all_read(&mut self) {
        (0..self.operators.len()).for_each(|who| self.sees_all(who));
        for hand in 0..self.hands.len() {
            self.hands[hand].sight = self.sight(&self.hands[hand].arn);
        }
    }

    fn dies(&mut self, who: usize) {
        self.left.crashes -= 1;
        let held = self.operators[who].lease == Some(self.token);
        self.starts(who);
        if held {
            // The lease of its own former life is its to take again.
            self.takes(who);
        }
    }

    /// An operator takes the lease.
    fn takes(&mut self, who: usize) {
        self.token += 1;
        self.believes(who, Some(self.token));
    }

    /// What changes nothing for others is done at once: the order of such things makes no difference.
    pub(crate) fn asks(&mut self) {
        for who in 0..self.operators.len() {
            while let Some(planned) = self.plans(who).iter().find(|planned| planned.alone()).cloned() {
                self.carry_out(who, &planned, Fate::Heard);
            }
        }
    }

    /// An operator lists EC2's machines; ended ones stay on its list for a while.
    pub(crate) fn reads_list(&mut self, who: usize, without: Option<&InstanceArn>) {
        let shown = self.machines.iter().filter(|machine| Some(&machine.arn) != without);
        let shown: Vec<_> = shown.cloned().collect();
        let mut mark = DefaultHasher::new();
        shown.iter().for_each(|machine| (&machine.id, machine.state as u8).hash(&mut mark));
        if self.is(Mutant::ListsBelieved)
            && let Some(arn) = without
        {
            self.observe(who, Observation::Stands(arn.clone(), None));
        }
        self.observe_as(who, mark.finish(), || {
            Observation::Inventory(shown.iter().map(|machine| Machine::clone(machine)).collect())
        });
    }

    fn reads(&mut self, arn: &InstanceArn, past: Option<usize>) {
        let now = self.sight(arn);
        let keeps = self.is(Mutant::AgentReadsStale);
        let Some(hand) = self.hands.iter_mut().find(|hand| hand.arn == *arn) else { return };
        hand.sight = past.map_or(now, |n| Some(hand.past[n].clone()));
        if let (true, Some(sight)) = (keeps, &hand.sight)
            && !hand.past.contains(sight)
        {
            hand.past.push(sight.clone());
        }
    }

    /// An agent starts or stops its runner as the record it read asks, and says that it did so.
    pub(crate) fn speaks(&mut self, arn: &InstanceArn) {
        // Machines that are launched here show no key and get no credential: theirs are not followed at GitHub.
        let registers = self.instance(arn).is_some_and(|instance| instance.registration_seq > 0);
        let Some(hand) = self.hands.iter_mut().find(|hand| hand.arn == *arn) else { return };
        let Some(sight) = &hand.sight else { return };
        let Some((signal, runner)) = says(sight) else { return };
        hand.said = Some((signal, claim_of(sight).to_owned()));
        hand.listed |= runner.is_some() && registers;
        hand.runner = runner;
        if let Some(rest) = &mut hand.rest {
            rest.process &= rest.is_wanted(sight);
        }
        self.signals(arn);
    }

    /// An agent writes what it has to say, if its record is there.
    fn signals(&mut self, arn: &InstanceArn) {
        let Some(hand) = self.hands.iter().find(|hand| hand.arn == *arn) else { return };
        let Some((signal, mut claim)) = hand.said.clone() else { return };
        let rests = hand.rest.as_ref().is_some_and(|rest| rest.process);
        if self.is(Mutant::SignalForAnyClaim)
            && let Some(named) = self.sight(arn)
        {
            claim_of(&named).clone_into(&mut claim);
        }
        self.change::<Agent>(&Agent::key_of(arn), print_of(&(signal, &claim, rests)), |agent| {
            agent.ahead = agent.ahead.take().filter(|_| rests);
            agent.signal = Some(signal);
            agent.signal_claim_id = Some(claim);
            agent.heartbeat_seq += 1;
        });
    }

    /// Whether a record is one of a machine that was confirmed to be gone.
    pub(crate) fn buried(&self, arn: &InstanceArn) -> bool {
        let gone = |instance: &Instance| match instance.life {
            runyard_core::model::Life::Terminated { gone_at, .. } => gone_at.is_some(),
            runyard_core::model::Life::Created { .. }
            | runyard_core::model::Life::Claimed { .. }
            | runyard_core::model::Life::Running { .. }
            | runyard_core::model::Life::Idle { .. } => false,
        };
        self.instance(arn).is_some_and(gone)
    }
}

fn claim_of(sight: &Sight) -> &str {
    match sight.0 {
        Place::CreatedWarm => "",
        Place::Nowhere
        | Place::CreatedBound
        | Place::Claimed
        | Place::Running
        | Place::IdleCleaning
        | Place::IdleHeld
        | Place::IdlePooled
        | Place::Terminated => sight.1.as_ref().map_or("", runyard_core::model::ClaimId::as_str),
    }
}

/// What an honest agent does about a record, as far as others can tell: the signal, and its runner's claim after.
fn says((place, claim, ahead): &Sight) -> Option<(Signal, Option<runyard_core::model::ClaimId>)> {
    match place {
        Place::CreatedWarm => Some((Signal::Ok, None)),
        // Its runner has not the label of the run yet.
        Place::Claimed if ahead.is_some() => None,
        Place::CreatedBound | Place::Claimed | Place::Running => Some((Signal::RegOk, claim.clone())),
        Place::IdleCleaning => Some((Signal::RemoveRegOk, None)),
        Place::Nowhere | Place::IdleHeld | Place::IdlePooled | Place::Terminated => None,
    }
}

/// For the record's key in a counter-example.
pub(crate) fn told(happens: &Happens) -> String {
    let short = |key: &RecordId| key.pk().rsplit(['/', '#']).next().unwrap_or_default().to_owned();
    match happens {
        Happens::Acts(who, planned, fate) => {
            let fate = match fate {
                Fate::Heard => "",
                Fate::Lost => " (answer lost)",
                Fate::Partial => " (in part)",
                Fate::Busy => " (GitHub refuses)",
                Fate::Cut => " (and dies before it writes)",
            };
            format!("operator {who}: {}{fate}", planned.action.describe())
        }
        Happens::Sees(who, Some(key)) => format!("operator {who} sees {}", short(key)),
        Happens::Sees(who, None) => format!("operator {who} sees everything"),
        Happens::Crashes(who) => format!("operator {who} dies and starts again"),
        Happens::Changes(who) => format!("operator {who} takes the lease"),
        Happens::Reads(arn, None) => format!("the agent of {} reads its record", arn.instance_id()),
        Happens::Reads(arn, Some(_)) => format!("the agent of {} reads an old record", arn.instance_id()),
        Happens::Speaks(arn) => format!("the agent of {} does what it read and says so", arn.instance_id()),
        Happens::Repeats(arn) => format!("the agent of {} writes its signal again", arn.instance_id()),
        Happens::Beats(arn) => format!("the agent of {} beats", arn.instance_id()),
        Happens::Loses(arn) => format!("the agent of {} loses its runner at rest", arn.instance_id()),
        Happens::Reclaims(arn) => format!("EC2 takes {}", arn.instance_id()),
        Happens::Arrives(whose, run) => format!("{whose} asks for a machine for run {run}"),
        Happens::Releases(key) => format!("the workflow releases {}", short(key)),
        Happens::Lists(who, None) => format!("operator {who} lists the machines"),
        Happens::Lists(who, Some(arn)) => {
            format!("operator {who} lists the machines, {} is not shown", arn.instance_id())
        }
        Happens::Passes => "eleven minutes pass".into(),
        Happens::Quiet => "a minute passes, no agent is heard".into(),
    }
}
