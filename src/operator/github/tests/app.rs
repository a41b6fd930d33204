//! A GitHub App on the wire: its signatures, its requests, its cached tokens and their renewal.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::json;

use super::scripted_fake::*;
use crate::github::*;
use crate::ports::github::{GitHub, GitHubError, Scope};

pub(crate) struct TestApp {
    pem: String,
    public: Vec<u8>,
}

impl TestApp {
    pub(crate) fn new() -> Self {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let body = BASE64_STANDARD.encode(der.as_ref());
        // Assembled here so that no scanner reports this file as a leaked key.
        let pem = format!("-----BEGIN {0}-----\n{body}\n-----END {0}-----\n", "PRIVATE KEY");
        Self { pem, public: pair.public_key().as_ref().to_vec() }
    }

    pub(crate) fn credential(&self) -> Credential {
        Credential::App(AppKey::from_pem("4711", self.pem.as_bytes()).unwrap())
    }

    fn credential_in(&self, file: &Path) -> Credential {
        std::fs::write(file, &self.pem).unwrap();
        Credential::App(AppKey::from_pem("4711", self.pem.as_bytes()).unwrap().kept_in(file))
    }

    fn claims(&self, request: &str) -> serde_json::Value {
        self.signed(request).expect("an assertion of this App")
    }

    /// Returns the claims signed with this App's key; `None` if another key was used.
    fn signed(&self, request: &str) -> Option<serde_json::Value> {
        let token = request.lines().find_map(|l| l.strip_prefix("authorization: Bearer ")).unwrap();
        let mut validation = Validation::new(Algorithm::RS256);
        validation.validate_exp = false;
        validation.set_issuer(&["4711"]);
        let key = DecodingKey::from_rsa_der(&self.public);
        jsonwebtoken::decode(token, &key, &validation).ok().map(|told| told.claims)
    }
}

fn repository(owner: &str) -> Scope {
    Scope::Repository { owner: owner.to_owned(), name: "app".to_owned() }
}

fn installation() -> Reply {
    json(200, json!({"id": 99, "account": {"login": "octo"}}))
}

fn installation_token(token: &str, expires_at: &str) -> Reply {
    json(201, json!({"token": token, "expires_at": expires_at, "permissions": {}}))
}

fn empty_list() -> Reply {
    json(200, json!({"total_count": 0, "runners": []}))
}

pub(crate) const IN_AN_HOUR: &str = "2026-03-01T13:00:00Z";

#[tokio::test]
async fn an_app_signs_for_minutes_and_works_with_the_installations_token() {
    let app = TestApp::new();
    let replies = vec![installation(), installation_token("ghs_one", IN_AN_HOUR), empty_list(), empty_list()];
    let server = Scripted::serve(replies).await;
    let github = server.github_as(app.credential());
    github.runners(&repository("octo")).await.unwrap();
    github.runners(&repository("OCTO")).await.unwrap();
    let asked = server.requests();
    assert!(asked[0].starts_with("GET /repos/octo/app/installation "), "{}", asked[0]);
    assert!(asked[1].starts_with("POST /app/installations/99/access_tokens "), "{}", asked[1]);
    assert!(
        asked[2].contains("authorization: Bearer ghs_one\r\n") && asked[3].contains("Bearer ghs_one\r\n")
    );
    let claims = app.claims(&asked[1]);
    let (issued, expires) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    assert_eq!(issued, now().as_second() - 60);
    assert!(expires > now().as_second() && expires - issued <= 600, "{claims}");
}

#[tokio::test]
async fn an_installation_token_asks_only_for_needed_permissions_that_were_granted() {
    let app = TestApp::new();
    let cases = [
        (
            json!({"administration": "write", "actions": "write", "contents": "write", "secrets": "read"}),
            json!({"permissions": {"administration": "write", "actions": "read", "contents": "read"}}),
        ),
        (
            json!({"organization_self_hosted_runners": "write", "administration": "read", "metadata": "read"}),
            json!({"permissions": {"organization_self_hosted_runners": "write", "administration": "read"}}),
        ),
    ];
    for (granted, asked) in cases {
        let installed = json(200, json!({"id": 99, "permissions": granted}));
        let replies = vec![installed, installation_token("t", IN_AN_HOUR), empty_list()];
        let server = Scripted::serve(replies).await;
        server.github_as(app.credential()).runners(&repository("octo")).await.unwrap();
        let minting = &server.requests()[1];
        let (_, body) = minting.split_once("\r\n\r\n").unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap(), asked);
        assert!(minting.contains("content-type: application/json"), "{minting}");
    }
}

