//! Serves jobs: connects, waits for a job, executes it, reports its result, and waits again, until the runner is
//! stopped, removed, or has served its only job.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::super::behaviour::PackageBehaviour;
use super::super::http::wire::{Assignment, Finish};
use super::args::Run;
use super::calls::{CallError, Calls};
use super::files::{self, Identity};
use super::job::{End, Outcome, execute};
use super::{Clock, Exit};

/// How long the real listener waits for an older session of its runner to end.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(240);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Well within the silence after which the stand-in gives a runner up.
const HEARTBEAT: Duration = Duration::from_secs(2);

const DELETED: &str = "Failed to create a session. The runner registration has been deleted from the server, please \
                       re-configure. Runner registrations are automatically deleted for runners that have not connected \
                       to the service recently.";

/// `run.sh`: serves until there is a reason to end.
pub(super) async fn listen(
    root: &Path,
    options: Run,
    hook: Option<PathBuf>,
    clock: Clock,
    behaviour: PackageBehaviour,
) -> Exit {
    let prepared = prepare(root, &options);
    let (identity, calls, stop) = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => {
            eprintln!("{problem}");
            return Exit::Terminated;
        }
    };
    let once = options.once || identity.config.ephemeral;
    let mut listener = Listener { root, identity, calls, stop, once, hook, clock, behaviour };
    let exit = listener.serve().await;
    // As the real one does: a single-use registration is worth nothing any more.
    if exit == Exit::Success && listener.identity.config.ephemeral && !listener.stop.asked() {
        let _ = files::remove(root);
    }
    exit
}

fn prepare(root: &Path, options: &Run) -> Result<(Identity, Calls, Stop), String> {
    let identity = match &options.jitconfig {
        Some(jitconfig) => Identity::unpack(root, jitconfig)?,
        None => {
            Identity::load(root)?.ok_or("Not configured. Run config.(sh/cmd) to configure the runner.")?
        }
    };
    let calls = Calls::of(&identity)?;
    let stop = Stop::new().map_err(|e| format!("Cannot listen to signals: {e}"))?;
    Ok((identity, calls, stop))
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
}

