//! Replaces small files atomically: written beside, synced, renamed. After a crash a file has either its old or its new
//! content.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How often a locked file is tried again, and at which interval: 2 s in total.
const LEFT: u32 = 200;
const LOOK: Duration = Duration::from_millis(10);

/// Writes a file, readable by its owner only, in one step.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// Writes a value as JSON, in one step.
pub fn replace_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    replace(path, &text)
}

/// Reads a JSON file; none when there is none.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a directory that only its owner can enter, and its parents.
pub fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a private directory, or removes other users' access to an existing one: it is to hold keys. A directory that
/// holds files but not this one belongs to another user: it is left unchanged, and refused.
pub fn close_dir(path: &Path, ours: &Path) -> io::Result<()> {
    private_dir(path)?;
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    if !ours.exists() && fs::read_dir(path)?.next().is_some() {
        let why = format!(
            "others may enter it (mode {mode:o}), and it holds files: `chmod 700` it, or name another"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

/// Locks a file for as long as it is open. A held lock is tried again for a while: a child that a process started just
/// before it was killed holds its files too, until it executes another program.
pub fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LEFT {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            other => return other,
        }
    }
    file.try_lock()
}

/// Removes a directory with all its contents; one that does not exist is no error.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_there_is_closed_and_one_of_others_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let open = |name: &str| {
            let path = scratch.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            path
        };
        let made = scratch.path().join("a/b");
        close_dir(&made, &made.join("lock")).unwrap();
        assert_eq!(mode(&made), 0o700);
        let empty = open("empty");
        close_dir(&empty, &empty.join("lock")).unwrap();
        assert_eq!(mode(&empty), 0o700);
        let yard = open("yard");
        fs::write(yard.join("lock"), "").unwrap();
        close_dir(&yard, &yard.join("lock")).unwrap();
        assert_eq!(mode(&yard), 0o700);
        let others = open("others");
        fs::write(others.join("thesis.tex"), "").unwrap();
        let refused = close_dir(&others, &others.join("lock")).unwrap_err();
        assert!(refused.to_string().contains("chmod 700"), "{refused}");
        assert_eq!(mode(&others), 0o777, "it is left as it is");
    }
}
