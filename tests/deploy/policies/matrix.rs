//! The matrix: who, does what, to what, carrying what, and whether it may. Most rows are refusals.

use serde_json::Value;

use crate::policies::documents::{KEY, Who, document};
use crate::policies::evaluator::{Call, Context, Verdict, judge};

use Who::{
    AnyRecordWithEverything, EndsItselfAlone, Init, Machine, MachineOfAnyRecord, MachineThatEndsItself,
    MachineWithEverything, Operator, OperatorWithVolumeKey, Reader, Webhook, Workflow,
};

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) who: Who,
    pub(crate) call: Call,
    pub(crate) may: bool,
}

impl Row {
    /// Whether the row holds with these documents instead of the real ones.
    pub(crate) fn holds(&self, document: impl Fn(&str) -> Value) -> bool {
        let mut all: Vec<Value> = self.who.documents().iter().map(|name| document(name)).collect();
        all.extend(self.who.besides());
        (judge(&all, &self.call) == Verdict::Allowed) == self.may
    }
}

pub(crate) const TABLE: &str = "arn:aws:dynamodb:eu-west-1:123456789012:table/yard";
const HISTORY: &str = "arn:aws:dynamodb:eu-west-1:123456789012:table/yard-history";
const OTHER_TABLE: &str = "arn:aws:dynamodb:eu-west-1:123456789012:table/payroll";
const INDEX: &str = "arn:aws:dynamodb:eu-west-1:123456789012:table/yard/index/any";
const STREAM: &str = "arn:aws:dynamodb:eu-west-1:123456789012:table/yard/stream/2026-01-05T12:00:00.000";
const OTHER_STREAM: &str =
    "arn:aws:dynamodb:eu-west-1:123456789012:table/payroll/stream/2026-01-05T12:00:00.000";
const QUEUE: &str = "arn:aws:sqs:eu-west-1:123456789012:yard-linux";
const DOORBELL: &str = "arn:aws:sqs:eu-west-1:123456789012:yard-doorbell";
const OTHER_DOORBELL: &str = "arn:aws:sqs:eu-west-1:123456789012:payroll-doorbell";
const JOBS: &str = "arn:aws:sqs:eu-west-1:123456789012:yard-jobs";
/// The same queue of another yard, in another region, and in another account.
const OTHER_JOBS: [&str; 3] = [
    "arn:aws:sqs:eu-west-1:123456789012:payroll-jobs",
    "arn:aws:sqs:us-east-1:123456789012:yard-jobs",
    "arn:aws:sqs:eu-west-1:999999999999:yard-jobs",
];
const OTHER_QUEUE: &str = "arn:aws:sqs:eu-west-1:123456789012:payroll";
const OTHER_REGION: &str = "arn:aws:sqs:us-east-1:123456789012:yard-linux";
const ME: &str = "arn:aws:ec2:eu-west-1:123456789012:instance/i-00000000000000001";
const NEIGHBOUR: &str = "arn:aws:ec2:eu-west-1:123456789012:instance/i-00000000000000002";
const FAR_INSTANCE: &str = "arn:aws:ec2:us-east-1:123456789012:instance/i-00000000000000002";
/// The machine's own id where it is not: nobody's, unless ids were not unique.
const FAR_SELF: &str = "arn:aws:ec2:us-east-1:123456789012:instance/i-00000000000000001";
const FAR_TEMPLATE: &str = "arn:aws:ec2:us-east-1:123456789012:launch-template/lt-1";
const NEW: &str = "arn:aws:ec2:eu-west-1:123456789012:instance/*";
const VOLUME: &str = "arn:aws:ec2:eu-west-1:123456789012:volume/*";
const FLEET: &str = "arn:aws:ec2:eu-west-1:123456789012:fleet/*";
const TEMPLATE: &str = "arn:aws:ec2:eu-west-1:123456789012:launch-template/lt-1";
const SUBNET: &str = "arn:aws:ec2:eu-west-1:123456789012:subnet/subnet-1";
const GROUP: &str = "arn:aws:ec2:eu-west-1:123456789012:security-group/sg-1";
const INTERFACE: &str = "arn:aws:ec2:eu-west-1:123456789012:network-interface/*";
/// What a spot launch is authorised on besides; by the region it is in, the account's.
const SPOT: &str = "arn:aws:ec2:eu-west-1:123456789012:spot-instances-request/*";
const FAR_SPOT: &str = "arn:aws:ec2:us-east-1:123456789012:spot-instances-request/*";
/// What a launch template of one's own may name. But for the key, another account may share them.
const NAMED: [&str; 7] = [
    "arn:aws:ec2:eu-west-1:123456789012:key-pair/anna",
    "arn:aws:ec2:eu-west-1:123456789012:placement-group/close",
    "arn:aws:ec2:eu-west-1:999999999999:placement-group/shared",
    "arn:aws:ec2:eu-west-1:123456789012:capacity-reservation/cr-1",
    "arn:aws:ec2:eu-west-1:999999999999:capacity-reservation/cr-2",
    "arn:aws:license-manager:eu-west-1:123456789012:license-configuration:lic-1",
    "arn:aws:license-manager:eu-west-1:999999999999:license-configuration:lic-2",
];
/// The same in another region, and a key of another account.
const FAR_NAMED: [&str; 5] = [
    "arn:aws:ec2:us-east-1:123456789012:key-pair/anna",
    "arn:aws:ec2:eu-west-1:999999999999:key-pair/anna",
    "arn:aws:ec2:us-east-1:123456789012:placement-group/close",
    "arn:aws:ec2:us-east-1:123456789012:capacity-reservation/cr-1",
    "arn:aws:license-manager:us-east-1:123456789012:license-configuration:lic-1",
];
const IMAGE: &str = "arn:aws:ec2:eu-west-1::image/ami-1";
const SNAPSHOT: &str = "arn:aws:ec2:eu-west-1::snapshot/snap-1";
/// What an image can be named by: a parameter of AWS's, and one of the yard's.
const PUBLIC_PARAMETER: &str = "arn:aws:ssm:eu-west-1::parameter/aws/service/debian/release/13/latest/amd64";
const OWN_PARAMETER: &str = "arn:aws:ssm:eu-west-1:123456789012:parameter/yard/image";
const ROLE: &str = "arn:aws:iam::123456789012:role/yard-machine";
const ADMIN: &str = "arn:aws:iam::123456789012:role/admin";

