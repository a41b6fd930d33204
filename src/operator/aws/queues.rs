//! Compares the queues of a yard with the requirements of the contract, including their dead-letter queues, and repairs
//! differences. Other settings of a queue remain as people set them.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use aws_sdk_sqs::{Client, config};
use serde_json::{Value, json};

use super::doorbell::RETENTION;
use super::job_bell;
use super::sqs::{DEAD_LETTERS_KEPT, LONGEST_NAME, RECEIVES, VISIBILITY, dead};
use crate::model::{ClassName, DOORBELL, JOBS, LARGEST_JOB_RING, TableName};
use crate::ports::QueueError;
use crate::store::queue::classify;
use crate::store::{Difference, retries, timeouts};

/// How often a notice is received before SQS moves it to the dead letters: the leader needs a few receives for one that
/// it acts on later.
const NOTICE_RECEIVES: u32 = 10;

/// A required queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedQueue {
    /// Its name.
    pub name: String,
    role: Role,
    /// How long it keeps a message; `None` where people may set it.
    retention: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Announcements of free machines.
    Pool,
    /// Notices from EventBridge.
    Notices,
    /// Rings from writers of intents.
    Doorbell,
    /// GitHub's word that jobs were queued.
    Jobs,
    /// Dead letters of another queue.
    Dead,
}

impl WantedQueue {
    const fn new(name: String, role: Role) -> Self {
        Self { name, role, retention: None }
    }

    /// Returns a class's dead-letter queue, then its queue, which keeps announcements as long as
    /// [`Timing::announced`](crate::model::Timing::announced) says.
    pub fn of_class(table: &TableName, class: &ClassName, announced: Duration) -> [Self; 2] {
        let name = format!("{table}-{class}");
        let retention = Some(announced.as_secs());
        [Self::new(dead(&name), Role::Dead), Self { retention, ..Self::new(name, Role::Pool) }]
    }

    /// Returns the dead-letter queue of the queue of interruptions, then that queue.
    pub fn of_interruptions(name: &str) -> [Self; 2] {
        [Self::new(dead(name), Role::Dead), Self::new(name.to_owned(), Role::Notices)]
    }

    /// Returns the doorbell: its rings are useless after a minute, and have no dead letters.
    pub fn of_doorbell(table: &TableName) -> Self {
        Self::new(format!("{table}-{DOORBELL}"), Role::Doorbell)
    }

    /// Returns the queue of GitHub's queued jobs. A message that is not read soon is useless, and has no dead letters.
    pub fn of_jobs(table: &TableName) -> Self {
        Self::new(format!("{table}-{JOBS}"), Role::Jobs)
    }

    fn receives(&self) -> Option<u32> {
        match self.role {
            Role::Pool => Some(RECEIVES),
            Role::Notices => Some(NOTICE_RECEIVES),
            Role::Dead | Role::Doorbell | Role::Jobs => None,
        }
    }

    /// Returns how the retention of an existing queue differs from the wanted one.
    fn retention_differs(&self, told: Option<&str>) -> Option<Difference> {
        let wanted = self.retention?.to_string();
        let found = told.unwrap_or("nothing");
        (found != wanted).then(|| Difference { what: RETENTION_OF, wanted, found: found.to_owned() })
    }

    fn redrive_wanted(&self) -> Option<String> {
        self.receives().map(|most| format!("to {} after {most} receives", dead(&self.name)))
    }

    /// Returns how the redrive policy of an existing queue differs from the wanted one.
    fn redrive_differs(&self, policy: Option<&str>) -> Option<Difference> {
        let (most, wanted) = (self.receives()?, self.redrive_wanted()?);
        let told = policy.and_then(|policy| serde_json::from_str::<Value>(policy).ok());
        let target = told.as_ref().and_then(|told| told["deadLetterTargetArn"].as_str());
        let target = target.map(|arn| arn.rsplit(':').next().unwrap_or(arn).to_owned());
        let count = told.as_ref().map(|told| &told["maxReceiveCount"]);
        let count = count.and_then(|count| count.as_u64().or_else(|| count.as_str()?.parse().ok()));
        let enough = match self.role {
            Role::Pool => count == Some(u64::from(most)),
            Role::Notices | Role::Dead | Role::Doorbell | Role::Jobs => {
                count.is_some_and(|count| count >= u64::from(most))
            }
        };
        if enough && target.as_deref() == Some(dead(&self.name).as_str()) {
            return None;
        }
        let found = match (target, count) {
            (Some(target), Some(count)) => format!("to {target} after {count} receives"),
            _ => "nothing".to_owned(),
        };
        Some(Difference { what: "RedrivePolicy", wanted, found })
    }
}

