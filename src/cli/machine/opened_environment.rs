//! Opens everything that an operator on one machine needs: the served data directory, its table, one or two classes,
//! and the adapters.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};

use runyard_core::model::{Pool, PoolSpec, PoolStatus, RecordId, Uid, Versioned as _};
use runyard_core::ports::{Clock, Entropy as _, Store, StoreError};
use runyard_operator::config::Config;
use runyard_operator::in_process::local_options;
use runyard_operator::process::clock::{SystemClock, SystemEntropy};
use runyard_operator::wire;
use runyard_operator::wire::{WireError, Wired};
use runyard_standin::compute::LocalCompute;
use runyard_standin::engine::{REGION, SECRET_KEY};
use runyard_standin::github::StandIn;
use runyard_standin::local_environment::{LocalEnvironment, LocalEnvironmentError, LocalEnvironmentOptions};
use runyard_store::{DynamoStore, TableState};

/// The error of local mode.
#[derive(Debug, thiserror::Error)]
pub(super) enum LocalModeError {
    /// The data directory cannot be served.
    #[error(transparent)]
    Environment(#[from] LocalEnvironmentError),
    /// The table failed.
    #[error("the table: {0}")]
    Table(#[from] StoreError),
    /// The table exists and has a foreign shape.
    #[error("the table {table} in {} has another shape ({differences}): use another --dir or --table", dir.display())]
    Shape {
        /// The table's name.
        table: String,
        /// Its directory.
        dir: PathBuf,
        /// The differences.
        differences: String,
    },
    /// The operator failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The demonstration failed.
    #[error(transparent)]
    Demo(#[from] runyard_standin::demo::DemoError),
    /// A basic system call failed.
    #[error("{0}: {1}")]
    System(String, std::io::Error),
}

/// Everything that an operator on one machine needs.
pub(crate) struct OpenedEnvironment {
    pub(crate) local: LocalEnvironment,
    pub(crate) config: Config,
    pub(crate) store: Arc<DynamoStore>,
    pub(crate) wired: Wired,
    pub(crate) machines: Arc<LocalCompute>,
    /// The environment variables for clients.
    pub(crate) client: BTreeMap<String, String>,
    /// The names of the classes.
    pub(crate) classes: Vec<String>,
}

/// Returns the first classes of a new table.
pub(crate) fn classes() -> Vec<PoolSpec> {
    let class = |(class, cpu, mmem, max): (&str, u32, u32, u32)| {
        // Machines that serve one repository can have their runners registered ahead of claims.
        let spec = serde_json::json!({
            "resourceClass": class, "cpu": cpu, "mmem": mmem, "max": max, "sharing": {"by": "repository"}, "reuseWithin": "repository",
            "queue": {"runLabels": true},
        });
        serde_json::from_value(spec).expect("a spec needs no more than that")
    };
    [("small", 2, 4096, 8), ("large", 8, 16_384, 4)].map(class).into()
}

/// Opens a data directory and builds everything on it; a table without classes gets these.
///
/// # Errors
/// The obstacle, with its fix.
pub(crate) async fn open(
    dir: PathBuf,
    environment: &BTreeMap<String, String>,
    first: Vec<PoolSpec>,
) -> Result<OpenedEnvironment, LocalModeError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let executable = std::env::current_exe();
    let executable = executable.map_err(|error| LocalModeError::System("our own path".into(), error))?;
    let stand_in = !local_options::names_github(environment);
    // Local machines need no AWS account, so the user's credentials, profiles and endpoints are removed.
    let mut environment = environment.clone();
    environment.retain(|name, _| !name.starts_with("AWS_"));
    environment.insert("RUNYARD_DIR".into(), dir.to_string_lossy().into_owned());
    let package = local_options::package(&environment).map_err(WireError::from)?;
    let opened = LocalEnvironmentOptions { dir, executable, stand_in, package };
    let local = LocalEnvironment::open(opened, clock.clone()).await?;
    let config = local_options::config(&local, &environment).map_err(WireError::from)?;
    // Logging that is set up already remains in use.
    let _ = runyard_operator::telemetry::init(&config.log);
    let client = local.environment(&config.table);
    environment.extend(client.clone());
    let sdk = sdk(&local).await;
    let store = Arc::new(DynamoStore::connect(config.table.clone(), &sdk));
    table(&store, &local, &config).await?;
    let classes = found_or_made(store.as_ref(), clock.as_ref(), first).await?;
    // Only one operator at a time uses the directory, so the lease of an earlier process is ours.
    let mut wired = wire::build(&config, &sdk, &environment, "local".into())?;
    wired.ports.job_bell = local.standin.as_ref().map(StandIn::job_bell);
    let machines = wired.machines.clone().ok_or_else(|| not_local(&config))?;
    Ok(OpenedEnvironment { local, config, store, wired, machines, client, classes })
}

fn not_local(config: &Config) -> LocalModeError {
    let fix = "unset RUNYARD_COMPUTE__KIND, or run `runyard operator`";
    let kind = config.compute.as_str();
    let refused =
        runyard_core::model::FieldError::new("compute.kind", kind, "is not what local mode is for", fix);
    WireError::from(refused).into()
}

async fn sdk(local: &LocalEnvironment) -> SdkConfig {
    let credentials = Credentials::new(local.engine.key(), SECRET_KEY, None, None, "local mode");
    aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .endpoint_url(local.engine.endpoint())
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .load()
        .await
}

async fn table(store: &DynamoStore, local: &LocalEnvironment, config: &Config) -> Result<(), LocalModeError> {
    if let Some(history) = store.history()
        && history.check_table().await? == TableState::Missing
    {
        history.create_table().await?;
    }
    match store.check_table().await? {
        TableState::Missing => Ok(store.create_table().await?),
        TableState::Present(differences) if differences.is_empty() => Ok(()),
        TableState::Present(differences) => Err(LocalModeError::Shape {
            table: config.table.to_string(),
            dir: local.dir.clone(),
            differences: differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        }),
    }
}

/// Returns the existing classes, or creates the first ones if there are none.
async fn found_or_made(
    store: &dyn Store,
    clock: &dyn Clock,
    first: Vec<PoolSpec>,
) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(after.as_ref()).await?;
        let pools = page.items.iter().filter_map(|item| {
            let id = RecordId::of(item)?;
            id.pool().map(ToString::to_string)
        });
        found.extend(pools);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    for spec in first {
        let class = spec.resource_class.to_string();
        let mut pool = Pool {
            spec,
            scale: None,
            status: PoolStatus::default(),
            uid: None,
            version: 0,
            updated_at: None,
        };
        pool.uid = Uid::parse(&SystemEntropy.hex()).ok();
        pool.advance(clock.now());
        store.write(&pool.creating()).await?;
        found.push(class);
    }
    Ok(found)
}
