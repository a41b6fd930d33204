//! Removes directory trees that a job may have made as awkward as possible. At any depth it holds two open descriptors
//! and does not recurse; it follows no link and enters no file system mounted inside the tree.

use std::ffi::{CStr, CString};
use std::fs::{self, File, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Statx, StatxFlags};
use rustix::io::Errno;

use crate::system::disk;

/// Flags that open a directory itself, not the target of a link.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Buffer size for the directory entries that one call returns, in bytes.
pub(crate) const ENTRIES: usize = 32 * 1024;

/// A directory on the path from the top of the tree.
struct Level {
    name: CString,
    /// Its subdirectories that remain to be removed.
    dirs: Vec<CString>,
    /// Its device and inode number.
    identity: (u64, u64),
}

/// Removes a file or a tree. A missing file is no error.
///
/// # Errors
/// It cannot be removed, or another file system is mounted in it; the files of that one are left alone.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(disk::at(path, &error)),
    };
    let (Some(parent), Some(name), true) = (path.parent(), path.file_name(), metadata.is_dir()) else {
        return fs::remove_file(path).map_err(|e| disk::at(path, &e));
    };
    let removed = File::open(parent).and_then(|parent| {
        let name = CString::new(name.as_bytes())?;
        tree(parent.into(), name)
    });
    removed.map_err(|e| disk::at(path, &e))
}

/// Removes everything in a directory, but not the directory.
///
/// # Errors
/// It is not a directory, or something in it cannot be removed.
pub(crate) fn empty(dir: &Path) -> io::Result<()> {
    let emptied = || {
        let open = disk::open_dir(dir)?;
        for name in files_gone(&open)? {
            tree(open.try_clone()?.into(), name)?;
        }
        Ok::<(), io::Error>(())
    };
    emptied().map_err(|e| disk::at(dir, &e))?;
    match fs::read_dir(dir)?.next() {
        None => Ok(()),
        Some(_) => Err(io::Error::other(format!("{} does not become empty", dir.display()))),
    }
}

/// Removes a directory from its parent.
fn tree(parent: OwnedFd, name: CString) -> io::Result<()> {
    let mount = mount_of(&look(&parent)?);
    let (mut dir, top) = entered(&parent, name, mount)?;
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.dirs.pop() {
            let (below, next) = entered(&dir, name, mount)?;
            if next.dirs.is_empty() {
                rustix::fs::unlinkat(&dir, &next.name, AtFlags::REMOVEDIR)?;
            } else {
                levels.push(next);
                dir = below;
            }
            continue;
        }
        let done = levels.pop().expect("there is a last one");
        let Some(above) = levels.last() else {
            return Ok(rustix::fs::unlinkat(&parent, &done.name, AtFlags::REMOVEDIR)?);
        };
        dir = rustix::fs::openat(&dir, c"..", DIRECTORY, Mode::empty())?;
        if identity(&look(&dir)?) != above.identity {
            return Err(io::Error::other("it was moved meanwhile"));
        }
        rustix::fs::unlinkat(&dir, &done.name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Opens a directory within another, and removes everything in it except subdirectories.
fn entered(parent: &OwnedFd, name: CString, mount: u64) -> io::Result<(OwnedFd, Level)> {
    let root = nix::unistd::geteuid().is_root();
    let open = || rustix::fs::openat(parent, &name, DIRECTORY, Mode::empty());
    let dir = match open() {
        // Its owner removed its own access. Root is not affected.
        Err(Errno::ACCESS) if !root => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let place = rustix::fs::openat(parent, &name, flags, Mode::empty())?;
            fs::set_permissions(by_number(&place), Permissions::from_mode(0o700))?;
            open()?
        }
        dir => dir?,
    };
    if !root {
        rustix::fs::fchmod(&dir, Mode::RWXU)?;
    }
    let found = look(&dir)?;
    if mount_of(&found) != mount {
        let place = fs::read_link(by_number(&dir)).unwrap_or_default();
        return Err(io::Error::other(format!(
            "{}: another file system is mounted there, and is left alone",
            place.display()
        )));
    }
    let dirs = files_gone(&dir)?;
    Ok((dir, Level { name, dirs, identity: identity(&found) }))
}

/// Removes everything in a directory except subdirectories, and returns their names.
fn files_gone(dir: impl AsFd) -> io::Result<Vec<CString>> {
    let mut buffer = [MaybeUninit::<u8>::uninit(); ENTRIES];
    let (mut dirs, mut entries) = (Vec::new(), RawDir::new(dir.as_fd(), &mut buffer));
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if is_dir(dir.as_fd(), name, entry.file_type())? {
            dirs.push(name.to_owned());
        } else {
            rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
        }
    }
    Ok(dirs)
}

