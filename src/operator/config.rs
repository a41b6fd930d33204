//! The operator's configuration: one file and the environment, checked as a whole before anything starts.
//! `config/default.toml` contains every key with its default and is read by the program itself, so it cannot be wrong.
//!
//! Over 400 lines: every section of the file, with the documentation of each key.

mod check;
mod error;
mod layers;
pub(crate) mod log_filter;
mod reader;
mod secret;
mod sharing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::ConfigErrors;
pub use reader::{SHORTEST, duration};

use crate::controller::GitHubWatch;
use crate::decide::{Followed, Following};
use crate::ledger::Prices;
use crate::limits::{Limits, Rate};
pub use crate::model::RunnerPackage;
use crate::model::{FieldError, Rebalance, TableName, Timing, YardSharing, origin_of, words};
use reader::Reader;

words! {
    /// The provider of machines.
    ComputeKind {
        /// EC2.
        Ec2 = "ec2",
        /// Child processes of this machine.
        Local = "local",
        /// No provider: records only.
        None = "none",
    }
}

words! {
    /// The queue for announcements of pooled machines.
    QueueKind {
        /// SQS.
        Sqs = "sqs",
        /// Inside this process.
        Memory = "memory",
    }
}

words! {
    /// Whether runners are registered.
    GitHubKind {
        /// At the GitHub behind `api_url`.
        Real = "real",
        /// Not at all.
        None = "none",
    }
}

words! {
    /// The scope in which runners are registered.
    ScopeKind {
        /// The repository of the requesting workflow.
        Repository = "repository",
        /// The owner of that repository, which must be an organisation.
        Organization = "organization",
    }
}

words! {
    /// The runner package of machines.
    Follow {
        /// The package in the operator's file.
        Pin = "pin",
        /// The newest package in GitHub's list.
        Latest = "latest",
    }
}

words! {
    /// The format of log lines.
    LogFormat {
        /// For people.
        Human = "human",
        /// For programs, one JSON object per line.
        Json = "json",
    }
}

/// The configuration of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The table.
    pub table: TableName,
    /// Deadlines and intervals.
    pub timing: Timing,
    /// The compute provider.
    pub compute: ComputeKind,
    /// The rate limits of calls to EC2.
    pub limits: Limits,
    /// Maximum number of open requests of one repository.
    pub requests_per_repository: u32,
    /// Teams, priorities and yard-wide quotas.
    pub sharing: YardSharing,
    /// The queue for announcements of pooled machines.
    pub queue: QueueKind,
    /// The queue of EC2's interruption notices; `None` if they are not received.
    pub interruptions: Option<String>,
    /// The reaction to rebalance recommendations of EC2.
    pub rebalance: Rebalance,
    /// How long the history table keeps finished activity.
    pub history_keep: Duration,
    /// The file of the key that signs statements about claims; `None` if none are made.
    pub signing_key_file: Option<PathBuf>,
    /// The GitHub at which runners are registered; `None` if there is none.
    pub github: Option<GitHub>,
    /// The address of the admin port; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The format and the filter of the log.
    pub log: Log,
    /// The settings for agents.
    pub agent: Agent,
    /// The prices of machines.
    pub prices: Prices,
}

/// The GitHub at which runners are registered, and its credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHub {
    /// Root of its API, without a trailing slash.
    pub api_url: String,
    /// The credential.
    pub credential: Credential,
    /// Where runners are registered.
    pub scope: ScopeKind,
    /// The calls beside those for credentials.
    pub watch: GitHubWatch,
}

/// The location of a credential. The files can be replaced at any time: a token is read for each call, an App's key at
/// the start and whenever GitHub refuses the present one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A file that contains a token.
    TokenFile(PathBuf),
    /// A GitHub App.
    App {
        /// Its app id or client id.
        id: String,
        /// The file of its private key, PEM.
        key_file: PathBuf,
    },
}

/// The format and the filter of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The format of lines.
    pub format: LogFormat,
    /// Filter directives, as in `RUST_LOG`.
    pub filter: String,
}

