//! Chooses the loopback port of a service once, when it is free, and remembers it, so that agents that outlive a killed
//! operator find its successor.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::Rng as _;
use tokio::net::TcpListener;

use crate::files;

/// Below the ports that Linux uses for outgoing connections (`net.ipv4.ip_local_port_range`, from 32768): such a
/// connection could otherwise occupy the remembered port after a restart.
const CHOICE: std::ops::Range<u16> = 20_000..32_000;
const TRIES: usize = 64;
/// How long a remembered port may be held by connections of the previous process.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Another program has the remembered port.
    #[error(
        "port {port}, remembered in {}, is taken. If this directory is a copy of one that is served: delete that file, \
         and the copy gets a port and machines of its own. Else stop the program that has the port; or delete the file \
         (machines that still run are then replaced)", file.display()
    )]
    Taken {
        /// The port.
        port: u16,
        /// The file that remembers it.
        file: PathBuf,
    },
    /// The file has other content.
    #[error("{} does not hold a port number but {content:?}: delete the file", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Its content.
        content: String,
    },
    /// The file or the network failed.
    #[error("no port for {}: {source}", file.display())]
    Io {
        /// Where the port would be remembered.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Listens on the port that `file` remembers, or on a free one, which it then stores.
pub async fn listen(file: &Path) -> Result<TcpListener, PortError> {
    let failed = |source| PortError::Io { file: file.to_owned(), source };
    match std::fs::read_to_string(file) {
        Ok(content) => match content.trim().parse() {
            Ok(port) => again(port, file).await,
            Err(_) => {
                Err(PortError::Unreadable { file: file.to_owned(), content: content.trim().to_owned() })
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let listener = choose().await.map_err(failed)?;
            let port = listener.local_addr().map_err(failed)?.port();
            files::replace(file, format!("{port}\n").as_bytes()).map_err(failed)?;
            Ok(listener)
        }
        Err(error) => Err(failed(error)),
    }
}

async fn again(port: u16, file: &Path) -> Result<TcpListener, PortError> {
    let patient = tokio::time::timeout(PATIENCE, async {
        loop {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                other => return other,
            }
        }
    });
    match patient.await {
        Ok(bound) => bound.map_err(|source| PortError::Io { file: file.to_owned(), source }),
        Err(_) => Err(PortError::Taken { port, file: file.to_owned() }),
    }
}

async fn choose() -> io::Result<TcpListener> {
    for _ in 0..TRIES {
        let port = rand::rng().random_range(CHOICE);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return Ok(listener);
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_port_is_the_same_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("port");
        let first = listen(&file).await.unwrap().local_addr().unwrap();
        let second = listen(&file).await.unwrap().local_addr().unwrap();
        assert_eq!(first, second);
        assert!(first.ip().is_loopback());
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_somebody_else_took_is_named_with_the_file_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("port");
        let holder = listen(&file).await.unwrap();
        let error = listen(&file).await.unwrap_err().to_string();
        assert!(error.contains(&holder.local_addr().unwrap().port().to_string()), "{error}");
        assert!(error.contains(&file.display().to_string()) && error.contains("delete that file"), "{error}");
        assert!(
            error.contains("is taken. If this directory is a copy"),
            "what one needs comes first: {error}"
        );
    }

    #[tokio::test]
    async fn a_spoilt_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("port");
        std::fs::write(&file, "eighty").unwrap();
        let error = listen(&file).await.unwrap_err().to_string();
        assert!(error.contains("eighty") && error.contains("delete the file"), "{error}");
    }
}
