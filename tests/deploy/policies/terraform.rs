//! Does the Terraform module make what the template makes? Its expressions are evaluated as Terraform would, and held
//! against CloudFormation's with the same parameters.

use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, Body};
use runyard_core::model::PoolSpec;
use serde_json::{Map, Value, json};

use crate::policies::documents::{KEY, config};
use crate::policies::hcl::{self, Names};
use crate::policies::stack::{Stack, template};

/// The module with its variables filled in.
struct Module {
    body: Body,
    names: Names,
}

impl Module {
    /// With these variables; the others have their defaults.
    fn with(given: &[(&str, Value)], partition: &str, suffix: &str) -> Self {
        let mut files: Vec<_> =
            std::fs::read_dir(config().join("terraform")).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        let files = files.iter().filter(|path| path.extension().is_some_and(|suffix| suffix == "tf"));
        let whole: String = files.map(|path| std::fs::read_to_string(path).unwrap() + "\n").collect();
        let mut module = Self { body: whole.parse().expect("HCL"), names: Names::new() };
        let mut variables = module.variables();
        for (name, value) in [
            ("table_name", json!("yard")),
            ("github_owner", json!("Acme")),
            ("instance_types", json!(["m7i.*"])),
        ]
        .iter()
        .chain(given)
        {
            assert!(variables.insert((*name).to_owned(), value.clone()).is_some(), "no variable {name}");
        }
        let path = config().join("terraform").to_string_lossy().into_owned();
        let data = json!({
            "aws_caller_identity": {"current": {"account_id": "123456789012"}},
            "aws_partition": {"current": {"partition": partition, "dns_suffix": suffix}},
            "aws_region": {"current": {"name": "eu-west-1"}},
        });
        module.names.extend([
            ("var".into(), Value::Object(variables)),
            ("path".into(), json!({"module": path})),
            ("data".into(), data),
            ("local".into(), json!({})),
        ]);
        module.stand_in();
        module.settle();
        module
    }

    fn blocks<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Block> {
        self.body.get_blocks(kind)
    }

    fn variables(&self) -> Map<String, Value> {
        let default = |block: &Block| {
            block.body.get_attribute("default").map_or(Value::Null, |one| self.value(&one.value))
        };
        self.blocks("variable").map(|block| (block.labels[0].as_str().to_owned(), default(block))).collect()
    }

    /// What other resources would tell, told apart by their names.
    fn stand_in(&mut self) {
        let mut all: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for block in self.blocks("resource") {
            let [kind, name] = &block.labels[..] else { panic!("two labels: {block:?}") };
            let one = |key: &str| {
                let told = |what| format!("<{}.{}{key}.{what}>", kind.as_str(), name.as_str());
                json!({"arn": told("arn"), "id": told("id"), "name": told("name"), "url": told("url"),
                    "api_endpoint": told("api_endpoint")})
            };
            let has = |attribute| block.body.has_attribute(attribute);
            let value = if has("count") {
                json!([one("")])
            } else if has("for_each") {
                [
                    "interruptions",
                    "linux-x64",
                    "untrusted",
                    "SpotInterruptions",
                    "StateChanges",
                    "ScheduledChanges",
                ]
                .map(|key| (key.to_owned(), one(key)))
                .into_iter()
                .collect::<Map<_, _>>()
                .into()
            } else {
                one("")
            };
            all.entry(kind.as_str().to_owned()).or_default().insert(name.as_str().to_owned(), value);
        }
        self.names.extend(all.into_iter().map(|(kind, names)| (kind, names.into())));
    }

    /// Evaluates locals until all that they need is known.
    fn settle(&mut self) {
        let attributes = self.blocks("locals").flat_map(|block| block.body.attributes());
        let all: Vec<(String, Expression)> =
            attributes.map(|one| (one.key.as_str().to_owned(), one.value.clone())).collect();
        for _ in 0..all.len() {
            for (name, expression) in &all {
                if let Ok(value) = hcl::value(expression, &self.names) {
                    self.names.get_mut("local").expect("locals")[name] = value;
                }
            }
        }
        for (name, expression) in &all {
            assert_eq!(hcl::value(expression, &self.names).err(), None, "local.{name}");
        }
    }

