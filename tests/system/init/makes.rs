//! What is missing is made, what lacks something is given it, and the second run writes nothing.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_sdk_ec2::types::RequestLaunchTemplateData;
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};

use crate::init::site::{Site, spec};

const QUEUES: [&str; 8] = [
    "yard-doorbell",
    "yard-interruptions",
    "yard-interruptions-dead",
    "yard-jobs",
    "yard-large",
    "yard-large-dead",
    "yard-small",
    "yard-small-dead",
];

fn redrive(attributes: &std::collections::BTreeMap<String, String>) -> (String, String) {
    let policy: Value = serde_json::from_str(&attributes["RedrivePolicy"]).expect("JSON");
    let target = policy["deadLetterTargetArn"].as_str().expect("an ARN").to_owned();
    let count = policy["maxReceiveCount"].to_string().trim_matches('"').to_owned();
    (target.rsplit(':').next().unwrap_or_default().to_owned(), count)
}

/// Everything is made, each with what the contract says of it, and made once.
async fn makes_everything_once(site: &Site) {
    let made = site.init(&["-o", "json"], 0).states();
    assert_eq!(made.len(), 2 + QUEUES.len() + 2, "{made:?}");
    assert!(made.values().all(|state| state == "created"), "{made:?}");

    let table = site.dynamodb().describe_table().table_name(&site.table).send().await.unwrap().table.unwrap();
    let stream = table.stream_specification().unwrap().stream_view_type().unwrap();
    assert_eq!(stream.as_str(), "NEW_AND_OLD_IMAGES");
    let queues = site.queues().await;
    assert_eq!(queues.keys().collect::<Vec<_>>(), QUEUES.iter().collect::<Vec<_>>());
    assert_eq!(redrive(&queues["yard-small"]), ("yard-small-dead".into(), "1000".into()));
    assert_eq!(redrive(&queues["yard-interruptions"]), ("yard-interruptions-dead".into(), "10".into()));
    assert_eq!(queues["yard-small-dead"]["MessageRetentionPeriod"], "1209600");
    assert_eq!(queues["yard-doorbell"]["MessageRetentionPeriod"], "60");
    assert_eq!(queues["yard-jobs"]["MessageRetentionPeriod"], "300");
    assert_eq!(queues["yard-jobs"]["MaximumMessageSize"], "262144");
    for bell in ["yard-doorbell", "yard-jobs"] {
        assert!(!queues[bell].contains_key("RedrivePolicy"), "{bell}");
    }
    assert!(queues["yard-interruptions"]["Policy"].contains("events.amazonaws.com"));
    let templates = site.templates().await;
    for name in ["yard-large", "yard-small"] {
        assert_eq!(templates[name], (1, 1), "{templates:?}");
    }

    for more in [["-o", "json"].as_slice(), &["--dry-run", "-o", "json"]] {
        let again = site.init(more, 0).states();
        assert!(again.values().all(|state| state == "as it should be"), "{more:?}: {again:?}");
        assert_eq!(site.queues().await, queues, "SQS says when a queue was last changed");
        assert_eq!(site.templates().await, templates);
    }
}

#[tokio::test]
async fn everything_is_made_once_with_machines_at_the_peer() {
    let site = Site::with_peer();
    makes_everything_once(&site).await;
    let peer = site.peer.as_ref().expect("a peer");
    assert_eq!(peer.calls("CreateLaunchTemplate"), 2);
    for never in ["CreateLaunchTemplateVersion", "ModifyLaunchTemplate", "CreateFleet", "RunInstances"] {
        assert_eq!(peer.calls(never), 0, "{never}");
    }
}

#[tokio::test]
async fn everything_is_made_once_on_moto() {
    makes_everything_once(&Site::moto()).await;
}

#[tokio::test]
async fn everything_is_made_once_on_ministack() {
    makes_everything_once(&Site::ministack()).await;
}

