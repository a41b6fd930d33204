//! Executes a job: its steps one after the other, each a real shell script, until one fails or the job is cancelled.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::Command;

use super::super::http::wire::Assignment;
use super::super::settings_file::RunnerConfig;
use super::super::shared_state::secret;
use super::super::state::Conclusion;
use super::containers::{Containers, Places};
use super::demands;
use super::files::DIAG;
use super::process::{Step, sweep};

/// The most of a job's output that is reported.
const LOG_BYTES: u64 = 16 * 1024;
/// The variable by which the real runner, too, finds leftover processes of a job.
const TRACKING: &str = "RUNNER_TRACKING_ID";

/// A step with this first line runs even after a failure, a hook or a cancellation: the real runner has no other way to
/// fail a job than to continue with the steps that always run (actions/runner, `StepsRunner.cs`).
const ALWAYS: &str = "# if: always()";

/// The line in the log of a job whose runner is stopped (actions/runner, `JobRunner.cs:133`).
const SHUTDOWN: &str = "##[error]The runner has received a shutdown signal. This can happen when the runner service is \
                        stopped, or a manually started runner is canceled.";

/// The outcome of a job.
pub(super) struct Outcome {
    pub(super) conclusion: Conclusion,
    pub(super) exit_code: Option<i32>,
    pub(super) log: String,
}

/// How urgently a job must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// Its step gets SIGINT, SIGTERM, then SIGKILL; then the steps that always run follow.
    Cancelled,
    /// The runner is stopped: its step gets SIGINT, SIGTERM, then SIGKILL. The signal goes to the job's processes as
    /// well, so a step that it ends is a failed step: the next step that always runs begins, and is cancelled at once.
    /// After a step that needed more than SIGINT no step follows (seen with 2.336.0; `StepsRunner.cs:205`).
    Shutdown,
    /// Its step is killed.
    Now,
}

/// Runs the job, its hook first, once its worker has started; `end` yields when the job must end early, and again when
/// that must not take long.
pub(super) async fn execute(
    root: &Path,
    config: &RunnerConfig,
    assignment: &Assignment,
    hook: Option<&Path>,
    start: Duration,
    end: &mut tokio::sync::watch::Receiver<Option<End>>,
) -> Outcome {
    let _ = tokio::time::timeout(start, wanted(end, End::Cancelled)).await;
    match prepare(root, config, assignment) {
        Ok(place) => place.run(config, assignment, hook, end).await,
        Err(problem) => failed(&problem),
    }
}

fn failed(problem: &io::Error) -> Outcome {
    Outcome {
        conclusion: Conclusion::Failure,
        exit_code: None,
        log: format!("The runner failed: {problem}\n"),
    }
}

/// The working environment of a job.
struct Place {
    workspace: PathBuf,
    temp: PathBuf,
    log: File,
    log_path: PathBuf,
    /// Marks the job's processes; unique among all runners of the machine.
    tracking: String,
    containers: Option<Containers>,
}

fn prepare(root: &Path, config: &RunnerConfig, assignment: &Assignment) -> io::Result<Place> {
    let repository = assignment.repository.rsplit('/').next().unwrap_or_default();
    let work = root.join(&config.work_folder);
    let workspace = work.join(repository).join(repository);
    demands::work_folder(&work).map_err(io::Error::other)?;
    let temp = work.join("_temp");
    if temp.exists() {
        fs::remove_dir_all(&temp)?;
    }
    fs::create_dir_all(&workspace)?;
    fs::create_dir_all(&temp)?;
    let pages = root.join(DIAG).join("pages");
    fs::create_dir_all(&pages)?;
    let log_path = pages.join(format!("{}.log", assignment.job_id));
    let log = OpenOptions::new().create(true).append(true).open(&log_path)?;
    let tracking = format!("github_{}", secret());
    let places = Places { root, work: &work, workspace: &workspace, temp: &temp };
    let containers = Containers::of(&assignment.spec, &places, &log)?;
    Ok(Place { workspace, temp, log, log_path, tracking, containers })
}

impl Place {
    async fn run(
        mut self,
        config: &RunnerConfig,
        assignment: &Assignment,
        hook: Option<&Path>,
        end: &mut tokio::sync::watch::Receiver<Option<End>>,
    ) -> Outcome {
        let ended = self.steps(config, assignment, hook, end).await;
        if let (Some(containers), false) = (&self.containers, *end.borrow() >= Some(End::Shutdown))
            && let Err(problem) = containers.stop().await
        {
            return failed(&problem);
        }
        // Only now: a process that a step leaves in the background may serve the next one.
        sweep(TRACKING, &self.tracking);
        match ended
            .and_then(|(conclusion, exit_code)| Ok(Outcome { conclusion, exit_code, log: self.tail()? }))
        {
            Ok(outcome) => outcome,
            Err(problem) => failed(&problem),
        }
    }

