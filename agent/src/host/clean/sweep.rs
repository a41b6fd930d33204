//! Sweeps the machine for everything that the job user left outside the claim's directories. It removes everything that
//! this user owns and that did not exist before the first job: files, queues, shared memory, keys, timers, containers.
//! An object that cannot be inspected or removed, or that belongs to another user and may have been changed, is an
//! error, and the machine is not used again.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runyard_core::model::CleaningItem;
use rustix::fs::{AtFlags, Gid, Mode, StatxFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::findings::Findings;
use super::walk::{Found, Moment, Walk};
use crate::host::Account;
use crate::host::files::filesystems::{FilesystemKind, kinds, mounts};
use crate::host::files::remove::{empty, remove};
use crate::host::users::ids::Ids;
use crate::host::users::keys::no_keys;
use crate::system::disk;

/// Files that root keeps for a user; `{}` is the user's name.
const IN_ITS_NAME: [&str; 5] = [
    "var/spool/cron/crontabs/{}",
    "var/spool/cron/{}",
    "var/lib/systemd/linger/{}",
    "var/mail/{}",
    "var/spool/mail/{}",
];
/// The template of every new home directory.
const SKELETON: &str = "/etc/skel";
/// The maximum size of the names of a directory's attributes, in bytes (`limits.h`: XATTR_LIST_MAX).
const ATTRIBUTES: usize = 64 * 1024;
/// The maximum number of leftovers that an error names.
const NAMED: usize = 5;

/// Where a job may have left something, and the programs that search for it.
#[derive(Clone, Debug)]
pub struct SweepPaths {
    /// Trees to search, including every file system of the machine's own mounted in them.
    pub trees: Vec<PathBuf>,
    /// Socket of a container engine, if one runs on the machine.
    pub docker: PathBuf,
    /// The agent's program, for operations that only the job user can perform.
    pub program: PathBuf,
    /// Mount points of foreign file systems that jobs may write to all the same.
    pub spare: Vec<PathBuf>,
    /// Directory that survives claims, if the machine keeps anything.
    pub kept: Option<PathBuf>,
}

impl Default for SweepPaths {
    fn default() -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| "/usr/local/bin/runyard-agent".into());
        Self {
            trees: vec!["/".into()],
            docker: "/var/run/docker.sock".into(),
            program,
            spare: Vec::new(),
            kept: None,
        }
    }
}

/// Removes everything that the job user owns, and proves it. `begun` is the time at which its first job could begin,
/// `None` if there was no job; `queues` is a directory at which the message queues can be mounted.
///
/// # Guarantees
/// - On success nothing that the user owns is left on the machine's own file systems, in its homes (which are reset),
///   as System V object, message queue or key, and no container is left.
/// - It removes only objects that the user owns and that did not exist before `begun`.
///
/// # Assumes
/// - No process of the user is alive; the caller kills them before and checks again afterwards.
/// - The user's jobs wrote to no file system that is not the machine's own; the caller checks this.
/// - It runs as root.
///
/// # Errors
/// Something is left or cannot be inspected; something older than the first job belongs to the user; or a file of
/// another user that the job could write to was changed. The machine must not be used again.
pub(crate) fn sweep(
    account: &Account,
    ids: &Ids,
    places: &SweepPaths,
    begun: Option<Moment>,
    (queues, findings): (&Path, &Findings),
) -> io::Result<()> {
    let removed = IN_ITS_NAME
        .iter()
        .try_for_each(|pattern| remove(&Path::new("/").join(pattern.replace("{}", &account.name))));
    findings.step(CleaningItem::Files, removed)?;
    findings.step(CleaningItem::Ipc, remove_ipc(ids))?;
    findings.check(CleaningItem::Containers, remove_containers(&places.docker))?;
    let queues = findings.step(CleaningItem::Ipc, Queues::mount(queues))?;
    let whose = &account.name;
    let found = findings.step(CleaningItem::Files, removed_below(account, ids, places, begun, queues))?;
    let older = format!("were {whose}'s before its first job, and are not a job's to be removed");
    findings.check(CleaningItem::Files, told(&found.older, &older))?;
    let changed = format!("are not {whose}'s, but it may write to them and they were changed");
    findings.check(CleaningItem::OthersFiles, told(&found.changed, &changed))?;
    let gone = ipc(ids).and_then(|left| match left.len() {
        0 => Ok(()),
        left => Err(io::Error::other(format!("{left} System V objects of {whose} do not go"))),
    });
    findings.check(CleaningItem::Ipc, gone)?;
    findings.check(CleaningItem::Keyrings, no_keys(&places.program, account, ids))
}

/// Resets the user's homes, removes every file that the user owns, and returns what it found. The message queues are
/// files of a directory of their own.
fn removed_below(
    account: &Account,
    ids: &Ids,
    places: &SweepPaths,
    begun: Option<Moment>,
    queues: Option<Queues>,
) -> io::Result<Found> {
    let kinds = kinds(&mounts()?);
    let homes = homes(account.uid);
    for home in &homes {
        renew_home(home, account, ids, |mount| kinds.get(&mount) == Some(&FilesystemKind::Own))?;
    }
    let kept = places.kept.as_deref();
    let walk = Walk { ids, begun, kinds: &kinds, homes: &homes, kept };
    let trees: Vec<_> = places.trees.iter().chain(queues.iter().map(|q| &q.place)).cloned().collect();
    let found = walk.over(&trees)?;
    found.left.iter().try_for_each(|path| remove(path))?;
    drop(queues);
    Ok(found)
}

