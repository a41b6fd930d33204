//! The service's address and token for a scope: had in exchange for a registration token, kept in memory, and renewed
//! before the token ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::super::auth::address;
use super::super::client::{ServiceCall, credential};
use super::super::verbs::RestGitHub;
use super::refusals::{Verb, accept};
use super::wire::{TenantBody, TenantRequest};
use super::{addresses, parsed, unusable};
use crate::ports::github::{GitHub as _, Scope};
use crate::ports::scale_sets::ScaleSetError;

/// A token is not used in the last minute of its life: a call that began with it must still finish.
const RENEW_BEFORE_END: Duration = Duration::from_secs(60);
/// How long a token is used that does not tell its end.
const UNREADABLE: Duration = Duration::from_secs(300);

/// The service for one scope. The token is never printed.
pub(super) struct Tenant {
    pub(super) url: Url,
    pub(super) token: String,
    /// From when on it is renewed.
    until: Timestamp,
}

/// The kept tenant of a scope, which one caller at a time renews.
type Slot = Arc<Mutex<Option<Arc<Tenant>>>>;

/// The services of all scopes.
#[derive(Default)]
pub(super) struct Tenants(Mutex<BTreeMap<Scope, Slot>>);

impl Tenants {
    /// Returns the service for a scope, with a token that is good for some time.
    pub(super) async fn get(&self, github: &RestGitHub, scope: &Scope) -> Result<Arc<Tenant>, ScaleSetError> {
        let slot = self.slot(scope).await;
        let mut kept = slot.lock().await;
        if let Some(tenant) = kept.as_ref().filter(|tenant| (github.client.clock)() < tenant.until) {
            return Ok(Arc::clone(tenant));
        }
        *kept = None;
        let tenant = Arc::new(exchange(github, scope).await?);
        *kept = Some(Arc::clone(&tenant));
        Ok(tenant)
    }

    /// Forgets a service whose token was refused, unless it was renewed meanwhile.
    pub(super) async fn forget(&self, scope: &Scope, refused: &Arc<Tenant>) {
        let slot = self.slot(scope).await;
        let mut kept = slot.lock().await;
        if kept.as_ref().is_some_and(|tenant| Arc::ptr_eq(tenant, refused)) {
            *kept = None;
        }
    }

    async fn slot(&self, scope: &Scope) -> Slot {
        Arc::clone(self.0.lock().await.entry(scope.clone()).or_default())
    }
}

/// Exchanges a fresh registration token for the service's address and token.
async fn exchange(github: &RestGitHub, scope: &Scope) -> Result<Tenant, ScaleSetError> {
    let client = &github.client;
    let registration = github.registration_token(scope).await?;
    let url = github.runner_url(scope);
    let body = TenantRequest { url: &url, runner_event: "register" };
    let call = ServiceCall {
        method: Method::POST,
        url: address(client, &["actions", "runner-registration"])?,
        body: Some(serde_json::to_vec(&body).expect("our own request bodies have only string keys")),
        credential: credential("RemoteAuth", &registration.value)?,
        headers: HeaderMap::new(),
        deadline: client.deadline,
    };
    let answer = client.call_service(call).await?;
    if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&answer.status) {
        // ARC asks again then: a new token is not known everywhere at once.
        return Err(unusable(
            &answer,
            "GitHub does not accept the registration token that it has just given",
        ));
    }
    let now = (client.clock)();
    let answer = accept(Verb::Exchange, answer, now)?;
    let body: TenantBody = parsed(&answer)?;
    if body.token.is_empty() {
        return Err(unusable(&answer, "the answer holds an empty token"));
    }
    let url = addresses::trusted(&client.origin, &answer.what, &body.url)?;
    let until = end_of(&body.token).and_then(|end| end.checked_sub(RENEW_BEFORE_END).ok());
    Ok(Tenant { url, until: until.unwrap_or(now + UNREADABLE), token: body.token })
}

/// Returns when a token ends, if it is a JWT that tells it. Its signature is the service's business.
fn end_of(token: &str) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let payload = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    Timestamp::from_second(claims.exp).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_token_is_read_from_it_if_it_tells() {
        let jwt = |claims: &str| format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(end_of(&jwt(r#"{"exp": 1772366460}"#)), Timestamp::from_second(1_772_366_460).ok());
        for odd in ["hunter2", "a.b.c", &jwt("{}"), &jwt(r#"{"exp": 9e99}"#), ""] {
            assert_eq!(end_of(odd), None);
        }
    }
}
