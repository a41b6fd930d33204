//! Refuses jobs of other runs. GitHub only matches labels, so any run may send a job to this machine by its label. The
//! runner calls this program before a job's first step (`ACTIONS_RUNNER_HOOK_JOB_STARTED`). A job of another run or
//! repository than the claim's never begins, and the agent cleans the machine. A slot's job may be of any run.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use tokio::net::unix::pipe;

use crate::host::Host;
use crate::host::files::remove::remove;
use crate::system::disk;
use crate::task::Holder;

/// The hook script, below the directory of the hook (actions/runner, `JobExtension.cs`). The runner selects the shell
/// by the file extension.
const SCRIPT: &str = "job-started.sh";
/// The script that decides which jobs may begin, written when a runner that was registered ahead is lent.
const LENT: &str = "lent.sh";
/// How often the hook checks for that script, ten times a second: longer than an agent needs to learn of its claim.
const LOOKS: u32 = 1200;
/// A run id that GitHub never uses.
const NOBODY: &str = "0";
/// The pipe for refusals: every user may write to it, and only root can read or remove a refusal.
const REFUSED: &str = "refused";
/// The variable from which the runner takes the path of the script.
pub(crate) const HOOK: &str = "ACTIONS_RUNNER_HOOK_JOB_STARTED";

