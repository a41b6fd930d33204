//! The compute provider's reports: responses to launches, states of machines, the list of all machines, and notices.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::counts::risks;
use super::{Class, Now, Offering, Ordered, Tracked, Unit, Yard};
use crate::model::{ClassName, InstanceArn, Launch, LaunchId, Life, News, Notice, UsageClass};
use crate::ports::{ComputeError, Launched, Machine, MachineState, StateReason};

/// Longest reason of a refused launch that is kept, in characters.
const REFUSAL: usize = 300;

/// After this many orders without a certain response the pause no longer grows.
const LONGEST_PAUSE: u32 = 8;

impl Yard {
    pub(crate) fn stands(
        &mut self,
        arn: &InstanceArn,
        state: Option<MachineState>,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        self.of(arn, dirty, |tracked| {
            tracked.stands = Some(state);
            tracked.missing &= state.is_none();
            tracked.changed = false;
            let times = tracked.asked.map_or(0, |(_, times)| times);
            tracked.asked = Some((now.mono, times.saturating_add(1)));
        });
        if let (Some(_), Some(tracked)) = (state, self.instances.get(arn)) {
            let facts = &tracked.instance.facts;
            let place = (facts.created_at, arn.clone());
            self.classes.entry(facts.resource_class.clone()).or_default().missing.remove(&place);
        }
    }

    /// Records why a machine ended. A machine that never started for a reason that a person must fix backs off its
    /// class at once: the next machine would end in the same way.
    pub(super) fn why_ended(
        &mut self,
        arn: &InstanceArn,
        reason: StateReason,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let Some(tracked) = self.instances.get_mut(arn).filter(|tracked| tracked.why_ended.is_none()) else {
            return;
        };
        let why: String = reason.why.chars().take(REFUSAL).collect();
        tracked.why_ended = Some(why.clone());
        let created = match tracked.instance.life {
            Life::Created { .. } => true,
            Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } | Life::Terminated { .. } => {
                false
            }
        };
        if reason.never_began && created {
            let name = tracked.instance.facts.resource_class.clone();
            let class = self.classes.entry(name.clone()).or_default();
            class.backoff.fail(now.mono, 0);
            class.refusal = Some(why);
            dirty.insert(Unit::Class(name));
        }
    }

    /// Records a notice. Notices about machines that are not ours, or have ended, are ignored.
    pub(crate) fn noticed(&mut self, notice: Notice, dirty: &mut BTreeSet<Unit>) {
        let Some(arn) = self.ids.get(&notice.instance).cloned() else { return };
        self.of(&arn, dirty, |tracked| match (tracked.instance.state().live(), notice.news) {
            (false, _) => {}
            (true, News::Changed) => tracked.changed = true,
            (true, News::Interruption(news)) => {
                let graver = match tracked.notice.take() {
                    None => news,
                    Some(old) => Tracked::graver(old, news),
                };
                tracked.notice = Some(graver);
            }
        });
        let Some(tracked) = self.instances.get(&arn) else { return };
        risks(&mut self.classes, tracked);
        dirty.extend(tracked.instance.held_by().and_then(Unit::of_request));
    }

    pub(crate) fn of(
        &mut self,
        arn: &InstanceArn,
        dirty: &mut BTreeSet<Unit>,
        change: impl FnOnce(&mut Tracked),
    ) {
        if let Some(tracked) = self.instances.get_mut(arn) {
            change(tracked);
            dirty.insert(Unit::Instance(arn.clone()));
        }
    }

    pub(crate) fn ordered(
        &mut self,
        id: &LaunchId,
        answer: Result<Launched, ComputeError>,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let Some(tracked) = self.launches.get(id) else { return };
        let class = tracked.launch.resource_class.clone();
        let launch = tracked.launch.clone();
        let came = match &answer {
            Ok(launched) if self.all_refused(&launch, &launched.machines) => Came::NoneToHave,
            Ok(_) | Err(_) => Came::of(&answer),
        };
        let Some(tracked) = self.launches.get_mut(id) else { return };
        let ordered = Ordered::after(tracked.ordered.as_ref(), answer, now.mono);
        // A spent token is reported again while its machines are searched for: that is one failure.
        let came =
            if matches!(came, Came::TokenSpent) && ordered.since < now.mono { Came::Unclear } else { came };
        tracked.ordered = Some(ordered);
        self.unclear = match came {
            Came::Unclear => (self.unclear + 1).min(LONGEST_PAUSE),
            Came::Machines | Came::NoneToHave | Came::Refused(_) | Came::TokenSpent => 0,
        };
        let offering = self.offering_of(&launch);
        let class = self.classes.entry(class).or_default();
        if class.is_chosen(&offering) {
            match came {
                Came::Machines => class.capacity_found(&offering),
                Came::NoneToHave => class.capacity_missing(offering, now.mono),
                Came::Refused(why) => {
                    dirty.extend(class.refuse(&offering, why, now).into_iter().map(Unit::Request));
                }
                Came::TokenSpent | Came::Unclear => {}
            }
        } else {
            class.answered(offering, came, now);
        }
        dirty.insert(Unit::Launch(id.clone()));
    }

    /// Returns whether the request of a launch accepts none of its machines: a retry would launch more of the same.
    fn all_refused(&self, launch: &Launch, machines: &[Machine]) -> bool {
        let request = launch.request.as_ref().and_then(|id| self.request_named(id));
        request.is_some_and(|request| {
            machines.iter().all(|machine| !self.accepts_type(request, &machine.instance_type))
        })
    }

    pub(crate) fn inventory(&mut self, machines: Vec<Machine>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        self.inventoried = Some(now.mono);
        let listed: BTreeSet<InstanceArn> = machines.iter().map(|machine| machine.arn.clone()).collect();
        self.unrecorded.retain(|arn, _| listed.contains(arn));
        for machine in machines {
            let arn = machine.arn.clone();
            match self.instances.get_mut(&arn) {
                Some(tracked) => {
                    tracked.missing = false;
                    if tracked.stands != Some(Some(machine.state)) {
                        tracked.stands = Some(Some(machine.state));
                        dirty.insert(Unit::Instance(arn));
                    }
                }
                None if machine.state.alive() => {
                    let since = self.unrecorded.get(&arn).map_or(now.mono, |(_, since)| *since);
                    dirty.extend(machine.launch.clone().map(Unit::Launch));
                    self.unrecorded.insert(arn.clone(), (machine, since));
                    dirty.insert(Unit::Instance(arn));
                }
                None => {
                    self.unrecorded.remove(&arn);
                }
            }
        }
        self.miss(&listed, dirty);
    }

    /// Marks the live machines that are missing from a list of machines. Whether the list is believed is decided later.
    pub(crate) fn miss(&mut self, listed: &BTreeSet<InstanceArn>, dirty: &mut BTreeSet<Unit>) {
        let mut missing: BTreeMap<ClassName, BTreeSet<(Timestamp, InstanceArn)>> = BTreeMap::new();
        for (arn, tracked) in &mut self.instances {
            tracked.missing = tracked.instance.state().live() && !listed.contains(arn);
            if tracked.missing {
                let facts = &tracked.instance.facts;
                missing
                    .entry(facts.resource_class.clone())
                    .or_default()
                    .insert((facts.created_at, arn.clone()));
                dirty.insert(Unit::Instance(arn.clone()));
            }
        }
        for (name, class) in &mut self.classes {
            let missing = missing.remove(name).unwrap_or_default();
            if class.missing != missing {
                class.missing = missing;
                dirty.insert(Unit::Class(name.clone()));
            }
        }
    }
}

