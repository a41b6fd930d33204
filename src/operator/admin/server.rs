//! Serves HTTP to strangers: whoever sends half a request, or opens connections and leaves them, cannot keep the others
//! out. axum's own server has neither a deadline for headers nor a bound on connections.

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

/// How long a client may take for the header of a request, and be silent between two.
pub const HEADER: Duration = Duration::from_secs(5);
/// How long a connection lives; one that is used for longer is opened anew.
const LIFE: Duration = Duration::from_secs(60);
/// Connections at a time. One more ends the oldest, so that a flood never keeps a probe out.
pub const CONNECTIONS: usize = 128;
/// How long answers in progress may take once the server ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long to wait after the system refused a connection, for want of descriptors say.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers until `shutdown`, then finishes what is in progress for at most two seconds.
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

/// One connection, until its client leaves, is too slow, or its time is over.
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
