//! `compute.kind = "none"`: launches write records and start nothing; a foreign client then plays the agents. Ids are
//! derived from the client token, so that a repeated launch returns the same ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use crate::model::{InstanceArn, InstanceId};
use crate::ports::{Clock, Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState};

/// `compute.kind = "none"`.
pub struct NoCompute {
    clock: Arc<dyn Clock>,
}

impl NoCompute {
    /// Creates the provider; its times come from this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }

    fn machine(&self, order: &LaunchOrder, index: u32) -> Machine {
        let launch = &order.launch;
        let id = id_of(&launch.client_token, index);
        Machine {
            arn: InstanceArn::local(&id),
            id,
            class: Some(launch.resource_class.clone()),
            launch: Some(launch.launch_id.clone()),
            attempt: launch.attempt,
            instance_type: order.types.local(),
            usage_class: launch.usage_class,
            cpu: order.spec.cpu,
            mmem: order.spec.mmem,
            zone: "local".into(),
            state: MachineState::Running,
            launched_at: self.clock.now(),
        }
    }
}

/// Returns `i-` and 17 hexadecimal digits, as in EC2's instance ids.
fn id_of(token: &str, index: u32) -> InstanceId {
    let digest = Sha256::digest(format!("{token}/{index}"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    InstanceId::parse(&format!("i-{}", &hex[..17])).expect("hexadecimal digits are fit for an id")
}

#[async_trait]
impl Compute for NoCompute {
    fn keeps_inventory(&self) -> bool {
        false
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        let machines = (0..order.launch.count).map(|index| self.machine(order, index)).collect();
        Ok(Launched { machines, shortfalls: Vec::new() })
    }

    async fn terminate(&self, _: &[InstanceId]) -> Result<(), ComputeError> {
        Ok(())
    }

    async fn describe(&self, _: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        Ok(BTreeMap::new())
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_token_names_the_same_machines_and_another_token_others() {
        assert_eq!(id_of("l-1", 0), id_of("l-1", 0));
        assert_ne!(id_of("l-1", 0), id_of("l-1", 1));
        assert_ne!(id_of("l-1", 0), id_of("l-2", 0));
        let id = id_of("l-1", 0).to_string();
        assert_eq!(id.len(), 19);
        assert!(id[2..].bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
    }
}
