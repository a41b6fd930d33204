//! Does the queue of queued jobs bring what the webhook put there, and keep nothing? The same on the stand-in and on real
//! engines.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use runyard_core::model::{JobRing, TableName};
use runyard_core::ports::{JobBell, JobRings, QueueError};
use runyard_fakes::MemoryJobBell;
use runyard_operator::aws::SqsJobBell;
use runyard_operator::aws::queues::{QueueState, Queues, WantedQueue};

use crate::ports::store::sdk_config;
use runyard_support::engine::Engine;

const QUEUED: &str = include_str!("../../golden/webhooks/workflow-job-queued.json");
const EVENT: &str = include_str!("../../golden/webhooks/workflow-job-eventbridge.json");
static TABLES: AtomicU32 = AtomicU32::new(0);

fn table() -> TableName {
    let number = TABLES.fetch_add(1, Ordering::SeqCst);
    TableName::parse(&format!("jobs-{}-{number}", std::process::id())).unwrap()
}

/// As many messages as make several batches: the same job over and over, some others, and what names none.
fn bodies() -> Vec<String> {
    let of_run = |run: u64| QUEUED.replace("\"run_id\": 42", &format!("\"run_id\": {run}"));
    let form = form_urlencoded::Serializer::new(String::new()).append_pair("payload", &of_run(43)).finish();
    let foreign = ["no JSON", "{}", "ring"].map(str::to_owned);
    let same = std::iter::repeat_n(QUEUED.to_owned(), 20);
    same.chain([EVENT.to_owned(), form, of_run(44)]).chain(foreign).collect()
}

/// All that `bodies` says is heard, and each message once.
async fn brings_what_was_sent(bell: &dyn JobBell) {
    let (mut rings, mut ignored) = (BTreeSet::new(), 0);
    // An engine may answer with a part.
    while rings.len() < 3 || ignored < 3 {
        let heard = bell.queued().await.unwrap();
        assert_ne!(heard, JobRings::default(), "nothing more came: {rings:?}, {ignored}");
        assert!(heard.rings.len() + heard.ignored <= 10, "a bounded batch");
        rings.extend(heard.rings);
        ignored += heard.ignored;
    }
    let ring = |run| JobRing { repository: "Acme/Web".parse().unwrap(), run };
    assert_eq!((rings, ignored), ([42, 43, 44].map(ring).into(), 3));
}

#[tokio::test(start_paused = true)]
async fn in_memory() {
    let bell = MemoryJobBell::new();
    bodies().iter().for_each(|body| bell.post(body));
    brings_what_was_sent(&bell).await;
    while bell.queued().await.unwrap() != JobRings::default() {}
    assert_eq!(bell.waiting(), 0);
}

async fn on(engine: &Engine) {
    let (config, table) = (sdk_config(engine.endpoint()).await, table());
    let bell = SqsJobBell::impatient(&table, &config);
    assert_eq!(bell.queued().await, Err(QueueError::Missing), "before it is there");
    let (queues, wanted) = (Queues::connect(&config), WantedQueue::of_jobs(&table));
    assert!(matches!(queues.ensure(&wanted).await, Ok(QueueState::Missing(_))));
    assert_eq!(queues.ensure(&wanted).await, Ok(QueueState::Present(Vec::new())));
    assert_eq!(bell.queued().await, Ok(JobRings::default()));
    let client = Client::new(&config);
    let url = client.get_queue_url().queue_name(&wanted.name).send().await.unwrap().queue_url.unwrap();
    for body in bodies() {
        client.send_message().queue_url(&url).message_body(body).send().await.unwrap();
    }
    brings_what_was_sent(&bell).await;
    let attributes = async || {
        let told = client.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All);
        told.send().await.unwrap().attributes.unwrap()
    };
    let left = async || {
        let told = attributes().await;
        let count = |name| told[&name].parse::<u32>().unwrap();
        count(QueueAttributeName::ApproximateNumberOfMessages)
            + count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible)
    };
    // The copies of one job fill further batches.
    for _ in 0..bodies().len() {
        if left().await == 0 {
            break;
        }
        bell.queued().await.unwrap();
    }
    assert_eq!(left().await, 0, "what was received is deleted");
    let told = attributes().await;
    assert_eq!(told[&QueueAttributeName::MessageRetentionPeriod], "300");
    assert_eq!(told[&QueueAttributeName::MaximumMessageSize], "262144");
    let larger = "x".repeat(256 * 1024 + 1);
    let refused = client.send_message().queue_url(&url).message_body(larger).send().await;
    assert!(refused.is_err(), "what is too large is not even taken");
    assert!(queues.delete(&wanted.name).await.unwrap());
    assert_eq!(bell.queued().await, Err(QueueError::Missing), "and when it is gone");
}

#[tokio::test]
async fn on_ministack() {
    on(&Engine::ministack()).await;
}

#[tokio::test]
async fn on_moto() {
    on(&Engine::moto()).await;
}
