//! The unpacked runner package: one of each version for the whole machine. A claim gets the runner's programs from there
//! and copies of the few other files. Where jobs are isolated, the programs are mounted read-only into the claim's jails.
//! Where jobs have a user of their own, they are hard links to files that stay root's. Where jobs run as the agent's own
//! user, who could change either, they are copies of files that are still as they were unpacked.

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

/// What a runner only reads of its package: its programs, and the versions of node that it brings. Nearly all of ten
/// thousand files are there.
pub(crate) const PROGRAMS: [&str; 2] = ["bin", "externals"];
/// What nobody but the agent's user may do with what is unpacked, whatever the archive says.
const OTHERS_WRITE: u32 = 0o022;

/// What this agent knows of one package; whoever unpacks it holds this.
pub(crate) type Slot = Arc<Mutex<Option<Whole>>>;

/// A package that is unpacked whole.
pub(crate) struct Whole {
    /// By which a change is found, where jobs could make one.
    seal: Option<Seal>,
}

/// How a claim gets the programs of its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Mounted in its jails, on directories that are empty outside.
    Mounted,
    /// As hard links.
    Linked,
    /// As copies.
    Copied,
}

/// What was found where a package should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is unpacked, and whole.
    Whole,
    /// Neither it nor its archive is there.
    Nothing,
    /// Its archive was another, of this digest, and is removed.
    Other(String),
}

/// Where a package is, and whose jobs could reach it.
struct Place {
    tree: PathBuf,
    archive: PathBuf,
    /// Says of the tree that all of it is on the disk.
    complete: PathBuf,
    sha256: String,
    /// Whether jobs have a user of their own: then nobody but root reaches what is there.
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

    /// Where a package is unpacked.
    pub(crate) fn tree(&self, package: &PackageSource) -> PathBuf {
        self.layout.package().join(&package.sha256)
    }

    /// How a claim's runner gets its programs on this machine.
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

    /// Sees whether a package is unpacked and whole, and unpacks it if its archive is there. It goes on, and keeps who
    /// wants the same waiting, if nobody waits for it any more.
    ///
    /// # Errors
    /// The disk does not take it.
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

    /// In the background, for it takes as long as the disk does: what was unpacked is there after a loss of power.
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

    /// Fills a claim's directory of a runner, which must not exist, where no job can reach yet.
    ///
    /// # Errors
    /// The package cannot be had, or the disk does not take it.
    pub(crate) async fn furnished(&self, into: PathBuf, share: Share) -> io::Result<()> {
        let package = self.package().map_err(io::Error::other)?;
        let tree = self.fetch(&package).await.map_err(io::Error::other)?;
        self.in_turn(move || furnish(&tree, &into, share)).await
    }
}

/// Sees whether a package is unpacked and whole, and unpacks it if its archive is there.
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

/// Whether an earlier agent unpacked all of it, or the machine's image brought it: root says so, whom no job is.
fn was_completed(place: &Place) -> bool {
    let own = |path: &Path| {
        let found = path.symlink_metadata().ok()?;
        (found.uid() == nix::unistd::geteuid().as_raw()).then_some(found)
    };
    own(&place.complete).is_some_and(|mark| mark.is_file())
        && own(&place.tree).is_some_and(|tree| tree.is_dir())
}

/// Once all of a package is on the disk, says so: an agent that is started after a loss of power finds it whole. Its
/// archive is not needed any more then.
fn complete(place: &Place) -> io::Result<()> {
    let tree = disk::open_dir(&place.tree)?;
    rustix::fs::syncfs(&tree)?;
    disk::replace(&place.complete, b"")?;
    remove(&place.archive)
}

/// Unpacks an archive into a directory that must not exist, and checks it as it goes. Of another than the right one
/// nothing stays, nor the archive.
///
/// # Errors
/// The disk does not take it.
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
    // What the archive ends with is none of the files', and of the digest all the same.
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

/// What is read from a file, and its digest.
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

/// Fills a directory of a runner from the unpacked package.
///
/// # Errors
/// The disk does not take it.
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

/// The same again, in another place, with the same modes.
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

/// What the file system tells of each entry of a tree, as one digest. Whoever writes to a file, replaces it or changes its
/// mode also changes when it was last changed (`ctime`), which only root could set back, by way of the machine's clock.
#[derive(Debug, PartialEq, Eq)]
struct Seal([u8; 32]);

impl Seal {
    /// # Errors
    /// What cannot be looked at.
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
