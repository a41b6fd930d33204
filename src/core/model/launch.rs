//! An intent to launch machines, written before EC2 is called, so that it can be completed after a crash.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::record::{Record, Versioned};
use crate::model::record::field::FieldError;
use crate::model::record::identity::{Kind, RecordId};
use crate::model::record::ids::{ClassName, InstanceId, LaunchId, Uid};
use crate::model::record::state::{UsageClass, words};

/// Most machines one launch asks for: binding them is one transaction, two items each, of at most 100
/// (DynamoDB, `TransactWriteItems`).
pub const LAUNCH_LIMIT: u32 = 40;

words! {
    /// How far a launch is.
    LaunchPhase {
        /// Written; EC2 may or may not have been asked.
        Intent = "Intent",
        /// Its machines are recorded.
        Bound = "Bound",
        /// It has no machines and never will.
        Failed = "Failed",
    }
}

/// The launch record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// Its name, also a tag on the machines that it brings.
    pub launch_id: LaunchId,
    /// The attempt, from 1; a new one gets a new token.
    pub attempt: u32,
    /// `<launchId>-<attempt>`: the same token brings the same machines, never more.
    pub client_token: String,
    /// The class to launch for.
    pub resource_class: ClassName,
    /// How the machines are paid for.
    pub usage_class: UsageClass,
    /// How many machines, 1 to [`LAUNCH_LIMIT`].
    pub count: u32,
    /// The request it is for; none for warm capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordId>,
    /// The digest of its class's launch configuration when it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_digest: Option<String>,
    /// Its phase.
    pub phase: LaunchPhase,
    /// Its machines.
    #[serde(default)]
    pub instances: Vec<InstanceId>,
    /// The message for people.
    #[serde(default)]
    pub message: String,
    /// When it was decided.
    pub created_at: Timestamp,
    /// When the record may be deleted, epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// The record's identity; none in records written before there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The number of writes.
    pub version: u64,
    /// When it was last written.
    pub updated_at: Timestamp,
}

impl Launch {
    /// Returns the key of a launch.
    pub fn key_of(id: &LaunchId) -> RecordId {
        RecordId::Launch(id.clone())
    }

    /// Returns the client token of an attempt; at most 64 characters, as EC2 requires.
    pub fn token_of(id: &LaunchId, attempt: u32) -> String {
        format!("{id}-{attempt}")
    }
}

impl Record for Launch {
    const KIND: Kind = Kind::Launch;
    type Row = Self;

    fn key(&self) -> RecordId {
        Self::key_of(&self.launch_id)
    }

    fn to_row(&self) -> Self {
        self.clone()
    }

    fn from_row(_: &RecordId, row: Self) -> Result<Self, FieldError> {
        Ok(row)
    }
}

impl Versioned for Launch {
    fn version(&self) -> u64 {
        self.version
    }

    fn uid(&self) -> Option<&Uid> {
        self.uid.as_ref()
    }

    fn advance(&mut self, now: Timestamp) {
        self.version += 1;
        self.updated_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempts_token_is_its_own_and_short_enough_for_ec2() {
        let id = LaunchId::parse("l-1").unwrap();
        assert_eq!(Launch::token_of(&id, 1), "l-1-1");
        assert_ne!(Launch::token_of(&id, 1), Launch::token_of(&id, 2));
        let longest = LaunchId::parse(&"x".repeat(56)).unwrap();
        assert_eq!(Launch::token_of(&longest, 9_999_999).len(), 64);
    }
}
