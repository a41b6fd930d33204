//! Creates a GitHub App with GitHub's manifest flow: a browser sends a manifest to GitHub's page, a person agrees, the
//! browser returns with a code, and the code is exchanged for the App and its key. Afterwards the App's own credentials
//! read its installations and permissions.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::{AppKey, address};
use super::client::{Client, Question};
use super::errors::{Call, unusable};
use super::origin::ApiUrl;
use crate::github::client::Clock;
use crate::github::errors::SetupError;
use crate::ports::GitHubError;

/// The list of installations of a private App has one entry; this is GitHub's longest page.
const PAGE_SIZE: &str = "100";

/// Returns the permissions that an App needs in an installation, in the form of an App's manifest.
#[must_use]
pub fn permissions(organization: bool) -> BTreeMap<&'static str, &'static str> {
    let runners = if organization { "organization_self_hosted_runners" } else { "administration" };
    BTreeMap::from([(runners, "write"), ("actions", "read")])
}

/// Returns the needed permissions that were not granted, such as `administration: write`.
#[must_use]
pub fn lacking(organization: bool, granted: &BTreeMap<String, String>) -> Vec<String> {
    let covers = |granted: &str, needed: &str| granted == needed || (granted, needed) == ("write", "read");
    let missing =
        |(name, needed): &(&str, &str)| !granted.get(*name).is_some_and(|given| covers(given, needed));
    permissions(organization)
        .into_iter()
        .filter(missing)
        .map(|(name, level)| format!("{name}: {level}"))
        .collect()
}

/// An App that GitHub has just created, with its private key, which GitHub returns only once and which is never
/// printed.
pub struct NewApp {
    /// GitHub's number: `github.app_id`.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its page on GitHub.
    pub page: String,
    /// The private key (PEM).
    pub pem: String,
}

impl fmt::Debug for NewApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewApp").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// An installation of an App in an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The account.
    pub account: String,
    /// The granted permissions.
    pub permissions: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct AppBody {
    id: u64,
    name: String,
    html_url: String,
    pem: String,
}

#[derive(Deserialize)]
struct InstalledBody {
    account: AccountBody,
    #[serde(default)]
    permissions: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct AccountBody {
    login: String,
}

/// The wanted properties of an App, for its manifest.
#[derive(Clone, Debug)]
pub struct AppWish<'a> {
    /// The App's name, unique on GitHub and at most 34 characters long.
    pub name: &'a str,
    /// The organisation that shall own it; `None` for the person's own account.
    pub organization: Option<&'a str>,
    /// Whether runners are registered for the organisation.
    pub organization_runners: bool,
    /// The address to which GitHub redirects the browser with the code.
    pub redirect_url: &'a str,
    /// The unguessable state that the redirect returns with it.
    pub state: &'a str,
}

/// The GitHub on which an App is created.
pub struct AppRegistration {
    client: Client,
}

impl AppRegistration {
    /// Creates a client for the GitHub at this address; each call has `deadline` as its timeout.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(api_url: ApiUrl, deadline: Duration, clock: Clock) -> Result<Self, SetupError> {
        Ok(Self { client: Client::new(api_url, deadline, clock)? })
    }

    /// Returns GitHub's page for manifests, and the manifest.
    #[must_use]
    pub fn proposal(&self, wish: &AppWish<'_>) -> (String, Value) {
        let web = self.client.origin.web();
        let whose = wish.organization.map_or_else(String::new, |org| format!("/organizations/{org}"));
        let page = format!("{web}{whose}/settings/apps/new?state={}", wish.state);
        let home = wish.organization.map_or_else(|| web.to_owned(), |org| format!("{web}/{org}"));
        let manifest = json!({
            "name": wish.name,
            "url": home,
            // The operator polls, as it cannot be reached from outside.
            "hook_attributes": {"url": home, "active": false},
            "redirect_url": wish.redirect_url,
            "public": false,
            "default_permissions": permissions(wish.organization_runners),
            "default_events": [],
        });
        (page, manifest)
    }

    /// Exchanges the code of the redirect, which is valid once and for an hour.
    ///
    /// # Errors
    /// GitHub's error; [`GitHubError::NotFound`] for a code that is used, too old or invalid.
    pub async fn convert(&self, code: &str) -> Result<NewApp, GitHubError> {
        let url = address(&self.client, &["app-manifests", code, "conversions"])?;
        let question = Question::new(Call::MintToken, Method::POST, url);
        let body: AppBody = self.client.ask_json(&question, None).await?;
        if body.pem.is_empty() {
            return Err(unusable("the conversion of the manifest", "the answer holds no key"));
        }
        Ok(NewApp { id: body.id, name: body.name, page: body.html_url, pem: body.pem })
    }

    /// Returns the App's installations, read with the App's own credentials.
    ///
    /// # Errors
    /// GitHub's error.
    pub async fn installations(&self, key: &AppKey) -> Result<Vec<Installed>, GitHubError> {
        let mut url: Url = address(&self.client, &["app", "installations"])?;
        url.query_pairs_mut().append_pair("per_page", PAGE_SIZE);
        let question = Question::new(Call::Read, Method::GET, url);
        let assertion = key.signed((self.client.clock)())?;
        let all: Vec<InstalledBody> = self.client.ask_json(&question, Some(&assertion)).await?;
        let shown =
            |one: InstalledBody| Installed { account: one.account.login, permissions: one.permissions };
        Ok(all.into_iter().map(shown).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_granted_is_named_and_more_than_needed_is_fine() {
        let granted = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(name, level)| ((*name).to_owned(), (*level).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let enough = granted(&[("administration", "write"), ("actions", "write"), ("metadata", "read")]);
        assert_eq!(lacking(false, &enough), Vec::<String>::new());
        let little = granted(&[("administration", "read"), ("actions", "read")]);
        assert_eq!(lacking(false, &little), ["administration: write"]);
        assert_eq!(lacking(true, &enough), ["organization_self_hosted_runners: write"]);
        assert_eq!(lacking(true, &BTreeMap::new()).len(), 2);
    }
}
