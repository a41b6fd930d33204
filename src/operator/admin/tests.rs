//! The admin port over real connections, on a port chosen by the system.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::*;
use crate::ports::Clock;
use crate::process::clock::SystemClock;
use crate::status::History;

struct Running {
    address: SocketAddr,
    health: Arc<Health>,
    clock: Arc<SystemClock>,
    shutdown: CancellationToken,
    server: JoinHandle<io::Result<()>>,
}

async fn running() -> Running {
    let clock = Arc::new(SystemClock::new());
    let health = Arc::new(Health::new(clock.clone()));
    let admin = Admin { health: health.clone(), metrics: Metrics::new(clock.clone()) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(listener, admin, shutdown.clone()));
    Running { address, health, clock, shutdown, server }
}

/// Sends a request and returns status, head and body.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn it_lives_before_it_is_ready() {
    let running = running().await;
    let (status, _, body) = ask(running.address, "GET", "/livez").await;
    assert_eq!((status, body.as_str()), (200, "ok\n"));

    let (status, _, body) = ask(running.address, "GET", "/readyz").await;
    assert_eq!((status, body.as_str()), (503, "not ready: the first list of the table is not done\n"));

    running.health.listed();
    let (status, _, body) = ask(running.address, "GET", "/readyz").await;
    assert_eq!((status, body.as_str()), (503, "not ready: the table has never answered\n"));

    running.health.table_answered(running.clock.elapsed());
    let (status, _, body) = ask(running.address, "GET", "/readyz").await;
    assert_eq!((status, body.as_str()), (200, "ready\n"));
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let running = running().await;
    let (status, head, body) = ask(running.address, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\nrunyard_leader 0\n"), "{body}");
}

#[tokio::test]
async fn the_page_is_sealed_and_is_there_before_anything_is_known() {
    let running = running().await;
    let (status, head, body) = ask(running.address, "GET", "/").await;
    assert_eq!(status, 200);
    assert!(body.starts_with("<!doctype html>"), "{body}");
    assert!(head.contains("content-security-policy: default-src 'none'; style-src 'sha256-"), "{head}");
    for header in ["x-content-type-options: nosniff", "cache-control: no-store", "content-type: text/html"] {
        assert!(head.contains(header), "{head}");
    }
}

#[tokio::test]
async fn the_loop_is_asked_once_for_all_who_look_within_a_second() {
    let running = running().await;
    let mut asks = running.health.snapshots().answer().expect("nobody answers yet");
    assert!(running.health.snapshots().answer().is_none(), "one loop answers");
    let looks = tokio::spawn(async move {
        let ask = |_| ask(running.address, "GET", "/status.json");
        futures::future::join_all((0..5).map(ask)).await
    });
    let history = History::new(jiff::Timestamp::UNIX_EPOCH);
    let (yard, now, role) = crate::explain::picture(&[], jiff::Timestamp::UNIX_EPOCH);
    let policy = runyard_fakes::a_minute_each();
    let cx = crate::decide::Context { yard: &yard, policy: &policy, now, role };
    let empty =
        crate::status::snapshot(&crate::status::SnapshotInput { cx, history: &history, table: "runyard" });
    asks.recv().await.unwrap().send(empty).unwrap();
    for (status, head, body) in looks.await.unwrap() {
        assert_eq!(status, 200);
        assert!(head.contains("content-type: application/json"), "{head}");
        assert!(body.contains("\"table\":\"runyard\"") && body.contains("\"pools\":[]"), "{body}");
    }
    assert!(asks.try_recv().is_err(), "asked more than once");
}

#[tokio::test]
async fn a_loop_that_is_gone_is_said() {
    let running = running().await;
    drop(running.health.snapshots().answer());
    let (status, _, body) = ask(running.address, "GET", "/status.json").await;
    assert_eq!(
        (status, body.as_str()),
        (503, "the operator is busy, starting or ending; ask again in a moment\n")
    );
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let running = running().await;
    assert_eq!(ask(running.address, "GET", "/other").await.0, 404);
    assert_eq!(ask(running.address, "POST", "/status.json").await.0, 405);
    assert_eq!(ask(running.address, "POST", "/livez").await.0, 405);
}

#[tokio::test]
async fn it_ends_when_told_even_with_a_connection_that_stops_midway() {
    let running = running().await;
    let mut stalled = TcpStream::connect(running.address).await.unwrap();
    stalled.write_all(b"GET /livez HT").await.unwrap();
    assert_eq!(ask(running.address, "GET", "/livez").await.0, 200);
    running.shutdown.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(600), running.server).await;
    ended.expect("it ends").unwrap().unwrap();
    assert!(TcpStream::connect(running.address).await.is_err());
}

