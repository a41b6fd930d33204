//! Notifies systemd that the agent has started and is healthy, by the datagrams of `sd_notify(3)`: one when it is
//! ready, then one at each half of the watchdog interval. The thread that everything else runs on sends them, so
//! systemd restarts an agent that hangs.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use crate::system::environment::Listener;

/// The socket on which `systemd` receives notifications of this process.
#[derive(Debug)]
pub struct Notify {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
}

impl Notify {
    /// Creates a sender to a listening systemd; `None` if there is none, which is no error.
    pub fn to(listener: Listener) -> Option<Self> {
        match Self::reach(&listener.socket, listener.watchdog) {
            Ok(notify) => Some(notify),
            Err(error) => {
                tracing::warn!(%error, "cannot notify systemd");
                None
            }
        }
    }

    /// Opens a socket for an address. An address that begins with `@` is an abstract one.
    fn reach(address: &Path, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match address.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address, watchdog: watchdog.filter(|watchdog| !watchdog.is_zero()) })
    }

    fn say(&self, words: &str) {
        if let Err(error) = self.socket.send_to_addr(words.as_bytes(), &self.address) {
            tracing::warn!(%error, words, "a notification to systemd failed");
        }
    }

    /// Reports that this process is ready and then, for ever, that it is healthy.
    pub async fn run(self) {
        self.say("READY=1");
        let Some(watchdog) = self.watchdog else { return std::future::pending().await };
        loop {
            self.say("WATCHDOG=1");
            tokio::time::sleep(watchdog / 2).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn readiness_is_said_once_and_wellness_twice_in_the_watchdogs_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        systemd.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let notify = Notify::reach(&path, Some(Duration::from_millis(20))).unwrap();
        let saying = tokio::spawn(notify.run());
        let heard = tokio::task::spawn_blocking(move || {
            let mut buffer = [0; 64];
            let mut hear = || {
                let length = systemd.recv(&mut buffer).unwrap();
                String::from_utf8_lossy(&buffer[..length]).into_owned()
            };
            [hear(), hear(), hear()]
        });
        assert_eq!(heard.await.unwrap(), ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
        saying.abort();
    }

    #[test]
    fn an_abstract_address_is_understood() {
        let name = format!("runyard-notify-{}", std::process::id());
        let systemd = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notify::reach(Path::new(&format!("@{name}")), None).unwrap().say("READY=1");
        let mut buffer = [0; 64];
        let length = systemd.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }
}
