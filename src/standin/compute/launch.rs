//! Launches machines once per token. Every machine of a launch is recorded with the token before the first one starts;
//! a repeated call starts the recorded machines that never started, and no others.

use std::sync::Arc;
use std::time::Duration;

use crate::model::InstanceId;
use crate::ports::{ComputeError, LaunchOrder, Launched, Shortfall};
use crate::process;

use super::directory::Facts;
use super::{Entry, MachineStage, SharedMachines, agent, end};

impl SharedMachines {
    pub(super) async fn launch(self: &Arc<Self>, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        self.plan(order).map_err(|error| match error {
            PlanError::Io(error) => ComputeError::Refused(format!("{}: {error}", self.options.dir.display())),
            PlanError::Other(first) => ComputeError::TokenSpent(format!(
                "{} was used for {} machine(s) of class {}",
                first.token, first.count, first.class
            )),
        })?;
        let mut trouble = None;
        for entry in self.of_token(&order.launch.client_token) {
            if entry.stage == MachineStage::Planned
                && let Err(error) = self.start(&entry.facts, order).await
            {
                trouble = Some(format!("{}: {error}", self.options.agent.program.display()));
                break;
            }
        }
        self.outcome(&order.launch.client_token, trouble)
    }

    fn of_token(&self, token: &str) -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            self.machines().values().filter(|entry| entry.facts.token == token).cloned().collect();
        entries.sort_by_key(|entry| entry.facts.index);
        entries
    }

    /// Records the machines of a launch that are not recorded yet.
    fn plan(&self, order: &LaunchOrder) -> Result<(), PlanError> {
        let launch = &order.launch;
        let known = self.of_token(&launch.client_token);
        if let Some(first) = known.first().map(|entry| &entry.facts)
            && (&first.class, first.count, first.usage_class)
                != (&launch.resource_class, launch.count, launch.usage_class)
        {
            return Err(PlanError::Other(Box::new(first.clone())));
        }
        for index in 0..launch.count {
            if known.iter().any(|entry| entry.facts.index == index) {
                continue;
            }
            let facts = self.facts(order, index);
            self.directory.plan(&facts).map_err(PlanError::Io)?;
            self.machines().insert(facts.id.clone(), Entry { facts, stage: MachineStage::Planned });
        }
        Ok(())
    }

    pub(super) fn facts(&self, order: &LaunchOrder, index: u32) -> Facts {
        let launch = &order.launch;
        let hex = self.entropy.hex() + &self.entropy.hex();
        Facts {
            id: InstanceId::parse(&format!("i-{}", &hex[..17]))
                .expect("hexadecimal digits are fit for an id"),
            table: self.options.table.clone(),
            token: launch.client_token.clone(),
            index,
            class: launch.resource_class.clone(),
            launch: launch.launch_id.clone(),
            attempt: launch.attempt,
            count: launch.count,
            instance_type: order.types.local(),
            usage_class: launch.usage_class,
            cpu: order.spec.cpu,
            mmem: order.spec.mmem,
            launched_at: self.clock.now(),
            endpoint: self.options.agent.endpoint.clone(),
        }
    }

    async fn start(self: &Arc<Self>, facts: &Facts, order: &LaunchOrder) -> std::io::Result<()> {
        let dir = self.directory.of(&facts.id);
        // Planned and yet running: this program was killed between starting it and recording its pid. No other record
        // of it exists.
        process::sweep(&facts.id, Duration::from_secs(5)).await;
        crate::files::remove_dir(&dir.join("state"))?;
        let own = order.spec.launch.pre_runner_script.as_ref();
        if let Some(script) = own.or(self.options.agent.pre_runner_script.as_ref()) {
            agent::write_script(&dir, script)?;
        }
        let (child, process) = agent::start(&dir, facts, &self.options.agent)?;
        let noted = self.directory.started(&facts.id, &process);
        self.stage(&facts.id, MachineStage::Alive(process));
        tokio::spawn(end::watch_child(Arc::clone(self), facts.id.clone(), child));
        noted.inspect_err(|_| self.end(&facts.id, end::Manner::Asked))
    }

    fn outcome(&self, token: &str, trouble: Option<String>) -> Result<Launched, ComputeError> {
        let entries = self.of_token(token);
        let started = entries.iter().filter(|entry| entry.stage != MachineStage::Planned);
        let machines: Vec<_> = started.map(|entry| entry.facts.machine(entry.stage.state())).collect();
        let Some(message) = trouble else { return Ok(Launched { machines, shortfalls: Vec::new() }) };
        if machines.is_empty() {
            return Err(ComputeError::Refused(message));
        }
        // A machine that could not be started is not part of the token's result, now or later.
        for entry in entries.iter().filter(|entry| entry.stage == MachineStage::Planned) {
            self.forget(&entry.facts.id);
        }
        Ok(Launched { machines, shortfalls: vec![Shortfall { code: "StartFailed".into(), message }] })
    }

    fn forget(&self, id: &InstanceId) {
        let now = self.clock.now();
        if let Err(error) = self.directory.ended(id, now) {
            tracing::warn!(machine = %id, %error, "cannot note that the machine never started");
        }
        self.stage(id, MachineStage::Ended(now));
    }
}

enum PlanError {
    Io(std::io::Error),
    /// The token was used for another launch.
    Other(Box<Facts>),
}
