//! Does `init` make what a yard needs, once, and say beforehand what it would make? As a program, on the engines.

use aws_sdk_ec2::types::RequestLaunchTemplateData;
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::program::{Ended, Environment, environment, verb};
use crate::yard::TABLE;

struct Place {
    cloud: Cloud,
    environment: Environment,
    scratch: tempfile::TempDir,
}

impl Place {
    fn on(cloud: Cloud) -> Self {
        let mut environment = environment(cloud.environment());
        environment.insert("RUNYARD_TABLE".into(), TABLE.into());
        Self { cloud, environment, scratch: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().expect("UTF-8").to_owned()
    }

    /// `runyard init`, which must end so.
    async fn init(&self, arguments: &[&str], code: i32) -> Ended {
        let token = self.file("token", "none");
        let config = format!(
            "[compute]\nkind = \"ec2\"\n[interruptions]\nqueue = \"runyard-interruptions\"\n[github]\ntoken_file = {token:?}\n"
        );
        let config = self.file("operator.toml", &config);
        let words = ["init", "-o", "json", "--config", &config];
        let ended = verb(&self.environment, &[&words[..], arguments].concat()).await;
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        ended
    }

    /// What was said of each thing, in the order it was said.
    async fn says(&self, arguments: &[&str]) -> Vec<(String, String)> {
        let ended = self.init(arguments, 0).await;
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        let items = document["items"].as_array().unwrap().iter();
        let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
        items
            .map(|item| (format!("{} {}", text(item, "what"), text(item, "name")), text(item, "state")))
            .collect()
    }

    async fn applies(&self, ami: &str) {
        let mut launch = self.cloud.launch().await;
        if !ami.is_empty() {
            launch["ami"] = json!(ami);
        }
        let spec = json!([{"resourceClass": "small", "cpu": 2, "mmem": 4096, "max": 3, "launch": launch}]);
        let pools = self.file("pools.json", &spec.to_string());
        let ended = verb(&self.environment, &["apply", "-f", &pools]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    async fn versions(&self) -> usize {
        let asked = self.cloud.ec2().describe_launch_template_versions();
        let told = asked.launch_template_name(format!("{TABLE}-small")).send().await;
        told.map_or(0, |told| told.launch_template_versions.unwrap_or_default().len())
    }
}

fn about<'a>(said: &'a [(String, String)], what: &str) -> &'a str {
    let found = said.iter().find(|(name, _)| name == what);
    found.map_or_else(|| panic!("nothing about {what}: {said:?}"), |(_, state)| state.as_str())
}

async fn made_once(cloud: Cloud) {
    let place = Place::on(cloud);
    assert_eq!(about(&place.says(&["--dry-run"]).await, "table runyard"), "would be created");
    assert_eq!(about(&place.says(&["--dry-run"]).await, "table runyard"), "would be created");
    assert_eq!(about(&place.says(&[]).await, "table runyard"), "created");

    place.applies("").await;
    let said = place.says(&["--dry-run"]).await;
    assert_eq!(about(&said, "launch template runyard-small"), "would be created");
    assert!(about(&said, "queue runyard-interruptions").starts_with("missing: config/cloudformation.yaml"));
    assert!(about(&said, "classes 1").contains("reuseWithin: none"));
    assert_eq!(place.versions().await, 0, "a dry run makes nothing");
    assert_eq!(about(&place.says(&[]).await, "launch template runyard-small"), "created");
    let said = place.says(&[]).await;
    for thing in ["table runyard", "queue runyard-small", "launch template runyard-small"] {
        assert_eq!(about(&said, thing), "as it should be");
    }
    assert_eq!(place.versions().await, 1, "once is enough");
}

#[tokio::test]
async fn init_makes_what_is_missing_once_on_dynoxide_and_moto() {
    made_once(Cloud::dynoxide_and_moto()).await;
}

#[tokio::test]
async fn init_makes_what_is_missing_once_on_ministack() {
    made_once(Cloud::ministack()).await;
}

#[tokio::test]
async fn a_class_that_changed_gets_a_version_and_the_difference_is_told_before() {
    let place = Place::on(Cloud::with_bad_days());
    place.init(&[], 0).await;
    place.applies("").await;
    place.init(&[], 0).await;
    place.applies("ami-0fedcba9876543210").await;
    let difference = "ImageId: \"ami-0123456789abcdef0\" -> \"ami-0fedcba9876543210\"";
    let said = place.says(&["--dry-run"]).await;
    assert_eq!(
        about(&said, "launch template runyard-small"),
        format!("would get a new default version: {difference}")
    );
    assert_eq!(place.versions().await, 1);
    let said = place.says(&[]).await;
    assert_eq!(
        about(&said, "launch template runyard-small"),
        format!("got a new default version: {difference}")
    );
    assert_eq!(place.versions().await, 2);
}

#[tokio::test]
async fn a_launch_template_of_somebody_else_is_refused_and_left_alone() {
    let place = Place::on(Cloud::with_bad_days());
    let data = RequestLaunchTemplateData::builder().image_id("ami-0000000000000beef").build();
    let made = place.cloud.ec2().create_launch_template().launch_template_name(format!("{TABLE}-small"));
    made.launch_template_data(data).send().await.unwrap();
    place.init(&[], 0).await;
    place.applies("").await;
    for arguments in [&["--dry-run"][..], &[]] {
        let ended = place.init(arguments, 1).await;
        let error: Value = serde_json::from_str(&ended.stderr).unwrap();
        assert_eq!(
            (&error["error"]["field"], &error["error"]["value"]),
            (&json!("launch template"), &json!("small"))
        );
        assert!(error["error"]["message"].as_str().unwrap().contains("runyard:table"), "{error}");
    }
    assert_eq!(place.versions().await, 1);
}
