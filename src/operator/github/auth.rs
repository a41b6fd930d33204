//! Authentication at GitHub: with a token from a file, which is read anew for each call so that it can be rotated, or
//! as a GitHub App, whose installation tokens are minted on demand, kept only in memory and renewed before they expire,
//! and whose key is read anew when GitHub refuses it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::Method;
use serde::Serialize;
use tokio::sync::Mutex;

use super::client::{Client, Question};
use super::errors::Call;
use super::paging::PAGE_SIZE;
use super::wire::{InstallationBody, InstallationTokenRequest, ListedInstallation, TokenBody};
use crate::github::errors::SetupError;
use crate::ports::github::{GitHubError, Scope};

/// GitHub's clock may be behind ours (its documentation advises one minute).
const ISSUED_BEFORE: Duration = Duration::from_secs(60);
/// GitHub refuses assertions that end more than ten minutes after its own now; this leaves a minute for its clock.
const VALID_FOR: Duration = Duration::from_secs(540);
/// An installation token lasts one hour; a call started with it must still finish.
const RENEW_BEFORE_END: Duration = Duration::from_secs(300);

/// The most pages of installations that are listed: 10,000 accounts.
const MAX_PAGES: u64 = 100;

/// The permissions that our calls need: runners of repositories, those of organisations, and reading runs.
pub(super) const NEEDED: [(&str, &str); 3] =
    [("administration", "write"), ("organization_self_hosted_runners", "write"), ("actions", "read")];

/// Returns the level of a permission; re-running failed jobs needs a higher one.
fn level_of(name: &str, usual: &'static str, reruns: bool) -> &'static str {
    if reruns && name == "actions" { "write" } else { usual }
}

/// The credential for GitHub.
pub enum Credential {
    /// No credential, for a server that requires none.
    None,
    /// A token.
    Token(String),
    /// A file that contains only a token.
    TokenFile(PathBuf),
    /// A GitHub App, installed where runners are registered.
    App(AppKey),
}

/// An App and its private key. The key is never printed.
pub struct AppKey {
    app_id: String,
    /// The file of a new key, read once GitHub refuses the present one.
    file: Option<PathBuf>,
    /// The present key.
    signing: RwLock<Arc<SigningKey>>,
}

/// A private key, with the text it was parsed from.
struct SigningKey {
    pem: Vec<u8>,
    key: EncodingKey,
}

impl SigningKey {
    fn of(pem: Vec<u8>) -> Result<Self, SetupError> {
        let key = EncodingKey::from_rsa_pem(&pem).map_err(|_| SetupError::AppKey)?;
        Ok(Self { pem, key })
    }
}

impl AppKey {
    /// Parses the App's private key in GitHub's form (PEM, RSA).
    ///
    /// # Errors
    /// The text is not such a key; the error never repeats it.
    pub fn from_pem(app_id: impl Into<String>, pem: &[u8]) -> Result<Self, SetupError> {
        let signing = RwLock::new(Arc::new(SigningKey::of(pem.to_vec())?));
        Ok(Self { app_id: app_id.into(), file: None, signing })
    }

    /// Sets the file from which the key is read again when GitHub refuses it: a key is rotated by replacing the file,
    /// and the old one works until it is deleted at GitHub.
    #[must_use]
    pub fn kept_in(self, file: impl Into<PathBuf>) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    fn current(&self) -> Arc<SigningKey> {
        Arc::clone(&self.signing.read().expect("nobody panics while holding the App's key"))
    }

    /// Reads the key from the file and returns it if it differs from the refused one. It is used from now on; a file
    /// without a key, perhaps half written, changes nothing.
    async fn instead_of(&self, refused: &SigningKey) -> Option<Arc<SigningKey>> {
        let file = self.file.as_ref()?;
        let read = tokio::fs::read(file).await.map_err(|error| error.to_string());
        let found = read.and_then(|pem| SigningKey::of(pem).map_err(|error| error.to_string()));
        match found {
            Ok(found) if found.pem == refused.pem => None,
            Ok(found) => {
                let found = Arc::new(found);
                *self.signing.write().expect("nobody panics while holding the App's key") = found.clone();
                tracing::info!(file = %file.display(), "GitHub refused the App's key; its file holds another, which is used from now on");
                Some(found)
            }
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "GitHub refused the App's key, and none can be read from its file; the old one is kept");
                None
            }
        }
    }

    /// Signs the App's assertion with the present key.
    pub(super) fn signed(&self, now: Timestamp) -> Result<String, GitHubError> {
        self.assertion(&self.current(), now)
    }

    /// Signs the App's assertion, which is valid for some minutes.
    fn assertion(&self, signing: &SigningKey, now: Timestamp) -> Result<String, GitHubError> {
        let claims = Claims {
            iat: (now - ISSUED_BEFORE).as_second(),
            exp: (now + VALID_FOR).as_second(),
            iss: &self.app_id,
        };
        jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &signing.key).map_err(|_| {
            GitHubError::Denied("the App's private key (github.app_key_file) cannot sign".to_owned())
        })
    }
}

