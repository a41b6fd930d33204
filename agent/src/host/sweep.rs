//! What has the user jobs run as left on the machine outside the directories of its claim? Whatever it owns anywhere is
//! removed: files, queues, shared memory, timers, containers. A second look must find nothing; what cannot be looked at
//! or removed is an error, and the machine is not used again.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Account;
use super::clean::remove;
use crate::disk;

/// File systems in which nothing can be left: the kernel makes what is in them.
const MADE_UP: [&str; 14] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devpts",
    "securityfs",
    "debugfs",
    "tracefs",
    "bpf",
    "pstore",
    "configfs",
    "fusectl",
    "autofs",
    "binfmt_misc",
];
/// What root keeps in a user's name; `{}` is that name.
const IN_ITS_NAME: [&str; 5] = [
    "var/spool/cron/crontabs/{}",
    "var/spool/cron/{}",
    "var/lib/systemd/linger/{}",
    "var/mail/{}",
    "var/spool/mail/{}",
];
/// How many left-overs are named.
const NAMED: usize = 5;
/// The keyrings every user has as soon as it looks at one: its own and its sessions'.
const EMPTY_KEYRINGS: u64 = 2;
/// How long the kernel may take to collect the keys of sessions that ended.
const KEYS_GONE: Duration = Duration::from_secs(5);

/// Where a job may have left something.
#[derive(Clone, Debug)]
pub struct Places {
    /// Trees to look through, with every file system mounted in them.
    pub trees: Vec<PathBuf>,
    /// Where containers are asked for, if anything is there.
    pub docker: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self { trees: vec!["/".into()], docker: "/var/run/docker.sock".into() }
    }
}

/// Removes everything that is the user's, and proves it.
///
/// # Errors
/// Something is left, or may be.
pub(super) fn sweep(account: &Account, places: &Places) -> io::Result<()> {
    for pattern in IN_ITS_NAME {
        remove(&Path::new("/").join(pattern.replace("{}", &account.name)))?;
    }
    remove_ipc(account.uid)?;
    remove_containers(&places.docker)?;
    let homes = homes(account.uid);
    let spared = spared();
    for tree in &places.trees {
        for found in owned(tree, account.uid, &spared)? {
            clear(&found, &homes)?;
        }
    }
    let mut left = Vec::new();
    for tree in &places.trees {
        left.extend(
            owned(tree, account.uid, &spared)?.into_iter().filter(|path| !is_empty_home(path, &homes)),
        );
    }
    left.extend(ipc(account.uid)?.into_iter().map(|(kind, id)| PathBuf::from(format!("{kind} {id}"))));
    if left.is_empty() {
        return no_keys(account.uid);
    }
    let names: Vec<_> = left.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    Err(io::Error::other(format!(
        "{} things of {} do not go: {}",
        left.len(),
        account.name,
        names.join(", ")
    )))
}

/// Directories that are the user's by right: they are emptied and stay.
fn homes(uid: u32) -> BTreeSet<PathBuf> {
    let home =
        nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten().map(|user| user.dir);
    home.into_iter().chain([PathBuf::from(format!("/run/user/{uid}"))]).collect()
}

fn is_empty_home(path: &Path, homes: &BTreeSet<PathBuf>) -> bool {
    homes.contains(path) && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn clear(path: &Path, homes: &BTreeSet<PathBuf>) -> io::Result<()> {
    if !homes.contains(path) {
        return remove(path);
    }
    for entry in fs::read_dir(path).map_err(|e| disk::at(path, &e))? {
        remove(&entry?.path())?;
    }
    Ok(())
}

/// Where file systems of the kernel's own making are mounted.
fn spared() -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let made_up = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (place, kind) = (words.nth(1)?, words.next()?);
        // Blanks are written as octal escapes; no file system of these kinds has any in its place.
        MADE_UP.contains(&kind).then(|| PathBuf::from(place))
    });
    made_up.collect()
}

