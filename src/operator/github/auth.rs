//! Who are we to GitHub? A token from a file, read anew for each call so that it can be rotated, or a GitHub App, whose
//! installation tokens are minted on demand, kept in memory only and renewed before they end, and whose key is read
//! anew when GitHub refuses it.

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
use super::wire::{InstallationBody, InstallationTokenRequest, TokenBody};
use crate::github::errors::SetupError;
use crate::ports::github::{GitHubError, Scope};

/// GitHub's clock may be behind ours (their advice: one minute).
const ISSUED_BEFORE: Duration = Duration::from_secs(60);
/// GitHub refuses more than ten minutes from its own now; this leaves a minute for its clock.
const VALID_FOR: Duration = Duration::from_secs(540);
/// An installation token lasts one hour; a call started with it must still finish.
const RENEW_BEFORE_END: Duration = Duration::from_secs(300);

/// All that our calls need: runners of repositories, those of organisations, and reading runs.
pub(super) const NEEDED: [(&str, &str); 3] =
    [("administration", "write"), ("organization_self_hosted_runners", "write"), ("actions", "read")];

/// The level of a permission where failed jobs are to be run again.
fn level_of(name: &str, usual: &'static str, reruns: bool) -> &'static str {
    if reruns && name == "actions" { "write" } else { usual }
}

/// What proves to GitHub who asks.
pub enum Credential {
    /// No header at all: for a server that asks for none.
    None,
    /// A file that holds a token and nothing else.
    TokenFile(PathBuf),
    /// A GitHub App, installed where runners are wanted.
    App(AppKey),
}

/// An App and its private key. The key is never printed.
pub struct AppKey {
    app_id: String,
    /// Where a new key is found once GitHub refuses the one in use.
    file: Option<PathBuf>,
    /// The one in use.
    signing: RwLock<Arc<SigningKey>>,
}

/// A private key, and the text it was read from.
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
    /// Reads the App's private key as GitHub hands it out (PEM, RSA).
    ///
    /// # Errors
    /// When the text is no such key; the error never repeats it.
    pub fn from_pem(app_id: impl Into<String>, pem: &[u8]) -> Result<Self, SetupError> {
        let signing = RwLock::new(Arc::new(SigningKey::of(pem.to_vec())?));
        Ok(Self { app_id: app_id.into(), file: None, signing })
    }

    /// The same, read from this file again when GitHub refuses it: a key is rotated by replacing the file, and the old
    /// one works until it is deleted at GitHub.
    #[must_use]
    pub fn kept_in(self, file: impl Into<PathBuf>) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    fn current(&self) -> Arc<SigningKey> {
        Arc::clone(&self.signing.read().expect("nobody panics while holding the App's key"))
    }

    /// The key of the file, where it is another than the one that was refused. It is the one in use from now on; a file
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

    /// The assertion of being this App by the key in use.
    pub(super) fn signed(&self, now: Timestamp) -> Result<String, GitHubError> {
        self.assertion(&self.current(), now)
    }

    /// The assertion of being this App, good for some minutes.
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
            Self::TokenFile(path) => f.debug_tuple("TokenFile").field(path).finish(),
            Self::App(key) => f.debug_tuple("App").field(key).finish(),
        }
    }
}

/// Installation tokens, one per account: an installation belongs to an account, not to a repository.
type Installations = BTreeMap<String, Arc<Mutex<Option<TokenBody>>>>;

/// A credential with what it has cached.
pub(super) struct Authenticator {
    credential: Credential,
    installations: Mutex<Installations>,
    /// Whether failed jobs are to be run again.
    reruns: bool,
}

impl Authenticator {
    pub(super) fn new(credential: Credential) -> Self {
        Self { credential, installations: Mutex::new(BTreeMap::new()), reruns: false }
    }

    /// Asks for the permission to run failed jobs again, or not.
    pub(super) fn reruns(&mut self, reruns: bool) {
        self.reruns = reruns;
    }

    /// The secret for a call about this scope.
    pub(super) async fn secret(&self, client: &Client, scope: &Scope) -> Result<Option<String>, GitHubError> {
        match &self.credential {
            Credential::None => Ok(None),
            Credential::TokenFile(path) => read_token(path).await.map(Some),
            Credential::App(key) => self.installation_token(client, key, scope).await.map(Some),
        }
    }

    /// The App's proof of being itself, if the credential is an App.
    pub(super) fn assertion(&self, now: Timestamp) -> Option<Result<String, GitHubError>> {
        match &self.credential {
            Credential::None | Credential::TokenFile(_) => None,
            Credential::App(key) => Some(key.assertion(&key.current(), now)),
        }
    }

    /// Whose budget at GitHub a call is counted on: an App has one for each account it is installed in.
    pub(super) fn account(&self, scope: &Scope) -> String {
        match &self.credential {
            Credential::None | Credential::TokenFile(_) => String::new(),
            Credential::App(_) => owner(scope).to_ascii_lowercase(),
        }
    }

    /// Forgets the cached token of this scope's account: GitHub refused it before its time (uninstalled, rotated).
    pub(super) async fn forget(&self, scope: &Scope) {
        let slot = self.slot(scope).await;
        *slot.lock().await = None;
    }

    async fn slot(&self, scope: &Scope) -> Arc<Mutex<Option<TokenBody>>> {
        let mut installations = self.installations.lock().await;
        Arc::clone(installations.entry(owner(scope).to_ascii_lowercase()).or_default())
    }

    /// One minting per account at a time; other accounts are not held up by a slow one.
    async fn installation_token(
        &self,
        client: &Client,
        key: &AppKey,
        scope: &Scope,
    ) -> Result<String, GitHubError> {
        let slot = self.slot(scope).await;
        let mut cached = slot.lock().await;
        let now = (client.clock)();
        if let Some(token) = cached.as_ref().filter(|t| now + RENEW_BEFORE_END < t.expires_at) {
            return Ok(token.token.clone());
        }
        *cached = None;
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
    let id = installation.id.to_string();
    let url = address(client, &["app", "installations", &id, "access_tokens"])?;
    let permissions = narrowed(&installation.permissions, reruns);
    let mut question = Question::new(Call::MintToken, Method::POST, url);
    if !permissions.is_empty() {
        question = question.with_body(&InstallationTokenRequest { permissions });
    }
    client.ask_json(&question, Some(assertion)).await
}

/// No more than is needed, however much the App was granted; and no more than was granted, which GitHub would refuse.
fn narrowed(granted: &BTreeMap<String, String>, reruns: bool) -> BTreeMap<&'static str, &'static str> {
    let level = |needed, granted: &str| if granted == "read" { "read" } else { needed };
    let needed = NEEDED.map(|(name, usual)| (name, level_of(name, usual, reruns)));
    // By which a commit is seen to be in its branch: classes that keep directories need it, and others do not miss it.
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
