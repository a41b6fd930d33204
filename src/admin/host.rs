//! Was a request sent to an address, or to a name? A page whose own name was made to point at this machine (DNS
//! rebinding) sends that name in `Host`; people, agents and probes of a server on loopback send an address.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Whether `Host` is an address or `localhost`, with or without a port.
pub(crate) fn by_address(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Refuses what was sent to a name, and what a page of another origin sent.
pub(crate) async fn refuse_pages(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let own = headers.get(HOST).and_then(|host| host.to_str().ok()).map(|host| format!("http://{host}"));
    let origin = headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default().to_owned());
    if by_address(headers) && (origin.is_none() || origin == own) {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, "this answers under its address only, and no page of another origin\n")
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_address() {
        let host = |host: &str| by_address(&[(HOST, host.parse().unwrap())].into_iter().collect());
        for address in ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:80", "10.0.0.7:80"]
        {
            assert!(host(address), "{address}");
        }
        for name in ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.io:80", ""]
        {
            assert!(!host(name), "{name}");
        }
        assert!(!by_address(&HeaderMap::new()));
    }
}
