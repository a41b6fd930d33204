//! How is the table reached? The one place where the command line builds its adapters.

use std::sync::Arc;

use super::context::Context;
use super::environment::Environment;
use super::screen::Screen;
use crate::aws::SqsQueue;
use crate::clock::{SystemClock, SystemEntropy};
use crate::model::TableName;
use crate::ports::PoolQueue;
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
        queue: queue(&table, &environment).await,
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
        table,
        environment,
        screen,
    };
    (context, store)
}

/// The pool queues. An operator that keeps them in its own process (`queue.kind`) leaves none to us, and whoever moves
/// DynamoDB elsewhere and says nothing about SQS has none either.
async fn queue(table: &TableName, environment: &Environment) -> Option<Arc<dyn PoolQueue>> {
    let set = |name| environment.get(name).is_some();
    if environment.get("RUNYARD_QUEUE__KIND") == Some("memory") {
        return None;
    }
    let elsewhere = set("AWS_ENDPOINT_URL_DYNAMODB");
    if elsewhere && !set("AWS_ENDPOINT_URL") && !set("AWS_ENDPOINT_URL_SQS") {
        return None;
    }
    Some(Arc::new(SqsQueue::connect_env(table.clone()).await))
}
