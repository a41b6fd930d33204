//! A cloud, the files a person would write, and the program.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};

use crate::e2e::program;
use runyard_support::engine::Engine;
use runyard_support::peer::Peer;

/// Queues of all sites that have no engine of their own: it takes long to start one.
static MOTO: LazyLock<Engine> = LazyLock::new(Engine::moto);
static SITES: AtomicU32 = AtomicU32::new(0);

const CONFIG: &str = r#"
[compute]
kind = "ec2"
[interruptions]
queue = "TABLE-interruptions"
[github]
kind = "none"
[agent]
runner_url = "https://example.com/actions-runner-linux-x64.tar.gz"
runner_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
runner_version = "2.330.0"
"#;

/// A cloud and whoever works on it.
pub(crate) struct Site {
    dynamodb: String,
    sqs: String,
    ec2: String,
    pub(crate) peer: Option<Peer>,
    /// The table's name: no other site's. Whatever is told of it is told as of `yard`.
    pub(crate) table: String,
    scratch: tempfile::TempDir,
    _engines: Vec<Engine>,
}

/// How a call of the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// `what name` to what became of it.
    pub(crate) fn states(&self) -> BTreeMap<String, String> {
        let told: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let items = told["items"].as_array().expect("a list").clone();
        let state =
            |item: Value| (format!("{} {}", text(&item["what"]), text(&item["name"])), text(&item["state"]));
        items.into_iter().map(state).collect()
    }
}

impl Site {
    /// Records in dynoxide, queues in moto, machines at the peer.
    pub(crate) fn with_peer() -> Self {
        let (records, peer) = (Engine::dynoxide_memory(), Peer::start());
        let at = |engine: &Engine| engine.endpoint().to_owned();
        let (dynamodb, sqs, ec2) = (at(&records), at(&MOTO), peer.endpoint().to_owned());
        Self::of(dynamodb, sqs, ec2, Some(peer), vec![records])
    }

    /// Records in dynoxide, all else in moto.
    pub(crate) fn moto() -> Self {
        let (records, moto) = (Engine::dynoxide_memory(), Engine::moto());
        let at = |engine: &Engine| engine.endpoint().to_owned();
        let (dynamodb, sqs, ec2) = (at(&records), at(&moto), at(&moto));
        Self::of(dynamodb, sqs, ec2, None, vec![records, moto])
    }

    /// All of it in ministack.
    pub(crate) fn ministack() -> Self {
        let engine = Engine::ministack();
        let at = || engine.endpoint().to_owned();
        let (dynamodb, sqs, ec2) = (at(), at(), at());
        Self::of(dynamodb, sqs, ec2, None, vec![engine])
    }

    fn of(dynamodb: String, sqs: String, ec2: String, peer: Option<Peer>, engines: Vec<Engine>) -> Self {
        let scratch = tempfile::tempdir().expect("a place for files");
        // No name begins with another.
        let table = format!("site{}s", SITES.fetch_add(1, Ordering::SeqCst));
        let site = Self { dynamodb, sqs, ec2, peer, table, scratch, _engines: engines };
        site.file("runyard.toml", &CONFIG.replace("TABLE", &site.table));
        site.pools(&[spec("small", "ami-0123456789abcdef0"), spec("large", "ami-0123456789abcdef0")]);
        site
    }

    /// Where a file of this name is.
    pub(crate) fn path(&self, name: &str) -> String {
        self.scratch.path().join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    /// A file of this name and content.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("the file is written");
        path
    }

    /// The file of pools that [`Site::init`] names.
    pub(crate) fn pools(&self, specs: &[Value]) {
        self.file("pools.json", &json!(specs).to_string());
    }

    /// `runyard init` with the site's files and these further arguments; it must end with this code.
    pub(crate) fn init(&self, more: &[&str], code: i32) -> Ended {
        let (config, pools) = (self.path("runyard.toml"), self.path("pools.json"));
        let mut arguments = vec!["init", "--config", &config, "--file", &pools];
        arguments.extend(more);
        self.runs(&arguments, code)
    }

    /// The program with these arguments; it must end with this code.
    pub(crate) fn runs(&self, arguments: &[&str], code: i32) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.args(arguments).env_clear().env("RUNYARD_TABLE", &self.table).stdin(Stdio::null()).envs([
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
            ("AWS_ENDPOINT_URL_DYNAMODB", &self.dynamodb),
            ("AWS_ENDPOINT_URL_SQS", &self.sqs),
            ("AWS_ENDPOINT_URL_EC2", &self.ec2),
        ]);
        // Programs of the site alone, and none of this machine.
        command.env("PATH", self.scratch.path());
        let output = program::output(&mut command);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program speaks UTF-8");
        let (stdout, stderr) = (self.told(text(output.stdout)), self.told(text(output.stderr)));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{stdout}\n{stderr}");
        Ended { stdout, stderr }
    }

    /// Text in which the table is called `yard`, whatever its name.
    fn told(&self, text: String) -> String {
        text.replace(&self.table, "yard")
    }

    /// A queue's or template's own name, from what it would be called if the table were called `yard`.
    pub(crate) fn named(&self, name: &str) -> String {
        name.replace("yard", &self.table)
    }

    fn sdk(endpoint: &str) -> SdkConfig {
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(Credentials::for_tests()))
            .endpoint_url(endpoint)
            .build()
    }

    /// DynamoDB, by a raw client.
    pub(crate) fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        aws_sdk_dynamodb::Client::new(&Self::sdk(&self.dynamodb))
    }

    /// SQS, by a raw client.
    pub(crate) fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&Self::sdk(&self.sqs))
    }

    /// EC2, by a raw client.
    pub(crate) fn ec2(&self) -> aws_sdk_ec2::Client {
        aws_sdk_ec2::Client::new(&Self::sdk(&self.ec2))
    }

    /// Every queue there is, with all that SQS tells of it.
    pub(crate) async fn queues(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let client = self.sqs();
        let mut all = BTreeMap::new();
        for url in
            client.list_queues().send().await.expect("the raw client reads").queue_urls.unwrap_or_default()
        {
            let call = client.get_queue_attributes().queue_url(&url);
            let told =
                call.attribute_names(QueueAttributeName::All).send().await.expect("the raw client reads");
            let told = told.attributes.unwrap_or_default();
            let told =
                told.into_iter().map(|(name, value)| (name.as_str().to_owned(), self.told(value))).collect();
            let name = url.rsplit('/').next().unwrap_or_default().to_owned();
            if name.starts_with(&self.table) {
                all.insert(self.told(name), told);
            }
        }
        all
    }

    /// Every launch template there is: its name, how many versions it has, and which is the default one.
    pub(crate) async fn templates(&self) -> BTreeMap<String, (i64, i64)> {
        let told = self.ec2().describe_launch_templates().send().await.expect("the raw client reads");
        let numbers = |template: aws_sdk_ec2::types::LaunchTemplate| {
            let latest = template.latest_version_number.unwrap_or_default();
            (
                self.told(template.launch_template_name.unwrap_or_default()),
                (latest, template.default_version_number.unwrap_or_default()),
            )
        };
        told.launch_templates.unwrap_or_default().into_iter().map(numbers).collect()
    }
}

/// A class as a person writes it.
pub(crate) fn spec(class: &str, ami: &str) -> Value {
    json!({"resourceClass": class, "cpu": 2, "mmem": 4096, "max": 5, "launch": {"ami": ami}})
}
