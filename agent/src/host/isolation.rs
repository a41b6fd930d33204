//! Is the machine itself out of a job's reach? A probe is run as the user jobs run as before each registration; a machine
//! that is not isolated registers nothing.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use super::Host;
use super::output::detail;
use crate::probe::{Targets, arguments};

/// Longest run of the probe.
const LIMIT: Duration = Duration::from_secs(30);

/// How isolation is tried.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// The agent's own program.
    pub program: PathBuf,
    /// The agent's own configuration.
    pub config: PathBuf,
    /// The metadata service.
    pub metadata: reqwest::Url,
}

impl Host {
    /// Tries whether jobs are kept from what is the machine's.
    ///
    /// # Errors
    /// What they could reach, or why that cannot be told.
    pub(super) async fn isolated(&self) -> Result<(), String> {
        let (Some(isolation), Some(account)) = (&self.settings.isolation, &self.settings.account) else {
            return Ok(());
        };
        let state = &self.settings.state_dir;
        let targets = Targets {
            metadata: isolation.metadata.clone(),
            agent: std::process::id(),
            secret: vec![
                isolation.config.clone(),
                state.clone(),
                state.join("key"),
                state.join("state"),
                state.join("threshold"),
                self.layout.registration(),
                self.layout.package(),
                self.layout.logs(),
            ],
            fixed: vec![isolation.program.clone(), self.settings.work_dir.clone(), self.layout.claims()],
        };
        let mut command = tokio::process::Command::new(&isolation.program);
        command
            .arg("probe")
            .args(arguments(&targets))
            .env_clear()
            .env("PATH", super::shell::PATH)
            .current_dir("/")
            .uid(account.uid)
            .gid(account.gid)
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::null());
        let cannot = |why: String| format!("whether jobs are isolated cannot be told: {why}");
        let run = tokio::time::timeout(LIMIT, command.output()).await;
        let output = run
            .map_err(|_| cannot(format!("the probe took longer than {LIMIT:?}")))?
            .map_err(|e| cannot(e.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => Ok(()),
            Some(1) => Err(detail("jobs are not isolated from this machine", &said, &[])),
            Some(_) | None => Err(cannot(output.status.to_string())),
        }
    }
}
