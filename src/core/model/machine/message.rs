//! The pool queue's message: a hint that a machine is free. It names the claim after which the machine was announced
//! (`claimId`), so that a stale message is recognised; the record decides.

use serde::{Deserialize, Serialize};

use super::instance::Instance;
use crate::model::record::ids::{ClassName, InstanceId};
use crate::model::record::state::UsageClass;

/// The body of a message, JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolMessage {
    /// The free machine.
    #[serde(alias = "id")]
    pub instance_id: InstanceId,
    /// Its class.
    pub resource_class: ClassName,
    /// EC2's type name.
    #[serde(default)]
    pub instance_type: String,
    /// vCPUs.
    #[serde(default)]
    pub cpu: u32,
    /// Memory in MiB.
    #[serde(default)]
    pub mmem: u32,
    /// How it is paid for.
    pub usage_class: UsageClass,
    /// The claim it was cleaned after; `""` for a machine that served none yet.
    #[serde(default)]
    pub claim_id: String,
}

/// Longest part of an unreadable message that is kept, in characters.
const SHOWN: usize = 4096;

impl PoolMessage {
    /// Parses the body of a message.
    ///
    /// # Errors
    /// The body itself, cut to a few KiB.
    pub fn read(body: &str) -> Result<Self, String> {
        serde_json::from_str(body).map_err(|_| body.chars().take(SHOWN).collect())
    }

    /// Builds the announcement of a pooled machine.
    pub fn announcing(instance: &Instance) -> Self {
        let facts = &instance.facts;
        Self {
            instance_id: facts.instance_id.clone(),
            resource_class: facts.resource_class.clone(),
            instance_type: facts.instance_type.clone(),
            cpu: facts.cpu,
            mmem: facts.mmem,
            usage_class: facts.usage_class,
            claim_id: instance.claim.as_ref().map(|claim| claim.id.to_string()).unwrap_or_default(),
        }
    }

    /// Returns whether the record still agrees with the message.
    pub fn describes(&self, instance: &Instance) -> bool {
        instance.pooled_at().is_some()
            && instance.facts.instance_id == self.instance_id
            && instance.facts.resource_class == self.resource_class
            && instance.claim.as_ref().map_or("", |claim| claim.id.as_str()) == self.claim_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_writers_id_is_read_as_the_instance() {
        let body = r#"{"id":"i-1","resourceClass":"linux","usageClass":"spot","extra":1}"#;
        let message: PoolMessage = serde_json::from_str(body).unwrap();
        assert_eq!(message.instance_id.as_str(), "i-1");
        assert_eq!(message.claim_id, "");
    }

    #[test]
    fn a_message_describes_the_machine_as_it_was_announced_and_nothing_else() {
        let golden = include_str!("../../../../tests/golden/instance-idle-pooled.json");
        let item: crate::model::Item = serde_json::from_str(golden).unwrap();
        let crate::model::Reading::Record(instance) = crate::model::read::<Instance>(&item) else {
            panic!("it is golden")
        };
        let message = PoolMessage::announcing(&instance);
        assert!(message.describes(&instance));
        let other = |change: fn(&mut PoolMessage)| {
            let mut other = message.clone();
            change(&mut other);
            other.describes(&instance)
        };
        assert!(!other(|message| message.instance_id = "i-9".parse().unwrap()));
        assert!(!other(|message| message.resource_class = "mac".parse().unwrap()));
        assert!(!other(|message| message.claim_id = "i-0123456789abcdef0.2".into()), "it was claimed since");
        let mut taken = instance.clone();
        taken.life = crate::model::Life::Idle { pooled_at: None };
        assert!(!message.describes(&taken));
    }

    #[test]
    fn garbage_is_an_error() {
        for body in ["", "[]", "{}", r#"{"instanceId":"","resourceClass":"x","usageClass":"spot"}"#] {
            assert!(serde_json::from_str::<PoolMessage>(body).is_err(), "{body}");
        }
    }
}
