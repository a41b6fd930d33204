//! Does `config/cloudformation.yaml` say what the documents say, and make what `init` makes?

use serde_json::{Value, json};

use crate::documents::{config, document};

fn template() -> Value {
    let path = config().join("cloudformation.yaml");
    serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).expect("YAML without tags")
}

/// `Fn::Sub` and `Ref` as CloudFormation would fill them in, for the same account as the documents.
fn deployed(value: &Value) -> Value {
    match value {
        Value::Array(all) => all.iter().map(deployed).collect(),
        Value::Object(map) => match (map.get("Ref"), map.get("Fn::Sub")) {
            (Some(name), _) => json!(parameter(name.as_str().expect("a name"))),
            (_, Some(text)) => json!(substituted(text.as_str().expect("text"))),
            (None, None) => map.iter().map(|(key, value)| (key.clone(), deployed(value))).collect(),
        },
        other => other.clone(),
    }
}

fn parameter(name: &str) -> &'static str {
    match name {
        "AWS::Partition" => "aws",
        "AWS::Region" => "eu-west-1",
        "AWS::AccountId" => "123456789012",
        "TableName" => "yard",
        "GitHubOwner" => "acme",
        "GitHubOwnerInKeys" => "acme",
        other => panic!("no parameter {other}"),
    }
}

fn substituted(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').expect("a closing brace");
        out.push_str(before);
        match name.strip_prefix('!') {
            Some(literal) => out.push_str(&format!("${{{literal}}}")),
            None => out.push_str(parameter(name)),
        }
        rest = after;
    }
    out + rest
}

fn properties(name: &str) -> Value {
    template()["Resources"][name]["Properties"].clone()
}

#[test]
fn its_policies_are_the_documents() {
    for (name, resource) in
        [("operator", "OperatorPolicy"), ("workflow", "WorkflowPolicy"), ("init", "InitPolicy")]
    {
        assert_eq!(deployed(&properties(resource)["PolicyDocument"]), document(name), "{name}");
    }
    let machine = properties("MachineRole");
    assert_eq!(deployed(&machine["Policies"][0]["PolicyDocument"]), document("instance"));
    assert_eq!(machine["Policies"].as_array().map(Vec::len), Some(1));
    assert_eq!(machine.get("ManagedPolicyArns"), None, "nothing besides");
}

#[test]
fn a_policy_is_attached_to_the_role_that_bears_its_name_and_to_no_other() {
    for (role, policy) in
        [("OperatorRole", "OperatorPolicy"), ("InitRole", "InitPolicy"), ("WorkflowRole", "WorkflowPolicy")]
    {
        let role = properties(role);
        assert_eq!(role["ManagedPolicyArns"], json!([{"Ref": policy}]));
        assert_eq!(role.get("Policies"), None);
    }
    assert_eq!(
        deployed(&properties("MachineRole")["RoleName"]),
        "yard-machine",
        "the role the operator may pass"
    );
}

#[test]
fn its_table_is_the_contracts() {
    let table = properties("Table");
    let key = |name: &str, role: &str| json!({"AttributeName": name, "KeyType": role});
    assert_eq!(table["KeySchema"], json!([key("pk", "HASH"), key("sk", "RANGE")]));
    for attribute in table["AttributeDefinitions"].as_array().unwrap() {
        assert_eq!(attribute["AttributeType"], "S");
    }
    assert_eq!(table["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(table["StreamSpecification"]["StreamViewType"], "NEW_AND_OLD_IMAGES");
    assert_eq!(table["TimeToLiveSpecification"], json!({"AttributeName": "expiresAt", "Enabled": true}));
    assert_eq!(table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true);
    assert_eq!(template()["Resources"]["Table"]["DeletionPolicy"], "Retain");
}

#[test]
fn its_queues_are_those_that_init_makes() {
    let each = template()["Resources"]["Fn::ForEach::Queues"].clone();
    assert_eq!((&each[0], &each[1]), (&json!("Class"), &json!({"Ref": "Classes"})));
    let (dead, queue) =
        (&each[2]["DeadLetters&{Class}"]["Properties"], &each[2]["Queue&{Class}"]["Properties"]);
    assert_eq!(dead["QueueName"], json!({"Fn::Sub": "${TableName}-${Class}-dead"}));
    assert_eq!(queue["QueueName"], json!({"Fn::Sub": "${TableName}-${Class}"}));
    assert_eq!(queue["RedrivePolicy"]["maxReceiveCount"], 1000);
    let target = json!({"Fn::GetAtt": [{"Fn::Sub": "DeadLetters&{Class}"}, "Arn"]});
    assert_eq!(queue["RedrivePolicy"]["deadLetterTargetArn"], target);
    let notices = properties("Interruptions");
    assert_eq!(deployed(&notices["QueueName"]), "yard-interruptions");
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
