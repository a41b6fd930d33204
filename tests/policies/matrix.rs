//! Who may do what with what? Most answers are no: what a machine that a job took over, a workflow of another repository
//! or an operator gone wrong may not do.

use serde_json::Value;

use crate::evaluator::{Context, allows};
use crate::policy;

/// One question and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) who: &'static str,
    pub(crate) action: String,
    pub(crate) resource: String,
    pub(crate) context: Context,
    pub(crate) allowed: bool,
}

impl Row {
    pub(crate) fn answer(&self, policy: &Value) -> bool {
        allows(policy, &self.action, &self.resource, &self.context)
    }
}

const MACHINE: &str = "arn:aws:ec2:eu-west-1:111122223333:instance/i-0aaaaaaaaaaaaaaaa";
const OTHER: &str = "arn:aws:ec2:eu-west-1:111122223333:instance/i-0bbbbbbbbbbbbbbbb";

/// A resource by the end of its name.
fn arn(short: &str) -> String {
    let at = |service: &str| format!("arn:aws:{service}:eu-west-1:111122223333:");
    let (kind, name) = short.split_once(' ').unwrap_or((short, ""));
    match kind {
        "table" => format!("{}table/{name}", at("dynamodb")),
        "queue" => format!("{}{name}", at("sqs")),
        "role" => format!("arn:aws:iam::111122223333:role/{name}"),
        "image" | "snapshot" => format!("arn:aws:ec2:eu-west-1::{kind}/{name}"),
        "any" => "*".to_owned(),
        kind => format!("{}{kind}/{name}", at("ec2")),
    }
}

/// What a call says beside: `keys=a|b`, `tag=`, `new-tag=`, `by=`, `to=`; and which machine's role it is.
fn context(who: &str, text: &str) -> Context {
    let mut context = Context::new();
    if who == "instance" {
        context.insert("ec2:SourceInstanceARN".into(), vec![MACHINE.into()]);
    }
    for (name, value) in text.split_whitespace().filter_map(|part| part.split_once('=')) {
        let key = match name {
            "keys" => "dynamodb:LeadingKeys",
            "tag" => "aws:ResourceTag/runyard:table",
            "new-tag" => "aws:RequestTag/runyard:table",
            "by" => "ec2:CreateAction",
            "to" => "iam:PassedToService",
            other => panic!("{other}"),
        };
        let value = value.replace("SELF", MACHINE).replace("OTHER", OTHER);
        context.insert(key.into(), value.split('|').map(str::to_owned).collect());
    }
    context
}