    fn value(&self, expression: &Expression) -> Value {
        hcl::value(expression, &self.names).unwrap_or_else(|error| panic!("{error}: {expression}"))
    }

    fn resource(&self, kind: &str, name: &str) -> &Block {
        let wanted = |block: &&Block| block.labels[0].as_str() == kind && block.labels[1].as_str() == name;
        self.blocks("resource").find(wanted).unwrap_or_else(|| panic!("no resource {kind}.{name}"))
    }

    /// Whether a resource is made.
    fn made(&self, kind: &str, name: &str) -> bool {
        self.resource(kind, name)
            .body
            .get_attribute("count")
            .is_none_or(|count| self.value(&count.value) == 1)
    }

    fn attribute(&self, kind: &str, name: &str, attribute: &str) -> Value {
        let found = self.resource(kind, name).body.get_attribute(attribute);
        self.value(&found.unwrap_or_else(|| panic!("{kind}.{name} has no {attribute}")).value)
    }

    /// An attribute that is JSON written out.
    fn json(&self, kind: &str, name: &str, attribute: &str) -> Value {
        let value = self.attribute(kind, name, attribute);
        serde_json::from_str(value.as_str().expect("text")).expect("JSON")
    }
}

const PROVIDER: &str = "arn:aws:iam::123456789012:oidc-provider/token.actions.githubusercontent.com";

/// Both, with everything that can be made, and these further parameters of the template and the module.
fn both(further: &[(&str, &str)], variables: &[(&str, Value)], china: bool) -> (Stack, Module) {
    let (partition, suffix) = if china { ("aws-cn", "amazonaws.com.cn") } else { ("aws", "amazonaws.com") };
    let everything = [
        ("AWS::Partition", partition),
        ("AWS::URLSuffix", suffix),
        ("GitHubOwner", "Acme"),
        ("PodIdentity", "true"),
        ("GitHubOidcProvider", PROVIDER),
        ("GitHubOwnerId", "123456"),
        ("VolumeKeyArn", KEY),
        ("VpcId", "vpc-01"),
        ("SubnetIds", "subnet-01,subnet-02"),
        ("OperatorImage", "registry.example.com/runyard:0.1.0"),
        ("GitHubAppId", "42"),
        ("GitHubSecretArn", "arn:aws:secretsmanager:eu-west-1:123456789012:secret:github-1"),
        ("RunnerUrl", "https://example.com/runner.tar.gz"),
        ("RunnerSha256", "00"),
        ("RunnerVersion", "2.336.0"),
        ("RunnerUrlArm64", "https://example.com/runner-arm64.tar.gz"),
        ("RunnerSha256Arm64", "01"),
        ("GitHubScope", "organization"),
        ("RunnerFollow", "latest"),
        ("AgentUrl", "https://example.com/agent"),
        ("AgentSha256", "02"),
        ("AgentUrlArm64", "https://example.com/agent-arm64"),
        ("AgentSha256Arm64", "03"),
        ("JobsWebhook", "true"),
    ];
    let same = [
        ("github_oidc_provider", json!(PROVIDER)),
        ("github_owner_id", json!("123456")),
        ("pod_identity", json!(true)),
        ("volume_key_arn", json!(KEY)),
        ("vpc_id", json!("vpc-01")),
        ("subnet_ids", json!(["subnet-01", "subnet-02"])),
        ("operator_image", json!("registry.example.com/runyard:0.1.0")),
        ("github_app_id", json!("42")),
        ("github_secret_arn", json!("arn:aws:secretsmanager:eu-west-1:123456789012:secret:github-1")),
        ("runner_url", json!("https://example.com/runner.tar.gz")),
        ("runner_sha256", json!("00")),
        ("runner_version", json!("2.336.0")),
        ("runner_url_arm64", json!("https://example.com/runner-arm64.tar.gz")),
        ("runner_sha256_arm64", json!("01")),
        ("github_scope", json!("organization")),
        ("runner_follow", json!("latest")),
        ("agent_url", json!("https://example.com/agent")),
        ("agent_sha256", json!("02")),
        ("agent_url_arm64", json!("https://example.com/agent-arm64")),
        ("agent_sha256_arm64", json!("03")),
        ("jobs_webhook", json!(true)),
    ];
    let stack = Stack::with(&[&everything[..], further].concat());
    (stack, Module::with(&[&same[..], variables].concat(), partition, suffix))
}

