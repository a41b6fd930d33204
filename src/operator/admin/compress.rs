//! Compresses a large JSON text for clients that support it: a browser behind a port-forward receives a tenth.

use std::io::{self, Write};

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::page::sealed;

/// Shorter texts are sent uncompressed.
const SMALLEST: usize = 4096;

/// Returns the text as a response to a request with these headers.
pub(super) fn json(text: String, asked: &HeaderMap) -> Response {
    let kind = (header::CONTENT_TYPE, "application/json");
    let vary = (header::VARY, "accept-encoding");
    let accepts = asked.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let gzip = accepts.is_some_and(|value| value.split(',').any(|one| one.trim() == "gzip"));
    if gzip
        && text.len() >= SMALLEST
        && let Ok(short) = compressed(text.as_bytes())
    {
        return (sealed([kind, vary, (header::CONTENT_ENCODING, "gzip")]), short).into_response();
    }
    (sealed([kind, vary]), text).into_response()
}

fn compressed(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}
