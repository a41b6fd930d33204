//! A peer on loopback that stands before a service and spoils what passes: each fault at the one place of the exchange
//! where it happens in life.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Nobody listens.
    Refused,
    /// The connection is reset; the service never heard of the call.
    ResetBefore,
    /// The service did it, and the connection is reset instead of the answer.
    ResetAfter,
    /// The service did it, and half its answer arrives.
    Truncated,
    /// 500 in the service's own words.
    Internal,
    /// 503 without words.
    Unavailable,
    /// Too many calls, in the service's own words.
    Throttled,
    /// Silence.
    Hang,
    /// 200 and a page for people.
    Html,
    /// 200 and well-formed words of another service.
    Foreign,
}

impl Fault {
    pub(crate) const ALL: [Self; 10] = [
        Self::Refused,
        Self::ResetBefore,
        Self::ResetAfter,
        Self::Truncated,
        Self::Internal,
        Self::Unavailable,
        Self::Throttled,
        Self::Hang,
        Self::Html,
        Self::Foreign,
    ];

    /// Whether the service has done what it was asked.
    pub(crate) fn done(self) -> bool {
        matches!(self, Self::ResetAfter | Self::Truncated)
    }
}

/// How a service says that it failed, or had too much: status, content type, body.
#[derive(Clone)]
pub(crate) struct Words {
    pub(crate) internal: (u16, &'static str, &'static str),
    pub(crate) throttled: (u16, &'static str, &'static str),
    pub(crate) foreign: (u16, &'static str, &'static str),
}

#[derive(Clone)]
struct Peer {
    service: String,
    /// What the calls have in their text that the fault is for.
    call: &'static str,
    fault: Fault,
    /// How many of them meet it.
    times: usize,
    met: Arc<AtomicUsize>,
    words: Words,
    http: reqwest::Client,
}

/// Puts a peer before a service whose first `times` calls of a kind meet a fault; answers where it listens.
pub(crate) async fn before(
    service: &str,
    call: &'static str,
    fault: Fault,
    times: usize,
    words: &Words,
) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let endpoint = format!("http://{}", socket.local_addr().unwrap());
    let met = Arc::new(AtomicUsize::new(0));
    if fault == Fault::Refused {
        // Bound and not listened on: refused as long as the test runs, and nobody else's port meanwhile.
        tokio::spawn(async move {
            let _held = socket;
            std::future::pending::<()>().await;
        });
        return endpoint;
    }
    let listener = socket.listen(1024).unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let peer = Peer {
        service: service.to_owned(),
        call,
        fault,
        times,
        met: met.clone(),
        words: words.clone(),
        http,
    };
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let peer = peer.clone();
            // A caller that hangs up is no failure of the peer's.
            tokio::spawn(async move { peer.exchange(socket).await.ok() });
        }
    });
    endpoint
}

fn reset(socket: &TcpStream) {
    socket.set_zero_linger().expect("an open socket");
}

impl Peer {
    async fn exchange(&self, mut socket: TcpStream) -> std::io::Result<()> {
        let Some((head, body)) = request(&mut socket).await? else { return Ok(()) };
        let text = format!("{head}\r\n\r\n{}", String::from_utf8_lossy(&body));
        let hit = text.contains(self.call) && self.met.fetch_add(1, Ordering::SeqCst) < self.times;
        if !hit {
            let (status, kind, answer) = self.forward(&head, body).await;
            return say(&mut socket, status, &kind, &answer).await;
        }
        match self.fault {
            Fault::Refused => Ok(()),
            Fault::ResetBefore => {
                reset(&socket);
                Ok(())
            }
            Fault::ResetAfter => {
                self.forward(&head, body).await;
                reset(&socket);
                Ok(())
            }
            Fault::Truncated => {
                let (status, kind, answer) = self.forward(&head, body).await;
                // One byte more than comes, where there is no body to cut.
                let length = answer.len().max(1);
                let begun = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
                );
                socket.write_all(begun.as_bytes()).await?;
                socket.write_all(&answer[..answer.len() / 2]).await
            }
            Fault::Internal => self.says(&mut socket, self.words.internal).await,
            Fault::Unavailable => self.says(&mut socket, (503, "text/plain", "")).await,
            Fault::Throttled => self.says(&mut socket, self.words.throttled).await,
            Fault::Hang => {
                tokio::time::sleep(Duration::from_secs(120)).await;
                Ok(())
            }
            Fault::Html => {
                self.says(&mut socket, (200, "text/html", "<html><body>Sign in</body></html>")).await
            }
            Fault::Foreign => self.says(&mut socket, self.words.foreign).await,
        }
    }

    async fn says(
        &self,
        socket: &mut TcpStream,
        (status, kind, body): (u16, &str, &str),
    ) -> std::io::Result<()> {
        say(socket, status, kind, body.as_bytes()).await
    }

    async fn forward(&self, head: &str, body: Vec<u8>) -> (u16, String, Vec<u8>) {
        let mut lines = head.lines();
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut call = self.http.request(method, format!("{}{path}", self.service));
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            let own = ["host", "content-length", "connection", "expect"];
            if !own.contains(&name.to_ascii_lowercase().as_str()) {
                call = call.header(name, value);
            }
        }
        let answer = call.body(body).send().await.expect("the service answers");
        let status = answer.status().as_u16();
        let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or("text/plain").to_owned();
        (status, kind, answer.bytes().await.expect("the service's answer").to_vec())
    }
}

async fn say(socket: &mut TcpStream, status: u16, kind: &str, body: &[u8]) -> std::io::Result<()> {
    let length = if status == 204 { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{length}connection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body).await?;
    socket.shutdown().await
}

/// One request: its head and its body; none when the caller hung up.
async fn request(socket: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    loop {
        if let Some(at) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..at]).into_owned();
            let length = head.lines().filter_map(|line| line.split_once(':'));
            let length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize =
                length.map(|(_, value)| value.trim().parse().unwrap_or(0)).next().unwrap_or(0);
            if all.len() >= at + 4 + length {
                return Ok(Some((head, all[at + 4..at + 4 + length].to_vec())));
            }
        }
        let mut part = [0; 4096];
        match socket.read(&mut part).await? {
            0 => return Ok(None),
            n => all.extend_from_slice(&part[..n]),
        }
    }
}
