//! A yard of its own on every engine, and what each engine can do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::Credentials;
use jiff::Timestamp;
use runyard_core::model::{InstanceTypes, Launch, LaunchId, LaunchPhase, PoolSpec, TableName, UsageClass};
use runyard_core::ports::{Compute, LaunchOrder};
use runyard_fakes::{FakeCompute, ManualClock, SeededEntropy, as_shipped};
use runyard_operator::aws::Ec2Compute;
use runyard_operator::aws::ec2::Ec2Options;
use runyard_operator::config::{Architectures, RunnerPackage};
use serde_json::json;

use runyard_support::engine::Engine;
use runyard_support::peer::{Peer, SUBNETS};

static MINISTACK: LazyLock<Engine> = LazyLock::new(Engine::ministack);
static MOTO: LazyLock<Engine> = LazyLock::new(Engine::moto);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// What an engine does as EC2 does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Can {
    /// A token used again brings the same machines.
    pub(crate) replay: bool,
    /// A spot machine is known as one.
    pub(crate) spot: bool,
    /// There may be fewer machines than asked for.
    pub(crate) lack: bool,
}

/// The compute under test and what lies behind it.
pub(crate) struct Bench {
    pub(crate) compute: Arc<dyn Compute>,
    pub(crate) can: Can,
    /// A class that can be launched there.
    pub(crate) spec: PoolSpec,
    behind: Behind,
}

enum Behind {
    Fake(FakeCompute),
    Peer(Peer),
    Emulator(String),
}

/// Where machines come from.
pub(crate) enum Benches {
    Fake,
    Peer,
    Moto,
    Ministack,
}

impl Benches {
    pub(crate) async fn fresh(&self) -> Bench {
        match self {
            Self::Fake => fake(),
            Self::Peer => {
                let peer = Peer::start();
                let compute = Arc::new(compute(peer.endpoint(), table()).await);
                let can = Can { replay: true, spot: true, lack: true };
                Bench { compute, can, spec: spec(&[SUBNETS[0].0]), behind: Behind::Peer(peer) }
            }
            Self::Moto => {
                let can = Can { replay: false, spot: true, lack: false };
                emulated(MOTO.endpoint(), can).await
            }
            Self::Ministack => {
                let can = Can { replay: false, spot: false, lack: false };
                emulated(MINISTACK.endpoint(), can).await
            }
        }
    }
}

fn fake() -> Bench {
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let fake = FakeCompute::new(clock, Arc::new(SeededEntropy::new(1)));
    let can = Can { replay: true, spot: true, lack: true };
    Bench { compute: Arc::new(fake.clone()), can, spec: spec(&[]), behind: Behind::Fake(fake) }
}

async fn emulated(endpoint: &str, can: Can) -> Bench {
    let config = sdk_config(endpoint).await;
    let told = Client::new(&config).describe_subnets().send().await.expect("the raw client reads");
    let subnets = told.subnets.unwrap_or_default();
    let subnet = subnets.first().and_then(|subnet| subnet.subnet_id()).expect("a default subnet");
    let images = Client::new(&config).describe_images().send().await.expect("the raw client reads");
    let images = images.images.unwrap_or_default();
    let mut spec = spec(&[subnet]);
    if let Some(image) =
        images.iter().find(|image| image.architecture().is_some_and(|a| a.as_str() == "x86_64"))
    {
        spec.launch.ami = image.image_id.clone();
    }
    let compute = Ec2Compute::connect(options(table()), &config);
    Bench { compute: Arc::new(compute), can, spec, behind: Behind::Emulator(endpoint.to_owned()) }
}

impl Bench {
    /// Leaves room for so many more machines; only where the engine can lack any.
    pub(crate) fn room_for(&self, machines: u32) {
        match &self.behind {
            Behind::Fake(fake) => fake.capacity(Some(machines)),
            Behind::Peer(peer) => peer.rules(|rules| {
                for usage in ["on-demand", "spot"] {
                    rules.capacity.insert((SUBNETS[0].1.to_owned(), usage.to_owned()), machines);
                }
            }),
            Behind::Emulator(_) => panic!("no emulator lacks capacity"),
        }
    }

    /// Another table's machines on the same engine; the stand-in has only one table.
    pub(crate) async fn neighbour(&self) -> Option<Ec2Compute> {
        let endpoint = match &self.behind {
            Behind::Fake(_) => return None,
            Behind::Peer(peer) => peer.endpoint(),
            Behind::Emulator(endpoint) => endpoint,
        };
        Some(compute(endpoint, table()).await)
    }

    pub(crate) fn order(&self, name: &str, count: u32, usage_class: UsageClass) -> LaunchOrder {
        order(&self.spec, name, count, usage_class)
    }
}

/// An order of the first attempt.
pub(crate) fn order(spec: &PoolSpec, name: &str, count: u32, usage_class: UsageClass) -> LaunchOrder {
    let launch_id = LaunchId::parse(name).expect("a valid id");
    let launch = Launch {
        client_token: Launch::token_of(&launch_id, 1),
        launch_id,
        attempt: 1,
        resource_class: spec.resource_class.clone(),
        usage_class,
        count,
        request: None,
        launch_digest: None,
        phase: LaunchPhase::Intent,
        instances: Vec::new(),
        message: String::new(),
        created_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
        uid: None,
        version: 1,
        updated_at: Timestamp::UNIX_EPOCH,
    };
    LaunchOrder { launch, spec: spec.clone(), types: InstanceTypes::default(), image: None }
}

pub(crate) fn spec(subnets: &[&str]) -> PoolSpec {
    let spec = json!({
        "resourceClass": "linux", "cpu": 2, "mmem": 4096,
        "launch": { "ami": "ami-0123456789abcdef0", "architecture": "x86_64", "subnetIds": subnets },
    });
    serde_json::from_value(spec).expect("a valid spec")
}

/// A table nobody else has.
pub(crate) fn table() -> TableName {
    let name = format!("yard-{}-{}", std::process::id(), TABLES.fetch_add(1, Ordering::SeqCst));
    TableName::parse(&name).expect("a valid name")
}

pub(crate) fn options(table: TableName) -> Ec2Options {
    let runner = RunnerPackage {
        url: "https://example.com/actions-runner-linux-x64.tar.gz".into(),
        sha256: "0".repeat(64),
        version: "2.330.0".into(),
    };
    Ec2Options {
        table,
        timing: as_shipped(),
        runner: Architectures { usual: Some(runner), arm64: None },
        program: Architectures::default(),
        environment: BTreeMap::new(),
        pre_runner_script: None,
        pre_runner_timeout: Duration::from_secs(600),
        stop: Duration::from_secs(60),
        spare: Vec::new(),
        runner_hosts: Vec::new(),
        patience: Duration::from_secs(3),
    }
}

pub(crate) async fn compute(endpoint: &str, table: TableName) -> Ec2Compute {
    Ec2Compute::connect(options(table), &sdk_config(endpoint).await)
}

pub(crate) async fn sdk_config(endpoint: &str) -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .load()
        .await
}
