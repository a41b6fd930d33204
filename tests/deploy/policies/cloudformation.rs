//! Does `config/cloudformation.yaml` say what the documents say, and make what `init` makes?

use runyard_core::model::LARGEST_JOB_RING;
use runyard_operator::config::{Config, ScopeKind};
use serde_json::{Value, json};

use crate::policies::documents::{KEY, config, document};
use crate::policies::evaluator::{Call, Context, Verdict, judge};
use crate::policies::stack::{Stack, template};

/// A stack that makes everything the template can make.
const EVERYTHING: [(&str, &str); 5] = [
    ("PodIdentity", "true"),
    ("GitHubOidcProvider", "create"),
    ("GitHubOwnerId", "123456"),
    ("VolumeKeyArn", KEY),
    ("JobsWebhook", "true"),
];

fn properties(name: &str) -> Value {
    Stack::with(&EVERYTHING).properties(name).expect("everything is made")
}

#[test]
fn its_policies_are_the_documents() {
    for (name, resource) in [
        ("operator", "OperatorPolicy"),
        ("operator-volume-key", "OperatorVolumeKeyPolicy"),
        ("workflow", "WorkflowPolicy"),
        ("init", "InitPolicy"),
        ("reader", "ReaderPolicy"),
    ] {
        assert_eq!(properties(resource)["PolicyDocument"], document(name), "{name}");
    }
    let machine = properties("MachineRole");
    assert_eq!(machine["Policies"][0]["PolicyDocument"], document("instance"));
    assert_eq!(machine["Policies"].as_array().map(Vec::len), Some(1));
    assert_eq!(machine.get("ManagedPolicyArns"), None, "nothing besides");
    let webhook = properties("JobsRole");
    assert_eq!(webhook["Policies"][0]["PolicyDocument"], document("webhook"));
    assert_eq!(webhook["Policies"].as_array().map(Vec::len), Some(1));
    assert_eq!(webhook.get("ManagedPolicyArns"), None, "nothing besides");
}

#[test]
fn a_policy_is_attached_to_the_role_that_bears_its_name_and_to_no_other() {
    for (role, policies) in [
        ("OperatorRole", &["OperatorPolicy", "OperatorVolumeKeyPolicy"][..]),
        ("InitRole", &["InitPolicy"]),
        ("WorkflowRole", &["WorkflowPolicy"]),
    ] {
        let role = properties(role);
        let policies: Vec<_> = policies.iter().map(|name| json!({"Ref": name})).collect();
        assert_eq!(role["ManagedPolicyArns"], json!(policies));
        assert_eq!(role.get("Policies"), None);
    }
    assert_eq!(properties("MachineRole")["RoleName"], "yard-machine", "the role the operator may pass");
}

#[test]
fn an_account_without_a_key_of_its_own_allows_no_key() {
    let stack = Stack::with(&[("PodIdentity", "true")]);
    assert_eq!(stack.properties("OperatorVolumeKeyPolicy"), None);
    let role = stack.properties("OperatorRole").expect("it is made");
    assert_eq!(role["ManagedPolicyArns"], json!([{"Ref": "OperatorPolicy"}]));
}

#[test]
fn in_china_the_machines_role_trusts_ec2_by_its_name_there() {
    let china = [
        ("AWS::Partition", "aws-cn"),
        ("AWS::URLSuffix", "amazonaws.com.cn"),
        ("AWS::Region", "cn-north-1"),
        ("VolumeKeyArn", "arn:aws-cn:kms:cn-north-1:123456789012:key/1"),
    ];
    for (stack, service) in
        [(Stack::with(&china), "ec2.amazonaws.com.cn"), (Stack::with(&[]), "ec2.amazonaws.com")]
    {
        let role = stack.properties("MachineRole").expect("it is made");
        assert_eq!(
            role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"],
            json!({"Service": service})
        );
    }
    let key = Stack::with(&china).properties("OperatorVolumeKeyPolicy").expect("it is made");
    let via = &key["PolicyDocument"]["Statement"][0]["Condition"]["StringEquals"]["kms:ViaService"];
    assert_eq!(via, "ec2.cn-north-1.amazonaws.com.cn");
}

