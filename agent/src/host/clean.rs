//! Cleans up after a claim and proves it: none of the claim's processes and no directory that it could write to is
//! left. A clean-up that cannot be proved is reported as unproved.

pub(crate) mod findings;
pub(crate) mod reach;
pub(crate) mod sweep;
mod walk;

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use runyard_core::model::{ClaimId, CleaningItem};
use rustix::fs::{AtFlags, Gid, Mode, RawDir, Uid};

use super::{Account, Host, disk};
use crate::host::clean::reach::keeps_to_its_own;
use crate::host::clean::sweep::{nothing_is_given, sweep};
use crate::host::clean::walk::Moment;
use crate::host::files::layout::ClaimDirs;
use crate::host::files::output::detail;
use crate::host::files::remove::{DIRECTORY, ENTRIES, empty, is_dir, remove};
use crate::host::files::{kept, output};
use crate::host::jail::network;
use crate::host::package::unpacked::PROGRAMS;
use crate::host::users::processes;
use crate::host::users::user_mounts::UserMounts;
use crate::task::{RunnerProcess, TaskOutcome, Wipe};

/// How often the sweep is repeated while processes reappear.
const SWEEPS: u32 = 3;

impl Host {
    /// Stops the runner, first with SIGINT, and then kills all other processes of the claim.
    pub(super) async fn stop(
        &self,
        claim: &ClaimId,
        runner: Option<RunnerProcess>,
        since: Option<u64>,
    ) -> TaskOutcome {
        match self.all_ended(claim, runner, since).await {
            Ok(()) => {
                let registered = self.looks_registered(claim);
                // A single-use runner may end before the agent saw it listen, and its registration is removed by the
                // sweep.
                let kept = self.layout.registration().join(kept::REGISTERED).symlink_metadata().is_ok();
                if registered && !kept {
                    let told = self.keep_registration(&self.layout.claim(claim));
                    if let Err(error) = told {
                        tracing::warn!(%error, "cannot save the registration");
                    }
                }
                TaskOutcome::Stopped { registered }
            }
            Err(why) => TaskOutcome::Unproved(why),
        }
    }

    async fn all_ended(
        &self,
        claim: &ClaimId,
        runner: Option<RunnerProcess>,
        since: Option<u64>,
    ) -> Result<(), String> {
        self.forget_next();
        // A suspended runner has no job, and must not begin one: it is killed as it is.
        let runs = |runner: &RunnerProcess| !processes::is_suspended(*runner);
        // A runner that never listened has no job; skip SIGINT, because `run.sh` may ignore it while its startup
        // children exit: a shell whose child exits normally on SIGINT continues as if it had not received the signal.
        let listened = |_: &RunnerProcess| output::has_listened(&self.layout.run_log());
        if let Some(runner) = runner.filter(|runner| self.still_runs(*runner)).filter(runs).filter(listened) {
            processes::interrupt(runner);
            if tokio::time::timeout(self.settings.stop, self.ended(runner)).await.is_err() {
                tracing::warn!(%claim, "the runner did not stop in time; killing it");
            }
        }
        self.end(self.claim_scope(claim, runner, since))
            .await
            .map_err(|left| detail("its processes", &left, &[]))?;
        if let Some(runner) = runner {
            self.reap(runner);
        }
        Ok(())
    }

    /// Removes everything that the claim could write to, and proves it.
    ///
    /// # Guarantees
    /// - `Wiped` means that at one moment after the claim no process of it was alive and nothing that its user owns was
    ///   left, except for objects that existed before the first job (see [`sweep`]). A sweep in which a process was
    ///   found alive is repeated, at most [`SWEEPS`] times.
    /// - Processes are ended before files are removed, and the search for files is repeated after the last process
    ///   ended.
    /// - It can be repeated: a missing file is no error.
    ///
    /// # Assumes
    /// - Jobs run as the job user only, in the claim's control group where there is one, and the agent runs as root
    ///   where there is a job user.
    ///
    /// # Errors
    /// `Unproved` with the reason: something is left, cannot be inspected, or appeared again each time. The machine
    /// must not be used for another claim.
    pub(super) async fn wipe(&self, claim: &ClaimId, since: Option<u64>, wipe: Wipe) -> TaskOutcome {
        let wiped = async {
            match wipe {
                Wipe::Whole | Wipe::BeforeRemoval => self.findings.begin(),
                Wipe::AfterRemoval => {}
            }
            let ended = self.all_ended(claim, None, since).await;
            self.findings.check(CleaningItem::Processes, ended)?;
            match wipe {
                Wipe::Whole | Wipe::BeforeRemoval => self.after(claim, since).await?,
                Wipe::AfterRemoval => {}
            }
            let keep = match wipe {
                Wipe::BeforeRemoval => true,
                Wipe::Whole | Wipe::AfterRemoval => false,
            };
            self.cleared(claim, since, keep).await
        };
        wiped.await.map_or_else(TaskOutcome::Unproved, |()| TaskOutcome::Wiped)
    }