#[tokio::test]
async fn a_dry_run_tells_every_field_and_writes_nothing() {
    let site = Site::with_peer();
    let said = site.init(&["--dry-run"], 0).stdout;
    for line in [
        "table yard: would be created",
        "table yard-history: would be created",
        "queue yard-small: would be created",
        "  RedrivePolicy: to yard-small-dead after 1000 receives",
        "queue yard-interruptions: would be created",
        "template yard-large: would be created",
        "  ImageId: ami-0123456789abcdef0",
        "  MetadataOptions.HttpTokens: required",
        "  InstanceInitiatedShutdownBehavior: terminate",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\n{said}");
    }
    assert!(site.dynamodb().list_tables().send().await.unwrap().table_names().is_empty());
    assert!(site.queues().await.is_empty());
    assert!(site.templates().await.is_empty());
}

#[tokio::test]
async fn what_drifted_is_shown_field_by_field_then_mended_and_nothing_else() {
    let site = Site::with_peer();
    site.init(&[], 0);
    let sqs = site.sqs();
    let url =
        sqs.get_queue_url().queue_name(site.named("yard-small")).send().await.unwrap().queue_url.unwrap();
    let dead = sqs
        .get_queue_url()
        .queue_name(site.named("yard-large-dead"))
        .send()
        .await
        .unwrap()
        .queue_url
        .unwrap();
    let arn = sqs.get_queue_attributes().queue_url(&dead).attribute_names(QueueAttributeName::QueueArn);
    let arn = arn.send().await.unwrap().attributes.unwrap()[&QueueAttributeName::QueueArn].clone();
    let policy = json!({"deadLetterTargetArn": arn, "maxReceiveCount": 3}).to_string();
    let set = sqs.set_queue_attributes().queue_url(&url);
    let set = set.attributes(QueueAttributeName::RedrivePolicy, policy);
    // As it was made by older versions.
    let set = set.attributes(QueueAttributeName::MessageRetentionPeriod, "345600");
    set.attributes(QueueAttributeName::VisibilityTimeout, "77").send().await.unwrap();
    site.pools(&[spec("small", "ami-0fedcba9876543210"), spec("large", "ami-0123456789abcdef0")]);

    let said = site.init(&["--dry-run"], 0).stdout;
    for line in [
        "table yard: as it should be",
        "queue yard-small: would be corrected",
        "  RedrivePolicy: to yard-large-dead after 3 receives -> to yard-small-dead after 1000 receives",
        "  MessageRetentionPeriod: 345600 -> 600",
        "queue yard-large: as it should be",
        "template yard-small: would be corrected",
        "  ImageId: ami-0123456789abcdef0 -> ami-0fedcba9876543210",
        "template yard-large: as it should be",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\n{said}");
    }
    assert_eq!(redrive(&site.queues().await["yard-small"]).1, "3", "a dry run");
    assert_eq!(site.templates().await["yard-small"], (1, 1), "a dry run");

    let said = site.init(&[], 0).stdout;
    assert!(said.contains("queue yard-small: corrected") && said.contains("template yard-small: corrected"));
    let queues = site.queues().await;
    assert_eq!(redrive(&queues["yard-small"]), ("yard-small-dead".into(), "1000".into()));
    assert_eq!(queues["yard-small"]["MessageRetentionPeriod"], "600");
    assert_eq!(queues["yard-small"]["VisibilityTimeout"], "77", "what people set stays");
    assert_eq!(site.templates().await["yard-small"], (2, 2));
}

#[tokio::test]
async fn a_template_changed_by_hand_is_put_back_and_the_hands_version_stays() {
    let site = Site::with_peer();
    site.init(&[], 0);
    let data = RequestLaunchTemplateData::builder().image_id("ami-0000000000000beef").build();
    let made = site.ec2().create_launch_template_version().launch_template_name(site.named("yard-small"));
    made.launch_template_data(data).send().await.unwrap();
    let set = site
        .ec2()
        .modify_launch_template()
        .launch_template_name(site.named("yard-small"))
        .default_version("2");
    set.send().await.unwrap();
    let said = site.init(&["--dry-run"], 0).stdout;
    for line in [
        "  ImageId: ami-0000000000000beef -> ami-0123456789abcdef0",
        "  MetadataOptions.HttpPutResponseHopLimit: nothing -> 1",
        "  InstanceInitiatedShutdownBehavior: nothing -> terminate",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\n{said}");
    }
    site.init(&[], 0);
    assert_eq!(site.templates().await["yard-small"], (2, 1), "the earlier version is the default again");
}

