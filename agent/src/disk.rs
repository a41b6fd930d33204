//! How does the agent keep a file that it must be able to trust after any crash? Whole or not at all, and readable
//! for its owner only.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Makes a directory that only its owner may enter, and those above it.
///
/// # Errors
/// What the system says, with the path.
pub fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| at(path, &e))?;
    // One that was there already may have been open to everybody.
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(|e| at(path, &e))
}

/// Replaces a file in one step; it is on the disk when this returns.
///
/// # Errors
/// What the system says, with the path. The old content is then still there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&next, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    write().map_err(|e| at(path, &e))
}

/// Replaces a file with a value as JSON.
///
/// # Errors
/// As [`replace`].
pub fn save<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(value).map_err(|e| at(path, &e.into()))?)
}

/// Reads a value; none when there is no file.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match read(path)? {
        Some(content) => serde_json::from_slice(&content).map(Some).map_err(|e| at(path, &e.into())),
        None => Ok(None),
    }
}

/// Reads a file; none when there is none.
///
/// # Errors
/// The file is there and cannot be read.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, &error)),
    }
}

/// The same error, with the path it is about.
pub fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        assert_eq!(load::<Vec<u8>>(&path).unwrap(), None);
        save(&path, &vec![1, 2, 3]).unwrap();
        save(&path, &vec![4]).unwrap();
        assert_eq!(load::<Vec<u8>>(&path).unwrap(), Some(vec![4]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_that_was_open_to_everybody_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        private_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_that_holds_something_else_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::write(&path, "{").unwrap();
        assert!(load::<u8>(&path).unwrap_err().to_string().contains("state"));
    }
}
