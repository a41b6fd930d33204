//! A table of its own for each test, the program beside it, and a hand on the records for what an operator would do.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use runyard_core::model::{AttributeValue, Guard, Item, RecordId, TableName, Write};
use runyard_core::ports::Store as _;
use runyard_store::DynamoStore;
use serde_json::Value;

use runyard_support::engine::Engine;

use crate::e2e::program;
use crate::e2e::waiting::PATIENCE;

/// The repository of all tests.
pub(crate) const REPOSITORY: &str = "acme/web";

/// A table and the program.
pub(crate) struct Yard {
    engine: Engine,
    /// The table, by our own hand.
    pub(crate) store: DynamoStore,
    runtime: tokio::runtime::Runtime,
    config: SdkConfig,
    /// A place for files.
    pub(crate) scratch: tempfile::TempDir,
}

/// How a call of the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program speaks UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Its answer, as a program reads it.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Its error, as a program reads it.
    pub(crate) fn error(&self) -> Value {
        let line = self.stderr.trim().lines().last().unwrap_or_default();
        let document: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        document["error"].clone()
    }
}

impl Yard {
    /// A table as `init` makes it.
    pub(crate) fn new() -> Self {
        let yard = Self::bare();
        yard.runs(&["init"], 0);
        yard
    }

    /// An engine without a table.
    pub(crate) fn bare() -> Self {
        let engine = Engine::dynoxide_memory();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(Credentials::for_tests()))
            .endpoint_url(engine.endpoint())
            .build();
        let store = DynamoStore::connect(TableName::parse("runyard").expect("a name"), &config);
        Self { engine, store, runtime, config, scratch: tempfile::tempdir().expect("a place for files") }
    }

    /// Where the table is.
    pub(crate) fn endpoint(&self) -> String {
        self.engine.endpoint().to_string()
    }

    /// The program with these arguments, in surroundings of its own.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("AWS_ENDPOINT_URL_DYNAMODB", self.engine.endpoint());
        command
    }

    /// Runs it to its end, which must come with this code.
    pub(crate) fn runs(&self, arguments: &[&str], code: i32) -> Ended {
        ends(self.command(arguments), code)
    }

    /// The record under a key.
    pub(crate) fn item(&self, key: &RecordId) -> Option<Item> {
        self.runtime.block_on(self.store.get(key)).expect("the engine answers")
    }

    /// The record under a key, which must be there.
    pub(crate) fn record(&self, key: &RecordId) -> Item {
        self.item(key).unwrap_or_else(|| panic!("{key} is not there"))
    }

    /// How many records there are, events aside.
    pub(crate) fn count(&self) -> usize {
        let page = self.runtime.block_on(self.store.list(None)).expect("the engine answers");
        page.items.iter().filter(|item| item["kind"] != text("event")).count()
    }

    /// Creates a record.
    pub(crate) fn put(&self, key: &RecordId, attributes: &[(&str, AttributeValue)]) {
        let mut item: Item =
            attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        item.insert("pk".into(), text(key.pk()));
        item.insert("sk".into(), text(key.sk()));
        let write = Write::create(key.clone(), item);
        self.runtime.block_on(self.store.write(&write)).expect("the record is new");
    }

    /// Changes a record as the operator would: on its version, which rises.
    pub(crate) fn change(&self, key: &RecordId, attributes: &[(&str, AttributeValue)]) {
        let AttributeValue::N(version) = self.record(key)["version"].clone() else { panic!("a version") };
        let set = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let guard = Guard::Version(version.parse().expect("a number"));
        let write = Write::update(key.clone(), guard, set, [("version".to_owned(), 1)].into());
        self.runtime.block_on(self.store.write(&write)).expect("nobody else writes");
    }

    /// Waits until a record is as it should be.
    pub(crate) fn until(&self, key: &RecordId, so: impl Fn(&Item) -> bool) -> Item {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let item = self.item(key);
            if let Some(item) = item.as_ref().filter(|item| so(item)) {
                return item.clone();
            }
            assert!(tokio::time::Instant::now() < end, "{key} never came to be so: {item:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks for machines as run 42 with these further options.
    pub(crate) fn provision(&self, options: &[&str], code: i32) -> Ended {
        self.runs(&asking(options), code)
    }

    /// A file of this name and content.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path: PathBuf = self.scratch.path().join(name);
        std::fs::write(&path, content).expect("the file is written");
        path.to_str().expect("a path in UTF-8").to_owned()
    }
}

/// The arguments by which run 42 asks for two machines of class `small`.
pub(crate) fn asking<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["provision", "--run-id", "42", "--repository", REPOSITORY, "--class", "small"];
    if !options.contains(&"--count") {
        arguments.extend(["--count", "2"]);
    }
    arguments.extend(options);
    arguments
}

/// The program with these arguments and no way to any network.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
    command
        .args(arguments)
        .env_clear()
        .envs([
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:9"),
            ("USER", "tess"),
        ])
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end, which must come with this code.
pub(crate) fn ends(mut command: Command, code: i32) -> Ended {
    let ended = Ended::of(program::output(&mut command));
    assert_eq!(ended.code, Some(code), "{command:?}\n{}\n{}", ended.stdout, ended.stderr);
    ended
}

/// A started command's end, which must come with this code.
pub(crate) fn finished(child: std::process::Child, code: i32) -> Ended {
    let ended = Ended::of(child.wait_with_output().expect("the program ends"));
    assert_eq!(ended.code, Some(code), "{}\n{}", ended.stdout, ended.stderr);
    ended
}

/// The key of a request of run 42.
pub(crate) fn request(name: &str, attempt: u32) -> RecordId {
    RecordId::new(format!("request#{REPOSITORY}#42"), format!("request#{name}#{attempt}"))
}

/// An attribute of text.
pub(crate) fn text(value: impl ToString) -> AttributeValue {
    AttributeValue::S(value.to_string())
}

/// An attribute of a number.
pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// An attribute of texts.
pub(crate) fn texts(values: &[&str]) -> AttributeValue {
    AttributeValue::L(values.iter().map(text).collect())
}

impl Yard {
    /// A table of another shape.
    pub(crate) fn foreign_table(&self, name: &str) {
        use aws_sdk_dynamodb::types::{
            AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
        };
        let kind = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
        let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
        let call = aws_sdk_dynamodb::Client::new(&self.config).create_table().table_name(name);
        let call = call
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(kind.build().expect("complete"))
            .key_schema(key.build().expect("complete"));
        self.runtime.block_on(call.send()).expect("the table is made");
    }
}
