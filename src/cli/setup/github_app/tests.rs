//! The whole flow, with the stand-in as GitHub and the test as browser.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use reqwest::Url;
use reqwest::redirect::Policy;
use runyard_standin::github::{Behaviour, Settings, StandIn};

use super::*;
use crate::output::format::Format;
use runyard_core::ports::GitHub;
use runyard_core::ports::github::Scope;
use runyard_operator::github::{Credential, RestGitHub};

async fn stand_in(dir: &Path) -> StandIn {
    let clock = SystemClock::new();
    let settings = Settings {
        listener: StandIn::bind(None).await.unwrap(),
        dir: Some(dir.join("github")),
        executable: "/nowhere/runyard".into(),
        clock: Arc::new(move || clock.now()),
        behaviour: Behaviour::default(),
    };
    StandIn::start(settings).await.unwrap()
}

fn asked(stand_in: &StandIn, scope: SetupScope, key_file: &Path, secret: Option<PathBuf>) -> SetupArgs {
    let args = GithubArgs {
        organization: Some("octo".to_owned()),
        scope,
        name: None,
        key_file: Some(key_file.to_owned()),
        secret_manifest: secret,
        namespace: "ci".to_owned(),
        secret_name: "runyard-github".to_owned(),
        api_url: stand_in.url(),
        timeout: Duration::from_secs(30),
    };
    SetupArgs { what: SetupWhat::Github(Box::new(args)) }
}

/// Returns the value of an attribute, as a browser decodes it.
fn attribute<'a>(html: &'a str, before: &str) -> String {
    let (_, rest) = html.split_once(before).unwrap_or_else(|| panic!("no {before} in {html}"));
    let value: &'a str = rest.split('"').next().unwrap();
    value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// Acts as the person: opens the page, agrees, returns, installs. Returns the permissions in the manifest.
async fn browse(said: &impl Fn() -> String) -> BTreeMap<String, String> {
    let url = loop {
        let text = said();
        match text.split_whitespace().find(|word| word.starts_with("http://127.0.0.1:")) {
            Some(url) => break url.to_owned(),
            None => tokio::task::yield_now().await,
        }
    };
    let browser = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
    let page = browser.get(&url).send().await.unwrap().text().await.unwrap();
    let (action, manifest) = (attribute(&page, "action=\""), attribute(&page, "name=manifest value=\""));
    let body = Url::parse_with_params("http://form/", [("manifest", &manifest)]).unwrap();
    let agreed = browser.post(&action).body(body.query().unwrap().to_owned()).send().await.unwrap();
    assert_eq!(agreed.status(), 302);
    let back = agreed.headers()["location"].to_str().unwrap().to_owned();
    let stolen =
        Url::parse_with_params(back.split('?').next().unwrap(), [("code", "x"), ("state", "guessed")]);
    assert_eq!(browser.get(stolen.unwrap()).send().await.unwrap().status(), 403, "the state is ours");
    assert_eq!(browser.get(&back).send().await.unwrap().status(), 200);
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["hook_attributes"]["active"], false);
    serde_json::from_value(manifest["default_permissions"].clone()).unwrap()
}

async fn install(stand_in: &StandIn) {
    let url = format!("{}/apps/runyard-octo/installations/new", stand_in.url());
    loop {
        if reqwest::get(&url).await.unwrap().status() == 200 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_app_is_made_in_a_browser_and_its_key_works() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let stand_in = stand_in(dir.path()).await;
    let (key, secret) = (dir.path().join("app.pem"), dir.path().join("secret.yaml"));
    let setup = check(asked(&stand_in, SetupScope::Repository, &key, Some(secret.clone()))).unwrap();
    let (mut screen, said) = Screen::kept(Format::Text);
    let person = async {
        let wanted = browse(&said).await;
        assert_eq!(wanted.get("administration").map(String::as_str), Some("write"));
        assert_eq!(wanted.get("actions").map(String::as_str), Some("read"));
        install(&stand_in).await;
    };
    let (done, ()) = tokio::join!(make(&mut screen, setup), person);
    done.unwrap();
    let text = said();
    assert!(
        text.contains("/apps/runyard-octo/installations/new") && text.contains("installed in octo"),
        "{text}"
    );
    let pem = std::fs::read(&key).unwrap();
    assert!(!text.contains("PRIVATE KEY"), "{text}");
    for file in [&key, &secret] {
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let id = text.split("(id ").nth(1).unwrap().split(')').next().unwrap().to_owned();
    let credential = Credential::App(AppKey::from_pem(id, &pem).unwrap());
    let clock = SystemClock::new();
    let api = ApiUrl::parse(&stand_in.url()).unwrap();
    let github = RestGitHub::new(api, credential, DEFAULT_DEADLINE, Arc::new(move || clock.now())).unwrap();
    let scope = |owner: &str| Scope::Repository { owner: owner.to_owned(), name: "app".to_owned() };
    assert_eq!(github.runners(&scope("octo")).await, Ok(Vec::new()));
    assert!(
        matches!(github.runners(&scope("other")).await, Err(GitHubError::NotFound(_))),
        "it is installed once"
    );
}

#[tokio::test]
async fn a_code_that_github_does_not_know_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = stand_in(dir.path()).await;
    let key = dir.path().join("app.pem");
    let clock = SystemClock::new();
    let api = ApiUrl::parse(&stand_in.url()).unwrap();
    let github = AppRegistration::new(api, DEFAULT_DEADLINE, Arc::new(move || clock.now())).unwrap();
    let error = github.convert("made-up").await.unwrap_err();
    assert!(matches!(error, GitHubError::NotFound(_)), "{error}");
    let setup = check(asked(&stand_in, SetupScope::Organization, &key, None)).unwrap();
    assert!(key.exists(), "its place is taken before the App is made");
    drop(setup);
    assert!(!key.exists());
}

#[test]
fn what_cannot_work_is_refused_before_a_browser_opens() {
    let refused = |change: fn(&mut GithubArgs)| {
        let mut args = GithubArgs {
            organization: None,
            scope: SetupScope::Repository,
            name: None,
            key_file: Some("/nonexistent/app.pem".into()),
            secret_manifest: None,
            namespace: "ci".to_owned(),
            secret_name: "s".to_owned(),
            api_url: "https://api.github.com".to_owned(),
            timeout: Duration::from_secs(1),
        };
        change(&mut args);
        let failure = check(SetupArgs { what: SetupWhat::Github(Box::new(args)) }).err().unwrap();
        failure.problems[0].field.clone()
    };
    assert_eq!(refused(|_| ()), "--key-file");
    assert_eq!(refused(|args| args.key_file = None), "--key-file");
    assert_eq!(refused(|args| args.scope = SetupScope::Organization), "--scope");
    assert_eq!(refused(|args| args.api_url = "http://github.example".to_owned()), "--api-url");
    assert_eq!(refused(|args| args.name = Some("x".repeat(35))), "--name");
    assert!(login("a/b").is_err() && login("acme-inc").is_ok());
}
