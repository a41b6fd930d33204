//! The mounts of kept directories: each is an overlay in the mount namespace of one job, and ends with it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use runyard_core::model::{HOME, Keep};
use rustix::fs::{CWD, Gid, Mode, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::host::files::remove::DIRECTORY;

/// A kept directory of a claim, as it is mounted for its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMount {
    /// The path at which jobs see it.
    pub path: PathBuf,
    /// The generation that it shows, as the lower layer.
    pub lower: PathBuf,
    /// The claim's own layer.
    pub upper: PathBuf,
    /// The overlay's work directory.
    pub work: PathBuf,
}

/// Returns the kept directories that can be mounted: neither the whole home directory nor a directory that covers
/// another. The class was only checked by other programs, when it was written.
pub(crate) fn usable<'a>(keep: &'a [Keep], home: &Path) -> Vec<&'a Keep> {
    if let Err((at, error)) = Keep::check_all(keep) {
        tracing::warn!(at, %error, "nothing is kept: the class names what cannot be");
        return Vec::new();
    }
    let places: Vec<PathBuf> = keep.iter().map(|keep| inside(&keep.path, home)).collect();
    let apart = |at: &usize| {
        let place = &places[*at];
        let others = places[..*at].iter();
        !home.starts_with(place) && others.into_iter().all(|o| !o.starts_with(place) && !place.starts_with(o))
    };
    (0..keep.len()).filter(apart).map(|at| &keep[at]).collect()
}

/// Returns a path as jobs see it.
pub(crate) fn inside(path: &str, home: &Path) -> PathBuf {
    path.strip_prefix(HOME).map_or_else(|| path.into(), |below| home.join(below))
}

/// Opens a directory below a root, without following links. Missing directories on the path are created, and given to
/// the owner if there is one.
///
/// # Errors
/// A part of the path is not a directory, or cannot be created.
pub(in crate::host) fn place_for(
    root: &Path,
    below: &Path,
    owner: Option<(u32, u32)>,
) -> io::Result<OwnedFd> {
    let mut dir = rustix::fs::openat(CWD, root, DIRECTORY, Mode::empty())?;
    for part in below.components() {
        let Component::Normal(name) = part else { continue };
        match (rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty()), owner) {
            (Ok(next), _) => dir = next,
            (Err(Errno::NOENT), Some((uid, gid))) => {
                rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755))?;
                dir = rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty())?;
                rustix::fs::fchown(&dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
    Ok(dir)
}

/// Checks that no process has layers of a claim mounted any more.
///
/// # Errors
/// A process has them mounted, or this cannot be determined.
pub(crate) fn still(layers: &Path) -> io::Result<()> {
    if is_mounted(layers)? {
        return Err(io::Error::other("a kept directory is still mounted"));
    }
    Ok(())
}

/// Returns whether any process still has a mount that is made of files below a directory.
///
/// # Errors
/// This cannot be determined.
fn is_mounted(dir: &Path) -> io::Result<bool> {
    let text = dir.to_string_lossy();
    // The kernel writes blanks and backslashes like this, and an overlay the names of its layers.
    let name = text.rsplit('/').next().unwrap_or_default().replace('\\', "\\134").replace(' ', "\\040");
    let sign = format!("/{name}/");
    let mut namespaces = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let numbered = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()));
        if !numbered {
            continue;
        }
        // Processes that share a mount namespace are checked once.
        if fs::read_link(path.join("ns/mnt")).is_ok_and(|namespace| !namespaces.insert(namespace)) {
            continue;
        }
        match fs::read_to_string(path.join("mountinfo")) {
            Ok(mounts) if mounts.lines().any(|line| line.contains("upperdir=") && line.contains(&sign)) => {
                return Ok(true);
            }
            Ok(_) => {}
            // The process ended meanwhile.
            Err(error) if error.raw_os_error().is_some_and(|number| [2, 3, 22].contains(&number)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
