//! Checks that nothing is left after everything was released: polls the table, the stand-in GitHub and `/proc` until
//! nothing is left or the time is over.

use std::time::Duration;

use crate::process;
use runyard_core::model::{Agent, Instance, InstanceId, Record, Request};

use super::PATIENCE;
use super::facts::Left;
use super::stage::{DemoError, DemoStage};
use crate::demo::records::{everything, records};

impl Left {
    fn nothing(&self) -> bool {
        let all = [&self.processes, &self.runners, &self.agents, &self.instances, &self.requests];
        all.iter().all(|names| names.is_empty())
    }
}

impl DemoStage<'_> {
    /// Shuts the yard down and returns what is left.
    pub(super) async fn end(&self, classes: &[&str], machines: &[InstanceId]) -> Result<Left, DemoError> {
        self.journal.title("Everybody is gone: the yard is scaled down to nothing");
        for class in classes {
            self.verb(&["scale", class, "--desired", "0"]).await?;
            self.verb(&["expire", class, "--idle"]).await?;
        }
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let left = self.left(machines).await?;
            if left.nothing() || tokio::time::Instant::now() > until {
                return Ok(left);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns what is left now.
    async fn left(&self, machines: &[InstanceId]) -> Result<Left, DemoError> {
        let items = everything(self.store.as_ref()).await?;
        let live = records::<Instance>(&items).into_iter().filter(|instance| instance.state().live());
        let open = records::<Request>(&items).into_iter().filter(|request| !request.phase().is_final());
        let runners = self.standin.runners().map_err(|failure| DemoError::StandIn(failure.to_string()))?;
        Ok(Left {
            processes: processes(machines),
            runners: runners.into_iter().map(|runner| runner.name).collect(),
            agents: records::<Agent>(&items).iter().map(|agent| agent.key().to_string()).collect(),
            instances: live.map(|instance| instance.facts.instance_id.to_string()).collect(),
            requests: open.map(|request| request.id.to_string()).collect(),
        })
    }
}

/// Lists the living processes of these machines.
pub fn processes(machines: &[InstanceId]) -> Vec<String> {
    let of = |id: &InstanceId| {
        let living = process::of_machine(id).into_iter();
        living.map(|process| format!("{} of {id}", process.pid)).collect::<Vec<_>>()
    };
    machines.iter().flat_map(of).collect()
}
