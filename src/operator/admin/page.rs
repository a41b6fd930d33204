//! The status page: one document that is compiled into this program and may load and run only itself, its data and its
//! icon.

use std::sync::LazyLock;

use axum::http::{HeaderName, header};
use axum::response::{Html, IntoResponse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The page: markup, style and script.
const PAGE: &str = concat!(
    include_str!("page/head.html"),
    "<style>",
    include_str!("page/page.css"),
    "</style>\n",
    include_str!("page/body.html"),
    "<script>",
    include_str!("page/format.js"),
    include_str!("page/rows.js"),
    include_str!("page/summary.js"),
    include_str!("page/tables.js"),
    include_str!("page/page.js"),
    "</script>\n</body>\n</html>\n",
);
/// Its icon.
const ICON: &str = include_str!("page/icon.svg");

/// The content security policy: its own style and script by their digests, the data and the icon of this server,
/// nothing else.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest(between(PAGE, "<style>", "</style>")),
        digest(between(PAGE, "<script>", "</script>")),
    )
});

/// Returns the text between two tags that each occur once.
fn between<'a>(page: &'a str, open: &str, close: &str) -> &'a str {
    let (_, rest) = page.split_once(open).expect("the page has this tag");
    rest.split_once(close).expect("and it is closed").0
}

/// Returns the digest of a text in the form of a content security policy.
fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// Adds headers to the given ones: no caching, no sniffing, no referrer.
pub(super) fn sealed<const N: usize>(
    more: [(HeaderName, &'static str); N],
) -> impl axum::response::IntoResponseParts {
    let mut headers = axum::http::HeaderMap::new();
    let always = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in always.into_iter().chain(more) {
        headers.insert(name, axum::http::HeaderValue::from_static(value));
    }
    headers
}

pub(super) async fn page() -> impl IntoResponse {
    (sealed([]), [(header::CONTENT_SECURITY_POLICY, POLICY.as_str())], Html(PAGE))
}

pub(super) async fn icon() -> impl IntoResponse {
    (
        sealed([(header::CONTENT_TYPE, "image/svg+xml")]),
        [(header::CONTENT_SECURITY_POLICY, "default-src 'none'")],
        ICON,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_file_that_asks_for_nothing_but_its_data() {
        for tag in ["<style>", "</style>", "<script>", "</script>"] {
            assert_eq!(PAGE.matches(tag).count(), 1, "{tag}");
        }
        for outside in
            ["http:", "src=", "@import", "url(", "style=\"", "onclick", "innerHTML", "eval(", "import "]
        {
            let found = PAGE.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(outside), "{outside}");
        }
        // AWS's console is the only external address in the page, and a person follows it by a link.
        assert_eq!(PAGE.matches("https:").count(), PAGE.matches("https://${region}.console.").count());
        assert_eq!(PAGE.matches("fetch(").count(), 1);
    }

    #[test]
    fn the_policy_names_what_stands_in_the_page() {
        assert_eq!(digest(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert!(POLICY.starts_with("default-src 'none'; style-src 'sha256-"), "{}", *POLICY);
        assert!(!POLICY.contains("unsafe"), "{}", *POLICY);
    }
}
