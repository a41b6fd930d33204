//! Starts the agent of a machine with its own configuration file, session and log, and with an environment that holds
//! the machine's mark and the variables chosen for it, and no others of this process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::files;
use crate::model::{InstanceArn, Timing};
use crate::process::{MARKER, Process};

use super::directory::Facts;

/// The runner package.
#[derive(Clone, Debug)]
pub struct RunnerPackage {
    /// The address of the tarball.
    pub url: String,
    /// Its digest, hexadecimal.
    pub sha256: String,
    /// Its version.
    pub version: String,
}

/// The agent of each machine.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The agent's executable.
    pub program: PathBuf,
    /// The engine's endpoint. A machine whose agent was started with another one is replaced.
    pub endpoint: String,
    /// The other variables of its environment: `PATH`, the AWS variables, a proxy.
    pub environment: BTreeMap<String, String>,
    /// Its clocks.
    pub timing: Timing,
    /// Its runner.
    pub runner: RunnerPackage,
    /// The script that runs at first boot unless the class names a script of its own.
    pub pre_runner_script: Option<String>,
    /// How long a pre-runner script may take.
    pub pre_runner_timeout: Duration,
    /// How long a runner may take to end by itself.
    pub stop: Duration,
    /// Directories where jobs may write to file systems other than the machine's own.
    pub spare: Vec<PathBuf>,
}

/// Writes a machine's configuration and starts its agent.
pub(super) fn start(dir: &Path, facts: &Facts, options: &AgentOptions) -> io::Result<(Child, Process)> {
    files::private_dir(&dir.join("state"))?;
    files::private_dir(&dir.join("work"))?;
    let config = dir.join("agent.toml");
    files::replace(&config, configuration(dir, facts, options).as_bytes())?;
    let log = File::options().append(true).create(true).open(dir.join("agent.log"))?;
    let child = spawn(facts, options, &config, &log)?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let process = pid.and_then(Process::of);
    process.map(|process| (child, process)).ok_or_else(|| io::Error::other("/proc does not show the agent"))
}

/// Writes a pre-runner script as an executable file; without an interpreter line of its own it runs in the shell.
pub(super) fn write_script(dir: &Path, script: &str) -> io::Result<()> {
    let head = if script.starts_with("#!") { "" } else { "#!/bin/sh\n" };
    let path = script_of(dir);
    files::replace(&path, format!("{head}{script}").as_bytes())?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
}

fn script_of(dir: &Path) -> PathBuf {
    dir.join("pre-runner.sh")
}

/// Starts the agent in a session of its own: a job that asks for a password must not reach the operator's terminal, nor
/// that terminal's Ctrl-C the job. `setsid` executes the agent in its own process, so the pid is the agent's.
fn spawn(facts: &Facts, options: &AgentOptions, config: &Path, log: &File) -> io::Result<Child> {
    let start = |command: &mut Command| {
        command.arg("--config").arg(config).stdin(Stdio::null());
        command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log.try_clone()?));
        command.env_clear().envs(&options.environment).env(MARKER, facts.id.as_str());
        command.current_dir(config.parent().unwrap_or(Path::new("/"))).spawn()
    };
    if !options.program.is_file() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such file"));
    }
    match start(Command::new("setsid").arg(&options.program)) {
        // Without util-linux, a process group of its own does nearly the same.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            start(Command::new(&options.program).process_group(0))
        }
        other => other,
    }
}

fn configuration(dir: &Path, facts: &Facts, options: &AgentOptions) -> String {
    let (timing, runner) = (&options.timing, &options.runner);
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        // JSON's escapes are valid in TOML.
        let quoted = serde_json::Value::from(value).to_string();
        writeln!(text, "{key} = {quoted}").expect("writing to a string cannot fail");
    };
    line("table", facts.table.as_str());
    line("instance_id", facts.id.as_str());
    line("instance_arn", InstanceArn::local(&facts.id).as_str());
    line("state_dir", &dir.join("state").to_string_lossy());
    line("work_dir", &dir.join("work").to_string_lossy());
    let script = script_of(dir);
    if script.exists() {
        line("pre_runner_script", &script.to_string_lossy());
        line("pre_runner_timeout", &milliseconds(options.pre_runner_timeout));
    }
    line("timing.heartbeat", &milliseconds(timing.heartbeat));
    if let Some(every) = timing.unusual_heartbeat_free() {
        line("timing.heartbeat_free", &milliseconds(every));
    }
    line("timing.poll", &milliseconds(timing.agent_poll));
    line("timing.grace", &milliseconds(timing.grace));
    line("timing.created", &milliseconds(timing.created));
    line("runner.url", &runner.url);
    line("runner.sha256", &runner.sha256);
    line("runner.version", &runner.version);
    line("timing.stop", &milliseconds(options.stop));
    line("power.off", "exit");
    if !options.spare.is_empty() {
        let spare: Vec<_> = options.spare.iter().map(|place| place.to_string_lossy()).collect();
        writeln!(text, "cleaning.spare = {}", serde_json::json!(spare))
            .expect("writing to a string cannot fail");
    }
    text
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