#[test]
fn its_classes_are_those_of_the_example() {
    let pools = std::fs::read_to_string(config().join("pools.yaml")).unwrap();
    let pools: Value = serde_norway::from_str(&pools).unwrap();
    let classes: Vec<_> =
        pools["pools"].as_array().unwrap().iter().map(|pool| pool["resourceClass"].clone()).collect();
    let classes: Vec<_> = classes.iter().map(|class| class.as_str().unwrap()).collect();
    assert_eq!(template()["Parameters"]["Classes"]["Default"], classes.join(","));
}

/// What the page for operators says: the capabilities that names and loops need, and no parameter that there is not.
#[test]
fn the_documented_command_gives_what_the_template_needs() {
    let commands = deployments("how-to/install.md");
    assert!(!commands.is_empty(), "no command");
    let template = template();
    for command in &commands {
        assert!(command.contains("--capabilities CAPABILITY_NAMED_IAM CAPABILITY_AUTO_EXPAND"), "{command}");
        assert!(command.contains("--template-file config/cloudformation.yaml"), "{command}");
        let given: Vec<(&str, &str)> = command
            .split_whitespace()
            .filter(|word| !word.starts_with('-'))
            .filter_map(|w| w.split_once('='))
            .collect();
        let declared = template["Parameters"].as_object().unwrap();
        for (name, declared) in declared.iter().filter(|(_, declared)| declared.get("Default").is_none()) {
            assert!(
                given.iter().any(|(given, _)| given == name),
                "{name} ({}) is not given",
                declared["Description"]
            );
        }
        assert_eq!(Stack::with(&given).refusal(), None, "{command}");
    }
}