/// Everything of a user's below a place, without what is below that again. Links are not followed.
fn owned(tree: &Path, uid: u32, spared: &BTreeSet<PathBuf>) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![tree.to_owned()]);
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(disk::at(&dir, &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| disk::at(&dir, &e))?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(disk::at(&entry.path(), &error)),
            };
            if metadata.uid() == uid {
                found.push(entry.path());
            } else if metadata.is_dir() && !spared.contains(&entry.path()) {
                open.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// System V objects of a user's: which option of `ipcrm` removes it, and its number.
fn ipc(uid: u32) -> io::Result<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    for (kind, option) in [("shm", "-m"), ("sem", "-s"), ("msg", "-q")] {
        let path = format!("/proc/sysvipc/{kind}");
        let table = match fs::read_to_string(&path) {
            Ok(table) => table,
            // A kernel without them.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(disk::at(Path::new(&path), &error)),
        };
        found.extend(ipc_of(&table, uid).into_iter().map(|id| (option, id)));
    }
    Ok(found)
}

/// The numbers of a user's objects in a table of `/proc/sysvipc`, whose first line names the columns.
fn ipc_of(table: &str, uid: u32) -> Vec<String> {
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let owners: Vec<usize> =
        (0..columns.len()).filter(|index| matches!(columns[*index], "uid" | "cuid")).collect();
    let uid = uid.to_string();
    let of_user = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is = owners.iter().any(|index| fields.get(*index) == Some(&uid.as_str()));
        is.then(|| fields.get(1).map(|id| (*id).to_owned())).flatten()
    };
    lines.filter_map(of_user).collect()
}

fn remove_ipc(uid: u32) -> io::Result<()> {
    for (option, id) in ipc(uid)? {
        call("ipcrm", &[option, &id])?;
    }
    Ok(())
}

/// Keys outlive processes in a user's own keyring, and nobody but the user can empty it.
fn no_keys(uid: u32) -> io::Result<()> {
    for _ in 0..KEYS_GONE.as_millis() / 100 {
        if keys_of(&fs::read_to_string("/proc/key-users").unwrap_or_default(), uid) <= EMPTY_KEYRINGS {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(io::Error::other("its keyring holds keys"))
}

/// How many keys a user has: the first number after `uid: usage` in `/proc/key-users`.
fn keys_of(table: &str, uid: u32) -> u64 {
    let keys = |line: &str| {
        let (user, rest) = line.split_once(':')?;
        (user.trim() == uid.to_string())
            .then(|| rest.split_whitespace().nth(1)?.split('/').next()?.parse().ok())?
    };
    table.lines().find_map(keys).unwrap_or(0)
}

/// Where a container engine runs, a job with a way to it has left what it wants there: everything goes.
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

/// What a program prints, if it succeeds.
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

    #[test]
    fn objects_are_found_by_owner_or_creator_whatever_the_columns_are() {
        let table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid\n\
                              0         11  1600                  4096   100   100      0  1001  1001  1001  1001\n\
                              0         12  1600                  4096   100   100      0     0     0  1001  1001\n\
                              0       1001  1600                  4096  1001  1001      0     0     0     0     0\n";
        assert_eq!(ipc_of(table, 1001), ["11", "12"]);
        assert_eq!(ipc_of(table, 7), Vec::<String>::new());
        assert_eq!(ipc_of("", 7), Vec::<String>::new());
    }

    #[test]
    fn keys_are_counted_per_user() {
        let table = "    0:    62 61/61 53/1000000 1216/25000000\n 1001:     5 4/4 4/200 61/20000\n";
        assert_eq!((keys_of(table, 0), keys_of(table, 1001), keys_of(table, 7)), (61, 4, 0));
    }

    #[test]
    fn what_a_user_owns_is_found_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), "").unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        let mut found = owned(dir.path(), uid, &BTreeSet::new()).unwrap();
        found.sort();
        assert_eq!(found, [dir.path().join("a"), dir.path().join("link")]);
        assert_eq!(owned(dir.path(), uid + 1, &BTreeSet::new()).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(owned(&dir.path().join("gone"), uid, &BTreeSet::new()).unwrap(), Vec::<PathBuf>::new());
    }
}
