//! What every queue does.

use std::collections::BTreeSet;
use std::time::Duration;

use runyard_core::model::{ClassName, InstanceId, PoolMessage, TableName, UsageClass};
use runyard_core::ports::{PoolQueue, QueueDepth, QueueError, Received};
use runyard_operator::aws::SqsQueue;
use tokio::time::Instant;

use super::Bench;
use crate::ports::store::sdk_config;
use runyard_support::engine::nobody;

macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test($crate::ports::queue::Benches::Memory.fresh().await).await })+
        }
        mod ministack {
            $(#[tokio::test] async fn $test() { super::$test($crate::ports::queue::Benches::Ministack.fresh().await).await })+
        }
        mod moto {
            $(#[tokio::test] async fn $test() { super::$test($crate::ports::queue::Benches::Moto.fresh().await).await })+
        }
    };
}

on_every_engine!(
    a_class_without_queue_is_missing_until_it_is_made,
    making_a_queue_again_changes_nothing,
    its_depth_counts_hidden_messages_and_dead_letters,
    a_received_message_says_what_was_announced_and_is_hidden_from_others,
    a_deleted_message_does_not_come_back,
    receipts_that_could_not_be_deleted_are_answered,
    every_message_is_received_in_batches_of_at_most_ten,
    classes_do_not_mix,
    an_unreadable_message_is_shown_raw_and_can_be_buried,
    an_oversized_body_is_shown_cut,
    an_old_writers_body_is_read,
    calls_with_too_much_are_refused,
    unread_messages_are_put_aside_only_after_a_thousand_receives,
);

fn class(name: &str) -> ClassName {
    ClassName::parse(name).expect("a valid class")
}

fn linux() -> ClassName {
    class("linux")
}

fn message(class: &ClassName, number: usize) -> PoolMessage {
    let id = format!("i-{number:017x}");
    PoolMessage {
        claim_id: format!("{id}.7"),
        instance_id: InstanceId::parse(&id).expect("a valid id"),
        resource_class: class.clone(),
        instance_type: "m7i.large".into(),
        cpu: 2,
        mmem: 8192,
        usage_class: UsageClass::Spot,
    }
}

async fn announced(bench: &Bench, count: usize) -> Vec<PoolMessage> {
    bench.queue.ensure(&linux()).await.unwrap();
    let messages: Vec<_> = (0..count).map(|number| message(&linux(), number)).collect();
    for message in &messages {
        bench.queue.announce(message).await.unwrap();
    }
    messages
}

/// Receives until so many messages came; a short receive may be empty although some wait.
async fn receive(bench: &Bench, wanted: usize) -> Vec<Received> {
    let mut received = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(600);
    while received.len() < wanted {
        assert!(Instant::now() < deadline, "only {} of {wanted} came", received.len());
        let got = bench.queue.receive(&linux(), 10).await.unwrap();
        assert!(got.len() <= 10);
        received.extend(got);
    }
    received
}

fn receipts(received: &[Received]) -> Vec<String> {
    received.iter().map(|message| message.receipt.clone()).collect()
}

async fn a_class_without_queue_is_missing_until_it_is_made(bench: Bench) {
    assert_eq!(bench.queue.receive(&linux(), 1).await, Err(QueueError::Missing));
    assert_eq!(bench.queue.announce(&message(&linux(), 1)).await, Err(QueueError::Missing));
    bench.queue.ensure(&linux()).await.unwrap();
    assert_eq!(bench.queue.receive(&linux(), 1).await, Ok(Vec::new()));
}

async fn making_a_queue_again_changes_nothing(bench: Bench) {
    let wanted = announced(&bench, 1).await;
    bench.queue.ensure(&linux()).await.unwrap();
    assert_eq!(receive(&bench, 1).await[0].body, Ok(wanted[0].clone()));
}

async fn its_depth_counts_hidden_messages_and_dead_letters(bench: Bench) {
    assert_eq!(bench.queue.depth(&linux()).await, Err(QueueError::Missing));
    announced(&bench, 2).await;
    bench.post(&linux(), "not json").await;
    let received = receive(&bench, 3).await;
    let odd = received.iter().find(|m| m.body.is_err()).unwrap();
    bench.queue.bury(&linux(), &odd.receipt, "not json").await.unwrap();
    assert_eq!(bench.queue.depth(&linux()).await, Ok(Some(QueueDepth { waiting: 2, dead: 1 })));
}

async fn a_received_message_says_what_was_announced_and_is_hidden_from_others(bench: Bench) {
    let wanted = announced(&bench, 1).await;
    assert_eq!(receive(&bench, 1).await[0].body, Ok(wanted[0].clone()));
    assert_eq!(bench.queue.receive(&linux(), 10).await, Ok(Vec::new()));
}

async fn a_deleted_message_does_not_come_back(bench: Bench) {
    announced(&bench, 2).await;
    let received = receive(&bench, 2).await;
    let (gone, back) = (&received[0], &received[1]);
    assert_eq!(bench.queue.delete(&linux(), std::slice::from_ref(&gone.receipt)).await, Ok(Vec::new()));
    bench.show_again(&linux(), &receipts(&received)[1..]).await;
    assert_eq!(receive(&bench, 1).await[0].body, back.body);
    assert_eq!(bench.queue.receive(&linux(), 10).await, Ok(Vec::new()));
}

async fn receipts_that_could_not_be_deleted_are_answered(bench: Bench) {
    announced(&bench, 2).await;
    let mut given = receipts(&receive(&bench, 2).await);
    given.insert(1, "no-receipt".into());
    assert_eq!(bench.queue.delete(&linux(), &given).await, Ok(vec!["no-receipt".to_owned()]));
    assert_eq!(bench.queue.delete(&linux(), &[]).await, Ok(Vec::new()));
}

