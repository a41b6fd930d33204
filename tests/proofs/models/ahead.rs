//! A runner that was registered ahead of a claim: it rests under a label that nobody can name, a claim takes it, GitHub
//! gives it the label of the run, and before the machine is pooled again it is gone. GitHub refuses, answers late or not
//! at all, the operator dies between GitHub and the table, the agent loses the runner, the run is released at any moment.

use runyard_core::decide::AtGitHub;
use runyard_core::model::{Agent, Ahead, AheadReport, ClaimId, Instance, InstanceArn, Place, Request};
use runyard_core::yard::Observation;
use serde_json::json;

use crate::models::claim::model;
use crate::models::mutants::Mutant;
use crate::models::scenes::{pooled, request, store};
use crate::models::world::{Fate, Left, Sight, World};
use crate::models::{Yards, exhaust, refuted};

/// GitHub's number of the runner.
const NUMBER: u64 = 7;

/// A runner that was registered ahead, as GitHub and its machine have it.
#[derive(Clone, Debug, Hash, PartialEq)]
pub(crate) struct AtRest {
    pub(crate) id: ClaimId,
    /// Whether GitHub lists it.
    pub(crate) listed: bool,
    /// The run whose label it has; at rest it has none.
    pub(crate) label: Option<String>,
    /// Whether its process runs.
    pub(crate) process: bool,
}

impl AtRest {
    /// Whether its machine's record wants it to run.
    pub(crate) fn is_wanted(&self, (place, _, ahead): &Sight) -> bool {
        let serves = match place {
            Place::IdlePooled | Place::Claimed | Place::Running => true,
            Place::Nowhere
            | Place::CreatedWarm
            | Place::CreatedBound
            | Place::IdleCleaning
            | Place::IdleHeld
            | Place::Terminated => false,
        };
        serves && ahead.as_ref() == Some(&self.id)
    }
}

impl World {
    fn rest_of(&mut self, arn: &InstanceArn) -> Option<&mut AtRest> {
        self.hands.iter_mut().find(|hand| hand.arn == *arn)?.rest.as_mut().filter(|rest| rest.listed)
    }

    /// What else may come of a write with something at GitHub.
    pub(crate) fn fates_at_github(&self, arn: &InstanceArn, github: &AtGitHub) -> Vec<Fate> {
        let rest = self.hands.iter().find(|hand| hand.arn == *arn).and_then(|hand| hand.rest.as_ref());
        let labelled = rest.is_some_and(|rest| rest.listed && rest.label.is_some());
        let (busy, partial) = match github {
            AtGitHub::Nothing | AtGitHub::AttachRemoval(_) | AtGitHub::Confirm { .. } => return Vec::new(),
            AtGitHub::ConfirmRemoved(_) => (true, false),
            AtGitHub::Label { .. } => (true, true),
            // It has a job then.
            AtGitHub::Forget { number, .. } => (number.is_some() && labelled, false),
        };
        let all = [
            (Fate::Busy, busy && self.left.busy > 0),
            (Fate::Partial, partial && self.left.partial > 0),
            (Fate::Cut, rest.is_some() && self.left.crashes > 0),
        ];
        all.into_iter().filter(|(_, may)| *may).map(|(fate, _)| fate).collect()
    }

    /// A runner gets the label of a run, if GitHub knows that runner.
    pub(crate) fn labels_rest(&mut self, arn: &InstanceArn, run: &str) -> bool {
        let rest = self.rest_of(arn);
        rest.map(|rest| rest.label = Some(run.to_owned())).is_some()
    }

    /// The same with its answer; whether it is written down.
    pub(crate) fn sets_label(&mut self, who: usize, arn: &InstanceArn, run: &str, fate: Fate) -> bool {
        if fate == Fate::Busy || !self.labels_rest(arn, run) {
            self.observe(who, Observation::LabelFailed(arn.clone(), Some("404".into())));
            return false;
        }
        if fate == Fate::Partial {
            self.observe(who, Observation::LabelFailed(arn.clone(), None));
        }
        fate != Fate::Partial
    }

    /// GitHub deletes a runner at rest, or says that it has a job; whether it is gone.
    pub(crate) fn forgets(&mut self, who: usize, arn: &InstanceArn, fate: Fate) -> bool {
        if fate == Fate::Busy {
            self.observe(who, Observation::LabelSet(arn.clone()));
            return false;
        }
        self.rest_of(arn).into_iter().for_each(|rest| rest.listed = false);
        true
    }

