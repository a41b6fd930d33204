//! Sealed credentials: the operator sends them to one machine alone, in libsodium sealed boxes. The payload names its
//! claim, so an agent never uses the credential of another one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use crypto_box::aead::rand_core::CryptoRngCore;
use crypto_box::{PublicKey, SecretKey};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::keep::Keep;

/// The credential that an agent needs to register a runner. A secret: no `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationCredential {
    /// The claim that it is for; empty where it is minted ahead of any claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim_id: String,
    /// The registration ahead of a claim that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_id: Option<String>,
    /// The number of the credential, from 1.
    pub seq: u64,
    /// The URL that the runner is configured with, for example `https://github.com/owner/name`.
    pub url: String,
    /// Mode `run`: the registration token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Mode `job`: the single-use configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jit_config: Option<String>,
    /// GitHub's number of the runner that the single-use configuration is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_id: Option<u64>,
    /// The runner's name, unique per claim and number.
    pub runner_name: String,
    /// The only labels of the runner.
    pub labels: Vec<String>,
    /// The runner group; empty for the default one.
    #[serde(default)]
    pub runner_group: String,
    /// The directories that the claim's class keeps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<Keep>,
    /// When the credential expires.
    pub expires_at: Timestamp,
}

/// The credential that an agent needs to deregister its runner. A secret: no `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovalCredential {
    /// The claim it is for.
    pub claim_id: String,
    /// The URL that the runner was configured with.
    pub url: String,
    /// The removal token.
    pub token: String,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// Why a credential cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The machine's public key is not base64 of 32 bytes.
    #[error("the public key is not base64 of 32 bytes")]
    Key,
    /// Not base64, not a sealed box, or sealed to another key.
    #[error("the box does not open with this key")]
    Box,
    /// It opens, and its content is invalid.
    #[error("the box does not hold what it should")]
    Content,
}

/// Seals a payload to a machine's public key (base64), as base64.
///
/// # Errors
/// [`SealError::Key`] when the key is not one.
pub fn seal<T: Serialize>(
    payload: &T,
    public_key: &str,
    random: &mut impl CryptoRngCore,
) -> Result<String, SealError> {
    let bytes = BASE64.decode(public_key).map_err(|_| SealError::Key)?;
    let key = PublicKey::from_slice(&bytes).map_err(|_| SealError::Key)?;
    let clear = serde_json::to_vec(payload).map_err(|_| SealError::Content)?;
    let sealed = key.seal(random, &clear).map_err(|_| SealError::Box)?;
    Ok(BASE64.encode(sealed))
}

/// A machine's key pair. The private half stays on the machine.
pub struct AgentKey(SecretKey);

impl AgentKey {
    /// Generates a new pair.
    pub fn generate(random: &mut impl CryptoRngCore) -> Self {
        Self(SecretKey::generate(random))
    }

    /// Restores the pair whose private half is stored as these 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(SecretKey::from(bytes))
    }

    /// Returns the private half, to be stored in a root-only file.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Returns the public half in its stored form.
    pub fn public(&self) -> String {
        BASE64.encode(self.0.public_key().as_bytes())
    }

    /// Opens a box that was sealed to this key.
    ///
    /// # Errors
    /// [`SealError::Box`] when it is not for us, [`SealError::Content`] when it holds something else.
    pub fn open<T: DeserializeOwned>(&self, sealed: &str) -> Result<T, SealError> {
        let sealed = BASE64.decode(sealed).map_err(|_| SealError::Box)?;
        let clear = self.0.unseal(&sealed).map_err(|_| SealError::Box)?;
        serde_json::from_slice(&clear).map_err(|_| SealError::Content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto_box::aead::OsRng;

    fn removal() -> RemovalCredential {
        RemovalCredential {
            claim_id: "i-1.4".into(),
            url: "https://github.com/a/b".into(),
            token: "secret".into(),
            expires_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn only_the_machine_it_was_sealed_for_opens_a_box() {
        let (ours, other) = (AgentKey::generate(&mut OsRng), AgentKey::generate(&mut OsRng));
        let sealed = seal(&removal(), &ours.public(), &mut OsRng).unwrap();
        assert!(!sealed.contains("secret"));
        assert!(ours.open::<RemovalCredential>(&sealed).ok() == Some(removal()));
        assert_eq!(other.open::<RemovalCredential>(&sealed).err(), Some(SealError::Box));
        assert_eq!(ours.open::<RegistrationCredential>(&sealed).err(), Some(SealError::Content));
    }

    #[test]
    fn a_box_opens_without_additions_and_with_fields_of_a_newer_operator() {
        let key = AgentKey::generate(&mut OsRng);
        let first = serde_json::json!({"claimId": "i-1.4", "seq": 1, "url": "https://github.com/a/b", "token": "secret",
            "runnerName": "runyard-i-1.4", "labels": ["42"], "runnerGroup": "", "expiresAt": "2026-01-01T00:00:00Z"});
        let mut newer = first.clone();
        newer["preemption"] = serde_json::json!({"score": 7});
        for sent in [first, newer] {
            let sealed = seal(&sent, &key.public(), &mut OsRng).unwrap();
            let Ok(opened) = key.open::<RegistrationCredential>(&sealed) else { panic!("{sent}") };
            assert_eq!(
                (opened.claim_id.as_str(), opened.seq, opened.labels),
                ("i-1.4", 1, vec!["42".to_owned()])
            );
            let additions = (opened.ahead_id, opened.runner_id, opened.keep.len());
            assert_eq!(additions, (None, None, 0));
            let Ok(removal) = key.open::<RemovalCredential>(&sealed) else { panic!("{sent}") };
            assert_eq!(removal.token, "secret");
        }
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        for bad in ["", "AAAA", "not base64!"] {
            assert_eq!(seal(&removal(), bad, &mut OsRng).err(), Some(SealError::Key), "{bad}");
        }
    }

    #[test]
    fn the_private_half_survives_a_file() {
        let key = AgentKey::generate(&mut OsRng);
        let again = AgentKey::from_bytes(key.to_bytes());
        assert_eq!(key.public(), again.public());
    }
}
