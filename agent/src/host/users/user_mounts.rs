//! Aborts the FUSE connections of a claim. A process that waits for a response of such a file system ignores SIGKILL,
//! and if it is the process that holds the connection open, it waits for ever. Connections from before the claim are
//! ignored.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, statat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::ids::Ids;
use crate::system::clock::boot_id;
use crate::system::disk;

/// The kernel's file system that lists such connections.
const CONTROL: &str = "fusectl";
/// The list of file system types that the kernel supports.
const KINDS: &str = "/proc/filesystems";

/// The FUSE connections of the job account.
#[derive(Clone, Debug)]
pub(crate) struct UserMounts {
    ids: Ids,
    /// The file that lists the connections from before the claim.
    mark: PathBuf,
    /// The kernel's list of connections, in a mount that is not attached to any directory.
    control: Arc<OnceLock<OwnedFd>>,
}

impl UserMounts {
    pub(crate) fn new(ids: Ids, mark: PathBuf) -> Self {
        Self { ids, mark, control: Arc::default() }
    }

    /// Returns the connections that exist, as text for the mark of a claim: their numbers, which are valid for this
    /// boot. If they cannot be determined, the text is empty and nothing is aborted.
    pub(crate) fn before(&self) -> String {
        let told = || Ok::<_, io::Error>(line(&boot_id()?, &self.standing()?));
        told().unwrap_or_else(|error| {
            tracing::warn!(%error, "the FUSE connections of this machine cannot be told");
            String::new()
        })
    }

    /// Aborts the connections that appeared since the claim began. Returns their number.
    ///
    /// # Errors
    /// The kernel does not list the connections, or one of them cannot be aborted.
    pub(crate) fn abort(&self) -> io::Result<usize> {
        let Some(control) = self.control()? else { return Ok(0) };
        let mark = disk::read(&self.mark)?.unwrap_or_default();
        let Some(before) = spared(&String::from_utf8_lossy(&mark), &boot_id()?) else { return Ok(0) };
        let appeared = self.standing()?;
        let appeared: Vec<_> = appeared.difference(&before).collect();
        for number in &appeared {
            match openat(control, format!("{number}/abort"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            {
                Ok(switch) => drop(rustix::io::write(&switch, b"1")?),
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(appeared.len())
    }

    /// Returns the numbers of the connections that users of the account have mounted.
    fn standing(&self) -> io::Result<BTreeSet<u32>> {
        let Some(control) = self.control()? else { return Ok(BTreeSet::new()) };
        // The descriptor of the mount itself cannot be read.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = Dir::new(openat(control, ".", flags, Mode::empty())?)?;
        let mut found = BTreeSet::new();
        for entry in listed {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Ok(number) = name.parse::<u32>() else { continue };
            match statat(control, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if self.ids.owns(stat.st_uid) => drop(found.insert(number)),
                Ok(_) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Returns the mounted list; `None` if the kernel has no such file systems, or has not loaded them.
    fn control(&self) -> io::Result<Option<&OwnedFd>> {
        if let Some(control) = self.control.get() {
            return Ok(Some(control));
        }
        if !fs::read_to_string(KINDS)?.split_whitespace().any(|kind| kind == CONTROL) {
            return Ok(None);
        }
        let kind = fsopen(CONTROL, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&kind)?;
        let mounted = fsmount(&kind, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(Some(self.control.get_or_init(|| mounted)))
    }
}

fn line(boot: &str, numbers: &BTreeSet<u32>) -> String {
    let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
    format!("fuse {boot}{numbers}\n")
}

/// Returns the connections that a mark spares; `None` if it is not from a claim of this boot.
fn spared(mark: &str, boot: &str) -> Option<BTreeSet<u32>> {
    let numbers = mark.strip_prefix("fuse ")?.strip_prefix(boot)?.strip_suffix('\n')?;
    numbers.split_whitespace().map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_spares_what_stood_when_it_was_made_and_all_where_it_is_not_of_this_boot() {
        let stood = BTreeSet::from([51, 7]);
        let mark = line("boot-1", &stood);
        assert_eq!((mark.as_str(), spared(&mark, "boot-1")), ("fuse boot-1 7 51\n", Some(stood)));
        assert_eq!(spared(&line("boot-1", &BTreeSet::new()), "boot-1"), Some(BTreeSet::new()));
        for (mark, boot) in [(mark.as_str(), "boot-2"), ("", "boot-1"), ("fuse boot-1 7", "boot-1")] {
            assert_eq!(spared(mark, boot), None, "{mark:?}");
        }
    }
    /// Mounts one for a user that no machine has, as root, and distinguishes it from one that existed before.
    #[test]
    fn a_connection_of_the_job_user_is_aborted_unless_it_stood_before() {
        use std::os::fd::AsRawFd;
        if !nix::unistd::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            eprintln!("\n****** host/user_mounts.rs: NOT RUN: needs root and /dev/fuse ******\n");
            return;
        }
        let uid = 64_011;
        let dir = tempfile::tempdir().unwrap();
        let account = crate::host::Account { name: "none".to_owned(), uid, gid: uid };
        let mark = dir.path().join("begun");
        let mounts = UserMounts::new(Ids::of(&account).unwrap(), mark.clone());
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        let private = nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE;
        nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        let mounted = |name: &str| {
            let place = dir.path().join(name);
            fs::create_dir(&place).unwrap();
            let server = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
            let options = format!("fd={},rootmode=40000,user_id={uid},group_id={uid}", server.as_raw_fd());
            let none = nix::mount::MsFlags::empty();
            nix::mount::mount(Some("fuse"), &place, Some("fuse"), none, Some(options.as_str())).unwrap();
            server
        };
        let stood = mounted("stood");
        fs::write(&mark, mounts.before()).unwrap();
        assert_eq!(mounts.abort().unwrap(), 0);
        let appeared = mounted("appeared");
        assert_eq!(mounts.abort().unwrap(), 1);
        // The server of the aborted one gets an error; that of the other one gets a request.
        let mut buffer = vec![0; 1 << 17];
        let gone = rustix::io::read(&appeared, &mut buffer).unwrap_err();
        assert_eq!(gone, rustix::io::Errno::NODEV);
        assert!(rustix::io::read(&stood, &mut buffer).unwrap() > 0);
    }
}
