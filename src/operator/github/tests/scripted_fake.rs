//! An HTTP server for the adapter's tests: each connection gets the next reply of a script, and requests are recorded.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::github::{ApiUrl, Credential, RestGitHub};

pub(crate) const JSON: &str = "content-type: application/json; charset=utf-8";

/// The server's reaction to one connection.
pub(crate) enum Reply {
    /// Sends status line and headers, then a body.
    Say(u16, Vec<String>, String),
    /// Accepts and never responds.
    Hang,
    /// Accepts and closes the connection.
    Close,
}

pub(crate) fn say(status: u16, headers: &[&str], body: &str) -> Reply {
    Reply::Say(status, headers.iter().map(|h| (*h).to_owned()).collect(), body.to_owned())
}

pub(crate) fn json(status: u16, body: serde_json::Value) -> Reply {
    say(status, &[JSON], &body.to_string())
}

pub(crate) struct Scripted {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    pub(crate) async fn serve(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut held = Vec::new();
            for reply in replies {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !complete(&request) {
                    let mut part = [0; 4096];
                    match socket.read(&mut part).await.unwrap() {
                        0 => break,
                        n => request.extend_from_slice(&part[..n]),
                    }
                }
                seen.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                match reply {
                    Reply::Hang => held.push(socket),
                    Reply::Close => {}
                    Reply::Say(status, headers, body) => {
                        let headers: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
                        let length = body.len();
                        let text = format!(
                            "HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
                        );
                        socket.write_all(text.as_bytes()).await.unwrap();
                    }
                }
            }
            std::future::pending::<()>().await;
        });
        Self { url, requests }
    }

    pub(crate) fn github(&self) -> RestGitHub {
        self.github_as(Credential::None)
    }

    pub(crate) fn github_as(&self, credential: Credential) -> RestGitHub {
        adapter(&self.url, credential)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length:").map(str::to_owned));
    body.len() >= length.and_then(|l| l.trim().parse().ok()).unwrap_or(0)
}

pub(crate) fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub(crate) fn adapter(url: &str, credential: Credential) -> RestGitHub {
    let deadline = Duration::from_secs(2);
    RestGitHub::new(ApiUrl::parse(url).unwrap(), credential, deadline, Arc::new(now)).unwrap()
}
