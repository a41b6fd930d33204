//! Runners registered ahead: a pooled machine's runner listens before any claim, under a label that no job can name.
//! When a claim takes the machine, GitHub is asked to give the runner the label of its run.

use serde::{Deserialize, Serialize};

use crate::model::record::ids::{ClaimId, InstanceId};
use crate::model::record::item::AttributeValue;

/// The prefix of the name of a runner that was registered ahead. The name of a claim's runner has another prefix, so
/// that an older operator leaves these runners alone.
const NAME: &str = "runyard-ahead-";

/// The runner of a machine that was registered ahead, as the operator knows it. It is in the instance record from its
/// registration until it was removed at GitHub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ahead {
    /// Its id, made as a claim's is, so that no claim and no other registration of the machine has it.
    pub id: ClaimId,
    /// GitHub's number of the runner, once GitHub itself confirmed that it has this name and listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_id: Option<u64>,
}

impl Ahead {
    /// Returns the name of the runner that is registered under this id.
    #[must_use]
    pub fn name_of(id: &ClaimId) -> String {
        format!("{NAME}{id}")
    }

    /// Parses the machine and the id from the name of a runner that was registered ahead; none for another name.
    #[must_use]
    pub fn named(name: &str) -> Option<(InstanceId, ClaimId)> {
        let id = name.strip_prefix(NAME)?;
        let (machine, version) = id.rsplit_once('.')?;
        version.parse::<u64>().ok()?;
        Some((InstanceId::parse(machine).ok()?, ClaimId::parse(id).ok()?))
    }
}

/// The same runner as its agent reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AheadReport {
    /// Its id.
    pub id: String,
    /// GitHub's number of it, once it is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_id: Option<u64>,
    /// Whether it listens.
    #[serde(default)]
    pub listening: bool,
}

impl AheadReport {
    /// Returns its form in the agent record.
    #[must_use]
    pub fn attribute(&self) -> AttributeValue {
        let id = ("id".to_owned(), AttributeValue::S(self.id.clone()));
        let listening = ("listening".to_owned(), AttributeValue::Bool(self.listening));
        let number = self.runner_id.map(|id| ("runnerId".to_owned(), AttributeValue::N(id.to_string())));
        AttributeValue::M([id, listening].into_iter().chain(number).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_runner_registered_ahead_is_no_claims() {
        let id = ClaimId::parse("i-0123456789abcdef0.7").unwrap();
        let name = Ahead::name_of(&id);
        let (machine, named) = Ahead::named(&name).unwrap();
        assert_eq!((machine.as_str(), named), ("i-0123456789abcdef0", id.clone()));
        assert_eq!(Ahead::named(&crate::model::runner_name(&id, 1)), None);
        assert_eq!(Ahead::named("runyard-ahead-i-0123456789abcdef0"), None);
    }
}
