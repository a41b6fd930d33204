//! Prepares the next claim while the machine is idle: a claim's directories with a runner, and the jails of its first
//! scripts. All of it belongs to root until the claim, and serves one claim. Anything that this agent did not create
//! itself on a clean machine, or that would be created differently now, is discarded.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use runyard_core::model::ClaimId;
use tokio::sync::OwnedMutexGuard;

use crate::host::clean::mark_begun;
use crate::host::files::layout::ClaimDirs;
use crate::host::files::remove::remove;
use crate::host::jail::{StandingJail, mounts, network};
use crate::host::package::unpacked::furnish;
use crate::host::{Host, disk};

/// The preparations for the next claim, except its directories, which are at a fixed path.
pub(crate) struct Prepared {
    jails: Option<Jails>,
    /// The parts of the machine that the jails were made of.
    made_of: String,
    /// The digest of the runner package.
    sha256: String,
}

/// The jails of a claim's first scripts.
struct Jails {
    check: StandingJail,
    config: StandingJail,
    run: StandingJail,
}

/// The jails of `config.sh` and `run.sh`; `None` if jobs are not isolated, or if the jails are created when they are
/// needed.
pub(crate) type ScriptJails = Option<(StandingJail, StandingJail)>;

impl Host {
    /// Prepares the next claim, unless this is done or in progress.
    pub(crate) async fn prepare_next(&self) {
        let Ok(package) = self.package() else { return };
        // Without the lock, because a claim may wait for it.
        let tree = match self.fetch(&package).await {
            Ok(tree) => tree,
            Err(why) => {
                tracing::warn!(why, "the next claim's runner package cannot be had yet");
                return;
            }
        };
        let Ok(mut next) = self.next.clone().try_lock_owned() else { return };
        if next.as_ref().is_some_and(|next| next.sha256 == package.sha256) {
            return;
        }
        drop(next.take());
        match self.begin_next(next, package.sha256, tree).await {
            Ok(()) => tracing::info!("the next claim is prepared"),
            Err(error) => tracing::warn!(%error, "the next claim cannot be prepared"),
        }
    }

    fn next_dirs(&self) -> ClaimDirs {
        ClaimDirs { root: self.layout.next() }
    }

    /// Creates the directories with a runner, and starts to create the jails around them. If the caller is cancelled,
    /// the directories are still completed, and a claim waits for that.
    async fn begin_next(
        &self,
        mut next: OwnedMutexGuard<Option<Prepared>>,
        sha256: String,
        tree: PathBuf,
    ) -> io::Result<()> {
        let (dirs, share) = (self.next_dirs(), self.share());
        let (fresh, isolated) = (dirs.clone(), self.settings.isolation.is_some());
        let plain = Prepared { jails: None, made_of: String::new(), sha256: sha256.clone() };
        let mut next = self
            .in_turn(move || {
                remove(&fresh.root)?;
                fresh.make()?;
                furnish(&tree, &fresh.runner(), share)?;
                *next = (!isolated).then_some(plain);
                Ok(next)
            })
            .await?;
        if !isolated {
            return Ok(());
        }
        network::cut().await.map_err(io::Error::other)?;
        let made_of = mounts::made_of()?;
        let jails = (
            self.jail_for_check()?,
            self.jail_for(&dirs, &self.layout.config_log(), false, Vec::new())?,
            self.jail_for(&dirs, &self.layout.run_log(), true, Vec::new())?,
        );
        let jails = match jails {
            (Some(check), Some(config), Some(run)) => Some(Jails { check, config, run }),
            (None, _, _) | (_, None, _) | (_, _, None) => None,
        };
        *next = Some(Prepared { jails, made_of, sha256 });
        Ok(())
    }

    /// Discards the preparations: they cannot be used for a claim in which a process was started or killed.
    /// Preparations in progress have no living jail, and are recognized by that.
    pub(crate) fn forget_next(&self) {
        drop(self.runner_jail.lock().expect("no holder panics").take());
        if let Ok(mut next) = self.next.try_lock() {
            drop(next.take());
        }
    }

    /// Returns the preparations for a claim; `None` if there are none, or if they are not in the expected state.
    pub(crate) async fn prepared(&self, claim: &ClaimId, dirs: &ClaimDirs) -> Option<ScriptJails> {
        let prepared = self.next.lock().await.take()?;
        match self.lend(prepared, claim, dirs).await {
            Ok(jails) => Some(jails),
            Err(why) => {
                tracing::warn!(why, "what was prepared for this claim is thrown away");
                None
            }
        }
    }

    async fn lend(
        &self,
        mut prepared: Prepared,
        claim: &ClaimId,
        dirs: &ClaimDirs,
    ) -> Result<ScriptJails, String> {
        self.still_good(&mut prepared).await.map_err(|why| why.to_string())?;
        self.can_be_cleaned().await?;
        let (check, scripts) = match prepared.jails {
            Some(Jails { check, config, run }) => (Some(check), Some((config, run))),
            None => (None, None),
        };
        // Before the check, which runs as the job user.
        let (alone, moved) =
            tokio::join!(self.claim_scope(claim, None, None).prove_empty(), self.move_next(dirs));
        alone.and(moved.map_err(|e| e.to_string()))?;
        let (isolated, given) = tokio::join!(self.isolated(check), self.hand_over(dirs));
        isolated.and(given.map_err(|e| e.to_string())).map(|()| scripts)
    }

    /// Checks that the preparations are unchanged, and would be the same if they were made now.
    async fn still_good(&self, prepared: &mut Prepared) -> io::Result<()> {
        let package = self.package().map_err(io::Error::other)?;
        if package.sha256 != prepared.sha256 {
            return Err(io::Error::other("the claim names another runner package"));
        }
        let tree = self.tree(&package);
        tree.symlink_metadata().map_err(|e| disk::at(&tree, &e))?;
        let next = self.layout.next();
        let found = next.symlink_metadata().map_err(|e| disk::at(&next, &e))?;
        let own = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw();
        if !own || found.mode() & 0o7777 != 0o700 {
            return Err(io::Error::other(format!("{}: not as it was made", next.display())));
        }
        let Some(jails) = &mut prepared.jails else { return Ok(()) };
        if mounts::made_of()? != prepared.made_of {
            return Err(io::Error::other("the machine's disks, devices or resolvers are others now"));
        }
        for jail in [&mut jails.check, &mut jails.config, &mut jails.run] {
            jail.stands().await?;
        }
        Ok(())
    }

    /// Moves the prepared directories to the claim's path in one step.
    async fn move_next(&self, dirs: &ClaimDirs) -> io::Result<()> {
        let (next, root, mark) = (self.layout.next(), dirs.root.clone(), self.layout.begun());
        let mounts = self.mounts.clone();
        self.in_turn(move || {
            mark_begun(&mark, mounts.as_ref())?;
            remove(&root)?;
            fs::rename(&next, &root).map_err(|e| disk::at(&root, &e))
        })
        .await
    }

    /// Returns the jail that was prepared for a claim's runner, once.
    pub(crate) async fn runner_jail(&self, claim: &ClaimId) -> Option<StandingJail> {
        let kept = self.runner_jail.lock().expect("no holder panics").take();
        let (_, mut jail) = kept.filter(|(of, _)| of == claim)?;
        jail.stands().await.is_ok().then_some(jail)
    }

    pub(crate) fn keep_runner_jail(&self, claim: &ClaimId, jail: StandingJail) {
        *self.runner_jail.lock().expect("no holder panics") = Some((claim.clone(), jail));
    }
}
