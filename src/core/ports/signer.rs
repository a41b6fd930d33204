//! The port of the key that signs statements about claims.

/// Signs bytes with a key that it holds.
pub trait Signer: Send + Sync {
    /// Returns the id of the key, and the signature over the bytes. The same bytes have the same signature, because lines
    /// of the history are written again under their keys and must not differ.
    fn sign(&self, bytes: &[u8]) -> (String, Vec<u8>);
}