/// Checks that the user owns nothing before any job ran, because a clean-up would remove it. Homes in their initial
/// state do not count.
///
/// # Errors
/// The user owns something, or this cannot be determined.
pub(crate) fn nothing_is_given(account: &Account, ids: &Ids, places: &SweepPaths) -> io::Result<()> {
    let (kinds, homes) = (kinds(&mounts()?), homes(account.uid));
    let kept = places.kept.as_deref();
    let walk = Walk { ids, begun: None, kinds: &kinds, homes: &homes, kept };
    let mut given = walk.over(&places.trees)?.older;
    given.retain(|path| !is_usual(path, &homes, account));
    given.sort();
    given.dedup_by(|path, above| path.starts_with(above));
    told(
        &given,
        &format!(
            "are {0}'s before any job ran, and what is {0}'s is removed after each run: give them to root (chown -R \
             root: PATH), or name another job_user",
            account.name
        ),
    )
}

/// Returns whether a path belongs to every account of this kind.
fn is_usual(path: &Path, homes: &BTreeSet<PathBuf>, account: &Account) -> bool {
    let in_its_name = |pattern: &str| path == Path::new("/").join(pattern.replace("{}", &account.name));
    IN_ITS_NAME.iter().any(|pattern| in_its_name(pattern))
        || homes.iter().any(|home| {
            path.strip_prefix(home)
                .is_ok_and(|rest| Path::new(SKELETON).join(rest).symlink_metadata().is_ok())
        })
}

/// Returns an error that names the first few paths, if there are any.
fn told(paths: &[PathBuf], what: &str) -> io::Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Err(io::Error::other(format!("{}{more} {what}", names.join(", "))))
}

/// Returns the directories that the user owns by right: they are emptied but not removed.
fn homes(uid: u32) -> BTreeSet<PathBuf> {
    let home =
        nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten().map(|user| user.dir);
    home.into_iter().chain([PathBuf::from(format!("/run/user/{uid}"))]).collect()
}

