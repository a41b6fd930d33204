//! Does CloudFormation make what the documents and the contract say?

use serde_json::{Value, json};

use crate::PRINCIPALS;

fn template() -> Value {
    let path = format!("{}/config/cloudformation.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let value: serde_norway::Value = serde_norway::from_str(&text).unwrap();
    plain(value)
}

/// YAML's tags are CloudFormation's functions.
fn plain(value: serde_norway::Value) -> Value {
    match value {
        serde_norway::Value::Tagged(tagged) => {
            let tag = tagged.tag.to_string();
            let name = match tag.trim_start_matches('!') {
                "Ref" => "Ref".to_owned(),
                other => format!("Fn::{other}"),
            };
            json!({ name: plain(tagged.value) })
        }
        serde_norway::Value::Mapping(map) => {
            map.into_iter().map(|(key, value)| (key.as_str().unwrap().to_owned(), plain(value))).collect()
        }
        serde_norway::Value::Sequence(list) => list.into_iter().map(plain).collect(),
        other => serde_json::to_value(other).unwrap(),
    }
}

/// With `Fn::Sub` filled in by the placeholders of `config/iam`.
fn resolved(value: &Value) -> Value {
    match value {
        Value::Object(map) => match map.get("Fn::Sub").and_then(Value::as_str) {
            Some(text) => {
                let places = [
                    ("${AWS::Partition}", "aws"),
                    ("${AWS::Region}", "REGION"),
                    ("${AWS::AccountId}", "ACCOUNT"),
                    ("${Table}", "TABLE"),
                    ("${Repository}", "OWNER/REPOSITORY"),
                    ("${!", "${"),
                ];
                places.iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, value)).into()
            }
            None => map.iter().map(|(key, value)| (key.clone(), resolved(value))).collect(),
        },
        Value::Array(list) => list.iter().map(resolved).collect(),
        other => other.clone(),
    }
}

#[test]
fn its_policies_are_those_of_the_documents() {
    let template = template();
    for name in PRINCIPALS {
        let resource = format!("{}{}Policy", name[..1].to_uppercase(), &name[1..]);
        let made = &template["Resources"][&resource]["Properties"]["PolicyDocument"];
        let path = format!("{}/config/iam/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let written: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(resolved(made), written, "{resource}");
    }
}

#[test]
fn its_table_and_queues_are_those_of_the_contract() {
    let template = template();
    let table = &template["Resources"]["Records"]["Properties"];
    assert_eq!(
        table["KeySchema"],
        json!([{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}])
    );
    assert_eq!(table["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(table["StreamSpecification"]["StreamViewType"], "NEW_AND_OLD_IMAGES");
    assert_eq!(table["TimeToLiveSpecification"], json!({"AttributeName": "expiresAt", "Enabled": true}));
    let each = &template["Resources"]["Fn::ForEach::Queues"][2];
    let (pool, dead) = (&each["Pool&{Class}"]["Properties"], &each["Dead&{Class}"]["Properties"]);
    assert_eq!(pool["QueueName"]["Fn::Sub"], "${Table}-${Class}");
    assert_eq!(dead["QueueName"]["Fn::Sub"], "${Table}-${Class}-dead");
    assert_eq!(pool["RedrivePolicy"]["maxReceiveCount"], 1000);
    let notices = &template["Resources"]["Interruptions"]["Properties"];
    assert_eq!(notices["QueueName"]["Fn::Sub"], "${Table}-interruptions");
    assert!(notices["RedrivePolicy"]["maxReceiveCount"].as_u64() >= Some(10));
}

/// Whether a rule of EventBridge takes an event: each field of the pattern lists what will do.
fn takes(pattern: &Value, event: &Value) -> bool {
    match pattern {
        Value::Object(fields) => fields.iter().all(|(name, part)| takes(part, &event[name])),
        Value::Array(any) => any.contains(event),
        other => panic!("not a pattern: {other}"),
    }
}

#[test]
fn its_rules_send_every_event_that_is_understood() {
    let template = template();
    let resources = template["Resources"].as_object().unwrap().values();
    let rules: Vec<&Value> = resources.filter(|one| one["Type"] == "AWS::Events::Rule").collect();
    let dir = format!("{}/tests/golden/events", env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let event: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let taken = rules.iter().filter(|rule| takes(&rule["Properties"]["EventPattern"], &event)).count();
        assert_eq!(taken, 1, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 4);
    let running = json!({"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
        "detail": {"state": "running"}});
    assert!(!rules.iter().any(|rule| takes(&rule["Properties"]["EventPattern"], &running)));
}
