//! Runs the isolation check as the job user before each registration. A machine that is not isolated registers no
//! runner.

use std::collections::BTreeSet;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::jail::{ITSELF, Jail, StandingJail};
use super::{Account, Host};
use crate::host::files::layout::ClaimDirs;
use crate::host::files::output::detail;
use crate::host::jail::kept_mount::KeptMount;
use crate::host::users::account;
use crate::isolation_check::{Targets, arguments};
use crate::system::disk;

/// IPv6 address of the metadata service (EC2's own; no machine has another).
const METADATA_6: &str = "http://[fd00:ec2::254]";
/// Time limit for the isolation check.
const LIMIT: Duration = Duration::from_secs(30);

/// The settings of the isolation check.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// The agent's own program.
    pub program: PathBuf,
    /// The agent's own configuration.
    pub config: PathBuf,
    /// The metadata service.
    pub metadata: reqwest::Url,
    /// The job user's home directory, which is empty and owned by root except in a job's own view of it.
    pub home: PathBuf,
}

impl Host {
    /// Describes the jail of a job with the directories of a claim. Returns `None` if jobs are not isolated.
    fn jail(&self, dirs: Option<&ClaimDirs>, kept: Vec<KeptMount>) -> Option<Jail> {
        let (isolation, account) = (self.settings.isolation.as_ref()?, self.settings.account.as_ref()?);
        Some(Jail {
            uid: account.uid,
            gid: account.gid,
            link: self.links.fetch_add(1, Ordering::Relaxed),
            scaffold: self.layout.scaffold(),
            claim: dirs.map(|dirs| dirs.root.clone()),
            inside: self.layout.inside().root,
            home: isolation.home.clone(),
            hidden: self.hidden(account),
            hook: self.layout.hook(),
            programs: dirs.and_then(|_| Some(self.tree(&self.package().ok()?))),
            kept,
        })
    }

    /// Returns the directories that are hidden from jobs: the agent's own, and the first directory above them that a
    /// job could not list. GitHub's runner must be able to list all directories above its own.
    fn hidden(&self, account: &Account) -> Vec<PathBuf> {
        let above = self.layout.unlisted(Some(account));
        above.into_iter().chain(self.layout.hidden()).collect()
    }

    /// Starts to create a jail with the directories of a claim, for a script that writes to a new log. Returns `None`
    /// if jobs are not isolated. A script with `lasts` outlives this agent; `kept` are the directories that it gets
    /// from earlier claims.
    pub(super) fn jail_for(
        &self,
        dirs: &ClaimDirs,
        log: &Path,
        lasts: bool,
        kept: Vec<KeptMount>,
    ) -> io::Result<Option<StandingJail>> {
        let (Some(jail), Some(isolation)) = (self.jail(Some(dirs), kept), &self.settings.isolation) else {
            return Ok(None);
        };
        let out = disk::create_anew(log)?;
        let output = (out.try_clone()?.into(), out.into());
        let mut command = self.script(&isolation.program, &isolation.home, Path::new("/tmp"));
        command.kill_on_drop(!lasts);
        StandingJail::begin(command, &jail, output, self.settings.group.as_ref()).map(Some)
    }

    /// Starts to create the jail of the isolation check, which has no claim's directories.
    pub(super) fn jail_for_check(&self) -> io::Result<Option<StandingJail>> {
        let (Some(jail), Some(isolation)) = (self.jail(None, Vec::new()), &self.settings.isolation) else {
            return Ok(None);
        };
        let mut command = self.script(&isolation.program, &isolation.home, Path::new("/tmp"));
        command.kill_on_drop(true);
        StandingJail::begin(command, &jail, (Stdio::piped(), Stdio::piped()), None).map(Some)
    }

    /// Checks that jobs are isolated from the machine, in the given jail if there is one, or in a new one.
    ///
    /// # Errors
    /// The resources that jobs could reach, or the reason why this cannot be determined.
    pub(super) async fn isolated(&self, standing: Option<StandingJail>) -> Result<(), String> {
        let (Some(isolation), Some(account)) = (&self.settings.isolation, &self.settings.account) else {
            return Ok(());
        };
        let ways = account::ways_back(Path::new("/etc"), account, &isolation.home);
        let ways = ways.map_err(|why| why.to_string())?;
        if !ways.is_empty() {
            return Err(format!("{} can come back after its jobs: {}", account.name, ways.join("; ")));
        }
        let (state, work) = (&self.settings.state_dir, &self.settings.work_dir);
        let mut fixed = vec![isolation.program.clone(), work.clone(), self.layout.claims()];
        fixed.extend(above([&isolation.program, &isolation.config, state, work], account));
        let cannot = |why: String| format!("whether jobs are isolated cannot be told: {why}");
        // Connections are never accepted; that one can be established is sufficient.
        let machine = TcpListener::bind("0.0.0.0:0").map_err(|why| cannot(why.to_string()))?;
        let targets = Targets {
            metadata: vec![isolation.metadata.clone(), METADATA_6.parse().expect("it is an address")],
            // The process that created the jail.
            agent: 1,
            machine: Some(machine.local_addr().map_err(|why| cannot(why.to_string()))?.port()),
            secret: vec![
                isolation.config.clone(),
                state.clone(),
                state.join("key"),
                state.join("state"),
                state.join("threshold"),
                self.layout.registration(),
                self.layout.package(),
                self.layout.logs(),
            ],
            fixed,
        };
        let jail = match standing {
            Some(jail) => Some(jail),
            None => self.jail_for_check().map_err(|why| cannot(why.to_string()))?,
        };
        let Some(jail) = jail else { return Ok(()) };
        let mut command = self.script(Path::new(ITSELF), &isolation.home, Path::new("/tmp"));
        command.arg("probe").args(arguments(&targets)).current_dir("/");
        let run = async { jail.does(&command).await?.wait_with_output().await };
        let output = tokio::time::timeout(LIMIT, run)
            .await
            .map_err(|_| cannot(format!("the isolation check took longer than {LIMIT:?}")))?
            .map_err(|e| cannot(e.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => Ok(()),
            Some(1) => Err(detail("jobs are not isolated from this machine", &said, &[])),
            Some(_) | None => Err(cannot(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }
}

/// Returns the directories above these paths. A user who can change a directory can replace its entries, unless it is a
/// sticky directory of another user, in which everybody can rename their own entries only.
fn above<const N: usize>(paths: [&PathBuf; N], account: &Account) -> BTreeSet<PathBuf> {
    let sticks = |dir: &Path| {
        dir.metadata().is_ok_and(|metadata| metadata.mode() & 0o1000 != 0 && metadata.uid() != account.uid)
    };
    let whole = paths.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let above = whole.iter().flat_map(|path| path.ancestors().skip(1));
    above.filter(|dir| !sticks(dir)).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_parent_directory_is_tried_except_sticky_ones() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().canonicalize().unwrap().join("shared");
        let work = shared.join("yard/work");
        fs::create_dir_all(&work).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        let owner = nix::unistd::geteuid().as_raw();
        let tried = |uid| above([&work], &Account { name: "j".to_owned(), uid, gid: uid });
        let found = tried(owner + 1);
        assert!(found.contains(&shared.join("yard")) && found.contains(Path::new("/")), "{found:?}");
        assert!(!found.contains(&shared) && !found.contains(&work), "{found:?}");
        assert!(tried(owner).contains(&shared), "it is the job's own");
    }
}