/// The `aws cloudformation deploy` commands of a page.
fn deployments(page: &str) -> Vec<String> {
    let page = std::fs::read_to_string(config().join("../docs").join(page)).unwrap();
    let commands = page.split("aws cloudformation deploy").skip(1);
    commands.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Its tables stay when a creation is rolled back, and then no second one succeeds. An upgrade replaces the operator's
/// task, which CloudFormation does not do while rollback is disabled.
#[test]
fn a_first_stack_is_kept_when_it_fails_and_an_upgrade_is_rolled_back() {
    for (page, first, count) in
        [("tutorial-aws.md", true, 1), ("how-to/install.md", true, 2), ("how-to/operate.md", false, 1)]
    {
        let commands = deployments(page);
        assert_eq!(commands.len(), count, "{page}");
        for command in commands {
            assert_eq!(command.contains(" --disable-rollback "), first, "{page}: {command}");
        }
    }
}

/// What a stack needs that runs the operator.
const OPERATOR: [(&str, &str); 7] = [
    ("OperatorImage", "registry.example.com/runyard:0.1.0"),
    ("VpcId", "vpc-01"),
    ("SubnetIds", "subnet-01,subnet-02"),
    ("GitHubSecretArn", "arn:aws:secretsmanager:eu-west-1:123456789012:secret:github-1"),
    ("RunnerUrl", "https://example.com/actions-runner-linux-x64.tar.gz"),
    ("RunnerSha256", "0000000000000000000000000000000000000000000000000000000000000000"),
    ("RunnerVersion", "2.336.0"),
];

/// What machines of a stock image fetch, and those of the other architecture.
const FETCHED: [(&str, &str); 6] = [
    ("RunnerUrlArm64", "https://example.com/actions-runner-linux-arm64.tar.gz"),
    ("RunnerSha256Arm64", "1111111111111111111111111111111111111111111111111111111111111111"),
    ("AgentUrl", "https://example.com/runyard-agent-x86_64"),
    ("AgentSha256", "2222222222222222222222222222222222222222222222222222222222222222"),
    ("AgentUrlArm64", "https://example.com/runyard-agent-aarch64"),
    ("AgentSha256Arm64", "3333333333333333333333333333333333333333333333333333333333333333"),
];

/// What is posted there goes into the queue that the operator listens to, by the one role that may.
#[test]
fn a_webhook_is_made_on_request_alone_and_leads_into_the_queue_of_queued_jobs() {
    let parts = ["JobsApi", "JobsRole", "JobsIntegration", "JobsRoute", "JobsStage"];
    let (bare, stack) = (Stack::with(&[]), Stack::with(&[("JobsWebhook", "true")]));
    for part in parts {
        assert_eq!(bare.properties(part), None, "{part}");
        assert!(stack.properties(part).is_some(), "{part}");
    }
    let queue = bare.properties("Jobs").expect("it costs nothing");
    assert_eq!(queue["QueueName"], "yard-jobs");
    assert_eq!(queue["MaximumMessageSize"], LARGEST_JOB_RING);
    let integration = stack.properties("JobsIntegration").expect("it is made");
    assert_eq!(integration["IntegrationSubtype"], "SQS-SendMessage");
    assert_eq!(integration["CredentialsArn"], json!({"Fn::GetAtt": ["JobsRole", "Arn"]}));
    let parameters = json!({"QueueUrl": {"Ref": "Jobs"}, "MessageBody": "$request.body"});
    assert_eq!(integration["RequestParameters"], parameters);
    let route = stack.properties("JobsRoute").expect("it is made");
    assert_eq!(
        (&route["RouteKey"], &route["Target"]),
        (&json!("POST /github"), &json!("integrations/<JobsIntegration>"))
    );
    let limits = &stack.properties("JobsStage").expect("it is made")["DefaultRouteSettings"];
    assert_eq!(
        limits,
        &json!({"ThrottlingRateLimit": 20, "ThrottlingBurstLimit": 200}),
        "a flood has a price"
    );
    assert_eq!(stack.outputs().get("JobsWebhookUrl"), Some(&json!("<JobsApi.ApiEndpoint>/github")));
    assert!(!bare.outputs().contains_key("JobsWebhookUrl"));
}

/// Its environment is read by the program's own configuration, so that no key is misspelt and none is missing.
#[test]
fn the_stacks_operator_can_read_what_the_stack_tells_it() {
    for (app, fetched, key, other) in
        [("", &[][..], "token_file", "app_key_file"), ("42", &FETCHED[..], "app_key_file", "token_file")]
    {
        let stack = Stack::with(&[&OPERATOR[..], fetched, &[("GitHubAppId", app)]].concat());
        assert_eq!(stack.refusal(), None);
        let task = stack.properties("OperatorTask").expect("it is made");
        let operator = &task["ContainerDefinitions"][1];
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            // The queue's name, which is the interruptions queue's.
            _ => "yard-interruptions".to_owned(),
        };
        let given = operator["Environment"].as_array().expect("a list");
        let given: Vec<_> = given.iter().map(|one| (text(&one["Name"]), text(&one["Value"]))).collect();
        let named =
            |name: &str| given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
        assert_eq!(named(&format!("RUNYARD_GITHUB__{}", key.to_uppercase())), Some("/run/github/credential"));
        assert_eq!(named(&format!("RUNYARD_GITHUB__{}", other.to_uppercase())), None);
        let read = Config::load(None, given.clone().into_iter()).expect("a configuration");
        assert_eq!(read.table.as_str(), "yard");
        assert!(read.interruptions.is_some() && read.agent.runner.usual.is_some() && read.github.is_some());
        let agent = &read.agent;
        for made in
            [agent.runner.arm64.is_some(), agent.program.usual.is_some(), agent.program.arm64.is_some()]
        {
            assert_eq!(made, !fetched.is_empty());
        }
        assert_eq!(operator["User"], "10001:10001", "as in the Dockerfile");
        let credential = &task["ContainerDefinitions"][0];
        assert!(
            credential["Command"][0]
                .as_str()
                .is_some_and(|run| run.contains("chown 10001:10001 /run/github/credential"))
        );
        assert_eq!(operator.get("Secrets"), None, "the credential is a file");
    }
}

