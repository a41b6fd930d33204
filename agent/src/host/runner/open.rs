//! Gives the whole machine to its jobs: they become root through `sudo`, or through the machine's Docker. Their runner
//! is not in a jail, and the isolation of jobs is not checked. Only the class can request this, never the machine, and
//! the machine ends after its job.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use runyard_core::model::{ClaimId, Containers, Jobs, RegistrationCredential};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::host::files::layout::ClaimDirs;
use crate::host::files::output::detail;
use crate::host::jail::engine::answers;
use crate::host::package::unpacked::Share;
use crate::host::{Account, Host, disk};

/// Docker's socket.
const DOCKER: &str = "/var/run/docker.sock";
/// Time limit for the start of Docker.
const BEGUN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);
/// Time limit for a response of the engine, and of `sudo`.
const ANSWER: Duration = Duration::from_secs(5);
/// Directory and name of the rule for sudo.
const SUDOERS: &str = "/etc/sudoers.d";
const RULE: &str = "runyard-jobs";

impl Host {
    /// Prepares an empty directory for a runner, and gives the machine to its jobs.
    ///
    /// # Errors
    /// The reason why this is not possible, as a message for the claim's request.
    pub(crate) async fn open_machine(
        &self,
        claim: &ClaimId,
        dirs: &ClaimDirs,
        jobs: &Jobs,
        single_use: Option<&RegistrationCredential>,
    ) -> Result<(), String> {
        let Some(account) = &self.settings.account else {
            return Err("its class lets jobs become root, and this agent has no job_user".to_owned());
        };
        if single_use.is_none_or(|registration| registration.jit_config.is_none()) {
            return Err("jobs become root only where each runner serves one job".to_owned());
        }
        self.can_be_listed()?;
        self.forget_next();
        self.end(self.claim_scope(claim, None, None)).await?;
        let files = async {
            self.make_fresh(dirs).await?;
            self.furnished(dirs.runner(), Share::Linked).await?;
            self.hand_over(dirs).await
        };
        files.await.map_err(|why: io::Error| why.to_string())?;
        tracing::warn!(%claim, "the jobs of this claim have the machine: it ends after them");
        if jobs.root {
            become_root(account).await?;
        }
        match jobs.containers {
            Containers::Engine => lend_docker(account).await,
            Containers::Nothing | Containers::Rootless => Ok(()),
        }
    }
}

/// Permits the account to become any user without a password, and checks that this works.
async fn become_root(account: &Account) -> Result<(), String> {
    let because = |why: &str| detail("its class lets jobs become root, and sudo does not", why, &[]);
    write_rule(Path::new(SUDOERS), account).map_err(|why| because(&why.to_string()))?;
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", "true"]).env_clear().env("PATH", crate::host::users::child::PATH).current_dir("/");
    sudo.uid(account.uid).gid(account.gid).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(ANSWER, sudo.output()).await.map_err(|_| because("it does not answer"))?;
    let output = output.map_err(|why| because(&format!("sudo: {why}")))?;
    if output.status.success() { Ok(()) } else { Err(because(&String::from_utf8_lossy(&output.stderr))) }
}

/// Writes the rule for sudo, with the options that are required because the account has expired and has no terminal.
fn write_rule(dir: &Path, account: &Account) -> io::Result<()> {
    let name = &account.name;
    let rule = format!("Defaults:{name} !requiretty, !pam_acct_mgmt\n{name} ALL=(ALL:ALL) NOPASSWD: ALL\n");
    let file = dir.join(RULE);
    fs::create_dir_all(dir).map_err(|e| disk::at(dir, &e))?;
    disk::create_anew(&file)?.write_all(rule.as_bytes())?;
    fs::set_permissions(&file, Permissions::from_mode(0o440))
}

/// Gives the account access to the machine's Docker, and starts Docker if it is not running.
async fn lend_docker(account: &Account) -> Result<(), String> {
    let because =
        |why: &str| detail("its class lets jobs use Docker, and this machine's does not answer", why, &[]);
    let socket = Path::new(DOCKER);
    if !answers(socket) {
        let begin = Command::new("systemctl").args(["start", "docker"]).stdin(Stdio::null()).output();
        let begun = timeout(BEGUN, begin).await;
        let told = match begun {
            Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Ok(Err(why)) => format!("systemctl start docker: {why}"),
            Err(_) => format!("systemctl start docker took longer than {BEGUN:?}"),
        };
        let listens = async {
            while !answers(socket) {
                sleep(LOOK).await;
            }
        };
        timeout(ANSWER, listens).await.map_err(|_| because(&told))?;
    }
    chown(socket, Some(0), Some(account.gid))
        .and_then(|()| fs::set_permissions(socket, Permissions::from_mode(0o660)))
        .map_err(|why| because(&why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_for_sudo_is_roots_to_read_and_names_the_account_alone() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account { name: "runyard-job".to_owned(), uid: 990, gid: 990 };
        write_rule(dir.path(), &account).unwrap();
        let file = dir.path().join(RULE);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("\nrunyard-job ALL=(ALL:ALL) NOPASSWD: ALL\n"), "{text}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o440);
        write_rule(dir.path(), &account).unwrap();
    }
}
