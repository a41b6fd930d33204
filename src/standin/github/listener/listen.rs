//! Serves jobs: connects, waits for a job, executes it, reports its result, and waits again, until the runner is
//! stopped, removed, or has served its only job.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::super::behaviour::PackageBehaviour;
use super::super::http::wire::{Assignment, Finish};
use super::args::Run;
use super::calls::{CallError, Calls};
use super::demands::{self, Demand, Ending};
use super::files::{self, Identity};
use super::job::{self, Outcome, execute};
use super::trouble::Trouble;
use super::{Clock, Exit, Takes};

/// How many failed requests for a message are allowed.
const FAILURES: u32 = 10;
/// The pause between retries within a job, whose worker continues by itself.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The interval of heartbeats, much shorter than the silence after which the stand-in gives a runner up.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The message of a listener that loses its session and gets no other.
const LOST: &str = "An error occurred: Get next message failed with non-retryable error.";

/// Runs `run.sh`: serves until there is a reason to end; `told` is whether the environment requests the exit code of a
/// deprecated version. Reports at its `pace` that it listens.
pub(super) async fn listen(
    root: &Path,
    options: Run,
    hook: Option<PathBuf>,
    clock: Clock,
    behaviour: PackageBehaviour,
    (told, pace): (bool, Takes),
) -> Exit {
    let (identity, calls, stop) = match prepare(root, &options) {
        Ok(prepared) => prepared,
        Err(problem) => {
            eprintln!("{problem}");
            return Exit::Terminated;
        }
    };
    let once = options.once || identity.config.ephemeral;
    let mut listener = Listener { root, identity, calls, stop, once, hook, clock, behaviour, pace };
    let end = listener.serve().await;
    match end {
        End::By(Ending::Deleted) => forget(root),
        // A single-use registration is of no use any more.
        End::Done if listener.identity.config.ephemeral => forget(root),
        End::Asked | End::Done | End::By(_) => {}
    }
    match end {
        End::Asked | End::Done => Exit::Success,
        End::By(ending) => ending.exit(told),
    }
}

/// Removes the registration as the real one does when it is over; files that cannot be removed are left.
fn forget(root: &Path) {
    if let Err(problem) = files::remove(root) {
        eprintln!("{problem}");
    }
}

/// Why a listener ends.
#[derive(Clone, Copy)]
enum End {
    /// It was asked to end.
    Asked,
    /// It has served its only job.
    Done,
    /// GitHub refuses it.
    By(Ending),
}

fn prepare(root: &Path, options: &Run) -> Result<(Identity, Calls, Stop), String> {
    let identity = match &options.jitconfig {
        Some(jitconfig) => Identity::unpack(root, jitconfig)?,
        None => Identity::load(root)?.ok_or(Demand::Registered.words())?,
    };
    let work = root.join(&identity.config.work_folder);
    demands::work_folder(&work)
        .map_err(|_| format!("{} '{}'.", Demand::ListableWork.words(), work.display()))?;
    let calls = Calls::of(&identity)?;
    let stop = Stop::new().map_err(|e| format!("Cannot listen to signals: {e}"))?;
    Ok((identity, calls, stop))
}

/// The process that tells everybody on its machine that the runner has a job. The steps of the job are the listener's own.
struct Worker(Option<Child>);

impl Worker {
    /// Starts it; without a package there is none.
    fn start(root: &Path) -> Self {
        let mut command = Command::new(root.join("bin/Runner.Worker"));
        command.stdin(Stdio::piped()).kill_on_drop(true);
        Self(command.spawn().ok())
    }

    /// Ends it with its job.
    async fn end(self) {
        let Some(mut child) = self.0 else { return };
        drop(child.stdin.take());
        let _ = child.wait().await;
    }
}

/// SIGINT and SIGTERM, counted.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    asked: bool,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, asked: false })
    }

    fn asked(&self) -> bool {
        self.asked
    }

    /// Completes at the next of the two signals.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        println!("Exiting...");
        self.asked = true;
    }
}

struct Listener<'a> {
    root: &'a Path,
    identity: Identity,
    calls: Calls,
    stop: Stop,
    once: bool,
    hook: Option<PathBuf>,
    clock: Clock,
    behaviour: PackageBehaviour,
    pace: Takes,
}

