//! Is nothing left of a claim? No process that is its, no directory it could write to. What cannot be proved is said to
//! be unproved.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use runyard::model::ClaimId;

use super::layout::ClaimDirs;
use super::output::detail;
use super::sweep::sweep;
use super::{Account, Host, disk, processes};
use crate::work::{Leader, Outcome};

impl Host {
    /// Ends the runner, by asking first, and then everything else of the claim.
    pub(super) async fn stop(&self, claim: &ClaimId, leader: Option<Leader>, since: Option<u64>) -> Outcome {
        if let Some(leader) = leader.filter(|leader| self.is_alive(*leader)) {
            processes::interrupt(leader);
            if tokio::time::timeout(self.settings.stop, self.ended(leader)).await.is_err() {
                tracing::warn!(%claim, "the runner does not finish; it is killed");
            }
        }
        match self.end(self.claim_scope(claim, leader, since)).await {
            Ok(()) => {
                leader.map(|leader| self.is_alive(leader));
                Outcome::Stopped { registered: self.looks_registered(claim) }
            }
            Err(left) => Outcome::Unproved(detail("its processes", &left, &[])),
        }
    }

    /// Removes what the claim could write to.
    pub(super) async fn wipe(&self, claim: &ClaimId, since: Option<u64>) -> Outcome {
        if let Err(left) = self.end(self.claim_scope(claim, None, since)).await {
            return Outcome::Unproved(detail("its processes", &left, &[]));
        }
        if let Err(why) = self.after(claim, since).await {
            return Outcome::Unproved(why);
        }
        let (claims, registration, logs) =
            (self.layout.claims(), self.layout.registration(), self.layout.logs());
        let (account, places) = (self.settings.account.clone(), self.settings.places.clone());
        let wiping = self.in_turn(move || {
            remove(&registration)?;
            empty(&claims)?;
            empty(&logs)?;
            account.map_or(Ok(()), |account| sweep(&account, &places))
        });
        if let Err(error) = wiping.await {
            return Outcome::Unproved(detail("what it left", &error.to_string(), &[]));
        }
        // A clean-up that was watched may have been answered: nothing may have come back to life.
        match self.end(self.claim_scope(claim, None, since)).await {
            Ok(()) => Outcome::Wiped,
            Err(left) => Outcome::Unproved(detail("its processes", &left, &[])),
        }
    }

    /// Makes the directories of a claim anew. No job gets into them before they are handed over, so that what is done
    /// in them meanwhile needs to mind no links.
    pub(super) async fn make_fresh(&self, dirs: &ClaimDirs) -> io::Result<()> {
        let dirs = dirs.clone();
        self.in_turn(move || {
            remove(&dirs.root)?;
            [&dirs.root, &dirs.home(), &dirs.tmp(), &dirs.var_tmp()]
                .into_iter()
                .try_for_each(|dir| disk::private_dir(dir))
        })
        .await
    }

    /// Gives the directories of a claim, as they are now, to the user jobs run as.
    pub(super) async fn hand_over(&self, dirs: &ClaimDirs) -> io::Result<()> {
        let Some(account) = self.settings.account.clone() else { return Ok(()) };
        let root = dirs.root.clone();
        self.in_turn(move || give(&root, &account)).await
    }
}

/// Gives a tree to the user jobs run as. Its root comes last: until then it keeps everybody out who could put a link in
/// the place of what was given already.
fn give(tree: &Path, account: &Account) -> io::Result<()> {
    if tree.symlink_metadata().map_err(|e| disk::at(tree, &e))?.is_dir() {
        for entry in fs::read_dir(tree)? {
            give(&entry?.path(), account)?;
        }
    }
    lchown(tree, Some(account.uid), Some(account.gid)).map_err(|e| disk::at(tree, &e))
}

/// Empties a directory and makes sure that it is one and is empty.
fn empty(dir: &Path) -> io::Result<()> {
    if !dir.symlink_metadata().map_err(|e| disk::at(dir, &e))?.is_dir() {
        return Err(io::Error::other(format!("{} is not a directory any more", dir.display())));
    }
    for entry in fs::read_dir(dir)? {
        remove(&entry?.path())?;
    }
    match fs::read_dir(dir)?.next() {
        None => Ok(()),
        Some(_) => Err(io::Error::other(format!("{} does not become empty", dir.display()))),
    }
}

/// Removes a file or a tree. Directories that their owner locked are opened first, but not by root, who is not locked out
/// and would follow links in doing so.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(disk::at(path, &error)),
    };
    if !metadata.is_dir() {
        return fs::remove_file(path).map_err(|e| disk::at(path, &e));
    }
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        unlock(path);
    }
    fs::remove_dir_all(path).map_err(|e| disk::at(path, &e))
}

fn unlock(dir: &Path) {
    let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_locked_linked_or_hid_goes_and_what_it_points_at_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (claims, outside) = (dir.path().join("claims"), dir.path().join("outside"));
        fs::create_dir_all(claims.join("a/locked/deep")).unwrap();
        fs::write(claims.join("a/locked/.hidden"), "x").unwrap();
        fs::set_permissions(claims.join("a/locked"), Permissions::from_mode(0o000)).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, claims.join("a/link")).unwrap();
        std::os::unix::fs::symlink(&outside, claims.join("b")).unwrap();
        empty(&claims).unwrap();
        assert!(fs::read_dir(&claims).unwrap().next().is_none());
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn a_directory_of_claims_that_became_a_link_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let claims = dir.path().join("claims");
        std::os::unix::fs::symlink(dir.path(), &claims).unwrap();
        assert!(empty(&claims).unwrap_err().to_string().contains("not a directory"));
        assert!(empty(&dir.path().join("gone")).is_err());
    }
}
