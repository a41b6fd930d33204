//! Is everything allowed that the program calls? Its calls are read from its sources, so that a new one without a
//! permission fails here and not in somebody's account.

use std::collections::BTreeSet;
use std::path::Path;

use crate::policies::documents::{Who, config};
use crate::policies::matrix::rows;

use Who::{Init, Machine, Operator, Reader, Workflow};

/// A call of a client, what IAM calls it, and whose it is. What a transaction or a batch does is asked for by the
/// actions it is made of.
const CALLS: &[(&str, &[&str], &[Who])] = &[
    ("batch_write_item", &["dynamodb:BatchWriteItem"], &[Operator, Init]),
    ("create_fleet", &["ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"], &[Operator]),
    ("create_launch_template", &["ec2:CreateLaunchTemplate", "ec2:CreateTags"], &[Operator, Init]),
    ("create_launch_template_version", &["ec2:CreateLaunchTemplateVersion"], &[Operator, Init]),
    ("create_queue", &["sqs:CreateQueue"], &[Operator, Init]),
    ("create_table", &["dynamodb:CreateTable"], &[Init]),
    ("delete_item", &["dynamodb:DeleteItem"], &[Operator]),
    // With the credential of the person who deletes a pool, for whom no policy is ours.
    ("delete_launch_template", &["ec2:DeleteLaunchTemplate"], &[]),
    ("delete_message", &["sqs:DeleteMessage"], &[Operator]),
    ("delete_message_batch", &["sqs:DeleteMessage"], &[Operator]),
    ("delete_queue", &["sqs:DeleteQueue"], &[]),
    ("describe_images", &["ec2:DescribeImages"], &[Operator, Init]),
    ("describe_instances", &["ec2:DescribeInstances"], &[Operator]),
    // EC2 resolves the parameter of an image in the caller's name.
    (
        "describe_launch_template_versions",
        &["ec2:DescribeLaunchTemplateVersions", "ssm:GetParameters"],
        &[Operator, Init],
    ),
    ("describe_launch_templates", &["ec2:DescribeLaunchTemplates"], &[Operator, Init]),
    ("describe_security_groups", &["ec2:DescribeSecurityGroups"], &[Operator, Init]),
    ("describe_spot_price_history", &["ec2:DescribeSpotPriceHistory"], &[Reader]),
    ("describe_stream", &["dynamodb:DescribeStream"], &[Operator]),
    ("describe_subnets", &["ec2:DescribeSubnets"], &[Operator, Init]),
    ("describe_table", &["dynamodb:DescribeTable"], &[Operator, Init]),
    ("describe_time_to_live", &["dynamodb:DescribeTimeToLive"], &[Init]),
    ("get_console_output", &["ec2:GetConsoleOutput"], &[Operator]),
    ("get_ebs_default_kms_key_id", &["ec2:GetEbsDefaultKmsKeyId"], &[Operator]),
    ("get_ebs_encryption_by_default", &["ec2:GetEbsEncryptionByDefault"], &[Operator]),
    ("get_item", &["dynamodb:GetItem"], &[Operator, Workflow, Machine, Init, Reader]),
    ("get_queue_attributes", &["sqs:GetQueueAttributes"], &[Operator, Init, Reader]),
    ("get_queue_url", &["sqs:GetQueueUrl"], &[Operator, Workflow, Machine, Init, Reader]),
    ("get_records", &["dynamodb:GetRecords"], &[Operator]),
    ("get_shard_iterator", &["dynamodb:GetShardIterator"], &[Operator]),
    ("modify_launch_template", &["ec2:ModifyLaunchTemplate"], &[Operator, Init]),
    ("query", &["dynamodb:Query"], &[Operator, Workflow, Reader]),
    ("receive_message", &["sqs:ReceiveMessage"], &[Operator]),
    ("run_instances", &["ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"], &[Operator]),
    ("scan", &["dynamodb:Scan"], &[Operator, Init, Reader]),
    ("send_message", &["sqs:SendMessage"], &[Operator, Workflow, Machine]),
    ("set_queue_attributes", &["sqs:SetQueueAttributes"], &[Init]),
    ("terminate_instances", &["ec2:TerminateInstances"], &[Operator]),
    (
        "transact_write_items",
        &["dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem"],
        &[Operator],
    ),
    ("update_item", &["dynamodb:UpdateItem"], &[Operator, Workflow, Machine, Init]),
    ("update_table", &["dynamodb:UpdateTable"], &[Init]),
    ("update_time_to_live", &["dynamodb:UpdateTimeToLive"], &[Init]),
];

