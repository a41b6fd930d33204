//! Connects to the table. This is the only place where the command line builds adapters.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::region::EnvironmentVariableRegionProvider;
use aws_config::imds::{self, region::ImdsRegionProvider};
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};

use super::context::CliContext;
use super::ring::Ringing;
use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::output::screen::Screen;
use runyard_core::model::TableName;
use runyard_core::ports::{PoolQueue, Ringer, Store};
use runyard_operator::aws::SqsQueue;
use runyard_operator::aws::queues::Queues;
use runyard_operator::process::clock::{SystemClock, SystemEntropy};
use runyard_store::DynamoStore;

/// Attempts and timeout of a request to EC2's instance metadata: the service responds in a millisecond, and elsewhere a
/// person must not wait for it.
const METADATA: (u32, Duration) = (2, Duration::from_millis(300));

/// Timeout of a connection to a loopback address.
const PATIENCE: Duration = Duration::from_millis(300);

/// Connects everything that a verb works with, configured by AWS's own environment variables.
pub(crate) async fn connect(
    table: TableName,
    environment: Environment,
    screen: Screen,
) -> CliResult<(CliContext, DynamoStore)> {
    let sdk = sdk(&environment).await;
    if sdk.region().is_none() {
        let fix = "set AWS_REGION or a profile that has one; for a local yard: `. DIR/env` or --yard DIR";
        return Err(CliFailure::error("AWS_REGION", "", "no AWS region is set", fix));
    }
    if let Some(endpoint) = environment.endpoint().filter(|endpoint| refuses(endpoint)) {
        tracing::debug!(endpoint, "the connection was refused");
        return Err(CliFailure::nothing_listens(endpoint));
    }
    let store = DynamoStore::connect(table.clone(), &sdk);
    let queue =
        sqs(&environment).then(|| Arc::new(SqsQueue::connect(table.clone(), &sdk)) as Arc<dyn PoolQueue>);
    let doorbell = queue.as_ref().map(|_| Arc::new(store.ringer()) as Arc<dyn Ringer>);
    let direct = Arc::new(store.clone());
    let ringing: Arc<dyn Store> = match &doorbell {
        Some(doorbell) => Arc::new(Ringing::new(direct, doorbell.clone())),
        None => direct,
    };
    let context = CliContext {
        store: ringing,
        history: store.history().map(|history| Arc::new(history) as Arc<dyn Store>),
        doorbell,
        queue,
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
        table,
        environment,
        screen,
    };
    Ok((context, store))
}

/// Returns whether nothing listens at a loopback address, which the SDK would find out only after several attempts.
fn refuses(endpoint: &str) -> bool {
    let host = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let Ok(address) = host.replace("localhost", "127.0.0.1").parse::<SocketAddr>() else { return false };
    let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    address.ip().is_loopback()
        && TcpStream::connect_timeout(&address, PATIENCE).is_err_and(|error| refused(&error))
}

/// Loads AWS's configuration from its own chains of region and credentials, with short timeouts for instance metadata;
/// the region and profile of the chosen yard take precedence.
pub(crate) async fn sdk(environment: &Environment) -> SdkConfig {
    if environment.local {
        return local(environment);
    }
    let (attempts, patience) = METADATA;
    let imds = imds::Client::builder()
        .max_attempts(attempts)
        .connect_timeout(patience)
        .read_timeout(patience)
        .build();
    let mut of_profile = ProfileFileRegionProvider::builder();
    let mut credentials = DefaultCredentialsChain::builder().imds_client(imds.clone());
    if let Some(profile) = &environment.profile {
        of_profile = of_profile.profile_name(profile);
        credentials = credentials.profile_name(profile);
    }
    let chosen = environment.get("AWS_REGION").map(|name| Region::new(name.to_owned()));
    let mut region = RegionProviderChain::first_try(chosen);
    if environment.profile.is_none() {
        region = region.or_else(EnvironmentVariableRegionProvider::new());
    }
    let region = region
        .or_else(of_profile.build())
        .or_else(ImdsRegionProvider::builder().imds_client(imds).build())
        .region()
        .await;
    let mut defaults = aws_config::defaults(BehaviorVersion::latest());
    defaults = match &environment.profile {
        // The yard's profile takes precedence over the keys of the shell, which the chain would ask first.
        Some(profile) => defaults
            .credentials_provider(ProfileFileCredentialsProvider::builder().profile_name(profile).build()),
        None => defaults.credentials_provider(credentials.region(region.clone()).build().await),
    };
    // An empty chain keeps the SDK from asking the metadata once more.
    defaults.region(RegionProviderChain::first_try(region)).load().await
}

/// Returns the configuration for the table of a local yard, which its file `env` defines completely.
fn local(environment: &Environment) -> SdkConfig {
    let word = |name| environment.get(name).unwrap_or_default().to_owned();
    let keys = Credentials::new(word("AWS_ACCESS_KEY_ID"), word("AWS_SECRET_ACCESS_KEY"), None, None, "yard");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(word("AWS_REGION")))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .endpoint_url(word("AWS_ENDPOINT_URL"))
        .build()
}

/// Returns the client with which `init` creates and corrects queues, or `None` if the yard has none.
pub(crate) async fn queues(environment: &Environment) -> Option<Queues> {
    if sqs(environment) { Some(Queues::connect(&sdk(environment).await)) } else { None }
}

/// Returns whether the yard has queues that we can reach. An operator may keep its queues in its own process
/// (`queue.kind`), and an environment that moves DynamoDB elsewhere without naming an endpoint of SQS has none either.
fn sqs(environment: &Environment) -> bool {
    let set = |name| environment.get(name).is_some();
    let elsewhere = set("AWS_ENDPOINT_URL_DYNAMODB");
    environment.get("RUNYARD_QUEUE__KIND") != Some("memory")
        && (!elsewhere || set("AWS_ENDPOINT_URL") || set("AWS_ENDPOINT_URL_SQS"))
}
