//! The operator's own settings for EC2 machines, in addition to the spec of their class.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{AgentProgram, Architectures, Config, RunnerPackage};
use crate::model::{FieldError, TableName, Timing};

/// How long a launch waits for EC2 to know the machines it has just named.
const PATIENCE: Duration = Duration::from_secs(15);

/// What machines of EC2 are made with.
#[derive(Clone, Debug)]
pub struct Ec2Options {
    /// The table they belong to.
    pub table: TableName,
    /// The operator's deadlines and intervals, of which agents are told their own.
    pub timing: Timing,
    /// The runner package; without one only machines of launch templates of somebody's own can be of use.
    pub runner: Architectures<RunnerPackage>,
    /// The agent's program; without one each image brings it.
    pub program: Architectures<AgentProgram>,
    /// Variables of the first boot, the agent, runners and jobs.
    pub environment: BTreeMap<String, String>,
    /// The script of classes that name none of their own.
    pub pre_runner_script: Option<String>,
    /// How long a pre-runner script may take.
    pub pre_runner_timeout: Duration,
    /// How long a runner may take to end by itself.
    pub stop: Duration,
    /// Where jobs may write to file systems that are not the machine's own.
    pub spare: Vec<PathBuf>,
    /// Hosts of runner packages beside GitHub's.
    pub runner_hosts: Vec<String>,
    /// How long a launch waits for EC2 to know the machines it has just named.
    pub patience: Duration,
}

impl Ec2Options {
    /// By the operator's configuration.
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
