//! Checks whether a container engine responds at a socket.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time limit for the engine's response.
const ANSWER: Duration = Duration::from_secs(5);

/// Returns whether a container engine responds at the socket.
pub(crate) fn answers(socket: &Path) -> bool {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /_ping HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok::<_, io::Error>(head.ends_with(b" 200"))
    };
    ask().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_answers_where_it_says_that_it_is_well() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        assert!(!answers(&socket));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            for said in ["HTTP/1.1 200 OK\r\n\r\nOK", "HTTP/1.1 500 Internal\r\n\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 512]);
                stream.write_all(said.as_bytes()).unwrap();
            }
        });
        assert_eq!((answers(&socket), answers(&socket)), (true, false));
    }
}