#[derive(Serialize)]
struct Claims<'a> {
    iat: i64,
    exp: i64,
    iss: &'a str,
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppKey").field("app_id", &self.app_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Token(_) => f.write_str("Token"),
            Self::TokenFile(path) => f.debug_tuple("TokenFile").field(path).finish(),
            Self::App(key) => f.debug_tuple("App").field(key).finish(),
        }
    }
}

/// Installation tokens, one per account: an installation belongs to an account, not to a repository.
type Installations = BTreeMap<String, Arc<Mutex<Option<TokenBody>>>>;

/// A credential with its cached tokens.
pub(super) struct Authenticator {
    credential: Credential,
    installations: Mutex<Installations>,
    /// Whether failed jobs may be re-run.
    reruns: bool,
}

impl Authenticator {
    pub(super) fn new(credential: Credential) -> Self {
        Self { credential, installations: Mutex::new(BTreeMap::new()), reruns: false }
    }

    /// Sets whether the permission to re-run failed jobs is requested.
    pub(super) fn reruns(&mut self, reruns: bool) {
        self.reruns = reruns;
    }

    /// Returns the secret for a call in this scope.
    pub(super) async fn secret(&self, client: &Client, scope: &Scope) -> Result<Option<String>, GitHubError> {
        match &self.credential {
            Credential::None => Ok(None),
            Credential::Token(token) => Ok(Some(token.clone())),
            Credential::TokenFile(path) => read_token(path).await.map(Some),
            Credential::App(key) => self.installation_token(client, key, scope).await.map(Some),
        }
    }

    /// Signs the App's assertion, if the credential is an App.
    pub(super) fn assertion(&self, now: Timestamp) -> Option<Result<String, GitHubError>> {
        match &self.credential {
            Credential::None | Credential::Token(_) | Credential::TokenFile(_) => None,
            Credential::App(key) => Some(key.assertion(&key.current(), now)),
        }
    }

    /// Returns the account whose budget at GitHub a call counts against: an App has one for each account it is
    /// installed in.
    pub(super) fn account(&self, scope: &Scope) -> String {
        match &self.credential {
            Credential::None | Credential::Token(_) | Credential::TokenFile(_) => String::new(),
            Credential::App(_) => owner(scope).to_ascii_lowercase(),
        }
    }

    /// Drops the cached token of this scope's account: GitHub refused it early (uninstalled, rotated).
    pub(super) async fn forget(&self, scope: &Scope) {
        let slot = self.slot(scope).await;
        *slot.lock().await = None;
    }

    async fn slot(&self, scope: &Scope) -> Arc<Mutex<Option<TokenBody>>> {
        let mut installations = self.installations.lock().await;
        Arc::clone(installations.entry(owner(scope).to_ascii_lowercase()).or_default())
    }

    /// Returns the accounts in which the App is installed, each with a cached token; none where the credential is no App.
    /// An account that is suspended, or for which GitHub mints no token, is left out: it hides no other.
    pub(super) async fn accounts(&self, client: &Client) -> Result<Option<Vec<String>>, GitHubError> {
        let Credential::App(key) = &self.credential else { return Ok(None) };
        let mut accounts = Vec::new();
        for page in 1..=MAX_PAGES {
            let assertion = key.signed((client.clock)())?;
            let mut url = address(client, &["app", "installations"])?;
            url.query_pairs_mut()
                .append_pair("per_page", &PAGE_SIZE.to_string())
                .append_pair("page", &page.to_string());
            let question = Question::new(Call::Read, Method::GET, url);
            let listed: Vec<ListedInstallation> = client.ask_json(&question, Some(&assertion)).await?;
            let last = (listed.len() as u64) < PAGE_SIZE;
            for installation in listed.into_iter().filter(|one| one.suspended_at.is_none()) {
                let owner = installation.account.login.to_ascii_lowercase();
                let slot = self.slot(&Scope::Organization { owner: owner.clone() }).await;
                let mut cached = slot.lock().await;
                if fresh(cached.as_ref(), client).is_none() {
                    match mint_in(client, &assertion, &installation.installation, self.reruns).await {
                        Ok(token) => *cached = Some(token),
                        Err(error) => {
                            tracing::warn!(%owner, %error, "the repositories of an installation cannot be listed");
                            continue;
                        }
                    }
                }
                accounts.push(owner);
            }
            if last {
                break;
            }
        }
        Ok(Some(accounts))
    }