/// Returns whether an entry of a directory is itself a directory, not a link to one.
pub(crate) fn is_dir(dir: impl AsFd, name: &CStr, told: FileType) -> io::Result<bool> {
    match told {
        FileType::Directory => Ok(true),
        // Not every file system reports the type.
        FileType::Unknown => {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let found = rustix::fs::statx(dir, name, flags, StatxFlags::TYPE)?;
            Ok(FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory)
        }
        FileType::RegularFile
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice => Ok(false),
    }
}

fn look(dir: &OwnedFd) -> io::Result<Statx> {
    Ok(rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?)
}

fn device(found: &Statx) -> u64 {
    (u64::from(found.stx_dev_major) << 32) | u64::from(found.stx_dev_minor)
}

/// Returns the mount id, or the device number if the kernel (before 5.8) does not report one.
fn mount_of(found: &Statx) -> u64 {
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 { device(found) } else { found.stx_mnt_id }
}

fn identity(found: &Statx) -> (u64, u64) {
    (device(found), found.stx_ino)
}

/// Returns a path for an open descriptor.
pub(crate) fn by_number(open: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_locked_linked_or_hid_goes_and_what_it_points_at_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (claims, outside) = (dir.path().join("claims"), dir.path().join("outside"));
        fs::create_dir_all(claims.join("a/locked/deep")).unwrap();
        fs::create_dir_all(claims.join("a/b/c/d")).unwrap();
        fs::write(claims.join("a/locked/.hidden"), "x").unwrap();
        fs::write(claims.join("a/b/c/file"), "x").unwrap();
        fs::set_permissions(claims.join("a/b"), Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(claims.join("a/locked"), Permissions::from_mode(0o000)).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, claims.join("a/link")).unwrap();
        std::os::unix::fs::symlink(&outside, claims.join("b")).unwrap();
        empty(&claims).unwrap();
        assert!(fs::read_dir(&claims).unwrap().next().is_none());
        remove(&claims).unwrap();
        remove(&claims).unwrap();
        assert!(outside.join("kept").exists() && !claims.exists());
    }

    #[test]
    fn a_directory_of_claims_that_became_a_link_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let claims = dir.path().join("claims");
        std::os::unix::fs::symlink(dir.path(), &claims).unwrap();
        assert!(empty(&claims).unwrap_err().to_string().contains("claims"));
        assert!(empty(&dir.path().join("gone")).is_err());
    }

    /// Builds the tree by moving each tree into the next, because a path of that length cannot be used.
    #[test]
    fn a_tree_deeper_than_any_path_and_than_descriptors_goes() {
        let dir = tempfile::tempdir().unwrap();
        let open = disk::open_dir(dir.path()).unwrap();
        let make = |name: &str| rustix::fs::mkdirat(&open, name, Mode::RWXU).unwrap();
        make("a");
        for _ in 0..20_000 {
            make("b");
            rustix::fs::renameat(&open, "a", &open, "b/a").unwrap();
            rustix::fs::renameat(&open, "b", &open, "a").unwrap();
        }
        fs::write(dir.path().join("a/file"), "x").unwrap();
        remove(&dir.path().join("a")).unwrap();
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
