//! What is somebody else's, or was made for something else, is left alone and named.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_sdk_ec2::types::RequestLaunchTemplateData;

use crate::init::site::{Site, spec};

async fn strangers_template(site: &Site, name: &str) -> String {
    let data = RequestLaunchTemplateData::builder().image_id("ami-0000000000000beef").build();
    let made = site.ec2().create_launch_template().launch_template_name(name);
    let made = made.launch_template_data(data).send().await.unwrap();
    made.launch_template.unwrap().launch_template_id.unwrap()
}

#[tokio::test]
async fn a_template_of_this_name_without_our_tags_is_refused_by_name() {
    for site in [Site::with_peer(), Site::moto(), Site::ministack()] {
        strangers_template(&site, &site.named("yard-small")).await;
        for more in [&["--dry-run"][..], &[]] {
            let refused = site.init(more, 1).stderr;
            for said in ["yard-small", "runyard:table", "remove that template", "fix:"] {
                assert!(refused.contains(said), "{said}: {refused}");
            }
        }
        let templates = site.templates().await;
        assert_eq!(templates["yard-small"], (1, 1));
        assert!(!templates.contains_key("yard-large"), "no template is made while one is refused");
    }
}

#[tokio::test]
async fn a_given_template_that_says_otherwise_is_refused_with_the_setting_and_the_fix() {
    let site = Site::with_peer();
    let id = strangers_template(&site, "given").await;
    let mut given = spec("small", "");
    given["launch"] = serde_json::json!({"launchTemplateId": id});
    site.pools(&[given]);
    let refused = site.init(&["-o", "json"], 1).stderr;
    for said in ["InstanceInitiatedShutdownBehavior", "set it to terminate", id.as_str(), "small"] {
        assert!(refused.contains(said), "{said}: {refused}");
    }
}

#[tokio::test]
async fn doctor_names_the_class_whose_template_is_refused_and_no_other() {
    let site = Site::with_peer();
    site.init(&[], 0);
    let id = strangers_template(&site, "given").await;
    let mut given = spec("small", "");
    given["launch"] = serde_json::json!({"launchTemplateId": id});
    site.pools(&[given, spec("large", "ami-0123456789abcdef0")]);
    let (pools, config) = (site.path("pools.json"), site.path("runyard.toml"));
    site.runs(&["apply", "-f", &pools], 0);
    let found = site.runs(&["doctor", "--config", &config, "-o", "json"], 1).stdout;
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let items = found["items"].as_array().unwrap();
    let refused: Vec<_> = items.iter().filter(|item| item["reason"] == "LaunchRefused").collect();
    let [refused] = refused.as_slice() else { panic!("{found}") };
    assert!(refused["record"].as_str().unwrap().contains("pool#small"), "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("InstanceInitiatedShutdownBehavior") && message.contains(&id), "{refused}");
}

#[tokio::test]
async fn a_class_that_would_find_no_runner_is_told_of_by_init_and_by_doctor() {
    let site = Site::with_peer();
    let bare = site.file("bare.toml", "[compute]\nkind = \"ec2\"\n[github]\nkind = \"none\"\n");
    let pools = site.path("pools.json");
    let told = site.runs(&["init", "--config", &bare, "--file", &pools], 0).stderr;
    assert!(told.contains("agent.runner_url") && told.contains("large, small"), "{told}");
    site.runs(&["apply", "-f", &pools], 0);
    let found = site.runs(&["doctor", "--config", &bare, "-o", "json"], 1).stdout;
    assert_eq!(found.matches("LaunchRefused").count(), 2, "{found}");
    assert!(found.contains("agent.runner_url") && found.contains("class large"), "{found}");
}

#[tokio::test]
async fn a_table_of_another_key_is_refused_before_anything_else_is_made() {
    let site = Site::with_peer();
    let kind = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let call =
        site.dynamodb().create_table().table_name(&site.table).billing_mode(BillingMode::PayPerRequest);
    let call = call.attribute_definitions(kind.build().unwrap()).key_schema(key.build().unwrap());
    call.send().await.unwrap();
    let refused = site.init(&[], 1).stderr;
    assert!(refused.contains("nothing was changed") && refused.contains("pk (S, HASH)"), "{refused}");
    assert!(site.queues().await.is_empty());
    assert!(site.templates().await.is_empty());
    let table = site.dynamodb().describe_table().table_name(&site.table).send().await.unwrap().table.unwrap();
    assert!(table.stream_specification.is_none(), "not even its stream");
}

#[test]
fn a_bad_file_is_refused_without_the_network() {
    let site = Site::with_peer();
    let bad = site.file("bad.yaml", "- {resourceClass: small, colour: red}\n");
    let refused = site.runs(&["init", "-f", &bad], 2).stderr;
    assert!(refused.contains("pools[0].colour"), "{refused}");
    let config = site.file("bad.toml", "[compute]\nkind = \"cloud\"\n[github]\nkind = \"none\"\n");
    let refused = site.runs(&["init", "--config", &config], 2).stderr;
    assert!(refused.contains("compute.kind"), "{refused}");
}
