//! The unpacked runner package: one of each version for the whole machine. A claim gets the runner's programs from
//! there and copies of the few other files. Where jobs are isolated, the programs are mounted read-only into the
//! claim's jails. Where jobs have their own user, the programs are hard links to files that remain root's. Where jobs
//! run as the agent's own user and could change either, they are copies of files that are verified to be unchanged
//! since they were unpacked.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::host::files::remove::remove;
use crate::host::{Host, PackageSource};
use crate::system::disk;

/// Directories of the package that a runner only reads: its programs, and the versions of node that it includes. They
/// contain nearly all of its ten thousand files.
pub(crate) const PROGRAMS: [&str; 2] = ["bin", "externals"];
/// Mode bits that are removed from unpacked files, whatever the archive contains: only the agent's user may write to
/// them.
const OTHERS_WRITE: u32 = 0o022;

/// The state of one package. The lock is held while the package is unpacked.
pub(crate) type Slot = Arc<Mutex<Option<Whole>>>;

/// A package that is completely unpacked.
pub(crate) struct Whole {
    /// Detects changes, if jobs could make any.
    seal: Option<Seal>,
}

/// How a claim gets the programs of its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Mounted in its jails, on directories that are empty outside of them.
    Mounted,
    /// As hard links.
    Linked,
    /// As copies.
    Copied,
}

/// The result of a check for an unpacked package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is completely unpacked.
    Whole,
    /// Neither the package nor its archive exists.
    Nothing,
    /// Its archive had this other digest, and was removed.
    Other(String),
}

/// The files of a package, and whether jobs could reach them.
struct Place {
    tree: PathBuf,
    archive: PathBuf,
    /// Marker that the complete tree is on the disk.
    complete: PathBuf,
    sha256: String,
    /// Whether jobs have their own user: then only root can reach these files.
    apart: bool,
}

impl Host {
    fn place_of(&self, package: &PackageSource) -> Place {
        Place {
            tree: self.tree(package),
            archive: self.archive(package),
            complete: self.layout.package().join(format!("{}.complete", package.sha256)),
            sha256: package.sha256.clone(),
            apart: self.settings.account.is_some(),
        }
    }

    /// Returns the directory in which a package is unpacked.
    pub(crate) fn tree(&self, package: &PackageSource) -> PathBuf {
        self.layout.package().join(&package.sha256)
    }

    /// Returns how a claim's runner gets its programs on this machine.
    pub(crate) fn share(&self) -> Share {
        match (&self.settings.account, &self.settings.isolation) {
            (Some(_), Some(_)) => Share::Mounted,
            (Some(_), None) => Share::Linked,
            (None, _) => Share::Copied,
        }
    }

    pub(crate) fn slot(&self, package: &PackageSource) -> Slot {
        let mut slots = self.unpacked.lock().expect("no holder panics");
        slots.entry(package.sha256.clone()).or_default().clone()
    }

    /// Checks whether a package is completely unpacked, and unpacks it if its archive exists. The work continues if the
    /// caller is cancelled, and other callers for the same package wait until it ends.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) async fn look_at(
        &self,
        package: &PackageSource,
        mut slot: OwnedMutexGuard<Option<Whole>>,
    ) -> io::Result<(OwnedMutexGuard<Option<Whole>>, Found)> {
        let place = self.place_of(package);
        let looking = tokio::task::spawn_blocking(move || {
            let found = found(&place, &mut slot)?;
            Ok((slot, found))
        });
        let looked: (_, Found) = looking.await.map_err(io::Error::other).flatten()?;
        if looked.1 == Found::Whole {
            self.complete_later(package);
        }
        Ok(looked)
    }

    /// Syncs the unpacked package in the background, because this takes as long as the disk needs. Afterwards the
    /// package survives a power loss.
    fn complete_later(&self, package: &PackageSource) {
        let place = self.place_of(package);
        if place.apart && !place.complete.exists() {
            tokio::task::spawn_blocking(move || {
                if let Err(error) = complete(&place) {
                    tracing::warn!(%error, "the unpacked runner is unpacked again by the next agent");
                }
            });
        }
    }

    /// Creates and fills a claim's directory for a runner, at a path that no job can reach yet.
    ///
    /// # Errors
    /// The package is not available, or a file cannot be written.
    pub(crate) async fn furnished(&self, into: PathBuf, share: Share) -> io::Result<()> {
        let package = self.package().map_err(io::Error::other)?;
        let tree = self.fetch(&package).await.map_err(io::Error::other)?;
        self.in_turn(move || furnish(&tree, &into, share)).await
    }
}

/// Checks whether a package is completely unpacked, and unpacks it if its archive exists.
fn found(place: &Place, slot: &mut Option<Whole>) -> io::Result<Found> {
    if let Some(whole) = slot {
        match &whole.seal {
            None if place.tree.is_dir() => return Ok(Found::Whole),
            Some(seal) if Seal::of(&place.tree).is_ok_and(|now| now == *seal) => return Ok(Found::Whole),
            None | Some(_) => tracing::warn!(tree = %place.tree.display(), "the unpacked runner was changed"),
        }
        *slot = None;
    } else if place.apart && was_completed(place) {
        *slot = Some(Whole { seal: None });
        return Ok(Found::Whole);
    }
    remove(&place.complete)?;
    remove(&place.tree)?;
    let part = place.tree.with_extension("unpacking");
    remove(&part)?;
    let found = unpack(&place.archive, &place.sha256, &part)?;
    if found == Found::Whole {
        fs::rename(&part, &place.tree).map_err(|e| disk::at(&place.tree, &e))?;
        let seal = if place.apart { None } else { Some(Seal::of(&place.tree)?) };
        *slot = Some(Whole { seal });
    }
    Ok(found)
}

