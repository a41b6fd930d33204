//! Was an HTTP request sent to an address, or to a name? A page whose own name was made to point at this machine (DNS
//! rebinding) sends that name in `Host`; people, agents and probes of a server on loopback send an address.

use std::net::IpAddr;

/// Returns whether this value of `Host` is an address or `localhost`, with or without a port.
pub fn is_address(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Returns whether a request with these headers `Host` and `Origin` is to be refused: it was sent to a name, or by a
/// page of another origin.
pub fn of_a_page(host: Option<&str>, origin: Option<&str>) -> bool {
    let Some(host) = host else { return true };
    let foreign = origin.is_some_and(|origin| origin.strip_prefix("http://") != Some(host));
    foreign || !is_address(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_address() {
        for address in ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:80", "10.0.0.7:80"]
        {
            assert!(is_address(address), "{address}");
        }
        for name in ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.io:80", ""]
        {
            assert!(!is_address(name), "{name}");
        }
    }

    #[test]
    fn a_page_of_another_origin_is_refused_and_ones_own_is_not() {
        let ours = "127.0.0.1:8080";
        assert!(!of_a_page(Some(ours), None));
        assert!(!of_a_page(Some(ours), Some("http://127.0.0.1:8080")));
        for origin in ["http://127.0.0.1:9090", "https://127.0.0.1:8080", "http://evil.example", "null", ""] {
            assert!(of_a_page(Some(ours), Some(origin)), "{origin}");
        }
        assert!(of_a_page(Some("evil.example:8080"), None));
        assert!(of_a_page(None, None));
    }
}