impl Listener<'_> {
    async fn serve(&mut self) -> End {
        let session = match self.connect().await {
            Ok(session) => session,
            Err(end) => return end,
        };
        if self.stopped_within(self.pace.rest((self.clock)())).await {
            return self.leave(session, End::Asked).await;
        }
        println!("Current runner version: '{}'", self.behaviour.version);
        self.say("Listening for Jobs");
        self.take_jobs(session).await
    }

    /// Opens a session, however long the stand-in does not respond.
    async fn connect(&mut self) -> Result<u64, End> {
        let (calls, mut trouble, mut complained) = (self.calls.clone(), Trouble::default(), false);
        loop {
            // Printed before there is a session: it proves nothing.
            println!("\n\u{221a} Connected to GitHub\n");
            let opened = tokio::select! {
                opened = calls.open_session(&self.behaviour.version) => opened,
                () = self.stop.next() => return Err(End::Asked),
            };
            let error = match opened {
                Ok(session) => {
                    if complained {
                        self.say("Runner reconnected.");
                    }
                    return Ok(session);
                }
                Err(error) => error,
            };
            if let Some(ending) = trouble.ends(&error, self.behaviour.again, calls.url()) {
                return Err(End::By(ending));
            }
            self.complain(&error, &mut complained);
            if self.stopped_within(self.behaviour.again).await {
                return Err(End::Asked);
            }
        }
    }

    /// Serves jobs over this session, or another when it is lost.
    async fn take_jobs(&mut self, mut session: u64) -> End {
        let (calls, mut failures, mut complained) = (self.calls.clone(), 0, false);
        loop {
            let asked = tokio::select! {
                asked = calls.next_job(session) => asked,
                () = self.stop.next() => return self.leave(session, End::Asked).await,
            };
            let outlived = match asked {
                Ok(None) => true,
                Ok(Some(assignment)) => {
                    let outlived = self.work(session, &assignment).await;
                    if outlived && (self.stop.asked() || self.once) {
                        let end = if self.stop.asked() { End::Asked } else { End::Done };
                        return self.leave(session, end).await;
                    }
                    outlived
                }
                Err(CallError::Unauthorized) => {
                    eprintln!("{}", Ending::Deleted.words());
                    return End::By(Ending::Deleted);
                }
                Err(CallError::Deprecated(text)) => {
                    eprintln!("An error occurred: {text}");
                    return self.leave(session, End::By(Ending::Deprecated)).await;
                }
                Err(CallError::NotFound) => false,
                Err(
                    error @ (CallError::Unreachable(_)
                    | CallError::Conflict(_)
                    | CallError::Gone
                    | CallError::Busy(_)
                    | CallError::NoToken(_)
                    | CallError::Refused(_)),
                ) => {
                    failures += 1;
                    if failures == FAILURES {
                        eprintln!("{}{error}", Ending::PollFails.words());
                        return self.leave(session, End::By(Ending::PollFails)).await;
                    }
                    self.complain(&error, &mut complained);
                    if self.stopped_within(self.behaviour.again / 2).await {
                        return self.leave(session, End::Asked).await;
                    }
                    continue;
                }
            };
            (failures, complained) = (0, false);
            if !outlived {
                session = match self.connect().await {
                    Ok(session) => session,
                    Err(End::By(_)) => {
                        eprintln!("{LOST}");
                        return End::By(Ending::SessionRefused);
                    }
                    Err(end @ (End::Asked | End::Done)) => return end,
                };
            }
        }
    }

    /// Closes the session; without that the stand-in notices the silence.
    async fn leave(&self, session: u64, end: End) -> End {
        let _ = self.calls.close_session(session).await;
        end
    }

    /// Waits, unless it is asked to end meanwhile; returns whether it was.
    async fn stopped_within(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = sleep(pause) => false,
            () = self.stop.next() => true,
        }
    }

    /// Reports an error once for each outage.
    fn complain(&self, error: &CallError, complained: &mut bool) {
        if !std::mem::replace(complained, true) {
            eprintln!("{}: Runner connect error: {error}. Retrying until reconnected.", self.now());
        }
    }

    /// Executes one job; returns `false` when the session did not outlive it.
    async fn work(&mut self, session: u64, assignment: &Assignment) -> bool {
        if !self.begin(session, assignment).await {
            return true;
        }
        self.say(&format!("Running job: {}", assignment.spec.name));
        let worker = Worker::start(self.root);
        let (end, mut ended) = watch::channel(None);
        let config = self.identity.config.clone();
        let (root, hook, start) = (self.root.to_owned(), self.hook.clone(), self.behaviour.pace.first_step());
        let mut execution =
            std::pin::pin!(execute(&root, &config, assignment, hook.as_deref(), start, &mut ended));
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let calls = self.calls.clone();
        let outcome = loop {
            tokio::select! {
                outcome = &mut execution => break outcome,
                () = self.stop.next() => {
                    let twice = *end.borrow() >= Some(job::End::Shutdown);
                    end.send_replace(Some(if twice { job::End::Now } else { job::End::Shutdown }));
                }
                _ = beat.tick() => match calls.heartbeat(session).await {
                    Ok(true) => { end.send_if_modified(|e| e.is_none() && e.replace(job::End::Cancelled).is_none()); }
                    // The runner was removed or given up: the result of this job is not needed any more.
                    Err(CallError::Unauthorized | CallError::NotFound | CallError::Gone) => {
                        end.send_replace(Some(job::End::Now));
                    }
                    Ok(false)
                    | Err(
                        CallError::Unreachable(_)
                        | CallError::Conflict(_)
                        | CallError::Busy(_)
                        | CallError::Deprecated(_)
                        | CallError::NoToken(_)
                        | CallError::Refused(_),
                    ) => {}
                },
            }
        };
        if self.stop.asked() {
            // The worker sends its remaining reports; the listener waits for it, and continues to send heartbeats.
            let mut over = std::pin::pin!(sleep(self.behaviour.stop));
            loop {
                tokio::select! {
                    () = &mut over => break,
                    _ = beat.tick() => drop(calls.heartbeat(session).await),
                }
            }
        }
        self.say(&format!("Job {} completed with result: {}", assignment.spec.name, result(&outcome)));
        let outlived = self.report(session, assignment, outcome).await;
        worker.end().await;
        outlived
    }

    /// Reports that the job begins, until the stand-in has received it: it must not assign the job to another runner.
    /// Returns `false` if it did.
    async fn begin(&self, session: u64, assignment: &Assignment) -> bool {
        loop {
            match self.calls.begin(session, assignment.job_id).await {
                Ok(()) => return true,
                Err(CallError::Unreachable(_)) => sleep(RETRY_PAUSE).await,
                Err(
                    CallError::Unauthorized
                    | CallError::NotFound
                    | CallError::Gone
                    | CallError::Conflict(_)
                    | CallError::Busy(_)
                    | CallError::Deprecated(_)
                    | CallError::NoToken(_)
                    | CallError::Refused(_),
                ) => return false,
            }
        }
    }

    async fn report(&self, session: u64, assignment: &Assignment, outcome: Outcome) -> bool {
        let Outcome { conclusion, exit_code, log } = outcome;
        let body = Finish { session, job_id: assignment.job_id, conclusion, exit_code, log };
        loop {
            match self.calls.finish(&body).await {
                Ok(()) => return true,
                Err(CallError::Unreachable(_)) => sleep(RETRY_PAUSE).await,
                Err(
                    CallError::Gone
                    | CallError::Busy(_)
                    | CallError::Deprecated(_)
                    | CallError::NoToken(_)
                    | CallError::Refused(_)
                    | CallError::Conflict(_),
                ) => return true,
                // A single-use runner whose first report did arrive is unknown as well.
                Err(CallError::Unauthorized) => return self.identity.config.ephemeral,
                Err(CallError::NotFound) => return false,
            }
        }
    }

    fn say(&self, text: &str) {
        println!("{}: {text}", self.now());
    }

    fn now(&self) -> String {
        (self.clock)().strftime("%Y-%m-%d %H:%M:%SZ").to_string()
    }
}

fn result(outcome: &Outcome) -> &'static str {
    use super::super::state::Conclusion;
    match outcome.conclusion {
        Conclusion::Success => "Succeeded",
        Conclusion::Failure | Conclusion::Lost => "Failed",
        Conclusion::Cancelled => "Canceled",
    }
}
