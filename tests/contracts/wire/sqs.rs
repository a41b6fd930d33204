//! SQS: the pool queues' adapter, before an engine.

use std::sync::atomic::{AtomicUsize, Ordering};

use runyard_core::model::{ClassName, InstanceId, PoolMessage, TableName, UsageClass};
use runyard_core::ports::{JobBell as _, JobRings, Notices as _, PoolQueue as _, QueueError};
use runyard_operator::aws::{SqsJobBell, SqsNotices, SqsQueue};

use crate::wire::judge::{Came, Cell, config, judge};
use crate::wire::matrix::SQS;
use crate::wire::proxy::{Fault, Words, before};
use runyard_support::engine::Engine;

const JSON: &str = "application/x-amz-json-1.0";
const WORDS: Words = Words {
    internal: (500, JSON, r#"{"__type":"com.amazonaws.sqs#InternalFailure","message":"m"}"#),
    throttled: (400, JSON, r#"{"__type":"com.amazonaws.sqs#RequestThrottled","message":"m"}"#),
    foreign: (200, "text/xml", "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"),
};

fn message(class: &ClassName) -> PoolMessage {
    PoolMessage {
        instance_id: InstanceId::parse("i-0123456789abcdef0").unwrap(),
        resource_class: class.clone(),
        instance_type: "m7i.large".into(),
        cpu: 2,
        mmem: 4096,
        usage_class: UsageClass::OnDemand,
        claim_id: String::new(),
    }
}

fn letter<T>(outcome: &Result<T, QueueError>) -> char {
    match outcome {
        Ok(_) => '.',
        Err(QueueError::Unreachable(_)) => 'u',
        Err(QueueError::Throttled) => 't',
        Err(QueueError::Denied(_)) => 'd',
        Err(QueueError::Invalid(_)) => 'i',
        Err(QueueError::Missing) => 'm',
        Err(QueueError::NoService(_)) => 's',
    }
}

async fn play(engine: &Engine, numbers: &AtomicUsize, cell: Cell) -> Came {
    let number = numbers.fetch_add(1, Ordering::SeqCst);
    // The queue of queued jobs has its name of the table alone, and any queue will do for it.
    let (table, class) = match cell.call {
        "jobs" | "forget" => (format!("wire-{number}"), "jobs".to_owned()),
        _ => ("wire".to_owned(), format!("c{number}")),
    };
    let (table, class) = (TableName::parse(&table).unwrap(), ClassName::parse(&class).unwrap());
    let here = config(engine.endpoint()).await;
    let direct = SqsQueue::connect(table.clone(), &here);
    if cell.call != "ensure" {
        direct.ensure(&class).await.unwrap();
    }
    let name = match cell.call {
        "announce" | "bury" => "SendMessage",
        "receive" => "ReceiveMessage",
        "delete" => "DeleteMessageBatch",
        "address" => "GetQueueUrl",
        "ensure" => "CreateQueue",
        "notices" | "jobs" => "ReceiveMessage",
        "acknowledge" | "forget" => "DeleteMessageBatch",
        other => panic!("no call {other}"),
    };
    let mut receipts = Vec::new();
    if !matches!(cell.call, "announce" | "address" | "ensure") {
        direct.announce(&message(&class)).await.unwrap();
    }
    if matches!(cell.call, "delete" | "bury" | "acknowledge") {
        receipts = direct.receive(&class, 10).await.unwrap().into_iter().map(|got| got.receipt).collect();
    }
    let peer = before(engine.endpoint(), name, cell.fault, cell.lasting.times(), &WORDS).await;
    let spoilt = here.to_builder().endpoint_url(peer).build();
    // Any queue will do for EC2's: what is in it that is no notice is told and left there.
    let notices = SqsNotices::impatient(&format!("{table}-{class}"), &spoilt);
    let jobs = SqsJobBell::impatient(&table, &spoilt);
    let queue = SqsQueue::connect(table, &spoilt);
    let letter = match cell.call {
        "ensure" => letter(&queue.ensure(&class).await),
        "notices" => letter(&notices.receive().await),
        "acknowledge" => letter(&notices.acknowledge(&receipts).await),
        "jobs" => letter(&jobs.queued().await),
        "forget" => match jobs.queued().await {
            Ok(heard) if heard == JobRings::default() => '0',
            heard => letter(&heard),
        },
        "announce" | "address" => letter(&queue.announce(&message(&class)).await),
        "receive" => letter(&queue.receive(&class, 10).await),
        "delete" => letter(&queue.delete(&class, &receipts).await),
        _ => letter(&queue.bury(&class, &receipts[0], "raw").await),
    };
    if cell.call == "ensure" && letter != '.' {
        // What was begun is brought to its end by the next.
        direct.ensure(&class).await.unwrap();
    }
    let depth = direct.depth(&class).await.unwrap().unwrap();
    // A hint may be doubled, and what was buried is buried twice at worst; neither is lost where success was told.
    let most = if cell.fault.done() && cell.lasting.times() > 1 { 6 } else { 2 };
    let wrong = match cell.call {
        "announce" | "address" => letter == '.' && depth.waiting == 0 || depth.waiting > most,
        "ensure" => depth.waiting + depth.dead != 0,
        "delete" | "acknowledge" => letter == '.' && depth.waiting != 0,
        "receive" | "notices" => depth.waiting != 1,
        "jobs" | "forget" => depth.waiting > 1,
        _ => letter == '.' && (depth.waiting != 0 || depth.dead == 0) || depth.waiting + depth.dead == 0,
    };
    let wrong = wrong && cell.fault != Fault::Refused;
    Came { letter, wrong: wrong.then(|| format!("{cell:?}: {letter}, {depth:?}")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_the_queue_makes_of_every_fault_what_its_row_says() {
    let engine = Engine::ministack();
    let numbers = AtomicUsize::new(0);
    judge(&SQS, async |cell| play(&engine, &numbers, cell).await).await;
}
