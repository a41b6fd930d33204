//! The store of generations and layers on the disk. It is complete after a crash or a power loss at any moment: a
//! generation is built beside the last one and gets its number by one rename, after it was written to the disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use runyard_core::model::{Keep, Kept, KeptDirectories, MOST_REPORTED};
use runyard_core::ports::Clock as _;
use rustix::fs::{Gid, Timestamps, Uid};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::merge::{self, build, measure};
use super::room::{Held, leaving};
use crate::host::files::remove::remove;
use crate::host::jail::kept_mount::{KeptMount, inside, still, usable};
use crate::system::clock::SystemClock;
use crate::system::disk;

const GIB: u64 = 1 << 30;
const DAY: Duration = Duration::from_secs(86_400);
/// Upper bound of the space that is left free, which is a tenth of the disk.
const FLOOR: u64 = 10 * GIB;
/// Directory of a generation while it is built.
const NEXT: &str = "next";

/// The result for a claim's layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promoted {
    /// The layer is part of this generation now.
    As(u64),
    /// The layer was empty.
    Unchanged,
    /// The layer was removed, for this reason.
    Dropped(String),
}

/// The metadata that is stored beside a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    name: String,
    repository: String,
    bytes: u64,
    max_age_days: u32,
}

/// A generation on the disk.
#[derive(Clone, Debug)]
struct Generation {
    dir: PathBuf,
    number: u64,
    about: About,
    used: SystemTime,
}

impl Generation {
    fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }
}

/// The generations and layers of a machine.
#[derive(Clone, Debug)]
pub struct KeptStore {
    root: PathBuf,
    owner: (u32, u32),
    /// The number of bytes of the disk to leave free; derived from the size of the disk if `None`.
    floor: Option<u64>,
}

impl KeptStore {
    /// Creates a store in a directory of root; its files belong to `owner` (uid and gid).
    pub fn new(root: impl Into<PathBuf>, owner: (u32, u32)) -> Self {
        Self { root: root.into(), owner, floor: None }
    }

    /// Sets the number of bytes to leave free.
    #[must_use]
    pub fn leaving_free(self, floor: u64) -> Self {
        Self { floor: Some(floor), ..self }
    }

    fn generations(&self) -> PathBuf {
        self.root.join("generations")
    }

    fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    fn taken(&self) -> PathBuf {
        self.root.join("taken")
    }