    /// Cleans up between two jobs: removes everything that the last job left, and gives a registration that outlives
    /// jobs a fresh directory.
    pub(super) async fn renew(
        &self,
        claim: &ClaimId,
        runner: Option<RunnerProcess>,
        since: Option<u64>,
        registered: bool,
    ) -> TaskOutcome {
        let renewed = async {
            self.all_ended(claim, runner, since).await?;
            self.cleared(claim, since, registered).await?;
            self.begin_layers_anew(claim).await?;
            if !registered {
                return Ok(());
            }
            let dirs = self.layout.claim(claim);
            self.with_registration(&dirs, dirs.runner())
                .await
                .map_err(|why| detail("no fresh directory for its runner", &why.to_string(), &[]))
        };
        renewed.await.map_or_else(TaskOutcome::Unproved, |()| TaskOutcome::Renewed)
    }

    /// Removes the files that jobs left, until no process of them is alive either.
    async fn cleared(&self, claim: &ClaimId, since: Option<u64>, keep: bool) -> Result<(), String> {
        let left = |why: &str| detail("what it left", why, &[]);
        for _ in 0..SWEEPS {
            self.in_turn(self.sweeping(keep)).await.map_err(|error| left(&error.to_string()))?;
            let processes = self.end(self.claim_scope(claim, None, since)).await;
            let processes = self.findings.check(CleaningItem::Processes, processes);
            // A process that was alive may have left files since the sweep.
            let quiet = !processes.map_err(|left| detail("its processes", &left, &[]))?;
            if quiet && self.kernel_forgets().await.map_err(|error| left(&error.to_string()))? {
                return remove(&self.layout.begun()).map_err(|error| left(&error.to_string()));
            }
        }
        let again = Err(left("processes of it came to life again and again"));
        self.findings.check(CleaningItem::Processes, again)
    }

    /// Removes kernel state that no process owns: the links of jails, their entries in the machine's connection
    /// tracking, and the counters of the control group. Returns whether no process was found in the group meanwhile.
    async fn kernel_forgets(&self) -> io::Result<bool> {
        if self.settings.isolation.is_some() {
            let cut = network::cut().await.map_err(io::Error::other);
            self.findings.check(CleaningItem::Network, cut)?;
        }
        let Some(group) = &self.settings.group else { return Ok(true) };
        self.findings.check(CleaningItem::ControlGroup, group.renew())
    }

    fn sweeping(&self, keep: bool) -> impl FnOnce() -> io::Result<()> + Send + 'static {
        let (account, ids) = (self.settings.account.clone(), self.ids.clone());
        let (layout, places) = (self.layout.clone(), self.settings.places.clone());
        let sees_disks_alone = self.sees_disks_alone();
        let findings = self.findings.clone();
        move || {
            let emptied = || {
                if !keep {
                    remove(&layout.registration())?;
                }
                [layout.claims(), layout.hook(), layout.logs()].iter().try_for_each(|dir| empty(dir))
            };
            findings.check(CleaningItem::Directories, emptied())?;
            match (account, ids) {
                (Some(account), Some(ids)) => {
                    if !sees_disks_alone {
                        findings.step(CleaningItem::Files, keeps_to_its_own(&account, &places))?;
                    }
                    sweep(&account, &ids, &places, begun(&layout.begun())?, (&layout.queues(), &findings))
                }
                (None, _) | (_, None) => Ok(()),
            }
        }
    }

    /// Returns whether jobs see only those file systems of the machine that are on its disks, and can change none of
    /// them. This holds where jobs are isolated; other mounts do not matter then.
    fn sees_disks_alone(&self) -> bool {
        self.settings.isolation.is_some()
    }

    /// Checks that everything a job leaves on this machine can be found.
    ///
    /// # Errors
    /// The reason why it cannot be found.
    pub(super) async fn can_be_cleaned(&self) -> Result<(), String> {
        let Some(account) = self.settings.account.clone() else { return Ok(()) };
        if self.sees_disks_alone() {
            return Ok(());
        }
        let places = self.settings.places.clone();
        let looking = tokio::task::spawn_blocking(move || keeps_to_its_own(&account, &places));
        looking.await.map_err(io::Error::other).flatten().map_err(|error| error.to_string())
    }

    /// Checks that a clean-up would only remove files that a job left.
    ///
    /// # Errors
    /// The files that it would remove wrongly.
    pub(super) async fn nothing_is_the_jobs(&self) -> Result<(), String> {
        let (Some(account), Some(ids)) = (self.settings.account.clone(), self.ids.clone()) else {
            return Ok(());
        };
        let places = self.settings.places.clone();
        let looking = tokio::task::spawn_blocking(move || nothing_is_given(&account, &ids, &places));
        let looked = looking.await.map_err(io::Error::other).flatten();
        looked.map_err(|error| detail("this machine cannot be lent", &error.to_string(), &[]))
    }

    /// Creates the directories of a claim anew. No job can access them before they are handed over, so the agent need
    /// not guard against symbolic links until then.
    pub(super) async fn make_fresh(&self, dirs: &ClaimDirs) -> io::Result<()> {
        let (dirs, mark, mounts) = (dirs.clone(), self.layout.begun(), self.mounts.clone());
        self.in_turn(move || {
            mark_begun(&mark, mounts.as_ref())?;
            remove(&dirs.root)?;
            dirs.make()
        })
        .await
    }

    /// Creates a runner package that no job has touched, with the registration as it was first made.
    pub(super) async fn with_registration(
        &self,
        dirs: &ClaimDirs,
        package: std::path::PathBuf,
    ) -> io::Result<()> {
        // Removes the files that the job left there; the registration is stored elsewhere.
        self.make_fresh(dirs).await?;
        self.furnished(package.clone(), self.share()).await?;
        kept::copy(&self.layout.registration(), nix::unistd::geteuid().as_raw(), &package)?;
        self.hand_over(dirs).await
    }

    /// Gives the directories of a claim to the user that jobs run as. The programs of the runner remain root's.
    pub(super) async fn hand_over(&self, dirs: &ClaimDirs) -> io::Result<()> {
        let Some(account) = self.settings.account.clone() else { return Ok(()) };
        let dirs = dirs.clone();
        self.in_turn(move || give(&dirs, &account)).await
    }
}

