//! Is the machine ready for its first runner? The owner's script has succeeded, and the runner package is here.

use std::path::Path;

use super::output::{self, detail};
use super::shell::{ScriptEnd, run};
use super::{Host, PreRunner};

impl Host {
    /// Runs the pre-runner script and fetches the package.
    ///
    /// # Errors
    /// Why it failed for good, with the tail of the script's log.
    pub(super) async fn boot(&self) -> Result<(), String> {
        if let Some(pre_runner) = &self.settings.pre_runner {
            self.pre_runner(pre_runner).await?;
        }
        self.fetch().await.map_err(|why| detail("the runner package cannot be had", &why, &[]))
    }

    async fn pre_runner(&self, pre_runner: &PreRunner) -> Result<(), String> {
        let log = self.layout.pre_runner_log();
        let mut command = self.script(&pre_runner.script, &self.settings.state_dir, Path::new("/tmp"));
        command.current_dir(&self.settings.state_dir);
        let reason = match run(command, &log, pre_runner.timeout).await {
            ScriptEnd::Done => return Ok(()),
            ScriptEnd::Failed(how) => format!("the pre-runner script {how}"),
            ScriptEnd::TimedOut => {
                // Nothing else runs on a machine that has not booted.
                let left = self.end(self.machine_scope()).await.err();
                tracing::warn!(left, "the pre-runner script took too long");
                format!("the pre-runner script took longer than {:?}", pre_runner.timeout)
            }
        };
        Err(detail(&reason, &output::end_of(&log), &[]))
    }
}