async fn every_message_is_received_in_batches_of_at_most_ten(bench: Bench) {
    let wanted: BTreeSet<_> = announced(&bench, 23).await.into_iter().map(|m| m.instance_id).collect();
    assert!(bench.queue.receive(&linux(), 1).await.unwrap().len() <= 1);
    let rest = receive(&bench, 22).await;
    let seen: BTreeSet<_> = rest.iter().map(|m| m.body.as_ref().unwrap().instance_id.clone()).collect();
    assert_eq!((rest.len(), seen.len()), (22, 22));
    assert!(seen.is_subset(&wanted));
}

async fn classes_do_not_mix(bench: Bench) {
    announced(&bench, 1).await;
    let other = class("linux-arm");
    bench.queue.ensure(&other).await.unwrap();
    assert_eq!(bench.queue.receive(&other, 10).await, Ok(Vec::new()));
    assert_eq!(receive(&bench, 1).await.len(), 1);
}

async fn an_unreadable_message_is_shown_raw_and_can_be_buried(bench: Bench) {
    bench.queue.ensure(&linux()).await.unwrap();
    let bodies = ["not json", "[]", r#"{"instanceId":"i-1"}"#];
    for body in bodies {
        bench.post(&linux(), body).await;
    }
    let received = receive(&bench, 3).await;
    let raw: BTreeSet<_> = received.iter().map(|m| m.body.clone().unwrap_err()).collect();
    assert_eq!(raw, bodies.map(str::to_owned).into());
    for message in &received {
        bench.queue.bury(&linux(), &message.receipt, message.body.as_ref().unwrap_err()).await.unwrap();
    }
    let mut dead = BTreeSet::new();
    let deadline = Instant::now() + Duration::from_secs(600);
    while dead.len() < 3 {
        assert!(Instant::now() < deadline, "only {dead:?} is among the dead letters");
        dead.extend(bench.dead(&linux()).await);
    }
    assert_eq!(dead, raw);
    let nothing = bench.queue.delete(&linux(), &receipts(&received)).await;
    assert!(nothing.is_ok(), "removing what is gone breaks nothing");
    assert_eq!(bench.queue.receive(&linux(), 10).await, Ok(Vec::new()));
}

async fn an_oversized_body_is_shown_cut(bench: Bench) {
    bench.queue.ensure(&linux()).await.unwrap();
    bench.post(&linux(), &"ä".repeat(100_000)).await;
    let shown = receive(&bench, 1).await[0].body.clone().unwrap_err();
    assert_eq!(shown, "ä".repeat(4096));
}

async fn an_old_writers_body_is_read(bench: Bench) {
    bench.queue.ensure(&linux()).await.unwrap();
    bench.post(&linux(), r#"{"id":"i-1","resourceClass":"linux","usageClass":"spot","new":{}}"#).await;
    let read = receive(&bench, 1).await[0].body.clone().unwrap();
    assert_eq!((read.instance_id.as_str(), read.claim_id.as_str()), ("i-1", ""));
}

async fn calls_with_too_much_are_refused(bench: Bench) {
    bench.queue.ensure(&linux()).await.unwrap();
    let eleven: Vec<_> = (0..11).map(|number| format!("receipt-{number}")).collect();
    for outcome in [
        bench.queue.receive(&linux(), 11).await.map(|_| ()),
        bench.queue.receive(&linux(), 0).await.map(|_| ()),
        bench.queue.delete(&linux(), &eleven).await.map(|_| ()),
    ] {
        assert!(matches!(outcome, Err(QueueError::Invalid(_))), "{outcome:?}");
    }
}

async fn unread_messages_are_put_aside_only_after_a_thousand_receives(bench: Bench) {
    bench.queue.ensure(&linux()).await.unwrap();
    let Some((policy, visibility)) = bench.attributes(&linux()).await else {
        // In memory the policy is no attribute but what happens.
        bench.post(&linux(), "never read").await;
        for _ in 0..1000 {
            let received = receive(&bench, 1).await;
            bench.show_again(&linux(), &receipts(&received)).await;
        }
        assert_eq!(bench.dead(&linux()).await, Vec::<String>::new());
        assert_eq!(bench.queue.receive(&linux(), 1).await, Ok(Vec::new()));
        assert_eq!(bench.dead(&linux()).await, ["never read"]);
        return;
    };
    let count =
        policy["maxReceiveCount"].as_u64().or_else(|| policy["maxReceiveCount"].as_str()?.parse().ok());
    assert_eq!(count, Some(1000));
    assert!(policy["deadLetterTargetArn"].as_str().is_some_and(|arn| arn.ends_with("-linux-dead")));
    assert_eq!(visibility, "30");
}

#[tokio::test]
async fn a_table_whose_name_no_queue_can_have_is_refused_with_the_fix() {
    let config = sdk_config("http://127.0.0.1:1").await;
    for table in ["my.table".to_owned(), "x".repeat(71)] {
        let queue = SqsQueue::connect(TableName::parse(&table).unwrap(), &config);
        let error = queue.ensure(&linux()).await.unwrap_err();
        assert!(matches!(&error, QueueError::Invalid(text) if text.contains("at most 74")), "{error}");
    }
}

#[tokio::test]
async fn where_nobody_listens_there_is_no_answer() {
    let (endpoint, _held) = nobody();
    let config = sdk_config(&endpoint).await;
    let queue = SqsQueue::connect(TableName::parse("runyard").unwrap(), &config);
    let outcome = queue.receive(&linux(), 1).await;
    assert!(matches!(outcome, Err(QueueError::Unreachable(_))), "{outcome:?}");
}
