//! Prevents a second agent on the same machine: two agents would compete for one runner.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Held for as long as the agent runs; the system releases it however the agent ends.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held, not read")] Flock<File>);

impl Lock {
    /// Takes the lock of a state directory.
    ///
    /// # Errors
    /// Another agent holds it, or the file cannot be created.
    pub fn take(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|e| crate::system::disk::at(&path, &e))?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map(Self).map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another agent is running: it holds {}; stop that one first", path.display()),
            ),
            other => crate::system::disk::at(&path, &other.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_until_the_first_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(dir.path()).unwrap();
        assert!(Lock::take(dir.path()).unwrap_err().to_string().contains("another agent is running"));
        drop(first);
        assert!(Lock::take(dir.path()).is_ok());
    }
}
