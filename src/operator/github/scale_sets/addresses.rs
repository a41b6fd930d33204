//! The addresses of the service: where a call goes, and whether a credential may be sent there.

use reqwest::Url;

use super::super::origin::ApiUrl;
use crate::ports::scale_sets::{ScaleSetError, Session};

/// The path of sets.
pub(super) const SETS: &str = "_apis/runtime/runnerscalesets";
/// The path of runner groups.
pub(super) const GROUPS: &str = "_apis/runtime/runnergroups/";
/// The path of runners.
pub(super) const AGENTS: &str = "_apis/distributedtask/pools/0/agents";
/// The version of the service's interface.
const VERSION: (&str, &str) = ("api-version", "6.0-preview");

/// Returns an address of the service that may get a credential: HTTPS, or on this machine as GitHub's API is.
pub(super) fn trusted(origin: &ApiUrl, what: &str, text: &str) -> Result<Url, ScaleSetError> {
    let fail = |problem: &str| ScaleSetError::Unreachable(format!("{what}: GitHub answered {problem}"));
    if text.is_empty() {
        return Err(fail("no address"));
    }
    // The text may hold a secret and is not repeated.
    let url = Url::parse(text).map_err(|_| fail("with something that is no address"))?;
    match url.scheme() {
        "https" if url.host_str().is_some() => Ok(url),
        "http" if origin.is_loopback() && ApiUrl::parse(&without_query(&url)).is_ok() => Ok(url),
        _ => Err(fail("with an address that is not https: no credential is sent there")),
    }
}

/// Returns the address of a call below the service's.
pub(super) fn below(base: &Url, path: &str, query: &[(&str, String)]) -> Result<Url, ScaleSetError> {
    let mut url = base.clone();
    let unusable = |()| ScaleSetError::Unreachable("the service's address can have no path".to_owned());
    // An empty segment at the end stands for a slash there.
    url.path_segments_mut().map_err(unusable)?.pop_if_empty().extend(path.split('/'));
    let pairs = query.iter().map(|(name, value)| (*name, value.as_str()));
    url.query_pairs_mut().extend_pairs(pairs).extend_pairs([VERSION]);
    Ok(url)
}

/// Returns the address of a session's queue, after a message or of one.
pub(super) fn queue(
    origin: &ApiUrl,
    session: &Session,
    last: Option<u64>,
    message: Option<u64>,
) -> Result<Url, ScaleSetError> {
    let mut url = trusted(origin, "the session's queue", &session.queue_url)?;
    if let Some(id) = message {
        let unusable = |()| ScaleSetError::Unreachable("the queue's address can have no path".to_owned());
        url.path_segments_mut().map_err(unusable)?.pop_if_empty().push(&id.to_string());
    }
    if let Some(last) = last {
        url.query_pairs_mut().append_pair("lastMessageId", &last.to_string());
    }
    Ok(url)
}

fn without_query(url: &Url) -> String {
    let mut bare = url.clone();
    bare.set_query(None);
    bare.into()
}