/// Without an image of ours the task runs the program that it fetched and checked, in the helper's image.
#[test]
fn the_stacks_operator_runs_in_its_image_or_as_the_program_that_it_fetches() {
    let digest = "4444444444444444444444444444444444444444444444444444444444444444";
    let (url, sum) = (("OperatorUrl", "https://example.com/runyard"), ("OperatorSha256", digest));
    let fetched = |given: &[(&str, &str)]| Stack::with(&[&OPERATOR[1..], given].concat());
    assert!(fetched(&[url]).refusal().is_some_and(|why| why.contains("OperatorSha256 is empty")));
    let both = Stack::with(&[&OPERATOR[..], &[url, sum]].concat());
    assert!(both.refusal().is_some_and(|why| why.contains("are both set")));

    let stack = fetched(&[url, sum]);
    assert_eq!(stack.refusal(), None);
    assert_eq!(fetched(&[]).properties("OperatorTask"), None, "nothing names an operator");
    let image = Stack::with(&OPERATOR);
    for (stack, program, ours) in
        [(stack, "/opt/runyard/runyard", false), (image, "/usr/local/bin/runyard", true)]
    {
        let task = stack.properties("OperatorTask").expect("it is made");
        let [helper, operator] = [0, 1].map(|at| task["ContainerDefinitions"][at].clone());
        assert_eq!(operator["EntryPoint"], json!([program]));
        assert_eq!(operator["HealthCheck"]["Command"][1], program);
        assert_eq!(operator["Image"] == OPERATOR[0].1, ours);
        assert_eq!(operator["Image"] == helper["Image"], !ours);
        let told = |name: &str| {
            let all = helper["Environment"].as_array().expect("a list");
            all.iter().find(|one| one["Name"] == name).expect("it is told")["Value"].clone()
        };
        assert_eq!(told("PROGRAM_URL") == url.1, !ours);
        assert_eq!(told("PROGRAM_SHA256") == digest, !ours);
        assert_eq!(operator["MountPoints"][1]["ContainerPath"], helper["MountPoints"][1]["ContainerPath"]);
        assert_eq!(operator["MountPoints"][1]["ReadOnly"], true, "what was checked is what runs");
    }
}

/// What the operator reads of its environment in a stack with these parameters beside what it needs.
fn operators_configuration(given: &[(&str, &str)]) -> Config {
    let stack = Stack::with(&[&OPERATOR[..], &[("GitHubAppId", "42")], given].concat());
    assert_eq!(stack.refusal(), None);
    let task = stack.properties("OperatorTask").expect("it is made");
    let given = task["ContainerDefinitions"][1]["Environment"].as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().unwrap_or("yard-interruptions").to_owned();
    Config::load(None, given.iter().map(|one| (text(&one["Name"]), text(&one["Value"]))))
        .expect("a configuration")
}

/// `latest` is refused for an architecture without a package, so that it is told of those that have one.
#[test]
fn the_stacks_operator_registers_runners_and_follows_their_versions_as_it_is_told() {
    let (organization, latest) = (("GitHubScope", "organization"), ("RunnerFollow", "latest"));
    let arm64 = &FETCHED[..2];
    for (given, scope, usual, of_arm64) in [
        (&[][..], ScopeKind::Repository, false, false),
        (&[organization][..], ScopeKind::Organization, false, false),
        (arm64, ScopeKind::Repository, false, false),
        (&[latest][..], ScopeKind::Repository, true, false),
        (&[arm64, &[latest]].concat()[..], ScopeKind::Repository, true, true),
    ] {
        let read = operators_configuration(given);
        assert_eq!(read.github.expect("GitHub").scope, scope, "{given:?}");
        let following = read.agent.following();
        assert_eq!((following.usual.is_some(), following.arm64.is_some()), (usual, of_arm64), "{given:?}");
    }
}

