//! Classifies mounted file systems by their type. Files that a job left on the machine's own file systems are removed;
//! a type that is not known to be the machine's own is foreign, and nothing is ever removed from it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::system::disk;

/// File systems in which nothing can be left: the kernel generates their contents.
const MADE_UP: [&str; 21] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
];
/// File systems on the machine's own disks and in its memory.
const OWN: [&str; 21] = [
    "bcachefs",
    "btrfs",
    "devtmpfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "ntfs3",
    "overlay",
    "ramfs",
    "rootfs",
    "squashfs",
    "tmpfs",
    "vfat",
    "xfs",
    "zfs",
];

/// The owner of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesystemKind {
    /// The kernel: nothing can be left in it.
    MadeUp,
    /// The machine.
    Own,
    /// A network, a FUSE program, or an unknown type.
    Foreign,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its mount id, as returned by `statx(2)`.
    pub(crate) id: u64,
    /// Its mount point.
    pub(crate) place: PathBuf,
    /// The type of its file system.
    pub(crate) name: String,
    /// Whether it is mounted read-only.
    pub(crate) read_only: bool,
}

impl Mount {
    pub(crate) fn kind(&self) -> FilesystemKind {
        let name = self.name.as_str();
        match (MADE_UP.contains(&name), OWN.contains(&name)) {
            (true, _) => FilesystemKind::MadeUp,
            (false, true) => FilesystemKind::Own,
            (false, false) => FilesystemKind::Foreign,
        }
    }
}

/// Returns the current mounts.
///
/// # Errors
/// The kernel does not report them.
pub(crate) fn mounts() -> io::Result<Vec<Mount>> {
    let path = Path::new("/proc/self/mountinfo");
    let table = disk::read(path)?.ok_or_else(|| disk::at(path, &io::ErrorKind::NotFound.into()))?;
    Ok(String::from_utf8_lossy(&table).lines().filter_map(parse).collect())
}

/// Returns the kind of each mount, by mount id.
pub(crate) fn kinds(mounts: &[Mount]) -> BTreeMap<u64, FilesystemKind> {
    mounts.iter().map(|mount| (mount.id, mount.kind())).collect()
}

/// Returns the mounts of foreign file systems that are writable and not spared by the machine's owner.
pub(crate) fn foreign<'a>(mounts: &'a [Mount], spared: &[PathBuf]) -> Vec<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| {
            mount.kind() == FilesystemKind::Foreign && !mount.read_only && !spared.contains(&mount.place)
        })
        .collect()
}

/// Parses a line of `proc_pid_mountinfo(5)`.
fn parse(line: &str) -> Option<Mount> {
    let (fields, rest) = line.split_once(" - ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let name = rest.split(' ').next()?.to_owned();
    let options = *fields.get(5)?;
    let super_options = rest.split(' ').nth(2).unwrap_or_default();
    let read_only = [options, super_options].iter().any(|options| options.split(',').any(|o| o == "ro"));
    Some(Mount {
        id: fields.first()?.parse().ok()?,
        place: PathBuf::from(unescaped(fields.get(4)?)),
        name,
        read_only,
    })
}

/// Decodes blanks and backslashes of a mount point, which are written as octal numbers.
fn unescaped(place: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(place.to_owned(), |place, (escape, plain)| place.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_to_be_the_machines_own_is_somebody_elses() {
        let table = "28 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard\n\
                     30 28 0:5 / /proc rw - proc proc rw\n\
                     31 28 0:50 / /mnt/e\\040fs rw,relatime shared:9 - nfs4 fs-1:/ rw,vers=4.1\n\
                     32 28 0:51 / /snap ro - fuse.snapfuse snap ro\n\
                     33 28 0:52 / /data rw - weirdfs none rw\n\
                     34 28 0:53 / /mnt/ro rw - ceph none ro\n";
        let all: Vec<Mount> = table.lines().filter_map(parse).collect();
        let places = |spared: &[PathBuf]| -> Vec<String> {
            foreign(&all, spared).iter().map(|mount| mount.place.display().to_string()).collect()
        };
        assert_eq!(places(&[]), ["/mnt/e fs", "/data"]);
        assert_eq!(places(&["/data".into()]), ["/mnt/e fs"]);
        let kinds = kinds(&all);
        assert_eq!(
            (kinds[&28], kinds[&30], kinds[&32]),
            (FilesystemKind::Own, FilesystemKind::MadeUp, FilesystemKind::Foreign)
        );
        assert!(mounts().unwrap().iter().any(|mount| mount.place == Path::new("/")));
    }

    #[test]
    fn file_systems_of_networks_and_programs_are_foreign() {
        for name in [
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "lustre",
            "ceph",
            "9p",
            "afs",
            "gpfs",
            "virtiofs",
            "fuse",
            "fuseblk",
            "fuse.sshfs",
            "fuse.s3fs",
            "beegfs",
        ] {
            let mount = Mount { id: 1, place: "/m".into(), name: name.to_owned(), read_only: false };
            assert_eq!(mount.kind(), FilesystemKind::Foreign, "{name}");
        }
    }
}
