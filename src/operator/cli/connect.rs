//! Connects to the table. It is the only place where the command line builds adapters.

use std::sync::Arc;
use std::time::Duration;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::region::EnvironmentVariableRegionProvider;
use aws_config::imds::{self, region::ImdsRegionProvider};
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::{BehaviorVersion, SdkConfig};

use super::context::CliContext;
use super::environment::Environment;
use super::failure::{CliFailure, CliResult};
use super::ring::Ringing;
use super::screen::Screen;
use crate::aws::queues::Queues;
use crate::aws::{SqsDoorbell, SqsQueue};
use crate::clock::{SystemClock, SystemEntropy};
use crate::model::TableName;
use crate::ports::{Doorbell, PoolQueue, Store};
use crate::store::DynamoStore;

/// How often, and how long each time, a machine of EC2 is asked whether we are on one: it answers in a millisecond, and
/// where there is none a person waits for nothing.
const METADATA: (u32, Duration) = (2, Duration::from_millis(300));

/// Everything a verb works with, reached as AWS's own environment says.
pub(crate) async fn connect(
    table: TableName,
    environment: Environment,
    screen: Screen,
) -> CliResult<(CliContext, DynamoStore)> {
    let sdk = sdk().await;
    if sdk.region().is_none() {
        let fix = "set AWS_REGION or a profile that has one; for a local yard: `. DIR/env`";
        return Err(CliFailure::error("AWS_REGION", "", "no AWS region is set", fix));
    }
    let store = DynamoStore::connect(table.clone(), &sdk);
    let queue =
        sqs(&environment).then(|| Arc::new(SqsQueue::connect(table.clone(), &sdk)) as Arc<dyn PoolQueue>);
    let doorbell =
        queue.as_ref().map(|_| Arc::new(SqsDoorbell::impatient(&table, &sdk)) as Arc<dyn Doorbell>);
    let direct = Arc::new(store.clone());
    let ringing: Arc<dyn Store> = match &doorbell {
        Some(doorbell) => Arc::new(Ringing::new(direct, doorbell.clone())),
        None => direct,
    };
    let context = CliContext {
        store: ringing,
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

/// AWS's own chains of region and credentials, which do not wait long for a machine's metadata.
async fn sdk() -> SdkConfig {
    let (attempts, patience) = METADATA;
    let imds = imds::Client::builder()
        .max_attempts(attempts)
        .connect_timeout(patience)
        .read_timeout(patience)
        .build();
    let region = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(ImdsRegionProvider::builder().imds_client(imds.clone()).build())
        .region()
        .await;
    let credentials =
        DefaultCredentialsChain::builder().imds_client(imds).region(region.clone()).build().await;
    let defaults = aws_config::defaults(BehaviorVersion::latest()).credentials_provider(credentials);
    // An empty chain keeps the SDK from asking the metadata once more.
    defaults.region(RegionProviderChain::first_try(region)).load().await
}

/// The queues as `init` makes and mends them, where there are any.
pub(crate) async fn queues(environment: &Environment) -> Option<Queues> {
    if sqs(environment) { Some(Queues::connect_env().await) } else { None }
}

/// Whether there are queues for us. An operator that keeps them in its own process (`queue.kind`) leaves none to us,
/// and whoever moves DynamoDB elsewhere and says nothing about SQS has none either.
fn sqs(environment: &Environment) -> bool {
    let set = |name| environment.get(name).is_some();
    let elsewhere = set("AWS_ENDPOINT_URL_DYNAMODB");
    environment.get("RUNYARD_QUEUE__KIND") != Some("memory")
        && (!elsewhere || set("AWS_ENDPOINT_URL") || set("AWS_ENDPOINT_URL_SQS"))
}
