//! The records an action refers to beside those it carries.

use crate::decide::Action;
use crate::model::{InstanceArn, LaunchId};

use super::Loop;
use crate::controller::execute::Surroundings;

impl Loop {
    /// The records an action refers to beside those it carries.
    pub(super) fn around(&self, action: &Action) -> Surroundings {
        match action {
            Action::Instance(step, _) => self.around_machine(&step.before.facts.instance_arn),
            Action::Announce(arn) | Action::Credential(arn, _) | Action::SweepRunner(arn) => {
                self.around_machine(arn)
            }
            Action::Claim { machines, .. } => Surroundings {
                pool: machines
                    .first()
                    .and_then(|step| self.yard.pool(&step.before.facts.resource_class))
                    .cloned(),
                ..Surroundings::default()
            },
            Action::Order(id) => self.around_launch(id),
            Action::Silence(..)
            | Action::Request(..)
            | Action::Launch(..)
            | Action::Pool(_)
            | Action::Intend(..)
            | Action::Bind { .. }
            | Action::Orphan(..)
            | Action::Terminate(_)
            | Action::Describe(_)
            | Action::Bury(_)
            | Action::Receive(_)
            | Action::Look(_)
            | Action::Expire(..) => Surroundings::default(),
        }
    }

    fn around_machine(&self, arn: &InstanceArn) -> Surroundings {
        let Some(tracked) = self.yard.instance(arn) else { return Surroundings::default() };
        let instance = tracked.instance.clone();
        let request =
            instance.claim.as_ref().and_then(|claim| self.yard.request_named(&claim.request)).cloned();
        let pool = self.yard.pool(&instance.facts.resource_class).cloned();
        // The key goes into the record with the first write that needs it.
        let mut instance = instance;
        if instance.public_key.is_none() {
            instance.public_key = tracked.agent.as_ref().and_then(|agent| agent.public_key.clone());
        }
        Surroundings { instance: Some(instance), request, pool, launch: None }
    }

    fn around_launch(&self, id: &LaunchId) -> Surroundings {
        let Some(tracked) = self.yard.launch(id) else { return Surroundings::default() };
        let launch = tracked.launch.clone();
        let request = launch.request.as_ref().and_then(|id| self.yard.request_named(id)).cloned();
        let pool = self.yard.pool(&launch.resource_class).cloned();
        Surroundings { instance: None, request, pool, launch: Some(launch) }
    }
}
