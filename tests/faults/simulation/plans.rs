//! Crash plans of agents and commands: in fair weather each of their effects goes wrong once, in each way, and the same
//! story must end the same. `tests/faults/crash_plans` does this for the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use runyard_core::model::{Item, Operation, Phase, RegistrationMode, Write};

use crate::simulation::life::{Story, live_story};

/// How an effect goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Whoever makes it dies just before.
    Before,
    /// Dies just after.
    After,
    /// Is told that nobody knows.
    Lost,
}

/// One effect that goes wrong: the how-manieth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) at: usize,
    pub(crate) wrong: Wrong,
}

/// The effects that were made, in words, and what is planned for one of them.
#[derive(Default)]
pub(crate) struct Effects {
    /// Whether they are counted at all.
    counted: bool,
    plan: Option<Plan>,
    made: Mutex<Vec<String>>,
    /// The names under which machines registered runners.
    pub(crate) registered: Mutex<Vec<String>>,
}

impl Effects {
    pub(crate) fn planned(plan: Option<Plan>) -> Self {
        Self { counted: true, plan, ..Self::default() }
    }

    /// An effect is about to be made: how it goes wrong, if it does.
    pub(crate) fn next(&self, what: impl FnOnce() -> String) -> Option<Wrong> {
        if !self.counted {
            return None;
        }
        let mut made = self.made.lock().unwrap();
        made.push(what());
        self.plan.filter(|plan| plan.at + 1 == made.len()).map(|plan| plan.wrong)
    }

    pub(crate) fn made(&self) -> Vec<String> {
        self.made.lock().unwrap().clone()
    }
}

/// Whether a write says something new: a beat does not.
pub(crate) fn news(write: &Write, before: Option<&Item>) -> bool {
    let Operation::Update { set, .. } = &write.operation else { return true };
    set.iter().any(|(name, value)| {
        let beats = matches!(name.as_str(), "updatedAt" | "heartbeatAt");
        !beats && before.is_none_or(|before| before.get(name) != Some(value))
    })
}

/// How a story ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// What became of each request, and whether it ever was ready.
    pub(crate) requests: BTreeMap<String, (Phase, bool)>,
    /// Machines that were made.
    pub(crate) made: u32,
    /// How the records of machines end, by place and reason.
    pub(crate) machines: BTreeMap<String, usize>,
    /// The names of the runners that were registered.
    pub(crate) registered: BTreeSet<String>,
}

/// How often a runner may be registered again under its name, which replaces it: the claim and the labels are the same,
/// and no listener of the first was ever started.
fn may_repeat(plan: Plan, effect: &str) -> usize {
    usize::from(effect.ends_with("configures") && plan.wrong != Wrong::Before)
}

fn ends_the_same_whatever_goes_wrong(mode: RegistrationMode) {
    let Story { end: reference, repeated, effects, failure } = live_story(mode, None);
    assert_eq!((failure, repeated), (None, 0), "the reference");
    assert!(effects.len() > 20, "{effects:?}");
    let plans: Vec<Plan> = (0..effects.len())
        .flat_map(|at| [Wrong::Before, Wrong::After, Wrong::Lost].map(|wrong| Plan { at, wrong }))
        .collect();
    let (next, complaints) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let story = live_story(mode, Some(*plan));
                    let what = format!("{:?} {} ({})", plan.wrong, plan.at, effects[plan.at]);
                    if let Some(failure) = &story.failure {
                        complaints.lock().unwrap().push(format!("{what}: {failure}"));
                    } else if story.end != reference || story.repeated > may_repeat(*plan, &effects[plan.at])
                    {
                        complaints.lock().unwrap().push(format!("{what}: {:?}", story.end));
                    }
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    println!("{mode}: {} effects, {} plans", effects.len(), plans.len());
    assert!(
        complaints.is_empty(),
        "{} of {} plans ended otherwise than {reference:?}:\n{}",
        complaints.len(),
        plans.len(),
        complaints.join("\n")
    );
}

#[test]
fn a_story_of_reuse_ends_the_same_whatever_goes_wrong_for_an_agent_or_a_command() {
    ends_the_same_whatever_goes_wrong(RegistrationMode::Run);
}

#[test]
fn a_story_of_single_use_runners_ends_the_same_after_any_agent_or_command_fault() {
    ends_the_same_whatever_goes_wrong(RegistrationMode::Job);
}