/// The state of a queue compared with its requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// The queue does not exist; the attributes with which it would be created.
    Missing(Vec<Difference>),
    /// The queue exists; without differences it is correct.
    Present(Vec<Difference>),
}

/// The queues of an account and region.
#[derive(Clone, Debug)]
pub struct Queues {
    client: Client,
}

impl Queues {
    /// Connects with `config`. No call is made yet.
    pub fn connect(config: &SdkConfig) -> Self {
        let config = config::Builder::from(config).retry_config(retries()).timeout_config(timeouts());
        Self { client: Client::from_conf(config.build()) }
    }

    /// Compares a queue with its requirements. Changes nothing.
    ///
    /// # Errors
    /// Those of the queues; a missing queue is not one.
    pub async fn examine(&self, queue: &WantedQueue) -> Result<QueueState, QueueError> {
        let Some(url) = self.url(&queue.name).await? else {
            return Ok(QueueState::Missing(birth(queue)));
        };
        let call = self.client.get_queue_attributes().queue_url(url);
        let call = call.set_attribute_names(Some(vec![
            Name::RedrivePolicy,
            Name::Policy,
            Name::MessageRetentionPeriod,
        ]));
        let told = call.send().await.map_err(|error| classify(&error))?.attributes.unwrap_or_default();
        let mut differences = Vec::new();
        differences.extend(queue.redrive_differs(told.get(&Name::RedrivePolicy).map(String::as_str)));
        let kept = told.get(&Name::MessageRetentionPeriod).map(String::as_str);
        differences.extend(queue.retention_differs(kept));
        let policy = told.get(&Name::Policy).is_some_and(|policy| !policy.is_empty());
        match queue.role {
            // A policy that people wrote remains: it may grant more.
            Role::Notices if !policy => differences.push(missing("Policy", SENDERS.to_owned())),
            Role::Notices | Role::Pool | Role::Doorbell | Role::Jobs | Role::Dead => {}
        }
        Ok(QueueState::Present(differences))
    }

    /// Creates a queue, or corrects its differences. Its dead-letter queue must exist.
    ///
    /// # Errors
    /// Those of the queues.
    pub async fn ensure(&self, queue: &WantedQueue) -> Result<QueueState, QueueError> {
        let state = self.examine(queue).await?;
        match &state {
            QueueState::Present(differences) if differences.is_empty() => return Ok(state),
            QueueState::Present(_) => {}
            QueueState::Missing(_) => self.create(queue).await?,
        }
        self.mend(queue, &state).await?;
        Ok(state)
    }

