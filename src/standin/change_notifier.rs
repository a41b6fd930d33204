//! Notifies a table watch of changes. The embedded engine appends every commit to its log beside the table's file; the
//! kernel reports the write, and the watch reads at once instead of at its next poll.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::watch;

use crate::engine;
use crate::store::DynamoStore;

/// Returns the store over the table of a data directory, woken by every commit where the kernel reports it; else it
/// polls, as everywhere.
pub fn with_change_notifier(store: DynamoStore, dir: &Path) -> DynamoStore {
    if !dir.join(engine::FILE).exists() {
        return store;
    }
    match listen(dir) {
        Ok(changes) => store.woken_by(changes),
        Err(error) => {
            tracing::debug!(%error, "no notification of commits; polling for them instead");
            store
        }
    }
}

/// Notifies of every commit of the table in a data directory, as long as a receiver exists.
///
/// # Errors
/// The kernel watches no more directories.
pub fn listen(dir: &Path) -> io::Result<watch::Receiver<()>> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    inotify.add_watch(dir, AddWatchFlags::IN_MODIFY)?;
    let (sender, told) = watch::channel(());
    std::thread::Builder::new().name("change-notifier".into()).spawn(move || follow(&inotify, &sender))?;
    Ok(told)
}

/// Runs until the directory is gone, or until the first event after the last receiver was dropped.
fn follow(inotify: &Inotify, sender: &watch::Sender<()>) {
    while let Ok(seen) = inotify.read_events() {
        let over = seen.iter().any(|event| event.mask.contains(AddWatchFlags::IN_IGNORED));
        if over || sender.is_closed() {
            return;
        }
        // Events without a name report that some were lost: a commit may be among those.
        if seen.iter().any(|event| event.name.as_deref().is_none_or(is_the_log)) {
            sender.send_replace(());
        }
    }
}

/// Returns whether this is the table's file or its log.
fn is_the_log(name: &OsStr) -> bool {
    name.as_bytes().starts_with(engine::FILE.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_commit_is_told_and_what_else_happens_in_the_directory_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut changes = listen(dir.path()).unwrap();
        std::fs::write(dir.path().join("table.port"), "1").unwrap();
        std::fs::write(dir.path().join(format!("{}-wal", engine::FILE)), "1").unwrap();
        tokio::time::timeout(Duration::from_secs(600), changes.changed()).await.unwrap().unwrap();
        assert!(!is_the_log(OsStr::new("table.port")));
    }
}