const LEADING: &str = "dynamodb:LeadingKeys";
const ATTRIBUTES: &str = "dynamodb:Attributes";
/// What `provision` and `release` write or test (contract, section 3).
const INTENT: [&str; 24] = [
    "pk",
    "sk",
    "kind",
    "schema",
    "version",
    "updatedAt",
    "uid",
    "runId",
    "attempt",
    "repository",
    "name",
    "resourceClass",
    "count",
    "minCount",
    "usageClass",
    "onDemandFallback",
    "allowedInstanceTypes",
    "maxRuntimeMinutes",
    "timeoutSeconds",
    "desired",
    "generation",
    "createdAt",
    "priority",
    "labelSuffix",
];
/// What only the operator writes, and what only a person does.
const STATUS: [&str; 19] = [
    "phase",
    "instances",
    "claims",
    "served",
    "message",
    "conditions",
    "acceptedAt",
    "deadline",
    "readyAt",
    "observedGeneration",
    "releasedBy",
    "derivedFrom",
    "rerunRequestedAt",
    "share",
    "priorityValue",
    "expiresAt",
    "failRequestedAt",
    "trial",
    "asked",
];
const OURS: (&str, &str) = ("aws:ResourceTag/runyard:table", "yard");
const THEIRS: (&str, &str) = ("aws:ResourceTag/runyard:table", "payroll");
const MARKED: (&str, &str) = ("aws:RequestTag/runyard:table", "yard");
const MISMARKED: (&str, &str) = ("aws:RequestTag/runyard:table", "payroll");
const FROM: (&str, &str) = ("ec2:LaunchTemplate", TEMPLATE);
const OF_TYPE: (&str, &str) = ("ec2:InstanceType", "m7i.large");
const OF_OTHER_TYPE: (&str, &str) = ("ec2:InstanceType", "p5.48xlarge");
const MINE: (&str, &str) = (LEADING, "agent#arn:aws:ec2:eu-west-1:123456789012:instance/i-00000000000000001");
const ORDERS: (&str, &str) =
    (LEADING, "instance#arn:aws:ec2:eu-west-1:123456789012:instance/i-00000000000000001");
const HIS: (&str, &str) = (LEADING, "agent#arn:aws:ec2:eu-west-1:123456789012:instance/i-00000000000000002");
const HIS_ORDERS: (&str, &str) =
    (LEADING, "instance#arn:aws:ec2:eu-west-1:123456789012:instance/i-00000000000000002");
const REQUEST: (&str, &str) = (LEADING, "request#acme/web#42");
const FOREIGN_REQUEST: (&str, &str) = (LEADING, "request#evil/web#42");
/// Slots of a runner scale set of a repository and of its owner, and the record of a set.
const SLOT: (&str, &str) = (LEADING, "request#acme/web#set-7");
const OWNERS_SLOT: (&str, &str) = (LEADING, "request#acme/~#set-7");
const SCALE_SET: (&str, &str) = (LEADING, "queue#linux");
const POOL: (&str, &str) = (LEADING, "pool#linux");
const LEASE: (&str, &str) = (LEADING, "lease#operator");

type Carried<'a> = &'a [(&'a str, &'a str)];

fn row(who: Who, action: &str, resource: &str, carried: Carried<'_>, may: bool) -> Row {
    let mut context = Context::new();
    let mut carry = |key: &str, value: &str| {
        context.entry(key.to_lowercase()).or_default().push(value.to_owned());
    };
    carried.iter().for_each(|(key, value)| carry(key, value));
    match who {
        // EC2 puts it into every call made with a machine's credentials.
        Machine
        | MachineOfAnyRecord
        | AnyRecordWithEverything
        | MachineThatEndsItself
        | MachineWithEverything
        | EndsItselfAlone => carry("ec2:SourceInstanceARN", ME),
        Operator | OperatorWithVolumeKey | Workflow | Init | Reader | Webhook => {}
    }
    if let Some((_, id)) = resource.split_once(":instance/").filter(|(_, id)| id.starts_with("i-")) {
        carry("ec2:InstanceID", id);
    }
    Row { who, call: Call { action: action.into(), resource: resource.into(), context }, may }
}