#[tokio::test]
async fn a_table_left_half_made_gets_its_stream_and_its_time_to_live() {
    let site = Site::with_peer();
    let client = site.dynamodb();
    let mut call = client.create_table().table_name(&site.table).billing_mode(BillingMode::PayPerRequest);
    for (name, role) in [("pk", KeyType::Hash), ("sk", KeyType::Range)] {
        let kind = AttributeDefinition::builder().attribute_name(name);
        let kind = kind.attribute_type(ScalarAttributeType::S).build().unwrap();
        let key = KeySchemaElement::builder().attribute_name(name).key_type(role).build().unwrap();
        call = call.attribute_definitions(kind).key_schema(key);
    }
    call.send().await.unwrap();
    let said = site.init(&["--dry-run"], 0).stdout;
    assert!(said.contains("table yard: would be corrected"), "{said}");
    for line in ["  stream: nothing -> NEW_AND_OLD_IMAGES", "  time-to-live: nothing -> expiresAt"] {
        assert!(said.lines().any(|said| said == line), "{line}\n{said}");
    }
    assert!(site.init(&[], 0).stdout.contains("table yard: corrected"));
    assert!(site.init(&[], 0).stdout.contains("table yard: as it should be"));
}

#[test]
fn without_a_configuration_there_are_table_bells_and_pool_queues_alone() {
    let site = Site::with_peer();
    let pools = site.file("pools.yaml", "- {resourceClass: small, max: 3}\n");
    let made = site.runs(&["init", "-f", &pools, "-o", "json"], 0).states();
    let names: Vec<&str> = made.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "queue yard-doorbell",
            "queue yard-jobs",
            "queue yard-small",
            "queue yard-small-dead",
            "table yard",
            "table yard-history"
        ]
    );
    assert!(site.peer.as_ref().expect("a peer").world().calls.is_empty());
}

#[test]
fn a_yard_without_a_single_use_class_for_outside_code_is_warned() {
    let site = Site::with_peer();
    assert!(site.init(&["--dry-run"], 0).stderr.contains("reuseWithin"));
    let mut public = spec("public", "ami-0123456789abcdef0");
    public["reuseWithin"] = json!("none");
    site.pools(&[public]);
    assert!(!site.init(&["--dry-run"], 0).stderr.contains("reuseWithin"));
}

#[tokio::test]
async fn what_pools_leave_out_comes_from_the_stacks_outputs() {
    let site = Site::with_peer();
    let output = |key: &str, value: &str| json!({"OutputKey": key, "OutputValue": value});
    let outputs = |table: &str| {
        let all = [
            output("Table", table),
            output("MachineProfile", "yard-machine"),
            output("SubnetIds", "subnet-0123456789abcdef0"),
            output("MachineSecurityGroup", "sg-0123456789abcdef0"),
        ];
        json!({"Stacks": [{"Outputs": all}]}).to_string()
    };
    let stack = site.file("outputs.json", &outputs(&site.table));
    let said = site.init(&["--stack-outputs", &stack, "--dry-run"], 0).stdout;
    for line in ["  SecurityGroupIds: sg-0123456789abcdef0", "  IamInstanceProfile: yard-machine"] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    let other = site.file("other.json", &outputs("payroll"));
    let refused = site.init(&["--stack-outputs", &other], 2).stderr;
    assert!(refused.contains("--table payroll"), "{refused}");
    assert_eq!(site.templates().await.len(), 0, "nothing was made");
}
