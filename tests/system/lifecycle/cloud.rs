//! The engines that play AWS's services: one endpoint each, as the standard environment names them, with raw clients
//! beside the program's own.

use std::collections::BTreeSet;

use aws_config::SdkConfig;
use aws_sdk_ec2::types::{Filter, InstanceStateName};
use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry;
use runyard_core::model::PoolMessage;
use serde_json::{Value, json};

use crate::e2e::history;
use crate::e2e::waiting::until;
use runyard_support::engine::Engine;
use runyard_support::peer::{Peer, SUBNETS};

/// A message received by a raw client: what it names, and the claim it goes with.
pub(crate) type Hint = (String, String);

/// AWS, as far as a yard uses it.
pub(crate) struct Cloud {
    pub(crate) dynamodb: String,
    pub(crate) sqs: String,
    pub(crate) ec2: String,
    /// Whether EC2 makes up images and subnets of its own, which a class must name.
    pub(crate) subnets_told: bool,
    _engines: Vec<Engine>,
    pub(crate) peer: Option<Peer>,
}

/// An instance as EC2 lists it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) class: Option<String>,
    pub(crate) alive: bool,
}

impl Cloud {
    /// Records in dynoxide, hints and machines in moto.
    pub(crate) fn dynoxide_and_moto() -> Self {
        let (records, moto) = (Engine::dynoxide_memory(), Engine::moto());
        let at = |engine: &Engine| engine.endpoint().to_owned();
        let (dynamodb, sqs, ec2) = (at(&records), at(&moto), at(&moto));
        Self { dynamodb, sqs, ec2, subnets_told: true, _engines: vec![records, moto], peer: None }
    }

    /// All of it in ministack.
    pub(crate) fn ministack() -> Self {
        let engine = Engine::ministack();
        let at = || engine.endpoint().to_owned();
        let (dynamodb, sqs, ec2) = (at(), at(), at());
        Self { dynamodb, sqs, ec2, subnets_told: true, _engines: vec![engine], peer: None }
    }

    /// Records in dynoxide, hints in ministack, machines in the peer that has EC2's bad days.
    pub(crate) fn with_bad_days() -> Self {
        let (records, hints, peer) = (Engine::dynoxide_memory(), Engine::ministack(), Peer::start());
        // Each launch's machines are told of late, without their tags at first, and are long pending.
        peer.rules(|rules| {
            rules.unseen_for = 1;
            rules.untagged_for = 1;
            rules.pending_for = 2;
        });
        let (dynamodb, sqs) = (records.endpoint().to_owned(), hints.endpoint().to_owned());
        let ec2 = peer.endpoint().to_owned();
        let engines = vec![records, hints];
        Self { dynamodb, sqs, ec2, subnets_told: false, _engines: engines, peer: Some(peer) }
    }

    /// The environment that leads there.
    pub(crate) fn environment(&self) -> [(&'static str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL_DYNAMODB", &self.dynamodb),
            ("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", &self.dynamodb),
            ("AWS_ENDPOINT_URL_SQS", &self.sqs),
            ("AWS_ENDPOINT_URL_EC2", &self.ec2),
        ]
    }

    fn sdk(endpoint: &str) -> SdkConfig {
        history::sdk_as("test", endpoint)
    }

    /// EC2, by a raw client.
    pub(crate) fn ec2(&self) -> aws_sdk_ec2::Client {
        aws_sdk_ec2::Client::new(&Self::sdk(&self.ec2))
    }

    /// How a class's machines are launched there.
    pub(crate) async fn launch(&self) -> Value {
        let mut launch =
            json!({"ami": "ami-0123456789abcdef0", "architecture": "x86_64", "subnetIds": [SUBNETS[0].0]});
        if self.subnets_told {
            let told = self.ec2().describe_subnets().send().await.expect("the raw client reads");
            let subnets = told.subnets.unwrap_or_default();
            let subnet = subnets.first().and_then(|subnet| subnet.subnet_id()).expect("a default subnet");
            launch["subnetIds"] = json!([subnet]);
            let told = self.ec2().describe_images().send().await.expect("the raw client reads");
            let fits = |image: &aws_sdk_ec2::types::Image| {
                image.architecture().is_some_and(|architecture| architecture.as_str() == "x86_64")
            };
            let image = told.images.unwrap_or_default().into_iter().find(fits);
            if let Some(id) = image.and_then(|image| image.image_id) {
                launch["ami"] = json!(id);
            }
        }
        launch
    }

