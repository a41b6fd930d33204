//! A yard on a cloud: the table and a class as a person makes them, the operator as a program that is configured by a
//! file and the environment, a GitHub of one's own, and an agent on every machine.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use runyard_core::model::{Instance, Launch};
use runyard_core::ports::Clock as _;
use runyard_operator::process::clock::SystemClock;
use runyard_standin::github::{Behaviour, PACKAGE_VERSION, Settings, StandIn};
use runyard_store::DynamoStore;
use serde_json::json;

use crate::e2e::history::{self, Snapshot};
use crate::e2e::program::{Ended, Environment, Running, environment, runyard, verb};
use crate::e2e::waiting::{PATIENCE, until};
use crate::lifecycle::cloud::{Cloud, Hint};
use crate::lifecycle::machines::{Machines, Setup};

/// The table.
pub(crate) const TABLE: &str = "runyard";
/// The class.
pub(crate) const CLASS: &str = "small";
/// The repository of all runs.
pub(crate) const REPOSITORY: &str = "acme/web";

/// The operator's configuration: quick to look, patient with a busy machine.
const CONFIG: &str = r#"
table = "runyard"
[compute]
kind = "ec2"
[queue]
kind = "sqs"
[admin]
listen = "127.0.0.1:0"
[timing]
created = "10m"
claimed = "10m"
cleanup = "10m"
grace = "1m"
heartbeat = "2s"
stale = "10m"
agent_poll = "300ms"
resync = "5s"
reannounce = "10s"
lease = "5s"
orphan = "30s"
"#;

/// The agents' share of it.
const TIMING: [(&str, &str); 4] =
    [("heartbeat", "2s"), ("poll", "300ms"), ("grace", "1m"), ("created", "10m")];

/// Everything that runs.
pub(crate) struct Yard {
    pub(crate) machines: Machines,
    pub(crate) github: StandIn,
    pub(crate) store: DynamoStore,
    pub(crate) cloud: Cloud,
    operator: Running,
    pub(crate) environment: Environment,
    /// The operator's own: its configuration, and what that says beside it.
    settings: Environment,
    config: PathBuf,
    _scratch: tempfile::TempDir,
}

impl Yard {
    /// A table with one class of at most `max` machines, `desired` of them ahead of need, and an operator on it.
    pub(crate) async fn on(cloud: Cloud, desired: u32, max: u32) -> Self {
        Self::with(cloud, desired, max, &[], &[]).await
    }

    /// The same, whose machines take so many seconds to boot, and none are wanted yet.
    pub(crate) async fn of_boots(cloud: Cloud, boots: Range<f64>) -> Self {
        Self::made(cloud, (0, 1), &[], &[], boots).await
    }

    /// The same with settings of the operator's environment, and classes whose machines come up without an agent.
    pub(crate) async fn with(
        cloud: Cloud,
        desired: u32,
        max: u32,
        more: &[(&str, &str)],
        without_agent: &[&str],
    ) -> Self {
        Self::made(cloud, (desired, max), more, without_agent, 0.0..0.0).await
    }

    async fn made(
        cloud: Cloud,
        (desired, max): (u32, u32),
        more: &[(&str, &str)],
        without_agent: &[&str],
        boots: Range<f64>,
    ) -> Self {
        let scratch = tempfile::tempdir().expect("a place for files");
        let github = github(scratch.path().join("github")).await;
        let mut environment = environment(cloud.environment());
        environment.insert("RUNYARD_TABLE".into(), TABLE.into());
        let spec = json!([{"resourceClass": CLASS, "cpu": 2, "mmem": 4096, "desired": desired, "max": max,
            "launch": cloud.launch().await}]);
        let pools = scratch.path().join("pools.json");
        std::fs::write(&pools, spec.to_string()).expect("a file");
        for arguments in [["init", "-o", "json"].as_slice(), &["apply", "-f", pools.to_str().expect("UTF-8")]]
        {
            let ended = verb(&environment, arguments).await;
            assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        }
        let setup = Setup {
            table: TABLE.into(),
            dir: scratch.path().join("machines"),
            without_agent: without_agent.iter().map(|class| (*class).to_owned()).collect(),
            environment: environment.clone(),
            boots,
            timing: TIMING.into(),
            runner_url: github.package_url(),
            runner_sha256: github.package_sha256().to_owned(),
        };
        let machines = Machines::keep(cloud.ec2(), setup);
        let config = scratch.path().join("operator.toml");
        std::fs::write(&config, CONFIG).expect("a file");
        let mut settings = environment.clone();
        let token_file = github.token_file().expect("the token is in a file");
        settings.extend(
            [
                ("GITHUB__API_URL", github.url()),
                ("GITHUB__TOKEN_FILE", token_file.display().to_string()),
                ("AGENT__RUNNER_URL", github.package_url()),
                ("AGENT__RUNNER_SHA256", github.package_sha256().to_owned()),
                ("AGENT__RUNNER_VERSION", PACKAGE_VERSION.to_owned()),
            ]
            .map(|(name, value)| (format!("RUNYARD_{name}"), value)),
        );
        settings.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let arguments = ["operator", "--config", config.to_str().expect("UTF-8")];
        let operator = Running::start(&settings, &arguments, scratch.path().join("operator.log"));
        let store = history::store(&cloud.dynamodb);
        Self { machines, github, store, cloud, operator, environment, settings, config, _scratch: scratch }
    }

