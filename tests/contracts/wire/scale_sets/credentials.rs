//! Which credential goes where, and what each refusal means: the adapter before answers that a test chooses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use runyard_core::ports::scale_sets::{ScaleSetError, Session};
use runyard_core::ports::{ScaleSetError as Error, ScaleSets as _};
use runyard_operator::github::{ApiUrl, Credential, RestGitHub, RestScaleSets};
use serde_json::json;

use super::letter;
use super::suite::{scope, spec};

const JSON: &str = "application/json; charset=utf-8";

/// An answer: status, headers, body.
type Said = (u16, Vec<(&'static str, String)>, String);

/// A server that gives registration tokens and a service's address, and then answers in order.
#[derive(Clone, Default)]
struct Scripted {
    url: Arc<Mutex<String>>,
    /// The service's address, where it is another than this server's.
    elsewhere: Arc<Mutex<Option<String>>>,
    answers: Arc<Mutex<VecDeque<Said>>>,
    /// The path and the credential of each call.
    calls: Arc<Mutex<Vec<(String, String)>>>,
}

async fn answer(State(server): State<Scripted>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let given = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    server.calls.lock().unwrap().push((path.clone(), given.unwrap_or_default()));
    let (status, headers, body) = match path.rsplit('/').next().unwrap_or_default() {
        "registration-token" => {
            (201, vec![], json!({"token": "REG", "expires_at": "2030-01-01T00:00:00Z"}).to_string())
        }
        "runner-registration" => {
            let own = format!("{}/svc", server.url.lock().unwrap());
            let url = server.elsewhere.lock().unwrap().clone().unwrap_or(own);
            (200, vec![], json!({"url": url, "token": "SERVICE"}).to_string())
        }
        _ => server.answers.lock().unwrap().pop_front().expect("an answer"),
    };
    let mut answer = (StatusCode::from_u16(status).unwrap(), body).into_response();
    answer.headers_mut().insert(header::CONTENT_TYPE, JSON.parse().unwrap());
    for (name, value) in headers {
        answer.headers_mut().insert(name, value.parse().unwrap());
    }
    answer
}

impl Scripted {
    async fn serve(answers: Vec<Said>) -> Self {
        let server = Self::default();
        server.answers.lock().unwrap().extend(answers);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        *server.url.lock().unwrap() = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        server
    }

    fn sets(&self) -> RestScaleSets {
        let origin = ApiUrl::parse(&self.url.lock().unwrap()).unwrap();
        let now = || "2026-03-01T12:00:00Z".parse().unwrap();
        let credential = Credential::Token("PAT".into());
        let github = RestGitHub::new(origin, credential, Duration::from_secs(20), Arc::new(now)).unwrap();
        RestScaleSets::new(Arc::new(github))
    }

    fn session(&self) -> Session {
        Session {
            scope: scope(),
            set: 7,
            id: "s".into(),
            queue_url: format!("{}/q?sessionId=s", self.url.lock().unwrap()),
            token: "QUEUE".into(),
            statistics: Default::default(),
        }
    }

    fn calls(&self) -> Vec<(String, String)> {
        self.calls.lock().unwrap().clone()
    }
}

fn refused(status: u16, name: &str) -> Said {
    (status, vec![], json!({"typeName": name, "message": "no"}).to_string())
}

fn list() -> Said {
    (200, vec![], json!({"count": 0, "value": []}).to_string())
}

#[tokio::test]
async fn each_credential_goes_to_its_own_address_alone() {
    let server =
        Scripted::serve(vec![list(), (202, vec![], String::new()), (204, vec![], String::new())]).await;
    let (github, session) = (server.sets(), server.session());
    assert_eq!(github.find(&scope(), 1, "small").await.unwrap(), None);
    assert_eq!(github.message(&session, Some(4), 3).await.unwrap(), None);
    github.delete_message(&session, 4).await.unwrap();
    let calls = server.calls();
    let calls: Vec<(&str, &str)> = calls.iter().map(|(path, with)| (path.as_str(), with.as_str())).collect();
    let expected = [
        ("/repos/octo/app/actions/runners/registration-token", "Bearer PAT"),
        ("/actions/runner-registration", "RemoteAuth REG"),
        ("/svc/_apis/runtime/runnerscalesets", "Bearer SERVICE"),
        ("/q", "Bearer QUEUE"),
        ("/q/4", "Bearer QUEUE"),
    ];
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn no_credential_goes_to_an_address_that_is_not_https_or_by_a_redirect() {
    for elsewhere in ["http://example.com/svc", "ftp://127.0.0.1/svc", "nonsense", ""] {
        let server = Scripted::serve(vec![]).await;
        *server.elsewhere.lock().unwrap() = Some(elsewhere.to_owned());
        let error = server.sets().find(&scope(), 1, "small").await.unwrap_err();
        assert_eq!(letter(&Err::<(), Error>(error.clone())), 'u', "{elsewhere}: {error}");
        assert_eq!(server.calls().len(), 2, "{elsewhere}");
        let session = Session { queue_url: elsewhere.to_owned(), ..server.session() };
        assert_eq!(letter(&server.sets().message(&session, None, 1).await), 'u');
        assert_eq!(server.calls().len(), 2, "{elsewhere}");
    }
    let other = Scripted::serve(vec![]).await;
    let away = vec![("location", format!("{}/stolen", other.url.lock().unwrap()))];
    let server = Scripted::serve(vec![(307, away.clone(), String::new()), (307, away, String::new())]).await;
    assert_eq!(letter(&server.sets().find(&scope(), 1, "small").await), 'u');
    assert_eq!(letter(&server.sets().message(&server.session(), None, 1).await), 'u');
    assert_eq!(other.calls(), []);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_and_a_session_s_own_never() {
    let server = Scripted::serve(vec![refused(401, ""), refused(401, ""), refused(401, "")]).await;
    assert_eq!(letter(&server.sets().find(&scope(), 1, "small").await), 'd');
    assert_eq!(server.calls().len(), 6, "two exchanges, two calls");
    assert_eq!(letter(&server.sets().message(&server.session(), None, 1).await), 'e');
    assert_eq!(server.calls().len(), 7);
}

#[tokio::test]
async fn each_refusal_is_told_by_what_somebody_does_about_it() {
    let exception = |name: &str| format!("GitHub.Actions.Runtime.WebApi.{name}");
    let outcomes = async |said: Said| {
        let server = Scripted::serve(vec![said; 7]).await;
        let (github, session, here) = (server.sets(), server.session(), scope());
        let mut letters = String::new();
        letters.push(letter(&github.create(&here, &spec("small")).await));
        letters.push(letter(&github.open(&here, 7, "yard").await));
        letters.push(letter(&github.renew(&session).await));
        letters.push(letter(&github.message(&session, None, 1).await));
        letters.push(letter(&github.job_config(&here, 7, "n", "_work").await));
        letters.push(letter(&github.runner_by_id(&here, 9).await));
        letters.push(letter(&github.remove_runner(&here, 9).await));
        letters
    };
    // create, open, renew, message, job_config, runner_by_id, remove_runner
    let cases = [
        (refused(400, ""), "iiiiiii"),
        (refused(403, ""), "ddddddd"),
        (refused(404, ""), "nnoon.."),
        (refused(409, ""), "khiikib"),
        (refused(422, ""), "iiiiiii"),
        (refused(500, ""), "uuuuuuu"),
        (refused(503, ""), "uuuuuuu"),
        (refused(409, &exception("RunnerScaleSetSessionConflictException")), "hhhhhhh"),
        (refused(409, &exception("RunnerScaleSetExistsException")), "kkkkkkk"),
        (refused(400, &exception("AgentExistsException")), "kkkkkkk"),
        (refused(400, &exception("AgentNotFoundException")), "nnnnn.."),
        (refused(400, &exception("JobStillRunningException")), "bbbbbbb"),
        (refused(400, &exception("RunnerScaleSetSessionExpiredException")), "ooooooo"),
        ((429, vec![("retry-after", "7".into())], String::new()), "ttttttt"),
        ((403, vec![("retry-after", "7".into())], String::new()), "ttttttt"),
        // A proxy's page is no proof that something is gone.
        ((404, vec![("content-type", "text/html".into())], "<html/>".into()), "uuuuuuu"),
        ((200, vec![], String::new()), "uuuuuuu"),
    ];
    for (said, letters) in cases {
        assert_eq!(outcomes(said.clone()).await, letters, "{said:?}");
    }
    let server = Scripted::serve(vec![(429, vec![("retry-after", "7".into())], String::new())]).await;
    let error = server.sets().find(&scope(), 1, "small").await.unwrap_err();
    assert_eq!(error, ScaleSetError::Throttled { retry_after: Duration::from_secs(7) });
}

#[tokio::test]
async fn no_error_repeats_a_credential_or_a_body() {
    let said =
        [(200, vec![], r#"{"value": [{"id": "hunter2"#.to_owned()), (400, vec![], "hunter2".to_owned())];
    let server = Scripted::serve(said.to_vec()).await;
    let github = server.sets();
    for _ in 0..2 {
        let error = github.find(&scope(), 1, "small").await.unwrap_err().to_string();
        for secret in ["hunter2", "SERVICE", "REG", "PAT"] {
            assert!(!error.contains(secret), "{error}");
        }
        assert!(error.contains("GET /svc/_apis/runtime/runnerscalesets"), "{error}");
    }
}
