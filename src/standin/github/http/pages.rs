//! The pages of lists, as GitHub splits and links them.

use axum::http::header::LINK;
use axum::http::{HeaderMap, HeaderValue};

pub(super) const PAGE_SIZE: u64 = 30;
pub(super) const MAX_PAGE_SIZE: u64 = 100;

pub(super) fn links(base: &str, page: u64, last: u64) -> HeaderMap {
    let mut parts = Vec::new();
    if page > 1 {
        parts.push(format!("<{base}&page={}>; rel=\"prev\"", page - 1));
        parts.push(format!("<{base}&page=1>; rel=\"first\""));
    }
    if page < last {
        parts.push(format!("<{base}&page={}>; rel=\"next\"", page + 1));
        parts.push(format!("<{base}&page={last}>; rel=\"last\""));
    }
    let mut headers = HeaderMap::new();
    if let (false, Ok(value)) = (parts.is_empty(), HeaderValue::from_str(&parts.join(", "))) {
        headers.insert(LINK, value);
    }
    headers
}
