//! Builds the next generation from the last one and a layer that a job wrote. Files of the last generation are linked,
//! those of the layer moved, so that no byte is copied. Nothing in the layer is trusted except its plain files,
//! directories and links: an overlay's own attributes are accepted only in the one form that these mounts can create.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, RawDir, Statx, StatxFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::host::files::remove::{DIRECTORY, ENTRIES, by_number, remove};

/// Maximum depth of a kept directory.
const DEEPEST: usize = 200;
/// The maximum size of the names of a file's attributes, in bytes (`limits.h`: XATTR_LIST_MAX).
const NAMES: usize = 64 * 1024;
/// Attribute with which an overlay marks that nothing below a directory shows through.
const OPAQUE: &str = "trusted.overlay.opaque";
/// Attributes with which an overlay would take a directory, or the content of a file, from elsewhere: our mounts never
/// create these.
const ELSEWHERE: [&str; 2] = ["trusted.overlay.redirect", "trusted.overlay.metacopy"];

/// The size of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes on the disk.
    pub(super) bytes: u64,
    /// Files and directories.
    pub(super) entries: u64,
}

/// Builds `next`, which must not exist yet, from a generation, if there is one, and a layer, which is consumed.
///
/// # Guarantees
/// - Nothing of the generation changes: its files are linked, and none is written, given away or renamed.
/// - Each file of `next` that came from the layer belongs to the owner and has no attribute, no set-user or set-group
///   bit; `next` holds plain files, directories and links only.
/// - Nothing outside of the three directories is read or changed, regardless of the links in the layer.
///
/// # Assumes
/// - No process can change any of the three meanwhile.
///
/// # Errors
/// The file that cannot be kept; the caller must then remove `next`.
pub(super) fn build(
    generation: Option<&Path>,
    layer: &Path,
    next: &Path,
    owner: (Uid, Gid),
) -> io::Result<()> {
    rustix::fs::mkdirat(CWD, next, Mode::RWXU)?;
    let open = |path: &Path| rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty());
    let into = open(next)?;
    if let Some(generation) = generation {
        link(&open(generation)?, &into, 0)?;
    }
    let layer = open(layer)?;
    apply(&layer, &into, owner, 0)?;
    settle(&into, &look(&layer, c"")?, owner)
}

/// Returns the size of a tree.
///
/// # Errors
/// It cannot be read.
pub(super) fn measure(tree: &Path) -> io::Result<Size> {
    let mut size = Size::default();
    add(&rustix::fs::openat(CWD, tree, DIRECTORY, Mode::empty())?, &mut size, 0)?;
    Ok(size)
}

fn add(dir: &OwnedFd, size: &mut Size, depth: usize) -> io::Result<()> {
    not_too_deep(depth)?;
    each(dir, |name, found| {
        size.entries += 1;
        size.bytes += found.stx_blocks * 512;
        if kind(found) == FileType::Directory { add(&enter(dir, name)?, size, depth + 1) } else { Ok(()) }
    })
}

/// Copies a trusted tree to another place: directories are created, all other files are hard-linked.
fn link(from: &OwnedFd, into: &OwnedFd, depth: usize) -> io::Result<()> {
    not_too_deep(depth)?;
    each(from, |name, found| {
        if kind(found) != FileType::Directory {
            return Ok(rustix::fs::linkat(from, name, into, name, AtFlags::empty())?);
        }
        rustix::fs::mkdirat(into, name, Mode::RWXU)?;
        let (below, made) = (enter(from, name)?, enter(into, name)?);
        link(&below, &made, depth + 1)?;
        settle(&made, found, (Uid::from_raw(found.stx_uid), Gid::from_raw(found.stx_gid)))
    })
}

/// Applies a layer to a trusted tree.
fn apply(layer: &OwnedFd, into: &OwnedFd, owner: (Uid, Gid), depth: usize) -> io::Result<()> {
    not_too_deep(depth)?;
    each(layer, |name, found| match kind(found) {
        FileType::Directory => {
            let below = enter(layer, name)?;
            let opaque = is_opaque(&attribute_path(layer, name))?;
            let there = kind_at(into, name)?;
            if there != Some(FileType::Directory) || opaque {
                clear(into, name, there)?;
                rustix::fs::mkdirat(into, name, Mode::RWXU)?;
            }
            let made = enter(into, name)?;
            apply(&below, &made, owner, depth + 1)?;
            settle(&made, found, owner)
        }
        FileType::RegularFile => {
            from_nowhere_else(&attribute_path(layer, name))?;
            bare(&attribute_path(layer, name))?;
            own(layer, name, owner)?;
            // After the change of owner, because that clears these bits, too.
            rustix::fs::chmodat(layer, name, plain(found), AtFlags::empty())?;
            take(layer, name, into)
        }
        FileType::Symlink => {
            own(layer, name, owner)?;
            take(layer, name, into)
        }
        // Entry with which an overlay marks a removed file.
        FileType::CharacterDevice if (found.stx_rdev_major, found.stx_rdev_minor) == (0, 0) => {
            clear(into, name, kind_at(into, name)?)
        }
        FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Fifo
        | FileType::Socket
        | FileType::Unknown => clear(into, name, kind_at(into, name)?),
    })
}