impl Yard {
    /// Returns the offering that a launch asks for.
    pub(crate) fn offering_of(&self, launch: &Launch) -> Offering {
        let request = launch.request.as_ref().and_then(|id| self.request_named(id));
        let types = request.and_then(|request| request.intent.allowed_instance_types.clone());
        Offering { usage: launch.usage_class, types: types.unwrap_or_default().0 }
    }
}

impl Class {
    /// Updates the backoffs after a response to an order by the class's own spec.
    fn answered(&mut self, offering: Offering, came: Came, now: &Now) {
        self.refusal = None;
        match came {
            Came::Machines => self.capacity_found(&offering),
            Came::NoneToHave => self.capacity_missing(offering, now.mono),
            Came::Refused(why) => {
                self.backoff.fail(now.mono, 0);
                if offering.usage == UsageClass::Spot {
                    self.spot.refused(now.mono);
                }
                self.refusal = Some(why);
            }
            Came::TokenSpent => self.backoff.fail(now.mono, 0),
            Came::Unclear => {}
        }
    }
}

/// The result of a launch, as far as it matters for later launches.
enum Came {
    Machines,
    NoneToHave,
    /// A person must fix something; the provider's error message.
    Refused(String),
    /// The order failed, and the next one has another token.
    TokenSpent,
    /// No party's failure: the order is repeated, and the account's request limits set the pace.
    Unclear,
}

impl Came {
    fn of(answer: &Result<Launched, ComputeError>) -> Self {
        match answer {
            Ok(launched) if !launched.machines.is_empty() => Self::Machines,
            Ok(_) | Err(ComputeError::NoCapacity(_)) => Self::NoneToHave,
            Err(ComputeError::Refused(why)) => Self::Refused(why.chars().take(REFUSAL).collect()),
            Err(ComputeError::TokenSpent(_)) => Self::TokenSpent,
            Err(ComputeError::Throttled | ComputeError::Unknown(_)) => Self::Unclear,
        }
    }
}