/// Returns the reason why a job must not run for a holder; `None` if it may. A later attempt of a run is the same run.
/// A run id that is not a number is no run of GitHub's: only the repository is compared then, and only the run if the
/// repository is not known.
pub(super) fn refusal(holder: &Holder, run: &str, repository: &str) -> Option<String> {
    let number = !holder.run.is_empty() && holder.run.bytes().all(|b| b.is_ascii_digit());
    let other_run = number && run != holder.run;
    if holder.run == NOBODY {
        return Some(format!(
            "Runyard lent this machine to nobody yet, and this job is of run {run} of {repository}."
        ));
    }
    (other_run || holder.excludes(repository)).then(|| match holder.set() {
        Some(set) => format!(
            "Runyard lent this machine to runner scale set {set} of {}, and this job is of run {run} of {repository}.",
            holder.repository
        ),
        None => format!(
            "Runyard lent this machine to run {} of {}, and this job is of run {run} of {repository}: give its runs-on \
             the label that was provisioned for its own run.",
            holder.run, holder.repository
        ),
    })
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns a hook that waits for the script that decides which jobs may begin; it executes `never` if the script does
/// not appear.
fn waiting(lent: &Path, never: &str) -> String {
    let lent = quoted(&lent.display().to_string());
    format!(
        "#!/bin/sh\nn=0\nwhile [ ! -e {lent} ]; do\n  n=$((n + 1))\n  [ $n -le {LOOKS} ] || exec {never}\n  sleep \
         0.1\ndone\nexec /bin/sh {lent}\n"
    )
}

/// Makes a pipe that every user may write to, and only this one can read.
pub(super) fn make_pipe(path: &Path) -> io::Result<()> {
    remove(path)?;
    nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    fs::set_permissions(path, Permissions::from_mode(0o622)).map_err(|e| disk::at(path, &e))
}

fn write_script(path: &Path, text: &str) -> io::Result<()> {
    disk::create_anew(path)?.write_all(text.as_bytes())?;
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(|e| disk::at(path, &e))
}

impl Host {
    /// Writes the hook for a holder, and returns its path.
    pub(crate) fn write_hook(&self, holder: &Holder) -> io::Result<PathBuf> {
        let dir = self.layout.hook();
        let (script, refused, lent) = (dir.join(SCRIPT), dir.join(REFUSED), dir.join(LENT));
        remove(&lent)?;
        make_pipe(&refused)?;
        self.prepare_report(holder)?;
        if holder.run.is_empty() {
            // The machine has no holder yet: a job waits until it has one.
            let nobody = Holder { run: NOBODY.to_owned(), ..Holder::default() };
            let text = waiting(&lent, &self.hook_words(&nobody));
            return write_script(&script, &text).map(|()| script);
        }
        write_script(&script, &format!("#!/bin/sh\nexec {}\n", self.hook_words(holder)))?;
        Ok(script)
    }

    /// Informs a runner that was registered ahead which jobs may begin.
    pub(crate) fn lend_runner(&self, holder: &Holder) -> io::Result<()> {
        let (next, lent) = (self.layout.hook().join("lent.next"), self.layout.hook().join(LENT));
        write_script(&next, &format!("exec {}\n", self.hook_words(holder)))?;
        // In one step, because a job may be checking for the script right now.
        fs::rename(&next, &lent).map_err(|e| disk::at(&lent, &e))
    }

    /// Returns the command line that checks a job for a holder.
    fn hook_words(&self, holder: &Holder) -> String {
        let refused = self.layout.hook().join(REFUSED);
        let words = [
            self.settings.places.program.display().to_string(),
            "job-started".to_owned(),
            holder.run.clone(),
            holder.repository.clone(),
            refused.display().to_string(),
        ];
        words.map(|word| quoted(&word)).join(" ")
    }

    /// Waits until a job was refused. Never returns if the pipe cannot be opened.
    pub(crate) async fn refused(&self) {
        let path = self.layout.hook().join(REFUSED);
        let pipe = match pipe::OpenOptions::new().read_write(true).open_receiver(&path) {
            Ok(pipe) => pipe,
            Err(error) => {
                tracing::warn!(%error, "{}: jobs of other runs are not refused", path.display());
                return std::future::pending().await;
            }
        };
        let mut byte = [0];
        while pipe.readable().await.is_err() || pipe.try_read(&mut byte).is_err() {}
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// The hook of an idle runner does not return before the machine has a holder, and then executes the given script.
    #[test]
    fn a_job_that_comes_before_the_claim_is_held_until_the_machine_is_lent() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write_script(&at("hook"), &waiting(&at(LENT), "false")).unwrap();
        let judge = at("judged");
        let mut job = Command::new("/bin/sh").arg(at("hook")).stdin(Stdio::null()).spawn().unwrap();
        write_script(&at("next"), &format!("exec touch {}\n", quoted(judge.to_str().unwrap()))).unwrap();
        assert!(!judge.exists() && job.try_wait().unwrap().is_none(), "nobody has it yet");
        fs::rename(at("next"), at(LENT)).unwrap();
        assert!(job.wait().unwrap().success());
        assert!(judge.exists(), "whose job it is was asked after the claim");
    }

    #[test]
    fn a_job_of_nobodys_machine_is_refused() {
        let nobody = Holder { run: NOBODY.to_owned(), ..Holder::default() };
        for (run, repository) in [("42", "acme/web"), ("", ""), (NOBODY, "acme/web")] {
            assert!(refusal(&nobody, run, repository).is_some_and(|why| why.contains("nobody")));
        }
    }

    fn slot(repository: &str) -> Holder {
        Holder { run: "set-7".to_owned(), repository: repository.to_owned(), ..Holder::default() }
    }

    #[test]
    fn a_slot_takes_the_jobs_of_any_run_of_its_organisation_or_of_its_repository() {
        let refused = |slot: &Holder, repository: &str| refusal(slot, "43", repository).is_some();
        let organization = slot("acme/~");
        assert!(["acme/web", "Acme/API", "acme/~"].iter().all(|name| !refused(&organization, name)));
        assert!(
            ["evil/web", "acm/e", "acme", "acmee/web", ""].iter().all(|name| refused(&organization, name))
        );
        let one = slot("acme/web");
        assert!(!refused(&one, "acme/web") && !refused(&one, "Acme/WEB"));
        assert!(["acme/api", "evil/web", "acme/~", ""].iter().all(|name| refused(&one, name)));
        assert!(!refused(&slot(""), "acme/web"), "a record that names no repository");
        let why = refusal(&organization, "43", "evil/web").unwrap();
        assert!(why.contains("runner scale set 7 of acme/~") && !why.contains("provisioned"), "{why}");
    }

    #[test]
    fn a_job_of_another_run_or_repository_is_refused_and_a_later_attempt_is_not() {
        let holder = |run: &str, repository: &str| Holder {
            run: run.to_owned(),
            repository: repository.to_owned(),
            ..Holder::default()
        };
        let refused = |run: &str, repository: &str, job: (&str, &str)| {
            refusal(&holder(run, repository), job.0, job.1).is_some()
        };
        assert!(!refused("42", "acme/web", ("42", "Acme/Web")), "an attempt has no number of its own here");
        assert!(
            refused("42", "acme/web", ("43", "acme/web")) && refused("42", "acme/web", ("42", "evil/web"))
        );
        assert!(refused("42", "acme/web", ("", "")) && refused("42", "", ("43", "acme/web")));
        assert!(!refused("42", "", ("42", "acme/web")), "a record that names no repository");
        assert!(!refused("nightly", "acme/web", ("7", "acme/web")));
        assert!(refused("nightly", "acme/web", ("7", "evil/web")));
        let why = refusal(&holder("42", "acme/web"), "43", "evil/web").unwrap();
        assert!(
            why.contains("run 42 of acme/web") && why.contains("run 43 of evil/web") && !why.contains('\n')
        );
    }
}