/// Every row.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut all = |who, resource: &str, carried: Carried<'_>, may: bool, actions: &[&str]| {
        rows.extend(actions.iter().map(|action| row(who, action, resource, carried, may)));
    };
    operators_records(&mut all);
    operators_machines(&mut all);
    volume_keys(&mut all);
    workflows(&mut all);
    any_records(&mut all);
    machines(&mut all);
    inits(&mut all);
    readers(&mut all);
    webhooks(&mut all);
    rows
}

type Add<'a> = dyn FnMut(Who, &str, Carried<'_>, bool, &[&str]) + 'a;

const READS_AND_WRITES: [&str; 8] = [
    "dynamodb:GetItem",
    "dynamodb:Query",
    "dynamodb:Scan",
    "dynamodb:UpdateItem",
    "dynamodb:DeleteItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:BatchWriteItem",
    "dynamodb:DescribeTable",
];
const FOLLOWS: [&str; 3] = ["dynamodb:DescribeStream", "dynamodb:GetShardIterator", "dynamodb:GetRecords"];
const HINTS: [&str; 6] = [
    "sqs:CreateQueue",
    "sqs:GetQueueUrl",
    "sqs:GetQueueAttributes",
    "sqs:SendMessage",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
];
const SHAPES: [&str; 3] = ["dynamodb:CreateTable", "dynamodb:UpdateTable", "dynamodb:UpdateTimeToLive"];
const LOOKS: [&str; 5] = [
    "ec2:DescribeImages",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeSubnets",
    "ec2:DescribeSecurityGroups",
];
const KEEPS: [&str; 2] = ["ec2:CreateLaunchTemplateVersion", "ec2:ModifyLaunchTemplate"];

fn operators_records(all: &mut Add<'_>) {
    all(Operator, TABLE, &[], true, &READS_AND_WRITES);
    all(Operator, OTHER_TABLE, &[], false, &READS_AND_WRITES);
    all(Operator, TABLE, &[], false, &SHAPES);
    all(Operator, TABLE, &[], false, &["dynamodb:DeleteTable", "dynamodb:PutItem", "dynamodb:PartiQLUpdate"]);
    all(Operator, HISTORY, &[], true, &["dynamodb:Query", "dynamodb:BatchWriteItem"]);
    let never = ["dynamodb:Scan", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:PutItem"];
    all(Operator, HISTORY, &[], false, &never);
    all(Operator, HISTORY, &[], false, &["dynamodb:DeleteTable", "dynamodb:UpdateTimeToLive"]);
    all(Operator, STREAM, &[], true, &FOLLOWS);
    all(Operator, OTHER_STREAM, &[], false, &FOLLOWS);
    all(Operator, STREAM, &[], false, &["dynamodb:PutResourcePolicy"]);
    all(Operator, QUEUE, &[], true, &HINTS);
    for foreign in [OTHER_QUEUE, OTHER_REGION] {
        all(Operator, foreign, &[], false, &HINTS);
    }
    let never = ["sqs:DeleteQueue", "sqs:PurgeQueue", "sqs:AddPermission", "sqs:SetQueueAttributes"];
    all(Operator, QUEUE, &[], false, &never);
}

fn operators_machines(all: &mut Add<'_>) {
    all(Operator, "*", &[], true, &["ec2:DescribeInstances"]);
    all(Operator, "*", &[], true, &LOOKS);
    all(
        Operator,
        "*",
        &[],
        false,
        &["ec2:DescribeVpcs", "iam:ListRoles", "sts:AssumeRole", "s3:ListBuckets"],
    );
    all(Operator, "*", &[], true, &["ec2:GetEbsDefaultKmsKeyId", "ec2:GetEbsEncryptionByDefault"]);
    let defaults = ["ec2:DisableEbsEncryptionByDefault", "ec2:ModifyEbsDefaultKmsKeyId"];
    all(Operator, "*", &[], false, &defaults);
    all(Operator, TEMPLATE, &[MARKED], true, &["ec2:CreateLaunchTemplate"]);
    for carried in [&[][..], &[MISMARKED]] {
        all(Operator, TEMPLATE, carried, false, &["ec2:CreateLaunchTemplate"]);
        all(Operator, FLEET, carried, false, &["ec2:CreateFleet"]);
    }
    all(Operator, TEMPLATE, &[OURS], true, &KEEPS);
    for carried in [&[][..], &[THEIRS], &[MARKED]] {
        all(Operator, TEMPLATE, carried, false, &KEEPS);
        all(Operator, TEMPLATE, carried, false, &["ec2:CreateFleet", "ec2:RunInstances"]);
    }
    all(Operator, TEMPLATE, &[OURS], false, &["ec2:DeleteLaunchTemplate"]);
    // The same in another region, should two yards bear one name.
    let (far_template, far) = (FAR_TEMPLATE, FAR_INSTANCE);
    all(Operator, far_template, &[MARKED], false, &["ec2:CreateLaunchTemplate"]);
    all(Operator, far_template, &[OURS], false, &["ec2:CreateFleet", "ec2:RunInstances"]);
    all(Operator, far_template, &[OURS], false, &KEEPS);
    all(Operator, far, &[OURS], false, &["ec2:TerminateInstances", "ec2:GetConsoleOutput"]);
    all(Operator, FLEET, &[MARKED], true, &["ec2:CreateFleet"]);
    all(Operator, TEMPLATE, &[OURS], true, &["ec2:CreateFleet", "ec2:RunInstances"]);
    for part in [NEW, VOLUME] {
        all(Operator, part, &[], true, &["ec2:CreateFleet"]);
        all(Operator, part, &[MARKED, FROM], true, &["ec2:RunInstances"]);
        // Untagged, tagged as another's, or by hand instead of from a template.
        for carried in [&[FROM][..], &[MISMARKED, FROM], &[MARKED]] {
            all(Operator, part, carried, false, &["ec2:RunInstances"]);
        }
    }
    // A volume has no type.
    all(Operator, NEW, &[MARKED, FROM, OF_TYPE], true, &["ec2:RunInstances"]);
    all(Operator, NEW, &[MARKED, FROM, OF_OTHER_TYPE], false, &["ec2:RunInstances"]);
    // A fleet's call has no tags for spot requests, and a template that has some cannot launch on demand: no condition.
    for part in [SUBNET, GROUP, INTERFACE, IMAGE, SNAPSHOT, SPOT] {
        all(Operator, part, &[], true, &["ec2:CreateFleet"]);
        all(Operator, part, &[FROM], true, &["ec2:RunInstances"]);
        all(Operator, part, &[], false, &["ec2:RunInstances"]);
        all(Operator, part, &[FROM], false, &["ec2:DeleteSubnet", "ec2:AuthorizeSecurityGroupIngress"]);
    }
    all(Operator, FAR_SPOT, &[FROM], false, &["ec2:RunInstances", "ec2:CreateFleet"]);
    all(
        Operator,
        SPOT,
        &[FROM, MARKED],
        false,
        &["ec2:RequestSpotInstances", "ec2:CancelSpotInstanceRequests"],
    );
    all(Operator, NEW, &[MARKED, FROM], false, &["ec2:ModifyInstanceAttribute"]);
    all(Operator, ME, &[OURS], false, &["ec2:GetConsoleScreenshot", "ec2:GetPasswordData"]);
    named_by_templates(all);
    tags(all);
    image_parameters(all, Operator);
    all(Operator, ME, &[OURS], true, &["ec2:TerminateInstances", "ec2:GetConsoleOutput"]);
    for carried in [&[][..], &[THEIRS], &[MARKED]] {
        all(Operator, ME, carried, false, &["ec2:TerminateInstances", "ec2:GetConsoleOutput"]);
    }
    let never = [
        "ec2:StopInstances",
        "ec2:ModifyInstanceAttribute",
        "ec2:AssociateIamInstanceProfile",
        "ec2:DeleteTags",
    ];
    all(Operator, ME, &[OURS], false, &never);
    let to = |service| [("iam:PassedToService", service)];
    // The second is what EC2 is called in China.
    for ec2 in ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"] {
        all(Operator, ROLE, &to(ec2), true, &["iam:PassRole"]);
    }
    all(Operator, ROLE, &to("ec2.amazonaws.com"), false, &["iam:UpdateAssumeRolePolicy"]);
    all(Operator, ROLE, &to("lambda.amazonaws.com"), false, &["iam:PassRole"]);
    all(Operator, ROLE, &[], false, &["iam:PassRole", "iam:PutRolePolicy", "iam:AttachRolePolicy"]);
    all(Operator, ADMIN, &to("ec2.amazonaws.com"), false, &["iam:PassRole"]);
}

