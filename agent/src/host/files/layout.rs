//! The agent's directories. Everything a claim may write to is below one directory, which is removed with the claim.
//! Every file that the agent opens for writing is elsewhere, because a name inside the claim's directory may be a link
//! that a job created to any target.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use runyard_core::model::ClaimId;
use rustix::fs::Access;
use sha2::{Digest, Sha256};

use super::remove::remove;
use crate::host::Account;
use crate::system::disk;

/// The directories of a claim that hold runners.
pub(crate) const RUNNERS: [&str; 2] = ["runner", "removal"];

/// The directories of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    state: PathBuf,
    work: PathBuf,
}

/// The directories of a claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimDirs {
    /// The parent of all the others.
    pub(crate) root: PathBuf,
}

impl Layout {
    pub(crate) fn new(state: &Path, work: &Path) -> Self {
        Self { state: state.to_owned(), work: work.to_owned() }
    }

    /// Creates the directories. GitHub's runner exits if its user cannot list each directory above its own
    /// (actions/runner, `IOUtil.cs`, `ValidateExecutePermission`). All other entries of these directories are closed to
    /// that user, and a jail does not show them.
    pub(crate) fn make(&self) -> io::Result<()> {
        disk::private_dir(&self.state)?;
        disk::private_dir(&self.scaffold())?;
        for passage in [self.work.clone(), self.claims()] {
            fs::create_dir_all(&passage).map_err(|e| disk::at(&passage, &e))?;
            fs::set_permissions(&passage, Permissions::from_mode(0o755))
                .map_err(|e| disk::at(&passage, &e))?;
        }
        disk::private_dir(&self.logs())?;
        fs::create_dir_all(self.hook()).map_err(|e| disk::at(&self.hook(), &e))?;
        fs::set_permissions(self.hook(), Permissions::from_mode(0o711))
            .map_err(|e| disk::at(&self.hook(), &e))?;
        // Remove the preparations of an earlier agent; they may be incomplete.
        remove(&self.next())?;
        disk::private_dir(&self.package())
    }

    /// Returns the first directory above those of claims that this user, or the agent's own, cannot list, if there is
    /// one.
    pub(crate) fn unlisted(&self, account: Option<&Account>) -> Option<PathBuf> {
        let whole = self.work.canonicalize().unwrap_or_else(|_| self.work.clone());
        let mut above: Vec<&Path> = whole.ancestors().skip(1).collect();
        above.reverse();
        above.into_iter().find(|dir| !lists(dir, account)).map(Path::to_owned)
    }

    pub(crate) fn claims(&self) -> PathBuf {
        self.work.join("claims")
    }

    pub(crate) fn package(&self) -> PathBuf {
        self.work.join("package")
    }

    /// Returns the directories of the next claim while they are prepared. They are moved to their final path in one
    /// step.
    pub(crate) fn next(&self) -> PathBuf {
        self.work.join("next")
    }

    /// Returns the directories of any claim as its jobs see them: a path that a job stores stays valid.
    pub(crate) fn inside(&self) -> ClaimDirs {
        ClaimDirs { root: self.claims().join("current") }
    }

    /// Returns the directory in which the file system view of jobs is built: in memory, and each time in its own mount
    /// namespace.
    pub(crate) fn scaffold(&self) -> PathBuf {
        self.state.join("jail")
    }

    /// Returns the directory of files that survive claims.
    pub(crate) fn keep(&self) -> PathBuf {
        self.work.join("keep")
    }

    /// Returns the directories that are hidden from jobs.
    pub(crate) fn hidden(&self) -> Vec<PathBuf> {
        vec![self.work.clone(), self.state.clone()]
    }

    /// Returns the directory of the hook that the runner calls before each job.
    pub(crate) fn hook(&self) -> PathBuf {
        self.work.join("hook")
    }

    /// Returns the path of the mark that is created before the first job begins and removed when nothing of any job is
    /// left: everything older does not belong to a job. It is on disk so that it survives a restart of the machine.
    pub(crate) fn begun(&self) -> PathBuf {
        self.work.join("begun")
    }

    /// Returns the directory at which message queues are mounted for inspection.
    pub(crate) fn queues(&self) -> PathBuf {
        self.state.join("queues")
    }

    /// Returns the directory of the saved registration files, out of the reach of jobs.
    pub(crate) fn registration(&self) -> PathBuf {
        self.state.join("registration")
    }

    pub(crate) fn pre_runner_log(&self) -> PathBuf {
        self.state.join("pre-runner.log")
    }

    /// Returns the directory for the output of a claim's scripts, out of the reach of jobs. It is not beside the state,
    /// which is in memory on a machine of its own: a job holds its log's descriptor, and must not be able to use up the
    /// space for the state.
    pub(crate) fn logs(&self) -> PathBuf {
        self.work.join("logs")
    }

    /// Returns the log of `run.sh`.
    pub(crate) fn run_log(&self) -> PathBuf {
        self.logs().join("run.log")
    }

    /// Returns the log of `config.sh`.
    pub(crate) fn config_log(&self) -> PathBuf {
        self.logs().join("config.log")
    }