    async fn steps(
        &mut self,
        config: &RunnerConfig,
        assignment: &Assignment,
        hook: Option<&Path>,
        end: &mut tokio::sync::watch::Receiver<Option<End>>,
    ) -> io::Result<(Conclusion, Option<i32>)> {
        let (mut result, mut exit_code) = (Conclusion::Success, None);
        // It may end before its first step.
        if let Some(early) = *end.borrow() {
            result = self.over(early)?;
            if early >= End::Shutdown {
                return Ok((result, exit_code));
            }
        }
        let steps = assignment.spec.steps.iter().enumerate().map(Some);
        for what in hook.map(|_| None).into_iter().chain(steps) {
            if what.is_some_and(|(index, _)| index == 0) && result == Conclusion::Success {
                result = self.start_containers(end).await?;
                if *end.borrow() >= Some(End::Shutdown) {
                    return Ok((result, exit_code));
                }
            }
            let mut step = match (what, hook) {
                (Some((_, script)), _)
                    if result != Conclusion::Success && !script.trim_start().starts_with(ALWAYS) =>
                {
                    continue;
                }
                (Some((index, script)), _) => self.start(config, assignment, index, script)?,
                (None, Some(hook)) if result == Conclusion::Success => {
                    self.start_hook(config, assignment, hook)?
                }
                (None, _) => continue,
            };
            // A step that always runs is not asked to end a second time.
            let urgency = if result == Conclusion::Cancelled { End::Shutdown } else { End::Cancelled };
            let status = match finish(&mut step, end, urgency).await {
                Ended::Itself(status) => status?,
                Ended::Cut { asked } => {
                    let how = end.borrow().unwrap_or(End::Now);
                    result = self.over(how)?;
                    if how >= End::Shutdown {
                        let next = what.map_or(0, |(index, _)| index + 1);
                        if how == End::Shutdown && asked {
                            self.begin_always(config, assignment, next).await?;
                        }
                        return Ok((result, exit_code));
                    }
                    continue;
                }
            };
            (result, exit_code) = after_step((result, exit_code), code(status));
        }
        Ok((result, exit_code))
    }

    /// Returns the conclusion of a job that was ended from outside.
    fn over(&mut self, how: End) -> io::Result<Conclusion> {
        match how {
            End::Cancelled => Ok(Conclusion::Cancelled),
            End::Shutdown | End::Now => {
                writeln!(self.log, "{SHUTDOWN}")?;
                Ok(Conclusion::Failure)
            }
        }
    }

    /// Begins the next step that always runs, and cancels it at once.
    async fn begin_always(
        &mut self,
        config: &RunnerConfig,
        assignment: &Assignment,
        from: usize,
    ) -> io::Result<()> {
        let mut rest = assignment.spec.steps.iter().enumerate().skip(from);
        if let Some((index, script)) = rest.find(|(_, script)| script.trim_start().starts_with(ALWAYS)) {
            self.start(config, assignment, index, script)?.stop().await;
        }
        Ok(())
    }

    /// Starts the containers of a job and returns the conclusion.
    async fn start_containers(
        &mut self,
        end: &mut tokio::sync::watch::Receiver<Option<End>>,
    ) -> io::Result<Conclusion> {
        let Some(containers) = &mut self.containers else { return Ok(Conclusion::Success) };
        let why = tokio::select! {
            started = containers.start() => match started? {
                Ok(()) => return Ok(Conclusion::Success),
                Err(why) => why,
            },
            how = wanted(end, End::Cancelled) => return self.over(how),
        };
        writeln!(self.log, "##[error]{why}")?;
        Ok(Conclusion::Failure)
    }