#[test]
fn the_module_makes_the_same_statements_as_the_template() {
    let fences = [("MachineFence", "any-record"), ("LaunchFence", "tags")];
    let opened = [("machine_fence", json!("any-record")), ("launch_fence", json!("tags"))];
    for (stack, module) in [both(&[], &[], false), both(&fences, &opened, false), both(&[], &[], true)] {
        for (name, resource) in [
            ("operator", "OperatorPolicy"),
            ("operator_volume_key", "OperatorVolumeKeyPolicy"),
            ("workflow", "WorkflowPolicy"),
            ("init", "InitPolicy"),
            ("reader", "ReaderPolicy"),
        ] {
            let template = stack.properties(resource).expect("everything is made");
            assert_eq!(module.json("aws_iam_policy", name, "policy"), template["PolicyDocument"], "{name}");
            assert_eq!(module.attribute("aws_iam_policy", name, "name"), template["ManagedPolicyName"]);
        }
        let inline = |role: &str| {
            let properties = stack.properties(role).expect("everything is made");
            properties["Policies"][0]["PolicyDocument"].clone()
        };
        assert_eq!(module.json("aws_iam_role_policy", "machine", "policy"), inline("MachineRole"));
        assert_eq!(module.json("aws_iam_role_policy", "jobs", "policy"), inline("JobsRole"));
        assert_eq!(
            module.json("aws_iam_role_policy", "operator_start", "policy"),
            inline("OperatorStartRole")
        );
        for (name, resource) in [
            ("machine", "MachineRole"),
            ("operator", "OperatorRole"),
            ("init", "InitRole"),
            ("workflow", "WorkflowRole"),
            ("operator_task", "OperatorTaskRole"),
            ("operator_start", "OperatorStartRole"),
            ("jobs", "JobsRole"),
        ] {
            let template = stack.properties(resource).expect("everything is made");
            let trust = module.json("aws_iam_role", name, "assume_role_policy");
            assert_eq!(trust, template["AssumeRolePolicyDocument"], "{name}");
        }
    }
}

#[test]
fn the_module_attaches_each_policy_to_the_roles_that_the_template_does() {
    let (_, module) = both(&[], &[], false);
    let attached: BTreeSet<(String, String)> = module
        .blocks("resource")
        .filter(|block| block.labels[0].as_str() == "aws_iam_role_policy_attachment")
        .map(|block| {
            let name = block.labels[1].as_str();
            let of = |attribute| {
                let value = module.attribute("aws_iam_role_policy_attachment", name, attribute);
                value.as_str().expect("text").to_owned()
            };
            (of("role"), of("policy_arn"))
        })
        .collect();
    let role = |name: &str| format!("<aws_iam_role.{name}.name>");
    let policy = |name: &str| format!("<aws_iam_policy.{name}.arn>");
    let start = "arn:aws:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy".to_owned();
    let wanted = [
        (role("operator"), policy("operator")),
        (role("operator"), policy("operator_volume_key")),
        (role("operator_task"), policy("operator")),
        (role("operator_task"), policy("operator_volume_key")),
        (role("operator_start"), start),
        (role("init"), policy("init")),
        (role("workflow"), policy("workflow")),
    ];
    assert_eq!(attached, wanted.into());
}