/// Returns whether an earlier agent unpacked the package completely, or the machine's image included it: the marker
/// belongs to root, and no job runs as root.
fn was_completed(place: &Place) -> bool {
    let own = |path: &Path| {
        let found = path.symlink_metadata().ok()?;
        (found.uid() == nix::unistd::geteuid().as_raw()).then_some(found)
    };
    own(&place.complete).is_some_and(|mark| mark.is_file())
        && own(&place.tree).is_some_and(|tree| tree.is_dir())
}

/// Syncs a package and creates its marker: an agent that starts after a power loss then finds the package complete. The
/// archive is no longer needed and is removed.
fn complete(place: &Place) -> io::Result<()> {
    let tree = disk::open_dir(&place.tree)?;
    rustix::fs::syncfs(&tree)?;
    disk::replace(&place.complete, b"")?;
    remove(&place.archive)
}

/// Unpacks an archive into a directory that must not exist, and computes its digest meanwhile. If the digest is wrong,
/// the directory and the archive are removed.
///
/// # Errors
/// A file cannot be written.
fn unpack(archive: &Path, sha256: &str, into: &Path) -> io::Result<Found> {
    let file = match File::open(archive) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        file => file.map_err(|e| disk::at(archive, &e))?,
    };
    DirBuilder::new().mode(0o700).create(into).map_err(|e| disk::at(into, &e))?;
    let mut read = Hashing { from: file, hasher: Sha256::new() };
    let mut tar = tar::Archive::new(GzDecoder::new(&mut read));
    tar.set_mask(OTHERS_WRITE);
    let unpacked = tar.unpack(into);
    // The end of the archive contains no files, but it is part of the digest.
    io::copy(&mut read, &mut io::sink()).map_err(|e| disk::at(archive, &e))?;
    let found: String = read.hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == sha256 {
        unpacked.map_err(|e| disk::at(into, &e))?;
        return Ok(Found::Whole);
    }
    remove(into)?;
    fs::remove_file(archive).map_err(|e| disk::at(archive, &e))?;
    Ok(Found::Other(found))
}

/// A reader that computes the digest of a file.
struct Hashing {
    from: File,
    hasher: Sha256,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

/// Fills a runner's directory from the unpacked package.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn furnish(tree: &Path, into: &Path, share: Share) -> io::Result<()> {
    fs::create_dir(into).map_err(|e| disk::at(into, &e))?;
    for entry in fs::read_dir(tree).map_err(|e| disk::at(tree, &e))? {
        let entry = entry?;
        let (from, to) = (entry.path(), into.join(entry.file_name()));
        let program = PROGRAMS.iter().any(|name| entry.file_name() == *name) && entry.file_type()?.is_dir();
        match share {
            Share::Mounted if program => fs::create_dir(&to).map_err(|e| disk::at(&to, &e))?,
            Share::Linked if program => reproduce(&from, &to, Share::Linked)?,
            Share::Mounted | Share::Linked | Share::Copied => reproduce(&from, &to, Share::Copied)?,
        }
    }
    Ok(())
}

/// Copies a file or a tree to another path, with the same modes.
fn reproduce(from: &Path, to: &Path, share: Share) -> io::Result<()> {
    let there = from.symlink_metadata().map_err(|e| disk::at(from, &e))?;
    let made = if there.is_dir() {
        fs::create_dir(to).map_err(|e| disk::at(to, &e))?;
        for entry in fs::read_dir(from).map_err(|e| disk::at(from, &e))? {
            let entry = entry?;
            reproduce(&entry.path(), &to.join(entry.file_name()), share)?;
        }
        fs::set_permissions(to, there.permissions())
    } else if there.is_symlink() {
        fs::read_link(from).and_then(|target| symlink(target, to))
    } else if share == Share::Linked {
        fs::hard_link(from, to)
    } else {
        fs::copy(from, to).map(drop)
    };
    made.map_err(|e| disk::at(to, &e))
}

/// The metadata of each entry of a tree, as one digest. A write to a file, its replacement or a change of its mode also
/// sets the time of its last change (`ctime`), which only root could set back, by changing the machine's clock.
#[derive(Debug, PartialEq, Eq)]
struct Seal([u8; 32]);

impl Seal {
    /// Computes the seal of a tree.
    ///
    /// # Errors
    /// An entry cannot be inspected.
    fn of(tree: &Path) -> io::Result<Self> {
        let (mut open, mut hasher) = (vec![tree.to_owned()], Sha256::new());
        while let Some(path) = open.pop() {
            let found = path.symlink_metadata().map_err(|e| disk::at(&path, &e))?;
            let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
            let identity = (found.dev(), found.ino(), found.mode(), found.size());
            hasher.update(format!("{}\0{identity:?}{times:?}\n", path.display()));
            if found.is_dir() {
                let entries: io::Result<Vec<_>> =
                    fs::read_dir(&path)?.map(|entry| Ok(entry?.path())).collect();
                let mut entries = entries.map_err(|e| disk::at(&path, &e))?;
                entries.sort();
                open.extend(entries);
            }
        }
        Ok(Self(hasher.finalize().into()))
    }
}

#[cfg(test)]
mod tests;
