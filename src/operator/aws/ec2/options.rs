//! The operator's own settings for EC2 machines, in addition to the spec of their class.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{AgentProgram, Architectures, Config, RunnerPackage};
use crate::model::{FieldError, TableName, Timing};

/// How long a launch waits until EC2 can describe its new machines.
const PATIENCE: Duration = Duration::from_secs(15);

/// The settings of machines on EC2.
#[derive(Clone, Debug)]
pub struct Ec2Options {
    /// The table of the yard.
    pub table: TableName,
    /// The operator's deadlines and intervals; agents are configured with their part of them.
    pub timing: Timing,
    /// The runner package; without one only machines from provided launch templates are usable.
    pub runner: Architectures<RunnerPackage>,
    /// The agent's program; without one each image contains it.
    pub program: Architectures<AgentProgram>,
    /// Environment variables of the first boot, the agent, runners and jobs.
    pub environment: BTreeMap<String, String>,
    /// The pre-runner script of classes without their own.
    pub pre_runner_script: Option<String>,
    /// Timeout of a pre-runner script.
    pub pre_runner_timeout: Duration,
    /// How long a runner may take to stop by itself.
    pub stop: Duration,
    /// Directories on other file systems where jobs may write.
    pub spare: Vec<PathBuf>,
    /// Allowed hosts of runner packages beside GitHub's.
    pub runner_hosts: Vec<String>,
    /// How long a launch waits until EC2 can describe its new machines.
    pub patience: Duration,
}

impl Ec2Options {
    /// Returns the options of the operator's configuration.
    ///
    /// # Errors
    /// The pre-runner script cannot be read.
    pub fn of(config: &Config) -> Result<Self, FieldError> {
        let agent = &config.agent;
        let script = agent.pre_runner_script.as_ref().map(|path| {
            std::fs::read_to_string(path).map_err(|error| {
                let (key, message) = ("agent.pre_runner_script", format!("cannot be read: {error}"));
                FieldError::new(key, path.display().to_string(), message, "name a readable shell script")
            })
        });
        Ok(Self {
            table: config.table.clone(),
            timing: config.timing,
            runner: agent.runner.clone(),
            program: agent.program.clone(),
            environment: agent.environment.clone(),
            pre_runner_script: script.transpose()?,
            pre_runner_timeout: agent.pre_runner_timeout,
            stop: agent.stop,
            spare: agent.spare.clone(),
            runner_hosts: agent.runner_hosts.clone(),
            patience: PATIENCE,
        })
    }
}
