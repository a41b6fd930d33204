//! Problems at GitHub before the first job, each with its fix.

use serde_json::{Value, json};

use crate::github::Credential;
use crate::github::tests::app::{IN_AN_HOUR, TestApp};
use crate::github::tests::scripted_fake::{Reply, Scripted, json};
use crate::ports::github::Scope;
use crate::preflight::{Check, Outcome};

fn repository() -> Scope {
    Scope::Repository { owner: "acme".into(), name: "web".into() }
}

fn organization() -> Scope {
    Scope::Organization { owner: "acme".into() }
}

fn app() -> Reply {
    json(200, json!({"id": 4711, "slug": "acme-yard", "owner": {"login": "acme"}}))
}

fn installation(permissions: Value) -> Reply {
    json(
        200,
        json!({"id": 99, "account": {"login": "acme"}, "permissions": permissions, "suspended_at": null}),
    )
}

fn all() -> Value {
    json!({"administration": "write", "organization_self_hosted_runners": "write", "actions": "read"})
}

fn token() -> Reply {
    json(201, json!({"token": "ghs_one", "expires_at": IN_AN_HOUR, "permissions": {}}))
}

fn registration() -> Reply {
    json(201, json!({"token": "AAAA", "expires_at": IN_AN_HOUR}))
}

/// Appends the replies to both uses of an installation's token: the installation, and the token.
fn registers(replies: Vec<Reply>) -> Vec<Reply> {
    replies.into_iter().chain([installation(all()), token(), registration()]).collect()
}

fn problems(checks: &[Check]) -> Vec<(&str, &str)> {
    checks
        .iter()
        .filter_map(|check| match &check.outcome {
            Outcome::Wrong { problem, .. } => Some((check.what.as_str(), problem.as_str())),
            Outcome::Good(_) | Outcome::Unchecked { .. } => None,
        })
        .collect()
}

fn fixes(checks: &[Check]) -> String {
    format!("{checks:?}")
}

#[tokio::test]
async fn an_app_that_is_installed_with_all_it_needs_is_good() {
    let key = TestApp::new();
    let server = Scripted::serve(registers(vec![app(), installation(all())])).await;
    let checks = server.github_as(key.credential()).preflight(&repository(), None, None).await;
    assert_eq!(problems(&checks), []);
    let told: Vec<&str> = checks.iter().map(|check| check.what.as_str()).collect();
    assert_eq!(told, ["App", "App's permissions", "registration"]);
    let asked = server.requests();
    assert!(asked[0].starts_with("GET /app "), "{}", asked[0]);
    assert!(asked[4].starts_with("POST /repos/acme/web/actions/runners/registration-token "), "{}", asked[4]);
}

#[tokio::test]
async fn an_app_that_github_does_not_know_is_found_before_the_first_job() {
    let key = TestApp::new();
    let server =
        Scripted::serve(vec![json(401, json!({"message": "A JSON web token could not be decoded"}))]).await;
    let checks = server.github_as(key.credential()).preflight(&repository(), None, None).await;
    assert_eq!(checks.len(), 1, "{checks:?}");
    assert!(
        problems(&checks)[0].1.contains("could not be decoded") && fixes(&checks).contains("github.app_id")
    );
}

#[tokio::test]
async fn an_app_that_is_not_installed_is_told_with_the_address_that_installs_it() {
    let key = TestApp::new();
    let server = Scripted::serve(vec![app(), json(404, json!({"message": "Not Found"}))]).await;
    let checks = server.github_as(key.credential()).preflight(&repository(), None, None).await;
    assert!(problems(&checks)[0].1.contains("acme-yard is not installed"), "{checks:?}");
    assert!(fixes(&checks).contains("/apps/acme-yard/installations/new"), "{checks:?}");
}

#[tokio::test]
async fn a_permission_that_is_lacking_is_named() {
    let cases = [
        (
            repository(),
            json!({"administration": "read", "actions": "read"}),
            vec!["it lacks administration: write"],
        ),
        (repository(), json!({"administration": "write"}), vec!["it lacks actions: read"]),
        (
            organization(),
            json!({"administration": "write", "actions": "read"}),
            vec!["it lacks organization_self_hosted_runners: write"],
        ),
    ];
    for (scope, granted, lacking) in cases {
        let key = TestApp::new();
        let denied = json(403, json!({"message": "Resource not accessible by integration"}));
        let replies = vec![app(), installation(granted), installation(all()), token(), denied];
        let server = Scripted::serve(replies).await;
        let checks = server.github_as(key.credential()).app_checks(&scope).await.unwrap();
        assert_eq!(problems(&checks).iter().map(|(_, problem)| *problem).collect::<Vec<_>>(), lacking);
    }
}

#[tokio::test]
async fn a_suspended_installation_is_told() {
    let key = TestApp::new();
    let body = json!({"id": 99, "permissions": all(), "suspended_at": "2026-02-01T00:00:00Z"});
    let server = Scripted::serve(vec![app(), json(200, body)]).await;
    let checks = server.github_as(key.credential()).app_checks(&repository()).await.unwrap();
    assert!(problems(&checks)[0].1.contains("suspended"), "{checks:?}");
}

fn groups(public: bool) -> Reply {
    let default = json!({"id": 1, "name": "Default", "default": true, "allows_public_repositories": public});
    json(200, json!({"total_count": 1, "runner_groups": [default]}))
}

#[tokio::test]
async fn a_group_that_lets_no_public_repository_in_is_told_with_the_call_that_mends_it() {
    for (public, private, wrong) in [(false, false, true), (false, true, false), (true, false, false)] {
        let replies = vec![registration(), groups(public), json(200, json!({"id": 5, "private": private}))];
        let server = Scripted::serve(replies).await;
        let github = server.github_as(Credential::None);
        let checks = github.preflight(&organization(), None, Some(("acme", "web"))).await;
        assert_eq!(problems(&checks).len(), usize::from(wrong), "{public} {private}: {checks:?}");
        if wrong {
            assert!(problems(&checks)[0].1.contains("acme/web is public"), "{checks:?}");
            assert!(
                fixes(&checks).contains("gh api -X PATCH orgs/acme/actions/runner-groups/1"),
                "{checks:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_runner_group_that_is_not_there_is_told() {
    let server = Scripted::serve(vec![registration(), groups(true)]).await;
    let github = server.github_as(Credential::None);
    let checks = github.preflight(&organization(), Some("release"), None).await;
    assert_eq!(problems(&checks), [("runner group", "acme has no runner group release")]);
}
