//! Walks over all file systems of the machine once, with two threads and one system call per file, to find everything
//! that the job user owns and everything else that its jobs could have changed. A file older than the first job does
//! not belong to a job: the kernel sets the times at which a file was created and last changed (btime, ctime), and no
//! job can set them back.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, RawDir, Statx, StatxFlags};
use rustix::io::Errno;

use crate::host::files::filesystems::{FilesystemKind, kinds, mounts};
use crate::host::files::remove::{ENTRIES, by_number};
use crate::host::users::ids::Ids;
use crate::system::disk;

/// The number of threads of a walk.
const THREADS: usize = 2;
/// The two access control lists of a file (`acl(5)`).
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
/// The maximum size of such a list, in bytes (`limits.h`: XATTR_SIZE_MAX).
const ACL_BYTES: usize = 64 * 1024;

/// The metadata that is requested for each file.
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// A time as file systems store it: seconds and nanoseconds.
pub(crate) type Moment = (i64, u32);

/// The parameters of a walk.
pub(crate) struct Walk<'a> {
    /// The ids of the account.
    pub(crate) ids: &'a Ids,
    /// The time at which the first job could begin; `None` if there was no job.
    pub(crate) begun: Option<Moment>,
    /// The kind of each mounted file system, by mount id.
    pub(crate) kinds: &'a BTreeMap<u64, FilesystemKind>,
    /// Directories that the account owns by right.
    pub(crate) homes: &'a BTreeSet<PathBuf>,
    /// A directory of root that no job can enter, with files that the account owns: it is skipped.
    pub(crate) kept: Option<&'a Path>,
}

/// The result of a walk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Files and directories of the account that were not created before the first job. Entries below such a directory
    /// are not listed.
    pub(crate) left: Vec<PathBuf>,
    /// Files and directories of the account that were created before the first job.
    pub(crate) older: Vec<PathBuf>,
    /// Files of other users that the account can write to, or that name it in an access control list, and that changed
    /// since the first job began.
    pub(crate) changed: Vec<PathBuf>,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.left.extend(other.left);
        self.older.extend(other.older);
        self.changed.extend(other.changed);
    }
}

/// A directory that remains to be searched.
struct Place {
    path: PathBuf,
    mount: u64,
    /// Whether the account can reach the directory.
    reached: bool,
}

/// The remaining directories, and the number of threads that may still find more.
struct WalkQueue {
    left: Vec<Place>,
    busy: usize,
    failed: Option<io::Error>,
}