    /// Returns the installation token of an account. It is minted once at a time per account; a slow account does not
    /// hold up the others.
    async fn installation_token(
        &self,
        client: &Client,
        key: &AppKey,
        scope: &Scope,
    ) -> Result<String, GitHubError> {
        let slot = self.slot(scope).await;
        let mut cached = slot.lock().await;
        if let Some(token) = fresh(cached.as_ref(), client) {
            return Ok(token.token.clone());
        }
        *cached = None;
        let now = (client.clock)();
        let signing = key.current();
        let mut minted = mint(client, &key.assertion(&signing, now)?, scope, self.reruns).await;
        if let Err(GitHubError::Denied(_)) = &minted
            && let Some(other) = key.instead_of(&signing).await
        {
            minted = mint(client, &key.assertion(&other, now)?, scope, self.reruns).await;
        }
        let minted = minted?;
        let secret = minted.token.clone();
        *cached = Some(minted);
        Ok(secret)
    }
}

/// Returns a token that a call started with it can still use to its end.
fn fresh<'a>(token: Option<&'a TokenBody>, client: &Client) -> Option<&'a TokenBody> {
    token.filter(|token| (client.clock)() + RENEW_BEFORE_END < token.expires_at)
}

async fn mint(
    client: &Client,
    assertion: &str,
    scope: &Scope,
    reruns: bool,
) -> Result<TokenBody, GitHubError> {
    let segments: &[&str] = match scope {
        Scope::Repository { owner, name } => &["repos", owner, name, "installation"],
        Scope::Organization { owner } => &["orgs", owner, "installation"],
    };
    let find = Question::new(Call::Read, Method::GET, address(client, segments)?);
    let installation: InstallationBody = client.ask_json(&find, Some(assertion)).await?;
    mint_in(client, assertion, &installation, reruns).await
}

/// Mints the token of an installation.
async fn mint_in(
    client: &Client,
    assertion: &str,
    installation: &InstallationBody,
    reruns: bool,
) -> Result<TokenBody, GitHubError> {
    let id = installation.id.to_string();
    let url = address(client, &["app", "installations", &id, "access_tokens"])?;
    let permissions = narrowed(&installation.permissions, reruns);
    let mut question = Question::new(Call::MintToken, Method::POST, url);
    if !permissions.is_empty() {
        question = question.with_body(&InstallationTokenRequest { permissions });
    }
    client.ask_json(&question, Some(assertion)).await
}

/// Returns the needed permissions that were granted. More than needed is never requested, and GitHub would refuse more
/// than granted.
fn narrowed(granted: &BTreeMap<String, String>, reruns: bool) -> BTreeMap<&'static str, &'static str> {
    let level = |needed, granted: &str| if granted == "read" { "read" } else { needed };
    let needed = NEEDED.map(|(name, usual)| (name, level_of(name, usual, reruns)));
    // Needed to check that a commit is in its branch: only for classes that keep directories.
    let needed = needed.into_iter().chain([("contents", "read")]);
    needed.filter_map(|(name, needed)| Some((name, level(needed, granted.get(name)?)))).collect()
}

pub(super) fn address(client: &Client, segments: &[&str]) -> Result<reqwest::Url, GitHubError> {
    let refused =
        || GitHubError::Invalid(format!("{:?} names no repository or organisation", segments.join("/")));
    client.origin.join(segments).ok_or_else(refused)
}

fn owner(scope: &Scope) -> &str {
    match scope {
        Scope::Repository { owner, .. } | Scope::Organization { owner } => owner,
    }
}

async fn read_token(path: &std::path::Path) -> Result<String, GitHubError> {
    let denied =
        |problem: &str| GitHubError::Denied(format!("github.token_file {}: {problem}", path.display()));
    let text = tokio::fs::read_to_string(path).await.map_err(|e| denied(&e.to_string()))?;
    let token = text.trim();
    if token.is_empty() { Err(denied("holds no token")) } else { Ok(token.to_owned()) }
}