/// Empties a home directory and resets it: a job may also have changed its attributes, access control lists and mode.
fn renew_home(home: &Path, account: &Account, ids: &Ids, is_own: impl FnOnce(u64) -> bool) -> io::Result<()> {
    if !home.symlink_metadata().is_ok_and(|found| found.is_dir() && ids.owns(found.uid())) {
        return Ok(());
    }
    let renew = || {
        let dir = disk::open_dir(home)?;
        let found = rustix::fs::statx(&dir, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        if !is_own(found.stx_mnt_id) {
            return Ok(());
        }
        empty(home)?;
        let mut names = Vec::with_capacity(ATTRIBUTES);
        match rustix::fs::flistxattr(&dir, rustix::buffer::spare_capacity(&mut names)) {
            Ok(_) | Err(Errno::NOTSUP) => {}
            Err(error) => return Err(error.into()),
        }
        let given = |name: &&[u8]| !name.is_empty() && !name.starts_with(b"security.");
        for name in names.split(|b| *b == 0).filter(given) {
            match rustix::fs::fremovexattr(&dir, name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
        rustix::fs::fchown(&dir, Some(uid), Some(gid))?;
        Ok(rustix::fs::fchmod(&dir, Mode::RWXU)?)
    };
    renew().map_err(|e: io::Error| disk::at(home, &e))
}

/// Message queues, mounted so that they can be inspected: the kernel keeps them whether or not they are mounted
/// anywhere.
struct Queues {
    place: PathBuf,
}

impl Queues {
    /// Mounts the queues. Returns `None` if the kernel has no queues, or shows them at another mount point and permits
    /// no new mount.
    fn mount(place: &Path) -> io::Result<Option<Self>> {
        disk::private_dir(place)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        match rustix::mount::mount("mqueue", place, "mqueue", flags, None) {
            Ok(()) => Ok(Some(Self { place: place.to_owned() })),
            Err(Errno::NODEV) => Ok(None),
            Err(Errno::PERM) if mounts()?.iter().any(|mount| mount.name == "mqueue") => Ok(None),
            Err(error) => {
                Err(io::Error::other(format!("message queues are mounted nowhere and cannot be: {error}")))
            }
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if let Err(error) = rustix::mount::unmount(&self.place, UnmountFlags::DETACH) {
            tracing::warn!(%error, "message queues stay mounted at {}", self.place.display());
        }
    }
}

/// Returns the System V objects of an account: the option of `ipcrm` that removes the object, and its id.
fn ipc(ids: &Ids) -> io::Result<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    for (kind, option) in [("shm", "-m"), ("sem", "-s"), ("msg", "-q")] {
        let path = format!("/proc/sysvipc/{kind}");
        let table = match fs::read_to_string(&path) {
            Ok(table) => table,
            // A kernel without System V objects.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(disk::at(Path::new(&path), &error)),
        };
        found.extend(ipc_of(&table, ids).into_iter().map(|id| (option, id)));
    }
    Ok(found)
}

/// Returns the ids of an account's objects from a table of `/proc/sysvipc`, where the first line names the columns.
fn ipc_of(table: &str, ids: &Ids) -> Vec<String> {
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let owners: Vec<usize> =
        (0..columns.len()).filter(|index| matches!(columns[*index], "uid" | "cuid")).collect();
    let of_user = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let owner = |index: &usize| fields.get(*index)?.parse().ok();
        let is = owners.iter().filter_map(owner).any(|uid: u32| ids.owns(uid));
        is.then(|| fields.get(1).map(|id| (*id).to_owned())).flatten()
    };
    lines.filter_map(of_user).collect()
}

fn remove_ipc(ids: &Ids) -> io::Result<()> {
    for (option, id) in ipc(ids)? {
        call("ipcrm", &[option, &id])?;
    }
    Ok(())
}

/// Removes all containers, images, volumes and networks: if a container engine runs, a job with access to it may have
/// left anything there.
fn remove_containers(socket: &Path) -> io::Result<()> {
    if UnixStream::connect(socket).is_err() {
        return Ok(());
    }
    let host = format!("unix://{}", socket.display());
    let docker = |arguments: &[&str]| call("docker", &[&["--host", &host], arguments].concat());
    let containers = docker(&["ps", "--all", "--quiet"])?;
    for container in containers.split_whitespace() {
        docker(&["rm", "--force", "--volumes", container])?;
    }
    docker(&["system", "prune", "--all", "--force", "--volumes"])?;
    docker(&["volume", "prune", "--all", "--force"])?;
    docker(&["builder", "prune", "--all", "--force"])?;
    for list in [
        &["ps", "--all", "--quiet"][..],
        &["volume", "ls", "--quiet"],
        &["images", "--all", "--quiet"],
        &["network", "ls", "--quiet", "--filter", "type=custom"],
    ] {
        let left = docker(list)?;
        if !left.trim().is_empty() {
            let count = left.split_whitespace().count();
            return Err(io::Error::other(format!("docker {}: {count} do not go", list.join(" "))));
        }
    }
    Ok(())
}

/// Runs a program and returns its output if it succeeds.
fn call(program: &str, arguments: &[&str]) -> io::Result<String> {
    let failed = |why: String| io::Error::other(format!("{program} {}: {why}", arguments.join(" ")));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(failed(format!("{}: {said}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(uid: u32) -> Ids {
        Ids::of(&Account { name: "nobody-of-that-name".to_owned(), uid, gid: uid }).unwrap()
    }

    #[test]
    fn objects_are_found_by_owner_or_creator_whatever_the_columns_are() {
        let table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid\n\
                              0         11  1600                  4096   100   100      0  1001  1001  1001  1001\n\
                              0         12  1600                  4096   100   100      0     0     0  1001  1001\n\
                              0       1001  1600                  4096  1001  1001      0     0     0     0     0\n";
        assert_eq!(ipc_of(table, &ids(1001)), ["11", "12"]);
        assert_eq!(ipc_of(table, &ids(7)), Vec::<String>::new());
        assert_eq!(ipc_of("", &ids(7)), Vec::<String>::new());
    }

    #[test]
    fn what_comes_with_an_account_is_usual_and_a_cache_in_its_home_is_not() {
        let account = Account { name: "runner".to_owned(), uid: 1001, gid: 1001 };
        let homes = BTreeSet::from([PathBuf::from("/home/runner")]);
        let usual = |path: &str| is_usual(Path::new(path), &homes, &account);
        assert!(usual("/var/mail/runner") && !usual("/var/mail/other"));
        assert!(!usual("/home/runner/.cargo-of-the-image") && !usual("/opt/hostedtoolcache"));
        for entry in fs::read_dir(SKELETON).into_iter().flatten().flatten() {
            assert!(usual(&format!("/home/runner/{}", entry.file_name().display())));
        }
    }

    #[test]
    fn a_home_is_emptied_and_what_a_job_gave_it_goes() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let account = Account { name: "nobody-of-that-name".to_owned(), uid, gid };
        fs::write(dir.path().join(".bashrc"), "x").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let marked = rustix::fs::setxattr(dir.path(), "user.canary", b"x", rustix::fs::XattrFlags::empty());
        renew_home(dir.path(), &account, &ids(uid), |_| true).unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        if marked.is_ok() {
            let mut value = [0; 8];
            assert!(rustix::fs::getxattr(dir.path(), "user.canary", &mut value).is_err());
        }
        fs::write(dir.path().join("file"), "x").unwrap();
        for (ids, own) in [(ids(uid + 1), true), (ids(uid), false)] {
            renew_home(dir.path(), &account, &ids, |_| own).unwrap();
            assert!(dir.path().join("file").exists(), "it is not the account's, or not the machine's");
        }
    }
}