/// The settings for agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The runner package; `None` if the image contains it.
    pub runner: Architectures<RunnerPackage>,
    /// Whether machines with the usual package follow GitHub's list of packages.
    pub runner_follow: Follow,
    /// The same for machines with the package of arm64.
    pub runner_follow_arm64: Follow,
    /// Allowed hosts of packages beside GitHub's.
    pub runner_hosts: Vec<String>,
    /// The script of a machine's first boot, unless its class names another.
    pub pre_runner_script: Option<PathBuf>,
    /// Timeout of that script.
    pub pre_runner_timeout: Duration,
    /// How long a runner may take to stop by itself.
    pub stop: Duration,
    /// Mount points of other file systems to which jobs may write nevertheless.
    pub spare: Vec<PathBuf>,
    /// Environment variables of the agent, of runners and of their jobs.
    pub environment: BTreeMap<String, String>,
    /// The agent's program; `None` if each image contains it.
    pub program: Architectures<AgentProgram>,
}

/// A setting for machines of either architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Architectures<T> {
    /// For x86_64, and for classes without an architecture.
    pub usual: Option<T>,
    /// For arm64.
    pub arm64: Option<T>,
}

impl<T> Default for Architectures<T> {
    fn default() -> Self {
        Self { usual: None, arm64: None }
    }
}

/// A file to download.
pub trait Fetched {
    /// Returns its address.
    fn url(&self) -> &str;

    /// Returns its digest, 64 lower-case hexadecimal digits.
    fn sha256(&self) -> &str;
}

impl<T: Fetched> Architectures<T> {
    /// Returns the one for machines of a class with this `launch.architecture`; `None` if the only one is for another
    /// architecture by the name of its file. A yard with only arm64 may have its own as the usual one.
    pub fn of(&self, architecture: Option<&str>) -> Option<&T> {
        let own = if architecture == Some("arm64") { self.arm64.as_ref() } else { None };
        let told = |one: &&T| told_architecture(one.url());
        let fits = |one: &&T| told(one).is_none_or(|told| architecture.is_none_or(|wanted| wanted == told));
        own.or_else(|| self.usual.as_ref().filter(fits))
    }
}

/// Returns the architecture that a file's name contains, in GitHub's or in others' spelling.
fn told_architecture(url: &str) -> Option<&'static str> {
    let file = url.rsplit('/').next()?;
    let names = |words: [&str; 3]| words.iter().any(|word| file.contains(word));
    match (names(["arm64", "aarch64", "linux-arm"]), names(["x64", "x86_64", "amd64"])) {
        (true, false) => Some("arm64"),
        (false, true) => Some("x86_64"),
        (true, true) | (false, false) => None,
    }
}

impl<T> Architectures<T> {
    /// Returns the one for any architecture, preferably the usual one.
    pub fn any(&self) -> Option<&T> {
        self.usual.as_ref().or(self.arm64.as_ref())
    }

    /// Returns whether there is none for any architecture.
    pub const fn is_empty(&self) -> bool {
        self.usual.is_none() && self.arm64.is_none()
    }
}

/// The agent's program, which machines download at their first boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProgram {
    /// Its address.
    pub url: String,
    /// Its digest, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

impl Fetched for AgentProgram {
    fn url(&self) -> &str {
        &self.url
    }

    fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl Fetched for RunnerPackage {
    fn url(&self) -> &str {
        &self.url
    }

    fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl Agent {
    /// The agent's own default for [`Self::stop`].
    pub const STOP: Duration = Duration::from_secs(60);
}

impl Agent {
    /// Returns the allowed origins of runner packages beside GitHub's: those of the pinned packages, and the configured
    /// hosts.
    pub fn runner_origins(&self) -> Vec<String> {
        let pinned = [&self.runner.usual, &self.runner.arm64].into_iter().flatten();
        let pinned = pinned.filter_map(|package| origin_of(&package.url));
        pinned.chain(self.runner_hosts.iter().map(|host| format!("https://{host}"))).collect()
    }

    /// Returns which machines follow GitHub's list.
    pub fn following(&self) -> Following {
        let followed = |follow: Follow, package: &Option<RunnerPackage>, usual: &str| match follow {
            Follow::Pin => None,
            Follow::Latest => package.as_ref().map(|package| {
                let architecture = match told_architecture(&package.url) {
                    Some("arm64") => "arm64",
                    Some(_) | None => usual,
                };
                Followed { architecture: architecture.to_owned(), pinned: package.clone() }
            }),
        };
        Following {
            usual: followed(self.runner_follow, &self.runner.usual, "x64"),
            arm64: followed(self.runner_follow_arm64, &self.runner.arm64, "arm64"),
            origins: self.runner_origins(),
        }
    }
}

impl Config {
    /// Reads the file, if there is one, and overrides it with the environment (`environment`, all of it).
    ///
    /// # Errors
    /// Every key that is unknown or has an invalid value, and every contradictory pair of keys.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let (values, mut problems) = layers::lay(file, environment);
        // If the file is unreadable nothing else can be checked: keys that it may set are not missing.
        let unread = problems.extract_if(.., |problem| problem.field == layers::FILE).collect::<Vec<_>>();
        if !unread.is_empty() {
            return Err(ConfigErrors::new(unread));
        }
        let mut reader = Reader::new(values, problems);
        let config = Self::read(&mut reader);
        match config {
            Some(config) if reader.problems.is_empty() => Ok(config),
            _ => Err(ConfigErrors::new(reader.problems)),
        }
    }

    fn read(reader: &mut Reader) -> Option<Self> {
        // Everything is read before the first `?`, so that every problem is reported.
        let table = reader.parsed("table", TableName::parse);
        let compute = reader.parsed("compute.kind", str::parse);
        let timing = timing(reader).inspect(|timing| check::timing(timing, compute, reader));
        let limits = Limits::read(reader);
        let requests_per_repository =
            reader.parsed("limits.requests_per_repository", reader::requests_per_repository);
        let sharing = sharing::read(reader);
        let queue = reader.parsed("queue.kind", str::parse);
        check::queue(queue, compute, reader);
        let interruptions = reader.optional("interruptions.queue", reader::queue_name);
        let rebalance = reader.parsed("interruptions.rebalance", str::parse);
        let history_keep = reader.parsed("history.keep", reader::keep);
        let signing_key_file = reader.optional("history.signing_key_file", reader::path);
        let github = GitHub::read(reader);
        let listen = reader.parsed("admin.listen", reader::address);
        let log = Log::read(reader);
        let agent = Agent::read(reader);
        let prices = check::prices(reader);
        Some(Self {
            table: table?,
            timing: timing?,
            compute: compute?,
            limits: limits?,
            requests_per_repository: requests_per_repository?,
            sharing: sharing?,
            queue: queue?,
            interruptions: interruptions?,
            rebalance: rebalance?,
            history_keep: history_keep?,
            signing_key_file: signing_key_file?,
            github: github?,
            listen: listen?,
            log: log?,
            agent: agent?,
            prices: prices?,
        })
    }
}

fn timing(reader: &mut Reader) -> Option<Timing> {
    let mut read = |key: &str| reader.parsed(&format!("timing.{key}"), duration);
    let (created, claimed, cleanup) = (read("created"), read("claimed"), read("cleanup"));
    let (end, grace, heartbeat) = (read("end"), read("grace"), read("heartbeat"));
    let (stale, agent_poll, resync) = (read("stale"), read("agent_poll"), read("resync"));
    let (reannounce, lease) = (read("reannounce"), read("lease"));
    let (orphan, image) = (read("orphan"), read("image"));
    Some(Timing {
        created: created?,
        claimed: claimed?,
        cleanup: cleanup?,
        end: end?,
        grace: grace?,
        heartbeat: heartbeat?,
        stale: stale?,
        agent_poll: agent_poll?,
        resync: resync?,
        reannounce: reannounce?,
        lease: lease?,
        orphan: orphan?,
        image: image?,
    })
}

impl Limits {
    fn read(reader: &mut Reader) -> Option<Self> {
        let mut read = |key: &str| {
            let burst = reader.parsed(&format!("limits.{key}"), reader::burst);
            let milli = reader.parsed(&format!("limits.{key}_per_second"), reader::per_second);
            Some(Rate { burst: burst?, milli: milli? })
        };
        let (launches, instances) = (read("launches"), read("instances"));
        let (changes, looks) = (read("changes"), read("looks"));
        Some(Self { launches: launches?, instances: instances?, changes: changes?, looks: looks? })
    }
}

impl GitHub {
    fn read(reader: &mut Reader) -> Option<Option<Self>> {
        let kind = reader.parsed("github.kind", str::parse);
        let api_url = reader.parsed("github.api_url", reader::url);
        let token_file = reader.optional("github.token_file", reader::path);
        let app_id = reader.optional("github.app_id", reader::app_id);
        let app_key_file = reader.optional("github.app_key_file", reader::path);
        let scope = reader.parsed("github.scope", str::parse);
        let run_poll = reader.parsed("github.run_poll", reader::interval);
        let sweep = reader.parsed("github.sweep", reader::interval);
        let verify_removed = reader.parsed("github.verify_removed", reader::truth);
        let verify_run = reader.parsed("github.verify_run", reader::truth);
        let reruns = reader.parsed("github.reruns", reader::truth);
        let rerun_lost = reader.parsed("github.rerun_lost", reader::truth);
        match kind? {
            GitHubKind::None => Some(None),
            GitHubKind::Real => {
                let credential = check::credential(token_file?, app_id?, app_key_file?, reader);
                let watch = GitHubWatch {
                    run_poll: run_poll?,
                    sweep: sweep?,
                    verify_removed: verify_removed?,
                    verify_run: verify_run?,
                    reruns: reruns?,
                    rerun_lost: rerun_lost?,
                };
                Some(Some(Self { api_url: api_url?, credential: credential?, scope: scope?, watch }))
            }
        }
    }
}

impl Log {
    fn read(reader: &mut Reader) -> Option<Self> {
        let format = reader.parsed("log.format", str::parse);
        let filter = reader.parsed("log.filter", |text| {
            log_filter::check_filter(text)?;
            Ok(text.to_owned())
        });
        Some(Self { format: format?, filter: filter? })
    }
}

impl Agent {
    fn read(reader: &mut Reader) -> Option<Self> {
        let version = reader.optional("agent.runner_version", reader::version);
        let mut fetched = |name: &str, suffix: &str| {
            let mut read = |key: &str, parse: fn(&str) -> Result<String, FieldError>| {
                reader.optional(&format!("agent.{name}{key}{suffix}"), parse)
            };
            (read("url", reader::url), read("sha256", reader::sha256))
        };
        let packages = (fetched("runner_", ""), fetched("runner_", "_arm64"));
        let programs = (fetched("", ""), fetched("", "_arm64"));
        let follow = (
            reader.parsed("agent.runner_follow", str::parse),
            reader.parsed("agent.runner_follow_arm64", str::parse),
        );
        let runner_hosts = reader.parsed("agent.runner_hosts", reader::hosts);
        let environment = reader.variables("agent.environment");
        let pre_runner_script = reader.optional("agent.pre_runner_script", reader::path);
        let pre_runner_timeout = reader.parsed("agent.pre_runner_timeout", duration);
        let (stop, spare) =
            (reader.parsed("agent.stop", duration), reader.parsed("agent.spare", reader::places));
        let ((url, sha256), (url_arm64, sha256_arm64)) = packages;
        let (usual, arm64) = ((url?, sha256?), (url_arm64?, sha256_arm64?));
        let runner = check::runner(usual, arm64, version?, reader);
        let ((url, sha256), (url_arm64, sha256_arm64)) = programs;
        let usual = check::program("", url?, sha256?, reader);
        let arm64 = check::program("_arm64", url_arm64?, sha256_arm64?, reader);
        let environment = environment.inspect(|variables| check::proxy(variables, reader));
        let agent = Self {
            runner: runner?,
            runner_follow: follow.0?,
            runner_follow_arm64: follow.1?,
            runner_hosts: runner_hosts?,
            pre_runner_script: pre_runner_script?,
            pre_runner_timeout: pre_runner_timeout?,
            stop: stop?,
            spare: spare?,
            environment: environment?,
            program: Architectures { usual: usual?, arm64: arm64? },
        };
        check::follow(&agent, reader);
        Some(agent)
    }
}

/// Returns the environment of this process, read here and nowhere else. A value that is not Unicode is kept in lossy
/// form, so that its key can refuse it.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}