    /// A runner at rest ends by itself, and its agent says so.
    pub(crate) fn loses(&mut self, arn: &InstanceArn) {
        self.left.loses -= 1;
        let rest = self.hands.iter_mut().find(|hand| hand.arn == *arn).and_then(|hand| hand.rest.as_mut());
        rest.into_iter().for_each(|rest| rest.process = false);
        self.change::<Agent>(&Agent::key_of(arn), 2, |agent| {
            agent.ahead = None;
            agent.heartbeat_seq += 1;
        });
    }

    /// S28: a runner that GitHub lists with the label of a run is of a machine that this run has, or had and was not
    /// pooled since.
    pub(crate) fn labels(&self) -> Option<&'static str> {
        let wrong = self.hands.iter().any(|hand| {
            let rest = hand.rest.as_ref().filter(|rest| rest.listed);
            let Some(run) = rest.and_then(|rest| rest.label.as_deref()) else { return false };
            let record = self.instance(&hand.arn);
            let claim = record.and_then(|record| record.claim.as_ref());
            let of = claim.and_then(|claim| claim.request.request()).map(|request| request.run_id.as_str());
            of != Some(run) || record.is_some_and(|record| record.place() == Place::IdlePooled)
        });
        wrong.then_some("S28: a runner has the label of a run that does not have its machine")
    }
}

/// One machine in the pool with its runner at rest, two requests for it, of which the first ends.
fn resting(operators: usize, left: Left, mutant: Option<Mutant>) -> World {
    let taken = left.reclaimed > 0;
    let mut world = World::new(operators, left, mutant).with_github();
    if taken {
        world = world.with_inventory();
    }
    let class = json!({
        "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 1, "resourceClass": "linux",
        "cpu": 2, "mmem": 4096, "max": 1, "idleSeconds": 36_000, "maxAgeSeconds": 360_000,
        "registeredAhead": true, "reuseWithin": "repository", "repositories": ["acme/web"],
    });
    store(&mut world, &class);
    pooled(&mut world, "i-1");
    let arn = world.hands[0].arn.clone();
    let id: ClaimId = "i-1.4".parse().unwrap();
    world.change::<Instance>(&Instance::key_of(&arn), 3, |instance| {
        instance.ahead = Some(Ahead { id: id.clone(), runner_id: Some(NUMBER) });
        instance.trust_domain = "repository:acme/web".to_owned();
    });
    world.change::<Agent>(&Agent::key_of(&arn), 3, |agent| {
        agent.ahead = Some(AheadReport { id: id.to_string(), runner_id: Some(NUMBER), listening: true });
    });
    let sight = world.sight(&arn);
    let rest = Some(AtRest { id, listed: true, label: None, process: true });
    for hand in &mut world.hands {
        (hand.sight, hand.rest) = (sight.clone(), rest.clone());
    }
    let first = request(&mut world, "1", 1);
    request(&mut world, "2", 1);
    world.left.releases = vec![first];
    world.started()
}

fn ahead(begin: World) -> Yards {
    let mut yards = model(begin);
    yards.sometimes.push(("a runner has the label of a run", |_, world| {
        world.hands.iter().filter_map(|hand| hand.rest.as_ref()).any(|rest| rest.label.is_some())
    }));
    yards.sometimes.push(("a run is released before its runner has the label", |_, world| {
        let unlabelled = |rest: &AtRest| rest.listed && rest.label.is_none();
        let rests = world.hands.iter().any(|hand| hand.rest.as_ref().is_some_and(unlabelled));
        rests
            && world.all::<Request>().any(|request| request.phase() == runyard_core::model::Phase::Releasing)
    }));
    yards
}

#[test]
fn a_runner_at_rest_has_the_label_of_a_run_only_with_its_machine() {
    let left = Left { crashes: 1, busy: 1, partial: 1, loses: 1, ..Left::default() };
    assert_eq!(exhaust(ahead(resting(1, left, None))), 46_372);
}

#[test]
fn a_runner_at_rest_on_a_machine_that_ec2_takes_leaves_no_label_behind() {
    let left = Left { reclaimed: 1, ..Left::default() };
    assert_eq!(exhaust(ahead(resting(1, left, None))), 79_712);
}

#[test]
fn a_label_that_is_set_before_the_claim_is_written_is_refuted() {
    let left = Left { crashes: 1, ..Left::default() };
    let begin = resting(2, left, Some(Mutant::LabelBeforeClaim));
    assert!(refuted(model(begin)).starts_with("S28"));
}