fn image_parameters(all: &mut Add<'_>, who: Who) {
    let others = [
        "arn:aws:ssm:eu-west-1:123456789012:parameter/payroll/password",
        "arn:aws:ssm:eu-west-1:123456789012:parameter/yard-other/image",
        "arn:aws:ssm:us-east-1:123456789012:parameter/yard/image",
        "arn:aws:ssm:us-east-1::parameter/aws/service/debian/release/13/latest/amd64",
        "arn:aws:ssm:eu-west-1:999999999999:parameter/yard/image",
    ];
    for parameter in [PUBLIC_PARAMETER, OWN_PARAMETER] {
        all(who, parameter, &[], true, &["ssm:GetParameters"]);
        let never = ["ssm:PutParameter", "ssm:GetParametersByPath", "ssm:DeleteParameter", "ssm:SendCommand"];
        all(who, parameter, &[], false, &never);
    }
    for other in others {
        all(who, other, &[], false, &["ssm:GetParameters"]);
    }
}

fn tags(all: &mut Add<'_>) {
    let by = |action| ("ec2:CreateAction", action);
    let births = [
        (NEW, "RunInstances"),
        (VOLUME, "RunInstances"),
        (FLEET, "CreateFleet"),
        (TEMPLATE, "CreateLaunchTemplate"),
    ];
    for (born, action) in births {
        all(Operator, born, &[MARKED, by(action)], true, &["ec2:CreateTags"]);
        all(Operator, born, &[MISMARKED, by(action)], false, &["ec2:CreateTags"]);
        all(Operator, born, &[MARKED, by(action)], false, &["ec2:DeleteTags"]);
        all(Operator, born, &[MARKED], false, &["ec2:CreateTags"]);
    }
    all(Operator, SPOT, &[MARKED, by("RunInstances")], false, &["ec2:CreateTags"]);
    // What exists is never made ours.
    all(Operator, NEIGHBOUR, &[MARKED], false, &["ec2:CreateTags"]);
    all(Operator, SUBNET, &[MARKED, by("CreateFleet")], false, &["ec2:CreateTags"]);
}

