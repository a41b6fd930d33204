//! The machines of a launch: those in the fleet's response, once EC2 can describe them, or, if it contains none, those
//! that carry the launch's tags.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use tokio::time::Instant;

use super::Ec2Compute;
use super::errors::{CallError, Meaning};
use super::fleet::{self, Named};
use super::machine::{self, ATTEMPT, LAUNCH, TABLE, Which};
use crate::model::{InstanceId, Launch};
use crate::ports::{ComputeError, LaunchOrder, Launched, Machine, MachineState};

impl Ec2Compute {
    /// Finds the instances of an already used client token by their tags.
    pub(super) async fn find_by_tags(&self, launch: &Launch) -> Result<Vec<Machine>, CallError> {
        let tags = vec![
            (TABLE, self.options.table.to_string()),
            (LAUNCH, launch.launch_id.to_string()),
            (ATTEMPT, launch.attempt.to_string()),
        ];
        self.instances(&Which::Tagged(tags)).await
    }

    pub(super) async fn read(
        &self,
        order: &LaunchOrder,
        answer: &CreateFleetOutput,
    ) -> Result<Launched, ComputeError> {
        let named = fleet::named(answer);
        let shortfalls = fleet::shortfalls(answer.errors());
        if !named.is_empty() {
            let machines = self.wait_until_known(order, &named).await?;
            return Ok(Launched { machines, shortfalls });
        }
        if !shortfalls.is_empty() {
            return Err(fleet::nothing(&shortfalls));
        }
        // A replayed response that contains the fleet and not its machines.
        let found = self.find_by_tags(&order.launch).await.map_err(outcome_unknown)?;
        whole(order, found, "the fleet names neither machines nor errors".into())
            .map_err(ComputeError::Unknown)
    }

    /// Waits until EC2 can describe the machines of a fleet. For machines that it cannot describe in time the fleet's
    /// own response suffices, once a described one has shown their owner.
    async fn wait_until_known(
        &self,
        order: &LaunchOrder,
        named: &[Named],
    ) -> Result<Vec<Machine>, ComputeError> {
        let deadline = Instant::now() + self.options.patience;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(2))
            .without_max_times()
            .with_jitter()
            .build();
        let told = loop {
            let told = self.known(named.iter().map(|machine| machine.id.as_str())).await;
            let all = told.as_ref().is_ok_and(|machines| machines.len() == named.len());
            let pause = pauses.next().unwrap_or(Duration::from_secs(2));
            if all || Instant::now() + pause >= deadline {
                break told.map_err(outcome_unknown)?;
            }
            tokio::time::sleep(pause).await;
        };
        let Some(owner) = told.first().and_then(|machine| machine.arn.as_str().split(':').nth(4)) else {
            return Err(ComputeError::Unknown(format!("EC2 does not know {} yet", named[0].id)));
        };
        let mut machines: BTreeMap<_, _> =
            told.iter().map(|machine| (machine.id.to_string(), machine.clone())).collect();
        for machine in named {
            if !machines.contains_key(&machine.id)
                && let Some(assumed) = self.assumed(owner, machine, &told[0])
            {
                machines.insert(machine.id.clone(), assumed);
            }
        }
        Ok(machines.into_values().map(|machine| with_order(machine, order)).collect())
    }

    fn assumed(&self, owner: &str, named: &Named, sibling: &Machine) -> Option<Machine> {
        let id = InstanceId::parse(&named.id).ok()?;
        Some(Machine {
            arn: machine::arn(&self.region, owner, &id)?,
            id,
            instance_type: named.instance_type.clone(),
            zone: named.zone.clone(),
            state: MachineState::Pending,
            ..sibling.clone()
        })
    }
}

/// Returns the result of an order if its tags find all of its machines. A part is not enough: EC2 lists new machines
/// one after the other.
///
/// # Errors
/// The reason for the search by tags, and how many machines it found.
pub(super) fn whole(order: &LaunchOrder, machines: Vec<Machine>, why: String) -> Result<Launched, String> {
    let (found, count) = (machines.len(), order.launch.count);
    match found {
        0 => Err(why),
        _ if found < count as usize => Err(format!("{why}; {found} of {count} machines carry its tags")),
        _ => Ok(Launched { machines, shortfalls: Vec::new() }),
    }
}

/// Converts an error after a launch whose machines could not be described: they may exist, so the launch is not over.
pub(super) fn outcome_unknown(error: CallError) -> ComputeError {
    match error.meaning {
        Meaning::Throttled => ComputeError::Throttled,
        Meaning::NoCapacity
        | Meaning::Refused
        | Meaning::TokenSpent
        | Meaning::NoSuchInstance
        | Meaning::Protected
        | Meaning::NoSuchTemplate
        | Meaning::TemplateExists
        | Meaning::Unknown => ComputeError::Unknown(error.text),
    }
}

/// Completes a machine from its order: tags may be late, and EC2 launches exactly the usage class that was requested.
fn with_order(machine: Machine, order: &LaunchOrder) -> Machine {
    let launch = &order.launch;
    Machine {
        class: Some(launch.resource_class.clone()),
        launch: Some(launch.launch_id.clone()),
        attempt: launch.attempt,
        usage_class: launch.usage_class,
        ..machine
    }
}
