//! A local GitHub for one machine: it serves the parts of GitHub's REST API that Runyard uses, assigns jobs to the
//! runners that registered with it, and provides the runner package that really executes them. [`StandIn`] is the
//! handle for the process that serves it.

pub mod behaviour;
mod call_counter;
mod files;
mod http;
mod job_bell;
mod library;
pub mod listener;
mod package;
mod pages;
mod settings_file;
mod shared_state;
pub mod state;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runyard_core::ports::JobBell;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use behaviour::{
    Behaviour, Completion, EndOfLife, PACKAGE_VERSION, Pace, PackageBehaviour, PackageSize, PastEndOfLife,
    Routing, SetBehaviour, TokenService,
};
pub use call_counter::Call;
pub use package::Package;
use shared_state::SharedState;
pub use shared_state::{Clock, StandInFailure};
pub use state::scale_sets;
pub use state::{
    Conclusion, ContainerSpec, Job, JobSpec, JobStatus, QueuedJobs, RegisteredRunner, Run, RunId, Source,
};

/// The configuration of the stand-in.
pub struct Settings {
    /// The listener that it serves on; loopback, since the holder of its token can run shell commands here.
    pub listener: TcpListener,
    /// The directory of its state; without one the state is lost with the process.
    pub dir: Option<PathBuf>,
    /// The `runyard` executable that the runner package calls, as an absolute path.
    pub executable: PathBuf,
    /// The clock.
    pub clock: Clock,
    /// How it and its runner package differ from a GitHub that reports every state at once.
    pub behaviour: Behaviour,
}

/// A served stand-in. Dropping it stops serving.
pub struct StandIn {
    shared: Arc<SharedState>,
    stop: CancellationToken,
    server: JoinHandle<io::Result<()>>,
}

