//! The documents, with a region, an account, a table and an owner filled in; and who has which.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The directory of configurations.
pub(crate) fn config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config")
}

/// Everybody's documents, by name.
pub(crate) const NAMES: [&str; 9] = [
    "operator",
    "operator-volume-key",
    "workflow",
    "instance",
    "instance-any-record",
    "instance-self-terminate",
    "init",
    "reader",
    "webhook",
];

/// The key of the account's volumes.
pub(crate) const KEY: &str = "arn:aws:kms:eu-west-1:123456789012:key/11111111-2222-3333-4444-555555555555";

/// A document as an account would have it.
pub(crate) fn document(name: &str) -> Value {
    let path = config().join("iam").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&filled(&text)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Text with the placeholders filled in.
pub(crate) fn filled(text: &str) -> String {
    let pairs = [
        ("REGION", "eu-west-1"),
        ("ACCOUNT", "123456789012"),
        ("TABLE", "yard"),
        ("OWNER", "acme"),
        ("VOLUMEKEY", KEY),
        ("INSTANCETYPES", "m7i.*"),
    ];
    pairs.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Who holds a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Operator,
    /// The operator of a yard whose volumes have a key of the account's own.
    OperatorWithVolumeKey,
    Workflow,
    Machine,
    /// A machine where DynamoDB is not told which machine asks.
    MachineOfAnyRecord,
    /// A machine whose role has the optional document too.
    MachineThatEndsItself,
    /// A machine whose role has the optional document alone.
    EndsItselfAlone,
    /// A machine whose role somebody gave everything.
    MachineWithEverything,
    /// The same where DynamoDB is not told which machine asks.
    AnyRecordWithEverything,
    Init,
    /// A person who only looks.
    Reader,
    /// API Gateway, which passes GitHub's webhook on.
    Webhook,
}

impl Who {
    /// The names of the documents attached.
    pub(crate) fn documents(self) -> &'static [&'static str] {
        match self {
            Self::Operator => &["operator"],
            Self::OperatorWithVolumeKey => &["operator-volume-key"],
            Self::Workflow => &["workflow"],
            Self::Machine | Self::MachineWithEverything => &["instance"],
            Self::MachineOfAnyRecord | Self::AnyRecordWithEverything => &["instance-any-record"],
            Self::MachineThatEndsItself => &["instance", "instance-self-terminate"],
            Self::EndsItselfAlone => &["instance-self-terminate"],
            Self::Init => &["init"],
            Self::Reader => &["reader"],
            Self::Webhook => &["webhook"],
        }
    }

    /// What is attached besides.
    pub(crate) fn besides(self) -> Option<Value> {
        match self {
            Self::MachineWithEverything | Self::AnyRecordWithEverything => {
                Some(json!({"Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}))
            }
            Self::Operator
            | Self::OperatorWithVolumeKey
            | Self::MachineOfAnyRecord
            | Self::Workflow
            | Self::Machine
            | Self::MachineThatEndsItself
            | Self::EndsItselfAlone
            | Self::Init
            | Self::Reader
            | Self::Webhook => None,
        }
    }
}
