//! Registers, starts and deregisters runners with the scripts of GitHub's package, called as GitHub documents. A
//! credential is passed in the environment, which only the script's user can read, and never as an argument, which
//! everybody can read.

pub(crate) mod ahead;
mod ending;
mod freeze;
pub(crate) mod hook;
pub(crate) mod open;
pub(crate) mod refusal;
mod slot;

use std::io;
use std::path::Path;
use std::time::Duration;

use runyard_core::model::{
    ClaimId, Containers, RegistrationCredential, RemovalCredential, TroubleKind, variable_refusal,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::jail::StandingJail;
use super::{Host, disk};
use crate::host::files::layout::ClaimDirs;
use crate::host::files::output::{LISTENING, detail, judge};
use crate::host::files::{kept, output};
use crate::host::jail::{engine, network};
use crate::host::package::version::too_old;
use crate::host::runner::ahead::ScriptJails;
use crate::host::runner::refusal::HOOK;
use crate::host::scripts::shell::{ScriptEnd, finished, spawn};
use crate::host::users::processes;
use crate::host::users::processes::Process;
use crate::task::{GithubFailure, Holder, RunnerProcess, TaskOutcome};

/// Variable from which the listener takes an option (actions/runner, `CommandSettings.cs`). The listener removes the
/// variable from the environment of its workers; in `/proc` it remains visible for `config.sh`, `run.sh` and the
/// listener itself.
const TOKEN: &str = "ACTIONS_RUNNER_INPUT_TOKEN";
/// The same for the single-use configuration.
const SINGLE_USE: &str = "ACTIONS_RUNNER_INPUT_JITCONFIG";
/// Makes the listener report a runner version that GitHub no longer accepts, as distinct from a removed runner.
const TELL_DEPRECATED: &str = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE";

/// Time limit for `config.sh`, which calls GitHub several times.
const CONFIG: Duration = Duration::from_secs(180);
/// Interval at which a waiting claim checks a log or a process.
const LOOK: Duration = Duration::from_millis(20);
/// Interval at which a running runner is checked without a notification of its end: for a child, and for a runner of an
/// earlier agent.
const CHILD: Duration = Duration::from_secs(60);
const OTHER: Duration = Duration::from_millis(500);

impl Host {
    /// Registers a runner from a fresh directory.
    pub(super) async fn configure(
        &self,
        claim: &ClaimId,
        registration: &RegistrationCredential,
    ) -> TaskOutcome {
        let dirs = self.layout.claim(claim);
        let refused = match self.package() {
            Ok(package) => too_old(&package.version, &registration.url),
            Err(why) => Some(why),
        };
        if let Some(why) = refused {
            return TaskOutcome::Failed(GithubFailure::Refused(why));
        }
        let jails = match self.fresh(claim, &dirs).await {
            Ok(jails) => jails,
            Err(why) => {
                return TaskOutcome::Failed(GithubFailure::Refused(detail("no fresh directory", &why, &[])));
            }
        };
        let (own, next) = jails.unzip();
        let token = registration.token.as_deref().unwrap_or_default();
        self.hide(token);
        let mut command = self.runner_script("config.sh", &dirs.runner(), claim, &dirs, false);
        command.args(["--url", &registration.url, "--name", &registration.runner_name]);
        command.env(TOKEN, token);
        command.args(["--labels", &registration.labels.join(","), "--work", "_work"]);
        command.args(["--unattended", "--replace", "--no-default-labels", "--disableupdate"]);
        if !registration.runner_group.is_empty() {
            command.args(["--runnergroup", &registration.runner_group]);
        }
        let log = self.layout.config_log();
        let child = self.begin(command, own, &dirs, &log, false).await;
        if let Err(failure) = configured(finished(child, CONFIG).await, &log, "config.sh", token) {
            return TaskOutcome::Failed(failure);
        }
        if let Some(jail) = next {
            self.keep_runner_jail(claim, jail);
        }
        match self.keep_registration(&dirs).and_then(|()| kept::settle(&self.layout.registration())) {
            Ok(()) => TaskOutcome::Configured,
            Err(why) => TaskOutcome::Failed(GithubFailure::Refused(detail(
                "cannot save the registration",
                &why.to_string(),
                &[],
            ))),
        }
    }

    /// Starts a listener: the registered one, or a single-use one in a fresh directory.
    pub(super) async fn start(
        &self,
        claim: &ClaimId,
        holder: &Holder,
        single_use: Option<&RegistrationCredential>,
    ) -> TaskOutcome {
        match self.started(claim, holder, single_use).await {
            Ok(runner) => TaskOutcome::Started(runner),
            Err(why) => TaskOutcome::Failed(GithubFailure::Refused(why)),
        }
    }

    async fn started(
        &self,
        claim: &ClaimId,
        holder: &Holder,
        single_use: Option<&RegistrationCredential>,
    ) -> Result<RunnerProcess, String> {
        let because = |what: &'static str| move |why: io::Error| detail(what, &why.to_string(), &[]);
        let (dirs, jobs) = (self.layout.claim(claim), &holder.jobs);
        let open = jobs.single_use();
        let rootless = !open && jobs.containers == Containers::Rootless;
        engine::lacks().filter(|_| rootless).map_or(Ok(()), Err)?;
        let jail = self.place(claim, holder, single_use, &dirs).await;
        let jail = jail.map_err(|why| detail("the runner cannot be started", &why, &[]))?;
        let hook = self.write_hook(holder).map_err(because("jobs of other runs cannot be refused"))?;
        let jail = if open {
            jail
        } else {
            let kept = self.with_kept(jail, claim, holder, &dirs).await;
            kept.map_err(because("what its class keeps cannot be lent"))?
        };
        let mut command = self.runner_script("run.sh", &dirs.runner(), claim, &dirs, open);
        command.envs(jobs.environment.iter().filter(|(name, _)| variable_refusal(name).is_none()));
        if rootless {
            engine::tell(command.as_std_mut(), jobs);
        }
        command.env(TELL_DEPRECATED, "1").env(HOOK, hook);
        if let Some(config) = single_use.and_then(|registration| registration.jit_config.as_deref()) {
            command.env(SINGLE_USE, config);
        }
        let log = self.layout.run_log();
        let child = match (open, rootless) {
            (true, _) => spawn(command, &log, self.settings.group.as_ref()).await,
            (false, true) => self.begin_with_engine(command, jail, &dirs, &log).await,
            (false, false) => self.begin(command, jail, &dirs, &log, true).await,
        };
        child.and_then(|child| self.adopt(child)).map_err(because("run.sh cannot be started"))
    }

    /// Prepares the directory in which a listener starts, a fresh one if it serves one job, and returns its jail if one
    /// was prepared.
    async fn place(
        &self,
        claim: &ClaimId,
        holder: &Holder,
        single_use: Option<&RegistrationCredential>,
        dirs: &ClaimDirs,
    ) -> Result<Option<StandingJail>, String> {
        let jail = self.runner_jail(claim).await;
        if holder.jobs.single_use() {
            return self.open_machine(claim, dirs, &holder.jobs, single_use).await.map(|()| None);
        }
        match (single_use, jail) {
            (Some(_), _) => self.fresh(claim, dirs).await.map(|jails| jails.map(|(_, run)| run)),
            (None, Some(jail)) => Ok(Some(jail)),
            // An earlier agent may have started a listener and been killed before it recorded that.
            (None, None) => self.end(self.claim_scope(claim, None, None)).await.map(|_| None),
        }
    }

    fn adopt(&self, child: Child) -> io::Result<RunnerProcess> {
        let gone = || io::Error::other("it ended at once");
        let pid = i32::try_from(child.id().ok_or_else(gone)?).map_err(io::Error::other)?;
        let runner = Process::of(pid).ok_or_else(gone)?.runner_process();
        if self.settings.account.is_some() {
            // The agent's `oom_score_adj` must not apply to jobs.
            let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "0");
        }
        self.children.lock().expect("no holder panics").insert(pid, child);
        Ok(runner)
    }

    /// Returns whether a runner is still running; reaps one that ended.
    pub(super) fn still_runs(&self, runner: RunnerProcess) -> bool {
        self.reap(runner);
        processes::alive(runner)
    }

    /// Reaps a runner that has ended and is a child of this process.
    pub(super) fn reap(&self, runner: RunnerProcess) {
        let mut children = self.children.lock().expect("no holder panics");
        if let Some(child) = children.get_mut(&runner.pid)
            && !matches!(child.try_wait(), Ok(None))
        {
            children.remove(&runner.pid);
        }
    }

    /// Waits for the end of a runner, regardless of the agent that started it. The kernel reports the end of a child; a
    /// runner of an earlier agent has another parent by now and is polled.
    pub(super) async fn ended(&self, runner: RunnerProcess) {
        let mut deaths = signal(SignalKind::child());
        let own = deaths.is_ok() && self.children.lock().expect("no holder panics").contains_key(&runner.pid);
        let untold = if own { CHILD } else { OTHER };
        while self.still_runs(runner) {
            let told = async {
                match &mut deaths {
                    Ok(deaths) => {
                        deaths.recv().await;
                    }
                    Err(_) => std::future::pending().await,
                }
            };
            let _ = timeout(untold, told).await;
        }
    }

    /// Waits until the runner ends, or refuses a job, or until the job of a slot begins.
    pub(super) async fn served(&self, runner: RunnerProcess, slot: Option<&Holder>) -> TaskOutcome {
        tokio::select! {
            () = self.ended(runner) => self.how_it_ended(),
            () = self.refused() => TaskOutcome::Intruded,
            job = self.began(slot) => TaskOutcome::Began(job),
        }
    }

    /// Interprets the end of the runner from its log.
    pub(super) fn how_it_ended(&self) -> TaskOutcome {
        let said = output::end_of(&self.layout.run_log());
        TaskOutcome::Ended { worked: ending::worked(&said), end: ending::end_of_listener(&said) }
    }

    /// Waits until the runner listens, or until there is an obstacle other than `known`.
    pub(super) async fn listen(
        &self,
        claim: &ClaimId,
        runner: RunnerProcess,
        known: Option<TroubleKind>,
    ) -> TaskOutcome {
        let dirs = self.layout.claim(claim);
        loop {
            let alive = self.still_runs(runner);
            let said = output::end_of(&self.layout.run_log());
            match (said.contains(LISTENING), alive) {
                (true, true) => {
                    // A single-use runner has its registration only now; without the saved files, its removal will
                    // fail.
                    if !kept::is_settled(&self.layout.registration())
                        && let Err(error) = self.keep_registration(&dirs)
                    {
                        tracing::warn!(%error, "cannot save the registration");
                    }
                    return TaskOutcome::Listening;
                }
                (true | false, false) => return self.how_it_ended(),
                (false, true) => match ending::trouble(&said) {
                    Some(trouble) if known != Some(trouble.kind) => return TaskOutcome::Troubled(trouble),
                    Some(_) | None => sleep(LOOK).await,
                },
            }
        }
    }

    /// Removes the runner from GitHub, with a package that no job has touched and the registration as it was first
    /// made.
    pub(super) async fn deregister(&self, claim: &ClaimId, removal: &RemovalCredential) -> TaskOutcome {
        let dirs = self.layout.claim(claim);
        if let Err(why) = self.with_registration(&dirs, dirs.removal()).await {
            let why = detail("no fresh directory to deregister from", &why.to_string(), &[]);
            return TaskOutcome::Failed(GithubFailure::Refused(why));
        }
        let mut command = self.runner_script("config.sh", &dirs.removal(), claim, &dirs, false);
        command.arg("remove").env(TOKEN, &removal.token);
        self.hide(&removal.token);
        let log = self.layout.config_log();
        let end = finished(self.begin(command, None, &dirs, &log, false).await, CONFIG).await;
        match configured(end, &log, "config.sh remove", &removal.token) {
            Ok(()) => TaskOutcome::Deregistered,
            // Another party removed it first, or a response was lost.
            Err(_) if output::is_gone(&output::end_of(&log)) => TaskOutcome::Deregistered,
            Err(failure) => TaskOutcome::Failed(failure),
        }
    }

    /// Starts a script of the package; if jobs are isolated, in the given jail or in a new one. A script with `lasts`
    /// outlives this agent; any other is killed when its future is dropped.
    async fn begin(
        &self,
        mut command: Command,
        jail: Option<StandingJail>,
        dirs: &ClaimDirs,
        log: &Path,
        lasts: bool,
    ) -> io::Result<Child> {
        let jail = match jail {
            Some(jail) => Some(jail),
            None => self.jail_for(dirs, log, lasts, Vec::new())?,
        };
        match jail {
            Some(jail) => jail.does(&command).await,
            None => {
                command.kill_on_drop(!lasts);
                spawn(command, log, self.settings.group.as_ref()).await
            }
        }
    }

    /// Starts a script that lasts and runs containers.
    async fn begin_with_engine(
        &self,
        command: Command,
        jail: Option<StandingJail>,
        dirs: &ClaimDirs,
        log: &Path,
    ) -> io::Result<Child> {
        let jail = match jail {
            Some(jail) => Some(jail),
            None => self.jail_for(dirs, log, true, Vec::new())?,
        };
        let jail = jail.ok_or_else(|| io::Error::other("no containers without isolation.required"))?;
        jail.does_with_engine(&command).await
    }

    /// Prepares an empty directory for a runner, with the package in it and no process of the claim: the prepared one,
    /// or else a new one without jails.
    async fn fresh(&self, claim: &ClaimId, dirs: &ClaimDirs) -> Result<ScriptJails, String> {
        if let Some(jails) = self.prepared(claim, dirs).await {
            return Ok(jails);
        }
        self.forget_next();
        self.end(self.claim_scope(claim, None, None)).await?;
        self.can_be_cleaned().await?;
        if self.settings.isolation.is_some() {
            network::cut().await.map_err(|why| format!("{why:#}"))?;
        }
        let files = async {
            self.make_fresh(dirs).await?;
            self.furnished(dirs.runner(), self.share()).await?;
            self.hand_over(dirs).await
        };
        // The check needs the processor, the files need the disk; the directory is still empty, so the check could
        // reach nothing in it.
        let (isolated, files) = tokio::join!(self.isolated(None), files);
        isolated.and(files.map_err(|e| e.to_string())).map(|()| None)
    }

    pub(super) fn keep_registration(&self, dirs: &ClaimDirs) -> io::Result<()> {
        let kept = self.layout.registration();
        disk::private_dir(&kept)?;
        let own = || nix::unistd::geteuid().as_raw();
        let owner = self.settings.account.as_ref().map_or_else(own, |account| account.uid);
        kept::copy(&dirs.runner(), owner, &kept)
    }

    /// Returns whether a runner's directory contains a registration.
    pub(super) fn looks_registered(&self, claim: &ClaimId) -> bool {
        self.layout.claim(claim).runner().join(kept::REGISTERED).symlink_metadata().is_ok()
    }
}

/// Interprets the end of `config.sh`.
fn configured(end: ScriptEnd, log: &Path, script: &str, token: &str) -> Result<(), GithubFailure> {
    let said = output::end_of(log);
    match end {
        ScriptEnd::Done => Ok(()),
        ScriptEnd::TimedOut => Err(GithubFailure::Unreachable(detail(
            &format!("{script} took longer than {CONFIG:?}"),
            &said,
            &[token],
        ))),
        ScriptEnd::Failed(how) => Err(judge(&said, detail(&format!("{script} {how}"), &said, &[token]))),
    }
}