/// EC2 asks about everything that the template names besides, and the template's tag is the fence.
fn named_by_templates(all: &mut Add<'_>) {
    for named in NAMED {
        all(Operator, named, &[], true, &["ec2:CreateFleet"]);
        all(Operator, named, &[FROM], true, &["ec2:RunInstances"]);
        all(Operator, named, &[], false, &["ec2:RunInstances"]);
        let never = [
            "ec2:DeleteKeyPair",
            "ec2:DeletePlacementGroup",
            "ec2:ModifyCapacityReservation",
            "license-manager:UpdateLicenseConfiguration",
        ];
        all(Operator, named, &[FROM, MARKED], false, &never);
    }
    for far in FAR_NAMED {
        all(Operator, far, &[FROM, MARKED], false, &["ec2:RunInstances", "ec2:CreateFleet"]);
    }
    all(Operator, "*", &[], false, &["ec2:CreateKeyPair", "ec2:DescribeKeyPairs", "license-manager:List*"]);
}

/// EC2 asks for the key in the name of whoever launches: for its own volumes, and never for the caller itself.
fn volume_keys(all: &mut Add<'_>) {
    let other = "arn:aws:kms:eu-west-1:123456789012:key/99999999-2222-3333-4444-555555555555";
    let via = |service| ("kms:ViaService", service);
    let (ec2, s3) = (via("ec2.eu-west-1.amazonaws.com"), via("s3.eu-west-1.amazonaws.com"));
    let far = via("ec2.us-east-1.amazonaws.com");
    let uses = [
        "kms:DescribeKey",
        "kms:Decrypt",
        "kms:GenerateDataKeyWithoutPlaintext",
        "kms:ReEncryptFrom",
        "kms:ReEncryptTo",
    ];
    let (grant, for_aws) = (["kms:CreateGrant"], ("kms:GrantIsForAWSResource", "true"));
    all(OperatorWithVolumeKey, KEY, &[ec2], true, &uses);
    all(OperatorWithVolumeKey, KEY, &[ec2, for_aws], true, &grant);
    for carried in [&[][..], &[s3], &[far]] {
        all(OperatorWithVolumeKey, KEY, carried, false, &uses);
    }
    for carried in [&[ec2][..], &[ec2, ("kms:GrantIsForAWSResource", "false")], &[s3, for_aws], &[for_aws]] {
        all(OperatorWithVolumeKey, KEY, carried, false, &grant);
    }
    all(OperatorWithVolumeKey, other, &[ec2], false, &uses);
    all(OperatorWithVolumeKey, other, &[ec2, for_aws], false, &grant);
    let never = ["kms:Encrypt", "kms:GenerateDataKey", "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion"];
    all(OperatorWithVolumeKey, KEY, &[ec2, for_aws], false, &never);
    // Without the key's document.
    all(Operator, KEY, &[ec2], false, &uses);
    all(Operator, KEY, &[ec2, for_aws], false, &grant);
}

/// What is left of the fence between machines where DynamoDB is not told which one asks: the kinds of records.
fn any_records(all: &mut Add<'_>) {
    let both = ["dynamodb:GetItem", "dynamodb:UpdateItem"];
    for own in [MINE, HIS] {
        all(MachineOfAnyRecord, TABLE, &[own], true, &both);
    }
    for orders in [ORDERS, HIS_ORDERS] {
        all(MachineOfAnyRecord, TABLE, &[orders], true, &["dynamodb:GetItem"]);
        all(MachineOfAnyRecord, TABLE, &[orders], false, &["dynamodb:UpdateItem"]);
    }
    for other in [REQUEST, POOL, LEASE] {
        all(MachineOfAnyRecord, TABLE, &[other], false, &both);
        all(MachineOfAnyRecord, TABLE, &[MINE, other], false, &both);
    }
    all(MachineOfAnyRecord, TABLE, &[], false, &both);
    all(MachineOfAnyRecord, OTHER_TABLE, &[MINE], false, &both);
    let never = ["dynamodb:PutItem", "dynamodb:DeleteItem", "dynamodb:Query", "dynamodb:Scan"];
    all(MachineOfAnyRecord, TABLE, &[MINE], false, &never);
    all(MachineOfAnyRecord, NEIGHBOUR, &[OURS], false, &["ec2:TerminateInstances", "ec2:CreateTags"]);
    let rings = ["sqs:GetQueueUrl", "sqs:SendMessage"];
    all(MachineOfAnyRecord, DOORBELL, &[], true, &rings);
    all(MachineOfAnyRecord, DOORBELL, &[], false, &["sqs:ReceiveMessage", "sqs:DeleteMessage"]);
    for other in [QUEUE, OTHER_DOORBELL, JOBS] {
        all(MachineOfAnyRecord, other, &[], false, &["sqs:SendMessage", "sqs:ReceiveMessage"]);
        all(AnyRecordWithEverything, other, &[], false, &rings);
    }
    all(AnyRecordWithEverything, DOORBELL, &[], true, &rings);
    let anything = ["s3:GetObject", "ssm:GetParameter", "iam:PassRole"];
    all(AnyRecordWithEverything, "*", &[], false, &anything);
    all(AnyRecordWithEverything, OTHER_TABLE, &[MINE], false, &both);
    all(AnyRecordWithEverything, NEIGHBOUR, &[OURS], false, &["ec2:TerminateInstances"]);
    all(AnyRecordWithEverything, ME, &[OURS], true, &["ec2:TerminateInstances"]);
    all(AnyRecordWithEverything, TABLE, &[MINE], true, &both);
    all(AnyRecordWithEverything, TABLE, &[], false, &["dynamodb:Scan", "dynamodb:PutItem"]);
}