/// What the task refers to is there before the service without that; what it names is not.
#[test]
fn the_service_starts_after_what_its_operator_reads_and_may() {
    let template = template();
    let resource = |name: &str| template["Resources"][name].clone();
    assert_eq!(resource("OperatorService")["DependsOn"], json!(["Table", "History", "Doorbell", "Jobs"]));
    let task = resource("OperatorTask").to_string();
    for referred in ["OperatorTaskRole", "OperatorStartRole", "OperatorLogs", "Interruptions"] {
        assert!(task.contains(&format!("\"{referred}\"")), "the task does not refer to {referred}");
    }
    let mut resources = template["Resources"].as_object().unwrap().values();
    let apart = resources.any(|one| one["Type"] == "AWS::IAM::RolePolicy");
    assert!(!apart, "a role's policies are parts of the role");
}

#[test]
fn an_operator_in_the_stack_needs_all_that_it_runs_with() {
    for (missing, _) in &OPERATOR[1..] {
        let stack =
            Stack::with(&OPERATOR.iter().copied().filter(|(name, _)| name != missing).collect::<Vec<_>>());
        assert!(stack.refusal().is_some_and(|why| why.contains(missing)), "{missing}: {:?}", stack.refusal());
    }
    let stack = Stack::with(&OPERATOR);
    let service = stack.properties("OperatorService").expect("it is made");
    let most = service["DeploymentConfiguration"]["MaximumPercent"].as_u64().expect("a number");
    let wanted = service["DesiredCount"].as_u64().expect("a number");
    assert!(wanted * most / 100 <= 2, "two may read the table's stream");
    for role in ["OperatorTaskRole", "OperatorStartRole"] {
        let this = [("aws:SourceAccount", "123456789012")];
        assert!(trusts(&stack, role, "sts:AssumeRole", &this), "{role}");
        assert!(!trusts(&stack, role, "sts:AssumeRole", &[("aws:SourceAccount", "999999999999")]), "{role}");
    }
    assert_eq!(
        stack.properties("OperatorTaskRole").expect("it is made")["ManagedPolicyArns"],
        json!([{"Ref": "OperatorPolicy"}])
    );
    let start = stack.properties("OperatorStartRole").expect("it is made");
    let reads = &start["Policies"][0]["PolicyDocument"]["Statement"];
    assert_eq!(reads[0]["Resource"], OPERATOR[3].1, "the one secret");
    assert_eq!(reads.as_array().map(Vec::len), Some(1));
}

/// The lease is given up, and what was begun comes to its end: in the chart, in the stack, and by the unit of the page.
#[test]
fn an_operator_has_the_same_time_to_stop_wherever_it_runs() {
    let values = std::fs::read_to_string(config().join("../charts/runyard/values.yaml")).unwrap();
    let values: Value = serde_norway::from_str(&values).unwrap();
    let task = Stack::with(&OPERATOR).properties("OperatorTask").expect("it is made");
    let of_the_task = &task["ContainerDefinitions"][1]["StopTimeout"];
    assert_eq!(values["terminationGracePeriodSeconds"], *of_the_task);
    let page = std::fs::read_to_string(config().join("../docs/how-to/install.md")).unwrap();
    assert!(page.contains(&format!("\nTimeoutStopSec={of_the_task}\n")), "{of_the_task}");
}

#[test]
fn a_stack_tells_what_pools_and_prometheus_need() {
    let told = Stack::with(&OPERATOR).outputs();
    for (name, value) in [
        ("SubnetIds", json!("subnet-01,subnet-02")),
        ("MachineSecurityGroup", json!({"Fn::GetAtt": ["MachineSecurityGroup", "GroupId"]})),
        ("MachineProfile", json!({"Ref": "MachineProfile"})),
        ("Table", json!({"Ref": "Table"})),
        ("OperatorSecurityGroup", json!({"Fn::GetAtt": ["OperatorSecurityGroup", "GroupId"]})),
    ] {
        assert_eq!(told.get(name), Some(&value), "{name}");
    }
    let bare = Stack::with(&[]).outputs();
    assert!(
        bare.contains_key("Table")
            && !["SubnetIds", "OperatorLogs", "OperatorSecurityGroup"]
                .iter()
                .any(|name| bare.contains_key(*name))
    );
    let size = std::fs::metadata(config().join("cloudformation.yaml")).unwrap().len();
    assert!(size <= 51_200, "CloudFormation takes no template of {size} bytes without a bucket");
}

