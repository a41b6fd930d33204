//! The statement about a claim: what of it is proved, in the form of in-toto, and the envelope in which the operator signs
//! it. Building one is pure: the same records give the same bytes, whoever builds it and whenever.

mod envelope;
mod predicate;
#[cfg(test)]
mod tests;

use sha2::{Digest as _, Sha256};

pub use envelope::{Envelope, PAYLOAD_TYPE, Signature};
pub use predicate::{ClaimPart, Domains, MachinePart, Outcome, Predicate, RunnerPart, Shown};

use serde::{Deserialize, Serialize};

use crate::model::FieldError;
use crate::model::history::{EndedClaim, HistoryLine, MachineLine};

/// The `_type` of a statement (in-toto attestation framework, version 1).
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The type of our predicate. What a later program adds keeps it; another meaning gets another number.
pub const PREDICATE_TYPE: &str = "urn:runyard:claim:1";

/// A statement about a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    pub kind: String,
    /// The claim: always one.
    pub subject: Vec<Subject>,
    /// [`PREDICATE_TYPE`].
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    /// What is said of it.
    pub predicate: Predicate,
}

/// The subject of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// `claim:<claim id>`.
    pub name: String,
    /// The digest of the claim's records.
    pub digest: Digest,
}

/// The digest of the claim's records: of the line about the stretch of the machine's life, as `runyard history export`
/// writes it, without the line feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// SHA-256, in lower-case hexadecimal.
    pub sha256: String,
}

impl Statement {
    /// Builds the statement about a claim.
    ///
    /// # Guarantees
    /// - It says that the machine was left clean only where the agent signalled so for this claim, every item of its
    ///   proof is there and proved, and nothing contradicts it.
    /// - What is not known is listed as unknown.
    pub fn of(claim: &EndedClaim) -> Self {
        let digest = Digest { sha256: digest_of(&claim.line) };
        let subject = Subject { name: format!("claim:{}", claim.end.claim_id), digest };
        Self {
            kind: STATEMENT_TYPE.to_owned(),
            subject: vec![subject],
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate::of(claim),
        }
    }

    /// Parses the payload of an envelope.
    ///
    /// # Errors
    /// It is not a statement about a claim.
    pub fn parse(payload: &[u8]) -> Result<Self, FieldError> {
        let refuse = |value: &str, message: String| {
            FieldError::new("payload", value, message, "give a statement about a claim of Runyard")
        };
        let statement: Self = serde_json::from_slice(payload)
            .map_err(|error| refuse("", format!("is not a statement about a claim: {error}")))?;
        for (found, wanted) in
            [(&statement.kind, STATEMENT_TYPE), (&statement.predicate_type, PREDICATE_TYPE)]
        {
            if found != wanted {
                return Err(refuse(found, format!("is not {wanted}")));
            }
        }
        match &statement.subject[..] {
            [subject] if subject.name == format!("claim:{}", statement.predicate.claim.id) => Ok(statement),
            [] | [_, ..] => Err(refuse("", "has a subject that is not its claim".to_owned())),
        }
    }

    /// Returns the payload of its envelope.
    ///
    /// # Panics
    /// Never: it has only types that JSON can hold.
    pub fn payload(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a statement is JSON")
    }
}

/// Returns the digest of a machine's line, over the text that `runyard history export` writes.
///
/// # Panics
/// Never: a line has only types that JSON can hold.
pub fn digest_of(line: &MachineLine) -> String {
    let text = serde_json::to_vec(&HistoryLine::Machine(line.clone())).expect("a line is JSON");
    digest_of_text(&text)
}

/// Returns the SHA-256 of a text, in lower-case hexadecimal.
pub fn digest_of_text(text: &[u8]) -> String {
    format!("{:x}", Sha256::digest(text))
}