type Line = (&'static str, &'static str, &'static str);

/// What each may do: actions (of one service, with `|`), resource, context.
const MAY: [(&str, &[Line]); 4] = [
    (
        "operator",
        &[
            (
                "dynamodb:GetItem|UpdateItem|DeleteItem|ConditionCheckItem|PutItem|BatchWriteItem",
                "table yard",
                "keys=launch#l-1",
            ),
            ("dynamodb:Scan|DescribeTable|DescribeTimeToLive", "table yard", ""),
            ("dynamodb:Query", "table yard", "keys=request#acme/web#1"),
            (
                "dynamodb:DescribeStream|GetShardIterator|GetRecords",
                "table yard/stream/2026-01-01T00:00:00.000",
                "",
            ),
            (
                "sqs:CreateQueue|GetQueueUrl|GetQueueAttributes|SendMessage|ReceiveMessage|DeleteMessage|ChangeMessageVisibility",
                "queue yard-linux",
                "",
            ),
            ("sqs:SendMessage", "queue yard-linux-dead", ""),
            ("sqs:ReceiveMessage|DeleteMessage", "queue yard-interruptions", ""),
            (
                "ec2:DescribeInstances|DescribeImages|DescribeLaunchTemplates|DescribeLaunchTemplateVersions",
                "any",
                "",
            ),
            ("ec2:CreateLaunchTemplate", "launch-template lt-1", "new-tag=yard"),
            ("ec2:CreateTags", "launch-template lt-1", "new-tag=yard by=CreateLaunchTemplate"),
            ("ec2:CreateLaunchTemplateVersion|ModifyLaunchTemplate", "launch-template lt-1", "tag=yard"),
            ("ec2:CreateFleet|RunInstances", "launch-template lt-1", "tag=yard"),
            ("ec2:CreateFleet|RunInstances", "fleet f-1", "new-tag=yard"),
            ("ec2:CreateFleet|RunInstances", "instance i-1", "new-tag=yard"),
            ("ec2:CreateFleet|RunInstances", "volume vol-1", "new-tag=yard"),
            ("ec2:CreateFleet|RunInstances", "image ami-1", ""),
            ("ec2:RunInstances", "snapshot snap-1", ""),
            ("ec2:RunInstances", "key-pair k", ""),
            ("ec2:RunInstances", "network-interface eni-1", ""),
            ("ec2:CreateFleet|RunInstances", "security-group sg-1", ""),
            ("ec2:RunInstances", "spot-instances-request sir-1", ""),
            ("ec2:CreateFleet|RunInstances", "subnet subnet-1", ""),
            ("ec2:CreateTags", "instance i-1", "new-tag=yard by=RunInstances"),
            ("ec2:CreateTags", "volume vol-1", "new-tag=yard by=RunInstances"),
            ("ec2:CreateTags", "fleet f-1", "new-tag=yard by=CreateFleet"),
            ("ec2:TerminateInstances", "instance i-1", "tag=yard"),
            ("iam:PassRole", "role yard-instance", "to=ec2.amazonaws.com"),
        ],
    ),
    (
        "workflow",
        &[
            ("dynamodb:GetItem|UpdateItem|Query", "table yard", "keys=request#acme/web#1"),
            ("dynamodb:BatchWriteItem|PutItem", "table yard", "keys=request#acme/web#1"),
        ],
    ),
    (
        "instance",
        &[
            ("dynamodb:GetItem", "table yard", "keys=instance#SELF"),
            ("dynamodb:GetItem", "table yard", "keys=agent#SELF"),
            ("dynamodb:UpdateItem", "table yard", "keys=agent#SELF"),
        ],
    ),
    (
        "init",
        &[
            ("dynamodb:CreateTable|DescribeTable|DescribeTimeToLive|UpdateTimeToLive|Scan", "table yard", ""),
            ("dynamodb:GetItem|UpdateItem|BatchWriteItem|PutItem", "table yard", "keys=pool#linux"),
            ("sqs:CreateQueue|GetQueueUrl|GetQueueAttributes", "queue yard-linux", ""),
            ("ec2:DescribeImages|DescribeLaunchTemplates|DescribeLaunchTemplateVersions", "any", ""),
            ("ec2:CreateLaunchTemplate", "launch-template lt-1", "new-tag=yard"),
            ("ec2:CreateTags", "launch-template lt-1", "new-tag=yard by=CreateLaunchTemplate"),
            ("ec2:CreateLaunchTemplateVersion|ModifyLaunchTemplate", "launch-template lt-1", "tag=yard"),
        ],
    ),
];

/// What each may not do.
const MAY_NOT: [(&str, &[Line]); 4] = [
    (
        "operator",
        &[
            (
                "dynamodb:CreateTable|DeleteTable|UpdateTable|UpdateTimeToLive|DeleteBackup|PartiQLDelete",
                "table yard",
                "",
            ),
            ("dynamodb:GetItem|Scan|UpdateItem|PutItem|BatchWriteItem", "table other", ""),
            ("dynamodb:GetItem|Scan", "table yard-2", ""),
            ("dynamodb:GetRecords", "table other/stream/2026-01-01T00:00:00.000", ""),
            ("dynamodb:Query|Scan", "table yard/index/any", ""),
            ("sqs:ReceiveMessage|SendMessage", "queue other-linux", ""),
            ("sqs:DeleteQueue|PurgeQueue|SetQueueAttributes|AddPermission", "queue yard-linux", ""),
            ("ec2:CreateLaunchTemplate", "launch-template lt-1", ""),
            ("ec2:CreateLaunchTemplate", "launch-template lt-1", "new-tag=other"),
            ("ec2:CreateLaunchTemplateVersion|ModifyLaunchTemplate", "launch-template lt-1", ""),
            ("ec2:CreateLaunchTemplateVersion|ModifyLaunchTemplate", "launch-template lt-1", "tag=other"),
            ("ec2:DeleteLaunchTemplate", "launch-template lt-1", "tag=yard"),
            ("ec2:CreateFleet|RunInstances", "launch-template lt-1", ""),
            ("ec2:CreateFleet|RunInstances", "launch-template lt-1", "tag=other"),
            ("ec2:CreateFleet|RunInstances", "instance i-1", ""),
            ("ec2:CreateFleet|RunInstances", "instance i-1", "new-tag=other"),
            ("ec2:CreateFleet", "fleet f-1", ""),
            ("ec2:RunInstances", "volume vol-1", ""),
            ("ec2:CreateTags", "instance i-1", "new-tag=yard"),
            ("ec2:CreateTags", "instance i-1", "new-tag=other by=RunInstances"),
            ("ec2:CreateTags", "instance i-1", "by=RunInstances"),
            ("ec2:CreateTags", "launch-template lt-1", "new-tag=yard"),
            ("ec2:CreateTags", "launch-template lt-1", "new-tag=other by=CreateLaunchTemplate"),
            ("ec2:DeleteTags", "instance i-1", "tag=yard"),
            ("ec2:TerminateInstances", "instance i-1", ""),
            ("ec2:TerminateInstances", "instance i-1", "tag=other"),
            ("ec2:TerminateInstances", "instance i-1", "tag=yard-2"),
            (
                "ec2:StopInstances|RebootInstances|ModifyInstanceAttribute|AttachVolume|GetConsoleOutput|GetPasswordData",
                "instance i-1",
                "tag=yard",
            ),
            ("iam:PassRole", "role yard-instance", ""),
            ("iam:PassRole", "role yard-instance", "to=lambda.amazonaws.com"),
            ("iam:PassRole", "role admin", "to=ec2.amazonaws.com"),
            ("iam:CreateRole|AttachRolePolicy", "role yard-instance", ""),
            ("sts:AssumeRole", "role yard-instance", ""),
        ],
    ),
    (
        "workflow",
        &[
            (
                "dynamodb:GetItem|UpdateItem|Query|PutItem|BatchWriteItem",
                "table yard",
                "keys=request#acme/other#1",
            ),
            ("dynamodb:GetItem|UpdateItem|PutItem", "table yard", "keys=request#acme/web2#1"),
            ("dynamodb:GetItem|UpdateItem", "table yard", "keys=request#evil/acme/web#1"),
            ("dynamodb:GetItem|UpdateItem|Query|PutItem|BatchWriteItem", "table yard", ""),
            ("dynamodb:BatchWriteItem", "table yard", "keys=request#acme/web#1|pool#linux"),
            ("dynamodb:UpdateItem|GetItem|PutItem", "table yard", "keys=pool#linux"),
            ("dynamodb:UpdateItem|GetItem|PutItem", "table yard", "keys=instance#SELF"),
            ("dynamodb:UpdateItem", "table yard", "keys=lease#leader"),
            (
                "dynamodb:DeleteItem|ConditionCheckItem|PartiQLUpdate|PartiQLSelect",
                "table yard",
                "keys=request#acme/web#1",
            ),
            ("dynamodb:Scan|DescribeTable|DeleteTable", "table yard", ""),
            ("dynamodb:Query", "table yard/index/any", "keys=request#acme/web#1"),
            ("dynamodb:GetItem", "table other", "keys=request#acme/web#1"),
            ("sqs:SendMessage|ReceiveMessage", "queue yard-linux", ""),
            ("ec2:RunInstances|TerminateInstances", "instance i-1", "tag=yard new-tag=yard"),
            ("iam:PassRole", "role yard-instance", "to=ec2.amazonaws.com"),
        ],
    ),
    (
        "instance",
        &[
            ("dynamodb:GetItem|UpdateItem", "table yard", "keys=instance#OTHER"),
            ("dynamodb:GetItem|UpdateItem", "table yard", "keys=agent#OTHER"),
            ("dynamodb:UpdateItem", "table yard", "keys=instance#SELF"),
            ("dynamodb:GetItem|UpdateItem", "table yard", ""),
            ("dynamodb:GetItem", "table yard", "keys=agent#SELF|agent#OTHER"),
            ("dynamodb:UpdateItem", "table yard", "keys=agent#SELF|instance#SELF"),
            (
                "dynamodb:PutItem|DeleteItem|BatchWriteItem|BatchGetItem|ConditionCheckItem",
                "table yard",
                "keys=agent#SELF",
            ),
            ("dynamodb:PartiQLSelect|PartiQLUpdate|Query", "table yard", "keys=agent#SELF"),
            ("dynamodb:Scan|DescribeTable|DeleteTable|ListTables", "table yard", ""),
            ("dynamodb:Query|Scan", "table yard/index/any", "keys=agent#SELF"),
            ("dynamodb:GetRecords", "table yard/stream/2026-01-01T00:00:00.000", ""),
            ("dynamodb:GetItem|UpdateItem", "table other", "keys=agent#SELF"),
            ("dynamodb:GetItem", "table yard", "keys=request#acme/web#1"),
            ("dynamodb:GetItem|UpdateItem", "table yard", "keys=pool#linux"),
            ("sqs:SendMessage|ReceiveMessage|DeleteMessage", "queue yard-linux", ""),
            (
                "ec2:TerminateInstances|StopInstances|RunInstances|CreateTags",
                "instance i-1",
                "tag=yard new-tag=yard",
            ),
            ("ec2:DescribeInstances", "any", ""),
            ("iam:PassRole", "role yard-instance", "to=ec2.amazonaws.com"),
            ("sts:AssumeRole", "role yard-operator", ""),
            ("s3:GetObject|PutObject", "any", ""),
            ("ssm:GetParameter", "any", ""),
            ("secretsmanager:GetSecretValue", "any", ""),
            ("logs:PutLogEvents", "any", ""),
        ],
    ),
    (
        "init",
        &[
            ("dynamodb:DeleteTable|UpdateTable|DeleteItem", "table yard", "keys=pool#linux"),
            ("dynamodb:CreateTable|Scan", "table other", ""),
            ("dynamodb:GetItem|UpdateItem|PutItem|BatchWriteItem", "table yard", "keys=request#acme/web#1"),
            ("dynamodb:GetItem|UpdateItem|PutItem|BatchWriteItem", "table yard", ""),
            ("dynamodb:UpdateItem", "table yard", "keys=instance#OTHER"),
            ("dynamodb:GetItem", "table other", "keys=pool#linux"),
            ("sqs:CreateQueue", "queue other-linux", ""),
            ("sqs:DeleteQueue|ReceiveMessage|SendMessage", "queue yard-linux", ""),
            ("ec2:CreateLaunchTemplate", "launch-template lt-1", ""),
            ("ec2:CreateLaunchTemplate", "launch-template lt-1", "new-tag=other"),
            ("ec2:CreateLaunchTemplateVersion|ModifyLaunchTemplate", "launch-template lt-1", "tag=other"),
            ("ec2:CreateTags", "launch-template lt-1", "new-tag=yard"),
            ("ec2:CreateTags", "launch-template lt-1", "new-tag=other by=CreateLaunchTemplate"),
            ("ec2:RunInstances|CreateFleet", "instance i-1", "new-tag=yard"),
            ("ec2:TerminateInstances", "instance i-1", "tag=yard"),
            ("iam:PassRole", "role yard-instance", "to=ec2.amazonaws.com"),
        ],
    ),
];

/// Every question.
pub(crate) fn rows() -> Vec<Row> {
    let of = |all: &[(&'static str, &'static [Line])], allowed: bool| {
        let mut rows = Vec::new();
        for (who, lines) in all {
            for (actions, resource, said) in *lines {
                let (service, names) = actions.split_once(':').expect("a service");
                rows.extend(names.split('|').map(|name| Row {
                    who,
                    action: format!("{service}:{name}"),
                    resource: arn(resource),
                    context: context(who, said),
                    allowed,
                }));
            }
        }
        rows
    };
    [of(&MAY, true), of(&MAY_NOT, false)].concat()
}

#[test]
fn everybody_may_do_what_they_must_and_nothing_else() {
    let rows = rows();
    assert!(rows.iter().filter(|row| !row.allowed).count() >= 60);
    let wrong: Vec<&Row> = rows.iter().filter(|row| row.answer(&policy(row.who)) != row.allowed).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
