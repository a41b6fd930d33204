//! The key that signs statements about claims, and the check of their signatures: Ed25519, in the forms that `openssl`
//! writes (PEM).

use std::fmt;
use std::path::Path;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::model::FieldError;
use crate::ports::Signer;
use crate::statement::digest_of_text;

/// The DER of an Ed25519 public key before its 32 bytes (RFC 8410, `SubjectPublicKeyInfo`).
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The label of a private key.
const PRIVATE: &str = "PRIVATE KEY";
/// The label of a public key.
const PUBLIC: &str = "PUBLIC KEY";

/// The operator's key.
pub struct StatementKey {
    pair: Ed25519KeyPair,
    id: String,
}

impl fmt::Debug for StatementKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl StatementKey {
    /// Reads the key from the file that `history.signing_key_file` names.
    ///
    /// # Errors
    /// The file cannot be read or holds no such key; the error never repeats its contents.
    pub fn read(file: &Path) -> Result<Self, FieldError> {
        let refuse = |message: String| {
            let fix = "name a file with an Ed25519 private key, readable by the operator's user: `openssl genpkey \
                       -algorithm ed25519 -out FILE` makes one; \"\" signs no statements";
            FieldError::new("history.signing_key_file", file.display().to_string(), message, fix)
        };
        let pem = std::fs::read(file).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        Self::of_pem(&pem).ok_or_else(|| refuse("holds no Ed25519 private key in PEM form".to_owned()))
    }

    fn of_pem(pem: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8(&der(pem, PRIVATE)?).ok()?;
        let id = id_of(pair.public_key().as_ref());
        Some(Self { pair, id })
    }

    /// Returns the public key in PEM form, as `openssl pkey -pubout` writes it.
    pub fn public_pem(&self) -> String {
        let text = STANDARD.encode(public_der(self.pair.public_key().as_ref()));
        format!("-----BEGIN {PUBLIC}-----\n{text}\n-----END {PUBLIC}-----\n")
    }

    /// Returns its id, which statements name.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Signer for StatementKey {
    fn sign(&self, bytes: &[u8]) -> (String, Vec<u8>) {
        (self.id.clone(), self.pair.sign(bytes).as_ref().to_vec())
    }
}

/// A public key against which statements are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    bytes: Vec<u8>,
    id: String,
}

impl PublicKey {
    /// Parses a public key in PEM form.
    ///
    /// # Errors
    /// It is no Ed25519 public key; the error never repeats the text, which may be a private key.
    pub fn of_pem(pem: &[u8]) -> Result<Self, &'static str> {
        if der(pem, PRIVATE).is_some() {
            return Err("holds a private key");
        }
        let der = der(pem, PUBLIC).ok_or("holds no public key in PEM form")?;
        let bytes = der.strip_prefix(&PUBLIC_HEAD).filter(|bytes| bytes.len() == 32);
        let bytes = bytes.ok_or("holds no Ed25519 public key")?.to_vec();
        Ok(Self { id: id_of(&bytes), bytes })
    }

    /// Returns its id, which statements name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Checks a signature of this key over the bytes.
    ///
    /// # Errors
    /// Another key's id stands beside the signature, or it is not one of this key over these bytes.
    pub fn check(&self, keyid: &str, bytes: &[u8], signature: &[u8]) -> Result<(), FieldError> {
        if keyid != self.id {
            let message = format!("is not the id of the given key, {}", self.id);
            let fix = "give the public key of the operator that signed";
            return Err(FieldError::new("keyid", keyid, message, fix));
        }
        UnparsedPublicKey::new(&ED25519, &self.bytes).verify(bytes, signature).map_err(|_| {
            let fix = "do not trust this statement: get it again from the history table";
            FieldError::new("sig", "", "is not a signature of this key over this payload", fix)
        })
    }
}

/// Returns the id of a public key: the SHA-256 of its DER.
fn id_of(public: &[u8]) -> String {
    digest_of_text(&public_der(public))
}

fn public_der(public: &[u8]) -> Vec<u8> {
    [&PUBLIC_HEAD, public].concat()
}

/// Returns the contents of the only block of this label.
fn der(pem: &[u8], label: &str) -> Option<Vec<u8>> {
    let text = str::from_utf8(pem).ok()?;
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key pair of RFC 8410, section 10, as `openssl` writes it.
    const PRIVATE_PEM: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    const PUBLIC_PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

    #[test]
    fn a_key_of_openssl_signs_and_its_public_half_checks() {
        let key = StatementKey::of_pem(PRIVATE_PEM.as_bytes()).unwrap();
        assert_eq!(key.public_pem(), PUBLIC_PEM);
        let public = PublicKey::of_pem(PUBLIC_PEM.as_bytes()).unwrap();
        let (id, signature) = key.sign(b"bytes");
        assert_eq!((id.as_str(), key.sign(b"bytes").1), (public.id(), signature.clone()), "always the same");
        assert_eq!(public.check(&id, b"bytes", &signature), Ok(()));
        for at in 0..signature.len() {
            let mut changed = signature.clone();
            changed[at] ^= 1;
            assert_eq!(public.check(&id, b"bytes", &changed).unwrap_err().field, "sig");
        }
        assert_eq!(public.check(&id, b"bytez", &signature).unwrap_err().field, "sig");
        assert_eq!(public.check(&"0a".repeat(32), b"bytes", &signature).unwrap_err().field, "keyid");
    }

    #[test]
    fn what_is_no_key_is_refused_and_no_error_or_debug_form_repeats_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key.pem");
        let secret = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp";
        for text in ["", secret, PUBLIC_PEM, &PRIVATE_PEM.replace("MC4C", "MC4D"), &PRIVATE_PEM[..90]] {
            std::fs::write(&file, text).unwrap();
            let error = StatementKey::read(&file).unwrap_err();
            assert_eq!(error.field, "history.signing_key_file");
            assert!(!format!("{error}{error:?}").contains("INTuctv5"), "{error}");
        }
        assert!(StatementKey::read(&dir.path().join("none")).unwrap_err().message.contains("cannot be read"));
        assert_eq!(PublicKey::of_pem(PRIVATE_PEM.as_bytes()), Err("holds a private key"));
        assert_eq!(PublicKey::of_pem(b"x"), Err("holds no public key in PEM form"));
        let key = StatementKey::of_pem(PRIVATE_PEM.as_bytes()).unwrap();
        assert!(!format!("{key:?}").contains("pair"), "{key:?}");
    }
}