impl StandIn {
    /// Binds to the last port of this directory's stand-in, so that its runners find it again, else to a free one.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn bind(dir: Option<&Path>) -> io::Result<TcpListener> {
        if let Some(port) = dir.and_then(files::last_port)
            && let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await
        {
            return Ok(listener);
        }
        TcpListener::bind(("127.0.0.1", 0)).await
    }

    /// Reads the stored state, if there is one, and serves.
    ///
    /// # Errors
    /// An address beyond loopback, or a directory that cannot be read or written.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let address = settings.listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(io::Error::other(format!(
                "the stand-in GitHub serves on loopback only, not on {address}"
            )));
        }
        let package = Package::build(&settings.executable, &settings.behaviour.package)?;
        let kept = settings.dir.as_deref().and_then(http::exchanges::kept_in);
        let shared = SharedState::open(settings.dir, address, package, settings.clock, settings.behaviour)?;
        let shared = Arc::new(shared);
        let stop = CancellationToken::new();
        let (router, stopped) = (http::router(Arc::clone(&shared), kept, stop.clone()), stop.clone());
        let router = router.layer(axum::middleware::from_fn(pages::refuse_pages));
        let serve = axum::serve(settings.listener, router).with_graceful_shutdown(stopped.cancelled_owned());
        let server = tokio::spawn(async move { serve.await });
        Ok(Self { shared, stop, server })
    }

    /// Returns the address of both its API and its web pages: the value of `github.api_url`.
    #[must_use]
    pub fn url(&self) -> String {
        self.shared.url()
    }

    /// Returns the address that it serves on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address()
    }

    /// Returns the bearer token that its API requires. A secret.
    #[must_use]
    pub fn api_token(&self) -> &str {
        self.shared.api_token()
    }

    /// Returns the file that holds [`Self::api_token`]: the value of `github.token_file`. None without a directory.
    #[must_use]
    pub fn token_file(&self) -> Option<PathBuf> {
        self.shared.token_file()
    }

    /// Returns the address of the runner package, which needs no token.
    #[must_use]
    pub fn package_url(&self) -> String {
        format!("{}{}", self.url(), http::PACKAGE_PATH)
    }

    /// Returns the package's SHA-256 in lower-case hexadecimal.
    #[must_use]
    pub fn package_sha256(&self) -> &str {
        &self.shared.package().sha256
    }

    /// Starts a workflow run with these jobs; `open` keeps it unfinished so that more can be added.
    ///
    /// # Errors
    /// A mistake in the jobs, or a state that cannot be stored.
    pub fn enqueue_run(
        &self,
        repository: &str,
        run_id: Option<RunId>,
        name: &str,
        jobs: Vec<JobSpec>,
        open: bool,
    ) -> Result<Run, StandInFailure> {
        self.shared.change(|state, now| state.start_run(repository, run_id, name, jobs, open, now))
    }

    /// Adds jobs to an open run; `open: false` closes the run with them.
    ///
    /// # Errors
    /// As [`Self::enqueue_run`], and a run that is unknown or closed.
    pub fn add_jobs(&self, run_id: RunId, jobs: Vec<JobSpec>, open: bool) -> Result<Run, StandInFailure> {
        self.shared.change(|state, now| state.add_jobs(run_id, jobs, open, now))
    }

    /// Sets another origin of a run's code, such as a fork.
    ///
    /// # Errors
    /// A run that is unknown, or a state that cannot be stored.
    pub fn set_source(&self, run_id: RunId, source: Source) -> Result<Run, StandInFailure> {
        self.shared.change(|state, _| state.set_source(run_id, source))
    }

    /// Lets an open run wait for an approval of its next jobs, until jobs are added or it is closed.
    ///
    /// # Errors
    /// A run that is unknown or closed, or a state that cannot be stored.
    pub fn wait_for_approval(&self, run_id: RunId) -> Result<Run, StandInFailure> {
        self.shared.change(|state, now| state.wait_for_approval(run_id, now))
    }

    /// Returns a receiver that is told of each run for which jobs were queued from now on, after the state is stored,
    /// as a webhook `workflow_job` would tell. The jobs may not be listed yet ([`Behaviour::job_list_delay`]). A
    /// receiver that lags misses the oldest, as a webhook may be lost.
    #[must_use]
    pub fn queued_jobs(&self) -> broadcast::Receiver<QueuedJobs> {
        self.shared.queued_jobs()
    }

    /// Returns the bell of queued jobs for an operator in the same process.
    #[must_use]
    pub fn job_bell(&self) -> Arc<dyn JobBell> {
        Arc::new(job_bell::StandInBell::new(self.queued_jobs()))
    }

    /// Returns how often each call was answered since the start, refused and conditional ones included.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<Call, u64> {
        self.shared.calls().counted()
    }

    /// Re-runs the failed jobs of an ended run, as a person does.
    ///
    /// # Errors
    /// A run that is unknown, has not ended, or has no failed job.
    pub fn rerun_failed(&self, repository: &str, run_id: RunId) -> Result<Run, StandInFailure> {
        self.shared.change(|state, now| state.rerun(repository, run_id, state::Which::Failed, now))
    }

    /// Ends a run early.
    ///
    /// # Errors
    /// A run that is unknown.
    pub fn cancel_run(&self, run_id: RunId) -> Result<(), StandInFailure> {
        self.shared.change(|state, now| state.cancel_run(run_id, now))
    }

    /// Changes the behaviour from now on. The package stays as it was built.
    ///
    /// # Errors
    /// A state that cannot be stored.
    pub fn behave(&self, behaviour: Behaviour) -> Result<(), StandInFailure> {
        self.shared.change(|state, _| {
            state.behave(behaviour);
            Ok(())
        })
    }

    /// Lists the jobs of a run with their results, all attempts.
    ///
    /// # Errors
    /// A state that cannot be stored.
    pub fn jobs(&self, run_id: RunId) -> Result<Vec<Job>, StandInFailure> {
        self.shared.read(|state| state.jobs_of(run_id).cloned().collect())
    }

    /// Waits until all current jobs of a run have ended, and returns them (none, for a run that has none). Drop the
    /// future to stop waiting.
    ///
    /// # Errors
    /// As [`Self::jobs`].
    pub async fn finished_jobs(&self, run_id: RunId) -> Result<Vec<Job>, StandInFailure> {
        self.shared
            .wait_for(|state| {
                let jobs: Vec<Job> = state.jobs_of(run_id).cloned().collect();
                jobs.iter().all(|job| job.status.over()).then_some(jobs)
            })
            .await
    }

    /// Lists every registered runner.
    ///
    /// # Errors
    /// A state that cannot be stored.
    pub fn runners(&self) -> Result<Vec<RegisteredRunner>, StandInFailure> {
        self.shared.read(|state| state.all_runners().cloned().collect())
    }

    /// Lists the registered runners that are not connected.
    ///
    /// # Errors
    /// A state that cannot be stored.
    pub fn offline_runners(&self) -> Result<Vec<RegisteredRunner>, StandInFailure> {
        self.shared.read(|state| state.all_runners().filter(|r| !r.online()).cloned().collect())
    }

    /// Calls the service of scale sets as its owner: to look at it, or to let a set vanish or a session end.
    ///
    /// # Errors
    /// A state that cannot be stored.
    pub fn change_scale_sets<T>(
        &self,
        act: impl FnOnce(&mut state::ScaleSetService, jiff::Timestamp) -> T,
    ) -> Result<T, StandInFailure> {
        self.shared.change(|state, now| Ok(state.change_scale_sets(now, |service| act(service, now))))
    }

    /// Ends all tokens with which the service of scale sets is called.
    ///
    /// # Errors
    /// A state that cannot be stored.
    pub fn revoke_service_tokens(&self) -> Result<(), StandInFailure> {
        self.shared.change(|state, _| {
            state.revoke_service_tokens();
            Ok(())
        })
    }

    /// Stops serving; waiting listeners are disconnected.
    ///
    /// # Errors
    /// The error that the server ended with.
    pub async fn stop(mut self) -> io::Result<()> {
        self.stop.cancel();
        (&mut self.server).await.map_err(io::Error::other)?
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.stop.cancel();
        self.server.abort();
    }
}