    /// The machines of a table that EC2 lists.
    pub(crate) async fn machines(&self, table: &str) -> Vec<Listed> {
        listed(&self.ec2(), table).await.expect("EC2 answers")
    }

    /// The queues and launch templates that are there for a class.
    pub(crate) async fn of_class(&self, table: &str, class: &str) -> BTreeSet<String> {
        let name = format!("{table}-{class}");
        let sqs = aws_sdk_sqs::Client::new(&Self::sdk(&self.sqs));
        let queues = sqs.list_queues().queue_name_prefix(&name).send().await.expect("SQS answers");
        let queues = queues.queue_urls.unwrap_or_default();
        let queues = queues.iter().filter_map(|url| url.rsplit('/').next()).map(str::to_owned);
        let templates = self.ec2().describe_launch_templates().send().await.expect("EC2 answers");
        let templates = templates.launch_templates.unwrap_or_default();
        let named = templates.into_iter().filter_map(|one| one.launch_template_name);
        queues.chain(named.filter(|one| *one == name).map(|one| format!("template {one}"))).collect()
    }

    /// Receives from a class's queue until everything wanted was among it, and gives it all back.
    pub(crate) async fn announces(&self, queue: &str, wanted: &BTreeSet<Hint>) {
        let client = aws_sdk_sqs::Client::new(&Self::sdk(&self.sqs));
        let url = client.get_queue_url().queue_name(queue).send().await.expect("the class has its queue");
        let url = url.queue_url.expect("a queue has an address");
        let (mut seen, mut receipts) = (BTreeSet::new(), Vec::new());
        until("every free machine on the queue", async || {
            let call = client.receive_message().queue_url(&url).max_number_of_messages(10);
            let got = call.visibility_timeout(30).send().await.expect("the raw client receives");
            for message in got.messages.unwrap_or_default() {
                let body = PoolMessage::read(&message.body.unwrap_or_default()).expect("a readable body");
                seen.insert((body.instance_id.to_string(), body.claim_id));
                receipts.extend(message.receipt_handle);
            }
            wanted.is_subset(&seen).then_some(())
        })
        .await;
        for some in receipts.chunks(10) {
            let entry = |(id, receipt): (usize, &String)| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(id.to_string())
                    .receipt_handle(receipt)
                    .visibility_timeout(0)
                    .build()
            };
            let entries: Result<Vec<_>, _> = some.iter().enumerate().map(entry).collect();
            let call = client.change_message_visibility_batch().queue_url(&url);
            let back = call.set_entries(Some(entries.expect("an entry"))).send().await;
            back.expect("the raw client gives back");
        }
    }
}

/// What EC2 lists of a table's machines; none when it does not answer.
pub(crate) async fn listed(client: &aws_sdk_ec2::Client, table: &str) -> Option<Vec<Listed>> {
    let filter = Filter::builder().name("tag:runyard:table").values(table).build();
    let told = client.describe_instances().filters(filter).send().await.ok()?;
    let mut all = Vec::new();
    for reservation in told.reservations.unwrap_or_default() {
        let owner = reservation.owner_id.unwrap_or_default();
        for instance in reservation.instances.unwrap_or_default() {
            let ours = |tag: &aws_sdk_ec2::types::Tag| {
                tag.key() == Some("runyard:table") && tag.value() == Some(table)
            };
            let state = instance.state().and_then(|state| state.name()).cloned();
            let alive = matches!(state, Some(InstanceStateName::Pending | InstanceStateName::Running));
            let class = instance.tags().iter().find(|tag| tag.key() == Some("runyard:class"));
            let class = class.and_then(|tag| tag.value()).map(str::to_owned);
            if instance.tags().iter().any(ours)
                && let Some(id) = instance.instance_id
            {
                all.push(Listed { id, owner: owner.clone(), class, alive });
            }
        }
    }
    Some(all)
}
