//! Every verb that we call at GitHub against every kind of wrong response: a table, so that no combination is
//! forgotten.

use std::sync::Arc;
use std::time::Duration;

use super::scripted_fake::*;
use crate::github::*;
use crate::ports::github::{GitHub, GitHubError, RunState, RunnerSpec, Scope, Waiting};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Register,
    Remove,
    Job,
    Group,
    Runner,
    Runners,
    Delete,
    Run,
}

const VERBS: [Verb; 8] = [
    Verb::Register,
    Verb::Remove,
    Verb::Job,
    Verb::Group,
    Verb::Runner,
    Verb::Runners,
    Verb::Delete,
    Verb::Run,
];

/// An id that a double cannot represent.
const LARGE: u64 = 9_007_199_254_740_993;

async fn call(github: &RestGitHub, verb: Verb) -> Result<u64, GitHubError> {
    let scope = Scope::Repository { owner: "octo".to_owned(), name: "app".to_owned() };
    let (name, labels) = ("n".to_owned(), vec!["l".to_owned()]);
    let spec = RunnerSpec { name, labels, group_id: LARGE, work_folder: "_work".to_owned() };
    match verb {
        Verb::Register => github.registration_token(&scope).await.map(|_| 0),
        Verb::Remove => github.removal_token(&scope).await.map(|_| 0),
        Verb::Job => github.job_config(&scope, &spec).await.map(|config| config.runner_id),
        Verb::Group => github.runner_group("octo", "n").await.map(Option::unwrap_or_default),
        Verb::Runner => github.runner(&scope, "n").await.map(|runner| runner.map_or(0, |runner| runner.id)),
        Verb::Runners => github.runners(&scope).await.map(|all| all.first().map_or(0, |runner| runner.id)),
        Verb::Delete => github.remove_runner(&scope, LARGE).await.map(|()| LARGE),
        Verb::Run => github.run("octo", "app", LARGE, Waiting::Machine).await.map(|_| LARGE),
    }
}

fn meaning(answer: &Result<u64, GitHubError>) -> &'static str {
    match answer {
        Ok(_) => "ok",
        Err(GitHubError::Unreachable(_)) => "unreachable",
        Err(GitHubError::Throttled { .. }) => "throttled",
        Err(GitHubError::Deferred { .. }) => "deferred",
        Err(GitHubError::Denied(_)) => "denied",
        Err(GitHubError::NotFound(_)) => "not found",
        Err(GitHubError::NameTaken(_)) => "name taken",
        Err(GitHubError::Busy(_)) => "busy",
        Err(GitHubError::Invalid(_)) => "invalid",
    }
}

fn refused(status: u16, headers: &'static [&'static str]) -> Box<dyn Fn() -> Reply> {
    let mut all = vec![JSON];
    all.extend(headers);
    Box::new(move || say(status, &all, r#"{"message":"no"}"#))
}

/// A wrong response, its meaning, and the verbs for which it means something else.
type Row = (&'static str, Box<dyn Fn() -> Reply>, &'static str, &'static [(Verb, &'static str)]);

fn rows(elsewhere: &str) -> Vec<Row> {
    let html = || say(200, &["content-type: text/html"], "<html>Sign in</html>");
    let location = format!("location: {elsewhere}/stolen");
    vec![
        ("401", refused(401, &[]), "denied", &[]),
        ("403", refused(403, &[]), "denied", &[]),
        ("403 and seconds", refused(403, &["retry-after: 17"]), "throttled", &[]),
        ("403 and rubbish", refused(403, &["retry-after: soon"]), "throttled", &[]),
        ("403 and nothing left", refused(403, &["x-ratelimit-remaining: 0"]), "throttled", &[]),
        ("404", refused(404, &[]), "not found", &[]),
        ("409", refused(409, &[]), "invalid", &[(Verb::Job, "name taken"), (Verb::Delete, "busy")]),
        ("422", refused(422, &[]), "invalid", &[(Verb::Delete, "busy")]),
        ("429 and a day", refused(429, &["retry-after: 86400"]), "throttled", &[]),
        ("429 and nothing", refused(429, &["retry-after: 0"]), "throttled", &[]),
        ("429 and a date", refused(429, &["retry-after: Sun, 01 Mar 2026 12:00:30 GMT"]), "throttled", &[]),
        ("500", refused(500, &[]), "unreachable", &[]),
        ("502", refused(502, &[]), "unreachable", &[]),
        ("503", refused(503, &[]), "unreachable", &[]),
        ("504", refused(504, &[]), "unreachable", &[]),
        ("a page", Box::new(html), "unreachable", &[]),
        ("204 with a body", refused(204, &[]), "unreachable", &[(Verb::Delete, "ok")]),
        ("304 unasked", refused(304, &[]), "unreachable", &[]),
        ("another host", Box::new(move || say(307, &[&location], "")), "unreachable", &[]),
        ("hung up", Box::new(|| Reply::Close), "unreachable", &[]),
        ("never", Box::new(|| Reply::Hang), "unreachable", &[]),
    ]
}

