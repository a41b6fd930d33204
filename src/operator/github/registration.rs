//! How is a GitHub App made? By GitHub's manifest flow: a browser brings a manifest to GitHub's page, a person agrees,
//! the browser comes back with a code, and the code is exchanged for the App and its key. Afterwards the App itself is
//! asked where it is installed and what it may do.

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

/// An account's list of installations is one entry long for an App of its own; GitHub's longest page.
const PAGE_SIZE: &str = "100";

/// What an App needs where it is installed, as an App's manifest names it.
#[must_use]
pub fn permissions(organization: bool) -> BTreeMap<&'static str, &'static str> {
    let runners = if organization { "organization_self_hosted_runners" } else { "administration" };
    BTreeMap::from([(runners, "write"), ("actions", "read")])
}

/// What is needed and was not granted: `administration: write`.
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

/// An App as GitHub has just made it, with its private key, which is told once and never printed.
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

/// An App in an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The account.
    pub account: String,
    /// What was granted there.
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

/// What the manifest asks for.
#[derive(Clone, Debug)]
pub struct AppWish<'a> {
    /// The App's name, unique among all of GitHub's and at most 34 characters.
    pub name: &'a str,
    /// The organisation it is to belong to; none for the person's own account.
    pub organization: Option<&'a str>,
    /// Whether runners are registered for the organisation.
    pub organization_runners: bool,
    /// Where GitHub sends the browser with the code.
    pub redirect_url: &'a str,
    /// What comes back with it: unguessable.
    pub state: &'a str,
}

/// One GitHub on which an App is made.
pub struct AppRegistration {
    client: Client,
}

impl AppRegistration {
    /// For the GitHub at this address; each call has `deadline` to be answered.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(api_url: ApiUrl, deadline: Duration, clock: Clock) -> Result<Self, SetupError> {
        Ok(Self { client: Client::new(api_url, deadline, clock)? })
    }

    /// The page of GitHub that takes the manifest, and the manifest.
    #[must_use]
    pub fn proposal(&self, wish: &AppWish<'_>) -> (String, Value) {
        let web = self.client.origin.web();
        let whose = wish.organization.map_or_else(String::new, |org| format!("/organizations/{org}"));
        let page = format!("{web}{whose}/settings/apps/new?state={}", wish.state);
        let home = wish.organization.map_or_else(|| web.to_owned(), |org| format!("{web}/{org}"));
        let manifest = json!({
            "name": wish.name,
            "url": home,
            // The operator polls; it has no way in from outside.
            "hook_attributes": {"url": home, "active": false},
            "redirect_url": wish.redirect_url,
            "public": false,
            "default_permissions": permissions(wish.organization_runners),
            "default_events": [],
        });
        (page, manifest)
    }

    /// Exchanges the code of the redirect, which is good for an hour and once.
    ///
    /// # Errors
    /// What GitHub answered; [`GitHubError::NotFound`] for a code that is spent, too old or made up.
    pub async fn convert(&self, code: &str) -> Result<NewApp, GitHubError> {
        let url = address(&self.client, &["app-manifests", code, "conversions"])?;
        let question = Question::new(Call::MintToken, Method::POST, url);
        let body: AppBody = self.client.ask_json(&question, None).await?;
        if body.pem.is_empty() {
            return Err(unusable("the conversion of the manifest", "the answer holds no key"));
        }
        Ok(NewApp { id: body.id, name: body.name, page: body.html_url, pem: body.pem })
    }

    /// Where the App is installed, asked in its own name.
    ///
    /// # Errors
    /// What GitHub answered.
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
