//! GitHub's answers: each input is one, as status, headers and body, said to one of the questions the operator asks.
//! What it makes of it is a value that holds what it promises, or an error that fits into a line of a log.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderName, HeaderValue};
use runyard_core::ports::github::{GitHub, GitHubError, RunnerSpec, Scope, Waiting};
use runyard_operator::github::{ApiUrl, Credential, RestGitHub};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::fuzz::{fuzz, seeds};

/// Longest error: an address, what is wrong with the answer, and GitHub's own words cut short.
const LINE: usize = 600;
/// So often an input is said; a list that says there is more is over then.
const SAID: usize = 4;
/// GitHub's budgets are forgotten after an hour.
const APART: i64 = 7200;

/// What the next questions are answered with, and how often already.
#[derive(Default)]
struct Script {
    answer: Cell<Vec<u8>>,
    said: Cell<usize>,
}

impl Script {
    fn next(&self) -> Vec<u8> {
        self.said.set(self.said.get() + 1);
        let answer = self.answer.take();
        self.answer.set(answer.clone());
        if self.said.get() <= SAID { answer } else { http(503, Vec::new(), b"") }
    }
}

fn http(status: u16, headers: Vec<(String, String)>, body: &[u8]) -> Vec<u8> {
    // What the transport says of itself; other lengths than the true one are a matter of the wire tests.
    let framing = ["content-length", "transfer-encoding", "connection", "upgrade", "trailer"];
    let body = if matches!(status, 204 | 304) { b"" } else { body };
    let mut answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len()).into_bytes();
    for (name, value) in headers {
        let valid = (name.parse::<HeaderName>(), value.parse::<HeaderValue>());
        if let (Ok(name), Ok(value)) = valid
            && !framing.contains(&name.as_str())
        {
            answer.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
    }
    [&answer, b"\r\n".as_slice(), body].concat()
}

/// An input as an answer, the question it answers, and its status: `{question, status, headers, body}`; what is no such
/// thing is a body.
fn answer(input: &[u8]) -> (u64, u16, Vec<u8>) {
    let json = ("content-type".to_owned(), "application/json".to_owned());
    let parts = match serde_json::from_slice(input) {
        Ok(Value::Object(parts)) if parts.contains_key("status") => parts,
        _ => return (input.len() as u64, 200, http(200, vec![json], input)),
    };
    let number = |name: &str| parts.get(name).and_then(Value::as_u64);
    let status = match number("status").unwrap_or(200) {
        told @ 200..600 => told,
        other => 200 + other % 400,
    };
    let status = u16::try_from(status).expect("below 600");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let headers = match parts.get("headers") {
        Some(Value::Object(all)) => all.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
        _ => vec![json],
    };
    let body = parts.get("body").map(text).unwrap_or_default();
    (number("question").unwrap_or(0), status, http(status, headers, body.as_bytes()))
}

/// Answers on one connection until the caller hangs up.
async fn serve(socket: TcpStream, script: Rc<Script>) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut socket = BufReader::new(socket);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            if socket.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(given) = line.strip_prefix("content-length: ") {
                length = given.trim_end().parse().unwrap();
            }
        }
        socket.read_exact(&mut vec![0; length]).await?;
        socket.write_all(&script.next()).await?;
    }
}

async fn listen(listener: TcpListener, script: Rc<Script>) {
    while let Ok((socket, _)) = listener.accept().await {
        // A caller that hangs up is no failure of the server's.
        let script = script.clone();
        tokio::task::spawn_local(async move { serve(socket, script).await.ok() });
    }
}

/// Asks the question of this number; what was answered holds what its verb promises.
async fn ask(github: &RestGitHub, question: u64, status: u16) -> Result<(), GitHubError> {
    let scope = Scope::Repository { owner: "acme".into(), name: "web".into() };
    match question % 8 {
        0 => assert!(!github.registration_token(&scope).await?.value.is_empty()),
        1 => assert!(!github.removal_token(&scope).await?.value.is_empty()),
        2 => {
            let labels = vec!["42".to_owned()];
            let spec = RunnerSpec { name: "one".into(), labels, group_id: 1, work_folder: "_work".into() };
            assert!(!github.job_config(&scope, &spec).await?.encoded.is_empty());
        }
        3 => drop(github.runner_group("acme", "one").await?),
        4 => {
            let found = github.runner(&scope, "one").await?;
            assert!(found.is_none_or(|runner| runner.name == "one"));
        }
        5 => {
            let all = github.runners(&scope).await?;
            assert!(all.windows(2).all(|two| two[0].id < two[1].id), "each once, in order");
        }
        6 => {
            github.remove_runner(&scope, 7).await?;
            assert_eq!(status, 204, "nothing else proves a removal when every question is answered the same");
        }
        _ => drop(github.run("acme", "web", 42, Waiting::Machine).await?),
    }
    // What was answered to an earlier input is kept, and "not modified" means that.
    assert!((200..300).contains(&status) || status == 304, "{status} is not a success");
    Ok(())
}

fn bears(error: &GitHubError) {
    let text = error.to_string();
    assert!(text.chars().count() <= LINE, "{} characters: {text}", text.chars().count());
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(!text.contains("no answer within"), "it was answered: {text}");
    if let GitHubError::Throttled { retry_after } | GitHubError::Deferred { retry_after } = error {
        assert!((1..=3600).contains(&retry_after.as_secs()), "{retry_after:?}");
    }
}

#[test]
fn an_answer_of_any_shape_is_what_was_asked_for_or_fits_into_a_line() {
    let words = [
        "next",
        "rel=\"next\"",
        "<https://x/?page=2>; rel=\"next\"",
        "retry-after",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-ratelimit-limit",
        "x-ratelimit-resource",
        "location",
        "etag",
        "text/html",
        "application/problem+json",
        "Sun, 01 Mar 2026 12:02:00 GMT",
        "rate limit",
        "already exists",
        "completed",
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (tasks, script) = (tokio::task::LocalSet::new(), Rc::new(Script::default()));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tasks.spawn_local(listen(listener, script.clone()));
    let seconds = Arc::new(AtomicI64::new(1_767_614_400));
    let clock = seconds.clone();
    let now = Arc::new(move || Timestamp::from_second(clock.load(Ordering::Relaxed)).unwrap());
    let origin = ApiUrl::parse(&address).unwrap();
    let github = RestGitHub::new(origin, Credential::None, Duration::from_secs(60), now).unwrap();
    fuzz("github", &seeds("github", &[]), &words, |input| {
        let (question, status, answer) = answer(input);
        script.answer.set(answer);
        script.said.set(0);
        seconds.fetch_add(APART, Ordering::Relaxed);
        tasks.block_on(&runtime, async {
            if let Err(error) = ask(&github, question, status).await {
                bears(&error);
            }
        });
        assert!(script.said.get() > 0, "the question was not asked");
    });
}