    /// Runs a verb to its end, which must come with success.
    pub(crate) async fn runs(&self, arguments: &[&str]) -> Ended {
        let ended = verb(&self.environment, arguments).await;
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}\n{}", self.last_words());
        ended
    }

    /// Runs a verb to its end, however that comes.
    pub(crate) async fn verb(&self, arguments: &[&str]) -> Ended {
        verb(&self.environment, arguments).await
    }

    /// Runs a verb with the operator's configuration to its end, which must come with success.
    pub(crate) async fn runs_configured(&self, arguments: &[&str]) -> Ended {
        let config = self.config.to_str().expect("UTF-8");
        let ended = verb(&self.settings, &[arguments, &["--config", config]].concat()).await;
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}\n{}", self.last_words());
        ended
    }

    /// The whole table.
    pub(crate) async fn look(&self) -> Snapshot {
        until("a look at the table", async || history::snapshot(&self.store).await).await
    }

    /// The machines in the pool, with the claim each was last given back from.
    pub(crate) async fn pooled(&self) -> BTreeSet<Hint> {
        let instances = self.look().await.all::<Instance>();
        let pooled = instances.into_iter().filter(|instance| instance.pooled_at().is_some());
        let claim = |instance: &Instance| instance.claim.as_ref().map(|claim| claim.id.to_string());
        pooled
            .map(|instance| (instance.facts.instance_id.to_string(), claim(&instance).unwrap_or_default()))
            .collect()
    }

    /// Waits until so many are in the pool, and says which.
    pub(crate) async fn pools(&mut self, count: usize) -> BTreeSet<Hint> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pooled = self.pooled().await;
            if pooled.len() == count {
                return pooled;
            }
            let ended = self.operator.ended();
            let patient = ended.is_none() && tokio::time::Instant::now() < end;
            assert!(patient, "{pooled:?} instead of {count} pooled ({ended:?}):\n{}", self.last_words());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The machines of ours that EC2 has running.
    pub(crate) async fn alive(&self) -> BTreeSet<String> {
        let machines = self.cloud.machines(TABLE).await;
        machines.into_iter().filter(|machine| machine.alive).map(|machine| machine.id).collect()
    }

    /// Every launch.
    pub(crate) async fn launches(&self) -> Vec<Launch> {
        self.look().await.all()
    }

    /// Tells the operator to stop, which it must do with success.
    pub(crate) async fn stop(&mut self) {
        self.operator.signal(Signal::SIGTERM);
        let status = self.operator.ends().await;
        assert!(status.success(), "{status}\n{}", self.last_words());
    }

    /// The end of the operator's log, for whoever reads a failure.
    pub(crate) fn last_words(&self) -> String {
        let text = self.operator.said();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

async fn github(dir: PathBuf) -> StandIn {
    let clock = SystemClock::new();
    let settings = Settings {
        listener: StandIn::bind(None).await.expect("loopback has a free port"),
        dir: Some(dir),
        executable: runyard().to_owned(),
        clock: Arc::new(move || clock.now()),
        behaviour: Behaviour::default(),
    };
    StandIn::start(settings).await.expect("the stand-in starts")
}
