use runyard_core::ports::Signer;
use runyard_core::statement::digest_of_text;

/// A key for tests: a "signature" is the digest of the bytes. Whether a real one is checked is asked where the real key is.
#[derive(Clone, Copy, Debug, Default)]
pub struct PaperKey;

impl Signer for PaperKey {
    fn sign(&self, bytes: &[u8]) -> (String, Vec<u8>) {
        ("paper".to_owned(), digest_of_text(bytes).into_bytes())
    }
}
