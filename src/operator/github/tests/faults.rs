//! Faults of GitHub on the wire: a scripted server gives each wrong response once, and the adapter must map it exactly
//! to the error that its callers act on.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpSocket;

use super::scripted_fake::*;
use crate::github::*;
use crate::ports::github::{GitHub, GitHubError, RunState, Runner, RunnerSpec, Scope, Waiting};

fn scope() -> Scope {
    Scope::Repository { owner: "octo".to_owned(), name: "app".to_owned() }
}

fn spec() -> RunnerSpec {
    RunnerSpec {
        name: "n".to_owned(),
        labels: vec!["l".to_owned()],
        group_id: 1,
        work_folder: "_work".to_owned(),
    }
}

fn runners(total: u64, ids: std::ops::Range<u64>) -> serde_json::Value {
    let one = |id| serde_json::json!({"id": id, "name": format!("r{id}"), "os": "linux", "status": "online", "busy": true, "labels": [{"name": "x"}], "new_field": 1});
    serde_json::json!({"total_count": total, "runners": ids.map(one).collect::<Vec<_>>()})
}

async fn token_error(reply: Reply) -> GitHubError {
    let server = Scripted::serve(vec![reply]).await;
    server.github().registration_token(&scope()).await.unwrap_err()
}

#[tokio::test]
async fn each_refusal_is_told_by_what_somebody_does_about_it() {
    let throttled = |seconds| GitHubError::Throttled { retry_after: Duration::from_secs(seconds) };
    assert!(matches!(token_error(say(401, &[JSON], "{}")).await, GitHubError::Denied(_)));
    assert!(matches!(token_error(say(403, &[JSON], "{}")).await, GitHubError::Denied(_)));
    assert_eq!(token_error(say(403, &[JSON, "retry-after: 17"], "{}")).await, throttled(17));
    let exhausted = ["x-ratelimit-remaining: 0", "x-ratelimit-reset: 1772366460"];
    assert_eq!(token_error(say(403, &exhausted, "")).await, throttled(60));
    assert_eq!(token_error(say(429, &["retry-after: 86400"], "")).await, throttled(3600));
    assert!(matches!(token_error(say(404, &[JSON], "{}")).await, GitHubError::NotFound(_)));
    for status in [500, 502, 503, 504] {
        assert!(
            matches!(token_error(say(status, &[], "oops")).await, GitHubError::Unreachable(_)),
            "{status}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_lacks_a_field_names_it_and_nothing_that_it_holds() {
    let run =
        serde_json::json!({"event": "push", "head_branch": "main", "head_sha": "hunter2", "repository": {}});
    let server = Scripted::serve(vec![json(200, run)]).await;
    let error = server.github().run_source("octo", "app", 7).await.unwrap_err().to_string();
    assert!(error.contains("\"id\" is missing") && !error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_not_githubs_is_no_answer() {
    let html = ["content-type: text/html"];
    let cut = r#"{"token":"hunter2"#;
    for reply in [
        say(200, &html, "<html>Sign in</html>"),
        say(201, &[JSON], cut),
        say(201, &[JSON], r#"{"token":null,"expires_at":null}"#),
        say(201, &[JSON], r#"{"token":"","expires_at":"2026-03-01T13:00:00Z"}"#),
        say(201, &[], ""),
        Reply::Close,
    ] {
        let error = token_error(reply).await;
        assert!(matches!(error, GitHubError::Unreachable(_)), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_costs_one_deadline() {
    let server = Scripted::serve(vec![Reply::Hang]).await;
    let deadline = Duration::from_millis(50);
    let origin = ApiUrl::parse(&server.url).unwrap();
    let github = RestGitHub::new(origin, Credential::None, deadline, Arc::new(now)).unwrap();
    let error = github.runners(&scope()).await.unwrap_err();
    assert!(matches!(&error, GitHubError::Unreachable(text) if text.contains("50ms")), "{error}");
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    // Bound without listening: connections are refused, and nobody else gets the port meanwhile.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let error = adapter(&url, Credential::None).runners(&scope()).await.unwrap_err();
    assert!(matches!(error, GitHubError::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn a_name_clash_and_a_busy_runner_have_their_own_errors() {
    let server = Scripted::serve(vec![say(409, &[JSON], r#"{"message":"Already exists"}"#)]).await;
    assert!(matches!(server.github().job_config(&scope(), &spec()).await, Err(GitHubError::NameTaken(_))));
    let server = Scripted::serve(vec![say(422, &[JSON], r#"{"message":"still running a job"}"#)]).await;
    assert!(matches!(server.github().remove_runner(&scope(), 7).await, Err(GitHubError::Busy(_))));
}

#[tokio::test]
async fn only_a_204_or_a_visible_absence_proves_a_removal() {
    let empty = || json(200, runners(0, 0..0));
    let missing = || say(404, &[JSON], "{}");
    let remove = async |replies| Scripted::serve(replies).await.github().remove_runner(&scope(), 7).await;
    assert_eq!(remove(vec![say(204, &[], "")]).await, Ok(()));
    assert_eq!(remove(vec![missing(), empty()]).await, Ok(()));
    assert!(matches!(remove(vec![missing(), missing()]).await, Err(GitHubError::NotFound(_))));
    let page = say(404, &["content-type: text/html"], "<html>");
    assert!(matches!(remove(vec![page]).await, Err(GitHubError::Unreachable(_))));
    let page = say(200, &["content-type: text/html"], "<html>");
    assert!(matches!(remove(vec![page]).await, Err(GitHubError::Unreachable(_))));
}

#[tokio::test]
async fn a_list_is_read_to_its_end_or_not_at_all() {
    let next = r#"link: <http://elsewhere.example/?page=2>; rel="next""#;
    let first = || say(200, &[JSON, next], &runners(3, 0..2).to_string());
    let list = async |replies| Scripted::serve(replies).await.github().runners(&scope()).await;
    let all = list(vec![first(), json(200, runners(3, 2..3))]).await.unwrap();
    assert_eq!(all.iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(all.iter().all(|r| r.online && r.busy && r.labels == ["x"]));
    let broken = list(vec![first(), say(502, &[], "")]).await;
    assert!(matches!(broken, Err(GitHubError::Unreachable(_))), "{broken:?}");
    let expired = list(vec![first(), say(401, &[JSON], "{}")]).await;
    assert!(matches!(expired, Err(GitHubError::Denied(_))), "{expired:?}");
}

#[tokio::test]
async fn a_list_that_changes_while_it_is_read_is_read_again() {
    let next = r#"link: <http://elsewhere.example/?page=2>; rel="next""#;
    let first = |total| say(200, &[JSON, next], &runners(total, 0..2).to_string());
    let changed = || json(200, runners(2, 2..2));
    let again = vec![first(3), changed(), json(200, runners(2, 0..2))];
    let server = Scripted::serve(again).await;
    assert_eq!(server.github().runners(&scope()).await.unwrap().len(), 2);
    let always = vec![first(3), changed(), first(3), changed(), first(3), changed()];
    let server = Scripted::serve(always).await;
    let error = server.github().runners(&scope()).await.unwrap_err();
    assert!(matches!(&error, GitHubError::Unreachable(text) if text.contains("changing")), "{error}");
}

#[tokio::test]
async fn what_a_list_shows_is_had_though_it_changes_at_each_page() {
    let next = r#"link: <http://elsewhere.example/?page=2>; rel="next""#;
    let last = r#"link: <http://elsewhere.example/?page=1>; rel="prev""#;
    let page = |total, ids| say(200, &[JSON, next], &runners(total, ids).to_string());
    let end = |total, ids| say(200, &[JSON, last], &runners(total, ids).to_string());
    let seen = async |replies| Scripted::serve(replies).await.github().runners_seen(&scope()).await;
    let ids = |seen: Result<Vec<Runner>, GitHubError>| seen.unwrap().iter().map(|r| r.id).collect::<Vec<_>>();
    let grows = vec![page(3, 0..2), page(4, 1..3), end(6, 3..5)];
    assert_eq!(ids(seen(grows).await), [0, 1, 2, 3, 4]);
    let shrinks = vec![page(4, 0..2), page(3, 3..4), end(2, 4..4)];
    assert_eq!(ids(seen(shrinks).await), [0, 1, 3], "one that moved to a page that was read is missed");
    let without_links = vec![json(200, runners(4, 0..2)), json(200, runners(3, 2..2))];
    assert_eq!(ids(seen(without_links).await), [0, 1]);
    let broken = seen(vec![page(4, 0..2), say(502, &[], "")]).await;
    assert!(matches!(broken, Err(GitHubError::Unreachable(_))), "{broken:?}");
}

#[tokio::test]
async fn a_server_that_ignores_the_name_filter_does_not_mislead() {
    let server = Scripted::serve(vec![json(200, runners(3, 0..3)), json(200, runners(3, 0..3))]).await;
    let github = server.github();
    assert_eq!(github.runner(&scope(), "r2").await.unwrap().map(|r| r.id), Some(2));
    assert_eq!(github.runner(&scope(), "r9").await.unwrap(), None);
    assert!(server.requests()[0].contains("name=r2"));
}

#[tokio::test]
async fn a_redirect_within_githubs_address_is_followed_with_the_same_method() {
    let moved = say(307, &["location: /repositories/1/actions/runners/registration-token"], "");
    let token = json(201, serde_json::json!({"token": "T", "expires_at": "2020-01-22T12:13:35.123-08:00"}));
    let server = Scripted::serve(vec![moved, token]).await;
    let token = server.github().registration_token(&scope()).await.unwrap();
    assert_eq!(token.expires_at, "2020-01-22T20:13:35.123Z".parse().unwrap());
    assert!(server.requests()[1].starts_with("POST /repositories/1/"), "{:?}", server.requests()[1]);
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    let other = Scripted::serve(vec![json(200, runners(0, 0..0))]).await;
    let location = format!("location: {}/stolen", other.url);
    for status in [301, 302, 307, 308] {
        let server = Scripted::serve(vec![say(status, &[&location], "")]).await;
        let error = server.github().runners(&scope()).await.unwrap_err();
        assert!(matches!(error, GitHubError::Unreachable(_)), "{error}");
    }
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn endless_redirects_end() {
    let loops = (0..9).map(|_| say(302, &["location: /again"], "")).collect();
    let server = Scripted::serve(loops).await;
    assert!(matches!(server.github().runners(&scope()).await, Err(GitHubError::Unreachable(_))));
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn only_a_completed_run_is_over() {
    let state = async |status: serde_json::Value| {
        let body = serde_json::json!({"id": 9_007_199_254_740_993_u64, "status": status, "run_attempt": 3});
        Scripted::serve(vec![json(200, body)])
            .await
            .github()
            .run("octo", "app", 9_007_199_254_740_993, Waiting::Machine)
            .await
    };
    assert_eq!(state("completed".into()).await, Ok(RunState::Completed { attempt: 3 }));
    for active in ["queued", "in_progress", "waiting", "requested", "pending", "a word of next year"] {
        assert_eq!(state(active.into()).await, Ok(RunState::Active { attempt: 3 }));
    }
    assert!(matches!(state(serde_json::Value::Null).await, Err(GitHubError::Unreachable(_))));
}

#[tokio::test]
async fn the_look_that_a_credential_waits_for_may_use_what_is_left_of_the_hour() {
    let now = now().as_second();
    let few = [
        JSON,
        "x-ratelimit-limit: 5000",
        "x-ratelimit-remaining: 100",
        &format!("x-ratelimit-reset: {}", now + 600),
    ];
    let active = r#"{"status":"in_progress","run_attempt":1}"#;
    let server = Scripted::serve(vec![say(200, &few, active), say(200, &few, active)]).await;
    let github = server.github();
    for _ in 0..2 {
        let looked = github.run("octo", "app", 7, Waiting::Machine).await;
        assert_eq!(looked, Ok(RunState::Active { attempt: 1 }));
    }
    let watched = github.run("octo", "app", 7, Waiting::Nobody).await;
    assert!(matches!(watched, Err(GitHubError::Deferred { .. })), "a fiftieth is left: {watched:?}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_token_file_is_read_for_each_call_and_never_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let server = Scripted::serve(vec![json(200, runners(0, 0..0)), say(401, &[JSON], "{}")]).await;
    let github = server.github_as(Credential::TokenFile(path.clone()));
    let missing = github.runners(&scope()).await.unwrap_err();
    assert!(matches!(&missing, GitHubError::Denied(text) if text.contains("github.token_file")), "{missing}");
    std::fs::write(&path, "first\n").unwrap();
    github.runners(&scope()).await.unwrap();
    std::fs::write(&path, "second").unwrap();
    let denied = github.runners(&scope()).await.unwrap_err();
    let requests = server.requests();
    assert!(requests[0].contains("authorization: Bearer first\r\n"), "{}", requests[0]);
    assert!(requests[1].contains("authorization: Bearer second\r\n"), "{}", requests[1]);
    assert!(!denied.to_string().contains("second"));
    std::fs::write(&path, "\n").unwrap();
    assert!(matches!(github.runners(&scope()).await, Err(GitHubError::Denied(_))));
}