fn workflows(all: &mut Add<'_>) {
    let (reads, writes) = (["dynamodb:GetItem", "dynamodb:Query"], ["dynamodb:UpdateItem"]);
    let wish = |attribute| (ATTRIBUTES, attribute);
    all(Workflow, TABLE, &[REQUEST], true, &reads);
    for attribute in INTENT {
        all(Workflow, TABLE, &[REQUEST, wish(attribute)], true, &writes);
    }
    // What the operator answers is not the workflow's to write, beside what is not at all.
    for attribute in STATUS {
        all(Workflow, TABLE, &[REQUEST, wish("desired"), wish(attribute)], false, &writes);
    }
    // A write that names no attribute is one IAM cannot judge.
    all(Workflow, TABLE, &[REQUEST], false, &writes);
    let evil = (LEADING, "request#acme-evil/web#1");
    for other in [FOREIGN_REQUEST, POOL, LEASE, ORDERS, HIS, SCALE_SET, evil] {
        all(Workflow, TABLE, &[other], false, &reads);
        all(Workflow, TABLE, &[other, wish("desired")], false, &writes);
    }
    // Slots are the operator's: who wrote one could end another repository's job, or hold a key before its slot.
    for slot in [SLOT, OWNERS_SLOT] {
        all(Workflow, TABLE, &[slot], true, &reads);
        all(Workflow, TABLE, &[slot, wish("desired")], false, &writes);
        all(Workflow, TABLE, &[REQUEST, slot, wish("desired")], false, &writes);
    }
    // One key of several is enough to refuse.
    all(Workflow, TABLE, &[REQUEST, FOREIGN_REQUEST, wish("desired")], false, &writes);
    all(Workflow, TABLE, &[], false, &reads);
    all(Workflow, TABLE, &[wish("desired")], false, &writes);
    all(Workflow, OTHER_TABLE, &[REQUEST, wish("desired")], false, &writes);
    all(Workflow, OTHER_TABLE, &[REQUEST], false, &reads);
    all(Workflow, HISTORY, &[REQUEST], false, &reads);
    all(Workflow, HISTORY, &[REQUEST], false, &["dynamodb:UpdateItem", "dynamodb:BatchWriteItem"]);
    all(Workflow, INDEX, &[REQUEST], false, &["dynamodb:Query"]);
    let never = ["dynamodb:PutItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem", "dynamodb:Scan"];
    all(Workflow, TABLE, &[REQUEST], false, &never);
    all(Workflow, TABLE, &[REQUEST, wish("desired")], false, &never);
    all(Workflow, TABLE, &[], false, &["dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:DeleteTable"]);
    all(Workflow, STREAM, &[], false, &FOLLOWS);
    all(Workflow, QUEUE, &[], false, &["sqs:GetQueueUrl", "sqs:SendMessage", "sqs:ReceiveMessage"]);
    all(Workflow, DOORBELL, &[], true, &["sqs:GetQueueUrl", "sqs:SendMessage"]);
    all(Workflow, OTHER_DOORBELL, &[], false, &["sqs:GetQueueUrl", "sqs:SendMessage"]);
    // Whoever could receive could keep the operator from hearing the others.
    let hears = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:PurgeQueue", "sqs:CreateQueue"];
    all(Workflow, DOORBELL, &[], false, &hears);
    all(Workflow, ME, &[OURS], false, &["ec2:TerminateInstances", "ec2:GetConsoleOutput"]);
    all(Workflow, FLEET, &[MARKED], false, &["ec2:CreateFleet"]);
}