/// IAM counts every character but white space: 6144 for a managed policy.
#[test]
fn every_managed_policy_fits_even_with_the_longest_names() {
    let long = [
        ("TableName", &*"y".repeat(40)),
        ("AWS::Region", "ap-southeast-7"),
        ("AWS::Partition", "aws-us-gov"),
    ];
    let stack = Stack::with(&[&EVERYTHING[..], &long[..]].concat());
    for name in ["OperatorPolicy", "OperatorVolumeKeyPolicy", "WorkflowPolicy", "InitPolicy", "ReaderPolicy"]
    {
        let policy = stack.properties(name).expect("it is made")["PolicyDocument"].to_string();
        assert!(policy.len() <= 6144, "{name}: {} characters", policy.len());
    }
}

/// Two of AWS's promises that no emulator shows have a way round that does not need them.
#[test]
fn where_a_fence_does_not_hold_a_parameter_puts_another_in_its_place() {
    let stack = Stack::with(&[("MachineFence", "any-record"), ("LaunchFence", "tags")]);
    let machine = stack.properties("MachineRole").expect("it is made");
    assert_eq!(machine["Policies"][0]["PolicyDocument"], document("instance-any-record"));
    let operator = stack.properties("OperatorPolicy").expect("it is made")["PolicyDocument"].clone();
    let mut wanted = document("operator");
    let mut opened = Vec::new();
    for statement in wanted["Statement"].as_array_mut().expect("statements") {
        let sid = statement["Sid"].as_str().expect("a Sid").to_owned();
        let statement = statement.as_object_mut().expect("a statement");
        let Some(condition) = statement.get_mut("Condition").and_then(Value::as_object_mut) else { continue };
        if condition.remove("ArnLike").is_some() {
            opened.push(sid);
            if condition.is_empty() {
                statement.remove("Condition");
            }
        }
    }
    assert_eq!(opened, ["LaunchOurs", "LaunchWith"]);
    assert_eq!(operator, wanted);
    let launch = |carried: &[(&str, &str)]| {
        let context: Context =
            carried.iter().map(|(key, value)| (key.to_lowercase(), vec![(*value).to_owned()])).collect();
        let resource = "arn:aws:ec2:eu-west-1:123456789012:instance/*".to_owned();
        judge(std::slice::from_ref(&operator), &Call { action: "ec2:RunInstances".into(), resource, context })
    };
    assert_eq!(launch(&[("aws:RequestTag/runyard:table", "yard")]), Verdict::Allowed);
    assert_eq!(launch(&[("aws:RequestTag/runyard:table", "payroll")]), Verdict::NotAllowed);
    assert_eq!(launch(&[]), Verdict::NotAllowed);
}

/// Whether a role of the template trusts a call, which carries this.
fn trusts(stack: &Stack, role: &str, action: &str, carried: &[(&str, &str)]) -> bool {
    let mut trust = stack.properties(role).expect("the role is made")["AssumeRolePolicyDocument"].clone();
    for statement in trust["Statement"].as_array_mut().expect("statements") {
        let statement = statement.as_object_mut().expect("a statement");
        assert!(statement.remove("Principal").is_some(), "somebody is trusted");
        // A role's trust is of that role.
        statement.insert("Resource".into(), json!("*"));
    }
    let context: Context =
        carried.iter().map(|(key, value)| (key.to_lowercase(), vec![(*value).to_owned()])).collect();
    judge(&[trust], &Call { action: action.into(), resource: role.into(), context }) == Verdict::Allowed
}