#[tokio::test]
async fn a_name_that_was_made_to_point_here_gets_no_answer() {
    let running = running().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let request = "GET /status.json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test]
async fn half_a_request_is_not_waited_for() {
    let running = running().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: ").await.unwrap();
    // Once the server has read it, five seconds pass instantly.
    tokio::time::pause();
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(600), stream.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the connection is still open");
}

#[tokio::test]
async fn a_flood_of_idle_connections_keeps_nobody_out() {
    let running = running().await;
    let mut idle = Vec::new();
    for _ in 0..3 * server::CONNECTIONS {
        idle.push(TcpStream::connect(running.address).await.unwrap());
    }
    let (status, _, body) = ask(running.address, "GET", "/livez").await;
    assert_eq!((status, body.as_str()), (200, "ok\n"));
    // The oldest were closed for the later ones.
    let mut byte = [0; 1];
    assert_eq!(idle[0].read(&mut byte).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn five_hundred_machines_and_three_hundred_requests_are_sent_in_300_kb() {
    let running = running().await;
    let mut asks = running.health.snapshots().answer().expect("nobody answers yet");
    running.health.snapshots().link_to("https://github.example.com");
    let mut status = {
        let history = History::new(jiff::Timestamp::UNIX_EPOCH);
        let (yard, now, role) = crate::explain::picture(&[], jiff::Timestamp::UNIX_EPOCH);
        let policy = runyard_fakes::a_minute_each();
        let cx = crate::decide::Context { yard: &yard, policy: &policy, now, role };
        crate::status::snapshot(&crate::status::SnapshotInput { cx, history: &history, table: "runyard" })
    };
    let at = |seconds: i64| jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(seconds);
    let request = |n: usize| format!("an-owner/a-repository-{n} run {}/default/1", 70_000_000_000 + n);
    let spans = |n: usize| {
        let span = |index: usize| crate::status::PhaseSpan {
            phase: Some(crate::status::MachinePhase::Running),
            from: at((index * 61 + n * 7) as i64),
            request: Some(request(index + n)),
        };
        (0..16).map(span).collect()
    };
    status.machines.extend((0..crate::status::MOST_MACHINES).map(|n| crate::status::MachineStatus {
        id: format!("i-{:017x}", n * 7919),
        class: "a-class".into(),
        region: Some("eu-central-1".into()),
        instance_type: "m7i.2xlarge".into(),
        usage_class: "on-demand",
        is: crate::status::MachinePhase::Running,
        since: at(n as i64),
        until: Some(at(7919 * n as i64)),
        request: Some(request(n)),
        signal: Some("UD_REG_OK"),
        reason: None,
        uses: 7,
        spans: spans(n),
    }));
    status.requests.extend((0..crate::status::MOST_REQUESTS).map(|n| crate::status::RequestStatus {
        request: request(n),
        class: "a-class".into(),
        phase: "Pending",
        count: 4,
        held: 1,
        accepted_at: Some(at(n as i64)),
        deadline: Some(at(n as i64 + 600)),
        ready_at: None,
        message: "x".repeat(300),
        waits: vec!["y".repeat(300)],
        expected_at: None,
        expected: Some("z".repeat(100)),
    }));
    let _answering = tokio::spawn(async move {
        while let Some(ask) = asks.recv().await {
            let _ = ask.send(status.clone());
        }
    });
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let request = "GET /status.json HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: br, gzip\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let head = String::from_utf8_lossy(&answer[..600]).to_lowercase();
    assert!(
        head.contains("content-encoding: gzip") && head.contains("content-type: application/json"),
        "{head}"
    );
    assert!(answer.len() < 300 * 1024, "{}", answer.len());
    // A client without support for it gets the uncompressed text.
    let (_, head, body) = ask(running.address, "GET", "/status.json").await;
    assert!(!head.contains("content-encoding"), "{head}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["github"], "https://github.example.com");
}

#[tokio::test]
async fn the_icon_of_the_page_is_an_image_that_may_run_nothing() {
    let running = running().await;
    let (status, head, body) = ask(running.address, "GET", "/icon.svg").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: image/svg+xml") && head.contains("default-src 'none'"), "{head}");
    assert!(body.starts_with("<svg"), "{body}");
}