    /// Removes the unfinished work of an agent that was killed. The layers of a claim remain: its jobs may still run.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn recover(&self) -> io::Result<()> {
        if !self.root.exists() {
            return Ok(());
        }
        disk::private_dir(&self.root)?;
        remove(&self.taken())?;
        for place in self.places()? {
            let newest = self.newest(&place)?.map(|generation| generation.number);
            for (path, number) in numbered(&place)? {
                if number.is_none() || number != newest {
                    remove(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the mounts for a claim: the newest generation of each name, and its own layer, which already exists if
    /// its runner is restarted. Removes the layers of other claims, but never a generation below a layer.
    ///
    /// # Errors
    /// The directories cannot be created.
    pub fn lend(
        &self,
        claim: &str,
        repository: &str,
        keep: &[Keep],
        home: &Path,
    ) -> io::Result<Vec<KeptMount>> {
        for dir in [self.root.clone(), self.generations(), self.layers(), self.root.join("empty")] {
            disk::private_dir(&dir)?;
        }
        for entry in fs::read_dir(self.layers())? {
            let entry = entry?;
            if entry.file_name() != claim {
                remove(&entry.path())?;
            }
        }
        if self.layers().join(claim).symlink_metadata().is_err() {
            self.make_room()?;
        }
        let mut mounts = Vec::new();
        for keep in usable(keep, home) {
            let place = self.place(&keep.name, repository, &keep.path);
            let generation = self.newest(&place)?;
            if let Some(generation) = &generation {
                touch(&generation.dir)?;
            }
            let layer = self.layers().join(claim).join(&keep.name);
            let (upper, work) = (layer.join("upper"), layer.join("work"));
            disk::private_dir(&work)?;
            if upper.symlink_metadata().is_err() {
                // The number of the generation below the layer, or null.
                let base = serde_json::to_vec(&generation.as_ref().map(|generation| generation.number))?;
                fs::write(layer.join("base"), base)?;
                fs::create_dir(&upper)?;
                let (uid, gid) = self.owner;
                rustix::fs::chown(&upper, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            let lower = generation.map_or_else(|| self.root.join("empty"), |generation| generation.tree());
            mounts.push(KeptMount { path: inside(&keep.path, home), lower, upper, work });
        }
        Ok(mounts)
    }

    /// Removes a claim's layers while the claim continues: its next job starts from the generation again.
    ///
    /// # Errors
    /// The layers are still mounted, or cannot be removed.
    pub fn forget(&self, claim: &str) -> io::Result<()> {
        let layers = self.layers().join(claim);
        if layers.symlink_metadata().is_err() {
            return Ok(());
        }
        still(&layers)?;
        remove(&layers)
    }

    /// Ends a claim: the layers of these names become generations, the others are removed.
    ///
    /// # Guarantees
    /// - A layer that is not named is never read, and no layer is left.
    /// - Each generation is the one before or the one after, even if this is interrupted.
    ///
    /// # Assumes
    /// - No process of the claim is alive.
    ///
    /// # Errors
    /// A layer is still mounted: the machine must not be used again.
    pub fn settle(
        &self,
        claim: &str,
        repository: &str,
        keep: &[Keep],
        names: &[String],
    ) -> io::Result<BTreeMap<String, Promoted>> {
        let layers = self.layers().join(claim);
        let mut became = BTreeMap::new();
        if layers.symlink_metadata().is_err() {
            return Ok(became);
        }
        still(&layers)?;
        let taken = self.taken();
        remove(&taken)?;
        // From here on a restart removes the layers, so that none is applied to a generation twice.
        fs::rename(&layers, &taken)?;
        for keep in keep.iter().filter(|keep| taken.join(&keep.name).symlink_metadata().is_ok()) {
            let promoted = if names.contains(&keep.name) {
                let promoted = self.promote(&taken.join(&keep.name), repository, keep);
                promoted.unwrap_or_else(|error| Promoted::Dropped(error.to_string()))
            } else {
                Promoted::Dropped("nobody says that it may be kept".to_owned())
            };
            became.insert(keep.name.clone(), promoted);
        }
        remove(&taken)?;
        self.make_room()?;
        Ok(became)
    }

    /// Applies a layer, which only contains changes, to the generation that its claim read, and to no other.
    fn promote(&self, layer: &Path, repository: &str, keep: &Keep) -> io::Result<Promoted> {
        let upper = layer.join("upper");
        if fs::read_dir(&upper)?.next().is_none() {
            return Ok(Promoted::Unchanged);
        }
        let base = disk::load::<Option<u64>>(&layer.join("base"))?;
        let place = self.place(&keep.name, repository, &keep.path);
        disk::private_dir(&place)?;
        let last = self.newest(&place)?;
        if base != Some(last.as_ref().map(|last| last.number)) {
            return Err(io::Error::other("the generation that it was written over is gone"));
        }
        let next = place.join(NEXT);
        remove(&next)?;
        let built = self.build(last.as_ref(), &upper, &next, repository, keep);
        let number = match built {
            Ok(()) => last.as_ref().map_or(1, |last| last.number + 1),
            Err(error) => {
                remove(&next)?;
                return Err(error);
            }
        };
        fs::rename(&next, place.join(number.to_string()))?;
        File::open(&place)?.sync_all()?;
        if let Some(last) = last {
            remove(&last.dir)?;
        }
        Ok(Promoted::As(number))
    }

    fn build(
        &self,
        last: Option<&Generation>,
        upper: &Path,
        next: &Path,
        repository: &str,
        keep: &Keep,
    ) -> io::Result<()> {
        disk::private_dir(next)?;
        let (uid, gid) = self.owner;
        let (tree, owner) = (next.join("tree"), (Uid::from_raw(uid), Gid::from_raw(gid)));
        build(last.map(Generation::tree).as_deref(), upper, &tree, owner)?;
        let merge::Size { bytes, entries } = measure(&tree)?;
        let most = u64::from(keep.max_gib) * GIB;
        if bytes > most {
            // The directory starts empty again: otherwise a generation that only grows would never be written again.
            if let Some(last) = last {
                remove(&last.dir)?;
            }
            return Err(io::Error::other(format!("{bytes} bytes are more than maxGiB {}", keep.max_gib)));
        }
        tracing::info!(name = keep.name, repository, bytes, entries, "a kept directory is written");
        let about = About {
            name: keep.name.clone(),
            repository: repository.to_owned(),
            bytes,
            max_age_days: keep.max_age_days,
        };
        disk::save(&next.join("about"), &about)?;
        Ok(rustix::fs::syncfs(File::open(next)?)?)
    }

    /// Returns the kept directories, the most recently used first, as the agent's record lists them.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn kept(&self) -> io::Result<KeptDirectories> {
        let mut all = self.all()?;
        all.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.dir.cmp(&b.dir)));
        let mut kept = KeptDirectories::new();
        for generation in all.into_iter().take(MOST_REPORTED) {
            let About { name, repository, bytes, .. } = generation.about;
            let used_at = Timestamp::try_from(generation.used).unwrap_or(Timestamp::UNIX_EPOCH);
            let used_at = runyard_core::model::millis(used_at);
            let keys = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}#{n}")));
            let key = keys.into_iter().find(|key| !kept.contains_key(key)).unwrap_or_default();
            kept.insert(key, Kept { repository, generation: generation.number, bytes, used_at });
        }
        Ok(kept)
    }

    /// Removes generations until none is too old, there are not too many, and enough of the disk is free.
    fn make_room(&self) -> io::Result<()> {
        let all = self.all()?;
        let disk = rustix::fs::statvfs(&self.root)?;
        let (free, whole) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        let floor = self.floor.unwrap_or_else(|| (whole / 10).min(FLOOR));
        let short = floor.saturating_sub(free);
        let held = |Generation { used, about, .. }: &Generation| Held {
            used: *used,
            keeps: DAY * about.max_age_days,
            bytes: about.bytes,
        };
        let held: Vec<Held> = all.iter().map(held).collect();
        for at in leaving(&held, SystemTime::from(SystemClock.now()), short) {
            tracing::info!(kept = %all[at].dir.display(), "a kept directory is removed: too old, or no room");
            remove(&all[at].dir)?;
        }
        Ok(())
    }

    fn all(&self) -> io::Result<Vec<Generation>> {
        let mut all = Vec::new();
        for place in self.places()? {
            all.extend(self.newest(&place)?);
        }
        Ok(all)
    }

    /// Returns the directories of each name and repository.
    fn places(&self) -> io::Result<Vec<PathBuf>> {
        let mut places = Vec::new();
        let names = match fs::read_dir(self.generations()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(places),
            names => names?,
        };
        for name in names {
            for place in fs::read_dir(name?.path())? {
                places.push(place?.path());
            }
        }
        Ok(places)
    }

    /// Returns the newest generation of a directory. Removes those that cannot be read.
    fn newest(&self, place: &Path) -> io::Result<Option<Generation>> {
        let mut found = numbered(place)?;
        found.retain(|(_, number)| number.is_some());
        found.sort_by_key(|(_, number)| *number);
        while let Some((dir, number)) = found.pop() {
            let read = || {
                let about = disk::load::<About>(&dir.join("about")).ok()??;
                let tree = dir.join("tree").symlink_metadata().ok()?;
                let used = dir.metadata().ok()?.modified().ok()?;
                tree.is_dir().then_some((about, used))
            };
            match (read(), number) {
                (Some((about, used)), Some(number)) => {
                    return Ok(Some(Generation { dir, number, about, used }));
                }
                (None, _) | (_, None) => remove(&dir)?,
            }
        }
        Ok(None)
    }

    /// Returns the directory for the generations of a name and a repository. Another path has another directory,
    /// because tools write their own path into their files.
    fn place(&self, name: &str, repository: &str, path: &str) -> PathBuf {
        let digest = Sha256::digest(format!("{repository}\n{path}"));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.generations().join(name).join(digest)
    }
}

/// Returns the entries of a directory, with the numbers of generations.
fn numbered(place: &Path) -> io::Result<Vec<(PathBuf, Option<u64>)>> {
    let entries = match fs::read_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries
        .map(|entry| {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            Ok((entry.path(), number))
        })
        .collect()
}

/// Sets the time of the last use to now.
fn touch(dir: &Path) -> io::Result<()> {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(rustix::fs::futimens(disk::open_dir(dir)?, &times)?)
}
