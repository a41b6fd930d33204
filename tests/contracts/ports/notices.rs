//! Does the queue of notices bring what EventBridge put there? The same on the stand-in and on real engines.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use aws_sdk_sqs::Client;
use jiff::Timestamp;
use runyard_core::model::{InterruptionAction, News};
use runyard_core::ports::{Notices, QueueError};
use runyard_fakes::{ManualClock, MemoryNotices};
use runyard_operator::aws::SqsNotices;

use crate::ports::store::sdk_config;
use runyard_support::engine::Engine;

static MINISTACK: LazyLock<Engine> = LazyLock::new(Engine::ministack);
static MOTO: LazyLock<Engine> = LazyLock::new(Engine::moto);
static QUEUES: AtomicU32 = AtomicU32::new(0);

const WARNING: &str = include_str!("../../golden/events/spot-interruption-warning.json");
const PENDING: &str = r#"{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification",
    "time":"2026-01-05T12:00:00Z","detail":{"instance-id":"i-1234567890abcdef0","state":"pending"}}"#;

/// What is told is told once; what says nothing to us is told too, so that it is acknowledged; the rest stays.
async fn brings_what_was_sent(notices: &dyn Notices) {
    let mut told = Vec::new();
    let mut unreadable = 0;
    // An engine may answer with a part.
    while told.len() < 2 || unreadable < 1 {
        let batch = notices.receive().await.unwrap();
        assert!(!batch.deliveries.is_empty() || !batch.unreadable.is_empty(), "nothing more came");
        told.extend(batch.deliveries);
        unreadable += batch.unreadable.len();
    }
    assert_eq!(unreadable, 1);
    let said: Vec<_> = told.iter().flat_map(|told| &told.notices).collect();
    let [notice] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(notice.instance.as_str(), "i-1234567890abcdef0");
    assert!(matches!(&notice.news, News::Interruption(i) if i.action == InterruptionAction::Terminate));
    let receipts: Vec<String> = told.into_iter().map(|told| told.receipt).collect();
    notices.acknowledge(&receipts).await.unwrap();
    notices.acknowledge(&[]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn in_memory() {
    let notices = MemoryNotices::new(Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH)));
    [WARNING, PENDING, "not an event"].into_iter().for_each(|body| notices.post(body));
    brings_what_was_sent(&notices).await;
    assert_eq!(notices.bodies(), ["not an event"]);
}

async fn on(endpoint: &str) {
    let config = sdk_config(endpoint).await;
    let name = format!("notices-{}-{}", std::process::id(), QUEUES.fetch_add(1, Ordering::SeqCst));
    let notices = SqsNotices::impatient(&name, &config);
    assert_eq!(notices.receive().await, Err(QueueError::Missing), "before it is there");
    let client = Client::new(&config);
    let url = client.create_queue().queue_name(&name).send().await.unwrap().queue_url.unwrap();
    for body in [WARNING, PENDING, "not an event"] {
        client.send_message().queue_url(&url).message_body(body).send().await.unwrap();
    }
    brings_what_was_sent(&notices).await;
    // Only what could not be read is left, and hidden from others for now.
    let left = client.get_queue_attributes().queue_url(&url);
    let left = left.attribute_names(aws_sdk_sqs::types::QueueAttributeName::All).send().await.unwrap();
    let attributes = left.attributes.unwrap();
    let count = |name: &str| attributes.iter().find(|(key, _)| key.as_str() == name).unwrap().1.clone();
    assert_eq!(count("ApproximateNumberOfMessagesNotVisible"), "1");
    assert_eq!(count("ApproximateNumberOfMessages"), "0");
}

#[tokio::test]
async fn on_ministack() {
    on(MINISTACK.endpoint()).await;
}

#[tokio::test]
async fn on_moto() {
    on(MOTO.endpoint()).await;
}