/// Methods of clients that send nothing.
const SILENT: [&str; 2] = ["clone", "config"];

fn sources(at: &Path, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|suffix| suffix == "rs") {
            into.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// What is called on AWS's clients, by the methods' names.
fn called() -> BTreeSet<String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut texts = Vec::new();
    for part in ["src/operator/aws", "src/store", "agent/src"] {
        sources(&root.join(part), &mut texts);
    }
    let mut found = BTreeSet::new();
    for text in texts {
        let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        for (at, _) in dense.match_indices("client.") {
            let rest = &dense[at + "client.".len()..];
            let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if rest[name.len()..].starts_with("()") && !SILENT.contains(&name.as_str()) {
                found.insert(name);
            }
        }
        if dense.contains(".send_with(&self.client)") {
            // The one call that is built before its client is at hand.
            assert!(dense.contains("fleet::request("), "another call is sent with `send_with`: name it here");
            found.insert("create_fleet".into());
        }
    }
    found
}

#[test]
fn every_call_of_the_sources_is_in_the_list_and_the_other_way_round() {
    let listed: BTreeSet<String> = CALLS.iter().map(|(name, _, _)| (*name).to_owned()).collect();
    assert_eq!(called(), listed);
}

#[test]
fn everybody_may_make_their_calls() {
    let rows = rows();
    for (call, actions, callers) in CALLS {
        for (action, who) in actions.iter().flat_map(|action| callers.iter().map(move |who| (action, who))) {
            let allowed = rows.iter().any(|row| row.who == *who && row.call.action == *action && row.may);
            assert!(allowed, "{call}: no row lets {who:?} do {action}");
        }
    }
}

#[test]
fn nothing_is_allowed_that_nobody_calls() {
    for row in rows().iter().filter(|row| row.may) {
        let called = |(_, actions, callers): &&(&str, &[&str], &[Who])| {
            actions.contains(&row.call.action.as_str()) && callers.contains(&row.who)
        };
        match row.who {
            Operator | Workflow | Init | Reader => {
                assert!(CALLS.iter().any(|call| called(&call)), "{row:?}");
            }
            // EC2 calls in the operator's name, and API Gateway in its own.
            Who::OperatorWithVolumeKey | Who::Webhook => {}
            // A machine's documents leave room for what is attached beside them.
            Machine
            | Who::MachineOfAnyRecord
            | Who::AnyRecordWithEverything
            | Who::MachineThatEndsItself
            | Who::EndsItselfAlone
            | Who::MachineWithEverything => {}
        }
    }
}

/// Where the sources of a verb are.
fn module_of(verb: &str) -> &str {
    match verb {
        "explain" | "plan" => "plan_explain",
        "simulate" | "recommend" => "whatif",
        other => other,
    }
}

/// The page names the verbs that a reader may run. Those that write too are named with what keeps them from it.
#[test]
fn the_verbs_of_those_who_only_look_write_nothing() {
    let page = std::fs::read_to_string(config().join("iam/README.md")).unwrap();
    let row = page.lines().find(|line| line.starts_with("| `reader.json` |")).expect("a row");
    let (_, verbs) = row.split_once("`runyard ").expect("verbs");
    let verbs: Vec<&str> = verbs.split('`').step_by(2).filter(|verb| !verb.starts_with('-')).collect();
    assert!(verbs.len() >= 10, "{verbs:?}");
    let groups = ["look", "why", "workflow", "setup"].map(|group| config().join("../src/cli").join(group));
    let mut writers = Vec::new();
    for verb in verbs {
        let name = module_of(verb.split(' ').next().unwrap());
        let file = format!("{name}.rs");
        let group = groups.iter().find(|group| group.join(&file).exists()).expect(verb);
        let mut texts = vec![std::fs::read_to_string(group.join(&file)).unwrap()];
        if group.join(name).is_dir() {
            sources(&group.join(name), &mut texts);
        }
        let writes = ["store.write(", "store.transact(", "store.append(", ".record_event("];
        if texts.iter().any(|text| writes.iter().any(|call| text.contains(call))) {
            writers.push(verb);
        }
    }
    assert_eq!(writers, ["doctor", "logs --stored"], "others write, or these no longer do");
}
