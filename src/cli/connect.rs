//! How is the table reached? The one place where the command line builds its adapters.

use std::sync::Arc;

use super::context::Context;
use super::environment::Environment;
use super::screen::Screen;
use crate::aws::SqsQueue;
use crate::aws::queues::Queues;
use crate::clock::{SystemClock, SystemEntropy};
use crate::model::TableName;
use crate::store::DynamoStore;

/// Everything a verb works with, reached as AWS's own environment says.
pub(crate) async fn connect(
    table: TableName,
    environment: Environment,
    screen: Screen,
) -> (Context, DynamoStore) {
    let store = DynamoStore::connect_env(table.clone()).await;
    let context = Context {
        store: Arc::new(store.clone()),
        queue: if sqs(&environment) {
            Some(Arc::new(SqsQueue::connect_env(table.clone()).await))
        } else {
            None
        },
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
        table,
        environment,
        screen,
    };
    (context, store)
}

/// The queues as `init` makes and mends them, where there are any.
pub(crate) async fn queues(environment: &Environment) -> Option<Queues> {
    if sqs(environment) { Some(Queues::connect_env().await) } else { None }
}

/// Whether there are queues for us. An operator that keeps them in its own process (`queue.kind`) leaves none to us, and
/// whoever moves DynamoDB elsewhere and says nothing about SQS has none either.
fn sqs(environment: &Environment) -> bool {
    let set = |name| environment.get(name).is_some();
    let elsewhere = set("AWS_ENDPOINT_URL_DYNAMODB");
    environment.get("RUNYARD_QUEUE__KIND") != Some("memory")
        && (!elsewhere || set("AWS_ENDPOINT_URL") || set("AWS_ENDPOINT_URL_SQS"))
}