    /// Starts the hook that the machine's owner configured to run before a job: with GitHub's information about the
    /// job, and none from the job itself.
    fn start_hook(
        &mut self,
        config: &RunnerConfig,
        assignment: &Assignment,
        hook: &Path,
    ) -> io::Result<Step> {
        writeln!(self.log, "A job started hook has been configured by the self-hosted runner administrator")?;
        if !hook.is_file() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "File doesn't exist"));
        }
        let command = self.shell(config, assignment, hook)?;
        Step::start(command, &self.log)
    }

    fn start(
        &mut self,
        config: &RunnerConfig,
        assignment: &Assignment,
        index: usize,
        script: &str,
    ) -> io::Result<Step> {
        let first_line = script.trim().lines().next().unwrap_or_default();
        writeln!(self.log, "##[group]Run {first_line}")?;
        let file = self.temp.join(format!("step-{index}.sh"));
        let filled = self.containers.as_ref().map(|containers| containers.filled(script));
        fs::write(&file, filled.as_deref().unwrap_or(script))?;
        let mut command = self.shell(config, assignment, &file)?;
        command.envs(&assignment.spec.env);
        if let Some(containers) = &self.containers {
            let own = self
                .environment(config, assignment)?
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            let own: Vec<_> = own.chain(assignment.spec.env.clone()).collect();
            command = containers.exec(&file, &own).unwrap_or(command);
        }
        Step::start(command, &self.log)
    }

    fn shell(&self, config: &RunnerConfig, assignment: &Assignment, script: &Path) -> io::Result<Command> {
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-e", "-o", "pipefail"]).arg(script);
        command.current_dir(&self.workspace);
        for input in
            ["INPUT_TOKEN", "INPUT_JITCONFIG", "INPUT_URL", "INPUT_NAME", "INPUT_LABELS", "STAND_IN_BEGAN"]
        {
            command.env_remove(format!("ACTIONS_RUNNER_{input}"));
        }
        command.envs(self.environment(config, assignment)?);
        Ok(command)
    }

    fn environment(
        &self,
        config: &RunnerConfig,
        assignment: &Assignment,
    ) -> io::Result<Vec<(&'static str, String)>> {
        let path = |path: &Path| path.display().to_string();
        let owner = assignment.repository.split('/').next().unwrap_or_default().to_owned();
        let mut all = vec![
            ("CI", "true".to_owned()),
            ("GITHUB_ACTIONS", "true".to_owned()),
            ("GITHUB_SERVER_URL", config.url.clone()),
            ("GITHUB_API_URL", config.url.clone()),
            ("GITHUB_REPOSITORY", assignment.repository.clone()),
            ("GITHUB_REPOSITORY_OWNER", owner),
            ("GITHUB_RUN_ID", assignment.run_id.to_string()),
            ("GITHUB_RUN_ATTEMPT", assignment.attempt.to_string()),
            ("GITHUB_WORKFLOW", assignment.workflow.clone()),
            ("GITHUB_JOB", assignment.spec.name.clone()),
            ("GITHUB_WORKSPACE", path(&self.workspace)),
            ("RUNNER_NAME", config.name.clone()),
            ("RUNNER_OS", "Linux".to_owned()),
            ("RUNNER_ARCH", "X64".to_owned()),
            ("RUNNER_TEMP", path(&self.temp)),
            (TRACKING, self.tracking.clone()),
        ];
        for (name, file) in [("GITHUB_OUTPUT", "output"), ("GITHUB_STEP_SUMMARY", "summary.md")] {
            let file = self.temp.join(file);
            OpenOptions::new().create(true).append(true).open(&file)?;
            all.push((name, path(&file)));
        }
        Ok(all)
    }

    fn tail(&self) -> io::Result<String> {
        let mut file = File::open(&self.log_path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// How a step ended.
enum Ended {
    Itself(io::Result<ExitStatus>),
    /// It was ended; with whether SIGINT was enough.
    Cut {
        asked: bool,
    },
}

/// Waits for the end of a step, or ends it when an end of this urgency is requested.
async fn finish(
    step: &mut Step,
    end: &mut tokio::sync::watch::Receiver<Option<End>>,
    at_least: End,
) -> Ended {
    let urgency = tokio::select! {
        status = step.wait() => return Ended::Itself(status),
        urgency = wanted(end, at_least) => urgency,
    };
    if urgency < End::Now {
        tokio::select! {
            asked = step.stop() => return Ended::Cut { asked },
            _ = wanted(end, End::Now) => {}
        }
    }
    step.kill().await;
    Ended::Cut { asked: false }
}

async fn wanted(end: &mut tokio::sync::watch::Receiver<Option<End>>, at_least: End) -> End {
    match end.wait_for(|end| *end >= Some(at_least)).await.map(|end| *end) {
        Ok(Some(end)) => end,
        // The sender is gone, so no further end can be requested.
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Returns the exit code as a shell reports it: a signal's number plus 128.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Returns the conclusion of a job after a step that ended by itself, and the exit code that is reported for it.
fn after_step((result, exit_code): (Conclusion, Option<i32>), code: i32) -> (Conclusion, Option<i32>) {
    let told = if result == Conclusion::Success { Some(code) } else { exit_code };
    let failed = code != 0 && result != Conclusion::Cancelled;
    (if failed { Conclusion::Failure } else { result }, told)
}