    pub(crate) fn post_run_log(&self) -> PathBuf {
        self.logs().join("post-run.log")
    }

    pub(crate) fn claim(&self, claim: &ClaimId) -> ClaimDirs {
        ClaimDirs { root: self.claims().join(directory_name(claim)) }
    }
}

/// Returns whether a user can list a directory: by the mode bits, or by `access(2)` for the agent's own user.
fn lists(dir: &Path, account: Option<&Account>) -> bool {
    let Some(account) = account else {
        return rustix::fs::access(dir, Access::READ_OK | Access::EXEC_OK).is_ok();
    };
    let bits = |found: fs::Metadata| {
        if found.uid() == account.uid {
            found.mode() >> 6
        } else if found.gid() == account.gid {
            found.mode() >> 3
        } else {
            found.mode()
        }
    };
    dir.metadata().is_ok_and(|found| bits(found) & 0o5 == 0o5)
}

/// Returns the directory name of a claim. A claim id may be any printable word; a directory name may not.
pub(crate) fn directory_name(claim: &ClaimId) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let id = claim.as_str();
    if id.bytes().all(plain) && !id.starts_with('.') {
        return id.to_owned();
    }
    Sha256::digest(id).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ClaimDirs {
    /// Creates the directories, except those of packages.
    pub(crate) fn make(&self) -> io::Result<()> {
        [&self.root, &self.home(), &self.tmp(), &self.var_tmp(), &self.engine()]
            .into_iter()
            .try_for_each(|dir| disk::private_dir(dir))
    }

    /// Returns the directory of the unpacked runner.
    pub(crate) fn runner(&self) -> PathBuf {
        self.root.join(RUNNERS[0])
    }

    /// Returns the directory of a second runner, which no job has touched, for deregistration.
    pub(crate) fn removal(&self) -> PathBuf {
        self.root.join(RUNNERS[1])
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Returns the directory of the container engine.
    pub(crate) fn engine(&self) -> PathBuf {
        self.root.join("engine")
    }

    /// Returns the directory that jobs see as `/var/tmp`.
    pub(crate) fn var_tmp(&self) -> PathBuf {
        self.root.join("var-tmp")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_log_stands_where_a_job_may_write() {
        let layout = Layout::new(Path::new("/s"), Path::new("/w"));
        let logs = [layout.run_log(), layout.config_log(), layout.post_run_log(), layout.pre_runner_log()];
        assert!(logs.iter().all(|log| !log.starts_with(layout.claims())), "{logs:?}");
    }

    #[test]
    fn a_directory_above_the_claims_that_jobs_cannot_list_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().canonicalize().unwrap();
        let (above, work) = (whole.join("above"), whole.join("above/work"));
        fs::create_dir_all(&work).unwrap();
        let layout = Layout::new(&whole.join("state"), &work);
        layout.make().unwrap();
        let (uid, gid) = (above.metadata().unwrap().uid() + 1, above.metadata().unwrap().gid() + 1);
        let other = Account { name: "j".to_owned(), uid, gid };
        let owner = Account { uid: uid - 1, ..other.clone() };
        let of_group = Account { gid: gid - 1, ..other.clone() };
        fs::set_permissions(&whole, Permissions::from_mode(0o755)).unwrap();
        let cases = [
            (0o755, [true, true, true]),
            (0o711, [true, false, false]),
            (0o751, [true, true, false]),
            (0o705, [true, false, true]),
            (0o744, [true, false, false]),
        ];
        for (mode, lists) in cases {
            fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
            for (account, lists) in [&owner, &of_group, &other].into_iter().zip(lists) {
                let wanted = (!lists).then(|| above.clone());
                assert_eq!(layout.unlisted(Some(account)), wanted, "{mode:o} {account:?}");
            }
        }
        assert_eq!(layout.unlisted(None), None);
    }

    #[test]
    fn jobs_can_list_what_stands_above_a_runner_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (state, work) = (dir.path().join("state"), dir.path().join("work"));
        let layout = Layout::new(&state, &work);
        layout.make().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let claims = layout.claims();
        for above in claims.ancestors().take_while(|above| above.starts_with(&work)) {
            assert_eq!(mode(above), 0o755, "{}", above.display());
        }
        for beside in fs::read_dir(&work).unwrap().map(|entry| entry.unwrap().path()) {
            assert!(beside == claims || mode(&beside) & 0o004 == 0, "{}", beside.display());
        }
        assert_eq!(mode(&state), 0o700);
    }

    #[test]
    fn no_claim_id_leads_out_of_the_directory_of_claims() {
        let layout = Layout::new(Path::new("/s"), Path::new("/w"));
        let root = |id: &str| layout.claim(&ClaimId::parse(id).unwrap()).root;
        assert_eq!(root("i-1.4"), Path::new("/w/claims/i-1.4"));
        for odd in ["..", "../../etc", "/etc", ".", "a/b", "a:b"] {
            let root = root(odd);
            assert_eq!(root.parent().unwrap(), Path::new("/w/claims"), "{odd}");
            assert_eq!(root.file_name().unwrap().len(), 64, "{odd}");
        }
    }
}