/// Creates the mark of the first job. Files created after this mark may belong to a job. The mark also lists the FUSE
/// file systems that were mounted before.
pub(super) fn mark_begun(mark: &Path, mounts: Option<&UserMounts>) -> io::Result<()> {
    if begun(mark)?.is_none() {
        let before = mounts.map(UserMounts::before).unwrap_or_default();
        disk::create_anew(mark)?.write_all(before.as_bytes()).map_err(|e| disk::at(mark, &e))?;
    }
    Ok(())
}

/// Returns when the first job could begin, by the clock of the file system, or `None` if no job could begin.
fn begun(mark: &Path) -> io::Result<Option<Moment>> {
    match mark.symlink_metadata() {
        Ok(metadata) => {
            let nanoseconds = u32::try_from(metadata.ctime_nsec()).map_err(io::Error::other)?;
            Ok(Some((metadata.ctime(), nanoseconds)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(disk::at(mark, &error)),
    }
}

/// Gives a claim's tree to the user that jobs run as, except for the programs of its runner, which no job can replace.
/// The root of the tree is changed last: until then nobody can enter the tree and replace an entry that was already
/// given away by a link.
fn give(dirs: &ClaimDirs, account: &Account) -> io::Result<()> {
    let packages = [dirs.runner(), dirs.removal()];
    let programs = packages.iter().flat_map(|package| PROGRAMS.map(|name| package.join(name)));
    let programs = programs.filter_map(|dir| disk::open_dir(&dir).ok()?.metadata().ok());
    let kept: Vec<Place> = programs.map(|dir| (dir.dev(), dir.ino())).collect();
    let tree = &dirs.root;
    let given = disk::open_dir(tree).and_then(|dir| {
        give_below(&dir.into(), &kept, Uid::from_raw(account.uid), Gid::from_raw(account.gid))?;
        lchown(tree, Some(account.uid), Some(account.gid))
    });
    given.map_err(|e| disk::at(tree, &e))
}

/// Device and inode number.
type Place = (u64, u64);

/// Changes the owner of each entry relative to its directory, so that no path is resolved. Skips the directories of
/// `kept` and everything below them.
fn give_below(dir: &OwnedFd, kept: &[Place], uid: Uid, gid: Gid) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(ENTRIES);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if is_dir(dir, name, entry.file_type())? {
            let below = rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())?;
            let stat = rustix::fs::fstat(&below)?;
            if kept.contains(&(stat.st_dev, stat.st_ino)) {
                continue;
            }
            give_below(&below, kept, uid, gid)?;
        }
        rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_claim_has_all_of_its_directories_but_the_programs_of_its_runner() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("\n****** host/clean.rs: NOT RUN: only root gives files away ******\n");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let dirs = ClaimDirs { root: dir.path().join("claim") };
        dirs.make().unwrap();
        let files = ["runner/bin/Runner.Listener", "runner/externals/node24/bin/node", "removal/bin/x"];
        let given = ["runner/run.sh", "runner/_work/bin/tool", "home/bin/tool", "removal/config.sh"];
        for file in files.iter().chain(&given) {
            let file = dirs.root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        give(&dirs, &Account { name: "job".into(), uid: 54321, gid: 54322 }).unwrap();
        let owner = |path: &Path| {
            let of = fs::symlink_metadata(path).unwrap();
            (of.uid(), of.gid())
        };
        for file in files.map(|file| dirs.root.join(file)) {
            assert_eq!((owner(&file), owner(file.parent().unwrap())), ((0, 0), (0, 0)), "{}", file.display());
        }
        for file in given.map(|file| dirs.root.join(file)) {
            let job = (54321, 54322);
            assert_eq!((owner(&file), owner(file.parent().unwrap())), (job, job), "{}", file.display());
        }
        assert_eq!(owner(&dirs.root), (54321, 54322));
    }
}
