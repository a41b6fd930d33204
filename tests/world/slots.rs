//! The runners of slots: each serves one job of its scale set, whichever GitHub gives it, and ends.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runyard_core::model::{AgentKey, Instance, InstanceId, Item, JobReport, Life, RegistrationCredential};
use runyard_fakes::FakeScaleSets;

use crate::world::item;

/// How long a runner without a job stays suspended once its agent said that it has none (contract 2.13).
const SUSPENDED: SignedDuration = SignedDuration::from_secs(30);

/// The runners of all machines that serve slots.
pub struct SlotRunners {
    sets: FakeScaleSets,
    /// How long each job takes from now on.
    takes: Mutex<Duration>,
    runners: Mutex<BTreeMap<InstanceId, SlotRunner>>,
}

/// The runner of a claim.
struct SlotRunner {
    claim: String,
    number: u64,
    seq: u64,
    job: Option<(u64, JobReport)>,
    done: bool,
}

impl SlotRunners {
    pub fn of(sets: FakeScaleSets) -> Self {
        Self { sets, takes: Mutex::new(Duration::from_secs(60)), runners: Mutex::default() }
    }

    pub fn take(&self, time: Duration) {
        *self.takes.lock().unwrap() = time;
    }

    /// Starts the runner of a claim from its box; returns whether there is one.
    pub fn start(&self, instance: &Instance, key: &AgentKey) -> bool {
        let (Some(claim), Some(registration)) = (&instance.claim, &instance.registration) else {
            return false;
        };
        let Ok(opened) = key.open::<RegistrationCredential>(&registration.sealed) else { return false };
        assert_eq!(opened.claim_id, claim.id.to_string(), "a box is for the claim it came with");
        let number = opened.runner_id.expect("the number of a single-use runner is in its box");
        assert!(opened.jit_config.is_some() && opened.token.is_none());
        let runner = SlotRunner { claim: opened.claim_id, number, seq: opened.seq, job: None, done: false };
        self.runners.lock().unwrap().insert(instance.facts.instance_id.clone(), runner);
        true
    }

    /// Goes on with the runner of a machine, and returns what its agent shows of it: nothing of a machine that serves no
    /// slot.
    pub fn shows(&self, instance: &Instance, now: Timestamp) -> Option<Item> {
        let mut runners = self.runners.lock().unwrap();
        let runner = runners.get_mut(&instance.facts.instance_id)?;
        let used = || item(&serde_json::json!({"registrationDone": runner.seq}));
        if instance.claim.as_ref().is_none_or(|claim| claim.id.as_str() != runner.claim) {
            // That a box is used up is said until another one is.
            return Some(if runner.done { used() } else { Item::new() });
        }
        let serves =
            matches!(instance.life, Life::Claimed { .. } | Life::Running { .. } | Life::Created { .. });
        let suspended = instance.retire_asked.is_some_and(|at| now.duration_since(at) < SUSPENDED);
        if serves && !runner.done && runner.job.is_none() && !suspended {
            runner.job = self.sets.start_job(runner.number).map(|job| (job, self.report(job, now)));
        }
        let takes = *self.takes.lock().unwrap();
        if let Some((job, report)) = &runner.job
            && !runner.done
            && now.duration_since(report.at).unsigned_abs() >= takes
        {
            self.sets.finish_job(*job, "succeeded");
            runner.done = true;
        }
        let mut shows = Item::new();
        if !runner.done {
            shows.extend(item(&serde_json::json!({"runnerId": runner.number})));
        }
        if let Some((_, report)) = &runner.job {
            shows.insert("job".to_owned(), report.attribute());
        }
        if runner.done {
            shows.extend(used());
        }
        Some(shows)
    }

    fn report(&self, number: u64, now: Timestamp) -> JobReport {
        let jobs = self.sets.jobs();
        let facts = &jobs.iter().find(|job| job.facts.number == number).expect("it just began").facts;
        let (repository, run) = (format!("{}/{}", facts.owner, facts.repository), facts.run_id.to_string());
        JobReport::of(&repository, &run, 1, &facts.name, now).unwrap()
    }

    /// Returns whether the runner of a machine has a job.
    pub fn is_busy(&self, machine: &InstanceId) -> bool {
        let runners = self.runners.lock().unwrap();
        runners.get(machine).is_some_and(|runner| runner.job.is_some() && !runner.done)
    }
}