fn machines(all: &mut Add<'_>) {
    for machine in [Machine, MachineThatEndsItself] {
        all(machine, TABLE, &[ORDERS], true, &["dynamodb:GetItem"]);
        all(machine, TABLE, &[MINE], true, &["dynamodb:GetItem", "dynamodb:UpdateItem"]);
        all(machine, TABLE, &[ORDERS], false, &["dynamodb:UpdateItem"]);
        for other in [HIS, HIS_ORDERS, REQUEST, POOL, LEASE] {
            all(machine, TABLE, &[other], false, &["dynamodb:GetItem", "dynamodb:UpdateItem"]);
        }
        all(machine, TABLE, &[MINE, HIS], false, &["dynamodb:GetItem", "dynamodb:UpdateItem"]);
        // `ForAllValues` is true of nothing.
        all(machine, TABLE, &[], false, &["dynamodb:GetItem", "dynamodb:UpdateItem"]);
        all(machine, OTHER_TABLE, &[MINE], false, &["dynamodb:GetItem", "dynamodb:UpdateItem"]);
        let history =
            ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem", "dynamodb:BatchWriteItem"];
        all(machine, HISTORY, &[MINE], false, &history);
        let never = [
            "dynamodb:PutItem",
            "dynamodb:DeleteItem",
            "dynamodb:Query",
            "dynamodb:Scan",
            "dynamodb:BatchGetItem",
            "dynamodb:BatchWriteItem",
            "dynamodb:ConditionCheckItem",
            "dynamodb:PartiQLSelect",
            "dynamodb:PartiQLUpdate",
        ];
        all(machine, TABLE, &[MINE], false, &never);
        for other in [QUEUE, OTHER_DOORBELL, JOBS] {
            all(machine, other, &[], false, &["sqs:GetQueueUrl", "sqs:SendMessage", "sqs:ReceiveMessage"]);
        }
        all(machine, DOORBELL, &[], true, &["sqs:GetQueueUrl", "sqs:SendMessage"]);
        let hears = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:PurgeQueue", "sqs:CreateQueue"];
        all(machine, DOORBELL, &[], false, &hears);
        all(machine, NEIGHBOUR, &[OURS], false, &["ec2:TerminateInstances"]);
        all(
            machine,
            ME,
            &[OURS],
            false,
            &[
                "ec2:CreateTags",
                "ec2:StopInstances",
                "ec2:ModifyInstanceMetadataOptions",
                "ec2:GetConsoleOutput",
            ],
        );
        all(machine, ROLE, &[], false, &["iam:PassRole", "sts:AssumeRole"]);
    }
    all(Machine, ME, &[OURS], false, &["ec2:TerminateInstances"]);
    all(MachineThatEndsItself, ME, &[OURS], true, &["ec2:TerminateInstances"]);
    // On a role that has nothing else, the optional document stands by itself.
    all(EndsItselfAlone, ME, &[], true, &["ec2:TerminateInstances"]);
    for other in [NEIGHBOUR, FAR_INSTANCE] {
        all(EndsItselfAlone, other, &[OURS], false, &["ec2:TerminateInstances"]);
    }
    all(EndsItselfAlone, ME, &[OURS], false, &["ec2:CreateTags", "ec2:StopInstances"]);
    all(EndsItselfAlone, FAR_SELF, &[OURS], false, &["ec2:TerminateInstances"]);
    // Whatever somebody attached.
    let anything =
        ["s3:GetObject", "ssm:GetParameter", "sts:AssumeRole", "iam:PassRole", "logs:PutLogEvents"];
    all(MachineWithEverything, "*", &[], false, &anything);
    all(MachineWithEverything, TABLE, &[], false, &["dynamodb:Scan", "dynamodb:PutItem"]);
    all(MachineWithEverything, OTHER_TABLE, &[MINE], false, &["dynamodb:GetItem", "dynamodb:UpdateItem"]);
    for other in [QUEUE, OTHER_DOORBELL, JOBS] {
        all(MachineWithEverything, other, &[], false, &["sqs:GetQueueUrl", "sqs:SendMessage"]);
    }
    all(MachineWithEverything, DOORBELL, &[], true, &["sqs:GetQueueUrl", "sqs:SendMessage"]);
    all(MachineWithEverything, NEIGHBOUR, &[OURS], false, &["ec2:TerminateInstances"]);
    all(MachineWithEverything, ME, &[OURS], true, &["ec2:TerminateInstances"]);
    all(MachineWithEverything, TABLE, &[MINE], true, &["dynamodb:GetItem", "dynamodb:UpdateItem"]);
}

fn inits(all: &mut Add<'_>) {
    all(Init, TABLE, &[], true, &SHAPES);
    all(Init, TABLE, &[], true, &["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:Scan"]);
    all(Init, HISTORY, &[], true, &SHAPES);
    all(Init, HISTORY, &[], true, &["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"]);
    let never = ["dynamodb:Query", "dynamodb:Scan", "dynamodb:BatchWriteItem", "dynamodb:DeleteTable"];
    all(Init, HISTORY, &[], false, &never);
    all(Init, OTHER_TABLE, &[], false, &SHAPES);
    let reads = ["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:Scan"];
    all(Init, OTHER_TABLE, &[], false, &reads);
    all(Init, TABLE, &[], false, &["dynamodb:DeleteTable", "dynamodb:DeleteItem", "dynamodb:PutItem"]);
    let writes = ["dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:BatchWriteItem"];
    all(Init, TABLE, &[POOL], true, &writes);
    all(Init, TABLE, &[POOL], false, &["dynamodb:DeleteItem", "dynamodb:PutItem"]);
    for other in [REQUEST, ORDERS, MINE, LEASE] {
        all(Init, TABLE, &[other], false, &writes);
    }
    all(Init, TABLE, &[], false, &writes);
    all(Init, OTHER_TABLE, &[POOL], false, &writes);
    let makes = ["sqs:CreateQueue", "sqs:GetQueueUrl", "sqs:GetQueueAttributes", "sqs:SetQueueAttributes"];
    all(Init, QUEUE, &[], true, &makes);
    all(Init, OTHER_QUEUE, &[], false, &makes);
    all(
        Init,
        QUEUE,
        &[],
        false,
        &["sqs:DeleteQueue", "sqs:PurgeQueue", "sqs:SendMessage", "sqs:ReceiveMessage"],
    );
    all(Init, "*", &[], true, &LOOKS);
    image_parameters(all, Init);
    all(Init, "*", &[], false, &["ec2:DescribeInstances", "iam:ListRoles"]);
    all(Init, TEMPLATE, &[MARKED], true, &["ec2:CreateLaunchTemplate"]);
    for carried in [&[][..], &[MISMARKED]] {
        all(Init, TEMPLATE, carried, false, &["ec2:CreateLaunchTemplate"]);
    }
    all(Init, TEMPLATE, &[OURS], true, &KEEPS);
    for carried in [&[][..], &[THEIRS]] {
        all(Init, TEMPLATE, carried, false, &KEEPS);
    }
    all(Init, TEMPLATE, &[OURS], false, &["ec2:RunInstances", "ec2:CreateFleet", "ec2:DeleteLaunchTemplate"]);
    let by = ("ec2:CreateAction", "CreateLaunchTemplate");
    all(Init, TEMPLATE, &[MARKED, by], true, &["ec2:CreateTags"]);
    for carried in [&[MISMARKED, by][..], &[MARKED]] {
        all(Init, TEMPLATE, carried, false, &["ec2:CreateTags"]);
    }
    all(Init, TEMPLATE, &[MARKED, by], false, &["ec2:DeleteTags"]);
    all(Init, FAR_TEMPLATE, &[MARKED], false, &["ec2:CreateLaunchTemplate"]);
    all(Init, FAR_TEMPLATE, &[OURS], false, &KEEPS);
    all(Init, NEIGHBOUR, &[MARKED, by], false, &["ec2:CreateTags"]);
    all(Init, FLEET, &[MARKED], false, &["ec2:CreateFleet"]);
    all(Init, ME, &[OURS], false, &["ec2:TerminateInstances"]);
    all(Init, ROLE, &[("iam:PassedToService", "ec2.amazonaws.com")], false, &["iam:PassRole"]);
}

