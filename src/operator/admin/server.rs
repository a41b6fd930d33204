//! An HTTP server for untrusted clients: incomplete requests and idle connections cannot keep others out. axum's own
//! server has neither a deadline for headers nor a limit on connections.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Timeout of a request's header, and of the pause between two requests.
pub const HEADER: Duration = Duration::from_secs(5);
/// Maximum lifetime of a connection; clients that need more open a new one.
const LIFE: Duration = Duration::from_secs(60);
/// Maximum number of connections. One more closes the oldest, so that a flood never keeps a probe out.
pub const CONNECTIONS: usize = 128;
/// Timeout of responses in progress once the server stops.
const FAREWELL: Duration = Duration::from_secs(2);
/// The pause after the system refused a connection, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then finishes requests in progress for at most two seconds.
///
/// # Guarantees
/// At most [`CONNECTIONS`] are open at a time, each for at most a minute and [`FAREWELL`].
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) -> io::Result<()> {
    let mut open = JoinSet::new();
    let mut oldest: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = open.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        oldest.retain(|connection| !connection.is_finished());
        if oldest.len() >= CONNECTIONS
            && let Some(connection) = oldest.pop_front()
        {
            connection.abort();
        }
        oldest.push_back(open.spawn(converse(stream, router.clone(), shutdown.clone())));
    }
    let _ = tokio::time::timeout(FAREWELL, async { while open.join_next().await.is_some() {} }).await;
    Ok(())
}

/// Serves one connection, until its client closes it, is too slow, or its lifetime ends.
async fn converse(stream: TcpStream, router: Router, shutdown: CancellationToken) {
    let service = TowerToHyperService::new(router);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    tokio::select! {
        _ = served.as_mut() => return,
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(LIFE) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(FAREWELL, served).await;
}