#[tokio::test]
async fn every_verb_makes_of_every_fault_what_somebody_acts_on() {
    let other = Scripted::serve(Vec::new()).await;
    for (fault, reply, usual, exceptions) in rows(&other.url) {
        for verb in VERBS {
            // A removal that gets "not found" checks once more whether the scope is visible at all.
            let server = Scripted::serve(vec![reply(), reply()]).await;
            let origin = ApiUrl::parse(&server.url).unwrap();
            let deadline = if fault == "never" { Duration::from_millis(50) } else { Duration::from_secs(10) };
            let github = RestGitHub::new(origin, Credential::None, deadline, Arc::new(now)).unwrap();
            let answer = call(&github, verb).await;
            let wanted = exceptions.iter().find(|(of, _)| *of == verb).map_or(usual, |(_, means)| *means);
            assert_eq!(meaning(&answer), wanted, "{verb:?} met {fault}: {answer:?}");
            if let Err(GitHubError::Throttled { retry_after }) = answer {
                assert!((1..=3600).contains(&retry_after.as_secs()), "{fault}: {retry_after:?}");
                let again = call(&github, verb).await;
                assert_eq!(meaning(&again), "deferred");
                let more = server.requests().len() - 1;
                assert_eq!(more, 0, "{verb:?} met {fault}: GitHub is left alone as long as it asks");
            }
        }
    }
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn numbers_that_a_double_cannot_hold_stay_what_they_are() {
    let runner =
        serde_json::json!({"id": LARGE, "name": "n", "status": "online", "busy": false, "labels": []});
    let list = serde_json::json!({"total_count": 1, "runners": [runner]});
    let answers = [
        (Verb::Job, serde_json::json!({"runner": runner, "encoded_jit_config": "x"})),
        (Verb::Group, serde_json::json!({"total_count": 1, "runner_groups": [{"id": LARGE, "name": "n"}]})),
        (Verb::Runner, list.clone()),
        (Verb::Runners, list),
    ];
    for (verb, body) in answers {
        let server = Scripted::serve(vec![json(200, body)]).await;
        assert_eq!(call(&server.github(), verb).await, Ok(LARGE), "{verb:?}");
    }
    let server = Scripted::serve(vec![say(204, &[], "")]).await;
    call(&server.github(), Verb::Delete).await.unwrap();
    assert!(server.requests()[0].contains(&format!("/{LARGE} ")), "{}", server.requests()[0]);
}

#[tokio::test]
async fn what_did_not_change_is_asked_with_its_mark_and_answered_from_what_we_have() {
    let body = r#"{"status":"completed","run_attempt":2}"#;
    let first = say(200, &[JSON, "etag: \"one\""], body);
    let server = Scripted::serve(vec![first, say(304, &["etag: \"one\""], "")]).await;
    let github = server.github();
    let ask = async || github.run("octo", "app", 7, Waiting::Machine).await;
    let (one, two) = (ask().await, ask().await);
    assert_eq!(one, two);
    assert_eq!(two, Ok(RunState::Completed { attempt: 2 }));
    let asked = server.requests();
    assert!(!asked[0].contains("if-none-match") && asked[1].contains("if-none-match: \"one\""), "{asked:?}");
}