/// Subjects as github.com writes them: since 15 July 2026 those of new, renamed and transferred repositories carry ids
/// that stay.
#[test]
fn workflows_of_old_and_new_repositories_become_the_role_and_no_other_owners() {
    let stack = Stack::with(&EVERYTHING);
    let becomes = |subject: &str, audience: &str| {
        let carried = [
            ("token.actions.githubusercontent.com:sub", subject),
            ("token.actions.githubusercontent.com:aud", audience),
        ];
        trusts(&stack, "WorkflowRole", "sts:AssumeRoleWithWebIdentity", &carried)
    };
    for (subject, may) in [
        ("repo:acme/web:ref:refs/heads/main", true),
        ("repo:acme/web:pull_request", true),
        ("repo:acme@123456/web@456789:ref:refs/heads/main", true),
        ("repo:acme@123456/web@456789:environment:production", true),
        // The name again, after its owner gave it up.
        ("repo:acme@999999/web@456789:ref:refs/heads/main", false),
        ("repo:acme@1234567/web@456789:ref:refs/heads/main", false),
        ("repo:acme-evil/web:ref:refs/heads/main", false),
        ("repo:acme-evil@123456/web@1:ref:refs/heads/main", false),
        ("repo:evil@1/acme@123456/web:ref:refs/heads/main", false),
    ] {
        assert_eq!(becomes(subject, "sts.amazonaws.com"), may, "{subject}");
        assert!(!becomes(subject, "https://github.com/acme"), "{subject}");
    }
}

#[test]
fn githubs_provider_is_made_or_named_and_the_owners_id_belongs_to_it() {
    let with = |provider, id| Stack::with(&[("GitHubOidcProvider", provider), ("GitHubOwnerId", id)]);
    let arn = "arn:aws:iam::123456789012:oidc-provider/token.actions.githubusercontent.com";
    for (provider, id, taken) in [
        ("", "", true),
        ("create", "123456", true),
        (arn, "123456", true),
        ("create", "", false),
        (arn, "", false),
    ] {
        let refusal = with(provider, id).refusal();
        assert_eq!(refusal.is_none(), taken, "{provider} {id}: {refusal:?}");
        assert!(refusal.is_none_or(|why| why.contains("GitHubOwnerId") && why.contains("gh api")));
    }
    let parameter = |name: &str| template()["Parameters"][name].clone();
    assert_eq!(parameter("GitHubOwnerId")["AllowedPattern"], "([0-9]{1,20})?", "a wildcard is no id");
    assert_eq!(parameter("GitHubOwnerId")["Default"], "");
    assert_eq!(with("", "").properties("WorkflowRole"), None);
    assert_eq!(with(arn, "1").properties("GitHubProvider"), None);
    let made = with("create", "1").properties("GitHubProvider").expect("it is made");
    assert_eq!(made["Url"], "https://token.actions.githubusercontent.com");
    assert_eq!(made["ClientIdList"], json!(["sts.amazonaws.com"]));
    let trusted = |provider| {
        let role = with(provider, "1").properties("WorkflowRole").expect("it is made");
        role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]["Federated"].clone()
    };
    assert_eq!(trusted(arn), arn);
    assert_eq!(trusted("create"), json!({"Ref": "GitHubProvider"}));
}

#[test]
fn its_tables_are_the_contracts() {
    its_table_is_the_contracts("Table");
    its_table_is_the_contracts("History");
    let stream = &properties("Table")["StreamSpecification"]["StreamViewType"];
    assert_eq!(stream, "NEW_AND_OLD_IMAGES");
    assert!(properties("History").get("StreamSpecification").is_none());
    assert_eq!(properties("History")["TableName"], "yard-history");
}

