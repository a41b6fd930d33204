//! The control group of jobs. It contains every process that a claim's runner started, with all descendants. Only root
//! can move a process out of it; the kernel kills all of them on one command and reports when none is left.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::system::disk;

/// The name of the group, below the agent's own.
const NAME: &str = "runyard-job";

/// The control group of jobs.
#[derive(Clone, Debug)]
pub struct JobGroup {
    /// The agent's own group.
    own: PathBuf,
    /// The group of jobs.
    jobs: PathBuf,
    /// Held while a thread is in the group for a moment, or kills its processes.
    turn: Arc<Mutex<()>>,
}

impl JobGroup {
    /// Creates the group below the one that this process is in.
    ///
    /// # Errors
    /// There is no control group of version 2, it cannot be changed, or the kernel (before 5.14) cannot kill all
    /// processes in a group.
    pub fn find() -> io::Result<Self> {
        let read = |path: &str| fs::read_to_string(path).map_err(|e| disk::at(Path::new(path), &e));
        let own =
            own_group(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?).ok_or_else(|| {
                io::Error::new(ErrorKind::NotFound, "no control groups of version 2 are mounted")
            })?;
        Self::below(own)
    }

    /// Creates the group below this one.
    fn below(own: PathBuf) -> io::Result<Self> {
        let jobs = own.join(NAME);
        make(&jobs)?;
        for file in ["cgroup.kill", "cgroup.events"] {
            let file = jobs.join(file);
            file.symlink_metadata().map_err(|e| disk::at(&file, &e))?;
        }
        Ok(Self { own, jobs, turn: Arc::default() })
    }

    /// Starts a process in the group, where its children will be, too: this process enters the group, starts the other
    /// one, and leaves again.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        make(&self.jobs)?;
        enter(&self.jobs)?;
        let started = start();
        // In the group, the agent would be killed with the job.
        enter(&self.own)?;
        started
    }

    /// Kills all processes in the group.
    pub(crate) fn end(&self) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let switch = self.jobs.join("cgroup.kill");
        match fs::write(&switch, "1") {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(disk::at(&switch, &error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Replaces the group by a new one, because every jail shows its counters (of time, memory, pressure). Returns
    /// whether it was empty.
    pub(crate) fn renew(&self) -> io::Result<bool> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match remove(&self.jobs) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // A process was started in the group.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => return Ok(false),
            Err(error) => return Err(disk::at(&self.jobs, &error)),
        }
        make(&self.jobs).map(|()| true)
    }

    /// Returns whether the kernel reports that the group, and those below it, are empty.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        let events = self.jobs.join("cgroup.events");
        match fs::read_to_string(&events) {
            Ok(text) => Ok(text.lines().any(|line| line == "populated 0")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(disk::at(&events, &error)),
        }
    }
}

/// Removes a group with those below it. Its files belong to the kernel, and are removed with it.
fn remove(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(disk::at(group, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Moves this process to a group, with all its threads.
fn enter(group: &Path) -> io::Result<()> {
    let members = group.join("cgroup.procs");
    fs::write(&members, "0").map_err(|e| disk::at(&members, &e))
}

/// Returns the directory of the group in `/proc/self/cgroup`, below the mount point in `/proc/self/mountinfo`
/// (`cgroups(7)`, `proc_pid_mountinfo(5)`).
fn own_group(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    mounts.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = fields.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        Some(Path::new(place).join(group.strip_prefix(root).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "28 1 0:25 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_own_group_is_found_where_such_are_mounted() {
        let group = |groups, mounts| own_group(groups, mounts).map(|path| path.display().to_string());
        let service = "0::/system.slice/runyard-agent.service\n";
        let found = "/sys/fs/cgroup/system.slice/runyard-agent.service";
        assert_eq!(group(service, MOUNTS).as_deref(), Some(found));
        let hybrid = "20 10 0:17 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      30 10 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(group("1:cpu:/a\n0::/\n", hybrid).as_deref(), Some("/sys/fs/cgroup/unified/"));
        let part = "28 1 0:25 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(group("0::/box/a\n", part).as_deref(), Some("/sys/fs/cgroup/a"));
        assert_eq!(group("0::/elsewhere\n", part), None);
        assert_eq!(group("1:cpu:/a\n", MOUNTS), None);
        assert_eq!(group(service, "20 10 0:17 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"), None);
    }

    /// Creates a directory that looks like the agent's group.
    fn likeness() -> (tempfile::TempDir, JobGroup) {
        let dir = tempfile::tempdir().unwrap();
        let jobs = dir.path().join(NAME);
        fs::create_dir(&jobs).unwrap();
        fs::write(jobs.join("cgroup.kill"), "").unwrap();
        fs::write(jobs.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let group = JobGroup::below(dir.path().to_owned()).unwrap();
        (dir, group)
    }

    #[test]
    fn the_starter_of_a_job_leaves_its_group_afterwards_even_if_nothing_was_started() {
        for starts in [true, false] {
            let (dir, group) = likeness();
            let inside = dir.path().join(NAME).join("cgroup.procs");
            let outside = dir.path().join("cgroup.procs");
            let started = group.start(|| {
                assert!(inside.exists() && !outside.exists());
                if starts { Ok(()) } else { Err(io::Error::other("no such program")) }
            });
            assert_eq!((started.is_ok(), outside.exists()), (starts, true));
        }
    }

    #[test]
    fn only_the_kernels_word_or_a_group_that_is_gone_proves_that_nothing_is_left() {
        let (dir, group) = likeness();
        assert!(!group.is_empty().unwrap());
        group.end().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(NAME).join("cgroup.kill")).unwrap(), "1");
        fs::write(dir.path().join(NAME).join("cgroup.events"), "populated 0\n").unwrap();
        assert!(group.is_empty().unwrap());
        fs::write(dir.path().join(NAME).join("cgroup.events"), "").unwrap();
        assert!(!group.is_empty().unwrap());
        fs::remove_dir_all(dir.path().join(NAME)).unwrap();
        assert!(group.is_empty().unwrap() && group.end().is_ok());
        assert!(group.renew().unwrap() && dir.path().join(NAME).is_dir(), "one that is gone is made");
    }

    #[test]
    fn where_no_group_can_be_had_the_reason_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(JobGroup::below(dir.path().to_owned()).unwrap_err().to_string().contains("cgroup.kill"));
        assert!(JobGroup::below(dir.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