/// Moves a file of the layer to the path that it covers.
fn take(layer: &OwnedFd, name: &CStr, into: &OwnedFd) -> io::Result<()> {
    if kind_at(into, name)? == Some(FileType::Directory) {
        clear(into, name, Some(FileType::Directory))?;
    }
    Ok(rustix::fs::renameat(layer, name, into, name)?)
}

/// Removes the existing entry of this name.
fn clear(dir: &OwnedFd, name: &CStr, there: Option<FileType>) -> io::Result<()> {
    match there {
        None => Ok(()),
        Some(FileType::Directory) => remove(&attribute_path(dir, name)),
        Some(_) => Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?),
    }
}

/// Sets the owner, mode and times of a trusted directory to those of another, without the set-user and set-group bits.
fn settle(dir: &OwnedFd, like: &Statx, (uid, gid): (Uid, Gid)) -> io::Result<()> {
    rustix::fs::fchown(dir, Some(uid), Some(gid))?;
    rustix::fs::fchmod(dir, plain(like))?;
    let time = |seconds, nanoseconds: u32| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    let times = Timestamps {
        last_access: time(like.stx_atime.tv_sec, like.stx_atime.tv_nsec),
        last_modification: time(like.stx_mtime.tv_sec, like.stx_mtime.tv_nsec),
    };
    Ok(rustix::fs::futimens(dir, &times)?)
}

fn own(dir: &OwnedFd, name: &CStr, (uid, gid): (Uid, Gid)) -> io::Result<()> {
    Ok(rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

fn plain(found: &Statx) -> Mode {
    Mode::from_raw_mode(u32::from(found.stx_mode) & 0o1777)
}

fn is_opaque(path: &Path) -> io::Result<bool> {
    from_nowhere_else(path)?;
    match value(path, OPAQUE)?.as_deref() {
        None => Ok(false),
        Some(b"y") => Ok(true),
        Some(_) => Err(io::Error::other(format!("{}: {OPAQUE} has a strange value", path.display()))),
    }
}

fn from_nowhere_else(path: &Path) -> io::Result<()> {
    for name in ELSEWHERE {
        if value(path, name)?.is_some() {
            return Err(io::Error::other(format!("{}: {name} is there", path.display())));
        }
    }
    Ok(())
}

fn value(path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = Vec::with_capacity(256);
    match rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes every attribute and access control list from a file.
fn bare(path: &Path) -> io::Result<()> {
    let mut names = Vec::with_capacity(NAMES);
    match rustix::fs::llistxattr(path, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) | Err(Errno::NOTSUP) => {}
        Err(error) => return Err(error.into()),
    }
    // The labels of a security module belong to the system, not to a job.
    let given = |name: &&[u8]| !name.is_empty() && **name != *b"security.selinux";
    for name in names.split(|b| *b == 0).filter(given) {
        match rustix::fs::lremovexattr(path, name) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn each(dir: &OwnedFd, mut act: impl FnMut(&CStr, &Statx) -> io::Result<()>) -> io::Result<()> {
    names(dir)?.iter().try_for_each(|name| act(name, &look(dir, name)?))
}

/// Reads all names before anything is changed, so that the buffer is free again on the way down.
fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names: Vec<CString> = Vec::new();
    let mut buffer = [MaybeUninit::<u8>::uninit(); ENTRIES];
    let mut entries = RawDir::new(dir.as_fd(), &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn look(dir: &OwnedFd, name: &CStr) -> io::Result<Statx> {
    let here = if name.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | here;
    Ok(rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS)?)
}

fn kind(found: &Statx) -> FileType {
    FileType::from_raw_mode(found.stx_mode.into())
}

fn kind_at(dir: &OwnedFd, name: &CStr) -> io::Result<Option<FileType>> {
    match look(dir, name) {
        Ok(found) => Ok(Some(kind(&found))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn enter(dir: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())?)
}

fn not_too_deep(depth: usize) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other(format!("directories are more than {DEEPEST} deep")));
    }
    Ok(())
}

/// Returns a path for an entry of an open directory.
fn attribute_path(dir: &OwnedFd, name: &CStr) -> PathBuf {
    Path::new(&by_number(dir)).join(OsStr::from_bytes(name.to_bytes()))
}
