//! GitHub Apps: registered from a manifest, installed in an account, and the tokens of their installations.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::State;
use super::types::Refusal;

/// How long the code of a redirect is valid (GitHub's documentation: one hour).
const CODE_LIFETIME: Duration = Duration::from_secs(3600);
/// The same lifetime as GitHub's.
const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);

/// The contents of a manifest, as far as they matter here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The App's name; people may change it on GitHub's page.
    pub name: String,
    /// Its home page.
    pub url: String,
    /// The address to which the browser is redirected with the code.
    pub redirect_url: String,
    /// Its permissions where it is installed: name and level.
    pub default_permissions: BTreeMap<String, String>,
}

/// An App of a person or an organisation.
#[derive(Clone, Serialize, Deserialize)]
pub struct App {
    /// GitHub's number.
    pub id: u64,
    /// Its name in URLs.
    pub slug: String,
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner: String,
    /// Its permissions.
    pub permissions: BTreeMap<String, String>,
    /// The public half of its key: DER, in base64.
    pub(in crate::github) public_key: String,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("id", &self.id).field("slug", &self.slug).finish_non_exhaustive()
    }
}

/// An App in an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installation {
    /// GitHub's number.
    pub id: u64,
    /// The App.
    pub app: u64,
    /// The account.
    pub account: String,
    /// Its granted permissions.
    pub permissions: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Promise {
    owner: String,
    manifest: Manifest,
    expires_at: Timestamp,
}

#[derive(Clone, Serialize, Deserialize)]
struct InstallationToken {
    value: String,
    account: String,
    expires_at: Timestamp,
}

/// All Apps.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Apps {
    codes: BTreeMap<String, Promise>,
    apps: BTreeMap<u64, App>,
    installations: BTreeMap<u64, Installation>,
    tokens: Vec<InstallationToken>,
}

impl fmt::Debug for Apps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apps").field("apps", &self.apps).finish_non_exhaustive()
    }
}

impl State {
    /// Submits a manifest on the page of an account, as a person does: `code` must be unguessable.
    ///
    /// # Errors
    /// A manifest that GitHub would not accept.
    pub fn propose_app(
        &mut self,
        owner: &str,
        manifest: Manifest,
        code: String,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let taken = self.apps.apps.values().any(|app| app.slug == slug(&manifest.name));
        if manifest.name.is_empty() || manifest.name.chars().count() > 34 || taken {
            return Err(Refusal::Invalid(format!(
                "name {:?} must be free and have 1 to 34 characters",
                manifest.name
            )));
        }
        let promise = Promise { owner: owner.to_owned(), manifest, expires_at: now + CODE_LIFETIME };
        self.apps.codes.insert(code, promise);
        self.changed();
        Ok(())
    }

    /// Creates the App of a code, which is spent by that.
    ///
    /// # Errors
    /// A code that is unknown, spent or too old.
    pub fn convert_manifest(
        &mut self,
        code: &str,
        public_key: String,
        now: Timestamp,
    ) -> Result<App, Refusal> {
        let promise = self.apps.codes.remove(code).filter(|promise| now < promise.expires_at);
        let Promise { owner, manifest, .. } = promise.ok_or(Refusal::NotFound)?;
        let id = self.fresh_id();
        let app = App {
            id,
            slug: slug(&manifest.name),
            name: manifest.name,
            owner,
            permissions: manifest.default_permissions,
            public_key,
        };
        self.apps.apps.insert(id, app.clone());
        Ok(app)
    }

    /// Installs an App in its owner's account, as a person does on its page.
    ///
    /// # Errors
    /// An App that does not exist.
    pub fn install_app(&mut self, slug: &str) -> Result<Installation, Refusal> {
        let app = self.apps.apps.values().find(|app| app.slug == slug).cloned().ok_or(Refusal::NotFound)?;
        let known = self.apps.installations.values().find(|one| one.app == app.id).cloned();
        let id = known.map_or_else(|| self.fresh_id(), |one| one.id);
        let installation = Installation { id, app: app.id, account: app.owner, permissions: app.permissions };
        self.apps.installations.insert(id, installation.clone());
        self.changed();
        Ok(installation)
    }

    /// Returns the App of this number.
    #[must_use]
    pub fn app(&self, id: u64) -> Option<&App> {
        self.apps.apps.get(&id)
    }

    /// Lists the installations of an App.
    pub fn installations_of(&self, app: u64) -> impl Iterator<Item = &Installation> {
        self.apps.installations.values().filter(move |one| one.app == app)
    }

    /// Mints a token of an installation; `value` must be unguessable.
    ///
    /// # Errors
    /// An installation that is not this App's, or a permission that it was not granted.
    pub fn installation_token(
        &mut self,
        app: u64,
        id: u64,
        wanted: &BTreeMap<String, String>,
        value: String,
        now: Timestamp,
    ) -> Result<Timestamp, Refusal> {
        let installation = self.installations_of(app).find(|one| one.id == id).ok_or(Refusal::NotFound)?;
        let lacks = wanted.iter().find(|(name, level)| {
            !installation.permissions.get(*name).is_some_and(|granted| covers(granted, level))
        });
        if let Some((name, _)) = lacks {
            return Err(Refusal::Invalid(format!("the permission {name:?} was not granted")));
        }
        let expires_at = now + TOKEN_LIFETIME;
        let account = installation.account.clone();
        self.apps.tokens.retain(|token| now < token.expires_at);
        self.apps.tokens.push(InstallationToken { value, account, expires_at });
        self.changed();
        Ok(expires_at)
    }

    /// Returns whether a token is one of an installation in this account.
    #[must_use]
    pub fn token_reaches(&self, value: &str, account: &str) -> bool {
        let reaches = |token: &InstallationToken| {
            token.value == value && self.now < token.expires_at && token.account.eq_ignore_ascii_case(account)
        };
        self.apps.tokens.iter().any(reaches)
    }
}

/// Returns whether the granted level is at least the requested one.
fn covers(granted: &str, asked: &str) -> bool {
    granted == asked || granted == "write" && asked == "read"
}

/// Formats a name as GitHub does in URLs.
fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(plain).collect()
}