fn its_table_is_the_contracts(table_named: &str) {
    let table = properties(table_named);
    let key = |name: &str, role: &str| json!({"AttributeName": name, "KeyType": role});
    assert_eq!(table["KeySchema"], json!([key("pk", "HASH"), key("sk", "RANGE")]));
    for attribute in table["AttributeDefinitions"].as_array().unwrap() {
        assert_eq!(attribute["AttributeType"], "S");
    }
    assert_eq!(table["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(table["TimeToLiveSpecification"], json!({"AttributeName": "expiresAt", "Enabled": true}));
    assert_eq!(table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true);
    assert_eq!(template()["Resources"][table_named]["DeletionPolicy"], "Retain");
}

#[test]
fn its_queues_are_those_that_init_makes() {
    let each = template()["Resources"]["Fn::ForEach::Queues"].clone();
    assert_eq!((&each[0], &each[1]), (&json!("Class"), &json!({"Ref": "Classes"})));
    let (dead, queue) =
        (&each[2]["DeadLetters&{Class}"]["Properties"], &each[2]["Queue&{Class}"]["Properties"]);
    assert_eq!(dead["QueueName"], json!({"Fn::Sub": "${TableName}-${Class}-dead"}));
    assert_eq!(queue["QueueName"], json!({"Fn::Sub": "${TableName}-${Class}"}));
    assert_eq!(queue["MessageRetentionPeriod"], runyard_core::model::ANNOUNCED.as_secs());
    assert_eq!(queue["RedrivePolicy"]["maxReceiveCount"], 1000);
    let target = json!({"Fn::GetAtt": [{"Fn::Sub": "DeadLetters&{Class}"}, "Arn"]});
    assert_eq!(queue["RedrivePolicy"]["deadLetterTargetArn"], target);
    let doorbell = properties("Doorbell");
    assert_eq!(
        (&doorbell["QueueName"], &doorbell["MessageRetentionPeriod"]),
        (&json!("yard-doorbell"), &json!(60))
    );
    let notices = properties("Interruptions");
    assert_eq!(notices["QueueName"], "yard-interruptions");
    assert_eq!(notices["RedrivePolicy"]["maxReceiveCount"], 10);
    for (queue, dead) in [(queue, dead), (&notices, &properties("InterruptionsDeadLetters"))] {
        assert_eq!(queue["VisibilityTimeout"], 30);
        assert_eq!(dead["MessageRetentionPeriod"], 1_209_600);
    }
}

/// Whether a rule's pattern takes an event: each key of the pattern must hold one of the event's values.
fn takes(pattern: &Value, event: &Value) -> bool {
    match pattern {
        Value::Object(keys) => keys.iter().all(|(key, inner)| takes(inner, &event[key])),
        Value::Array(values) => values.contains(event),
        other => panic!("no pattern {other}"),
    }
}

#[test]
fn its_rules_send_every_event_we_read_and_no_other() {
    let rules = template()["Resources"].as_object().unwrap().clone();
    let rules = rules.values().filter(|resource| resource["Type"] == "AWS::Events::Rule");
    let patterns: Vec<Value> = rules
        .map(|rule| {
            let target = &rule["Properties"]["Targets"][0]["Arn"];
            assert_eq!(target, &json!({"Fn::GetAtt": ["Interruptions", "Arn"]}));
            rule["Properties"]["EventPattern"].clone()
        })
        .collect();
    let taken = |event: &Value| patterns.iter().filter(|pattern| takes(pattern, event)).count();
    let golden = config().join("../tests/golden/events");
    let mut seen = 0;
    for file in std::fs::read_dir(golden).unwrap() {
        let event: Value =
            serde_json::from_str(&std::fs::read_to_string(file.unwrap().path()).unwrap()).unwrap();
        assert_eq!(taken(&event), 1, "{event}");
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
    let state = |state: &str| {
        json!({"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
            "detail": {"instance-id": "i-1", "state": state}})
    };
    for (name, wanted) in [
        ("pending", 0),
        ("running", 0),
        ("stopping", 1),
        ("stopped", 1),
        ("shutting-down", 1),
        ("terminated", 1),
    ] {
        assert_eq!(taken(&state(name)), wanted, "{name}");
    }
}