#[test]
fn by_default_the_module_makes_no_more_than_the_template() {
    let (stack, module) = (Stack::with(&[]), Module::with(&[], "aws", "amazonaws.com"));
    for (kind, name, resource) in [
        ("aws_iam_policy", "operator_volume_key", "OperatorVolumeKeyPolicy"),
        ("aws_iam_role", "operator", "OperatorRole"),
        ("aws_iam_role", "init", "InitRole"),
        ("aws_iam_role", "workflow", "WorkflowRole"),
        ("aws_iam_role", "operator_task", "OperatorTaskRole"),
        ("aws_iam_role", "operator_start", "OperatorStartRole"),
        ("aws_iam_openid_connect_provider", "github", "GitHubProvider"),
        ("aws_security_group", "machine", "MachineSecurityGroup"),
        ("aws_security_group", "operator", "OperatorSecurityGroup"),
        ("aws_vpc_endpoint", "table", "TableEndpoint"),
        ("aws_ecs_cluster", "operator", "Cluster"),
        ("aws_ecs_task_definition", "operator", "OperatorTask"),
        ("aws_ecs_service", "operator", "OperatorService"),
        ("aws_cloudwatch_log_group", "operator", "OperatorLogs"),
        ("aws_apigatewayv2_api", "jobs", "JobsApi"),
        ("aws_iam_role", "jobs", "JobsRole"),
        ("aws_apigatewayv2_integration", "jobs", "JobsIntegration"),
        ("aws_apigatewayv2_route", "jobs", "JobsRoute"),
        ("aws_apigatewayv2_stage", "jobs", "JobsStage"),
    ] {
        assert!(!module.made(kind, name), "{kind}.{name}");
        assert_eq!(stack.properties(resource), None, "{resource}");
    }
}

/// `GitHubOwnerId` and `github_owner_id` are the same.
fn bare(name: &str) -> String {
    name.to_lowercase().replace('_', "")
}

#[test]
fn the_module_has_the_templates_parameters_and_outputs() {
    let module = Module::with(&[], "aws", "amazonaws.com");
    let names = |of: &Value| {
        of.as_object().expect("a section").keys().map(|name| bare(name)).collect::<BTreeSet<_>>()
    };
    let mut parameters = names(&template()["Parameters"]);
    // Terraform makes the lower case itself.
    assert!(parameters.remove("githubownerinkeys"));
    let declared =
        |kind: &str| module.blocks(kind).map(|block| bare(block.labels[0].as_str())).collect::<BTreeSet<_>>();
    assert_eq!(declared("variable"), parameters);
    assert_eq!(declared("output"), names(&template()["Outputs"]));
}

#[test]
fn the_modules_table_queues_and_rules_are_the_templates() {
    let (stack, mut module) = both(&[], &[], false);
    let table = |attribute| module.attribute("aws_dynamodb_table", "table", attribute);
    assert_eq!((table("hash_key"), table("range_key")), (json!("pk"), json!("sk")));
    assert_eq!(table("stream_view_type"), "NEW_AND_OLD_IMAGES");
    assert_eq!(
        (table("billing_mode"), table("deletion_protection_enabled")),
        (json!("PAY_PER_REQUEST"), json!(true))
    );
    let history = |attribute| module.attribute("aws_dynamodb_table", "history", attribute);
    assert_eq!((history("hash_key"), history("range_key")), (json!("pk"), json!("sk")));
    assert_eq!(history("name"), "yard-history");
    assert_eq!(history("billing_mode"), "PAY_PER_REQUEST");
    for rule in ["SpotInterruptions", "StateChanges", "ScheduledChanges"] {
        let pattern = module.names["local"]["rules"][rule].clone();
        assert_eq!(pattern, stack.properties(rule).expect("it is made")["EventPattern"], "{rule}");
    }
    let announced = runyard_core::model::ANNOUNCED.as_secs();
    for (key, count, kept) in [("interruptions", 10, 345_600), ("untrusted", 1000, announced)] {
        module.names.insert("each".into(), json!({"key": key}));
        assert_eq!(module.attribute("aws_sqs_queue", "queue", "name"), format!("yard-{key}"));
        assert_eq!(module.attribute("aws_sqs_queue", "dead", "name"), format!("yard-{key}-dead"));
        assert_eq!(module.attribute("aws_sqs_queue", "dead", "message_retention_seconds"), 1_209_600);
        assert_eq!(module.attribute("aws_sqs_queue", "queue", "message_retention_seconds"), kept);
        let redrive = module.json("aws_sqs_queue", "queue", "redrive_policy");
        assert_eq!(redrive["maxReceiveCount"], count);
    }
    assert_eq!(module.attribute("aws_sqs_queue", "doorbell", "name"), "yard-doorbell");
    assert_eq!(module.attribute("aws_sqs_queue", "doorbell", "message_retention_seconds"), 60);
    let jobs = stack.properties("Jobs").expect("it is made");
    for (attribute, property) in [
        ("name", "QueueName"),
        ("message_retention_seconds", "MessageRetentionPeriod"),
        ("max_message_size", "MaximumMessageSize"),
        ("sqs_managed_sse_enabled", "SqsManagedSseEnabled"),
    ] {
        assert_eq!(module.attribute("aws_sqs_queue", "jobs", attribute), jobs[property], "{attribute}");
    }
    let policy = module.json("aws_sqs_queue_policy", "interruptions", "policy");
    let template = stack.properties("InterruptionsPolicy").expect("it is made")["PolicyDocument"].clone();
    for part in ["Effect", "Principal", "Action", "Condition"] {
        assert_eq!(policy["Statement"][0][part], template["Statement"][0][part], "{part}");
    }
}

