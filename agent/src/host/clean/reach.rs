//! Finds foreign file systems (network, FUSE) that a job could write to, since the agent does not clean these. The
//! agent's own program checks this as the job user before a runner is registered and again after its claim.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use super::sweep::SweepPaths;
use crate::host::Account;
use crate::host::files::filesystems::{Mount, foreign, mounts};
use crate::host::users::child::as_user;

/// The number of entries after which a file system counts as writable.
const ENOUGH: usize = 10_000;

/// Returns whether this process's user can write anywhere below a path, as far as this can be determined.
fn can_write_below(place: &Path) -> bool {
    let (mut open, mut seen) = (vec![place.to_owned()], 0);
    let own = nix::unistd::geteuid().as_raw();
    while let Some(path) = open.pop() {
        seen += 1;
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let writes = || rustix::fs::accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        // The target of a link is outside this tree. The owner of a file can give itself access.
        if !metadata.is_symlink() && (metadata.uid() == own || writes()) || seen >= ENOUGH {
            return true;
        }
        if metadata.is_dir()
            && let Ok(entries) = fs::read_dir(&path)
        {
            open.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    false
}

/// Checks that jobs cannot write to foreign file systems, except those that the machine's owner spares.
///
/// # Errors
/// The file systems that they can write to, with the fix.
pub(crate) fn keeps_to_its_own(account: &Account, places: &SweepPaths) -> io::Result<()> {
    let mounts = mounts()?;
    let foreign = foreign(&mounts, &places.spare);
    if foreign.is_empty() {
        return Ok(());
    }
    let words = std::iter::once(OsString::from("reach"));
    let words: Vec<_> = words.chain(foreign.iter().map(|mount| mount.place.clone().into())).collect();
    let said = as_user(&places.program, account, &words)?;
    let written = |mount: &&Mount| said.lines().any(|line| Path::new(line) == mount.place);
    let named: Vec<_> = foreign
        .into_iter()
        .filter(written)
        .map(|mount| format!("{} ({})", mount.place.display(), mount.name))
        .collect();
    if named.is_empty() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "jobs can write to {}, which is not this machine's own and is never cleaned: keep {} from it, mount it read-only, \
         or accept that runs share it and name it in cleaning.spare",
        named.join(", "),
        account.name
    )))
}

/// Returns those paths below which this process's user can write, one per line.
#[must_use]
pub fn written_to(places: &[PathBuf]) -> String {
    let lines = places.iter().filter(|place| can_write_below(place));
    lines.map(|place| format!("{}\n", place.display())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_place_with_something_of_this_users_in_it_can_be_written_to() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
        assert!(can_write_below(dir.path()));
        assert!(!can_write_below(&dir.path().join("none")));
        assert_eq!(written_to(&[dir.path().join("none"), dir.path().into()]).lines().count(), 1);
    }
}
