//! Runs the scripts of the machine's owner. The pre-runner script must succeed (and the runner package must be present)
//! before the first runner; the post-run script runs after each claim.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use runyard_core::model::{ClaimId, CleaningItem};

use super::scope::Scope;
use super::shell::{ScriptEnd, run};
use crate::host::files::output;
use crate::host::files::output::detail;
use crate::host::{Host, OwnScript};
use crate::system::disk;

/// The interpreter of a script that names none.
const SHELL: &str = "/bin/sh";
/// The number of bytes in which a script's first line is searched; the kernel's own limit.
const HEAD: u64 = 256;

impl Host {
    /// Runs the pre-runner script, fetches and unpacks the package, and checks that the job user owns nothing yet.
    ///
    /// # Errors
    /// The reason for the permanent failure, with the tail of the script's log.
    pub(crate) async fn boot(&self) -> Result<(), String> {
        if self.settings.isolation.is_none() {
            self.can_be_listed()?;
        }
        if let Some(pre_runner) = &self.settings.pre_runner {
            let own = (pre_runner, self.layout.pre_runner_log());
            self.own_script("pre-runner", own, None, self.machine_scope()).await?;
        }
        // After the script, to include everything that it mounted and gave away. The first search of a big image takes
        // a while, so the download runs at the same time.
        let (fetched, given) = tokio::join!(self.fetch(&self.settings.package), self.nothing_is_the_jobs());
        fetched.map_err(|why| detail("the runner package cannot be had", &why, &[])).and(given)
    }

    /// Checks that GitHub's runner, outside of a jail, can list all directories above its own.
    ///
    /// # Errors
    /// The directory that it cannot list, and the fix.
    pub(crate) fn can_be_listed(&self) -> Result<(), String> {
        let account = self.settings.account.as_ref();
        self.layout.unlisted(account).map_or(Ok(()), |dir| {
            let whose = account.map_or("the agent's user", |account| &account.name);
            Err(format!(
                "work_dir {}: {whose} cannot list {}, and GitHub's runner ends where it cannot list each directory above \
                 its own: chmod o+rx {}, or set work_dir to a directory elsewhere",
                self.settings.work_dir.display(),
                dir.display(),
                dir.display()
            ))
        })
    }

    /// Runs the post-run script: the claim's processes have ended, its files still exist.
    ///
    /// # Errors
    /// The reason for the failure, with the tail of its log.
    pub(crate) async fn after(&self, claim: &ClaimId, since: Option<u64>) -> Result<(), String> {
        let Some(post_run) = &self.settings.post_run else {
            self.findings.nothing(CleaningItem::PostRun);
            return Ok(());
        };
        let is_missing = |why: io::Error| why.kind() == io::ErrorKind::NotFound;
        if post_run.optional && post_run.script.symlink_metadata().is_err_and(is_missing) {
            self.findings.nothing(CleaningItem::PostRun);
            return Ok(());
        }
        let own = (post_run, self.layout.post_run_log());
        let ran = self.own_script("post-run", own, Some(claim), self.claim_scope(claim, None, since)).await;
        self.findings.check(CleaningItem::PostRun, ran)
    }

    /// Runs a script of the owner. `left` selects the processes of a script that took too long.
    async fn own_script(
        &self,
        name: &str,
        (own, log): (&OwnScript, PathBuf),
        claim: Option<&ClaimId>,
        left: Scope,
    ) -> Result<(), String> {
        let words = match command_of(&own.script) {
            Err(why) if own.optional && why.kind() == io::ErrorKind::NotFound => return Ok(()),
            words => words.map_err(|why| format!("the {name} script: {why}"))?,
        };
        let (program, arguments) = words.split_first().expect("a command has a program");
        let mut command = self.script(Path::new(program), &self.settings.state_dir, Path::new("/tmp"));
        command.args(arguments);
        command.current_dir(&self.settings.state_dir);
        if let Some(claim) = claim {
            // Processes that it leaves behind are found and killed like a job's.
            command.env("RUNYARD_CLAIM", claim.as_str());
        }
        // Processes that a claim's script leaves behind are killed like a job's; those of the machine's own script
        // remain.
        let group = claim.and(self.settings.group.as_ref());
        let reason = match run(command, &log, own.timeout, group).await {
            ScriptEnd::Done => return Ok(()),
            ScriptEnd::Failed(how) => format!("the {name} script {how}"),
            ScriptEnd::TimedOut => {
                let left = self.end(left).await.err();
                tracing::warn!(left, "the {name} script took too long");
                format!("the {name} script took longer than {:?}", own.timeout)
            }
        };
        Err(detail(&reason, &output::end_of(&log), &[]))
    }
}

/// Returns the command line of a script: its path if the system can execute it, else the interpreter in its first line,
/// else the shell. The script may be text without execute permission, or be stored where execution is not permitted.
fn command_of(script: &Path) -> io::Result<Vec<OsString>> {
    let mut head = Vec::new();
    let file = File::open(script).map_err(|e| disk::at(script, &e))?;
    let executable = file.metadata()?.permissions().mode() & 0o111 != 0;
    file.take(HEAD).read_to_end(&mut head)?;
    let first = head.split(|b| *b == b'\n').next().unwrap_or_default();
    let asked = first.strip_prefix(b"#!").map(|line| String::from_utf8_lossy(line).trim().to_owned());
    if executable && (asked.is_some() || head.starts_with(b"\x7fELF")) {
        return Ok(vec![script.into()]);
    }
    // As the kernel does: at most one argument.
    let asked = asked.filter(|line| !line.is_empty()).unwrap_or_else(|| SHELL.to_owned());
    let words = asked.splitn(2, [' ', '\t']).map(|word| OsString::from(word.trim()));
    Ok(words.chain([script.into()]).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn a_script_is_called_as_it_asks_with_or_without_leave_to_be_executed() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        let cases = [
            ("#!/bin/bash -e\ntrue", 0o644, "/bin/bash -e SCRIPT"),
            ("#! /usr/bin/env bash\r\n", 0o600, "/usr/bin/env bash SCRIPT"),
            ("#!/bin/bash", 0o755, "SCRIPT"),
            ("true", 0o755, "/bin/sh SCRIPT"),
            ("", 0o644, "/bin/sh SCRIPT"),
            ("#!\n", 0o644, "/bin/sh SCRIPT"),
        ];
        for (text, mode, wanted) in cases {
            fs::write(&script, text).unwrap();
            fs::set_permissions(&script, Permissions::from_mode(mode)).unwrap();
            let words = command_of(&script).unwrap();
            let line = words.join(std::ffi::OsStr::new(" ")).into_string().unwrap();
            assert_eq!(line.replace(script.to_str().unwrap(), "SCRIPT"), wanted, "{text:?}");
        }
        assert!(command_of(&dir.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