#[test]
fn the_modules_webhook_is_the_templates() {
    let (stack, module) = both(&[], &[], false);
    let template = |name: &str| stack.properties(name).expect("it is made");
    let part = |kind: &str, attribute: &str| {
        module.attribute(&format!("aws_apigatewayv2_{kind}"), "jobs", attribute)
    };
    let api = template("JobsApi");
    assert_eq!(part("api", "name"), api["Name"]);
    assert_eq!(part("api", "protocol_type"), api["ProtocolType"]);
    let integration = template("JobsIntegration");
    for (attribute, property) in [
        ("integration_type", "IntegrationType"),
        ("integration_subtype", "IntegrationSubtype"),
        ("payload_format_version", "PayloadFormatVersion"),
    ] {
        assert_eq!(part("integration", attribute), integration[property], "{attribute}");
    }
    assert_eq!(part("integration", "credentials_arn"), "<aws_iam_role.jobs.arn>");
    let parameters = json!({"QueueUrl": "<aws_sqs_queue.jobs.url>", "MessageBody": "$request.body"});
    assert_eq!(part("integration", "request_parameters"), parameters);
    assert_eq!(integration["RequestParameters"]["MessageBody"], parameters["MessageBody"]);
    assert_eq!(part("route", "route_key"), template("JobsRoute")["RouteKey"]);
    assert_eq!(part("route", "target"), "integrations/<aws_apigatewayv2_integration.jobs.id>");
    let stage = template("JobsStage");
    assert_eq!(
        (part("stage", "name"), part("stage", "auto_deploy")),
        (stage["StageName"].clone(), json!(true))
    );
    let limits = module.resource("aws_apigatewayv2_stage", "jobs").body.get_blocks("default_route_settings");
    let limits: BTreeMap<_, _> = limits
        .flat_map(|block| block.body.attributes())
        .map(|one| (one.key.as_str().to_owned(), module.value(&one.value)))
        .collect();
    for (attribute, property) in
        [("throttling_rate_limit", "ThrottlingRateLimit"), ("throttling_burst_limit", "ThrottlingBurstLimit")]
    {
        assert_eq!(limits[attribute], stage["DefaultRouteSettings"][property], "{attribute}");
    }
}