/// People who look: at everything of this yard, and they change nothing of it.
fn readers(all: &mut Add<'_>) {
    let reads = ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan"];
    all(Reader, TABLE, &[], true, &reads);
    all(Reader, OTHER_TABLE, &[], false, &reads);
    all(Reader, HISTORY, &[], true, &["dynamodb:Query"]);
    all(Reader, HISTORY, &[], false, &["dynamodb:Scan", "dynamodb:GetItem"]);
    let writes = [
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "dynamodb:DeleteItem",
        "dynamodb:BatchWriteItem",
        "dynamodb:ConditionCheckItem",
        "dynamodb:PartiQLUpdate",
        "dynamodb:DeleteTable",
    ];
    for table in [TABLE, HISTORY] {
        all(Reader, table, &[], false, &writes);
        all(Reader, table, &[], false, &SHAPES);
    }
    // Two read the stream already.
    all(Reader, STREAM, &[], false, &FOLLOWS);
    let looks = ["sqs:GetQueueUrl", "sqs:GetQueueAttributes"];
    let hears = [
        "sqs:SendMessage",
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:PurgeQueue",
        "sqs:CreateQueue",
        "sqs:DeleteQueue",
        "sqs:SetQueueAttributes",
    ];
    for queue in [QUEUE, DOORBELL] {
        all(Reader, queue, &[], true, &looks);
        all(Reader, queue, &[], false, &hears);
    }
    for foreign in [OTHER_QUEUE, OTHER_REGION] {
        all(Reader, foreign, &[], false, &looks);
    }
    all(Reader, "*", &[], true, &["ec2:DescribeSpotPriceHistory"]);
    all(Reader, "*", &[], false, &["ec2:DescribeInstances", "iam:ListRoles", "ssm:StartSession"]);
    all(Reader, ME, &[OURS], false, &["ec2:TerminateInstances", "ec2:GetConsoleOutput", "ssm:StartSession"]);
    all(Reader, FLEET, &[MARKED], false, &["ec2:CreateFleet"]);
    all(Reader, ROLE, &[("iam:PassedToService", "ec2.amazonaws.com")], false, &["iam:PassRole"]);
}

#[test]
fn everybody_may_what_they_need_and_nothing_else() {
    let rows = rows();
    let refusals = rows.iter().filter(|row| !row.may).count();
    assert!(rows.len() >= 60 && refusals * 2 > rows.len(), "{refusals} of {} rows refuse", rows.len());
    let wrong: Vec<_> = rows.iter().filter(|row| !row.holds(document)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn webhooks(all: &mut Add<'_>) {
    all(Webhook, JOBS, &[], true, &["sqs:SendMessage"]);
    let never = ["sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:PurgeQueue"];
    all(Webhook, JOBS, &[], false, &never);
    for other in [DOORBELL, QUEUE].into_iter().chain(OTHER_JOBS) {
        all(Webhook, other, &[], false, &["sqs:SendMessage"]);
    }
    all(Webhook, TABLE, &[], false, &["dynamodb:GetItem", "dynamodb:UpdateItem"]);
    // The operator reads what was passed on; a workflow cannot put anything there, and nobody who looks reads it.
    all(Operator, JOBS, &[], true, &["sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage"]);
    all(Init, JOBS, &[], true, &["sqs:CreateQueue", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"]);
    all(Workflow, JOBS, &[], false, &["sqs:SendMessage", "sqs:ReceiveMessage"]);
    all(Reader, JOBS, &[], true, &["sqs:GetQueueUrl", "sqs:GetQueueAttributes"]);
    all(Reader, JOBS, &[], false, &["sqs:ReceiveMessage", "sqs:SendMessage"]);
}