impl Listener<'_> {
    async fn serve(&mut self) -> Exit {
        loop {
            let session = match self.connect().await {
                Ok(session) => session,
                Err(exit) => return exit,
            };
            println!("\n\u{221a} Connected to GitHub\n");
            println!("Current runner version: '{}'", self.behaviour.version);
            self.say("Listening for Jobs");
            if let Some(exit) = self.take_jobs(session).await {
                return exit;
            }
        }
    }

    /// Opens a session, however long the stand-in is away.
    async fn connect(&mut self) -> Result<u64, Exit> {
        let (calls, patience) = (self.calls.clone(), Instant::now() + CONFLICT_PATIENCE);
        let mut complained = false;
        loop {
            let opened = tokio::select! {
                opened = calls.open_session(&self.behaviour.version) => opened,
                () = self.stop.next() => return Err(self.exiting()),
            };
            let problem = match opened {
                Ok(session) => return Ok(session),
                Err(CallError::Unauthorized) => {
                    eprintln!("{DELETED}");
                    return Err(Exit::Terminated);
                }
                Err(CallError::Deprecated(text)) => {
                    eprintln!("An error occurred: {text}");
                    return Err(Exit::Deprecated);
                }
                Err(CallError::Conflict(text)) if Instant::now() < patience => text,
                Err(CallError::Conflict(text)) => {
                    eprintln!("{text}");
                    return Err(Exit::SessionConflict);
                }
                Err(CallError::Unreachable(text)) => {
                    format!("Runner connect error: {text}. Retrying until reconnected.")
                }
                Err(
                    error @ (CallError::NotFound
                    | CallError::Gone
                    | CallError::Busy(_)
                    | CallError::Refused(_)),
                ) => {
                    eprintln!("{error}");
                    return Err(Exit::Retryable);
                }
            };
            if !std::mem::replace(&mut complained, true) {
                self.say(&problem);
            }
            tokio::select! {
                () = sleep(RETRY_PAUSE) => {}
                () = self.stop.next() => return Err(self.exiting()),
            }
        }
    }

    /// Serves jobs over this session; `None` when a new session is needed.
    async fn take_jobs(&mut self, session: u64) -> Option<Exit> {
        let calls = self.calls.clone();
        loop {
            let asked = tokio::select! {
                asked = calls.next_job(session) => asked,
                () = self.stop.next() => {
                    // Without a good-bye the stand-in notices by our silence.
                    let _ = calls.close_session(session).await;
                    return Some(self.exiting());
                }
            };
            match asked {
                Ok(None) => {}
                Ok(Some(assignment)) => {
                    if !self.work(session, &assignment).await {
                        return None;
                    }
                    if self.stop.asked() || self.once {
                        let _ = calls.close_session(session).await;
                        return Some(Exit::Success);
                    }
                }
                Err(CallError::Unauthorized) => {
                    eprintln!(
                        "The runner registration has been deleted from the server, please re-configure."
                    );
                    return Some(Exit::Terminated);
                }
                Err(CallError::NotFound) => return None,
                Err(
                    CallError::Unreachable(_)
                    | CallError::Conflict(_)
                    | CallError::Gone
                    | CallError::Busy(_)
                    | CallError::Deprecated(_)
                    | CallError::Refused(_),
                ) => {
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Executes one job; `false` when the session did not outlive it.
    async fn work(&mut self, session: u64, assignment: &Assignment) -> bool {
        if !self.begin(session, assignment).await {
            return true;
        }
        self.say(&format!("Running job: {}", assignment.spec.name));
        let (end, mut ended) = watch::channel(None);
        let config = self.identity.config.clone();
        let (root, hook) = (self.root.to_owned(), self.hook.clone());
        let mut execution = std::pin::pin!(execute(&root, &config, assignment, hook.as_deref(), &mut ended));
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let calls = self.calls.clone();
        let outcome = loop {
            tokio::select! {
                outcome = &mut execution => break outcome,
                () = self.stop.next() => {
                    println!("Exiting...");
                    let twice = *end.borrow() >= Some(End::Shutdown);
                    end.send_replace(Some(if twice { End::Now } else { End::Shutdown }));
                }
                _ = beat.tick() => match calls.heartbeat(session).await {
                    Ok(true) => { end.send_if_modified(|e| e.is_none() && e.replace(End::Cancelled).is_none()); }
                    // The runner was removed or given up: nobody wants this job any more.
                    Err(CallError::Unauthorized | CallError::NotFound | CallError::Gone) => {
                        end.send_replace(Some(End::Now));
                    }
                    Ok(false)
                    | Err(
                        CallError::Unreachable(_)
                        | CallError::Conflict(_)
                        | CallError::Busy(_)
                        | CallError::Deprecated(_)
                        | CallError::Refused(_),
                    ) => {}
                },
            }
        };
        if self.stop.asked() {
            // The worker sends what it has to say; the listener waits for it, and goes on telling that it is alive.
            let mut over = std::pin::pin!(sleep(self.behaviour.stop));
            loop {
                tokio::select! {
                    () = &mut over => break,
                    _ = beat.tick() => drop(calls.heartbeat(session).await),
                }
            }
        }
        self.say(&format!("Job {} completed with result: {}", assignment.spec.name, result(&outcome)));
        self.report(session, assignment, outcome).await
    }

    /// Says that the job begins, until the stand-in has heard it: it must not give it to another. `false`: it did.
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
                    | CallError::Refused(_)
                    | CallError::Conflict(_),
                ) => return true,
                // A single-use runner whose first report did arrive is not known any more either.
                Err(CallError::Unauthorized) => return self.identity.config.ephemeral,
                Err(CallError::NotFound) => return false,
            }
        }
    }

    fn exiting(&self) -> Exit {
        println!("Exiting...");
        Exit::Success
    }

    fn say(&self, text: &str) {
        println!("{}: {text}", (self.clock)().strftime("%Y-%m-%d %H:%M:%SZ"));
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