/// The first letters of keys are large to CloudFormation and small to ECS.
fn small(value: &Value) -> Value {
    match value {
        Value::Array(all) => all.iter().map(small).collect(),
        Value::Object(map) => {
            let key = |key: &String| key[..1].to_lowercase() + &key[1..];
            map.iter().map(|(name, value)| (key(name), small(value))).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn the_module_runs_the_operator_as_the_template_does() {
    the_operator_is_the_same(&both(&[], &[], false));
    let without_arm64 = [("RunnerUrlArm64", ""), ("RunnerSha256Arm64", "")];
    let the_same = [("runner_url_arm64", json!("")), ("runner_sha256_arm64", json!(""))];
    the_operator_is_the_same(&both(&without_arm64, &the_same, false));
    let fetched =
        [("OperatorImage", ""), ("OperatorUrl", "https://example.com/runyard"), ("OperatorSha256", "04")];
    let the_same = [
        ("operator_image", json!("")),
        ("operator_url", json!("https://example.com/runyard")),
        ("operator_sha256", json!("04")),
    ];
    the_operator_is_the_same(&both(&fetched, &the_same, false));
}

fn the_operator_is_the_same((stack, module): &(Stack, Module)) {
    let mut template = small(&stack.properties("OperatorTask").expect("it is made")["ContainerDefinitions"]);
    let mut made = module.json("aws_ecs_task_definition", "operator", "container_definitions");
    for containers in [&mut template, &mut made] {
        for container in containers.as_array_mut().expect("containers") {
            // The log's group is a reference in one and a name in the other.
            container.as_object_mut().expect("a container").remove("logConfiguration");
            if let Some(environment) = container.get_mut("environment").and_then(Value::as_array_mut) {
                environment.sort_by_key(|one| one["name"].to_string());
                for one in environment.iter_mut().filter(|one| one["name"] == "RUNYARD_INTERRUPTIONS__QUEUE")
                {
                    one["value"] = json!("the queue");
                }
            }
        }
    }
    assert_eq!(made, template);
    let service = stack.properties("OperatorService").expect("it is made");
    let of = |attribute| module.attribute("aws_ecs_service", "operator", attribute);
    assert_eq!(of("desired_count"), service["DesiredCount"]);
    assert_eq!(of("deployment_maximum_percent"), service["DeploymentConfiguration"]["MaximumPercent"]);
    let least = &service["DeploymentConfiguration"]["MinimumHealthyPercent"];
    assert_eq!(of("deployment_minimum_healthy_percent"), *least);
}

/// Every resource that its task names, and every policy of its roles: none of them is referred to by the task.
#[test]
fn the_modules_service_starts_after_what_its_operator_reads_and_may() {
    let module = Module::with(&[], "aws", "amazonaws.com");
    let after = module.resource("aws_ecs_service", "operator").body.get_attribute("depends_on");
    let after = after.expect("it waits").value.as_array().expect("a list");
    let after: BTreeSet<_> = after.iter().map(|one| one.to_string().trim().to_owned()).collect();
    let policies = module.blocks("resource").filter_map(|block| {
        let (kind, name) = (block.labels[0].as_str(), block.labels[1].as_str());
        let of_the_task = name.starts_with("operator_task") || name.starts_with("operator_start");
        (of_the_task && kind.starts_with("aws_iam_role_policy")).then(|| format!("{kind}.{name}"))
    });
    let named = [
        "aws_dynamodb_table.table",
        "aws_dynamodb_table.history",
        "aws_sqs_queue.doorbell",
        "aws_sqs_queue.jobs",
        "aws_sqs_queue.queue",
        "aws_cloudwatch_log_group.operator",
    ];
    assert_eq!(after, policies.chain(named.map(str::to_owned)).collect());
}

/// The provider of AWS for Terraform requires a thumbprint of an OIDC provider before 5.81.
#[test]
fn the_modules_oidc_provider_is_one_that_its_provider_of_aws_takes() {
    let github = module_text("policies.tf");
    assert!(!github.contains("thumbprint_list"), "then an older provider would do");
    assert!(module_text("versions.tf").contains("version = \">= 5.81\""));
}

fn module_text(file: &str) -> String {
    std::fs::read_to_string(config().join("terraform").join(file)).unwrap()
}

/// Where whoever takes the example finds the module.
const SOURCE: &str = "git::https://github.com/OWNER/runyard.git//config/terraform?ref=COMMIT";

fn example(name: &str) -> String {
    std::fs::read_to_string(config().join("../examples/terraform").join(name)).unwrap()
}

/// What the example of a yard tells of itself with these variables, and the module that it calls.
fn yard_of_the_example(variables: &Value) -> (Module, Map<String, Value>) {
    let body: Body = example("main.tf").parse().expect("HCL");
    let names = Names::from([("var".to_owned(), variables.clone())]);
    let call = body.get_blocks("module").next().expect("it calls the module");
    let source = call.body.get_attribute("source").expect("where the module is");
    assert_eq!(hcl::value(&source.value, &names).unwrap(), json!(SOURCE));
    let declared = body.get_blocks("variable").map(|block| block.labels[0].as_str());
    let given: Vec<_> = variables.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(
        declared.collect::<BTreeSet<_>>(),
        given.into_iter().collect(),
        "the variables of the example"
    );
    let arguments = call.body.attributes().filter(|one| one.key.as_str() != "source");
    let arguments: Vec<(&str, Value)> =
        arguments.map(|one| (one.key.as_str(), hcl::value(&one.value, &names).unwrap())).collect();
    let module = Module::with(&arguments, "aws", "amazonaws.com");
    let must: Vec<_> =
        module.blocks("variable").filter(|block| !block.body.has_attribute("default")).collect();
    assert!(!must.is_empty(), "the module has variables that must be set");
    for block in must {
        let name = block.labels[0].as_str();
        assert!(call.body.has_attribute(name), "{name} must be set");
    }
    let told = |block: &Block, names: &Names| {
        let value = block.body.get_attribute("value").expect("an output has a value");
        (block.labels[0].as_str().to_owned(), hcl::value(&value.value, names).unwrap())
    };
    let outputs: Map<String, Value> =
        module.blocks("output").map(|block| told(block, &module.names)).collect();
    let names = Names::from([("module".to_owned(), json!({"runyard": outputs}))]);
    let outputs = body.get_blocks("output").map(|block| told(block, &names)).collect();
    (module, outputs)
}

#[test]
fn the_example_makes_a_yard_whose_outputs_complete_its_pools() {
    let subnets = json!(["subnet-01", "subnet-02"]);
    let variables = json!({"region": "eu-west-1", "github_owner": "Acme", "github_owner_id": "123456",
        "vpc_id": "vpc-01", "subnet_ids": subnets});
    let (module, outputs) = yard_of_the_example(&variables);
    for (kind, name) in [
        ("aws_iam_openid_connect_provider", "github"),
        ("aws_iam_role", "workflow"),
        ("aws_security_group", "machine"),
    ] {
        assert!(module.made(kind, name), "{kind}.{name}");
    }
    assert!(!module.made("aws_ecs_service", "operator"), "the operator is run by whoever takes it");
    let given = [("GitHubOwner", "Acme"), ("GitHubOwnerId", "123456"), ("GitHubOidcProvider", "create")];
    let stack = Stack::with(&given);
    let workflow = stack.properties("WorkflowPolicy").expect("it is made");
    assert_eq!(module.json("aws_iam_policy", "workflow", "policy"), workflow["PolicyDocument"]);
    let trust = module.json("aws_iam_role", "workflow", "assume_role_policy");
    let role = stack.properties("WorkflowRole").expect("it is made");
    let condition = &trust["Statement"][0]["Condition"];
    assert_eq!(*condition, role["AssumeRolePolicyDocument"]["Statement"][0]["Condition"]);
    let wanted = [
        ("table", json!("<aws_dynamodb_table.table.name>")),
        ("machine_profile", json!("<aws_iam_instance_profile.machine.name>")),
        ("machine_security_group", json!("<aws_security_group.machine.id>")),
        ("subnet_ids", subnets),
        ("workflow_role", json!("<aws_iam_role.workflow.arn>")),
    ];
    assert_eq!(outputs, wanted.map(|(name, value)| (name.to_owned(), value)).into_iter().collect());

    let pools: Value = serde_norway::from_str(&example("pools.yaml")).expect("YAML");
    let pools = pools["pools"].as_array().expect("pools");
    let classes: Vec<_> = pools.iter().map(|pool| pool["resourceClass"].clone()).collect();
    assert_eq!(json!(classes), module.names["var"]["classes"], "each has its queue");
    for pool in pools {
        let launch = pool["launch"].as_object().expect("a launch to complete");
        let own = ["instanceProfile", "subnetIds", "securityGroupIds", "launchTemplateId"];
        assert!(!own.iter().any(|key| launch.contains_key(*key)), "{launch:?}");
        let spec: PoolSpec = serde_json::from_value(pool.clone()).expect("a class");
        let known = serde_json::to_value(spec).expect("JSON");
        let unknown = pool.as_object().expect("a map").keys().find(|key| known.get(*key).is_none());
        assert_eq!(unknown, None, "a key of no class");
    }
}
