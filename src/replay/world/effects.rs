//! Carries out plans at once.

use runyard_core::decide::{Effect, Planned, Step};
use runyard_core::model::{Agent, Instance, Launch, LaunchId, Phase, Record as _, RecordId, Request};
use runyard_core::ports::MachineState;
use runyard_core::yard::{Observation, Written};

use super::{Event, HOLD, KEPT, TELL, USUAL_HOLD, World, arn_number};
use crate::outcome::Verdict;

impl World<'_> {
    pub(super) fn request(&mut self, request: &Request) {
        let Some(number) = self.numbers.get(&request.id).copied() else { return };
        self.done("request", number as u64 ^ (request.version << 40));
        let open = self.served[number].verdict == Verdict::Open;
        self.wrote(Written::Request(request.clone()));
        match request.phase() {
            Phase::Ready if open => {
                self.ends(number, Verdict::Served);
                let arrival = &self.trace.arrivals[number];
                let times = self.names.get(&arrival.class).map(|class| &self.classes[*class].times);
                let luck = self.chance.of(TELL, number as u64, 0);
                // Steps of a slow request are all slow: both times are drawn from one request.
                let beside = self.listened[number].zip(times).and_then(|(at, times)| times.tell.nearest(at));
                let near = || Some(times?.tell.draw_near(self.now.wall, luck)?.took);
                let told = beside.or_else(near).unwrap_or_default();
                let holds = times.map(|times| &times.hold);
                let drawn = || holds.and_then(|holds| holds.draw(self.chance.of(HOLD, number as u64, 0)));
                let hold = arrival.hold.or_else(drawn).unwrap_or(USUAL_HOLD);
                self.served[number].wait += told;
                self.after(told + hold, Event::LetsGo(number));
            }
            Phase::Failed if open => {
                self.ends(number, Verdict::Failed);
                self.after(KEPT, Event::Forget(request.key()));
            }
            Phase::Released => self.after(KEPT, Event::Forget(request.key())),
            Phase::Pending | Phase::Fulfilling | Phase::Ready | Phase::Releasing | Phase::Failed => (),
        }
    }

    pub(super) fn carry_out(&mut self, planned: Planned) {
        match planned.effect {
            Effect::Instance(step, _) | Effect::Silence(step, _) | Effect::Disown(step, _) => {
                self.machine(&step.after)
            }
            Effect::Bury(step) => {
                self.machine(&step.after);
                let agent = Agent::key_of(&step.before.facts.instance_arn);
                self.see(Observation::Record(agent, None));
            }
            Effect::Request(step) => self.request(&step.after),
            Effect::Launch(step) => {
                self.after(KEPT, Event::Forget(step.after.key()));
                self.wrote(Written::Launch(step.after));
            }
            Effect::Pool(step) => {
                let class = step.after.spec.resource_class.clone();
                self.wrote(Written::Pool(step.after));
                self.see(Observation::Reported(class));
            }
            Effect::Claim { request, machines, .. } => {
                machines.iter().for_each(|step| self.machine(&step.after));
                self.request(&request.after);
            }
            Effect::Intend(mut launch, _) => {
                self.launches += 1;
                if let Ok(id) = LaunchId::parse(&format!("l-{}", self.launches)) {
                    launch.launch_id = id;
                    self.wrote(Written::Launch(*launch));
                }
            }
            Effect::Order(order) => self.order(&order),
            Effect::Bind { launch, request, machines } => {
                self.bound(&launch.after, request.as_deref(), &machines)
            }
            Effect::Orphan(instance) => self.wrote(Written::Instance(*instance)),
            Effect::Terminate(arn) => {
                self.called(false);
                self.see(Observation::Ended(arn));
            }
            Effect::Describe(arn) => {
                let body = arn_number(&arn).and_then(|number| self.bodies.get(number));
                let gone = body.is_none_or(|body| body.gone_at <= self.now.mono);
                let state = if gone { MachineState::Terminated } else { MachineState::ShuttingDown };
                self.see(Observation::Stands(arn, Some(state)));
            }
            Effect::Console(arn) => self.see(Observation::Console(arn, None)),
            Effect::Announce(arn, _) => self.see(Observation::Announced(arn)),
            // No parameter is resolved here: `play` takes pools without a named image.
            Effect::Resolve(_) | Effect::Credential(..) => (),
            Effect::Receive(class, _) => self.see(Observation::Hints(class, Vec::new())),
            Effect::SweepRunner(arn, _) => self.see(Observation::Swept(arn)),
            Effect::Look(key) => self.see(Observation::Looked(self.now.mono, key, None)),
            Effect::Expire(key, _) => self.see(Observation::Record(key, None)),
            Effect::Archive(_) | Effect::Recall(_) => unreachable!("there is no history"),
        }
    }

    /// Records the machines of a launch.
    pub(super) fn bound(
        &mut self,
        launch: &Launch,
        request: Option<&Step<Request>>,
        machines: &[(Instance, Agent)],
    ) {
        let asked = launch.request.as_ref().and_then(RecordId::request);
        if let Some(number) = asked.and_then(|key| self.numbers.get(key)) {
            self.served[*number].warm = false;
            self.served[*number].launched += machines.len() as u32;
        }
        for (instance, agent) in machines {
            self.wrote(Written::Agent(agent.clone()));
            self.born(instance);
        }
        if let Some(request) = request {
            self.request(&request.after);
        }
        self.after(KEPT, Event::Forget(launch.key()));
        self.wrote(Written::Launch(launch.clone()));
    }

    /// Counts a call of EC2.
    pub(super) fn called(&mut self, fleet: bool) {
        let minute = self.now.mono.as_secs() / 60;
        if self.minute.0 != minute {
            self.minute = (minute, 0, 0);
        }
        if fleet {
            self.calls.create_fleet += 1;
            self.minute.1 += 1;
            self.calls.create_fleet_peak = self.calls.create_fleet_peak.max(self.minute.1);
        } else {
            self.calls.terminate += 1;
            self.minute.2 += 1;
            self.calls.terminate_peak = self.calls.terminate_peak.max(self.minute.2);
        }
    }
}