impl Walk<'_> {
    /// Walks trees and all file systems mounted in them, except those of the kernel and foreign ones.
    ///
    /// # Errors
    /// Something could not be inspected.
    pub(crate) fn over(&self, trees: &[PathBuf]) -> io::Result<Found> {
        let mut left = Vec::new();
        for tree in trees {
            let found = match File::open(tree) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                open => rustix::fs::statx(
                    open.map_err(|e| disk::at(tree, &e))?,
                    c"",
                    AtFlags::EMPTY_PATH,
                    StatxFlags::MNT_ID,
                ),
            };
            let mount = mount(&found?)?;
            left.push(Place { path: tree.clone(), mount, reached: true });
        }
        let places = (Mutex::new(WalkQueue { left, busy: 0, failed: None }), Condvar::new());
        let mut all = Found::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| self.work(&places))).collect();
            for thread in threads {
                all.add(thread.join().expect("a walk does not panic"));
            }
        });
        let places = places.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        match places.failed {
            Some(error) => Err(error),
            None => Ok(all),
        }
    }

    fn work(&self, (places, told): &(Mutex<WalkQueue>, Condvar)) -> Found {
        let locked = || places.lock().unwrap_or_else(PoisonError::into_inner);
        let next = |mut guard: MutexGuard<'_, WalkQueue>| loop {
            if guard.failed.is_some() {
                return None;
            }
            if let Some(place) = guard.left.pop() {
                guard.busy += 1;
                return Some(place);
            }
            if guard.busy == 0 {
                return None;
            }
            guard = told.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        let mut found = Found::default();
        while let Some(place) = next(locked()) {
            let (mut more, looked) = (Vec::new(), &mut found);
            let result = self.look(&place, looked, &mut more);
            let mut guard = locked();
            guard.busy -= 1;
            guard.left.append(&mut more);
            if let Err(error) = result {
                guard.failed.get_or_insert_with(|| disk::at(&place.path, &error));
            }
            drop(guard);
            told.notify_all();
        }
        found
    }

    fn look(&self, place: &Place, found: &mut Found, more: &mut Vec<Place>) -> io::Result<()> {
        let dir = match disk::open_dir(&place.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            dir => dir?,
        };
        let mut buffer = [MaybeUninit::<u8>::uninit(); ENTRIES];
        let mut entries = RawDir::new(&dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            match rustix::fs::statx(&dir, name, flags, WANTED) {
                Ok(metadata) => self.judge(place, &dir, name, &metadata, found, more)?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(disk::at(&below(&place.path, name), &error.into())),
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        place: &Place,
        dir: &File,
        name: &CStr,
        metadata: &Statx,
        found: &mut Found,
        more: &mut Vec<Place>,
    ) -> io::Result<()> {
        let mount = mount(metadata)?;
        if mount != place.mount {
            match self.kind(mount)? {
                FilesystemKind::MadeUp | FilesystemKind::Foreign => return Ok(()),
                FilesystemKind::Own => {}
            }
        }
        let path = || below(&place.path, name);
        if self.kept.is_some_and(|kept| kept == path())
            && metadata.stx_uid == 0
            && metadata.stx_mode & 0o77 == 0
        {
            return Ok(());
        }
        let kind = FileType::from_raw_mode(metadata.stx_mode.into());
        let changed = (metadata.stx_ctime.tv_sec, metadata.stx_ctime.tv_nsec);
        let since = self.begun.is_some_and(|begun| changed >= begun);
        let job = self.begun.is_some_and(|begun| born(metadata).unwrap_or(changed) >= begun);
        let own = self.ids.owns(metadata.stx_uid);
        let home = own && kind == FileType::Directory && self.homes.contains(&path());
        if own && job && !home {
            found.left.push(path());
            return Ok(());
        }
        if own && !home {
            found.older.push(path());
        }
        let (mode, gid) = (metadata.stx_mode, metadata.stx_gid);
        if !own && since && place.reached && self.could_change(kind, mode, gid, dir, name)? {
            found.changed.push(path());
        }
        if kind == FileType::Directory {
            // With an access control list, the group bits may grant access to others than the group.
            let listed = || Ok::<_, io::Error>(mode & 0o010 != 0 && self.is_listed(dir, name)?);
            let reached = place.reached && (own || self.ids.may(mode, gid, 0o1) || listed()?);
            more.push(Place { path: path(), mount, reached });
        }
        Ok(())
    }

    /// Returns the kind of a mount. A file system that was mounted during the walk, for a login or by a package
    /// manager, is looked up.
    ///
    /// # Errors
    /// The kernel does not report the mount, or it was unmounted again.
    fn kind(&self, mount: u64) -> io::Result<FilesystemKind> {
        if let Some(kind) = self.kinds.get(&mount) {
            return Ok(*kind);
        }
        let now = kinds(&mounts()?);
        now.get(&mount).copied().ok_or_else(|| io::Error::other("a file system was mounted meanwhile"))
    }

    /// Returns whether jobs may write to the file, replace entries of the directory, or are named in its access control
    /// list.
    fn could_change(&self, kind: FileType, mode: u16, gid: u32, dir: &File, name: &CStr) -> io::Result<bool> {
        let open = match kind {
            FileType::RegularFile => self.ids.may(mode, gid, 0o2),
            FileType::Directory => self.ids.may(mode, gid, 0o2) && mode & 0o1000 == 0,
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Ok(false),
        };
        Ok(open || self.is_listed(dir, name)?)
    }

    /// Returns whether an access control list of the file names the account.
    fn is_listed(&self, dir: &File, name: &CStr) -> io::Result<bool> {
        let path = below(Path::new(&by_number(dir)), name);
        for list in ACLS {
            let mut entries = Vec::with_capacity(ACL_BYTES);
            match rustix::fs::lgetxattr(&path, list, rustix::buffer::spare_capacity(&mut entries)) {
                Ok(_) if names(&entries, self.ids) => return Ok(true),
                Ok(_) | Err(Errno::NODATA | Errno::NOTSUP | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

/// Returns whether an access control list grants the account anything by its user or group id. A list consists of a
/// version, followed by entries of a tag, rights and an id (`linux/posix_acl_xattr.h`).
fn names(list: &[u8], ids: &Ids) -> bool {
    let (entries, _) = list.get(4..).unwrap_or_default().as_chunks::<8>();
    entries.iter().any(|[tag, _, rights, _, id @ ..]| {
        let id = u32::from_le_bytes(*id);
        *rights != 0 && (*tag == 0x02 && ids.owns(id) || *tag == 0x08 && ids.has(id))
    })
}

fn below(dir: &Path, name: &CStr) -> PathBuf {
    dir.join(OsStr::from_bytes(name.to_bytes()))
}

/// Returns the time at which the file was created, if the file system records it: a file that a job only changed was
/// not created by it.
fn born(metadata: &Statx) -> Option<Moment> {
    let known = metadata.stx_mask & StatxFlags::BTIME.bits() != 0;
    known.then_some((metadata.stx_btime.tv_sec, metadata.stx_btime.tv_nsec))
}

fn mount(metadata: &Statx) -> io::Result<u64> {
    if metadata.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(io::Error::other(
            "this kernel does not tell which file system a file is on: 5.8 or newer is needed",
        ));
    }
    Ok(metadata.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::host::Account;

    fn ids(uid: u32) -> Ids {
        Ids::of(&Account { name: "nobody-of-that-name".to_owned(), uid, gid: uid }).unwrap()
    }

    fn walked(dir: &Path, uid: u32, begun: Option<Moment>) -> Found {
        let (ids, kinds, homes) = (ids(uid), kinds(&mounts().unwrap()), BTreeSet::new());
        let walk = Walk { ids: &ids, begun, kinds: &kinds, homes: &homes, kept: None };
        let mut found = walk.over(&[dir.to_owned()]).unwrap();
        for list in [&mut found.left, &mut found.older, &mut found.changed] {
            list.sort();
        }
        found
    }

    #[test]
    fn what_an_account_owns_is_found_links_lead_nowhere_and_what_is_older_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let own = nix::unistd::geteuid().as_raw();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), "").unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        let both = vec![dir.path().join("a"), dir.path().join("link")];
        let found = walked(dir.path(), own, Some((0, 0)));
        assert_eq!(found, Found { left: both.clone(), ..Found::default() });
        let metadata = fs::symlink_metadata(dir.path().join("link")).unwrap();
        let later = (metadata.ctime() + 1000, 0);
        for begun in [Some(later), None] {
            let older = vec![both[0].clone(), dir.path().join("a/b"), both[1].clone()];
            assert_eq!(walked(dir.path(), own, begun), Found { older, ..Found::default() });
        }
        assert_eq!(walked(&dir.path().join("gone"), own, None), Found::default());
    }

    #[test]
    fn what_is_anothers_but_could_be_changed_is_told_only_when_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let other = nix::unistd::geteuid().as_raw() + 1;
        let mode = |name: &str, mode: u32| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for name in ["tools", "sticky", "shut"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        for name in ["go", "root", "shut/open"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        for (name, bits) in
            [("tools", 0o777), ("sticky", 0o1777), ("go", 0o666), ("root", 0o644), ("shut/open", 0o666)]
        {
            mode(name, bits);
        }
        mode("shut", 0o700);
        let changed = vec![dir.path().join("go"), dir.path().join("tools")];
        assert_eq!(walked(dir.path(), other, Some((0, 0))), Found { changed, ..Found::default() });
        assert_eq!(walked(dir.path(), other, Some((i64::MAX, 0))), Found::default());
    }

    #[test]
    fn a_file_system_that_is_mounted_while_a_walk_goes_on_is_looked_up() {
        let (ids, kinds, homes) = (ids(1001), BTreeMap::new(), BTreeSet::new());
        let walk = Walk { ids: &ids, begun: None, kinds: &kinds, homes: &homes, kept: None };
        let root = mounts().unwrap().into_iter().rfind(|mount| mount.place == Path::new("/")).unwrap();
        assert_eq!(walk.kind(root.id).unwrap(), root.kind());
        let gone = walk.kind(u64::MAX).unwrap_err().to_string();
        assert_eq!(gone, "a file system was mounted meanwhile");
    }

    #[test]
    #[ignore = "makes half a million files; prints how long it looks through them"]
    fn a_walk_over_half_a_million_files_finds_the_one_of_a_job() {
        let dir = tempfile::tempdir().unwrap();
        for folder in 0..50_000 {
            let folder = dir.path().join(format!("{}/{folder}", folder % 500));
            fs::create_dir_all(&folder).unwrap();
            (0..10).for_each(|file| fs::write(folder.join(file.to_string()), "").unwrap());
        }
        let job = nix::unistd::geteuid().as_raw() + 1;
        let file = dir.path().join("77/577/job");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::chown(&file, Some(job), None).unwrap();
        let made = fs::metadata(&file).unwrap();
        let begun = (made.ctime() - 1, 0);
        for _ in 0..3 {
            let started = tokio::time::Instant::now();
            assert_eq!(walked(dir.path(), job, Some(begun)).left, std::slice::from_ref(&file));
            println!("{:?}", started.elapsed());
        }
    }

    #[test]
    fn a_list_names_an_account_by_its_number_its_groups_or_one_of_its_range() {
        let list = |tag: u8, rights: u8, id: u32| {
            let mut list = vec![2, 0, 0, 0, 0x01, 0, 6, 0, 255, 255, 255, 255, tag, 0, rights, 0];
            list.extend(id.to_le_bytes());
            list
        };
        let ids = ids(1001);
        assert!(names(&list(0x02, 4, 1001), &ids) && names(&list(0x08, 6, 1001), &ids));
        assert!(!names(&list(0x02, 0, 1001), &ids) && !names(&list(0x02, 4, 1002), &ids));
        assert!(!names(&list(0x20, 7, 1001), &ids) && !names(&[], &ids));
    }
}
