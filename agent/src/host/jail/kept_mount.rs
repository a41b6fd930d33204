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
    /// Where jobs find it.
    pub path: PathBuf,
    /// The generation that it shows.
    pub lower: PathBuf,
    /// The claim's own layer.
    pub upper: PathBuf,
    /// What the overlay needs beside that.
    pub work: PathBuf,
}

/// Those that can be mounted: neither the whole home nor what covers another. The class was checked when it was
/// written, by others.
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

/// A path as jobs see it.
pub(crate) fn inside(path: &str, home: &Path) -> PathBuf {
    path.strip_prefix(HOME).map_or_else(|| path.into(), |below| home.join(below))
}

/// Opens a directory below a root, itself and not what a link leads to. What is missing on the way is made, and is the
/// owner's if there is one to give it to.
///
/// # Errors
/// Something on the way is no directory, or cannot be made.
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

/// Makes sure that no process has layers of a claim mounted any more.
///
/// # Errors
/// One has, or that cannot be told.
pub(crate) fn still(layers: &Path) -> io::Result<()> {
    if is_mounted(layers)? {
        return Err(io::Error::other("a kept directory is still mounted"));
    }
    Ok(())
}

/// Whether any process still has something mounted that is made of what lies below a directory.
///
/// # Errors
/// That cannot be told.
fn is_mounted(dir: &Path) -> io::Result<bool> {
    let text = dir.to_string_lossy();
    // As the kernel writes blanks and backslashes there, and an overlay the names of its layers.
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
        // Processes that share their mounts are looked at once.
        if fs::read_link(path.join("ns/mnt")).is_ok_and(|namespace| !namespaces.insert(namespace)) {
            continue;
        }
        match fs::read_to_string(path.join("mountinfo")) {
            Ok(mounts) if mounts.lines().any(|line| line.contains("upperdir=") && line.contains(&sign)) => {
                return Ok(true);
            }
            Ok(_) => {}
            // It ended meanwhile.
            Err(error) if error.raw_os_error().is_some_and(|number| [2, 3, 22].contains(&number)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
