//! The claims that are over, as the records of their machines tell them, and the signed statements about them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::MachineLine;
use super::spans::Stretch;
use crate::model::machine::agent::claim_proof::ClaimEnd;
use crate::model::machine::instance::Instance;
use crate::model::record::identity::RecordId;
use crate::model::record::ids::ClaimId;

/// A claim that is over, as the record of its machine tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedClaim {
    /// The stretch of the machine's life that contains it.
    pub line: MachineLine,
    /// The trust domain that the machine was of before; none where it is not known, empty where it was nobody's.
    pub domain_before: Option<String>,
    /// What the record keeps of its end.
    pub end: ClaimEnd,
}

/// A signed statement about a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatementLine {
    /// The request that the claim served.
    pub request: RecordId,
    /// The claim.
    pub claim_id: ClaimId,
    /// When the stretch of the machine's life that contains the claim was over.
    pub at: Timestamp,
    /// The envelope, as text: whoever passes it on changes no byte.
    pub envelope: String,
}

impl EndedClaim {
    /// Lists the claims of a machine that are over and whose end its record keeps, in order.
    pub fn over(instance: &Instance) -> Vec<Self> {
        let claim = |(line, stretch): (MachineLine, Stretch)| {
            Some(Self { line, domain_before: stretch.before, end: *stretch.claim? })
        };
        MachineLine::completed(instance).filter_map(claim).collect()
    }

    /// Returns the request that the claim served.
    pub fn request(&self) -> Option<&RecordId> {
        self.line.spans.iter().rev().find_map(|span| span.request.as_ref())
    }
}
