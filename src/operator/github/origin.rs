//! The addresses of a GitHub. Its API and its web pages have different addresses, and only the first is configured.

use reqwest::Url;

/// The checked address of the API, and the web address derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiUrl {
    api: Url,
    web: Url,
}

/// `github.api_url` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "github.api_url {value:?} {problem}; give it like https://api.github.com or https://github.example.com/api/v3"
)]
pub struct ApiUrlError {
    value: String,
    problem: &'static str,
}

impl ApiUrl {
    /// Parses an API address. Plain `http` is accepted only on loopback: a token would cross the network in clear.
    ///
    /// # Errors
    /// Anything but an absolute `http(s)` URL without credentials, query and fragment.
    pub fn parse(value: &str) -> Result<Self, ApiUrlError> {
        let fail = |problem| ApiUrlError { value: value.to_owned(), problem };
        let mut api = Url::parse(value).map_err(|_| fail("is not a URL"))?;
        if !api.username().is_empty() || api.password().is_some() {
            // The value contains a secret then, so it is not repeated.
            return Err(ApiUrlError {
                value: "(hidden)".to_owned(),
                problem: "must not carry a user or password",
            });
        }
        match api.scheme() {
            "https" => {}
            "http" if is_loopback(&api) => {}
            "http" => return Err(fail("is not https")),
            _ => return Err(fail("is neither https nor http")),
        }
        if api.host_str().is_none() {
            return Err(fail("has no host"));
        }
        if api.query().is_some() || api.fragment().is_some() {
            return Err(fail("must not have a query or fragment"));
        }
        let path = api.path().trim_end_matches('/').to_owned();
        api.set_path(&path);
        let web = web_url(&api, &path).ok_or_else(|| fail("has a host that gives no web address"))?;
        Ok(Self { api, web })
    }

    /// Returns the API's address, such as `https://api.github.com`, without a trailing slash in its path.
    #[must_use]
    pub fn api(&self) -> &Url {
        &self.api
    }

    /// Returns the web address with which runners are configured, without a trailing slash.
    #[must_use]
    pub fn web(&self) -> &str {
        self.web.as_str().trim_end_matches('/')
    }

    /// Returns whether this GitHub is on this machine (the stand-in).
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.api)
    }

    /// Returns an address below the API's, each segment percent-encoded; `None` if a segment would escape its position.
    #[must_use]
    pub fn join(&self, segments: &[&str]) -> Option<Url> {
        let mut url = self.api.clone();
        if segments.iter().any(|s| matches!(*s, "" | "." | "..")) {
            return None;
        }
        url.path_segments_mut().ok()?.pop_if_empty().extend(segments);
        Some(url)
    }
}

/// Returns the web address of an API: Enterprise Server has its API under `/api/v3`; github.com and `*.ghe.com` on a
/// host `api.…`; the stand-in has one address for both.
fn web_url(api: &Url, path: &str) -> Option<Url> {
    let mut web = api.clone();
    match path.strip_suffix("/api/v3") {
        Some(prefix) => web.set_path(prefix),
        None => {
            if let Some(host) = api.host_str().and_then(|h| h.strip_prefix("api.")) {
                web.set_host(Some(host)).ok()?;
            }
        }
    }
    Some(web)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::ApiUrl;

    #[test]
    fn the_web_address_follows_from_the_api_address() {
        let cases = [
            ("https://api.github.com", "https://github.com"),
            ("https://api.github.com/", "https://github.com"),
            ("https://ghes.example.com/api/v3", "https://ghes.example.com"),
            ("https://ghes.example.com:8443/api/v3/", "https://ghes.example.com:8443"),
            ("https://api.octo.ghe.com", "https://octo.ghe.com"),
            ("http://127.0.0.1:4711", "http://127.0.0.1:4711"),
            ("http://[::1]:4711/", "http://[::1]:4711"),
        ];
        for (api, web) in cases {
            assert_eq!(ApiUrl::parse(api).unwrap().web(), web, "{api}");
        }
    }

    #[test]
    fn an_address_that_would_leak_or_lose_the_token_is_refused() {
        for bad in
            ["api.github.com", "ftp://x", "http://example.com", "https://u:hunter2@x", "https://x/?q=1"]
        {
            let error = ApiUrl::parse(bad).unwrap_err().to_string();
            assert!(error.contains("github.api_url"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn segments_are_encoded_and_cannot_climb() {
        let origin = ApiUrl::parse("https://ghes.example.com/api/v3").unwrap();
        let url = origin.join(&["repos", "a b", "c/d?e"]).unwrap();
        assert_eq!(url.as_str(), "https://ghes.example.com/api/v3/repos/a%20b/c%2Fd%3Fe");
        assert_eq!(origin.join(&["repos", "..", "x"]), None);
    }
}
