//! How are the table and the clock reached? The one place where the command line builds its adapters.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rand::RngCore as _;

use super::context::Context;
use super::environment::Environment;
use super::screen::Screen;
use crate::aws::SqsQueue;
use crate::model::{TableName, millis};
use crate::ports::{Clock, Entropy, PoolQueue};
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
        clock: Arc::new(Wall(tokio::time::Instant::now())),
        entropy: Arc::new(Chance),
        table,
        environment,
        screen,
    };
    (context, store)
}

/// The pool queues. Whoever moves DynamoDB elsewhere and says nothing about SQS has none: the embedded engine keeps
/// its queues in the operator's process.
async fn queue(table: &TableName, environment: &Environment) -> Option<Arc<dyn PoolQueue>> {
    let set = |name| environment.get(name).is_some();
    let elsewhere = set("AWS_ENDPOINT_URL_DYNAMODB");
    if elsewhere && !set("AWS_ENDPOINT_URL") && !set("AWS_ENDPOINT_URL_SQS") {
        return None;
    }
    Some(Arc::new(SqsQueue::connect_env(table.clone()).await))
}

/// The machine's clock.
struct Wall(tokio::time::Instant);

impl Clock for Wall {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the command line's one place that reads the clock"
    )]
    fn now(&self) -> Timestamp {
        millis(Timestamp::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The machine's randomness.
struct Chance;

impl Entropy for Chance {
    fn hex(&self) -> String {
        format!("{:016x}", rand::rng().next_u64())
    }

    fn fill(&self, buffer: &mut [u8]) {
        rand::rng().fill_bytes(buffer);
    }
}
