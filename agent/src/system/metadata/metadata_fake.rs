//! A fake metadata service: it requires tokens with a time to live, serves the facts that a test sets, and misbehaves
//! as a test scripts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A fault of the service, each for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Responds with this status.
    Status(u16),
    /// Forgets its tokens.
    ForgetsTokens,
    /// Closes the connection.
    HangsUp,
    /// Accepts the request and never responds.
    Silent,
}

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) facts: BTreeMap<String, String>,
    pub(crate) bad: VecDeque<Fault>,
    pub(crate) asked: Vec<String>,
    tokens: Vec<String>,
    minted: u32,
}

/// The fake service.
pub(crate) struct FakeMetadata {
    pub(crate) endpoint: String,
    pub(crate) shared: Arc<Mutex<Shared>>,
}

impl FakeMetadata {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let of_task = shared.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, of_task.clone()));
            }
        });
        let fake = Self { endpoint, shared };
        let document = r#"{"accountId":"123456789012","region":"eu-central-1","instanceId":"i-0123456789abcdef0",
            "instanceType":"m7i.large","availabilityZone":"eu-central-1b","more":null}"#;
        fake.set("dynamic/instance-identity/document", document);
        fake.set("meta-data/services/partition", "aws");
        fake.set("meta-data/instance-life-cycle", "spot");
        fake
    }

    pub(crate) fn set(&self, path: &str, text: &str) {
        self.shared.lock().unwrap().facts.insert(path.to_owned(), text.to_owned());
    }

    pub(crate) fn remove(&self, path: &str) {
        self.shared.lock().unwrap().facts.remove(path);
    }

    pub(crate) fn bad(&self, days: impl IntoIterator<Item = Fault>) {
        self.shared.lock().unwrap().bad.extend(days);
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.shared.lock().unwrap().asked.clone()
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Mutex<Shared>>) {
    let mut head = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let Ok(read) = stream.read(&mut buffer).await else { return };
        if read == 0 {
            return;
        }
        head.extend_from_slice(&buffer[..read]);
        if !head.windows(4).any(|window| window == b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).unwrap().to_lowercase();
        let Some((status, body)) = answer(&text, &shared) else {
            let bad = shared.lock().unwrap().bad.pop_front();
            if bad == Some(Fault::Silent) {
                std::future::pending::<()>().await;
            }
            return;
        };
        let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Returns the response; `None` if the connection gets none.
fn answer(request: &str, shared: &Mutex<Shared>) -> Option<(u16, String)> {
    let mut shared = shared.lock().unwrap();
    let first: Vec<&str> = request.lines().next().unwrap().split(' ').collect();
    let path = first[1].strip_prefix("/latest/").unwrap_or(first[1]).to_owned();
    shared.asked.push(format!("{} {path}", first[0]));
    match shared.bad.front().copied() {
        Some(Fault::HangsUp | Fault::Silent) => return None,
        Some(Fault::Status(status)) => {
            shared.bad.pop_front();
            return Some((status, "<html>bad day</html>".to_owned()));
        }
        Some(Fault::ForgetsTokens) => {
            shared.bad.pop_front();
            shared.tokens.clear();
        }
        None => {}
    }
    let header = |name: &str| {
        request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
    };
    if first[0] == "put" {
        let life = header("x-aws-ec2-metadata-token-ttl-seconds").and_then(|text| text.parse::<u64>().ok());
        if path != "api/token" || !life.is_some_and(|life| (1..=21600).contains(&life)) {
            return Some((400, String::new()));
        }
        shared.minted += 1;
        let token = format!("token{}", shared.minted);
        shared.tokens.push(token.clone());
        return Some((200, token));
    }
    if !header("x-aws-ec2-metadata-token").is_some_and(|token| shared.tokens.contains(&token)) {
        return Some((401, String::new()));
    }
    match shared.facts.get(&path) {
        Some(fact) => Some((200, fact.clone())),
        None => Some((404, String::new())),
    }
}
