//! Queues of a table of its own on every engine, with a raw client beside the port.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use jiff::Timestamp;
use runyard_core::model::{ClassName, TableName};
use runyard_core::ports::PoolQueue;
use runyard_fakes::{ManualClock, MemoryQueue};
use runyard_operator::aws::SqsQueue;

use crate::ports::store::sdk_config;
use runyard_support::engine::Engine;

static MINISTACK: LazyLock<Engine> = LazyLock::new(Engine::ministack);
static MOTO: LazyLock<Engine> = LazyLock::new(Engine::moto);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// The queue under test and what lies behind it.
pub(crate) struct Bench {
    pub(crate) queue: Arc<dyn PoolQueue>,
    raw: RawQueue,
}

enum RawQueue {
    Memory(MemoryQueue),
    Sqs { client: Client, table: String },
}

/// Where queues come from.
pub(crate) enum Benches {
    Memory,
    Ministack,
    Moto,
}

impl Benches {
    pub(crate) async fn fresh(&self) -> Bench {
        match self {
            Self::Memory => {
                let queue = MemoryQueue::new(Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH)));
                Bench { queue: Arc::new(queue.clone()), raw: RawQueue::Memory(queue) }
            }
            Self::Ministack => on(MINISTACK.endpoint()).await,
            Self::Moto => on(MOTO.endpoint()).await,
        }
    }
}

async fn on(endpoint: &str) -> Bench {
    let config = sdk_config(endpoint).await;
    let table = format!("queues-{}-{}", std::process::id(), TABLES.fetch_add(1, Ordering::SeqCst));
    let queue = SqsQueue::connect(TableName::parse(&table).expect("a valid name"), &config);
    Bench { queue: Arc::new(queue), raw: RawQueue::Sqs { client: Client::new(&config), table } }
}

impl Bench {
    /// Sends a body as it is.
    pub(crate) async fn post(&self, class: &ClassName, body: &str) {
        match &self.raw {
            RawQueue::Memory(queue) => queue.post(class, body),
            RawQueue::Sqs { client, table } => {
                let url = url(client, &format!("{table}-{class}")).await;
                client
                    .send_message()
                    .queue_url(url)
                    .message_body(body)
                    .send()
                    .await
                    .expect("the raw client sends");
            }
        }
    }

    /// Makes received messages visible again at once.
    pub(crate) async fn show_again(&self, class: &ClassName, receipts: &[String]) {
        match &self.raw {
            RawQueue::Memory(queue) => queue.show_again(class, receipts),
            RawQueue::Sqs { client, table } => {
                let url = url(client, &format!("{table}-{class}")).await;
                for receipt in receipts {
                    let call = client.change_message_visibility().queue_url(&url).receipt_handle(receipt);
                    call.visibility_timeout(0).send().await.expect("the raw client shows it again");
                }
            }
        }
    }

    /// The bodies among the dead letters.
    pub(crate) async fn dead(&self, class: &ClassName) -> Vec<String> {
        match &self.raw {
            RawQueue::Memory(queue) => queue.dead(class),
            RawQueue::Sqs { client, table } => {
                let url = url(client, &format!("{table}-{class}-dead")).await;
                let call = client.receive_message().queue_url(url).max_number_of_messages(10);
                let got = call.wait_time_seconds(1).send().await.expect("the raw client receives");
                got.messages.unwrap_or_default().into_iter().filter_map(|message| message.body).collect()
            }
        }
    }

    /// The redrive policy and the visibility time-out of a class's queue, where it has attributes.
    pub(crate) async fn attributes(&self, class: &ClassName) -> Option<(serde_json::Value, String)> {
        match &self.raw {
            RawQueue::Memory(_) => None,
            RawQueue::Sqs { client, table } => {
                let url = url(client, &format!("{table}-{class}")).await;
                let call =
                    client.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
                let mut told =
                    call.send().await.expect("the raw client reads").attributes.unwrap_or_default();
                let policy = told.remove(&QueueAttributeName::RedrivePolicy).expect("a redrive policy");
                let visibility = told.remove(&QueueAttributeName::VisibilityTimeout).expect("a time-out");
                Some((serde_json::from_str(&policy).expect("a policy is JSON"), visibility))
            }
        }
    }
}

async fn url(client: &Client, name: &str) -> String {
    let told = client.get_queue_url().queue_name(name).send().await.expect("the queue is there");
    told.queue_url.expect("a queue has an address")
}
