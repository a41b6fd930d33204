//! The envelope of a statement, after DSSE version 1: the payload, and signatures over its type and its bytes. The crate
//! that signs and checks is of the adapters; here is the form.
//!
//! The form is narrower than DSSE's: one signature, no unknown field and only base64 as it is written, so that no byte of
//! an envelope can be changed without being found.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::Statement;
use crate::model::FieldError;

/// The type of the payload.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// A payload with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    /// The payload, base64.
    payload: String,
    /// [`PAYLOAD_TYPE`].
    payload_type: String,
    /// One signature.
    signatures: [Signature; 1],
}

/// A signature over a payload and its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The SHA-256 of the public key as DER (`SubjectPublicKeyInfo`), in lower-case hexadecimal.
    pub keyid: String,
    /// The signature, base64.
    pub sig: String,
}

impl Envelope {
    /// Signs a statement: `sign` returns the id of its key, and the signature over the given bytes.
    ///
    /// # Errors
    /// The errors of `sign`.
    pub fn seal<E>(
        statement: &Statement,
        sign: impl FnOnce(&[u8]) -> Result<(String, Vec<u8>), E>,
    ) -> Result<Self, E> {
        let payload = statement.payload();
        let (keyid, signature) = sign(&signed(PAYLOAD_TYPE, &payload))?;
        Ok(Self {
            payload: STANDARD.encode(payload),
            payload_type: PAYLOAD_TYPE.to_owned(),
            signatures: [Signature { keyid, sig: STANDARD.encode(signature) }],
        })
    }

    /// Parses an envelope.
    ///
    /// # Errors
    /// It is not an envelope of a statement in our form.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let envelope: Self = serde_json::from_str(text).map_err(|error| {
            FieldError::new("envelope", text, format!("is not a signed statement: {error}"), FIX)
        })?;
        if envelope.payload_type != PAYLOAD_TYPE {
            let message = format!("is not {PAYLOAD_TYPE}");
            return Err(FieldError::new("payloadType", envelope.payload_type, message, FIX));
        }
        Ok(envelope)
    }

    /// Opens the envelope: `check` gets the id of the key, the signed bytes and the signature.
    ///
    /// # Errors
    /// The errors of `check`, or a payload that is no statement about a claim. Nothing of a payload is returned whose
    /// signature was not checked.
    pub fn open(
        &self,
        check: impl FnOnce(&str, &[u8], &[u8]) -> Result<(), FieldError>,
    ) -> Result<Statement, FieldError> {
        let [Signature { keyid, sig }] = &self.signatures;
        let (payload, signature) = (decoded("payload", &self.payload)?, decoded("sig", sig)?);
        check(keyid, &signed(&self.payload_type, &payload), &signature)?;
        Statement::parse(&payload)
    }

    /// Returns its text, as it is stored and given out.
    ///
    /// # Panics
    /// Never: it has only texts.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("an envelope is JSON")
    }
}

const FIX: &str = "give a file that `runyard history statements` wrote";

fn decoded(field: &str, text: &str) -> Result<Vec<u8>, FieldError> {
    STANDARD
        .decode(text)
        .map_err(|error| FieldError::new(field, text, format!("is not base64: {error}"), FIX))
}

/// Returns the signed bytes: DSSE's pre-authentication encoding.
fn signed(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}