    /// Deletes a queue with its messages; returns whether there was one.
    ///
    /// # Errors
    /// Those of the queues.
    pub async fn delete(&self, name: &str) -> Result<bool, QueueError> {
        let Some(url) = self.url(name).await? else { return Ok(false) };
        match self.client.delete_queue().queue_url(url).send().await.map_err(|error| classify(&error)) {
            Ok(_) => Ok(true),
            Err(QueueError::Missing) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, queue: &WantedQueue) -> Result<(), QueueError> {
        let call = self.client.create_queue().queue_name(&queue.name);
        let call = match queue.role {
            Role::Dead => call.attributes(Name::MessageRetentionPeriod, DEAD_LETTERS_KEPT.to_string()),
            Role::Doorbell => call.attributes(Name::MessageRetentionPeriod, RETENTION.to_string()),
            Role::Jobs => call
                .attributes(Name::MessageRetentionPeriod, job_bell::RETENTION.to_string())
                .attributes(Name::MaximumMessageSize, LARGEST_JOB_RING.to_string()),
            Role::Pool | Role::Notices => call.attributes(Name::VisibilityTimeout, VISIBILITY.to_string()),
        };
        call.send().await.map(|_| ()).map_err(|error| classify(&error))
    }

    async fn mend(&self, queue: &WantedQueue, state: &QueueState) -> Result<(), QueueError> {
        let (QueueState::Missing(differences) | QueueState::Present(differences)) = state;
        let wrong = |what: &str| differences.iter().any(|difference| difference.what == what);
        let url = self.url(&queue.name).await?.ok_or(QueueError::Missing)?;
        let mut call = self.client.set_queue_attributes().queue_url(&url);
        if let (Some(most), true) = (queue.receives(), wrong("RedrivePolicy")) {
            let dead_letters = self.url(&dead(&queue.name)).await?.ok_or(QueueError::Missing)?;
            let target = self.arn(&dead_letters).await?;
            let policy = json!({"deadLetterTargetArn": target, "maxReceiveCount": most.to_string()});
            call = call.attributes(Name::RedrivePolicy, policy.to_string());
        }
        if let (Some(kept), true) = (queue.retention, wrong(RETENTION_OF)) {
            call = call.attributes(Name::MessageRetentionPeriod, kept.to_string());
        }
        if wrong("Policy") {
            call = call.attributes(Name::Policy, senders(&self.arn(&url).await?).to_string());
        }
        if call.get_attributes().is_none() {
            return Ok(());
        }
        call.send().await.map(|_| ()).map_err(|error| classify(&error))
    }

    async fn url(&self, name: &str) -> Result<Option<String>, QueueError> {
        if name.len() > LONGEST_NAME {
            let why = format!("no queue can be called {name:?}: at most {LONGEST_NAME} characters");
            return Err(QueueError::Invalid(why));
        }
        match self.client.get_queue_url().queue_name(name).send().await.map_err(|error| classify(&error)) {
            Ok(told) => Ok(told.queue_url),
            Err(QueueError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn arn(&self, url: &str) -> Result<String, QueueError> {
        let call = self.client.get_queue_attributes().queue_url(url).attribute_names(Name::QueueArn);
        let told = call.send().await.map_err(|error| classify(&error))?.attributes.unwrap_or_default();
        let arn = told.get(&Name::QueueArn).cloned();
        arn.ok_or_else(|| QueueError::Unreachable(format!("no ARN was given for {url}")))
    }
}

/// The name of the attribute that says how long a message is kept.
const RETENTION_OF: &str = "MessageRetentionPeriod";
/// The description of the policy of the queue of notices, for people.
const SENDERS: &str = "EventBridge of this account may send";

/// Returns a policy that lets EventBridge's rules of the queue's own account send, and no other outside sender.
fn senders(arn: &str) -> Value {
    let account = arn.split(':').nth(4).unwrap_or_default();
    json!({"Version": "2012-10-17", "Statement": [{
        "Sid": "Events",
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"StringEquals": {"aws:SourceAccount": account}},
    }]})
}

fn missing(what: &'static str, wanted: String) -> Difference {
    Difference { what, wanted, found: "nothing".to_owned() }
}

/// Returns the attributes with which a queue is created.
fn birth(queue: &WantedQueue) -> Vec<Difference> {
    match queue.role {
        Role::Dead => vec![missing(RETENTION_OF, DEAD_LETTERS_KEPT.to_string())],
        Role::Doorbell => vec![missing(RETENTION_OF, RETENTION.to_string())],
        Role::Jobs => vec![
            missing(RETENTION_OF, job_bell::RETENTION.to_string()),
            missing("MaximumMessageSize", LARGEST_JOB_RING.to_string()),
        ],
        Role::Pool | Role::Notices => {
            let mut with = vec![missing("VisibilityTimeout", VISIBILITY.to_string())];
            with.extend(queue.retention.map(|kept| missing(RETENTION_OF, kept.to_string())));
            with.extend(queue.redrive_wanted().map(|wanted| missing("RedrivePolicy", wanted)));
            if queue.role == Role::Notices {
                with.push(missing("Policy", SENDERS.to_owned()));
            }
            with
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ANNOUNCED;

    fn pool() -> WantedQueue {
        let name = |text: &str| TableName::parse(text).unwrap();
        WantedQueue::of_class(&name("yard"), &ClassName::parse("small").unwrap(), ANNOUNCED)[1].clone()
    }

    #[test]
    fn a_redrive_policy_is_good_when_it_names_our_dead_letters_and_the_contracts_count() {
        let policy = |queue: &str, count: Value| {
            json!({"deadLetterTargetArn": format!("arn:aws:sqs:eu-west-1:1:{queue}"), "maxReceiveCount": count})
                .to_string()
        };
        for (policy, good) in [
            (Some(policy("yard-small-dead", json!(1000))), true),
            (Some(policy("yard-small-dead", json!("1000"))), true),
            (Some(policy("yard-small-dead", json!(5))), false),
            (Some(policy("other-dead", json!(1000))), false),
            (Some("no JSON".to_owned()), false),
            (Some(String::new()), false),
            (None, false),
        ] {
            assert_eq!(pool().redrive_differs(policy.as_deref()).is_none(), good, "{policy:?}");
        }
        let [_, notices] = WantedQueue::of_interruptions("yard-interruptions");
        for (count, good) in [(9, false), (10, true), (50, true)] {
            let policy = policy("yard-interruptions-dead", json!(count));
            assert_eq!(notices.redrive_differs(Some(&policy)).is_none(), good, "{count}");
        }
    }

    #[test]
    fn only_eventbridge_of_the_queues_own_account_may_send_notices() {
        let policy = senders("arn:aws:sqs:eu-west-1:123456789012:yard-interruptions");
        let statement = &policy["Statement"][0];
        assert_eq!(statement["Principal"], json!({"Service": "events.amazonaws.com"}));
        assert_eq!(statement["Condition"]["StringEquals"]["aws:SourceAccount"], "123456789012");
    }
}