#[tokio::test]
async fn an_organisation_has_its_own_way_to_its_installation() {
    let app = TestApp::new();
    let server =
        Scripted::serve(vec![installation(), installation_token("t", IN_AN_HOUR), empty_list()]).await;
    let scope = Scope::Organization { owner: "octo".to_owned() };
    server.github_as(app.credential()).runners(&scope).await.unwrap();
    assert!(server.requests()[0].starts_with("GET /orgs/octo/installation "));
    assert!(server.requests()[2].starts_with("GET /orgs/octo/actions/runners?"));
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends_and_after_it_was_refused() {
    let app = TestApp::new();
    let later = "2026-03-01T14:00:00Z";
    let server = Scripted::serve(vec![
        installation(),
        installation_token("one", IN_AN_HOUR),
        empty_list(),
        installation(),
        installation_token("two", later),
        say(401, &[JSON], r#"{"message":"Bad credentials"}"#),
        installation(),
        installation_token("three", later),
        empty_list(),
    ])
    .await;
    let time = Arc::new(Mutex::new(now()));
    let read = Arc::clone(&time);
    let clock: Clock = Arc::new(move || *read.lock().unwrap());
    let origin = ApiUrl::parse(&server.url).unwrap();
    let github = RestGitHub::new(origin, app.credential(), Duration::from_secs(2), clock).unwrap();
    github.runners(&repository("octo")).await.unwrap();
    *time.lock().unwrap() = "2026-03-01T12:56:00Z".parse::<Timestamp>().unwrap();
    assert!(matches!(github.runners(&repository("octo")).await, Err(GitHubError::Denied(_))));
    github.runners(&repository("octo")).await.unwrap();
    let asked = server.requests();
    assert!(asked[5].contains("Bearer two\r\n") && asked[8].contains("Bearer three\r\n"), "{asked:#?}");
}

#[tokio::test]
async fn an_app_that_is_not_installed_is_not_found_and_one_suspended_is_denied() {
    let app = TestApp::new();
    let server = Scripted::serve(vec![say(404, &[JSON], r#"{"message":"Not Found"}"#)]).await;
    let missing = server.github_as(app.credential()).runners(&repository("octo")).await.unwrap_err();
    assert!(matches!(missing, GitHubError::NotFound(_)), "{missing}");
    let suspended = say(403, &[JSON], r#"{"message":"This installation has been suspended"}"#);
    let server = Scripted::serve(vec![installation(), suspended]).await;
    let denied = server.github_as(app.credential()).runners(&repository("octo")).await.unwrap_err();
    assert!(matches!(&denied, GitHubError::Denied(text) if text.contains("suspended")), "{denied}");
}

#[tokio::test]
async fn the_repositories_of_one_account_are_listed_whatever_happens_to_another() {
    let app = TestApp::new();
    let listed = |names: &[&str]| {
        let named: Vec<_> = names.iter().map(|name| json!({"full_name": name, "archived": false})).collect();
        json(200, json!({"total_count": named.len(), "repositories": named}))
    };
    let gone = json!({"full_name": "octo/old", "archived": true});
    let installed = json!([
        {"id": 97, "account": {"login": "broken"}},
        {"id": 98, "account": {"login": "away"}, "suspended_at": "2026-01-01T00:00:00Z"},
        {"id": 99, "account": {"login": "Octo"}},
        {"id": 100, "account": {"login": "dark"}},
    ]);
    let of_octo = json!({"total_count": 2, "repositories": [{"full_name": "Octo/app"}, gone]});
    let server = Scripted::serve(vec![
        json(200, installed.clone()),
        say(500, &[JSON], r#"{"message":"Server Error"}"#),
        installation_token("octo", IN_AN_HOUR),
        installation_token("dark", IN_AN_HOUR),
        json(200, of_octo),
        say(502, &["content-type: text/html"], "<html>"),
        // An hour later the tokens have run out; `/orgs/…/installation` is not asked, which knows no person's account.
        json(200, json!([{"id": 99, "account": {"login": "octo"}}])),
        installation_token("again", "2026-03-01T15:00:00Z"),
        listed(&["octo/app", "octo/new"]),
    ])
    .await;
    let time = Arc::new(Mutex::new(now()));
    let read = Arc::clone(&time);
    let clock: Clock = Arc::new(move || *read.lock().unwrap());
    let origin = ApiUrl::parse(&server.url).unwrap();
    let github = RestGitHub::new(origin, app.credential(), Duration::from_secs(2), clock).unwrap();
    let names =
        |found: Vec<crate::model::Repository>| found.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(github.repositories().await.unwrap()), ["Octo/app"]);
    *time.lock().unwrap() = "2026-03-01T13:30:00Z".parse().unwrap();
    assert_eq!(names(github.repositories().await.unwrap()), ["octo/app", "octo/new"]);
}

fn refused() -> Reply {
    say(401, &[JSON], r#"{"message":"A JSON web token could not be decoded"}"#)
}

#[tokio::test]
async fn a_key_that_github_refuses_is_read_from_its_file_again() {
    let (old, new, there) = (TestApp::new(), TestApp::new(), tempfile::tempdir().unwrap());
    let file = there.path().join("key.pem");
    let token = || installation_token("t", IN_AN_HOUR);
    for (replies, refused_at) in [
        (vec![refused(), installation(), token(), empty_list()], 0),
        (vec![installation(), refused(), installation(), token(), empty_list()], 1),
    ] {
        let server = Scripted::serve(replies).await;
        let github = server.github_as(old.credential_in(&file));
        std::fs::write(&file, &new.pem).unwrap();
        github.runners(&repository("octo")).await.unwrap();
        let asked = server.requests();
        for request in &asked[..=refused_at] {
            assert!(old.signed(request).is_some(), "the old key is good until it is refused: {request}");
        }
        for request in &asked[refused_at + 1..asked.len() - 1] {
            assert!(new.signed(request).is_some(), "{request}");
        }
    }
}

#[tokio::test]
async fn a_new_key_is_kept_for_the_accounts_that_ask_later() {
    let (old, new, there) = (TestApp::new(), TestApp::new(), tempfile::tempdir().unwrap());
    let file = there.path().join("key.pem");
    let token = || installation_token("t", IN_AN_HOUR);
    let replies =
        vec![refused(), installation(), token(), empty_list(), installation(), token(), empty_list()];
    let server = Scripted::serve(replies).await;
    let github = server.github_as(old.credential_in(&file));
    std::fs::write(&file, &new.pem).unwrap();
    github.runners(&repository("octo")).await.unwrap();
    github.runners(&repository("other")).await.unwrap();
    assert!(new.signed(&server.requests()[4]).is_some());
}

#[tokio::test]
async fn a_refused_key_that_was_not_replaced_is_not_tried_twice() {
    let (app, there) = (TestApp::new(), tempfile::tempdir().unwrap());
    let server = Scripted::serve(vec![refused(), installation()]).await;
    let github = server.github_as(app.credential_in(&there.path().join("key.pem")));
    let denied = github.runners(&repository("octo")).await.unwrap_err();
    assert!(matches!(denied, GitHubError::Denied(_)), "{denied}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_file_that_holds_no_key_any_more_leaves_the_old_one_in_use() {
    let (app, there) = (TestApp::new(), tempfile::tempdir().unwrap());
    let file = there.path().join("key.pem");
    let breaks: [fn(&Path); 2] =
        [|file| std::fs::remove_file(file).unwrap(), |file| std::fs::write(file, "hunter2").unwrap()];
    for broken in breaks {
        let replies = vec![refused(), installation(), installation_token("t", IN_AN_HOUR), empty_list()];
        let server = Scripted::serve(replies).await;
        let github = server.github_as(app.credential_in(&file));
        broken(&file);
        let denied = github.runners(&repository("octo")).await.unwrap_err();
        assert!(matches!(denied, GitHubError::Denied(_)), "{denied}");
        github.runners(&repository("octo")).await.unwrap();
        assert!(app.signed(&server.requests()[2]).is_some());
    }
}

#[test]
fn a_key_that_is_none_is_refused_without_being_repeated() {
    let error = AppKey::from_pem("4711", b"hunter2").unwrap_err().to_string();
    assert!(error.contains("github.app_key_file") && !error.contains("hunter2"), "{error}");
    let printed = format!("{:?}", TestApp::new().credential());
    assert!(printed.contains("4711") && printed.len() < 60, "{printed}");
}
